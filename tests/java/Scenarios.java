import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/**
 * What programs do with Apache Kafka's own Java clients, as scenarios.
 *
 * <p>Arguments: the address of a broker, then names of scenarios. Each prints one line, "ok NAME"
 * or "FAILED NAME" with the reason; the exit code is the number of failures.
 */
public class Scenarios {
    static final Duration POLL = Duration.ofMillis(200);
    static final long SECONDS_MAX = 60;

    final String address;
    final Map<String, Scenario> scenarios = new TreeMap<>();

    interface Scenario {
        void run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    Scenarios(String address) {
        this.address = address;
        scenarios.put("records", this::records);
        scenarios.put("codecs", this::codecs);
        scenarios.put("recompression", this::recompression);
        scenarios.put("log_append_time", this::logAppendTime);
        scenarios.put("too_large", this::tooLarge);
        scenarios.put("positions", this::positions);
        scenarios.put("topics", this::topics);
        scenarios.put("configs", this::configs);
        scenarios.put("cluster", this::cluster);
        scenarios.put("offsets", this::offsets);
        scenarios.put("errors", this::errors);
        scenarios.put("cooperative", this::cooperative);
        scenarios.put("eager", this::eager);
        scenarios.put("static_members", this::staticMembers);
        scenarios.put("fenced_member", this::fencedMember);
        scenarios.put("group_offsets", this::groupOffsets);
        scenarios.put("transactions_refused", this::transactionsRefused);
    }

    public static void main(String[] arguments) {
        Scenarios all = new Scenarios(arguments[0]);
        int failures = 0;
        for (String name : Arrays.asList(arguments).subList(1, arguments.length)) {
            try {
                all.scenarios.get(name).run();
                System.out.println("ok " + name);
            } catch (Throwable error) {
                failures++;
                System.out.println("FAILED " + name + ": " + error);
                error.printStackTrace(System.out);
            }
        }
        System.exit(failures);
    }

    // Clients and topics

    Map<String, Object> common() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        return settings;
    }

    KafkaProducer<String, String> producer(Object... more) {
        Map<String, Object> settings = with(common(), more);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> settings = common();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        with(settings, more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    Admin admin() {
        return Admin.create(common());
    }

    static Map<String, Object> with(Map<String, Object> settings, Object... more) {
        for (int index = 0; index < more.length; index += 2) {
            settings.put((String) more[index], more[index + 1]);
        }
        return settings;
    }

    void create(String topic, int partitions, String... settings) throws Exception {
        Map<String, String> configs = new HashMap<>();
        for (int index = 0; index < settings.length; index += 2) {
            configs.put(settings[index], settings[index + 1]);
        }
        try (Admin admin = admin()) {
            NewTopic made = new NewTopic(topic, partitions, (short) 1).configs(configs);
            admin.createTopics(List.of(made)).all().get();
        }
    }

    List<RecordMetadata> send(String topic, int count, Object... settings) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(settings)) {
            for (int index = 0; index < count; index++) {
                String key = "key-" + index % 7;
                sent.add(producer.send(new ProducerRecord<>(topic, key, "value-" + index)));
            }
        }
        List<RecordMetadata> results = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            results.add(future.get());
        }
        return results;
    }

    List<ConsumerRecord<String, String>> read(String topic, int partitions, int count) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            assigned.add(new TopicPartition(topic, partition));
        }
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(POLL).forEach(records::add);
            }
        }
        equal(count, records.size());
        return records;
    }

    // Checks

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void equal(Object expected, Object found) {
        check(Objects.equals(expected, found), "expected " + expected + " but found " + found);
    }

    static <T extends Throwable> T fails(Class<T> kind, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (kind.isInstance(cause)) return kind.cast(cause);
            String expected = "expected " + kind.getSimpleName();
            throw new AssertionError(expected + " but got " + cause, error);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + " but nothing failed");
    }

    /** A change is seen a little after it was acknowledged. */
    static void eventually(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "did not happen in time: " + what);
            Thread.sleep(10);
        }
    }

    /** Polls all consumers in turn until the condition holds. */
    static void pollUntil(String what, Condition condition, KafkaConsumer<?, ?>... consumers)
            throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "did not happen in time: " + what);
            for (KafkaConsumer<?, ?> consumer : consumers) consumer.poll(POLL);
        }
    }

    // Producing and consuming

    void records() throws Exception {
        create("java-records", 3);
        List<RecordMetadata> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer("enable.idempotence", true)) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (int index = 0; index < 2000; index++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>("java-records", null, 1700000000000L + index,
                        index % 10 == 0 ? null : "key-" + index % 13,
                        index % 17 == 0 ? null : "value-" + index);
                record.headers().add("index", String.valueOf(index).getBytes());
                record.headers().add("empty", null);
                futures.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> future : futures) sent.add(future.get());
        }
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<String, ConsumerRecord<String, String>> found = new HashMap<>();
        for (ConsumerRecord<String, String> record : read("java-records", 3, 2000)) {
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            equal(ends.getOrDefault(partition, 0L), record.offset());
            ends.put(partition, record.offset() + 1);
            found.put(record.partition() + "/" + record.offset(), record);
        }
        for (int index = 0; index < 2000; index++) {
            RecordMetadata metadata = sent.get(index);
            ConsumerRecord<String, String> record =
                found.get(metadata.partition() + "/" + metadata.offset());
            equal(index % 17 == 0 ? null : "value-" + index, record.value());
            equal(1700000000000L + index, record.timestamp());
            Header header = record.headers().lastHeader("index");
            equal(String.valueOf(index), new String(header.value()));
            equal(null, record.headers().lastHeader("empty").value());
        }
    }

    void codecs() throws Exception {
        create("java-codecs", 1);
        int count = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            send("java-codecs", 500, "compression.type", codec, "linger.ms", 20);
            count += 500;
        }
        List<ConsumerRecord<String, String>> records = read("java-codecs", 1, count);
        for (int index = 0; index < count; index++) {
            equal("value-" + index % 500, records.get(index).value());
        }
    }

    void recompression() throws Exception {
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd", "uncompressed")) {
            String topic = "java-recompress-" + codec;
            create(topic, 1, "compression.type", codec);
            send(topic, 300, "compression.type", "none", "linger.ms", 20);
            send(topic, 300, "compression.type", "zstd", "linger.ms", 20);
            List<ConsumerRecord<String, String>> records = read(topic, 1, 600);
            for (int index = 0; index < 600; index++) {
                equal("value-" + index % 300, records.get(index).value());
                equal((long) index, records.get(index).offset());
            }
        }
    }

    void logAppendTime() throws Exception {
        create("java-append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = producer()) {
            RecordMetadata metadata =
                producer.send(new ProducerRecord<>("java-append-time", 0, 5L, "k", "v")).get();
            check(metadata.timestamp() >= before, "the broker's time: " + metadata.timestamp());
        }
        ConsumerRecord<String, String> record = read("java-append-time", 1, 1).get(0);
        check(record.timestamp() >= before, "the broker's time: " + record.timestamp());
        equal("LogAppendTime", record.timestampType().toString());
    }

    void tooLarge() throws Exception {
        create("java-too-large", 1, "max.message.bytes", "1000");
        try (KafkaProducer<String, String> producer = producer()) {
            ProducerRecord<String, String> large =
                new ProducerRecord<>("java-too-large", "x".repeat(5000));
            fails(RecordTooLargeException.class, () -> producer.send(large).get());
            producer.send(new ProducerRecord<>("java-too-large", "small")).get();
        }
    }

    void positions() throws Exception {
        create("java-positions", 1);
        for (int index = 0; index < 10; index++) send("java-positions", 1);
        TopicPartition partition = new TopicPartition("java-positions", 0);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", "java-positions")) {
            consumer.assign(List.of(partition));
            equal(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            equal(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
            equal(0L, consumer.offsetsForTimes(Map.of(partition, 1L)).get(partition).offset());
            equal(null, consumer.offsetsForTimes(Map.of(partition, Long.MAX_VALUE)).get(partition));
            consumer.seek(partition, 7);
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            pollUntil("three records", () -> {
                consumer.poll(POLL).forEach(records::add);
                return records.size() == 3;
            });
            equal(7L, records.get(0).offset());
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(8, "a note")));
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            equal(8L, committed.offset());
            equal("a note", committed.metadata());
            consumer.pause(List.of(partition));
            consumer.seek(partition, 0);
            check(consumer.poll(POLL).isEmpty(), "a paused partition gives nothing");
            consumer.resume(List.of(partition));
            pollUntil("a record again", () -> !consumer.poll(POLL).isEmpty());
        }
        try (KafkaConsumer<String, String> consumer =
                consumer("group.id", "java-positions", "auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            equal(8L, consumer.position(partition));
            consumer.seek(partition, 99);
            fails(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> {
                pollUntil("never", () -> false, consumer);
                return null;
            });
        }
    }

    // Administration

    void topics() throws Exception {
        try (Admin admin = admin()) {
            CreateTopicsResult made = admin.createTopics(List.of(
                new NewTopic("java-topic-a", 2, (short) 1).configs(Map.of("segment.ms", "60000")),
                new NewTopic("java-topic-b", Map.of(0, List.of(1), 1, List.of(1)))));
            made.all().get();
            equal(2, made.numPartitions("java-topic-a").get());
            equal("60000", made.config("java-topic-a").get().get("segment.ms").value());
            Uuid id = made.topicId("java-topic-a").get();
            TopicDescription byName = describe(admin, "java-topic-a");
            equal(id, byName.topicId());
            equal(2, byName.partitions().size());
            equal(1, byName.partitions().get(0).leader().id());
            TopicCollection ids = TopicCollection.ofTopicIds(List.of(id));
            equal("java-topic-a", admin.describeTopics(ids).allTopicIds().get().get(id).name());
            check(admin.listTopics().names().get().contains("java-topic-b"), "it is listed");
            admin.createPartitions(Map.of("java-topic-b", NewPartitions.increaseTo(5))).all().get();
            eventually("five partitions",
                () -> describe(admin, "java-topic-b").partitions().size() == 5);
            CreateTopicsOptions only = new CreateTopicsOptions().validateOnly(true);
            List<NewTopic> third = List.of(new NewTopic("java-topic-c", 1, (short) 1));
            admin.createTopics(third, only).all().get();
            check(!admin.listTopics().names().get().contains("java-topic-c"), "it was not made");
            admin.deleteTopics(ids).all().get();
            admin.deleteTopics(List.of("java-topic-b")).all().get();
            eventually("both are gone", () -> {
                Set<String> names = admin.listTopics().names().get();
                return !names.contains("java-topic-a") && !names.contains("java-topic-b");
            });
            admin.createTopics(List.of(new NewTopic("java-topic-a", 1, (short) 1))).all().get();
            Uuid again = describe(admin, "java-topic-a").topicId();
            check(!again.equals(id), "a topic that is made again has an id of its own");
        }
        send("java-topic-a", 3);
        read("java-topic-a", 1, 3);
    }

    static TopicDescription describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    void configs() throws Exception {
        create("java-configs", 1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-configs");
        try (Admin admin = admin()) {
            alter(admin, topic, "retention.ms", "5000", AlterConfigOp.OpType.SET);
            alter(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
            eventually("settings changed", () -> {
                Config changed = describe(admin, topic);
                return changed.get("cleanup.policy").value().equals("delete,compact")
                    && changed.get("retention.ms").value().equals("5000");
            });
            Config config = describe(admin, topic);
            ConfigEntry.ConfigSource dynamic = ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG;
            equal(dynamic, config.get("retention.ms").source());
            equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, config.get("segment.bytes").source());
            alter(admin, topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
            alter(admin, topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
            eventually("settings changed again", () -> {
                Config changed = describe(admin, topic);
                return changed.get("cleanup.policy").value().equals("compact")
                    && changed.get("retention.ms").value().equals("604800000");
            });
            DescribeConfigsOptions all =
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            config = admin.describeConfigs(List.of(topic), all).all().get().get(topic);
            equal(ConfigEntry.ConfigType.LONG, config.get("retention.ms").type());
            check(config.get("retention.ms").documentation().length() > 20, "it is documented");
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
            config = describe(admin, broker);
            equal("1", config.get("node.id").value());
            check(config.get("node.id").isReadOnly(), "a node's id stays");
            check(!config.get("log.cleaner.threads").isReadOnly(), "threads may change");
        }
    }

    static Config describe(Admin admin, ConfigResource of) throws Exception {
        return admin.describeConfigs(List.of(of)).all().get().get(of);
    }

    static void alter(
            Admin admin, ConfigResource of, String key, String value, AlterConfigOp.OpType how)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), how);
        admin.incrementalAlterConfigs(Map.of(of, List.of(change))).all().get();
    }

    void cluster() throws Exception {
        try (Admin admin = admin()) {
            DescribeClusterResult described = admin.describeCluster();
            check(described.clusterId().get().length() == 22, described.clusterId().get());
            equal(1, described.nodes().get().size());
            equal(1, described.controller().get().id());
            equal(1, admin.describeMetadataQuorum().quorumInfo().get().leaderId());
            check(admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                .containsKey("metadata.version"), "the metadata version is finalised");
            create("java-dirs", 1);
            send("java-dirs", 1);
            Map<String, LogDirDescription> dirs =
                admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
            equal(1, dirs.size());
            LogDirDescription dir = dirs.values().iterator().next();
            check(dir.replicaInfos().get(new TopicPartition("java-dirs", 0)).size() > 0, "a size");
            check(dir.totalBytes().getAsLong() > 0, "the size of the volume");
            equal(Map.of(), admin.listPartitionReassignments().reassignments().get());
        }
    }

    void offsets() throws Exception {
        create("java-offsets", 2);
        send("java-offsets", 100);
        TopicPartition first = new TopicPartition("java-offsets", 0);
        TopicPartition second = new TopicPartition("java-offsets", 1);
        try (Admin admin = admin()) {
            ListOffsetsResult ends =
                admin.listOffsets(Map.of(first, OffsetSpec.latest(), second, OffsetSpec.latest()));
            long end = ends.partitionResult(first).get().offset();
            equal(100L, end + ends.partitionResult(second).get().offset());
            equal(0, ends.partitionResult(first).get().leaderEpoch().get());
            admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(end))).all().get();
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.earliestLocal())) {
                ListOffsetsResult start = admin.listOffsets(Map.of(first, spec));
                equal(end, start.partitionResult(first).get().offset());
            }
            check(admin.listOffsets(Map.of(second, OffsetSpec.maxTimestamp()))
                .partitionResult(second).get().offset() >= 0, "the latest record");
        }
    }

    void errors() throws Exception {
        try (Admin admin = admin()) {
            fails(UnknownTopicOrPartitionException.class,
                () -> admin.describeTopics(List.of("java-nowhere")).allTopicNames().get());
            fails(UnknownTopicIdException.class, () -> admin.describeTopics(
                TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get());
            create("java-there", 1);
            fails(TopicExistsException.class, () -> {
                create("java-there", 1);
                return null;
            });
            fails(InvalidTopicException.class, () -> admin.createTopics(
                List.of(new NewTopic("a b", 1, (short) 1))).all().get());
            fails(InvalidReplicationFactorException.class, () -> admin.createTopics(
                List.of(new NewTopic("java-two", 1, (short) 2))).all().get());
            fails(InvalidPartitionsException.class, () -> admin.createPartitions(
                Map.of("java-there", NewPartitions.increaseTo(1))).all().get());
            Map<TopicPartition, RecordsToDelete> tooFar =
                Map.of(new TopicPartition("java-there", 0), RecordsToDelete.beforeOffset(5));
            fails(org.apache.kafka.common.errors.OffsetOutOfRangeException.class,
                () -> admin.deleteRecords(tooFar).all().get());
            fails(GroupIdNotFoundException.class,
                () -> admin.deleteConsumerGroups(List.of("java-no-group")).all().get());
        }
        try (KafkaProducer<String, String> producer = producer()) {
            fails(InvalidTopicException.class,
                () -> producer.send(new ProducerRecord<>("not/valid", "value")).get());
        }
    }

    // Groups

    /** Remembers what a consumer was given and lost. */
    static class Watcher implements ConsumerRebalanceListener {
        final List<Collection<TopicPartition>> given = new ArrayList<>();
        final List<TopicPartition> taken = new ArrayList<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            given.add(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            taken.addAll(partitions);
        }
    }

    void cooperative() throws Exception {
        create("java-cooperative", 4);
        send("java-cooperative", 40);
        Object[] settings = {"group.id", "java-cooperative", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "heartbeat.interval.ms",
            300};
        Watcher watcher = new Watcher();
        KafkaConsumer<String, String> first = consumer(settings);
        try (first; KafkaConsumer<String, String> second = consumer(settings)) {
            first.subscribe(List.of("java-cooperative"), watcher);
            pollUntil("all for the first", () -> first.assignment().size() == 4, first);
            Set<TopicPartition> all = Set.copyOf(first.assignment());
            second.subscribe(List.of("java-cooperative"));
            pollUntil("two for each",
                () -> first.assignment().size() == 2 && second.assignment().size() == 2,
                first, second);
            equal(2, watcher.taken.size());
            Set<TopicPartition> both = new HashSet<>(first.assignment());
            both.addAll(second.assignment());
            equal(all, both);
            second.unsubscribe();
            pollUntil("all for the first again", () -> first.assignment().size() == 4, first);
            equal(2, watcher.taken.size());
        }
    }

    void eager() throws Exception {
        create("java-eager", 4);
        send("java-eager", 40);
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor")) {
            Object[] settings = {"group.id", "java-eager-" + assignor, "heartbeat.interval.ms", 300,
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor};
            try (KafkaConsumer<String, String> first = consumer(settings);
                    KafkaConsumer<String, String> second = consumer(settings)) {
                first.subscribe(List.of("java-eager"));
                second.subscribe(List.of("java-eager"));
                pollUntil("two for each with " + assignor,
                    () -> first.assignment().size() == 2 && second.assignment().size() == 2,
                    first, second);
                check(Collections.disjoint(first.assignment(), second.assignment()), "disjoint");
                second.close();
                pollUntil("all for the first", () -> first.assignment().size() == 4, first);
            }
        }
    }

    void staticMembers() throws Exception {
        create("java-static", 4);
        Object[] settings = {"group.id", "java-static", "heartbeat.interval.ms", 300};
        Object[] one = append(settings, "group.instance.id", "one");
        Object[] two = append(settings, "group.instance.id", "two");
        Watcher watcher = new Watcher();
        KafkaConsumer<String, String> leaving = consumer(two);
        try (KafkaConsumer<String, String> staying = consumer(one)) {
            staying.subscribe(List.of("java-static"), watcher);
            leaving.subscribe(List.of("java-static"));
            pollUntil("two for each",
                () -> staying.assignment().size() == 2 && leaving.assignment().size() == 2,
                staying, leaving);
            Set<TopicPartition> before = Set.copyOf(leaving.assignment());
            int rebalances = watcher.given.size();
            leaving.close();
            try (KafkaConsumer<String, String> returning = consumer(two)) {
                returning.subscribe(List.of("java-static"));
                pollUntil("what it had", () -> returning.assignment().equals(before),
                    returning, staying);
            }
            equal(rebalances, watcher.given.size());
            try (Admin admin = admin()) {
                List<String> groups = List.of("java-static");
                ConsumerGroupDescription group =
                    admin.describeConsumerGroups(groups).all().get().get("java-static");
                equal(2, group.members().size());
                admin.removeMembersFromConsumerGroup("java-static",
                    new RemoveMembersFromConsumerGroupOptions(
                        List.of(new MemberToRemove("two")))).all().get();
            }
            pollUntil("all for one", () -> staying.assignment().size() == 4, staying);
        }
    }

    void fencedMember() throws Exception {
        create("java-fenced", 1);
        Object[] settings = {"group.id", "java-fenced", "group.instance.id", "same",
            "heartbeat.interval.ms", 300};
        try (KafkaConsumer<String, String> old = consumer(settings);
                KafkaConsumer<String, String> taker = consumer(settings)) {
            old.subscribe(List.of("java-fenced"));
            pollUntil("the old one is in", () -> old.assignment().size() == 1, old);
            taker.subscribe(List.of("java-fenced"));
            pollUntil("the other took its place", () -> taker.assignment().size() == 1, taker);
            fails(FencedInstanceIdException.class, () -> {
                pollUntil("never", () -> false, old);
                return null;
            });
        }
    }

    void groupOffsets() throws Exception {
        create("java-group-offsets", 1);
        send("java-group-offsets", 10);
        TopicPartition partition = new TopicPartition("java-group-offsets", 0);
        String group = "java-group-offsets";
        try (Admin admin = admin()) {
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(4)))
                .all().get();
            equal(4L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(partition).offset());
            try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
                consumer.subscribe(List.of("java-group-offsets"));
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                pollUntil("six records", () -> {
                    consumer.poll(POLL).forEach(records::add);
                    return records.size() == 6;
                });
                equal(4L, records.get(0).offset());
                consumer.commitSync();
                fails(UnknownMemberIdException.class, () -> admin.alterConsumerGroupOffsets(
                    group, Map.of(partition, new OffsetAndMetadata(0))).all().get());
                ConsumerGroupDescription described =
                    admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                equal(GroupState.STABLE, described.groupState());
                equal(1, described.members().size());
                equal("range", described.partitionAssignor());
            }
            equal(10L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(partition).offset());
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            check(admin.listGroups().all().get().stream()
                .noneMatch(listed -> listed.groupId().equals(group)), "it is gone");
        }
    }

    /** For a broker without transactions: the answer must be final, not one to try again. */
    void transactionsRefused() throws Exception {
        try (KafkaProducer<String, String> producer =
                producer("transactional.id", "java-transaction", "max.block.ms", 20000)) {
            KafkaException error =
                fails(KafkaException.class, () -> {
                    producer.initTransactions();
                    return null;
                });
            check(!(error instanceof org.apache.kafka.common.errors.TimeoutException), "" + error);
        }
    }

    static Object[] append(Object[] settings, Object... more) {
        Object[] all = Arrays.copyOf(settings, settings.length + more.length);
        System.arraycopy(more, 0, all, settings.length, more.length);
        return all;
    }
}
