import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Optional;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Prints what Kafka's own classes know of APIs, and the bytes of records of every family. */
public class CrossTables {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        for (ApiKeys key : ApiKeys.values()) {
            api(key);
        }
        for (MetadataRecordType type : MetadataRecordType.values()) {
            metadata(type);
        }
        coordinator("group", new GroupCoordinatorRecordSerde());
        coordinator("transaction", new TransactionCoordinatorRecordSerde());
        coordinator("share", new ShareCoordinatorRecordSerde());
    }

    private static void api(ApiKeys key) {
        StringBuilder line = new StringBuilder("api " + key.id + " " + key.name);
        for (boolean unstable : new boolean[] {false, true}) {
            Optional<ApiVersion> versions =
                key.toApiVersionForApiResponse(unstable, ListenerType.BROKER);
            line.append(' ').append(versions
                .map(range -> range.minVersion() + "-" + range.maxVersion()).orElse("none"));
        }
        for (ListenerType listener : new ListenerType[] {
            ListenerType.BROKER, ListenerType.CONTROLLER}) {
            line.append(' ').append(key.inScope(listener));
        }
        if (key.hasValidVersion()) {
            for (short version : key.allVersions()) {
                line.append(' ').append(version).append(':')
                    .append(key.requestHeaderVersion(version)).append(':')
                    .append(key.responseHeaderVersion(version));
            }
        }
        System.out.println(line);
    }

    private static void metadata(MetadataRecordType type) {
        for (short version = type.lowestSupportedVersion();
                version <= type.highestSupportedVersion(); version++) {
            ApiMessageAndVersion record =
                new ApiMessageAndVersion(type.newMetadataRecord(), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            int size = MetadataRecordSerde.INSTANCE.recordSize(record, cache);
            ByteBuffer buffer = ByteBuffer.allocate(size);
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            String bytes = HEX.formatHex(buffer.array());
            System.out.println("metadata " + type.id() + " " + version + " " + bytes);
        }
    }

    private static void coordinator(String family, CoordinatorRecordSerde serde) throws Exception {
        Class<?> types = Class.forName("org.apache.kafka.coordinator." + family
            + ".generated.CoordinatorRecordType");
        Method newKey = types.getMethod("newRecordKey");
        Method newValue = types.getMethod("newRecordValue");
        for (Object type : types.getEnumConstants()) {
            ApiMessage value = (ApiMessage) newValue.invoke(type);
            for (short version = value.lowestSupportedVersion();
                    version <= value.highestSupportedVersion(); version++) {
                CoordinatorRecord record = CoordinatorRecord.record(
                    (ApiMessage) newKey.invoke(type), new ApiMessageAndVersion(value, version));
                System.out.println(family + " " + types.getMethod("id").invoke(type) + " "
                    + version + " " + HEX.formatHex(serde.serializeKey(record)) + " "
                    + HEX.formatHex(serde.serializeValue(record)));
            }
        }
    }
}
