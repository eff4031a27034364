//! A cluster for the tests of this crate.

use std::sync::Arc;

use base::{NodeId, Uuid};
use config::{BrokerConfig, Pairs};
use metadata::{Image, METADATA_VERSION, VersionedRecord};
use protocol::register_broker_record::BrokerFeature;
use protocol::{FeatureLevelRecord, RegisterBrokerRecord};

use crate::Params;

/// Node 1 of a cluster of one.
pub(crate) fn params() -> Params {
    let settings = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"),
        ("log.dirs", "data"),
    ];
    let pairs: Pairs =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Params {
        cluster_id: "4L6g3nShT-eMCtK--X86sw".to_owned(),
        node: NodeId(1),
        quorum_nodes: vec![NodeId(1)],
        config: Arc::new(BrokerConfig::from_pairs(pairs).expect("the settings are valid")),
    }
}

/// An empty cluster of some brokers: number, rack, whether it is fenced.
pub(crate) fn image_with_brokers(brokers: &[(i32, Option<String>, bool)]) -> Image {
    let mut image = Image::default();
    let levels = [
        (METADATA_VERSION, 33),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 2),
        ("streams.version", 1),
        ("transaction.version", 2),
    ];
    for (name, feature_level) in levels {
        let record = FeatureLevelRecord {
            name: name.into(),
            feature_level,
            ..FeatureLevelRecord::default()
        };
        image.replay(&record.into()).expect("the level is known");
    }
    for (id, rack, fenced) in brokers {
        let supported = metadata::supported_features();
        let features = supported.iter().map(|(name, range)| BrokerFeature {
            name: (*name).into(),
            min_supported_version: range.min,
            max_supported_version: range.max,
            ..BrokerFeature::default()
        });
        let record = RegisterBrokerRecord {
            broker_id: *id,
            broker_epoch: i64::from(*id) + 100,
            incarnation_id: directory(*id),
            features: features.collect(),
            rack: rack.as_deref().map(Into::into),
            fenced: *fenced,
            log_dirs: vec![directory(*id)],
            ..RegisterBrokerRecord::default()
        };
        image.replay(&record.into()).expect("brokers can register");
    }
    image
}

/// The log directory of a broker in [`image_with_brokers`].
pub(crate) fn directory(broker: i32) -> Uuid {
    let [_, _, _, low] = broker.to_be_bytes();
    Uuid([low.wrapping_add(50); 16])
}

/// The image after some records.
pub(crate) fn after(image: &Image, records: &[VersionedRecord]) -> Image {
    let mut image = image.clone();
    for record in records {
        image.replay(&record.record).expect("what the controller writes can be replayed");
    }
    image
}
