import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/**
 * A random workload on topics that are compacted.
 *
 * <p>Arguments: the address of a broker, a seed, the timestamp of the first record, how many steps,
 * and what is to be done: {@code plain} and {@code transact} write, without and with transactions,
 * and print where each topic ends; {@code poke=FILE} lets each topic get a new last segment, some
 * times, and waits until the checkpoint in that file says that all before it was cleaned; {@code
 * read} prints what consumers see.
 */
public class Cleaning {
    /** What is deleted goes at once, or after a day. */
    static final List<String> TOPICS = List.of("c-soon", "c-late");
    /** It has a transaction that does not end. */
    static final String OPEN = "c-open";
    static final int KEYS = 40;
    static final int POKES = 3;
    /** Less than the first batch holds. */
    static final long DELETED = 3;
    static final long MINUTE_MS = 60_000;
    static final Duration POLL = Duration.ofMillis(100);
    static final Duration PATIENCE = Duration.ofSeconds(90);

    final String address;
    final Random random;
    final int steps;
    final long last;
    long timestamp;

    Cleaning(String[] arguments) {
        address = arguments[0];
        random = new Random(Long.parseLong(arguments[1]));
        timestamp = Long.parseLong(arguments[2]);
        steps = Integer.parseInt(arguments[3]);
        last = timestamp + 20 * MINUTE_MS;
    }

    public static void main(String[] arguments) throws Exception {
        Cleaning cleaning = new Cleaning(arguments);
        for (String word : List.of(arguments).subList(4, arguments.length)) {
            switch (word.split("=")[0]) {
                case "plain" -> cleaning.plain();
                case "transact" -> cleaning.transact();
                case "poke" -> cleaning.poke(Path.of(word.split("=")[1]));
                case "read" -> cleaning.read();
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

    /** One flush is one batch: it is sent when it is asked for, and has room for all. */
    KafkaProducer<String, String> producer(Object... more) {
        Map<String, Object> settings = common(more);
        settings.put("linger.ms", 60_000);
        settings.put("batch.size", 200_000);
        settings.put("delivery.timeout.ms", 180_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<String, String> transactional(String id, String codec) {
        KafkaProducer<String, String> producer = producer("transactional.id", id,
            "transaction.timeout.ms", 900_000, "compression.type", codec);
        producer.initTransactions();
        return producer;
    }

    void create(List<String> names) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String name : names) {
            Map<String, String> configs = new HashMap<>(Map.of(
                "cleanup.policy", "compact", "segment.ms", "400", "segment.bytes", "1048576",
                "index.interval.bytes", "200"));
            if (name.equals("c-soon")) {
                configs.put("delete.retention.ms", "0");
            } else {
                configs.putAll(Map.of("cleanup.policy", "compact,delete", "retention.ms", "-1"));
            }
            topics.add(new NewTopic(name, 1, (short) 1).configs(configs));
        }
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(topics).all().get();
        }
    }

    /** Makes the topics. What one producer writes before all others is superseded at once. */
    void begin(List<String> topics) throws Exception {
        create(topics);
        try (KafkaProducer<String, String> once = producer();
                KafkaProducer<String, String> other = producer("enable.idempotence", false)) {
            for (String topic : topics) {
                for (int count = 0; count < DELETED; count++) {
                    once.send(new ProducerRecord<>(topic, null, timestamp, "once", "value"));
                }
                sendOne(once, topic, "once", timestamp);
                sendOne(other, topic, "once", timestamp);
            }
        }
    }

    /** A batch of a few records. */
    void send(KafkaProducer<String, String> producer, String topic) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        int count = 1 + random.nextInt(4);
        for (int index = 0; index < count; index++) {
            timestamp += random.nextInt(60);
            List<Header> headers = new ArrayList<>();
            for (int header = random.nextInt(3); header > 0; header--) {
                byte[] value = random.nextInt(4) == 0 ? null : bytes(random.nextInt(9));
                headers.add(new RecordHeader("h" + header, value));
            }
            int length = random.nextInt(10) == 0 ? 8000 : random.nextInt(200);
            String value = random.nextInt(5) == 0 ? null : letters(length);
            String key = "key-" + random.nextInt(KEYS);
            sent.add(producer.send(
                new ProducerRecord<>(topic, null, timestamp, key, value, headers)));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
    }

    byte[] bytes(int length) {
        return letters(length).getBytes(StandardCharsets.UTF_8);
    }

    String letters(int length) {
        StringBuilder text = new StringBuilder(length);
        for (int index = 0; index < length; index++) {
            text.append((char) ('a' + random.nextInt(26)));
        }
        return text.toString();
    }

    void plain() throws Exception {
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            producers.add(producer("compression.type", codec));
        }
        producers.add(producer("enable.idempotence", false));
        begin(TOPICS);
        for (int step = 0; step < steps; step++) {
            KafkaProducer<String, String> producer =
                producers.get(random.nextInt(producers.size()));
            send(producer, TOPICS.get(random.nextInt(TOPICS.size())));
        }
        end(TOPICS);
    }

    /** Producers whose transactions lie one within the other, and some that have none. */
    void transact() throws Exception {
        List<String> topics = List.of(TOPICS.get(0), TOPICS.get(1), OPEN);
        List<String> codecs = List.of("none", "lz4", "zstd");
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        for (String codec : codecs) {
            producers.add(transactional("c-" + codec, codec));
        }
        producers.add(producer("compression.type", "gzip"));
        producers.add(producer("enable.idempotence", false));
        begin(topics);
        boolean[] isOpen = new boolean[codecs.size()];
        KafkaProducer<String, String> open = transactional("c-stays", "none");
        for (int step = 0; step < steps; step++) {
            if (step == steps / 2) {
                open.beginTransaction();
                RecordMetadata begun = sendOne(open, OPEN, "open", timestamp);
                System.out.println("open " + OPEN + " " + begun.offset());
            }
            int which = random.nextInt(producers.size());
            KafkaProducer<String, String> producer = producers.get(which);
            if (which < isOpen.length && !isOpen[which]) {
                producer.beginTransaction();
                isOpen[which] = true;
            }
            send(producer, topics.get(random.nextInt(topics.size())));
            if (which < isOpen.length && random.nextInt(3) == 0) {
                isOpen[which] = false;
                switch (random.nextInt(5)) {
                    case 0, 1 -> producer.abortTransaction();
                    case 2 -> {
                        // Its successor aborts it, under the next epoch.
                        KafkaProducer<String, String> successor =
                            transactional("c-" + codecs.get(which), codecs.get(which));
                        producers.set(which, successor);
                        producer.close(Duration.ZERO);
                    }
                    default -> producer.commitTransaction();
                }
            }
        }
        for (int which = 0; which < isOpen.length; which++) {
            if (isOpen[which]) {
                producers.get(which).commitTransaction();
            }
        }
        end(topics);
    }

    /** The last record gets a segment of its own; where that is allowed, the first ones go. */
    void end(List<String> topics) throws Exception {
        try (KafkaProducer<String, String> producer = producer("enable.idempotence", false);
                Admin admin = Admin.create(common())) {
            for (String topic : topics) {
                long offset = sendOne(producer, topic, "last", last).offset();
                System.out.println("end " + topic + " " + offset);
                if (!topic.equals("c-soon")) {
                    TopicPartition partition = new TopicPartition(topic, 0);
                    RecordsToDelete first = RecordsToDelete.beforeOffset(DELETED);
                    admin.deleteRecords(Map.of(partition, first)).all().get();
                }
            }
        }
    }

    static RecordMetadata sendOne(KafkaProducer<String, String> producer, String topic, String key,
            long timestamp) throws Exception {
        var sent = producer.send(new ProducerRecord<>(topic, null, timestamp, key, "value"));
        producer.flush();
        return sent.get();
    }

    void poke(Path checkpoint) throws Exception {
        try (KafkaProducer<String, String> producer = producer("enable.idempotence", false)) {
            for (int round = 1; round <= POKES; round++) {
                for (String topic : TOPICS) {
                    long at = last + round * MINUTE_MS;
                    long offset = sendOne(producer, topic, "last", at).offset();
                    await(checkpoint, topic + " 0 " + offset);
                }
            }
        }
    }

    static void await(Path file, String line) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!Files.exists(file) || !Files.readAllLines(file).contains(line)) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("no " + line + " in " + file);
            }
            Thread.sleep(5);
        }
    }

    void read() throws Exception {
        for (IsolationLevel level : IsolationLevel.values()) {
            Map<String, Object> settings =
                common("isolation.level", level.toString().toLowerCase());
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                    settings, new StringDeserializer(), new StringDeserializer())) {
                Set<String> names = new TreeSet<>(consumer.listTopics().keySet());
                names.removeIf(name -> !name.startsWith("c-"));
                for (String name : names) {
                    System.out.println("read " + level + " " + records(consumer, name));
                }
            }
        }
    }

    static String records(KafkaConsumer<String, String> consumer, String topic) {
        CRC32 sum = new CRC32();
        int count = 0;
        TopicPartition partition = new TopicPartition(topic, 0);
        List<TopicPartition> list = List.of(partition);
        consumer.assign(list);
        consumer.seekToBeginning(list);
        long begin = consumer.position(partition);
        long end = consumer.endOffsets(list).get(partition);
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                count++;
                String text = record.offset() + " " + record.timestamp() + " " + record.key()
                    + " " + record.value() + " " + record.headers() + "\n";
                sum.update(text.getBytes(StandardCharsets.UTF_8));
            }
        }
        return topic + " " + count + " records " + Long.toHexString(sum.getValue()) + " from "
            + begin + " to " + consumer.position(partition);
    }
}
