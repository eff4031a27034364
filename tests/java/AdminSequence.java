import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Sends the sequence of admin requests that a seed chooses, right ones and wrong ones, and prints
 * a line for each: the API with its version, the request and the answer, as JSON. What two brokers
 * can do differently stands there in one form: ids of topics, and the order of what Kafka keeps in
 * hash tables.
 *
 * <p>Arguments: the address of a broker, the seed, how many requests. With a fourth one nothing is
 * changed: what the broker holds at the end is listed.
 */
public class AdminSequence {
    static final int ANSWER_MS_MAX = 30_000;
    static final int BARRIER_MS_MAX = 30_000;
    /** Set to a new value to see how far the broker has come. */
    static final String BARRIER_KEY = "log.segment.delete.delay.ms";
    static final byte TOPIC = 2, BROKER = 4, LOGGER = 8, METRICS = 16, GROUP = 32;

    /** Both set what follows a change of a broker in motion: it is awaited. */
    enum After { NOTHING, BARRIER }

    final String address;
    Random random;
    Socket socket;
    int barriers;

    AdminSequence(String address, long seed) {
        this.address = address;
        this.random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        AdminSequence sequence = new AdminSequence(arguments[0], Long.parseLong(arguments[1]));
        if (arguments.length > 3) {
            sequence.listAll();
        } else {
            for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
                sequence.step(number);
            }
            sequence.barrier();
            sequence.listAll();
        }
        System.exit(0);
    }

    void step(int number) throws Exception {
        List<ThrowingRunnable> kinds = List.of(
            this::createTopics, this::createTopics, this::deleteTopics, this::createPartitions,
            this::incrementalAlterConfigs, this::incrementalAlterConfigs,
            this::incrementalAlterConfigs, this::alterConfigs, this::anyConfig, this::anyConfig,
            this::alterQuotas, this::alterQuotas, this::describeQuotas, this::alterScram,
            this::alterScram, this::describeScram, this::updateFeatures, this::electLeaders,
            this::reassign, this::listReassignments, this::unregister, this::describeConfigs,
            this::listConfigResources, this::security);
        pick(kinds).run();
    }

    interface ThrowingRunnable {
        void run() throws Exception;
    }

    // What is drawn.

    <T> T pick(List<T> choices) {
        return choices.get(random.nextInt(choices.size()));
    }

    String pick(String... choices) {
        return choices[random.nextInt(choices.length)];
    }

    int number(int... choices) {
        return choices[random.nextInt(choices.length)];
    }

    boolean rarely() {
        return random.nextInt(8) == 0;
    }

    boolean oneIn(int times) {
        return random.nextInt(times) == 0;
    }

    int some() {
        return 1 + random.nextInt(3);
    }

    String topic() {
        if (rarely()) {
            return pick("", "a b", ".", "..", "__cluster_metadata", "x".repeat(250), "t.1", "t_1");
        }
        return "topic-" + random.nextInt(6);
    }

    // Topics.

    void createTopics() throws Exception {
        CreateTopicsRequestData data = new CreateTopicsRequestData().setTimeoutMs(9000)
            .setValidateOnly(rarely());
        for (int count = some(); count > 0; count--) {
            CreateTopicsRequestData.CreatableTopic topic =
                new CreateTopicsRequestData.CreatableTopic().setName(topic());
            if (oneIn(4)) {
                topic.setNumPartitions(rarely() ? 1 : -1).setReplicationFactor((short) -1);
                for (int index = 0; index < some(); index++) {
                    topic.assignments().add(new CreateTopicsRequestData.CreatableReplicaAssignment()
                        .setPartitionIndex(rarely() ? index + 1 : index)
                        .setBrokerIds(rarely() ? pick(List.of(List.of(2), List.of(1, 1),
                            List.<Integer>of(), List.of(1, 2))) : List.of(1)));
                }
            } else {
                topic.setNumPartitions(number(1, 1, 2, 3, -1, 0, -2))
                    .setReplicationFactor((short) number(1, 1, 1, -1, 2, 0, -2));
            }
            if (oneIn(3)) {
                for (Map.Entry<String, String> entry : configs(TOPIC).entrySet()) {
                    topic.configs().add(new CreateTopicsRequestData.CreatableTopicConfig()
                        .setName(entry.getKey()).setValue(entry.getValue()));
                }
            }
            data.topics().add(topic);
        }
        send(ApiKeys.CREATE_TOPICS, data);
    }

    void deleteTopics() throws Exception {
        DeleteTopicsRequestData data = new DeleteTopicsRequestData().setTimeoutMs(9000);
        boolean byName = oneIn(2);
        for (int count = some(); count > 0; count--) {
            if (byName) data.topicNames().add(topic());
            else data.topics().add(new DeleteTopicsRequestData.DeleteTopicState()
                .setName(rarely() ? null : topic()));
        }
        send(ApiKeys.DELETE_TOPICS, data, byName ? 1 : 6, byName ? 5 : 6);
    }

    void createPartitions() throws Exception {
        CreatePartitionsRequestData data =
            new CreatePartitionsRequestData().setTimeoutMs(9000).setValidateOnly(rarely());
        for (int count = some(); count > 0; count--) {
            CreatePartitionsRequestData.CreatePartitionsTopic topic =
                new CreatePartitionsRequestData.CreatePartitionsTopic().setName(topic())
                    .setCount(number(1, 2, 3, 4, 5, 0, -1)).setAssignments(null);
            if (oneIn(4)) {
                topic.setAssignments(new ArrayList<>());
                for (int more = random.nextInt(3); more >= 0; more--) {
                    topic.assignments().add(new CreatePartitionsRequestData
                        .CreatePartitionsAssignment().setBrokerIds(rarely()
                            ? pick(List.of(List.of(2), List.of(1, 1), List.<Integer>of()))
                            : List.of(1)));
                }
            }
            data.topics().add(topic);
        }
        send(ApiKeys.CREATE_PARTITIONS, data);
    }

    void electLeaders() throws Exception {
        ElectLeadersRequestData data = new ElectLeadersRequestData().setTimeoutMs(9000)
            .setElectionType((byte) (rarely() ? 7 : random.nextInt(2)));
        if (rarely()) {
            data.setTopicPartitions(null);
        } else {
            for (int count = some(); count > 0; count--) {
                data.topicPartitions().add(new ElectLeadersRequestData.TopicPartitions()
                    .setTopic(topic()).setPartitions(List.of(random.nextInt(3), 9)));
            }
        }
        send(ApiKeys.ELECT_LEADERS, data);
    }

    void reassign() throws Exception {
        AlterPartitionReassignmentsRequestData data =
            new AlterPartitionReassignmentsRequestData().setTimeoutMs(9000)
                .setAllowReplicationFactorChange(!rarely());
        for (int count = some(); count > 0; count--) {
            AlterPartitionReassignmentsRequestData.ReassignablePartition partition =
                new AlterPartitionReassignmentsRequestData.ReassignablePartition()
                    .setPartitionIndex(random.nextInt(3)).setReplicas(pick(Arrays.asList(
                        List.of(1), List.of(1), null, List.of(2), List.of(1, 2), List.of(1, 1),
                        List.of(-1), List.<Integer>of())));
            data.topics().add(new AlterPartitionReassignmentsRequestData.ReassignableTopic()
                .setName(topic()).setPartitions(List.of(partition)));
        }
        send(ApiKeys.ALTER_PARTITION_REASSIGNMENTS, data);
    }

    void listReassignments() throws Exception {
        ListPartitionReassignmentsRequestData data =
            new ListPartitionReassignmentsRequestData().setTimeoutMs(9000).setTopics(null);
        if (oneIn(2)) {
            data.setTopics(List.of(
                new ListPartitionReassignmentsRequestData.ListPartitionReassignmentsTopics()
                    .setName(topic()).setPartitionIndexes(List.of(0, 1))));
        }
        send(ApiKeys.LIST_PARTITION_REASSIGNMENTS, data);
    }

    void unregister() throws Exception {
        send(ApiKeys.UNREGISTER_BROKER,
            new UnregisterBrokerRequestData().setBrokerId(number(0, 2, 3, -1, 1000)));
    }

    // Configurations.

    static final Map<Byte, String[][]> VALUES = Map.of(
        TOPIC, new String[][] {
            {"retention.ms", "1000", "-1", "-2", "abc", "", "9223372036854775807"},
            {"cleanup.policy", "compact", "delete", "compact,delete", "", "none", "delete,delete"},
            {"min.insync.replicas", "1", "2", "0", "1.5", " 1 "},
            {"segment.bytes", "1048576", "14", "1", "2147483648"},
            {"compression.type", "zstd", "lz4", "producer", "ZSTD", "brotli"},
            {"compression.zstd.level", "3", "0", "23", "-131073"},
            {"compression.gzip.level", "-1", "9", "10", "0"},
            {"compression.lz4.level", "1", "17", "18", "0"},
            {"unclean.leader.election.enable", "true", "false", "TRUE", "yes"},
            {"message.timestamp.type", "CreateTime", "LogAppendTime", "logappendtime"},
            {"min.compaction.lag.ms", "100", "0", "-1"},
            {"max.compaction.lag.ms", "1000", "50", "0"},
            {"min.cleanable.dirty.ratio", "0.5", "1.5", "0", "x"},
            {"leader.replication.throttled.replicas", "*", "0:1", "0:1,1:1", "x", ""},
            {"follower.replication.throttled.replicas", "none", "*", "0:1", "0:1:2"},
            {"remote.storage.enable", "true", "false"},
            {"local.retention.ms", "-2", "100", "-3"},
            {"flush.messages", "1", "0", "100"},
            {"nonsense", "1"},
            {"", "1"},
        },
        BROKER, new String[][] {
            {"message.max.bytes", "2000000", "1048588", "-1", "abc"},
            {"log.retention.ms", "100000000", "-1", "0", "-2", "x"},
            {"log.cleaner.threads", "1", "2", "5", "0"},
            {"num.io.threads", "8", "9", "12", "64", "0"},
            {"background.threads", "10", "12", "14", "100"},
            {"num.replica.fetchers", "1", "2", "5"},
            {"min.insync.replicas", "1", "2", "0"},
            {"unclean.leader.election.enable", "true", "false"},
            {"compression.type", "zstd", "producer", "brotli"},
            {"log.cleanup.policy", "compact", "delete", "delete,compact", "x"},
            {"max.connections", "10000", "-1"},
            {"max.connections.per.ip.overrides", "127.0.0.2:10000", "127.0.0.2", "a:b"},
            {"listener.name.plaintext.max.connections", "10000", "x"},
            {"listener.name.other.max.connections", "10000"},
            {"leader.replication.throttled.rate", "1000000000", "-1", "x"},
            {"log.message.timestamp.type", "CreateTime", "x"},
            {"log.dirs", "/tmp/other"},
            {"node.id", "1", "2"},
            {"advertised.listeners", "PLAINTEXT://127.0.0.1:1"},
            {"ssl.keystore.location", "/tmp/none"},
            {"listener.name.plaintext.ssl.keystore.location", "/tmp/none"},
            {"metric.reporters", "", "x.y.Z", "a,b"},
            {"producer.id.expiration.ms", "86400000", "0"},
            {"transaction.partition.verification.enable", "true", "false", "x"},
            {"controller.quorum.voters", "1@localhost:1"},
            {"nonsense", "1"},
            {"", "1"},
        },
        GROUP, new String[][] {
            {"consumer.session.timeout.ms", "45000", "50000", "1", "x", "100000"},
            {"consumer.heartbeat.interval.ms", "5000", "6000", "1", "50000"},
            {"consumer.assignment.interval.ms", "1000", "0", "-1", "15001"},
            {"share.session.timeout.ms", "45000", "1", "50000"},
            {"share.heartbeat.interval.ms", "5000", "1", "15000"},
            {"share.record.lock.duration.ms", "30000", "1", "15000"},
            {"share.auto.offset.reset", "latest", "earliest", "by_duration:PT1H", "x"},
            {"share.isolation.level", "read_committed", "read_uncommitted", "x"},
            {"share.delivery.count.limit", "5", "1", "11", "2"},
            {"share.partition.max.record.locks", "2000", "1", "20000", "200"},
            {"share.renew.acknowledge.enable", "true", "x"},
            {"streams.session.timeout.ms", "45000", "1", "50000"},
            {"streams.num.standby.replicas", "0", "1", "3", "-1"},
            {"streams.initial.rebalance.delay.ms", "3000", "-1"},
            {"nonsense", "1"},
        },
        METRICS, new String[][] {
            {"interval.ms", "100", "99", "3600000", "3600001", "x", "30000"},
            {"metrics", "a,b", "", "*", "org.apache.kafka.producer."},
            {"match", "client_id=a.*", "client_id=[", "x=y", "client_id", "",
                "client_software_name=a,client_source_port=1", "client_id=a,client_id=b"},
            {"nonsense", "1"},
        });

    Map<String, String> configs(byte type) {
        String[][] table = VALUES.getOrDefault(type, VALUES.get(TOPIC));
        Map<String, String> configs = new LinkedHashMap<>();
        for (int count = some(); count > 0; count--) {
            String[] row = table[random.nextInt(table.length)];
            // The first value is a right one. Which of several wrong ones of a broker is told of
            // lies in the order of a hash table.
            boolean isRight = oneIn(2) || type == BROKER && !configs.isEmpty();
            configs.put(row[0], row[isRight ? 1 : 1 + random.nextInt(row.length - 1)]);
        }
        return configs;
    }

    byte resourceType() {
        return (byte) (rarely() ? number(LOGGER, 0, 1, 3, 64)
            : number(TOPIC, TOPIC, BROKER, BROKER, GROUP, METRICS));
    }

    String resourceName(byte type) {
        return switch (type) {
            case TOPIC -> topic();
            case BROKER, LOGGER ->
                rarely() ? pick("2", "abc", "-1", "01", "1 ") : pick("1", "1", "");
            case GROUP -> rarely() ? "" : "group-" + random.nextInt(3);
            case METRICS -> rarely() ? "" : "metrics-" + random.nextInt(3);
            default -> "type-" + type;
        };
    }

    void incrementalAlterConfigs() throws Exception {
        IncrementalAlterConfigsRequestData data =
            new IncrementalAlterConfigsRequestData().setValidateOnly(rarely());
        boolean ofBroker = false;
        for (int count = some(); count > 0; count--) {
            byte type = resourceType();
            ofBroker |= type == BROKER;
            IncrementalAlterConfigsRequestData.AlterConfigsResource resource =
                new IncrementalAlterConfigsRequestData.AlterConfigsResource()
                    .setResourceType(type).setResourceName(resourceName(type));
            if (type == LOGGER) loggers(resource);
            else for (Map.Entry<String, String> entry : configs(type).entrySet()) {
                // Which of several wrong ones is told of lies in the order of a hash table.
                boolean isFirst = resource.configs().isEmpty();
                byte operation =
                    (byte) (oneIn(4) ? isFirst ? number(1, 1, 1, 2, 3, 4) : 1 : 0);
                String value = operation == 1 || oneIn(30) ? null : entry.getValue();
                resource.configs().add(new IncrementalAlterConfigsRequestData.AlterableConfig()
                    .setName(entry.getKey()).setConfigOperation(operation).setValue(value));
                if (oneIn(30)) {
                    resource.configs().mustAdd(resource.configs().iterator().next().duplicate());
                }
            }
            data.resources().add(resource);
            if (oneIn(30)) data.resources().mustAdd(resource.duplicate());
        }
        if (ofBroker) barrier();
        send(ApiKeys.INCREMENTAL_ALTER_CONFIGS, data);
    }

    /** The loggers of two brokers have different names: only wrong ones are the same. */
    void loggers(IncrementalAlterConfigsRequestData.AlterConfigsResource resource) {
        resource.configs().add(new IncrementalAlterConfigsRequestData.AlterableConfig()
            .setName(pick("no.such.logger", "")).setConfigOperation((byte) number(0, 1, 2, 3))
            .setValue(pick("INFO", "LOUD", "", null)));
    }

    void alterConfigs() throws Exception {
        AlterConfigsRequestData data = new AlterConfigsRequestData().setValidateOnly(rarely());
        boolean ofBroker = false;
        for (int count = some(); count > 0; count--) {
            byte type = resourceType();
            ofBroker |= type == BROKER;
            AlterConfigsRequestData.AlterConfigsResource resource =
                new AlterConfigsRequestData.AlterConfigsResource()
                    .setResourceType(type).setResourceName(resourceName(type));
            for (Map.Entry<String, String> entry : configs(type).entrySet()) {
                resource.configs().add(new AlterConfigsRequestData.AlterableConfig()
                    .setName(entry.getKey()).setValue(oneIn(30) ? null : entry.getValue()));
                if (oneIn(30)) {
                    resource.configs().mustAdd(resource.configs().iterator().next().duplicate());
                }
            }
            // Kafka answers nothing at all where a resource is named twice.
            if (data.resources().find(type, resource.resourceName()) == null) {
                data.resources().add(resource);
            }
        }
        if (ofBroker) barrier();
        send(ApiKeys.ALTER_CONFIGS, data);
    }

    /** Any key with any value, to be checked only. */
    void anyConfig() throws Exception {
        byte type = (byte) number(TOPIC, BROKER, BROKER, GROUP, METRICS);
        Collection<String> names = switch (type) {
            case TOPIC -> LogConfig.configNames();
            case BROKER -> AbstractKafkaConfig.CONFIG_DEF.names();
            case GROUP -> GroupConfig.configNames();
            default -> ClientMetricsConfigs.configDef().names();
        };
        List<String> keys = new ArrayList<>(new TreeSet<>(names));
        IncrementalAlterConfigsRequestData data =
            new IncrementalAlterConfigsRequestData().setValidateOnly(true);
        IncrementalAlterConfigsRequestData.AlterConfigsResource resource =
            new IncrementalAlterConfigsRequestData.AlterConfigsResource().setResourceType(type)
                .setResourceName(type == TOPIC ? "topic-0" : type == BROKER ? pick("1", "") : "x");
        resource.configs().add(new IncrementalAlterConfigsRequestData.AlterableConfig()
            .setName(pick(keys)).setConfigOperation((byte) (rarely() ? number(2, 3) : 0))
            .setValue(pick("", "0", "1", "-1", "-2", "abc", "true", "1.5", "100000", "2147483648",
                "9223372036854775808", "a,b", "a,a", " 5 ", "none", "1000")));
        data.resources().add(resource);
        if (type == BROKER) barrier();
        send(ApiKeys.INCREMENTAL_ALTER_CONFIGS, data);
    }

    void describeConfigs() throws Exception {
        barrier();
        DescribeConfigsRequestData data = new DescribeConfigsRequestData()
            .setIncludeSynonyms(oneIn(2)).setIncludeDocumentation(rarely());
        byte type = resourceType();
        if (type == LOGGER) type = TOPIC;
        DescribeConfigsRequestData.DescribeConfigsResource resource =
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType(type)
                .setResourceName(resourceName(type)).setConfigurationKeys(null);
        // All settings of a broker name its ports and folders.
        if (type == BROKER || oneIn(4)) {
            resource.setConfigurationKeys(new ArrayList<>(configs(type).keySet()));
            resource.configurationKeys().remove("advertised.listeners");
            resource.configurationKeys().remove("log.dirs");
            resource.configurationKeys().remove("controller.quorum.voters");
            resource.configurationKeys().add(BARRIER_KEY);
        }
        data.resources().add(resource);
        send(ApiKeys.DESCRIBE_CONFIGS, data);
    }

    void listConfigResources() throws Exception {
        barrier();
        ListConfigResourcesRequestData data = new ListConfigResourcesRequestData();
        if (oneIn(2)) data.setResourceTypes(List.of(resourceType()));
        send(ApiKeys.LIST_CONFIG_RESOURCES, data);
    }

    // Quotas.

    /** A quota that this client could feel is so high that it feels nothing. */
    static final double[] UNFELT = {1e9, 2e9, 1e12};
    static final double[] WILD = {1, 100, 0, -1, 0.5, 1e-7, 1e300, Double.NaN,
        Double.POSITIVE_INFINITY, 1000, 50.25, -0.0};

    void alterQuotas() throws Exception {
        AlterClientQuotasRequestData data =
            new AlterClientQuotasRequestData().setValidateOnly(rarely());
        for (int count = some(); count > 0; count--) {
            AlterClientQuotasRequestData.EntryData entry =
                new AlterClientQuotasRequestData.EntryData();
            boolean isFelt = false;
            List<String> types = pick(List.of(List.of("user"), List.of("client-id"), List.of("ip"),
                List.of("user", "client-id"), List.of("client-id", "user"), List.of("user", "ip"),
                List.of("other"), List.<String>of(), List.of("user", "user"),
                List.of("ip", "client-id", "user")));
            for (String type : types) {
                String name = quotaName(type);
                isFelt |= name == null;
                entry.entity().add(new AlterClientQuotasRequestData.EntityData()
                    .setEntityType(type).setEntityName(name));
            }
            // Which of several wrong ones is told of lies in the order of a hash table.
            boolean isWild = oneIn(2);
            for (int keys = isWild ? 1 : random.nextInt(4); keys > 0; keys--) {
                double value = isFelt || !isWild ? UNFELT[random.nextInt(UNFELT.length)]
                    : WILD[random.nextInt(WILD.length)];
                String key = isWild ? quotaKey() : types.contains("ip")
                    ? "connection_creation_rate" : pick("producer_byte_rate", "consumer_byte_rate",
                        "request_percentage", "controller_mutation_rate");
                entry.ops().add(new AlterClientQuotasRequestData.OpData().setKey(key)
                    .setRemove(oneIn(4)).setValue(value));
            }
            data.entries().add(entry);
            if (oneIn(15)) data.entries().add(entry.duplicate());
        }
        send(ApiKeys.ALTER_CLIENT_QUOTAS, data);
    }

    String quotaName(String type) {
        if (rarely()) return "";
        if (oneIn(4)) return null;
        return type.equals("ip") ? pick("10.0.0.1", "10.0.0.2", "::1:2", "300.1.1.1", "not an ip",
                "10.1", "1.2.3.4.5", "fe80::1")
            : pick("alice", "bob", "<default>", "a b/c", "CN=x,OU=y");
    }

    String quotaKey() {
        return rarely() ? pick("nonsense", "", "SCRAM-SHA-256") : pick("producer_byte_rate",
            "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
            "connection_creation_rate");
    }

    void describeQuotas() throws Exception {
        barrier();
        DescribeClientQuotasRequestData data =
            new DescribeClientQuotasRequestData().setStrict(oneIn(2));
        for (int count = random.nextInt(3); count > 0; count--) {
            byte match = (byte) (rarely() ? 3 : random.nextInt(3));
            String type = rarely() ? pick("", "other") : pick("user", "client-id", "ip");
            String name = match == 0 ? quotaName(type) : null;
            if (rarely()) name = pick("alice", null);
            data.components().add(new DescribeClientQuotasRequestData.ComponentData()
                .setEntityType(type).setMatchType(match).setMatch(name));
        }
        send(ApiKeys.DESCRIBE_CLIENT_QUOTAS, data);
    }

    // Credentials and security.

    void alterScram() throws Exception {
        AlterUserScramCredentialsRequestData data = new AlterUserScramCredentialsRequestData();
        for (int count = random.nextInt(3); count > 0; count--) {
            data.deletions().add(new AlterUserScramCredentialsRequestData.ScramCredentialDeletion()
                .setName(user()).setMechanism(mechanism()));
        }
        for (int count = random.nextInt(3); count > 0; count--) {
            byte[] salt = new byte[rarely() ? 0 : 4], password = new byte[rarely() ? 0 : 32];
            random.nextBytes(salt);
            random.nextBytes(password);
            data.upsertions().add(
                new AlterUserScramCredentialsRequestData.ScramCredentialUpsertion()
                    .setName(user()).setMechanism(mechanism()).setSalt(salt)
                    .setSaltedPassword(password)
                    .setIterations(number(4096, 8192, 16384, 4095, 16385, 0, -1)));
        }
        send(ApiKeys.ALTER_USER_SCRAM_CREDENTIALS, data);
    }

    String user() {
        return rarely() ? pick("", "nobody") : "user-" + random.nextInt(4);
    }

    byte mechanism() {
        return (byte) (rarely() ? number(0, 3, -1) : number(1, 2));
    }

    void describeScram() throws Exception {
        barrier();
        DescribeUserScramCredentialsRequestData data =
            new DescribeUserScramCredentialsRequestData().setUsers(null);
        if (oneIn(2)) {
            data.setUsers(new ArrayList<>());
            for (int count = random.nextInt(4); count > 0; count--) {
                data.users().add(new DescribeUserScramCredentialsRequestData.UserName()
                    .setName(user()));
            }
        }
        send(ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, data);
    }

    void security() throws Exception {
        switch (random.nextInt(7)) {
            case 0 -> send(ApiKeys.DESCRIBE_ACLS, new DescribeAclsRequestData()
                .setResourceTypeFilter((byte) number(1, 2, 0)).setResourceNameFilter(null)
                .setPatternTypeFilter((byte) number(1, 3, 2)).setPrincipalFilter(null)
                .setHostFilter(null).setOperation((byte) 1).setPermissionType((byte) 1));
            case 1 -> {
                CreateAclsRequestData data = new CreateAclsRequestData();
                for (int count = random.nextInt(3); count > 0; count--) {
                    data.creations().add(new CreateAclsRequestData.AclCreation()
                        .setResourceType((byte) number(2, 3, 1, 0)).setResourceName("x")
                        .setResourcePatternType((byte) 3).setPrincipal(pick("User:a", "a"))
                        .setHost("*").setOperation((byte) 3).setPermissionType((byte) 3));
                }
                send(ApiKeys.CREATE_ACLS, data);
            }
            case 2 -> {
                DeleteAclsRequestData data = new DeleteAclsRequestData();
                for (int count = random.nextInt(3); count > 0; count--) {
                    data.filters().add(new DeleteAclsRequestData.DeleteAclsFilter()
                        .setResourceTypeFilter((byte) number(1, 2, 0)).setResourceNameFilter(null)
                        .setPatternTypeFilter((byte) number(1, 3, 2)).setPrincipalFilter(null)
                        .setHostFilter(null).setOperation((byte) 1).setPermissionType((byte) 1));
                }
                send(ApiKeys.DELETE_ACLS, data);
            }
            case 3 -> send(ApiKeys.CREATE_DELEGATION_TOKEN, new CreateDelegationTokenRequestData()
                .setMaxLifetimeMs(number(-1, 0, 1000)).setRenewers(rarely() ? List.of(
                    new CreateDelegationTokenRequestData.CreatableRenewers()
                        .setPrincipalType("User").setPrincipalName("a")) : List.of()));
            case 4 -> send(ApiKeys.RENEW_DELEGATION_TOKEN, new RenewDelegationTokenRequestData()
                .setHmac(new byte[number(0, 8)]).setRenewPeriodMs(1000));
            case 5 -> send(ApiKeys.EXPIRE_DELEGATION_TOKEN, new ExpireDelegationTokenRequestData()
                .setHmac(new byte[number(0, 8)]).setExpiryTimePeriodMs(-1));
            default -> send(ApiKeys.DESCRIBE_DELEGATION_TOKEN,
                new DescribeDelegationTokenRequestData().setOwners(oneIn(2) ? null : List.of()));
        }
    }

    // Features.

    void updateFeatures() throws Exception {
        UpdateFeaturesRequestData data =
            new UpdateFeaturesRequestData().setTimeoutMs(9000).setValidateOnly(oneIn(3));
        for (int count = oneIn(3) ? some() : 1; count > 0; count--) {
            String name = rarely() ? pick("nonsense", "")
                : pick("metadata.version", "metadata.version", "metadata.version", "group.version",
                    "transaction.version", "eligible.leader.replicas.version", "share.version",
                    "streams.version");
            int level = name.equals("metadata.version") ? 5 + random.nextInt(31)
                : number(0, 1, 2, 3, -1);
            data.featureUpdates().add(new UpdateFeaturesRequestData.FeatureUpdateKey()
                .setFeature(name).setMaxVersionLevel((short) level)
                .setUpgradeType((byte) (rarely() ? number(0, 4) : number(1, 1, 2, 3))));
        }
        send(ApiKeys.UPDATE_FEATURES, data, 1, 2);
    }

    // What there is at the end.

    void listAll() throws Exception {
        // The versions that are drawn do not depend on what was asked before.
        random = new Random(0);
        send(ApiKeys.DESCRIBE_CLIENT_QUOTAS, new DescribeClientQuotasRequestData());
        send(ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS,
            new DescribeUserScramCredentialsRequestData().setUsers(null));
        send(ApiKeys.LIST_CONFIG_RESOURCES, new ListConfigResourcesRequestData());
        DescribeConfigsRequestData data = new DescribeConfigsRequestData();
        for (int number = 0; number < 6; number++) {
            describe(data, TOPIC, "topic-" + number);
            describe(data, GROUP, "group-" + number);
            describe(data, METRICS, "metrics-" + number);
        }
        describe(data, BROKER, "");
        send(ApiKeys.DESCRIBE_CONFIGS, data);
        ApiVersionsResponseData versions = (ApiVersionsResponseData)
            ask(ApiKeys.API_VERSIONS, (short) 3, new ApiVersionsRequestData()
                .setClientSoftwareName("x").setClientSoftwareVersion("1"));
        Map<String, Short> levels = new TreeMap<>();
        versions.finalizedFeatures().forEach(f -> levels.put(f.name(), f.maxVersionLevel()));
        System.out.println("features " + levels);
    }

    static void describe(DescribeConfigsRequestData data, byte type, String name) {
        data.resources().add(new DescribeConfigsRequestData.DescribeConfigsResource()
            .setResourceType(type).setResourceName(name).setConfigurationKeys(null));
    }

    // To and fro.

    /** Returns when all that was answered before has come to what answers questions. */
    void barrier() throws Exception {
        String value = String.valueOf(60_000 + ++barriers);
        IncrementalAlterConfigsRequestData data = new IncrementalAlterConfigsRequestData();
        IncrementalAlterConfigsRequestData.AlterConfigsResource resource =
            new IncrementalAlterConfigsRequestData.AlterConfigsResource()
                .setResourceType(BROKER).setResourceName("1");
        resource.configs().add(new IncrementalAlterConfigsRequestData.AlterableConfig()
            .setName(BARRIER_KEY).setValue(value));
        data.resources().add(resource);
        String answer = "" + ask(ApiKeys.INCREMENTAL_ALTER_CONFIGS, (short) 1, data);
        if (!answer.contains("errorCode=0")) {
            System.out.println("no barrier: " + answer);
            return;
        }
        DescribeConfigsRequestData question = new DescribeConfigsRequestData();
        question.resources().add(new DescribeConfigsRequestData.DescribeConfigsResource()
            .setResourceType(BROKER).setResourceName("1")
            .setConfigurationKeys(List.of(BARRIER_KEY)));
        long deadline = System.nanoTime() + BARRIER_MS_MAX * 1_000_000L;
        while (!("" + ask(ApiKeys.DESCRIBE_CONFIGS, (short) 4, question)).contains(
                "value='" + value + "'")) {
            if (System.nanoTime() > deadline) {
                System.out.println("no barrier in time");
                return;
            }
            Thread.sleep(1);
        }
    }

    void send(ApiKeys key, ApiMessage request) throws Exception {
        send(key, request, key.oldestVersion(), key.latestVersion());
    }

    /** In one of these versions. */
    void send(ApiKeys key, ApiMessage request, int oldest, int latest) throws Exception {
        short version = (short) (oldest + random.nextInt(latest - oldest + 1));
        String line = key.name + " " + version + " " + json(request, key.latestVersion()) + " -> ";
        try {
            ApiMessage response = ask(key, version, request);
            line += sorted(json(response, version));
        } catch (Exception error) {
            socket = null;
            line += error.getClass().getSimpleName();
            if (!(error instanceof IOException)) line += ": " + error.getMessage();
        }
        System.out.println(ofEither(line));
    }

    /** What two brokers tell in words of their own, or in the order of a hash table. */
    static String ofEither(String line) {
        line = line.replaceAll("\"topicId\":\"(?!A{22})[^\"]*\"", "\"topicId\":\"*\"");
        // The first error of several features is that of any of them.
        if (line.startsWith("UpdateFeatures") && line.split("\"feature\":").length > 2) {
            line = line.replaceAll("had an error: [^\"]*", "had an error: *");
        }
        Matcher lists = Pattern.compile("(dynamically|specified): \\[[^\\]]*\\]").matcher(line);
        return lists.replaceAll(list -> Matcher.quoteReplacement(Arrays.toString(
            new TreeSet<>(List.of(list.group().split("[\\[\\], ]+"))).toArray())));
    }

    ApiMessage ask(ApiKeys key, short version, ApiMessage request) throws IOException {
        RequestHeader header = new RequestHeader(key, version, "admin-sequence", 42);
        ByteBuffer bytes = RequestUtils.serialize(
            header.data(), header.headerVersion(), request, version);
        if (socket == null) {
            int separator = address.lastIndexOf(':');
            socket = new Socket(address.substring(0, separator),
                Integer.parseInt(address.substring(separator + 1)));
            socket.setSoTimeout(ANSWER_MS_MAX);
            socket.setTcpNoDelay(true);
        }
        DataOutputStream out =
            new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        out.writeInt(bytes.remaining());
        out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        out.flush();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        ByteBuffer buffer = ByteBuffer.wrap(answer);
        ResponseHeader.parse(buffer, key.responseHeaderVersion(version));
        ApiMessage response = ApiMessageType.fromApiKey(key.id).newResponse();
        response.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes follow the answer");
        }
        return response;
    }

    static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        try {
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class)
                .invoke(null, message, version);
        } catch (java.lang.reflect.InvocationTargetException error) {
            return new TextNode(message.toString());
        }
    }

    /** Kafka answers in the order of its hash tables in places: lists of objects are sorted. */
    static JsonNode sorted(JsonNode node) {
        if (node instanceof ArrayNode array) {
            List<JsonNode> elements = new ArrayList<>();
            array.forEach(element -> elements.add(sorted(element)));
            if (!elements.isEmpty() && elements.get(0).isObject()) {
                elements.sort(Comparator.comparing(JsonNode::toString));
            }
            return JsonNodeFactory.instance.arrayNode().addAll(elements);
        }
        if (node instanceof ObjectNode object) {
            ObjectNode copy = JsonNodeFactory.instance.objectNode();
            TreeMap<String, JsonNode> fields = new TreeMap<>();
            object.fields().forEachRemaining(field -> fields.put(field.getKey(), field.getValue()));
            fields.forEach((name, value) -> {
                boolean isOwnWords = name.equals("documentation") && !value.isNull();
                copy.set(name, isOwnWords ? new TextNode("*") : sorted(value));
            });
            return copy;
        }
        return node;
    }
}
