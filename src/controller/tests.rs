//! Requests, what they are answered, and the records that they lead to.

use base::{NodeId, Random, Uuid};
use metadata::{Image, Record, VersionedRecord};
use protocol::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use protocol::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::delete_topics_request::DeleteTopicState;
use protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::update_features_request::FeatureUpdateKey;
use protocol::{
    BrokerHeartbeatRequest, BrokerRegistrationRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteTopicsRequest, ErrorCode, FeatureLevelRecord,
    IncrementalAlterConfigsRequest, UpdateFeaturesRequest,
};

use crate::testing::{after, directory, image_with_brokers, params};
use crate::*;

fn one_broker() -> Image {
    image_with_brokers(&[(1, None, false)])
}

fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        ..CreatableTopic::default()
    }
}

fn with_config(mut topic: CreatableTopic, name: &str, value: Option<&str>) -> CreatableTopic {
    topic.configs.push(CreatableTopicConfig {
        name: name.into(),
        value: value.map(Into::into),
        ..CreatableTopicConfig::default()
    });
    topic
}

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> CreatableTopic {
    let mut topic = topic(name, -1, -1);
    topic.assignments = assignments
        .iter()
        .map(|(index, brokers)| CreatableReplicaAssignment {
            partition_index: *index,
            broker_ids: brokers.to_vec(),
            ..CreatableReplicaAssignment::default()
        })
        .collect();
    topic
}

fn create(image: &Image, topics: Vec<CreatableTopic>) -> Proposal<protocol::CreateTopicsResponse> {
    let request = CreateTopicsRequest { topics, ..CreateTopicsRequest::default() };
    create_topics(&params(), image, &mut Random::new(1), &request)
}

fn with_topics(image: &Image, topics: Vec<CreatableTopic>) -> Image {
    after(image, &create(image, topics).records)
}

fn names(records: &[VersionedRecord]) -> Vec<(&'static str, i16)> {
    let name = |record: &VersionedRecord| match &record.record {
        Record::Topic(_) => "topic",
        Record::Config(_) => "config",
        Record::Partition(_) => "partition",
        Record::PartitionChange(_) => "partition change",
        Record::RegisterBroker(_) => "broker",
        Record::BrokerRegistrationChange(_) => "broker change",
        Record::ClearElr(_) => "clear elr",
        Record::RemoveTopic(_) => "remove topic",
        Record::FeatureLevel(_) => "feature",
        Record::BeginTransaction(_) => "begin",
        Record::EndTransaction(_) => "end",
        Record::AbortTransaction(_) => "abort",
        Record::ProducerIds(_) => "producer ids",
        _ => "other",
    };
    records.iter().map(|record| (name(record), record.version)).collect()
}

#[test]
fn one_topic_is_one_run_of_records() {
    let image = one_broker();
    let orders = with_config(topic("orders", 3, 1), "retention.ms", Some("10000"));
    let proposal = create(&image, vec![orders]);
    assert_eq!(
        names(&proposal.records),
        [("topic", 0), ("config", 0), ("partition", 2), ("partition", 2), ("partition", 2)]
    );
    for (record, index) in proposal.records[2..].iter().zip(0..) {
        let Record::Partition(partition) = &record.record else { panic!("{record:?}") };
        assert_eq!(partition.partition_id, index);
        assert_eq!((&partition.replicas[..], &partition.isr[..]), (&[1][..], &[1][..]));
        assert_eq!(
            (partition.leader, partition.leader_epoch, partition.partition_epoch),
            (1, 0, 0)
        );
        assert_eq!(partition.directories, [directory(1)]);
        assert_eq!(partition.eligible_leader_replicas, None);
    }
    let [result] = &proposal.response.topics[..] else { panic!("one topic, one result") };
    assert_eq!((result.num_partitions, result.replication_factor), (3, 1));
    let configs = result.configs.as_deref().unwrap_or_default();
    let retention = configs.iter().find(|config| &*config.name == "retention.ms");
    let retention = retention.expect("every configuration is listed");
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("10000"), 1));
    let image = after(&image, &proposal.records);
    assert_eq!(image.topic_by_name("orders").map(|topic| topic.id), Some(result.topic_id));
}

#[test]
fn create_topics_is_refused_in_the_words_of_kafka() {
    let image = with_topics(&one_broker(), vec![topic("there", 1, 1), topic("a.b", 1, 1)]);
    let cases: Vec<(CreatableTopic, ErrorCode, &str)> = vec![
        (topic("there", 1, 1), ErrorCode::TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
        (
            topic("a_b", 1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topic: a.b",
        ),
        (
            topic("", 1, 1),
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            topic("t", 0, 1),
            ErrorCode::INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("t", 1, 0),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("t", 1, 2),
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 \
             cannot be reached because only 1 broker(s) are registered or some brokers have all \
             their log directories cordoned.",
        ),
        (
            with_config(topic("t", 1, 1), "retention.ms", None),
            ErrorCode::INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            with_config(topic("t", 1, 1), "nope", Some("1")),
            ErrorCode::INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            with_config(topic("t", 1, 1), "retention.ms", Some("x")),
            ErrorCode::INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
    ];
    check_refused(&image, cases);
}

#[test]
fn assignments_are_refused_in_the_words_of_kafka() {
    let cases: Vec<(CreatableTopic, ErrorCode, &str)> = vec![
        (
            assigned("t", &[(0, &[1]), (0, &[1])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned("t", &[(1, &[1])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned("t", &[(0, &[])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned("t", &[(0, &[2])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            assigned("t", &[(0, &[1, 1])]),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            topic("t", 10_001, 1),
            ErrorCode::POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            topic(METADATA_TOPIC, 1, 1),
            ErrorCode::INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ];
    check_refused(&one_broker(), cases);
}

fn check_refused(image: &Image, cases: Vec<(CreatableTopic, ErrorCode, &str)>) {
    for (asked, code, message) in cases {
        let proposal = create(image, vec![asked.clone()]);
        assert_eq!(proposal.records, [], "{}", asked.name);
        let [result] = &proposal.response.topics[..] else { panic!("one result of {asked:?}") };
        let answer = (result.error_code, result.error_message.as_deref());
        assert_eq!(answer, (code, Some(message)), "{}", asked.name);
    }
}

#[test]
fn one_topic_of_many_fails_alone() {
    let twice = topic("twice", 1, 1);
    let proposal =
        create(&one_broker(), vec![topic("a", 2, -1), topic("b", 0, 1), twice.clone(), twice]);
    let results: Vec<_> = proposal
        .response
        .topics
        .iter()
        .map(|result| (&*result.name, result.error_code, result.error_message.as_deref()))
        .collect();
    assert_eq!(
        results,
        [
            ("a", ErrorCode::NONE, None),
            (
                "b",
                ErrorCode::INVALID_PARTITIONS,
                Some("Number of partitions was set to an invalid non-positive value.")
            ),
            ("twice", ErrorCode::INVALID_REQUEST, Some("Duplicate topic name.")),
        ]
    );
    assert_eq!(names(&proposal.records), [("topic", 0), ("partition", 2), ("partition", 2)]);
    let request = CreateTopicsRequest {
        topics: vec![topic("a", 1, 1)],
        validate_only: true,
        ..CreateTopicsRequest::default()
    };
    let proposal = create_topics(&params(), &one_broker(), &mut Random::new(1), &request);
    assert_eq!((proposal.records.len(), proposal.response.topics.len()), (0, 1));
}

#[test]
fn partitions_are_added_or_refused() {
    let image = with_topics(&one_broker(), vec![topic("t", 3, 1)]);
    let ask = |name: &str, count, assignments: Option<&[&[i32]]>| {
        let assignments = assignments.map(|lists| {
            let list = |ids: &&[i32]| CreatePartitionsAssignment {
                broker_ids: ids.to_vec(),
                ..CreatePartitionsAssignment::default()
            };
            lists.iter().map(list).collect()
        });
        let name = name.into();
        let asked =
            CreatePartitionsTopic { name, count, assignments, ..CreatePartitionsTopic::default() };
        let request =
            CreatePartitionsRequest { topics: vec![asked], ..CreatePartitionsRequest::default() };
        create_partitions(&image, &mut Random::new(1), &request)
    };
    let refused = |proposal: Proposal<protocol::CreatePartitionsResponse>| {
        assert_eq!(proposal.records, []);
        let result = &proposal.response.results[0];
        (result.error_code, result.error_message.as_deref().map(str::to_owned))
    };
    let cases = [
        (ask("gone", 4, None), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            ask("t", 3, None),
            ErrorCode::INVALID_PARTITIONS,
            Some("Topic already has 3 partition(s)."),
        ),
        (
            ask("t", 2, None),
            ErrorCode::INVALID_PARTITIONS,
            Some("The topic t currently has 3 partition(s); 2 would not be an increase."),
        ),
        (
            ask("t", 5, Some(&[&[1]])),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            Some(
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were \
                 specified.",
            ),
        ),
        (
            ask("t", 4, Some(&[&[1, 2]])),
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            Some(
                "The manual partition assignment includes broker 2, but no such broker is \
                 registered.",
            ),
        ),
        (
            ask("t", 20_000, None),
            ErrorCode::POLICY_VIOLATION,
            Some("Excessively large number of additional partitions per request."),
        ),
    ];
    for (proposal, code, message) in cases {
        assert_eq!(refused(proposal), (code, message.map(str::to_owned)));
    }
    let image = after(&image, &ask("t", 5, Some(&[&[1], &[1]])).records);
    assert_eq!(image.topic_by_name("t").map(|topic| topic.partitions.len()), Some(5));
}

#[test]
fn topics_are_deleted_by_name_or_id() {
    let image = with_topics(&one_broker(), vec![topic("a", 1, 1), topic("b", 1, 1)]);
    let id = |name| image.topic_id(name).expect("exists");
    let state = |name: Option<&str>, topic_id| DeleteTopicState {
        name: name.map(Into::into),
        topic_id,
        ..DeleteTopicState::default()
    };
    let run = |topics: Vec<DeleteTopicState>| {
        let request = DeleteTopicsRequest { topics, ..DeleteTopicsRequest::default() };
        let proposal = delete_topics(&params(), &image, &request, 6);
        let results: Vec<_> = proposal
            .response
            .responses
            .iter()
            .map(|result| {
                let message = result.error_message.as_deref().map(str::to_owned);
                (result.error_code, message)
            })
            .collect();
        (results, proposal.records.len())
    };
    let told = |code, message: &str| vec![(code, Some(message.to_owned()))];
    let unknown = "This server does not host this topic-partition.";
    let unknown_id = "This server does not host this topic ID.";
    let cases = [
        (vec![state(Some("a"), Uuid::ZERO)], vec![(ErrorCode::NONE, None)], 1),
        (vec![state(None, id("b"))], vec![(ErrorCode::NONE, None)], 1),
        (
            vec![state(Some("x"), Uuid::ZERO)],
            told(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, unknown),
            0,
        ),
        (vec![state(None, Uuid([9; 16]))], told(ErrorCode::UNKNOWN_TOPIC_ID, unknown_id), 0),
        (
            vec![state(None, Uuid::ZERO)],
            told(ErrorCode::INVALID_REQUEST, "Neither topic name nor id were specified."),
            0,
        ),
        (
            vec![state(Some("a"), id("a"))],
            told(ErrorCode::INVALID_REQUEST, "You may not specify both topic name and topic id."),
            0,
        ),
        (
            vec![state(Some("a"), Uuid::ZERO), state(Some("a"), Uuid::ZERO)],
            told(ErrorCode::INVALID_REQUEST, "Duplicate topic name."),
            0,
        ),
        (
            vec![state(None, id("a")), state(Some("a"), Uuid::ZERO)],
            told(
                ErrorCode::INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            ),
            0,
        ),
    ];
    for (topics, results, records) in cases {
        assert_eq!(run(topics.clone()), (results, records), "{topics:?}");
    }
}

fn alter(
    image: &Image,
    resource_type: i8,
    resource: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> (ErrorCode, Option<String>, Vec<(&'static str, i16)>) {
    let configs = changes.iter().map(|(name, config_operation, value)| AlterableConfig {
        name: (*name).into(),
        config_operation: *config_operation,
        value: value.map(Into::into),
        ..AlterableConfig::default()
    });
    let asked = AlterConfigsResource {
        resource_type,
        resource_name: resource.into(),
        configs: configs.collect(),
        ..AlterConfigsResource::default()
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![asked],
        ..IncrementalAlterConfigsRequest::default()
    };
    let proposal = incremental_alter_configs(&params(), image, &request);
    let result = &proposal.response.responses[0];
    let message = result.error_message.as_deref().map(str::to_owned);
    (result.error_code, message, names(&proposal.records))
}

#[test]
fn configurations_are_altered_or_refused() {
    let image = with_topics(&one_broker(), vec![topic("t", 1, 1)]);
    let set = |name, value| (name, 0_i8, Some(value));
    let written = |records: &[(&'static str, i16)]| (ErrorCode::NONE, None, records.to_vec());
    let refused = |code, message: &str| (code, Some(message.to_owned()), vec![]);
    let invalid = ErrorCode::INVALID_CONFIG;
    let wrong = ErrorCode::INVALID_REQUEST;
    let cases = [
        (alter(&image, 2, "t", &[set("retention.ms", "5")]), written(&[("config", 0)])),
        (
            alter(&image, 2, "t", &[set("min.insync.replicas", "2")]),
            written(&[("config", 0), ("clear elr", 0)]),
        ),
        (
            alter(&image, 2, "x", &[set("retention.ms", "5")]),
            refused(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "The topic 'x' does not exist."),
        ),
        (
            alter(&image, 2, "t", &[("retention.ms", 2, Some("5"))]),
            refused(invalid, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (alter(&image, 4, "", &[set("log.retention.ms", "5")]), written(&[("config", 0)])),
        (
            alter(&image, 4, "1", &[set("min.insync.replicas", "2")]),
            refused(
                invalid,
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            ),
        ),
        (
            alter(&image, 4, "2", &[set("log.retention.ms", "5")]),
            refused(wrong, "Unexpected broker id, expected 1, but received 2"),
        ),
        (
            alter(&image, 4, "one", &[set("log.retention.ms", "5")]),
            refused(wrong, "Node id must be an integer, but it is: one"),
        ),
        (alter(&image, 99, "t", &[]), refused(wrong, "Unknown resource type 99")),
    ];
    for (answer, expected) in cases {
        assert_eq!(answer, expected);
    }
}

#[test]
fn what_is_wrong_with_a_request_counts_before_what_it_names() {
    let image = with_topics(&one_broker(), vec![topic("t", 1, 1)]);
    let set = |name, value| (name, 0_i8, Some(value));
    let refused = |code, message: &str| (code, Some(message.to_owned()), vec![]);
    let (invalid, wrong) = (ErrorCode::INVALID_CONFIG, ErrorCode::INVALID_REQUEST);
    let cases = [
        (
            alter(&image, 99, "t", &[set("a", "1"), set("a", "2")]),
            refused(wrong, "Error due to duplicate config keys"),
        ),
        (
            alter(&image, 2, "t", &[("a", 0, None), ("b", 1, None), ("c", 2, None)]),
            refused(wrong, "Null value not supported for : a, c"),
        ),
        (
            alter(&image, 4, "1", &[("log.retention.ms", 9, Some("5"))]),
            refused(wrong, "Unknown operations type 9"),
        ),
        (
            alter(&image, 2, "t", &[("retention.ms", 9, Some("5"))]),
            (ErrorCode::UNKNOWN_SERVER_ERROR, None, vec![]),
        ),
        (
            alter(&image, 2, "", &[set("retention.ms", "5")]),
            refused(wrong, "Default topic resources are not allowed."),
        ),
        (
            alter(&image, 8, "2", &[set("root", "INFO")]),
            refused(wrong, "Unexpected node id. Expected 1, but received 2"),
        ),
        (
            alter(&image, 8, "1", &[set("root", "INFO")]),
            refused(invalid, "Logger root does not exist!"),
        ),
        (
            alter(&image, 4, "1", &[set("ssl.cipher.suites", "a, a")]),
            refused(wrong, "Configuration 'ssl.cipher.suites' values must not be duplicated."),
        ),
        (
            alter(&image, 4, "1", &[set("metric.reporters", "x.y.Z")]),
            refused(
                wrong,
                "Invalid value org.apache.kafka.common.config.ConfigException: Validation of \
                 dynamic config update of Set(metric.reporters) failed with class class \
                 kafka.server.DynamicMetricsReporters for configuration Invalid dynamic \
                 configuration",
            ),
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(answer, expected);
    }
}

#[test]
fn features_move_by_the_rules() {
    let image = one_broker();
    let update = |name: &str, max_version_level, upgrade_type| {
        let asked = FeatureUpdateKey {
            feature: name.into(),
            max_version_level,
            upgrade_type,
            ..FeatureUpdateKey::default()
        };
        let request = UpdateFeaturesRequest {
            feature_updates: vec![asked],
            ..UpdateFeaturesRequest::default()
        };
        let proposal = update_features(&params(), &image, 1, &request);
        let message = proposal.response.error_message.filter(|message| !message.is_empty());
        (message.map(|message| message.to_string()), names(&proposal.records))
    };
    let refused = |message: &str| {
        let prefix =
            "The update failed for all features since the following feature had an error: ";
        (Some(format!("{prefix}{message}")), vec![])
    };
    let cases = [
        (update("group.version", 0, 2), (None, vec![("feature", 0)])),
        (
            update("group.version", 0, 1),
            refused(
                "Invalid update version 0 for feature group.version. Can't downgrade the version \
                 of this feature without setting the upgrade type to either safe or unsafe \
                 downgrade.",
            ),
        ),
        (
            update("group.version", 9, 1),
            refused(
                "Invalid update version 9 for feature group.version. Local controller 1 only \
                 supports versions 0-1",
            ),
        ),
        (
            update("nope", 1, 1),
            refused(
                "Invalid update version 1 for feature nope. Local controller 1 does not support \
                 this feature.",
            ),
        ),
        (
            update("nope", 0, 2),
            refused("Invalid update version 0 for feature nope. Feature nope not found."),
        ),
        (
            update("metadata.version", 22, 2),
            refused(
                "Unsupported metadata.version downgrade from 33 to 22. Refusing to perform the \
                 requested downgrade because it might delete metadata information.",
            ),
        ),
        (
            update("kraft.version", 0, 2),
            refused(
                "Invalid update version 0 for feature kraft.version. Can't downgrade the version \
                 of this feature.",
            ),
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(answer, expected);
    }
}

fn registration(incarnation: u8, previous_broker_epoch: i64) -> BrokerRegistrationRequest {
    let supported = metadata::supported_features();
    let features =
        supported.iter().map(|(name, range)| protocol::broker_registration_request::Feature {
            name: (*name).into(),
            min_supported_version: range.min,
            max_supported_version: range.max,
            ..Default::default()
        });
    BrokerRegistrationRequest {
        broker_id: 1,
        cluster_id: params().cluster_id.into(),
        incarnation_id: Uuid([incarnation; 16]),
        features: features.collect(),
        log_dirs: vec![directory(1)],
        previous_broker_epoch,
        ..BrokerRegistrationRequest::default()
    }
}

fn beat(image: &Image, epoch: i64, want_fence: bool, want_shut_down: bool) -> Image {
    let request = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: epoch,
        current_metadata_offset: epoch + 1,
        want_fence,
        want_shut_down,
        ..BrokerHeartbeatRequest::default()
    };
    after(image, &heartbeat(&params(), image, &request).expect("it is registered").records)
}

/// The life of a broker, as a node of Apache Kafka 4.4.0 writes it.
#[test]
fn a_broker_comes_goes_and_dies() {
    let image = with_topics(&one_broker(), vec![topic("t", 1, 1)]);
    let state = |image: &Image| {
        let broker = image.broker(NodeId(1)).expect("is registered");
        let topic = image.topic_by_name("t").expect("exists");
        let partition = topic.partitions.values().next().expect("exists").clone();
        let (isr, elr) = (partition.isr.len(), partition.elr.len());
        let last = partition.last_known_elr.len();
        (broker.fenced, partition.leader.0, isr, elr, last, partition.leader_recovery.code())
    };
    assert_eq!(state(&image), (false, 1, 1, 0, 0, 0));

    let going = beat(&image, 101, false, true);
    assert_eq!(state(&going), (false, -1, 0, 1, 1, 0));
    let gone = beat(&going, 101, false, true);
    assert_eq!(state(&gone), (true, -1, 0, 1, 1, 0));

    let register = |image: &Image, previous| {
        let request = registration(9, previous);
        let proposal = register_broker(&params(), image, &request, 500, false).expect("may");
        (after(image, &proposal.records), names(&proposal.records))
    };
    let (back, records) = register(&gone, 101);
    assert_eq!(records, [("broker", 4)]);
    assert_eq!(state(&beat(&back, 500, false, false)), (false, 1, 1, 0, 0, 0));

    let (back, records) = register(&gone, -1);
    assert_eq!(records, [("partition change", 2), ("broker", 4)]);
    assert_eq!(state(&back), (true, -1, 0, 0, 1, 0));
    assert_eq!(state(&beat(&back, 500, false, false)), (false, 1, 1, 0, 0, 1));

    let (back, records) = register(&image, -1);
    assert_eq!(records, [("partition change", 2), ("broker", 4)]);
    assert_eq!(state(&back), (true, -1, 0, 0, 1, 0));
    assert_eq!(state(&beat(&back, 500, false, false)), (false, 1, 1, 0, 0, 1));
}

#[test]
fn registrations_are_refused_in_the_words_of_kafka() {
    let image = image_with_brokers(&[(1, None, false), (2, None, false)]);
    let change = |change: &dyn Fn(&mut BrokerRegistrationRequest)| {
        let mut request = registration(9, -1);
        change(&mut request);
        request
    };
    let cases: Vec<(BrokerRegistrationRequest, bool, ErrorCode, &str)> = vec![
        (
            change(&|request| request.cluster_id = "other".into()),
            false,
            ErrorCode::INCONSISTENT_CLUSTER_ID,
            "Expected cluster ID 4L6g3nShT-eMCtK--X86sw, but got cluster ID other",
        ),
        (
            change(&|_| ()),
            true,
            ErrorCode::DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently \
             restarted this should self-resolve once the heartbeat manager expires the broker's \
             session.",
        ),
        (
            change(&|request| request.log_dirs.clear()),
            false,
            ErrorCode::INVALID_REGISTRATION,
            "No directories specified in request",
        ),
        (
            change(&|request| request.log_dirs = vec![directory(2)]),
            false,
            ErrorCode::INVALID_REGISTRATION,
            "Broker 2 is already registered with directory NDQ0NDQ0NDQ0NDQ0NDQ0NA",
        ),
        (
            change(&|request| request.features.retain(|one| &*one.name != "group.version")),
            false,
            ErrorCode::UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version 1 of \
             group.version. The broker wants a version between 0 and 0, inclusive.",
        ),
    ];
    for (request, has_session, code, message) in cases {
        let refused = register_broker(&params(), &image, &request, 500, has_session);
        assert_eq!(refused, Err(ApiError::new(code, message)));
    }
}

#[test]
fn producer_ids_come_in_blocks() {
    let mut image = one_broker();
    for first in [0, 1_000, 2_000] {
        let proposal = allocate_producer_ids(&image, NodeId(1), 101).expect("ids are left");
        assert_eq!(proposal.response.0, first);
        image = after(&image, &proposal.records);
    }
    let stale = allocate_producer_ids(&image, NodeId(1), 100).expect_err("the epoch is old");
    assert_eq!(stale.code, ErrorCode::STALE_BROKER_EPOCH);
}

#[test]
fn an_empty_log_begins_as_in_kafka() {
    let level = |name: &str, feature_level| {
        let record = FeatureLevelRecord {
            name: name.into(),
            feature_level,
            ..FeatureLevelRecord::default()
        };
        VersionedRecord { record: record.into(), version: 0 }
    };
    let bootstrap = [level("metadata.version", 33), level("eligible.leader.replicas.version", 1)];
    let activation = Activation {
        log_is_empty: true,
        open_transaction: None,
        bootstrap: &bootstrap,
        metadata_version: metadata::MetadataVersion::LATEST,
        min_insync_replicas: 1,
    };
    let records = names(&activation_records(&activation));
    assert_eq!(records, [("begin", 0), ("feature", 0), ("feature", 0), ("config", 0), ("end", 0)]);
    let old = [level("metadata.version", 8)];
    let records = activation_records(&Activation { bootstrap: &old, ..activation });
    assert_eq!(names(&records), [("feature", 0)]);
    let later = Activation { log_is_empty: false, ..activation };
    assert_eq!(activation_records(&later), []);
    let open = Activation { open_transaction: Some(base::Offset(3)), ..later };
    assert_eq!(names(&activation_records(&open)), [("abort", 0)]);
}

#[test]
fn partitions_do_not_move() {
    use protocol::AlterPartitionReassignmentsRequest;
    use protocol::alter_partition_reassignments_request::{
        ReassignablePartition, ReassignableTopic,
    };
    let image = image_with_brokers(&[(1, None, false), (2, None, false), (3, None, false)]);
    let image = with_topics(&image, vec![assigned("t", &[(0, &[1, 2])])]);
    let ask = |name: &str, partition_index, replicas: Option<&[i32]>| {
        let partition = ReassignablePartition {
            partition_index,
            replicas: replicas.map(<[i32]>::to_vec),
            ..ReassignablePartition::default()
        };
        let topic = ReassignableTopic {
            name: name.into(),
            partitions: vec![partition],
            ..ReassignableTopic::default()
        };
        let request = AlterPartitionReassignmentsRequest {
            topics: vec![topic],
            allow_replication_factor_change: false,
            ..AlterPartitionReassignmentsRequest::default()
        };
        let proposal = alter_partition_reassignments(&image, &request);
        let result = proposal.response.responses[0].partitions[0].clone();
        let message = result.error_message.map(|message| message.to_string());
        (result.error_code, message, proposal.records)
    };
    let refused = |answer: (ErrorCode, Option<String>, Vec<VersionedRecord>)| {
        assert_eq!(answer.2, []);
        (answer.0, answer.1)
    };
    let said = |code, message: &str| (code, Some(message.to_owned()));
    let cases = [
        (ask("t", 0, None), (ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, None)),
        (ask("t", 0, Some(&[1, 2])), (ErrorCode::NONE, None)),
        (
            ask("x", 0, None),
            said(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named x."),
        ),
        (
            ask("t", 9, None),
            said(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9."),
        ),
        (
            ask("t", 0, Some(&[1])),
            said(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                "The replication factor is changed from 2 to 1",
            ),
        ),
        (
            ask("t", 0, Some(&[1, 3])),
            said(
                ErrorCode::INVALID_REQUEST,
                "Partitions cannot be moved to other brokers by this controller yet.",
            ),
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(refused(answer), expected);
    }
    let (code, _, records) = ask("t", 0, Some(&[2, 1]));
    assert_eq!(code, ErrorCode::NONE);
    let image = after(&image, &records);
    let topic = image.topic_by_name("t").expect("exists");
    let partition = topic.partitions.values().next().expect("exists");
    assert_eq!(partition.replicas, [NodeId(2), NodeId(1)]);
    assert_eq!(partition.directories, [directory(2), directory(1)]);
}

#[rustfmt::skip] // A table.
#[test]
fn groups_and_client_metrics_are_configured_by_the_rules_of_kafka() {
    let image = one_broker();
    let invalid = ErrorCode::INVALID_CONFIG;
    let wrong = ErrorCode::INVALID_REQUEST;
    let cases = [
        (32, "g", "consumer.session.timeout.ms", "46000", None),
        (32, "g", "consumer.session.timeout.ms", "1",
            Some((invalid, "consumer.session.timeout.ms must be in the range 45000 to 60000 \
                inclusive."))),
        (32, "g", "consumer.session.timeout.ms", "x",
            Some((invalid, "Invalid value x for configuration consumer.session.timeout.ms: \
                Not a number of type INT"))),
        (32, "g", "nope", "1", Some((invalid, "Unknown group config name: nope"))),
        (32, "", "nope", "1", Some((wrong, "Default group resources are not allowed."))),
        (32, "g", "streams.num.standby.replicas", "9",
            Some((invalid, "streams.num.standby.replicas must be less than or equal to 2"))),
        (32, "g", "streams.rack.aware.assignment.tags", "a,a",
            Some((invalid, "streams.rack.aware.assignment.tags must not contain duplicate \
                tag keys."))),
        (32, "g", "streams.assignor.name", "x",
            Some((invalid, "streams.assignor.name 'x' is not a registered task assignor. \
                Registered assignors are: [sticky]."))),
        (32, "g", "errors.deadletterqueue.topic.name", "__x",
            Some((invalid, "errors.deadletterqueue.topic.name: DLQ topic name must not \
                start with '__'"))),
        (32, "g", "streams.task.offset.interval.ms", "1",
            Some((invalid, "streams.task.offset.interval.ms must be greater than or equal \
                to 15000"))),
        (16, "c", "interval.ms", "1000", None),
        (16, "c", "interval.ms", "99",
            Some((wrong, "Invalid value 99 for interval.ms, interval must be between 100 \
                and 3600000 (1 hour)"))),
        (16, "c", "nope", "1", Some((wrong, "Unknown client metrics configuration: nope"))),
        (16, "", "interval.ms", "1000", Some((wrong, "Subscription name can't be empty"))),
        (16, "c", "match", "client_id=x", None),
        (16, "c", "match", "foo=x", Some((invalid, "Illegal client matching pattern: foo=x"))),
        (16, "c", "match", "client_id=[", Some((invalid, "Illegal client matching pattern: \
            client_id=["))),
    ];
    for (code, resource, name, value, refused) in cases {
        let answer = alter(&image, code, resource, &[(name, 0, Some(value))]);
        let expected = match refused {
            None => (ErrorCode::NONE, None, vec![("config", 0)]),
            Some((code, message)) => (code, Some(message.to_owned()), vec![]),
        };
        assert_eq!(answer, expected, "{name}={value}");
    }
    let (code, message, _) = alter(&image, 16, "c", &[("metrics", 2, Some("a.b"))]);
    let expected = "Can't APPEND to key metrics because its type is not LIST.";
    assert_eq!((code, message.as_deref()), (invalid, Some(expected)));
}
