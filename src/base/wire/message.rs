use std::ops::RangeInclusive;

use bytes::Bytes;

use super::{DecodeError, EncodeError, Reader, Writer};

/// A message that is generated from a schema.
pub trait Message: Sized {
    /// The name in the schema.
    const NAME: &'static str;
    /// The versions that exist.
    const VERSIONS: RangeInclusive<i16>;

    /// Reads it in `version`. Fields that the version does not have get their defaults. What
    /// follows it is left in the reader.
    fn decode(reader: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Writes it in `version`. An error is kept in the writer.
    fn encode(&self, writer: &mut Writer, version: i16);

    /// How many bytes it takes in `version`, without writing them.
    fn encoded_size(&self, version: i16) -> Result<usize, EncodeError> {
        let mut counter = Writer::counting();
        self.encode(&mut counter, version);
        counter.error().map_or(Ok(counter.len()), Err)
    }

    /// The message in `version` as one slice, after `prefix`, in memory of exactly that size.
    fn to_bytes_after(&self, prefix: &[u8], version: i16) -> Result<Bytes, EncodeError> {
        let mut writer = Writer::with_capacity(prefix.len() + self.encoded_size(version)?);
        writer.put(prefix);
        self.encode(&mut writer, version);
        Ok(writer.finish()?.into_bytes())
    }

    /// The message in `version` as one slice.
    fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        self.to_bytes_after(&[], version)
    }
}
