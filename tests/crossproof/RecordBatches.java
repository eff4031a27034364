// Record batches from Apache Kafka's own code, and what that code says of ours.
//
//   write FOLDER   writes the fixtures of src/records, each to a file NAME.batch
//   read  FILE...  prints every batch and record of each file, one a line
//   judge FILE...  prints what a broker would answer to each file as the records of a partition of
//                  a Produce request: OK, or the error's name with the message

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class RecordBatches {
    static final long BASE_TIME = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> {
                for (var file : cases().entrySet()) {
                    Files.write(Path.of(args[1], file.getKey() + ".batch"), file.getValue());
                }
            }
            case "read" -> {
                for (int i = 1; i < args.length; i++) read(Path.of(args[i]));
            }
            case "judge" -> {
                for (int i = 1; i < args.length; i++) judge(Path.of(args[i]));
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static Map<String, byte[]> cases() {
        Map<String, byte[]> files = new LinkedHashMap<>();
        for (CompressionType type : CompressionType.values()) {
            Compression compression = Compression.of(type).build();
            files.put("records-" + type.name, bytes(records(compression, false)));
            if (type != CompressionType.NONE) {
                files.put("large-" + type.name, bytes(large(compression)));
            }
        }
        files.put("gzip-9", bytes(records(Compression.gzip().level(9).build(), false)));
        files.put("lz4-17", bytes(records(Compression.lz4().level(17).build(), false)));
        files.put("zstd-19", bytes(records(Compression.zstd().level(19).build(), false)));
        files.put("log-append-time", bytes(records(Compression.NONE, true)));
        ByteBuffer buffer = ByteBuffer.allocate(1024);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 42L, -1L, 4000L, (short) 7, 2147483646, true, false, 5,
            1024);
        for (int i = 0; i < 4; i++) {
            builder.append(BASE_TIME + 10 - 5 * i, ("k" + i).getBytes(), ("v" + i).getBytes());
        }
        files.put("transactional", bytes(builder.build()));
        for (ControlRecordType type : new ControlRecordType[] {
                ControlRecordType.COMMIT, ControlRecordType.ABORT}) {
            files.put("marker-" + type.name().toLowerCase(), bytes(MemoryRecords
                .withEndTransactionMarker(9L, BASE_TIME, 5, 4000L, (short) 7,
                    new EndTransactionMarker(type, 11))));
        }
        return files;
    }

    static MemoryRecords records(Compression compression, boolean append) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(4096), (byte) 2,
            compression, append ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME, 0L,
            append ? BASE_TIME + 99 : -1L, -1L, (short) -1, -1, false, false, -1, 4096);
        for (int i = 0; i < 100; i++) {
            byte[] key = i % 3 == 0 ? null : ("key-" + i).getBytes();
            byte[] value = i % 7 == 0 ? null : ("value-" + i + "-" + "abc".repeat(i)).getBytes();
            Header[] headers = new Header[i % 4];
            for (int h = 0; h < headers.length; h++) {
                byte[] content = h == 2 ? null : new byte[] {(byte) i, 0, -1};
                headers[h] = new RecordHeader("h" + h, content);
            }
            builder.append(BASE_TIME + i * 1000L, wrap(key), wrap(value), headers);
        }
        return builder.build();
    }

    // More than one block of each codec: pieces that compress and pieces that do not.
    static MemoryRecords large(Compression compression) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20),
            compression, TimestampType.CREATE_TIME, 0L);
        int state = 1;
        for (int i = 0; i < 4; i++) {
            byte[] value = new byte[i == 2 ? 4_000 : 50_000];
            if (i == 2) {
                for (int n = 0; n < value.length; n++) {
                    state = state * 1103515245 + 12345;
                    value[n] = (byte) (state >>> 16);
                }
            }
            builder.append(BASE_TIME, wrap(new byte[] {(byte) i}), wrap(value));
        }
        return builder.build();
    }

    static void read(Path file) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
        MemoryRecords records = MemoryRecords.readableRecords(bytes);
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.printf("batch %d %d %d %d %d %d %d %s %s %b %b %d%n", batch.baseOffset(),
                batch.lastOffset(), batch.partitionLeaderEpoch(), batch.producerId(),
                batch.producerEpoch(), batch.baseSequence(), batch.lastSequence(),
                batch.compressionType().name, batch.timestampType(), batch.isTransactional(),
                batch.isControlBatch(), batch.maxTimestamp());
            for (org.apache.kafka.common.record.internal.Record record : batch) {
                StringBuilder line = new StringBuilder("record " + record.offset() + " "
                    + record.timestamp() + " " + hex(record.key()) + " " + hex(record.value()));
                for (Header header : record.headers()) {
                    line.append(" ").append(header.key()).append("=");
                    line.append(hex(wrap(header.value())));
                }
                System.out.println(line);
            }
        }
    }

    // The three steps of a broker: the request's check, the log's, and the validator's. The log's
    // own (base offset, checksum) needs a whole log, so its two rules are written out here.
    static void judge(Path file) throws Exception {
        String name = file.getFileName().toString();
        try {
            MemoryRecords records =
                MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
            ProduceRequest.validateRecords((short) 12, records);
            MutableRecordBatch batch = records.batches().iterator().next();
            if (batch.baseOffset() != 0) {
                throw new org.apache.kafka.common.InvalidRecordException("base offset");
            }
            if (!((DefaultRecordBatch) batch).isValid()) {
                throw new org.apache.kafka.common.errors.CorruptRecordException("checksum");
            }
            CompressionType source = batch.compressionType();
            boolean compacted = name.contains("compacted");
            boolean appendTime = name.contains("appendtopic");
            var recorder = (LogValidator.MetricsRecorder) java.lang.reflect.Proxy.newProxyInstance(
                RecordBatches.class.getClassLoader(),
                new Class<?>[] {LogValidator.MetricsRecorder.class}, (proxy, method, a) -> null);
            var result = new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM, source,
                Compression.of(source).build(), compacted, (byte) 2,
                appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                Long.MAX_VALUE, 3_600_000L, 3, AppendOrigin.CLIENT, 1 << 20)
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(500), recorder,
                    BufferSupplier.NO_CACHING);
            System.out.printf("%s OK %d %s%n", name,
                appendTime ? -1 : result.maxTimestampMs(),
                result.messageSizeMaybeChanged() ? "rebuilt" : "kept");
            if (!result.messageSizeMaybeChanged() && !appendTime) {
                byte[] header = new byte[61];
                result.validatedRecords().buffer().duplicate().get(header);
                System.out.println("  " + java.util.HexFormat.of().formatHex(header));
            }
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof RecordValidationException e
                ? e.invalidException() : thrown;
            System.out.printf("%s %s %s%n", name, Errors.forException(cause),
                String.valueOf(cause.getMessage()).split("\n")[0]);
        }
    }

    static ByteBuffer wrap(byte[] bytes) {
        return bytes == null ? null : ByteBuffer.wrap(bytes);
    }

    static byte[] bytes(MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return bytes;
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "x" + java.util.HexFormat.of().formatHex(bytes);
    }
}
