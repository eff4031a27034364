import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.*;
import java.util.regex.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends each API in each version that the broker lists, with Kafka's own classes of messages, and
 * prints a line for each: the error codes of its answer, in order.
 *
 * <p>Argument: the address of a broker.
 */
public class EveryVersion {
    static final String TOPIC = "every-version";

    final String address;
    Uuid topicId;
    final Map<ApiKeys, IntFunction<ApiMessage>> requests = new TreeMap<>();

    EveryVersion(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        EveryVersion every = new EveryVersion(arguments[0]);
        every.prepare();
        every.describeRequests();
        every.describeGroupRequests();
        every.describeSecurityRequests();
        every.run();
        System.exit(0);
    }

    void prepare() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address);
        try (Admin admin = Admin.create(settings)) {
            NewTopic topic = new NewTopic(TOPIC, 1, (short) 1);
            topicId = admin.createTopics(List.of(topic)).topicId(TOPIC).get();
            // The client asks again until the coordinators are there.
            List<String> groups = new ArrayList<>(List.of(TOPIC));
            for (int version = 0; version <= 9; version++) {
                groups.add("joined-in-version-" + version);
            }
            for (String group : groups) {
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            }
        }
        try (Producer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(TOPIC, "key", "value")).get();
        }
    }

    void run() throws Exception {
        ApiVersionsResponseData listed = (ApiVersionsResponseData)
            ask(ApiKeys.API_VERSIONS, (short) 0, new ApiVersionsRequestData());
        for (ApiVersionsResponseData.ApiVersion api : listed.apiKeys()) {
            ApiKeys key = ApiKeys.forId(api.apiKey());
            IntFunction<ApiMessage> request = requests.get(key);
            if (request == null) continue;
            for (short version = oldest(key, api); version <= api.maxVersion(); version++) {
                String answer;
                try {
                    answer = codes(ask(key, version, request.apply(version)));
                } catch (Exception error) {
                    answer = "" + error;
                }
                System.out.println(key.name + " " + version + ": " + answer);
            }
        }
    }

    /** Produce is listed from 0 on, though the three oldest are refused. */
    static short oldest(ApiKeys key, ApiVersionsResponseData.ApiVersion api) {
        return (short) Math.max(api.minVersion(), key.oldestVersion());
    }

    ApiMessage ask(ApiKeys key, short version, ApiMessage request) throws IOException {
        RequestHeader header = new RequestHeader(key, version, "every-version", 42);
        ByteBuffer bytes = RequestUtils.serialize(
            header.data(), header.headerVersion(), request, version);
        int separator = address.lastIndexOf(':');
        try (Socket socket = new Socket(address.substring(0, separator),
                Integer.parseInt(address.substring(separator + 1)))) {
            socket.setSoTimeout(20_000);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
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
                throw new IOException(buffer.remaining() + " bytes follow the answer");
            }
            return response;
        }
    }

    static String codes(ApiMessage response) {
        Matcher matcher = Pattern.compile("errorCode=(-?\\d+)").matcher(response.toString());
        StringJoiner codes = new StringJoiner(" ");
        while (matcher.find()) codes.add(matcher.group(1));
        return codes.length() == 0 ? "no code" : codes.toString();
    }

    void describeRequests() {
        requests.put(ApiKeys.PRODUCE, version -> {
            MemoryRecords records =
                MemoryRecords.withRecords(Compression.NONE, new SimpleRecord("v".getBytes()));
            ProduceRequestData.TopicProduceData topic = new ProduceRequestData.TopicProduceData()
                .setPartitionData(List.of(new ProduceRequestData.PartitionProduceData()
                    .setIndex(0).setRecords(records)));
            if (version >= 13) topic.setTopicId(topicId);
            else topic.setName(TOPIC);
            ProduceRequestData data =
                new ProduceRequestData().setAcks((short) -1).setTimeoutMs(9000);
            data.topicData().add(topic);
            return data;
        });
        requests.put(ApiKeys.FETCH, version -> {
            FetchRequestData.FetchTopic topic = new FetchRequestData.FetchTopic().setPartitions(
                List.of(new FetchRequestData.FetchPartition().setPartition(0).setFetchOffset(0)
                    .setPartitionMaxBytes(1 << 20)));
            if (version >= 13) topic.setTopicId(topicId);
            else topic.setTopic(TOPIC);
            return new FetchRequestData().setMaxWaitMs(10).setMinBytes(1).setMaxBytes(1 << 20)
                .setTopics(List.of(topic));
        });
        requests.put(ApiKeys.LIST_OFFSETS, version -> new ListOffsetsRequestData().setReplicaId(-1)
            .setTopics(List.of(new ListOffsetsRequestData.ListOffsetsTopic().setName(TOPIC)
                .setPartitions(List.of(new ListOffsetsRequestData.ListOffsetsPartition()
                    .setPartitionIndex(0).setTimestamp(-1))))));
        requests.put(ApiKeys.METADATA, version -> new MetadataRequestData().setTopics(
            List.of(new MetadataRequestData.MetadataRequestTopic().setName(TOPIC))));
        requests.put(ApiKeys.API_VERSIONS, version -> version < 3 ? new ApiVersionsRequestData()
            : new ApiVersionsRequestData().setClientSoftwareName("every-version")
                .setClientSoftwareVersion("1"));
        requests.put(ApiKeys.CREATE_TOPICS, version -> {
            CreateTopicsRequestData data = new CreateTopicsRequestData().setTimeoutMs(9000);
            data.topics().add(new CreateTopicsRequestData.CreatableTopic()
                .setName("made-in-version-" + version).setNumPartitions(1)
                .setReplicationFactor((short) 1));
            return data;
        });
        requests.put(ApiKeys.DELETE_TOPICS, version -> {
            DeleteTopicsRequestData data = new DeleteTopicsRequestData().setTimeoutMs(9000);
            if (version >= 6) {
                data.topics().add(
                    new DeleteTopicsRequestData.DeleteTopicState().setName("never-made"));
            } else {
                data.topicNames().add("never-made");
            }
            return data;
        });
        requests.put(ApiKeys.CREATE_PARTITIONS, version -> {
            CreatePartitionsRequestData data =
                new CreatePartitionsRequestData().setTimeoutMs(9000).setValidateOnly(true);
            data.topics().add(new CreatePartitionsRequestData.CreatePartitionsTopic()
                .setName(TOPIC).setCount(2).setAssignments(null));
            return data;
        });
        requests.put(ApiKeys.DELETE_RECORDS, version -> new DeleteRecordsRequestData()
            .setTimeoutMs(9000).setTopics(List.of(
                new DeleteRecordsRequestData.DeleteRecordsTopic().setName(TOPIC).setPartitions(
                    List.of(new DeleteRecordsRequestData.DeleteRecordsPartition()
                        .setPartitionIndex(0).setOffset(0))))));
        requests.put(ApiKeys.INIT_PRODUCER_ID, version ->
            new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(1000));
        requests.put(ApiKeys.OFFSET_FOR_LEADER_EPOCH, version -> {
            OffsetForLeaderEpochRequestData data =
                new OffsetForLeaderEpochRequestData().setReplicaId(-1);
            data.topics().add(new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic()
                .setTopic(TOPIC).setPartitions(List.of(
                    new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition()
                        .setPartition(0).setLeaderEpoch(0))));
            return data;
        });
        requests.put(ApiKeys.DESCRIBE_CONFIGS, version -> new DescribeConfigsRequestData()
            .setResources(List.of(new DescribeConfigsRequestData.DescribeConfigsResource()
                .setResourceType((byte) 2).setResourceName(TOPIC).setConfigurationKeys(null))));
        requests.put(ApiKeys.ALTER_CONFIGS, version -> {
            AlterConfigsRequestData data = new AlterConfigsRequestData().setValidateOnly(true);
            data.resources().add(new AlterConfigsRequestData.AlterConfigsResource()
                .setResourceType((byte) 2).setResourceName(TOPIC));
            return data;
        });
        requests.put(ApiKeys.INCREMENTAL_ALTER_CONFIGS, version -> {
            IncrementalAlterConfigsRequestData data =
                new IncrementalAlterConfigsRequestData().setValidateOnly(true);
            data.resources().add(new IncrementalAlterConfigsRequestData.AlterConfigsResource()
                .setResourceType((byte) 2).setResourceName(TOPIC));
            return data;
        });
        requests.put(ApiKeys.DESCRIBE_LOG_DIRS, version ->
            new DescribeLogDirsRequestData().setTopics(null));
        requests.put(ApiKeys.LIST_PARTITION_REASSIGNMENTS, version ->
            new ListPartitionReassignmentsRequestData().setTopics(null));
        requests.put(ApiKeys.DESCRIBE_CLIENT_QUOTAS, version ->
            new DescribeClientQuotasRequestData());
        requests.put(ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS, version ->
            new DescribeUserScramCredentialsRequestData().setUsers(null));
        requests.put(ApiKeys.DESCRIBE_QUORUM, version -> new DescribeQuorumRequestData().setTopics(
            List.of(new DescribeQuorumRequestData.TopicData().setTopicName("__cluster_metadata")
                .setPartitions(List.of(new DescribeQuorumRequestData.PartitionData())))));
        requests.put(ApiKeys.DESCRIBE_CLUSTER, version -> new DescribeClusterRequestData());
        requests.put(ApiKeys.DESCRIBE_PRODUCERS, version -> new DescribeProducersRequestData()
            .setTopics(new DescribeProducersRequestData.TopicRequestCollection(
                List.of(new DescribeProducersRequestData.TopicRequest().setName(TOPIC)
                    .setPartitionIndexes(List.of(0))).iterator())));
        requests.put(ApiKeys.LIST_CONFIG_RESOURCES, version ->
            new ListConfigResourcesRequestData());
        requests.put(ApiKeys.DESCRIBE_TOPIC_PARTITIONS, version ->
            new DescribeTopicPartitionsRequestData().setTopics(List.of(
                new DescribeTopicPartitionsRequestData.TopicRequest().setName(TOPIC))));
    }

    void describeSecurityRequests() {
        requests.put(ApiKeys.ALTER_CLIENT_QUOTAS, version -> new AlterClientQuotasRequestData()
            .setEntries(List.of(new AlterClientQuotasRequestData.EntryData()
                .setEntity(List.of(new AlterClientQuotasRequestData.EntityData()
                    .setEntityType("user").setEntityName(TOPIC)))
                .setOps(List.of(new AlterClientQuotasRequestData.OpData()
                    .setKey("producer_byte_rate").setValue(1e9))))));
        requests.put(ApiKeys.ALTER_USER_SCRAM_CREDENTIALS, version ->
            new AlterUserScramCredentialsRequestData().setUpsertions(List.of(
                new AlterUserScramCredentialsRequestData.ScramCredentialUpsertion()
                    .setName(TOPIC).setMechanism((byte) 1).setIterations(4096)
                    .setSalt(new byte[4]).setSaltedPassword(new byte[32]))));
        requests.put(ApiKeys.DESCRIBE_ACLS, version -> new DescribeAclsRequestData()
            .setResourceTypeFilter((byte) 1).setPatternTypeFilter((byte) 1)
            .setOperation((byte) 1).setPermissionType((byte) 1));
        requests.put(ApiKeys.CREATE_ACLS, version -> new CreateAclsRequestData().setCreations(
            List.of(new CreateAclsRequestData.AclCreation().setResourceType((byte) 2)
                .setResourceName(TOPIC).setResourcePatternType((byte) 3).setPrincipal("User:a")
                .setHost("*").setOperation((byte) 3).setPermissionType((byte) 3))));
        requests.put(ApiKeys.DELETE_ACLS, version -> new DeleteAclsRequestData().setFilters(
            List.of(new DeleteAclsRequestData.DeleteAclsFilter().setResourceTypeFilter((byte) 1)
                .setPatternTypeFilter((byte) 1).setOperation((byte) 1)
                .setPermissionType((byte) 1))));
        requests.put(ApiKeys.CREATE_DELEGATION_TOKEN, version ->
            new CreateDelegationTokenRequestData().setMaxLifetimeMs(-1));
        requests.put(ApiKeys.RENEW_DELEGATION_TOKEN, version ->
            new RenewDelegationTokenRequestData().setHmac(new byte[8]));
        requests.put(ApiKeys.EXPIRE_DELEGATION_TOKEN, version ->
            new ExpireDelegationTokenRequestData().setHmac(new byte[8]));
        requests.put(ApiKeys.DESCRIBE_DELEGATION_TOKEN, version ->
            new DescribeDelegationTokenRequestData().setOwners(null));
    }

    void describeGroupRequests() {
        requests.put(ApiKeys.FIND_COORDINATOR, version -> version >= 4
            ? new FindCoordinatorRequestData().setCoordinatorKeys(List.of(TOPIC))
            : new FindCoordinatorRequestData().setKey(TOPIC));
        requests.put(ApiKeys.JOIN_GROUP, version -> {
            JoinGroupRequestData data = new JoinGroupRequestData()
                .setGroupId("joined-in-version-" + version).setSessionTimeoutMs(10_000)
                .setRebalanceTimeoutMs(10_000).setProtocolType("consumer");
            data.protocols().add(new JoinGroupRequestData.JoinGroupRequestProtocol()
                .setName("range").setMetadata(new byte[0]));
            return data;
        });
        requests.put(ApiKeys.SYNC_GROUP, version -> {
            SyncGroupRequestData data = new SyncGroupRequestData().setGroupId(TOPIC)
                .setMemberId("nobody").setGenerationId(1);
            return version < 5 ? data : data.setProtocolType("consumer").setProtocolName("range");
        });
        requests.put(ApiKeys.HEARTBEAT, version -> new HeartbeatRequestData().setGroupId(TOPIC)
            .setMemberId("nobody").setGenerationId(1));
        requests.put(ApiKeys.LEAVE_GROUP, version -> version < 3
            ? new LeaveGroupRequestData().setGroupId(TOPIC).setMemberId("nobody")
            : new LeaveGroupRequestData().setGroupId(TOPIC).setMembers(List.of(
                new LeaveGroupRequestData.MemberIdentity().setMemberId("nobody"))));
        requests.put(ApiKeys.OFFSET_COMMIT, version -> {
            OffsetCommitRequestData.OffsetCommitRequestTopic topic =
                new OffsetCommitRequestData.OffsetCommitRequestTopic().setPartitions(List.of(
                    new OffsetCommitRequestData.OffsetCommitRequestPartition()
                        .setPartitionIndex(0).setCommittedOffset(1)));
            if (version >= 10) topic.setTopicId(topicId);
            else topic.setName(TOPIC);
            return new OffsetCommitRequestData().setGroupId(TOPIC).setTopics(List.of(topic));
        });
        requests.put(ApiKeys.OFFSET_FETCH, version -> {
            if (version < 8) {
                return new OffsetFetchRequestData().setGroupId(TOPIC).setTopics(List.of(
                    new OffsetFetchRequestData.OffsetFetchRequestTopic().setName(TOPIC)
                        .setPartitionIndexes(List.of(0))));
            }
            OffsetFetchRequestData.OffsetFetchRequestTopics topic =
                new OffsetFetchRequestData.OffsetFetchRequestTopics()
                    .setPartitionIndexes(List.of(0));
            if (version >= 10) topic.setTopicId(topicId);
            else topic.setName(TOPIC);
            return new OffsetFetchRequestData().setGroups(List.of(
                new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(TOPIC)
                    .setTopics(List.of(topic))));
        });
        requests.put(ApiKeys.DESCRIBE_GROUPS, version ->
            new DescribeGroupsRequestData().setGroups(List.of(TOPIC)));
        requests.put(ApiKeys.LIST_GROUPS, version -> new ListGroupsRequestData());
        requests.put(ApiKeys.OFFSET_DELETE, version -> {
            OffsetDeleteRequestData data = new OffsetDeleteRequestData().setGroupId(TOPIC);
            data.topics().add(new OffsetDeleteRequestData.OffsetDeleteRequestTopic().setName(TOPIC)
                .setPartitions(List.of(new OffsetDeleteRequestData.OffsetDeleteRequestPartition()
                    .setPartitionIndex(0))));
            return data;
        });
        requests.put(ApiKeys.DELETE_GROUPS, version ->
            new DeleteGroupsRequestData().setGroupsNames(List.of("never-made")));
    }
}
