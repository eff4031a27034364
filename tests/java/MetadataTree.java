import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.node.MetadataImageNode;
import org.apache.kafka.image.node.MetadataNode;
import org.apache.kafka.image.node.printer.MetadataNodePrinter;
import org.apache.kafka.image.node.printer.MetadataNodeRedactionCriteria;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;
import org.apache.kafka.snapshot.FileRawSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotReader;
import org.apache.kafka.snapshot.SnapshotPath;
import org.apache.kafka.snapshot.Snapshots;

/**
 * The image that Apache Kafka's own classes make of files, as a tree.
 *
 * <p>Arguments: {@code file} and the path of a snapshot or segment, or {@code directory} and the
 * folder of the metadata log; and so on. Prints of each the paths of all nodes, those of the
 * leaves, the leaves' texts, and the whole tree; a line that begins with {@code ---} stands before
 * each part.
 */
public class MetadataTree {
    private MetadataImage image = MetadataImage.EMPTY;
    private final DefaultSupportedConfigChecker checker = new DefaultSupportedConfigChecker();
    private final MetadataBatchLoader loader = new MetadataBatchLoader(
        new LogContext(),
        Time.SYSTEM,
        (message, cause) -> {
            throw new IllegalStateException(message, cause);
        },
        (delta, image, manifest) -> this.image = image,
        checker);

    public static void main(String[] arguments) throws Exception {
        System.setOut(new PrintStream(System.out, false, StandardCharsets.UTF_8));
        for (int index = 0; index < arguments.length; index += 2) {
            MetadataTree files = new MetadataTree();
            files.loader.resetToImage(files.image);
            Path path = Path.of(arguments[index + 1]);
            if (arguments[index].equals("directory")) {
                files.loadFolder(path);
            } else {
                files.loadBatches(path);
            }
            files.print();
        }
        System.out.flush();
    }

    void print() {
        MetadataNode root = new MetadataImageNode(image);
        List<String> leaves = new ArrayList<>();
        List<MetadataNode> nodes = new ArrayList<>();
        System.out.println("--- find");
        find("/image", root, leaves, nodes);
        System.out.println("--- leaves");
        leaves.forEach(System.out::println);
        System.out.println("--- cat");
        nodes.forEach(node -> node.print(new Printer()));
        System.out.println("--- tree");
        root.print(new Printer());
    }

    void loadFolder(Path folder) throws Exception {
        List<Path> segments = new ArrayList<>();
        SnapshotPath newest = null;
        try (Stream<Path> entries = Files.list(folder)) {
            for (Path entry : entries.sorted().toList()) {
                SnapshotPath snapshot = Snapshots.parse(entry).orElse(null);
                if (snapshot != null && !snapshot.deleted() && !snapshot.partial()) {
                    newest = snapshot;
                } else if (entry.toString().endsWith(".log")) {
                    segments.add(entry);
                }
            }
        }
        if (newest != null && !newest.snapshotId().equals(Snapshots.BOOTSTRAP_SNAPSHOT_ID)) {
            loadSnapshot(folder, newest);
        }
        segments.sort(Comparator.naturalOrder());
        for (Path segment : segments) {
            loadBatches(segment);
        }
    }

    void loadSnapshot(Path folder, SnapshotPath snapshot) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image)
            .setSupportedConfigChecker(checker).build();
        try (FileRawSnapshotReader file =
                FileRawSnapshotReader.open(folder, snapshot.snapshotId());
            RecordsSnapshotReader<ApiMessageAndVersion> reader = RecordsSnapshotReader.of(file,
                MetadataRecordSerde.INSTANCE, BufferSupplier.create(), 8 << 20, true,
                new LogContext())) {
            while (reader.hasNext()) {
                reader.next().records().forEach(record -> delta.replay(record.message()));
            }
            delta.finishSnapshot();
            image = delta.apply(new MetadataProvenance(reader.lastContainedLogOffset(),
                reader.lastContainedLogEpoch(), reader.lastContainedLogTimestamp(), true));
        }
        loader.resetToImage(image);
    }

    void loadBatches(Path path) throws Exception {
        try (FileRecords records = FileRecords.open(new File(path.toString()), false)) {
            for (RecordBatch batch : records.batches()) {
                if (batch.isControlBatch() || batch.lastOffset() <= image.offset()) {
                    continue;
                }
                List<ApiMessageAndVersion> messages = new ArrayList<>();
                for (Record record : batch) {
                    messages.add(MetadataRecordSerde.INSTANCE.read(
                        new ByteBufferAccessor(record.value()), record.valueSize()));
                }
                loader.loadBatch(Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(),
                    batch.maxTimestamp(), batch.sizeInBytes(), messages), LeaderAndEpoch.UNKNOWN);
                loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
            }
        }
    }

    /** A name can have nothing under it: of quotas of a default only the other parts are shown. */
    static void find(String path, MetadataNode node, List<String> leaves,
            List<MetadataNode> nodes) {
        System.out.println(path);
        if (node == null) {
            return;
        }
        if (!node.isDirectory()) {
            leaves.add(path);
            nodes.add(node);
            return;
        }
        for (String name : node.childNames().stream().sorted().toList()) {
            find(path + "/" + name, node.child(name), leaves, nodes);
        }
    }

    /** Prints as the printer of Kafka's shell does, secrets too. */
    static class Printer implements MetadataNodePrinter {
        private int depth;

        @Override
        public MetadataNodeRedactionCriteria redactionCriteria() {
            return MetadataNodeRedactionCriteria.Disabled.INSTANCE;
        }

        @Override
        public void enterNode(String name) {
            output(name + ":");
            depth++;
        }

        @Override
        public void leaveNode() {
            depth--;
        }

        @Override
        public void output(String text) {
            System.out.println("  ".repeat(depth) + text);
        }
    }
}
