//! The quorum's own records in the log (`ControlRecord`).

use base::wire::{DecodeError, Message, Reader};
use base::{LeaderEpoch, NodeId, Offset};
use bytes::Bytes;
use records::files::leader_change_message::Voter as VoterName;
use records::files::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord,
    VotersRecord,
};
use records::{Batch, BatchBuilder, BatchError, Compression, ControlKey, ControlType, NewRecord};

use crate::voters::VoterSet;

/// The version in which control records are written.
const VERSION: i16 = 0;

/// One control record, as far as the quorum knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord {
    /// A leader begins its epoch.
    LeaderChange(LeaderChangeMessage),
    /// The version of the quorum's protocol.
    KraftVersion(i16),
    /// Who votes from here on.
    Voters(VoterSet),
    /// A snapshot begins; it was taken of a log whose last record has this time.
    SnapshotHeader(i64),
    /// A snapshot ends.
    SnapshotFooter,
    /// Something that a later version writes.
    Unknown(i16),
}

/// What a control record in the log cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The batch around it is broken.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// It has no key that names its type.
    #[error("a control record without a type")]
    NoType,
    /// Its value does not decode.
    #[error("a control record of type {control_type:?} that cannot be decoded: {error}")]
    Value {
        /// Its type.
        control_type: ControlType,
        /// Why.
        error: DecodeError,
    },
}

/// The records of a control batch.
///
/// # Errors
/// If one cannot be read.
pub fn control_records(batch: &Batch) -> Result<Vec<ControlRecord>, ControlError> {
    let mut reader = batch.records(usize::MAX)?;
    let mut found = Vec::new();
    while let Some(record) = reader.next_record()? {
        let key = record.key.and_then(ControlKey::read).ok_or(ControlError::NoType)?;
        let control_type = key.control_type;
        let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
        let refuse = |error| ControlError::Value { control_type, error };
        let mut reader = Reader::new(value);
        found.push(match control_type {
            ControlType::LeaderChange => {
                // The version stands in the message itself.
                let version = version_of(record.value.unwrap_or_default());
                let message = LeaderChangeMessage::decode(&mut reader, version.clamp(0, 1));
                ControlRecord::LeaderChange(message.map_err(refuse)?)
            }
            ControlType::KraftVersion => {
                let version = KRaftVersionRecord::decode(&mut reader, VERSION).map_err(refuse)?;
                ControlRecord::KraftVersion(version.k_raft_version)
            }
            ControlType::KraftVoters => {
                let voters = VotersRecord::decode(&mut reader, VERSION).map_err(refuse)?;
                ControlRecord::Voters(VoterSet::of_record(&voters))
            }
            ControlType::SnapshotHeader => {
                let header = SnapshotHeaderRecord::decode(&mut reader, VERSION).map_err(refuse)?;
                ControlRecord::SnapshotHeader(header.last_contained_log_timestamp)
            }
            ControlType::SnapshotFooter => ControlRecord::SnapshotFooter,
            ControlType::Abort | ControlType::Commit => ControlRecord::Unknown(control_type.id()),
            ControlType::Unknown(id) => ControlRecord::Unknown(id),
        });
    }
    Ok(found)
}

fn version_of(value: &[u8]) -> i16 {
    value.first_chunk().map_or(0, |bytes| i16::from_be_bytes(*bytes))
}

/// What the first batch of a leader says.
pub(crate) struct EpochBegins<'a> {
    pub(crate) base_offset: Offset,
    pub(crate) epoch: LeaderEpoch,
    /// Milliseconds since 1970.
    pub(crate) now_ms: i64,
    pub(crate) leader: NodeId,
    pub(crate) voters: &'a VoterSet,
    /// Who has voted for it.
    pub(crate) granting: Vec<NodeId>,
}

/// The first batch of a leader: that it leads, and who votes, where there is something new to say.
pub(crate) fn leader_change(begins: &EpochBegins, news: Option<(i16, &VoterSet)>) -> Batch {
    let names = |ids: &[NodeId]| {
        let name = |id: &NodeId| VoterName { voter_id: id.0, ..VoterName::default() };
        ids.iter().map(name).collect()
    };
    let message = LeaderChangeMessage {
        leader_id: begins.leader.0,
        voters: names(&begins.voters.ids()),
        granting_voters: names(&begins.granting),
        ..LeaderChangeMessage::default()
    };
    let mut builder = BatchBuilder::new(begins.base_offset, Compression::None)
        .leader_epoch(begins.epoch)
        .control();
    append(&mut builder, begins.now_ms, ControlType::LeaderChange, &message);
    if let Some((kraft_version, voters)) = news {
        append_kraft_version(&mut builder, begins.now_ms, kraft_version);
        append(&mut builder, begins.now_ms, ControlType::KraftVoters, &voters.to_record());
    }
    builder.build()
}

/// A batch that says who votes from here on, and by which new version of the protocol if there is
/// one.
pub(crate) fn voters_change(
    base_offset: Offset,
    epoch: LeaderEpoch,
    now_ms: i64,
    kraft_version: Option<i16>,
    voters: &VoterSet,
) -> Batch {
    let mut builder =
        BatchBuilder::new(base_offset, Compression::None).leader_epoch(epoch).control();
    if let Some(kraft_version) = kraft_version {
        append_kraft_version(&mut builder, now_ms, kraft_version);
    }
    append(&mut builder, now_ms, ControlType::KraftVoters, &voters.to_record());
    builder.build()
}

/// The first batch of a snapshot.
pub(crate) fn snapshot_header(
    now_ms: i64,
    last_contained_ms: i64,
    epoch: LeaderEpoch,
    kraft_version: i16,
    voters: Option<&VoterSet>,
) -> Batch {
    let header = SnapshotHeaderRecord {
        last_contained_log_timestamp: last_contained_ms,
        ..SnapshotHeaderRecord::default()
    };
    let mut builder = BatchBuilder::new(Offset(0), Compression::None).leader_epoch(epoch).control();
    append(&mut builder, now_ms, ControlType::SnapshotHeader, &header);
    if kraft_version > 0 {
        append_kraft_version(&mut builder, now_ms, kraft_version);
        if let Some(voters) = voters {
            append(&mut builder, now_ms, ControlType::KraftVoters, &voters.to_record());
        }
    }
    builder.build()
}

/// The last batch of a snapshot.
pub(crate) fn snapshot_footer(base_offset: Offset, epoch: LeaderEpoch, now_ms: i64) -> Batch {
    let mut builder =
        BatchBuilder::new(base_offset, Compression::None).leader_epoch(epoch).control();
    append(&mut builder, now_ms, ControlType::SnapshotFooter, &SnapshotFooterRecord::default());
    builder.build()
}

fn append_kraft_version(builder: &mut BatchBuilder, now_ms: i64, kraft_version: i16) {
    let version =
        KRaftVersionRecord { k_raft_version: kraft_version, ..KRaftVersionRecord::default() };
    append(builder, now_ms, ControlType::KraftVersion, &version);
}

fn append(
    builder: &mut BatchBuilder,
    now_ms: i64,
    control_type: ControlType,
    message: &impl Message,
) {
    let key = ControlKey::new(control_type).write();
    let value = message.to_bytes(VERSION).expect("a control record fits its schema");
    builder.append(&NewRecord {
        timestamp: now_ms,
        key: Some(&key),
        value: Some(&value),
        ..NewRecord::default()
    });
}
