use base::Random;
use bytes::Bytes;
use commitlog::{format_snapshot, parse_snapshot};
use records::crc_of;

/// Where the CRC of a snapshot ends, and what it covers begins.
const COVERED_AT: usize = 6;

/// Reads `data` as a snapshot of producers and checks that what was read survives writing and
/// reading again. Says whether it was a snapshot.
///
/// If the first byte is odd, the CRC is made right before, so that changes reach what lies behind
/// it. The rest is the file.
///
/// # Panics
/// If the reader or the writer is wrong.
pub fn producer_snapshot(data: &[u8]) -> bool {
    let Some((&first, bytes)) = data.split_first() else { return false };
    let mut bytes = bytes.to_vec();
    if first & 1 == 1 && bytes.len() >= COVERED_AT {
        let crc = crc_of(&bytes[COVERED_AT..]);
        bytes[COVERED_AT - 4..COVERED_AT].copy_from_slice(&crc.to_be_bytes());
    }
    let Ok(mut read) = parse_snapshot(&Bytes::from(bytes)) else { return false };
    let mut again = parse_snapshot(&format_snapshot(read.clone())).expect("it was just written");
    // The order is that of the file; only what is written has one of its own.
    read.sort_by_key(|state| (state.producer_id, state.last_offset, state.last_timestamp));
    again.sort_by_key(|state| (state.producer_id, state.last_offset, state.last_timestamp));
    assert_eq!(read, again, "a snapshot changes when it is read");
    true
}

/// A snapshot of a few producers, as [`producer_snapshot`] takes it, with some bytes changed.
pub fn broken_snapshot(random: &mut Random) -> Vec<u8> {
    let mut data = vec![random.next_u64() as u8];
    let count = random.below(20);
    data.extend(1_i16.to_be_bytes());
    data.extend([0; 4]);
    data.extend((count as u32).to_be_bytes());
    for _ in 0..count {
        let mut entry = [0; 46];
        random.fill(&mut entry);
        data.extend(entry);
    }
    for _ in 0..random.below(3) {
        let at = random.below(data.len() as u64) as usize;
        match random.below(3) {
            0 => data.truncate(at.max(1)),
            1 => data.insert(at.max(1), random.next_u64() as u8),
            _ => data[at] ^= 1 << random.below(8),
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let mut random = Random::new(21);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let data = broken_snapshot(&mut random);
            if producer_snapshot(&data) { read += 1 } else { refused += 1 }
        }
        // Both sides are reached, or the test shows nothing.
        assert!(read > 1_000 && refused > 1_000, "{read} were read and {refused} refused");
    }
}
