import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Puts something of every kind into the metadata of a cluster, with Apache Kafka's admin client.
 *
 * <p>Arguments: the address of a broker, then words. {@code topics}: topics with configurations
 * and a producer's id. {@code everything}: all else that one node can have, with a token made by
 * the user alice at the address in the word behind it. {@code wait N}: until N brokers are seen.
 * {@code replicated}: a topic on the brokers 1 and 2. {@code move}: a reassignment to 2, which
 * does not end while that one is away. {@code shrunk}: waits until 2 has left the ISR.
 */
public class MetadataMaker {
    private static final String REPLICATED = "m-replicated";
    private static final String MOVED = "m-moved";

    private final String address;
    private final Admin admin;

    MetadataMaker(String address) {
        this.address = address;
        this.admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    public static void main(String[] arguments) throws Exception {
        MetadataMaker maker = new MetadataMaker(arguments[0]);
        Iterator<String> words = List.of(arguments).subList(1, arguments.length).iterator();
        while (words.hasNext()) {
            switch (words.next()) {
                case "topics" -> maker.topics();
                case "everything" -> maker.everything(words.next());
                case "wait" -> maker.waitFor(Integer.parseInt(words.next()));
                case "replicated" -> maker.replicated();
                case "move" -> maker.move();
                case "shrunk" -> maker.shrunk();
                default -> throw new IllegalArgumentException("unknown word");
            }
        }
        maker.admin.close();
    }

    void topics() throws Exception {
        NewTopic configured = new NewTopic("m-configured", 3, (short) 1);
        configured.configs(Map.of("retention.ms", "3600000", "cleanup.policy", "compact,delete"));
        NewTopic gone = new NewTopic("m-gone", 1, (short) 1);
        NewTopic many = new NewTopic("m.many", 12, (short) 1);
        admin.createTopics(List.of(configured, gone, many)).all().get();
        admin.deleteTopics(List.of("m-gone")).all().get();
        set(ConfigResource.Type.BROKER, "", "message.max.bytes", "1100000");
        set(ConfigResource.Type.BROKER, "1", "log.cleaner.threads", "2");
        send("m-configured");
    }

    void send(String topic) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "key", "value")).get();
        }
    }

    void everything(String saslAddress) throws Exception {
        set(ConfigResource.Type.GROUP, "m-group", "consumer.session.timeout.ms", "50000");
        set(ConfigResource.Type.CLIENT_METRICS, "m-metrics", "interval.ms", "10000");
        quotas();
        scram();
        acls();
        token(saslAddress);
        Map<String, FeatureUpdate> down = Map.of("streams.version",
            new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE));
        admin.updateFeatures(down, new UpdateFeaturesOptions()).all().get();
    }

    void quotas() throws Exception {
        List<ClientQuotaAlteration> quotas = new ArrayList<>();
        quotas.add(quota("producer_byte_rate", 1_048_576.0, "user", "alice"));
        quotas.add(quota("request_percentage", 0.0005, "user", "a(b)\\c", "client-id", "one two"));
        quotas.add(quota("controller_mutation_rate", 5.0, "client-id", "one two"));
        quotas.add(quota("connection_creation_rate", 100.0, "ip", "127.0.0.9"));
        // Kafka's tree shows the other parts of these only.
        quotas.add(quota("producer_byte_rate", 1.0, "user", null));
        quotas.add(quota("producer_byte_rate", 2.0, "user", "alice", "client-id", null));
        quotas.add(quota("producer_byte_rate", 3.0, "user", "only-default", "client-id", null));
        admin.alterClientQuotas(quotas).all().get();
        // In one request an entity stands once.
        admin.alterClientQuotas(
            List.of(quota("consumer_byte_rate", 20_000_001.0, "user", "alice"))).all().get();
    }

    static ClientQuotaAlteration quota(String key, double value, String... parts) {
        Map<String, String> entity = new HashMap<>();
        for (int index = 0; index < parts.length; index += 2) {
            entity.put(parts[index], parts[index + 1]);
        }
        return new ClientQuotaAlteration(new ClientQuotaEntity(entity),
            List.of(new ClientQuotaAlteration.Op(key, value)));
    }

    void scram() throws Exception {
        for (ScramMechanism mechanism :
                List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
            // In one request a user stands once.
            List<UserScramCredentialAlteration> users = new ArrayList<>();
            for (String name : List.of("alice", "bob \u00e9\ud83d\ude00", "\uff5a")) {
                users.add(new UserScramCredentialUpsertion(
                    name, new ScramCredentialInfo(mechanism, 4096), "secret"));
            }
            admin.alterUserScramCredentials(users).all().get();
        }
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("\uff5a", ScramMechanism.SCRAM_SHA_512))).all().get();
    }

    void acls() throws Exception {
        List<AclBinding> acls = new ArrayList<>();
        AclOperation[] operations = AclOperation.values();
        for (ResourceType type : ResourceType.values()) {
            if (type == ResourceType.UNKNOWN || type == ResourceType.ANY) {
                continue;
            }
            String name = type == ResourceType.CLUSTER ? "kafka-cluster" : "m-resource";
            if (type == ResourceType.USER) {
                name = "User:bob";
            }
            PatternType pattern =
                type == ResourceType.GROUP ? PatternType.PREFIXED : PatternType.LITERAL;
            AclPermissionType permission = type == ResourceType.TOPIC
                ? AclPermissionType.DENY : AclPermissionType.ALLOW;
            acls.add(new AclBinding(new ResourcePattern(type, name, pattern),
                new AccessControlEntry("User:nobody", "*", AclOperation.DESCRIBE, permission)));
        }
        for (AclOperation operation : operations) {
            if (operation == AclOperation.UNKNOWN || operation == AclOperation.ANY) {
                continue;
            }
            acls.add(new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, "m-other", PatternType.LITERAL),
                new AccessControlEntry("User:nobody", "10.0.0.1", operation,
                    AclPermissionType.ALLOW)));
        }
        admin.createAcls(acls).all().get();
        admin.deleteAcls(List.of(acls.get(acls.size() - 1).toFilter())).all().get();
    }

    static void token(String saslAddress) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", saslAddress,
            "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
                + "username=\"alice\" password=\"alice-secret\";");
        try (Admin alice = Admin.create(settings)) {
            List<KafkaPrincipal> renewers =
                List.of(new KafkaPrincipal("User", "bob"), new KafkaPrincipal("User", "carol"));
            CreateDelegationTokenOptions options =
                new CreateDelegationTokenOptions().renewers(renewers).maxLifetimeMs(3_600_000L);
            alice.createDelegationToken(options).delegationToken().get();
            alice.createDelegationToken().delegationToken().get();
        }
    }

    void waitFor(int brokers) throws Exception {
        Collection<Node> seen = List.of();
        while (seen.size() < brokers) {
            seen = admin.describeCluster().nodes().get();
        }
    }

    void replicated() throws Exception {
        NewTopic topic = new NewTopic(REPLICATED, Map.of(0, List.of(1, 2), 1, List.of(2, 1)));
        topic.configs(Map.of("min.insync.replicas", "2"));
        NewTopic moved = new NewTopic(MOVED, Map.of(0, List.of(1)));
        admin.createTopics(List.of(topic, moved)).all().get();
    }

    void move() throws Exception {
        TopicPartition partition = new TopicPartition(MOVED, 0);
        admin.alterPartitionReassignments(Map.of(partition,
            Optional.of(new NewPartitionReassignment(List.of(2))))).all().get();
    }

    void shrunk() throws Exception {
        int inSync = 2;
        while (inSync > 1) {
            var described = admin.describeTopics(List.of(REPLICATED)).allTopicNames().get();
            inSync = described.get(REPLICATED).partitions().stream()
                .mapToInt(partition -> partition.isr().size()).max().orElse(2);
        }
    }

    void set(ConfigResource.Type type, String name, String key, String value) throws Exception {
        ConfigResource of = new ConfigResource(type, name);
        AlterConfigOp change =
            new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        try {
            admin.incrementalAlterConfigs(Map.of(of, List.of(change))).all().get();
        } catch (ExecutionException error) {
            throw new IllegalStateException(of + " " + key, error.getCause());
        }
    }
}
