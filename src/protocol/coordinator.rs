//! How a coordinator's record stands in its topic: the key begins with the record's type, the value
//! with its version, both as int16 (Kafka's `MessageUtil` and `CoordinatorRecordSerde`).

use base::wire::{DecodeError, EncodeError, Message, Reader};
use bytes::Bytes;

/// Keys have one version only, since they must stay equal for compaction to work.
const KEY_VERSION: i16 = 0;

pub(crate) fn key_bytes<K: Message>(kind: i16, key: &K) -> Result<Bytes, EncodeError> {
    key.to_bytes_after(&kind.to_be_bytes(), KEY_VERSION)
}

pub(crate) fn value_bytes<V: Message>(
    value: Option<&V>,
    version: i16,
) -> Result<Option<Bytes>, EncodeError> {
    value.map(|value| value.to_bytes_after(&version.to_be_bytes(), version)).transpose()
}

pub(crate) fn record_value<V: Message>(value: Option<&Bytes>) -> Result<Option<V>, DecodeError> {
    let Some(value) = value else { return Ok(None) };
    let mut reader = Reader::new(value.clone());
    let version = reader.i16()?;
    Ok(Some(V::decode(&mut reader, version)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupRecord, OffsetCommitKey, OffsetCommitValue};

    #[test]
    fn a_committed_offset_has_kafkas_bytes() {
        let key = OffsetCommitKey {
            group: "g".into(),
            topic: "t".into(),
            partition: 3,
            ..Default::default()
        };
        let value = OffsetCommitValue { offset: 5, commit_timestamp: 7, ..Default::default() };
        let record = GroupRecord::OffsetCommit(key, Some(value));
        let (key, value) = record.encode(3).expect("version 3 carries it");
        assert_eq!(key.as_ref(), [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 3]);
        let value = value.expect("no tombstone");
        let expected = [0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 255, 255, 255, 255, 0, 0];
        assert_eq!(value[..16], expected);
        assert_eq!(value[16..], [0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(GroupRecord::decode(&key, Some(&value)), Ok(record));
    }

    #[test]
    fn an_unknown_type_is_kept_byte_for_byte() {
        let key = Bytes::from_static(&[0x40, 0, 9, 9]);
        let value = Some(Bytes::from_static(&[1, 2, 3]));
        let record = GroupRecord::decode(&key, value.as_ref()).expect("kept");
        assert_eq!(record.kind(), -1);
        assert_eq!(record.encode(0), Ok((key, value)));
        assert!(GroupRecord::decode(&Bytes::from_static(&[0]), None).is_err());
    }
}
