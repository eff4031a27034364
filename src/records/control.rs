//! Records that steer and that no consumer is shown (`ControlRecordType`): the key says what the
//! value is. Values with a schema of their own are elsewhere in this crate.

use bytes::Bytes;

use crate::header::BatchHeader;
use crate::reader::RecordReader;

/// The size of a control record's key in bytes, version 0; later versions may be longer.
pub const CONTROL_KEY_BYTES: usize = 4;
/// The size of an end-of-transaction marker's value in bytes, version 0.
pub const END_TRANSACTION_VALUE_BYTES: usize = 6;

/// The largest marker that is read, in bytes; one of version 0 has less than 30.
const MARKER_BYTES_MAX: usize = 1 << 10;

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// A new leader of the metadata quorum.
    LeaderChange,
    /// The first record of a snapshot of the metadata.
    SnapshotHeader,
    /// The last record of a snapshot of the metadata.
    SnapshotFooter,
    /// The version of the quorum's own protocol (KIP-853).
    KraftVersion,
    /// Who votes in the quorum (KIP-853).
    KraftVoters,
    /// Something that a later version knows; to be stepped over.
    Unknown(i16),
}

impl ControlType {
    /// By its number in the key.
    pub fn from_id(id: i16) -> Self {
        match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KraftVersion,
            6 => ControlType::KraftVoters,
            other => ControlType::Unknown(other),
        }
    }

    /// Its number in the key.
    pub fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KraftVersion => 5,
            ControlType::KraftVoters => 6,
            ControlType::Unknown(id) => id,
        }
    }
}

/// The key of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlKey {
    /// Version of the key's own layout; 0 is written.
    pub version: i16,
    /// What the record says.
    pub control_type: ControlType,
}

impl ControlKey {
    /// The key that is written for `control_type`.
    pub fn new(control_type: ControlType) -> Self {
        Self { version: 0, control_type }
    }

    /// Reads a key; `None` when it is too short or has a negative version, which is corrupt. A
    /// later version is read as version 0: it can only have more fields.
    pub fn read(key: &[u8]) -> Option<Self> {
        let &[v0, v1, t0, t1] = key.first_chunk::<CONTROL_KEY_BYTES>()?;
        let version = i16::from_be_bytes([v0, v1]);
        let control_type = ControlType::from_id(i16::from_be_bytes([t0, t1]));
        (version >= 0).then_some(Self { version, control_type })
    }

    /// The bytes of the key.
    pub fn write(self) -> [u8; CONTROL_KEY_BYTES] {
        let ([v0, v1], [t0, t1]) =
            (self.version.to_be_bytes(), self.control_type.id().to_be_bytes());
        [v0, v1, t0, t1]
    }
}

/// The value of a commit or abort marker, version 0 (`EndTransactionMarker`).
pub fn end_transaction_marker(coordinator_epoch: i32) -> [u8; END_TRANSACTION_VALUE_BYTES] {
    let [e0, e1, e2, e3] = coordinator_epoch.to_be_bytes();
    [0, 0, e0, e1, e2, e3]
}

/// What a commit or abort marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    /// Whether the transaction was committed, and not aborted.
    pub is_commit: bool,
    /// The epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
    /// When it was written, in milliseconds since 1970.
    pub timestamp: i64,
}

impl EndTransaction {
    /// Reads the marker from the records of a control batch; `None` where compaction took it away,
    /// or where it is none.
    pub fn read(header: &BatchHeader, records: Bytes) -> Option<Self> {
        let mut reader = RecordReader::new(header, records, MARKER_BYTES_MAX).ok()?;
        let record = reader.next_record().ok()??;
        let is_commit = match ControlKey::read(record.key?)?.control_type {
            ControlType::Abort => false,
            ControlType::Commit => true,
            _ => return None,
        };
        let &[_, _, e0, e1, e2, e3] = record.value?.first_chunk::<END_TRANSACTION_VALUE_BYTES>()?;
        let coordinator_epoch = i32::from_be_bytes([e0, e1, e2, e3]);
        Some(Self { is_commit, coordinator_epoch, timestamp: record.timestamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        for id in -1..9 {
            let key = ControlKey::new(ControlType::from_id(id));
            assert_eq!(ControlKey::read(&key.write()), Some(key));
            assert_eq!(key.write(), [0, 0, (id >> 8) as u8, id as u8]);
        }
        assert_eq!(ControlKey::read(&[0, 0, 0]), None);
        assert_eq!(ControlKey::read(&[0xff, 0xff, 0, 1]), None);
        let later = ControlKey::read(&[0, 1, 0, 1, 9, 9]);
        assert_eq!(later, Some(ControlKey { version: 1, control_type: ControlType::Commit }));
        assert_eq!(end_transaction_marker(258), [0, 0, 0, 0, 1, 2]);
    }
}
