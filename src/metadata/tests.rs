//! The image against a log: replay, snapshots, versions.

use std::sync::Arc;

use base::{NodeId, Offset, PartitionIndex, TopicId, Uuid};
use proptest::prelude::*;
use protocol::register_broker_record::{BrokerEndpoint, BrokerFeature};
use protocol::{
    AbortTransactionRecord, AccessControlEntryRecord, BeginTransactionRecord,
    BrokerRegistrationChangeRecord, ClientQuotaRecord, ConfigRecord, EndTransactionRecord,
    FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, ProducerIdsRecord,
    RegisterBrokerRecord, RemoveTopicRecord, TopicRecord, UserScramCredentialRecord,
};

use super::*;

fn record(record: impl Into<Record>) -> VersionedRecord {
    VersionedRecord { record: record.into(), version: 0 }
}

fn id(number: u8) -> TopicId {
    Uuid([number; 16])
}

fn topic(number: u8, name: &str) -> VersionedRecord {
    record(TopicRecord { name: name.into(), topic_id: id(number), ..TopicRecord::default() })
}

fn partition(number: u8, index: i32) -> VersionedRecord {
    let created = PartitionRecord {
        partition_id: index,
        topic_id: id(number),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![id(200)],
        ..PartitionRecord::default()
    };
    VersionedRecord { record: created.into(), version: 2 }
}

fn config(resource_type: i8, resource: &str, key: &str, value: Option<&str>) -> VersionedRecord {
    record(ConfigRecord {
        resource_type,
        resource_name: resource.into(),
        name: key.into(),
        value: value.map(Into::into),
        ..ConfigRecord::default()
    })
}

fn level(name: &str, feature_level: i16) -> VersionedRecord {
    record(FeatureLevelRecord { name: name.into(), feature_level, ..FeatureLevelRecord::default() })
}

fn broker(number: i32, epoch: i64) -> VersionedRecord {
    let registered = RegisterBrokerRecord {
        broker_id: number,
        incarnation_id: id(77),
        broker_epoch: epoch,
        end_points: vec![BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "127.0.0.1".into(),
            port: 9092,
            ..BrokerEndpoint::default()
        }],
        features: vec![BrokerFeature {
            name: "metadata.version".into(),
            min_supported_version: 7,
            max_supported_version: 33,
            ..BrokerFeature::default()
        }],
        rack: Some("here".into()),
        log_dirs: vec![id(200)],
        ..RegisterBrokerRecord::default()
    };
    VersionedRecord { record: registered.into(), version: 4 }
}

fn replayed(records: &[VersionedRecord]) -> Image {
    let mut image = Image::default();
    for record in records {
        image.replay(&record.record).expect("the records fit each other");
    }
    image
}

/// Any record that makes sense somewhere; whether it fits is the image's to say.
fn any_record() -> impl Strategy<Value = VersionedRecord> {
    let names = ["a.b", "a_b", "orders", "payments"];
    let name = proptest::sample::select(names.to_vec());
    let value = proptest::option::of("[a-z]{0,3}");
    prop_oneof![
        (0_u8..6, name.clone()).prop_map(|(number, name)| topic(number, name)),
        (0_u8..6, 0_i32..4).prop_map(|(number, index)| partition(number, index)),
        (0_u8..6, 0_i32..4, -2_i32..3, any::<bool>()).prop_map(|(number, index, leader, elr)| {
            let change = PartitionChangeRecord {
                partition_id: index,
                topic_id: id(number),
                isr: elr.then(Vec::new),
                leader,
                eligible_leader_replicas: elr.then(|| vec![1]),
                last_known_elr: elr.then(|| vec![1]),
                ..PartitionChangeRecord::default()
            };
            VersionedRecord { record: change.into(), version: 2 }
        }),
        (0_u8..6).prop_map(|number| record(RemoveTopicRecord {
            topic_id: id(number),
            ..RemoveTopicRecord::default()
        })),
        (name, value).prop_map(|(name, value)| config(2, name, "retention.ms", value.as_deref())),
        (0_i16..3).prop_map(|number| level("group.version", number)),
        (0_i64..4).prop_map(|next| record(ProducerIdsRecord {
            next_producer_id: next * 1_000,
            ..ProducerIdsRecord::default()
        })),
        (1_i32..3, 0_i64..2).prop_map(|(number, epoch)| broker(number, epoch)),
        (1_i32..3, 0_i64..2, -1_i8..2).prop_map(|(number, epoch, fenced)| record(
            BrokerRegistrationChangeRecord {
                broker_id: number,
                broker_epoch: epoch,
                fenced,
                ..BrokerRegistrationChangeRecord::default()
            }
        )),
        (any::<bool>(), 0_u8..3).prop_map(|(remove, value)| record(ClientQuotaRecord {
            entity: vec![protocol::client_quota_record::EntityData {
                entity_type: "user".into(),
                entity_name: None,
                ..Default::default()
            }],
            key: "producer_byte_rate".into(),
            value: f64::from(value),
            remove,
            ..ClientQuotaRecord::default()
        })),
        (0_u8..3).prop_map(|number| record(AccessControlEntryRecord {
            id: id(number),
            principal: "User:me".into(),
            ..AccessControlEntryRecord::default()
        })),
        (1_i8..3).prop_map(|mechanism| record(UserScramCredentialRecord {
            name: "me".into(),
            mechanism,
            iterations: 4_096,
            ..UserScramCredentialRecord::default()
        })),
    ]
}

proptest! {
    /// A snapshot is worth its log, through the bytes of both.
    #[test]
    fn a_snapshot_of_an_image_gives_the_image(
        records in proptest::collection::vec(any_record(), 0..80),
    ) {
        let mut image = Image::default();
        image.replay(&level(METADATA_VERSION, 33).record).expect("the first record");
        for record in &records {
            let before = image.clone();
            let again = VersionedRecord::decode(&record.encode().expect("can be written"));
            let again = again.expect("can be read");
            prop_assert_eq!(&again, record);
            if image.replay(&again.record).is_err() {
                prop_assert_eq!(&image, &before, "a record that does not fit changes nothing");
            }
        }
        let snapshot: Vec<VersionedRecord> = ImageRecords::new(Arc::new(image.clone()))
            .flatten()
            .map(|record| record.encode().expect("can be written"))
            .map(|value| VersionedRecord::decode(&value).expect("can be read"))
            .collect();
        prop_assert_eq!(replayed(&snapshot), image);
    }

    /// Whatever is applied, committed or taken back, the images are those of the log's prefix.
    #[test]
    fn a_timeline_is_at_the_prefix_of_the_log(
        steps in proptest::collection::vec(
            (0_u8..4, proptest::collection::vec(any_record(), 1..4)),
            0..40,
        ),
    ) {
        let mut timeline = Timeline::default();
        let (mut log, mut committed) = (Vec::new(), 0);
        for (step, records) in steps {
            match step {
                0 => {
                    committed = log.len();
                    let offset = Offset(i64::try_from(committed).expect("small"));
                    timeline.commit(offset);
                }
                1 => {
                    log.truncate(committed);
                    timeline.roll_back();
                }
                _ => {
                    let base_offset = Offset(i64::try_from(log.len()).expect("small"));
                    let batch = Batch { base_offset, epoch: 1, timestamp_ms: 5, records: &records };
                    if timeline.apply(&batch).is_ok() {
                        log.extend(records);
                    }
                }
            }
            let without_provenance = |image: &Image| {
                let mut image = image.clone();
                image.set_provenance(Provenance::default());
                image
            };
            prop_assert_eq!(without_provenance(timeline.applied()), replayed(&log));
            prop_assert_eq!(without_provenance(timeline.stable()), replayed(&log[..committed]));
        }
    }
}

fn batch(timeline: &Timeline, records: &[VersionedRecord]) -> Result<Timeline, ReplayFailure> {
    let mut timeline = timeline.clone();
    let base_offset = timeline.end_offset();
    timeline.apply(&Batch { base_offset, epoch: 1, timestamp_ms: 7, records })?;
    Ok(timeline)
}

#[test]
fn nobody_sees_a_transaction_before_it_has_ended() {
    let begin = record(BeginTransactionRecord::default());
    let end = record(EndTransactionRecord::default());
    let abort = record(AbortTransactionRecord::default());
    let mut timeline = batch(&Timeline::default(), &[topic(1, "before"), begin]).expect("fits");
    assert_eq!(timeline.transaction_start(), Some(Offset(1)));
    assert!(!timeline.commit(Offset(2)), "an open transaction makes no stable image");
    let open = batch(&timeline, &[topic(2, "inside")]).expect("fits");

    let mut ended = batch(&open, &[end]).expect("fits");
    assert!(ended.commit(Offset(4)));
    assert!(ended.stable().topic_by_name("inside").is_some());

    let mut aborted = batch(&open, &[abort]).expect("fits");
    assert!(aborted.commit(Offset(4)));
    assert!(aborted.stable().topic_by_name("inside").is_none());
    assert!(aborted.stable().topic_by_name("before").is_some());
    assert_eq!(aborted.stable().provenance().last_offset, Offset(3));
    assert_eq!(aborted.transaction_start(), None);
}

#[test]
fn a_change_moves_the_epochs_of_a_partition() {
    let mut image = replayed(&[topic(1, "orders"), partition(1, 0)]);
    let change = |leader, isr: Option<Vec<i32>>| PartitionChangeRecord {
        partition_id: 0,
        topic_id: id(1),
        leader,
        isr,
        ..PartitionChangeRecord::default()
    };
    for (change, leader, leader_epoch, partition_epoch) in [
        (change(LEADER_UNCHANGED, Some(vec![])), 1, 0, 1),
        (change(-1, None), -1, 1, 2),
        (change(1, Some(vec![1])), 1, 2, 3),
    ] {
        image.replay(&change.into()).expect("the partition exists");
        let partition = image.partition(id(1), PartitionIndex(0)).expect("exists");
        let now = (partition.leader, partition.leader_epoch.0, partition.partition_epoch);
        assert_eq!(now, (NodeId(leader), leader_epoch, partition_epoch));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let records = [
        broker(1, 5),
        record(ProducerIdsRecord { next_producer_id: 2_000, ..ProducerIdsRecord::default() }),
    ];
    let fenced = |broker_id, broker_epoch| {
        record(BrokerRegistrationChangeRecord {
            broker_id,
            broker_epoch,
            fenced: 1,
            ..BrokerRegistrationChangeRecord::default()
        })
    };
    let cases = [
        (
            partition(9, 0),
            "a PartitionRecord names the topic CQkJCQkJCQkJCQkJCQkJCQ, which does not exist",
        ),
        (
            fenced(2, 5),
            "a BrokerRegistrationChangeRecord names the broker 2, which is not registered",
        ),
        (
            fenced(1, 4),
            "a BrokerRegistrationChangeRecord names epoch 4 of broker 1, which is registered at 5",
        ),
        (
            level(METADATA_VERSION, 34),
            "the metadata.version is 34, but only 7 to 33 are known here: the log was written by \
             newer software",
        ),
        (config(99, "x", "y", None), "a ConfigRecord names the resource type 99, which is unknown"),
        (
            record(ProducerIdsRecord { next_producer_id: 1_000, ..ProducerIdsRecord::default() }),
            "a ProducerIdsRecord goes back from 2000 to 1000",
        ),
    ];
    for (wrong, message) in cases {
        let timeline = batch(&Timeline::default(), &records).expect("fits");
        let failure =
            batch(&timeline, &[level("group.version", 1), wrong]).expect_err("does not fit");
        assert_eq!(failure.offset, Offset(3));
        assert_eq!(failure.error.to_string(), message);
    }
}

#[test]
fn collisions_are_found_and_forgotten() {
    let mut image = replayed(&[topic(1, "a.b"), topic(2, "plain")]);
    assert_eq!(image.colliding_topic("a_b").map(|name| &**name), Some("a.b"));
    assert_eq!(image.colliding_topic("plain"), None);
    image.replay(&topic(3, "a_b").record).expect("fits");
    let remove = RemoveTopicRecord { topic_id: id(1), ..RemoveTopicRecord::default() };
    image.replay(&remove.into()).expect("fits");
    assert_eq!(image.colliding_topic("a.b").map(|name| &**name), Some("a_b"));
    let remove = RemoveTopicRecord { topic_id: id(3), ..RemoveTopicRecord::default() };
    image.replay(&remove.into()).expect("fits");
    assert_eq!(image.colliding_topic("a.b"), None);
}

#[test]
fn changes_between_images_are_found_over_a_gap() {
    let old = replayed(&[topic(1, "kept"), topic(2, "grown"), topic(3, "gone"), partition(2, 0)]);
    let mut new = old.clone();
    let remove = RemoveTopicRecord { topic_id: id(3), ..RemoveTopicRecord::default() };
    for record in
        [record(remove), topic(4, "new"), partition(2, 1), config(2, "kept", "a", Some("1"))]
    {
        new.replay(&record.record).expect("fits");
    }
    let names: Vec<String> = new
        .topics_changed_since(&old)
        .iter()
        .map(|change| match change {
            TopicChange::Added(topic) => format!("+{}", topic.name),
            TopicChange::Removed(topic) => format!("-{}", topic.name),
            TopicChange::Changed { new, .. } => format!("~{}", new.name),
        })
        .collect();
    assert_eq!(names, ["~grown", "-gone", "+new"]);
    assert_eq!(new.configs_changed_since(&old), [Resource::topic("kept")]);
}

#[test]
fn quotas_and_credentials_are_described() {
    use protocol::describe_client_quotas_request::ComponentData;
    use protocol::describe_user_scram_credentials_request::UserName;
    use protocol::{DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest, ErrorCode};
    let quota = |name: Option<&str>| {
        record(ClientQuotaRecord {
            entity: vec![protocol::client_quota_record::EntityData {
                entity_type: "user".into(),
                entity_name: name.map(Into::into),
                ..Default::default()
            }],
            key: "producer_byte_rate".into(),
            value: 5.0,
            ..ClientQuotaRecord::default()
        })
    };
    let scram = record(UserScramCredentialRecord {
        name: "me".into(),
        mechanism: 1,
        iterations: 4_096,
        ..UserScramCredentialRecord::default()
    });
    let image = replayed(&[quota(None), quota(Some("me")), scram]);
    let quotas = |entity_type: &str, match_type, name: Option<&str>| {
        let component = ComponentData {
            entity_type: entity_type.into(),
            match_type,
            r#match: name.map(Into::into),
            ..ComponentData::default()
        };
        let components = vec![component];
        let request =
            DescribeClientQuotasRequest { components, ..DescribeClientQuotasRequest::default() };
        let response = image.describe_client_quotas(&request);
        (response.error_code, response.entries.map_or(0, |entries| entries.len()))
    };
    let cases = [
        (quotas("user", 0, Some("me")), (ErrorCode::NONE, 1)),
        (quotas("user", 1, None), (ErrorCode::NONE, 1)),
        (quotas("user", 2, None), (ErrorCode::NONE, 2)),
        (quotas("client-id", 2, None), (ErrorCode::NONE, 0)),
        (quotas("user", 0, None), (ErrorCode::INVALID_REQUEST, 0)),
        (quotas("planet", 2, None), (ErrorCode::UNSUPPORTED_VERSION, 0)),
    ];
    for (answer, expected) in cases {
        assert_eq!(answer, expected);
    }
    let user = |name: &str| UserName { name: name.into(), ..UserName::default() };
    let request = DescribeUserScramCredentialsRequest {
        users: Some(vec![user("me"), user("you"), user("they"), user("they")]),
        ..DescribeUserScramCredentialsRequest::default()
    };
    let codes: Vec<_> = image
        .describe_scram_credentials(&request)
        .results
        .iter()
        .map(|result| result.error_code)
        .collect();
    let expected = [ErrorCode::NONE, ErrorCode::RESOURCE_NOT_FOUND, ErrorCode::DUPLICATE_RESOURCE];
    assert_eq!(codes, expected);
}

#[test]
fn configured_resources_are_listed() {
    use protocol::{ErrorCode, ListConfigResourcesRequest};
    let image = replayed(&[topic(1, "t"), broker(1, 5)]);
    let listed = |resource_types: Vec<i8>, version| {
        let request =
            ListConfigResourcesRequest { resource_types, ..ListConfigResourcesRequest::default() };
        let response = image.list_config_resources(&request, version);
        (response.error_code, response.config_resources.len())
    };
    assert_eq!(listed(vec![2], 1), (ErrorCode::NONE, 1));
    assert_eq!(listed(vec![], 0), (ErrorCode::NONE, 0));
    assert_eq!(listed(vec![2], 0), (ErrorCode::UNSUPPORTED_VERSION, 0));
    assert_eq!(listed(vec![9], 1), (ErrorCode::UNSUPPORTED_VERSION, 0));
}
