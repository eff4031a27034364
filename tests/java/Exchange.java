import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/**
 * What a data directory holds that goes from one broker to another.
 *
 * <p>Arguments: the address of a broker, the timestamp of the first records, and what is to be
 * done, in this order: {@code fill}, {@code transact}, {@code trim}, {@code more} and {@code last}
 * write, {@code finish} ends the transaction that {@code transact} left open and writes others,
 * {@code read} prints all that clients can see, behind a line that says so.
 */
public class Exchange {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final String FILLER = "v".repeat(2000);
    static final String TRANSACTIONS = "x-transactions";
    static final String GROUP = "x-group";
    static final Duration POLL = Duration.ofMillis(200);

    final String address;
    /** Timestamps rise from here. */
    final long firstTimestamp;

    Exchange(String address, long firstTimestamp) {
        this.address = address;
        this.firstTimestamp = firstTimestamp;
    }

    public static void main(String[] arguments) throws Exception {
        Exchange exchange = new Exchange(arguments[0], Long.parseLong(arguments[1]));
        for (String word : List.of(arguments).subList(2, arguments.length)) {
            switch (word) {
                case "fill" -> exchange.fill();
                case "transact" -> exchange.transact();
                case "trim" -> exchange.trim();
                case "more" -> exchange.more();
                case "read" -> exchange.read();
                case "finish" -> exchange.finish();
                case "last" -> exchange.last();
                default -> throw new IllegalArgumentException(word);
            }
        }
        System.out.flush();
        // A transaction that is to stay open must not be ended by closing its producer.
        Runtime.getRuntime().halt(0);
    }

    Map<String, Object> common(Object... more) {
        return Settings.of(address, more);
    }

    KafkaProducer<String, String> producer(Object... more) {
        return new KafkaProducer<>(common(more), new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<String, String> transactional(String id) {
        KafkaProducer<String, String> producer =
            producer("transactional.id", id, "transaction.timeout.ms", 900_000);
        producer.initTransactions();
        return producer;
    }

    void fill() throws Exception {
        try (Admin admin = Admin.create(common())) {
            List<NewTopic> topics = new ArrayList<>();
            for (String codec : CODECS) {
                topics.add(topic("x-" + codec, "segment.bytes", "1048576"));
            }
            topics.add(topic("x-compacted", "cleanup.policy", "compact"));
            topics.add(topic("x-gone"));
            topics.add(topic(TRANSACTIONS, "segment.bytes", "1048576"));
            create(admin, topics);
        }
        for (String codec : CODECS) {
            send("x-" + codec, codec, 0, 1600);
        }
        send("x-compacted", "none", 0, 50);
        send("x-gone", "none", 0, 10);
        commit(100);
        send(TRANSACTIONS, "none", 0, 100);
        try (Admin admin = Admin.create(common())) {
            admin.deleteTopics(List.of("x-gone")).all().get();
            alter(admin, new ConfigResource(ConfigResource.Type.TOPIC, "x-gzip"),
                "retention.ms", "-1");
            alter(admin, new ConfigResource(ConfigResource.Type.BROKER, ""),
                "message.max.bytes", "1100000");
        }
    }

    void trim() throws Exception {
        try (Admin admin = Admin.create(common())) {
            TopicPartition partition = new TopicPartition("x-lz4", 0);
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(7))).all().get();
        }
    }

    /** Committed and aborted ones, some over several segments, and one that stays open. */
    void transact() throws Exception {
        KafkaProducer<String, String> first = transactional("x-first");
        KafkaProducer<String, String> second = transactional("x-second");
        KafkaProducer<String, String> open = transactional("x-open");
        int next = 100;
        for (int round = 0; round < 6; round++) {
            first.beginTransaction();
            next = send(first, TRANSACTIONS, next, 20);
            second.beginTransaction();
            next = send(second, TRANSACTIONS, next, round == 3 ? 800 : 10);
            next = send(first, TRANSACTIONS, next, 20);
            if (round % 2 == 0) {
                first.commitTransaction();
            } else {
                first.abortTransaction();
            }
            next = send(second, TRANSACTIONS, next, 5);
            if (round % 3 == 0) {
                second.abortTransaction();
            } else {
                second.commitTransaction();
            }
        }
        open.beginTransaction();
        next = send(open, TRANSACTIONS, next, 3);
        first.beginTransaction();
        next = send(first, TRANSACTIONS, next, 3);
        first.abortTransaction();
        first.beginTransaction();
        send(first, TRANSACTIONS, next, 3);
        first.commitTransaction();
    }

    void more() throws Exception {
        for (String codec : CODECS) {
            send("x-" + codec, codec, 1600, 600);
        }
        send("x-compacted", "lz4", 50, 50);
        send(TRANSACTIONS, "zstd", 5000, 50);
        commit(50);
        try (Admin admin = Admin.create(common())) {
            create(admin, List.of(topic("x-later"), topic("x-gone")));
            alter(admin, new ConfigResource(ConfigResource.Type.TOPIC, "x-zstd"),
                "retention.ms", "-1");
        }
        send("x-later", "none", 0, 10);
    }

    void last() throws Exception {
        for (String codec : CODECS) {
            send("x-" + codec, codec, 2200, 20);
        }
        send("x-compacted", "gzip", 100, 50);
        commit(20);
        try (Admin admin = Admin.create(common())) {
            admin.deleteTopics(List.of("x-later")).all().get();
        }
    }

    void finish() throws Exception {
        transactional("x-open").close();
        KafkaProducer<String, String> first = transactional("x-first");
        KafkaProducer<String, String> fresh = transactional("x-fresh");
        for (KafkaProducer<String, String> producer : List.of(first, fresh)) {
            producer.beginTransaction();
            send(producer, TRANSACTIONS, 6000, 5);
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, TRANSACTIONS, 6000, 5);
            producer.commitTransaction();
            producer.close();
        }
    }

    /**
     * Makes topics and waits until their leaders are there: Kafka may refuse the first batch of a
     * producer before that and take the second one, and then refuse the first one for good.
     */
    static void create(Admin admin, List<NewTopic> topics) throws Exception {
        admin.createTopics(topics).all().get();
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        topics.forEach(topic -> ends.put(new TopicPartition(topic.name(), 0), OffsetSpec.latest()));
        admin.listOffsets(ends).all().get();
    }

    static NewTopic topic(String name, String... configs) {
        NewTopic topic = new NewTopic(name, 1, (short) 1);
        return configs.length == 0 ? topic : topic.configs(Map.of(configs[0], configs[1]));
    }

    static void alter(Admin admin, ConfigResource of, String key, String value) throws Exception {
        AlterConfigOp change =
            new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(of, List.of(change))).all().get();
    }

    void send(String topic, String codec, int from, int count) throws Exception {
        try (KafkaProducer<String, String> producer =
                producer("compression.type", codec, "linger.ms", 5)) {
            send(producer, topic, from, count);
        }
    }

    /** Waits until all of it is acknowledged; gives the number that comes next. */
    int send(KafkaProducer<String, String> producer, String topic, int from, int count)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = from; number < from + count; number++) {
            long timestamp = firstTimestamp + number;
            String value = number + FILLER;
            sent.add(producer.send(
                new ProducerRecord<>(topic, null, timestamp, "key-" + number % 7, value)));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
        return from + count;
    }

    /** A group reads so many records from where it stopped, and commits. */
    void commit(int count) {
        Map<String, Object> settings = common("group.id", GROUP, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "max.poll.records", 10);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("x-none"));
            for (int seen = 0; seen < count;) {
                seen += consumer.poll(POLL).count();
            }
            consumer.commitSync();
        }
    }

    void read() throws Exception {
        System.out.println("--- read");
        Map<IsolationLevel, KafkaConsumer<String, String>> consumers = new TreeMap<>();
        for (IsolationLevel level : IsolationLevel.values()) {
            Map<String, Object> settings = common("isolation.level", level.toString().toLowerCase(),
                "fetch.max.bytes", 300_000);
            consumers.put(level, new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer()));
        }
        try (Admin admin = Admin.create(common())) {
            Set<String> names = new TreeSet<>(admin.listTopics().names().get());
            Map<String, TopicDescription> topics =
                admin.describeTopics(names).allTopicNames().get();
            for (String name : names) {
                TopicDescription topic = topics.get(name);
                System.out.println("topic " + name + " " + topic.topicId() + " "
                    + topic.partitions().size() + " "
                    + changed(admin, ConfigResource.Type.TOPIC, name));
                topic.partitions().forEach(partition -> readPartition(
                    admin, consumers, new TopicPartition(name, partition.partition())));
            }
            System.out.println("brokers " + changed(admin, ConfigResource.Type.BROKER, ""));
            System.out.println("group "
                + admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get());
        }
        consumers.values().forEach(KafkaConsumer::close);
    }

    static Map<String, String> changed(Admin admin, ConfigResource.Type type, String name)
            throws Exception {
        ConfigResource of = new ConfigResource(type, name);
        Map<String, String> changed = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(of)).all().get().get(of).entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG
                    || entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) {
                changed.put(entry.name(), entry.value());
            }
        }
        return changed;
    }

    void readPartition(Admin admin, Map<IsolationLevel, KafkaConsumer<String, String>> consumers,
            TopicPartition partition) {
        // What a new start of a coordinator writes into its own log is its own affair.
        if (partition.topic().startsWith("__")) {
            return;
        }
        try {
            StringBuilder line = new StringBuilder(partition.toString());
            for (IsolationLevel level : IsolationLevel.values()) {
                ListOffsetsOptions options = new ListOffsetsOptions(level);
                for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(),
                        OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(firstTimestamp + 1200),
                        OffsetSpec.forTimestamp(firstTimestamp + 5010))) {
                    var found = admin.listOffsets(Map.of(partition, spec), options)
                        .partitionResult(partition).get();
                    line.append(' ').append(found.offset()).append('@').append(found.timestamp());
                    // Every leader has an epoch of its own at the end, and a log can be empty.
                    if (spec instanceof OffsetSpec.TimestampSpec) {
                        line.append('e').append(found.leaderEpoch().orElse(-1));
                    }
                }
                line.append("\n  ").append(level).append(records(consumers.get(level), partition));
            }
            admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers().stream().map(Object::toString).sorted()
                .forEach(producer -> line.append("\n  ").append(producer));
            System.out.println(line);
        } catch (Exception error) {
            throw new RuntimeException(partition.toString(), error);
        }
    }

    /** How many records a consumer gets, a sum of all that is in them, and where it ends. */
    static String records(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        CRC32 sum = new CRC32();
        int count = 0;
        List<TopicPartition> list = List.of(partition);
        consumer.assign(list);
        consumer.seekToBeginning(list);
        long end = consumer.endOffsets(list).get(partition);
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                count++;
                String text = record.offset() + " " + record.timestamp() + " " + record.key()
                    + " " + record.value() + "\n";
                sum.update(text.getBytes(StandardCharsets.UTF_8));
            }
        }
        return " " + count + " records " + Long.toHexString(sum.getValue()) + " to "
            + consumer.position(partition);
    }
}
