//! What a controller writes when it becomes active (`ActivationRecordsGenerator`).

use base::Offset;
use metadata::{METADATA_VERSION, MetadataVersion, Record, ResourceType, VersionedRecord};
use protocol::{
    AbortTransactionRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord,
};

use crate::outcome::v0;

/// What activation depends on.
#[derive(Clone, Copy, Debug)]
pub struct Activation<'a> {
    /// Whether the log has no metadata record yet.
    pub log_is_empty: bool,
    /// Where a transaction began that a controller before this one left open.
    pub open_transaction: Option<Offset>,
    /// The records of the bootstrap snapshot, for an empty log.
    pub bootstrap: &'a [VersionedRecord],
    /// The metadata.version of the log, if it has records.
    pub metadata_version: MetadataVersion,
    /// `min.insync.replicas` of the node's file.
    pub min_insync_replicas: i32,
}

/// The records to write first, maybe none.
pub fn activation_records(activation: &Activation<'_>) -> Vec<VersionedRecord> {
    let abort = || {
        v0(AbortTransactionRecord {
            reason: Some("Controller failover".into()),
            ..AbortTransactionRecord::default()
        })
    };
    if !activation.log_is_empty {
        return activation.open_transaction.map(|_| abort()).into_iter().collect();
    }
    let has_transactions = bootstrap_level(activation.bootstrap, METADATA_VERSION)
        .and_then(MetadataVersion::of_level)
        .is_some_and(MetadataVersion::has_metadata_transactions);
    let mut records = Vec::new();
    if activation.open_transaction.is_some() {
        records.push(abort());
    }
    if has_transactions {
        records.push(v0(BeginTransactionRecord {
            name: Some("Bootstrap records".into()),
            ..BeginTransactionRecord::default()
        }));
    }
    records.extend(activation.bootstrap.iter().cloned());
    let elr = bootstrap_level(activation.bootstrap, "eligible.leader.replicas.version");
    if elr.is_some_and(|level| level > 0) {
        records.push(v0(ConfigRecord {
            resource_type: ResourceType::Broker.code(),
            resource_name: "".into(),
            name: crate::configs::MIN_ISR.into(),
            value: Some(activation.min_insync_replicas.to_string().into()),
            ..ConfigRecord::default()
        }));
    }
    if has_transactions {
        records.push(v0(EndTransactionRecord::default()));
    }
    records
}

/// The level of a feature in the bootstrap records.
fn bootstrap_level(records: &[VersionedRecord], feature: &str) -> Option<i16> {
    records.iter().find_map(|record| match &record.record {
        Record::FeatureLevel(level) if &*level.name == feature => Some(level.feature_level),
        _ => None,
    })
}
