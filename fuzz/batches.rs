use base::{Offset, Random};
use bytes::Bytes;
use records::{
    Batch, BatchBuilder, BatchError, Batches, Codec, HEADER_BYTES, LOG_OVERHEAD_BYTES,
    MaxTimestamp, NewRecord, ProduceRules, RecordHeader, Stamp, TimestampType, crc_of, offsets,
    rebuild, single_batch,
};

const RECORD_BYTES_MAX: usize = 1 << 20;

const RULES: ProduceRules = ProduceRules {
    batch_bytes_max: 1 << 20,
    decompressed_record_bytes_max: RECORD_BYTES_MAX,
    key_required: false,
    timestamp_type: TimestampType::CreateTime,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: i64::MAX,
    now_ms: 0,
};

/// Reads `data` as the records of a Produce request and checks that what is accepted can be read,
/// stamped and rebuilt. Says whether it was accepted.
///
/// If the first byte is odd, length and checksum of the batch are made right before, so that
/// changes reach what lies behind them. The rest is the batch.
///
/// # Panics
/// If the check accepts what cannot be read, or anything else is wrong.
pub fn record_batch(data: &[u8]) -> bool {
    let Some((&first, bytes)) = data.split_first() else { return false };
    let mut bytes = bytes.to_vec();
    if first & 1 == 1 {
        make_whole(&mut bytes);
    }
    let bytes = Bytes::from(bytes);
    for batch in Batches::new(bytes.clone()).flatten() {
        // Whatever stands there, reading it ends, in records or in an error.
        let _ = read(&batch);
    }
    match check(&bytes) {
        Ok(batch) => {
            follow(&batch);
            true
        }
        Err(error) => {
            assert_ne!(error.code(), 0, "no error is a success");
            false
        }
    }
}

fn check(bytes: &Bytes) -> Result<Batch, BatchError> {
    let batch = single_batch(bytes, true)?;
    batch.check_produced(&RULES)?;
    let whole = batch.check_records(&RULES)?.finish();
    let mut portions = batch.check_records(&RULES)?;
    let in_portions = loop {
        match portions.advance(5) {
            Ok(None) => {}
            Ok(Some(checked)) => break Ok(checked),
            Err(error) => break Err(error),
        }
    };
    assert_eq!(whole, in_portions, "where the check pauses changes nothing");
    whole.map(|_| batch)
}

/// What must be possible with a batch that was accepted.
fn follow(batch: &Batch) {
    let records = read(batch).expect("an accepted batch can be read");
    assert_eq!(records.len(), batch.header().record_count as usize);
    let stamp = Stamp {
        base_offset: base::Offset(1000),
        leader_epoch: base::LeaderEpoch(1),
        max_timestamp: MaxTimestamp::LogAppendTime(9),
    };
    let stamped = [&batch.stamp(&stamp)[..], &batch.record_bytes()].concat();
    let stamped = Batch::read(&stamped.into()).expect("well formed").expect("whole");
    stamped.check_crc().expect("a stamp carries its checksum");
    assert_eq!(read(&stamped).expect("the same records").len(), records.len());
    for codec in [Codec::None, Codec::Lz4] {
        let rebuilt =
            rebuild(batch, codec.into(), usize::MAX).expect("an accepted batch can be rebuilt");
        let again = read(&rebuilt).expect("what we build can be read");
        assert_eq!(again, records, "rebuilding keeps the records");
        assert_eq!(rebuilt.header().producer_id, batch.header().producer_id);
    }
}

/// One line for each record but for its offset, which rebuilding can change.
fn read(batch: &Batch) -> Result<Vec<String>, BatchError> {
    let mut reader = batch.records(RECORD_BYTES_MAX)?;
    let mut lines = Vec::new();
    while let Some(record) = reader.next_record()? {
        let headers: Vec<_> = record.headers.collect();
        lines.push(format!("{} {:?} {:?} {headers:?}", record.timestamp, record.key, record.value));
    }
    Ok(lines)
}

fn make_whole(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let length = (bytes.len() - LOG_OVERHEAD_BYTES) as i32;
    bytes[offsets::LENGTH..offsets::LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
    let crc = crc_of(&bytes[offsets::ATTRIBUTES..]);
    bytes[offsets::CRC..offsets::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

/// A valid batch of a few records, with any codec.
fn some_batch(random: &mut Random) -> Vec<u8> {
    let codec = Codec::from_id(random.below(5) as u8).expect("five codecs");
    let mut builder = BatchBuilder::new(Offset(0), codec.into());
    for _ in 0..=random.below(6) {
        let mut value = vec![b'v'; random.below(300) as usize];
        let half = value.len() / 2;
        random.fill(&mut value[..half]);
        let headers = [RecordHeader { key: b"name", value: Some(b"content") }; 2];
        builder.append(&NewRecord {
            timestamp: random.below(1000) as i64,
            key: (random.below(2) == 0).then_some(b"key"),
            value: (random.below(4) != 0).then_some(&value),
            headers: &headers[..random.below(3) as usize],
        });
    }
    builder.build().bytes().to_vec()
}

/// A batch of a few records that was changed in a place or three; its length and checksum are
/// mostly right, so that the change has to be found otherwise.
pub fn broken_batch(random: &mut Random) -> Vec<u8> {
    let mut bytes = some_batch(random);
    for _ in 0..=random.below(3) {
        // Most of what can be wrong stands in the header.
        let reach = if random.below(2) == 0 { 2 * HEADER_BYTES } else { bytes.len() };
        let at = random.below(reach.min(bytes.len()) as u64) as usize;
        match random.below(6) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, random.below(256) as u8),
            2 => bytes[at] = random.below(256) as u8,
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    if random.below(8) != 0 {
        make_whole(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_makes_the_check_panic_or_lie() {
        let mut random = Random::new(13);
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..3_000 {
            assert!(record_batch(&[&[0], &some_batch(&mut random)[..]].concat()));
            let broken = [&[0], &broken_batch(&mut random)[..]].concat();
            if record_batch(&broken) { accepted += 1 } else { refused += 1 }
        }
        // Both sides are reached, or the test shows nothing.
        assert!(accepted > 100 && refused > 1_000, "{accepted} accepted, {refused} refused");
    }
}
