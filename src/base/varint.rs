//! Variable-length integers as Kafka writes them: seven bits a byte, lowest first, the high bit
//! says that more follow; signed ones are zigzag-encoded before
//! (`org.apache.kafka.common.utils.ByteUtils`).
//!
//! An encoding longer than needed is accepted, and bits of the last byte above the width of the
//! type are dropped, both as Kafka's reader does.

use bytes::BufMut;

/// The longest encoding of 32 bits, in bytes.
pub const VARINT_BYTES_MAX: usize = 5;
/// The longest encoding of 64 bits, in bytes.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Why bytes hold no integer of variable length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadVarint {
    /// The bytes end before the integer does: more bytes could complete it.
    Truncated,
    /// More bytes follow each other than the type can have: nothing can complete it.
    TooLong,
}

impl std::fmt::Display for BadVarint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            BadVarint::Truncated => "the bytes end within a variable-length integer",
            BadVarint::TooLong => "a variable-length integer has too many bytes",
        })
    }
}

impl std::error::Error for BadVarint {}

/// Reads an unsigned 32-bit integer from the start of `bytes`: the value, and how many bytes it
/// took (1 to 5).
#[inline]
pub fn read_unsigned_varint(bytes: &[u8]) -> Result<(u32, usize), BadVarint> {
    match *bytes {
        [one, ..] if one < 0x80 => Ok((u32::from(one), 1)),
        [one, two, ..] if two < 0x80 => Ok((u32::from(one & 0x7f) | u32::from(two) << 7, 2)),
        _ => {
            let (value, length) = read_long_form(bytes, VARINT_BYTES_MAX)?;
            Ok((value as u32, length))
        }
    }
}

/// Reads an unsigned 64-bit integer from the start of `bytes`: the value, and how many bytes it
/// took (1 to 10).
#[inline]
pub fn read_unsigned_varlong(bytes: &[u8]) -> Result<(u64, usize), BadVarint> {
    match *bytes {
        [one, ..] if one < 0x80 => Ok((u64::from(one), 1)),
        [one, two, ..] if two < 0x80 => Ok((u64::from(one & 0x7f) | u64::from(two) << 7, 2)),
        _ => read_long_form(bytes, VARLONG_BYTES_MAX),
    }
}

/// Reads a zigzag-encoded 32-bit integer from the start of `bytes`: the value, and how many bytes
/// it took (1 to 5).
#[inline]
pub fn read_varint(bytes: &[u8]) -> Result<(i32, usize), BadVarint> {
    let (raw, length) = read_unsigned_varint(bytes)?;
    Ok(((raw >> 1) as i32 ^ -((raw & 1) as i32), length))
}

/// Reads a zigzag-encoded 64-bit integer from the start of `bytes`: the value, and how many bytes
/// it took (1 to 10).
#[inline]
pub fn read_varlong(bytes: &[u8]) -> Result<(i64, usize), BadVarint> {
    let (raw, length) = read_unsigned_varlong(bytes)?;
    Ok(((raw >> 1) as i64 ^ -((raw & 1) as i64), length))
}

fn read_long_form(bytes: &[u8], length_max: usize) -> Result<(u64, usize), BadVarint> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(length_max).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < length_max { BadVarint::Truncated } else { BadVarint::TooLong })
}

/// Appends an unsigned 32-bit integer.
#[inline]
pub fn write_unsigned_varint(value: u32, out: &mut impl BufMut) {
    write_unsigned_varlong(u64::from(value), out);
}

/// Appends an unsigned 64-bit integer.
#[inline]
pub fn write_unsigned_varlong(mut value: u64, out: &mut impl BufMut) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends a 32-bit integer, zigzag-encoded.
#[inline]
pub fn write_varint(value: i32, out: &mut impl BufMut) {
    write_unsigned_varint(zigzag(value), out);
}

/// Appends a 64-bit integer, zigzag-encoded.
#[inline]
pub fn write_varlong(value: i64, out: &mut impl BufMut) {
    write_unsigned_varlong(zigzag_long(value), out);
}

/// How many bytes [`write_unsigned_varint`] appends.
#[inline]
pub const fn unsigned_varint_bytes(value: u32) -> usize {
    unsigned_varlong_bytes(value as u64)
}

/// How many bytes [`write_unsigned_varlong`] appends.
#[inline]
pub const fn unsigned_varlong_bytes(value: u64) -> usize {
    // Zero takes a byte too: the lowest bit is set so that it counts as one significant bit.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// How many bytes [`write_varint`] appends.
#[inline]
pub const fn varint_bytes(value: i32) -> usize {
    unsigned_varint_bytes(zigzag(value))
}

/// How many bytes [`write_varlong`] appends.
#[inline]
pub const fn varlong_bytes(value: i64) -> usize {
    unsigned_varlong_bytes(zigzag_long(value))
}

const fn zigzag(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

const fn zigzag_long(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_encodings() {
        let table: &[(i64, &[u8])] = &[
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for &(value, bytes) in table {
            let mut out = Vec::new();
            write_varlong(value, &mut out);
            assert_eq!(out, bytes, "{value}");
            if let Ok(value) = i32::try_from(value) {
                assert_eq!(read_varint(bytes), Ok((value, bytes.len())));
            }
        }
    }

    #[test]
    fn refuses_what_does_not_end() {
        assert_eq!(read_unsigned_varint(&[]), Err(BadVarint::Truncated));
        assert_eq!(read_unsigned_varint(&[0x80; 4]), Err(BadVarint::Truncated));
        assert_eq!(read_unsigned_varint(&[0x80; 5]), Err(BadVarint::TooLong));
        assert_eq!(read_unsigned_varlong(&[0x80; 9]), Err(BadVarint::Truncated));
        assert_eq!(read_unsigned_varlong(&[0x80; 10]), Err(BadVarint::TooLong));
        assert_eq!(read_unsigned_varint(&[0x81, 0x80, 0x80, 0x80, 0x00]), Ok((1, 5)));
        assert_eq!(read_unsigned_varint(&[0x80, 0x80, 0x80, 0x80, 0x7f]), Ok((0xf000_0000, 5)));
    }

    proptest! {
        #[test]
        fn every_value_comes_back(wide: u64, shift in 0_u32..64, tail: Vec<u8>) {
            let wide = wide >> shift;
            let narrow = wide as u32;
            let mut out = Vec::new();
            write_unsigned_varlong(wide, &mut out);
            prop_assert_eq!(out.len(), unsigned_varlong_bytes(wide));
            out.extend_from_slice(&tail);
            prop_assert_eq!(read_unsigned_varlong(&out), Ok((wide, unsigned_varlong_bytes(wide))));

            for signed in [wide as i64, !(wide as i64)] {
                out.clear();
                write_varlong(signed, &mut out);
                prop_assert_eq!(read_varlong(&out), Ok((signed, out.len())));
                prop_assert_eq!(out.len(), varlong_bytes(signed));
            }
            for signed in [narrow as i32, !(narrow as i32)] {
                out.clear();
                write_varint(signed, &mut out);
                prop_assert_eq!(read_varint(&out), Ok((signed, out.len())));
                prop_assert_eq!(out.len(), varint_bytes(signed));
            }
            out.clear();
            write_unsigned_varint(narrow, &mut out);
            prop_assert_eq!(read_unsigned_varint(&out), Ok((narrow, out.len())));
            prop_assert_eq!(out.len(), unsigned_varint_bytes(narrow));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            for length in [
                read_varint(&bytes).map(|(_, length)| length),
                read_unsigned_varlong(&bytes).map(|(_, length)| length),
            ].into_iter().flatten() {
                prop_assert!((1..=bytes.len()).contains(&length));
                prop_assert!(bytes[length - 1] < 0x80);
            }
        }
    }
}
