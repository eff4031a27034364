//! How a metadata record stands in the log of the quorum (Kafka's `MetadataRecordSerde`).

use base::wire::{DecodeError, EncodeError, Reader, Writer};
use bytes::Bytes;

use crate::MetadataRecord;

/// The only version of the frame that is in use; version 0 was a preview's.
const FRAME_VERSION: u32 = 1;

/// A metadata record with the version of its schema that it is written in.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRecord {
    /// The record.
    pub record: MetadataRecord,
    /// The version of its schema.
    pub version: i16,
}

impl VersionedRecord {
    /// Reads a record's value: frame version, type and version as varints, then the body.
    ///
    /// # Errors
    /// If a part of it is not known, the bytes are not what they should be, or more follow.
    pub fn decode(value: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(value.clone());
        let frame_version = reader.unsigned_varint()?;
        if frame_version != FRAME_VERSION {
            return Err(DecodeError::FrameVersion(frame_version));
        }
        let kind = small(reader.unsigned_varint()?)?;
        let version = small(reader.unsigned_varint()?)?;
        let record = MetadataRecord::decode_body(kind, version, &mut reader)?;
        match reader.remaining() {
            0 => Ok(Self { record, version }),
            more => Err(DecodeError::Trailing(more)),
        }
    }

    /// The record's value, in memory of exactly its size.
    ///
    /// # Errors
    /// If the version cannot carry the record.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let mut counter = Writer::counting();
        self.write(&mut counter);
        if let Some(error) = counter.error() {
            return Err(error);
        }
        let mut writer = Writer::with_capacity(counter.len());
        self.write(&mut writer);
        Ok(writer.finish()?.into_bytes())
    }

    fn write(&self, writer: &mut Writer) {
        writer.unsigned_varint(FRAME_VERSION);
        writer.unsigned_varint(u32::from(self.record.kind().unsigned_abs()));
        writer.unsigned_varint(u32::from(self.version.unsigned_abs()));
        self.record.encode_body(writer, self.version);
    }
}

fn small(number: u32) -> Result<i16, DecodeError> {
    let refuse =
        |_| DecodeError::UnknownRecord { family: "MetadataRecord", kind: number.cast_signed() };
    i16::try_from(number).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FeatureLevelRecord;

    #[test]
    fn a_feature_level_has_kafkas_bytes() {
        let level = FeatureLevelRecord {
            name: "metadata.version".into(),
            feature_level: 30,
            ..Default::default()
        };
        let record = VersionedRecord { record: level.into(), version: 0 };
        let bytes = record.encode().expect("version 0 carries it");
        assert_eq!(bytes[..4], [1, 12, 0, 17]);
        assert_eq!(bytes[4..20], *b"metadata.version");
        assert_eq!(bytes[20..], [0, 30, 0]);
        assert_eq!(VersionedRecord::decode(&bytes), Ok(record));
    }

    #[test]
    fn frames_of_other_kinds_are_refused() {
        let decode = |bytes: &'static [u8]| VersionedRecord::decode(&Bytes::from_static(bytes));
        assert_eq!(decode(&[0, 12, 0]), Err(DecodeError::FrameVersion(0)));
        let family = "MetadataRecord";
        assert_eq!(decode(&[1, 99, 0]), Err(DecodeError::UnknownRecord { family, kind: 99 }));
        assert_eq!(decode(&[1, 20, 0, 0, 5]), Err(DecodeError::Trailing(1)));
        let message = "NoOpRecord";
        assert_eq!(
            decode(&[1, 20, 9]),
            Err(DecodeError::UnsupportedVersion { message, version: 9 })
        );
    }
}
