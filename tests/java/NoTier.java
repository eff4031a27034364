import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.*;

/** A tier that takes everything and has nothing: for a directory with a topic that uses one. */
public class NoTier implements RemoteStorageManager {
    @Override
    public void configure(Map<String, ?> settings) {}

    @Override
    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) {
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from)
            throws RemoteStorageException {
        throw new RemoteResourceNotFoundException("there is nothing");
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int from, int to)
            throws RemoteStorageException {
        throw new RemoteResourceNotFoundException("there is nothing");
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type)
            throws RemoteStorageException {
        throw new RemoteResourceNotFoundException("there is nothing");
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {}

    @Override
    public void close() {}
}
