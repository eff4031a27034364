//! Builds batches as Kafka's `MemoryRecordsBuilder` lays them out.

use base::varint::{varint_bytes, varlong_bytes, write_varint, write_varlong};
use base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;

use crate::batch::{Batch, crc_of_parts};
use crate::codec::{Compression, Compressor};
use crate::header::{
    BatchHeader, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_SEQUENCE, NO_TIMESTAMP, TimestampType,
};
use crate::record::RecordHeader;

/// A record to append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Milliseconds since 1970, −1 for none.
    pub timestamp: i64,
    /// The key, if any.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [RecordHeader<'a>],
}

/// Collects records into one batch, compressing as they come.
#[derive(Debug)]
pub struct BatchBuilder {
    pub(crate) header: BatchHeader,
    compressor: Compressor,
    next_offset: Offset,
    record: Vec<u8>,
    plain_bytes: usize,
}

impl BatchBuilder {
    /// An empty batch that begins at `base_offset`.
    pub fn new(base_offset: Offset, compression: Compression) -> Self {
        let mut header = BatchHeader {
            base_offset,
            length: 0,
            leader_epoch: LeaderEpoch::NONE,
            magic: MAGIC,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: NO_SEQUENCE,
            record_count: 0,
        };
        header.set_codec(compression.codec());
        Self {
            header,
            compressor: Compressor::new(compression, vec![0; HEADER_BYTES]),
            next_offset: base_offset,
            record: Vec::new(),
            plain_bytes: 0,
        }
    }

    /// Sets the partition leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// Sets the idempotent producer, and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Makes it part of the producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.set_transactional();
        self
    }

    /// Makes its records control records.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.header.set_control();
        self
    }

    /// Gives all records the broker's time, in milliseconds since 1970.
    #[must_use]
    pub fn log_append_time(mut self, now_ms: i64) -> Self {
        self.header.set_timestamp_type(TimestampType::LogAppendTime);
        self.header.max_timestamp = now_ms;
        self
    }

    /// Sets when tombstones and markers may be removed, in milliseconds since 1970 (KIP-534).
    #[must_use]
    pub fn delete_horizon(mut self, delete_horizon_ms: i64) -> Self {
        self.header.set_delete_horizon_ms(delete_horizon_ms);
        self
    }

    /// Appends a record at the next offset.
    pub fn append(&mut self, record: &NewRecord<'_>) {
        self.append_at(self.next_offset, record);
    }

    /// Appends a record at `offset`, which compaction may have left behind a gap.
    ///
    /// # Panics
    /// When the offset is not behind the last one, or more than 2³¹ − 1 behind the first: a bug.
    pub fn append_at(&mut self, offset: Offset, record: &NewRecord<'_>) {
        let NewRecord { timestamp, key, value, headers } = *record;
        self.append_parts(offset, timestamp, key, value, headers.iter().copied());
    }

    /// How many records it holds.
    pub fn record_count(&self) -> usize {
        self.header.record_count as usize
    }

    /// The offset that [`BatchBuilder::append`] will give.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The size in bytes that the batch has without compression.
    pub fn plain_bytes(&self) -> usize {
        HEADER_BYTES + self.plain_bytes
    }

    /// How many bytes `record` would add at most without compression.
    pub fn record_bytes(&self, record: &NewRecord<'_>) -> usize {
        // Attributes, timestamp, offset, and the record's own size: each at its longest.
        const FIXED_BYTES_MAX: usize = 1 + 10 + 5 + 5;
        let headers = record.headers.iter().copied();
        FIXED_BYTES_MAX + fields_bytes(record.key, record.value, headers)
    }

    /// The finished batch, with length, count, timestamps and checksum.
    ///
    /// # Panics
    /// When the batch is larger than 2³¹ − 1 bytes: a bug, limits are far below.
    pub fn build(self) -> Batch {
        let Self { mut header, compressor, .. } = self;
        let mut bytes = compressor.finish();
        header.length = i32::try_from(bytes.len() - LOG_OVERHEAD_BYTES)
            .expect("a batch is bounded far below 2 GB by whoever fills it");
        header.crc = crc_of_parts(&header, &bytes[HEADER_BYTES..]);
        bytes[..HEADER_BYTES].copy_from_slice(&header.write());
        Batch::read(&Bytes::from(bytes))
            .expect("the header has magic 2 and a length of its own size or more")
            .expect("the length is that of the bytes")
    }

    fn append_parts<'a>(
        &mut self,
        offset: Offset,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = RecordHeader<'a>> + Clone,
    ) {
        self.begin_record(offset, timestamp, fields_bytes(key, value, headers.clone()));
        let out = &mut self.record;
        write_nullable(key, out);
        write_nullable(value, out);
        write_varint(size_of_field(headers.len()), out);
        for header in headers {
            write_nullable(Some(header.key), out);
            write_nullable(header.value, out);
        }
        self.plain_bytes += out.len();
        self.compressor.write(out);
    }

    /// Notes a record in the header, and begins it in `self.record`: all that stands before its
    /// key. `rest` is how many bytes follow.
    fn begin_record(&mut self, offset: Offset, timestamp: i64, rest: usize) {
        assert!(offset >= self.next_offset, "offsets in a batch increase");
        let offset_delta = i32::try_from(offset.0 - self.header.base_offset.0)
            .expect("offsets in a batch lie within 31 bits");
        if self.header.record_count == 0 && self.header.delete_horizon_ms().is_none() {
            self.header.base_timestamp = timestamp;
        }
        if self.header.timestamp_type() == TimestampType::CreateTime {
            self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        }
        self.header.last_offset_delta = offset_delta;
        self.header.record_count += 1;
        self.next_offset = offset.plus(1);

        // Wraps for absurd timestamps of a client, as adding the delta again does.
        let timestamp_delta = timestamp.wrapping_sub(self.header.base_timestamp);
        let body = 1 + varlong_bytes(timestamp_delta) + varint_bytes(offset_delta) + rest;
        let out = &mut self.record;
        out.clear();
        write_varint(size_of_field(body), out);
        out.push(0);
        write_varlong(timestamp_delta, out);
        write_varint(offset_delta, out);
    }

    /// Begins a record whose bytes from its key on the caller has ready: `rest` of them follow by
    /// [`BatchBuilder::append_rest`].
    pub(crate) fn append_head(&mut self, offset: Offset, timestamp: i64, rest: usize) {
        self.begin_record(offset, timestamp, rest);
        self.plain_bytes += self.record.len();
        self.compressor.write(&self.record);
    }

    /// Appends bytes of the record that was begun.
    pub(crate) fn append_rest(&mut self, bytes: &[u8]) {
        self.plain_bytes += bytes.len();
        self.compressor.write(bytes);
    }

    /// Bytes of the batch so far; what the codec holds back is not counted.
    pub(crate) fn written(&self) -> usize {
        self.compressor.written()
    }
}

/// The bytes of key, value and headers, each with its size.
fn fields_bytes<'a>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = RecordHeader<'a>>,
) -> usize {
    let count = varint_bytes(size_of_field(headers.len()));
    let headers: usize =
        headers.map(|header| nullable_bytes(Some(header.key)) + nullable_bytes(header.value)).sum();
    nullable_bytes(key) + nullable_bytes(value) + count + headers
}

fn nullable_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint_bytes(size_of_field(bytes.len())) + bytes.len())
}

fn write_nullable(field: Option<&[u8]>, out: &mut Vec<u8>) {
    match field {
        None => write_varint(-1, out),
        Some(bytes) => {
            write_varint(size_of_field(bytes.len()), out);
            out.extend_from_slice(bytes);
        }
    }
}

fn size_of_field(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("a record is bounded far below 2 GB by whoever makes it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::{MaxTimestamp, ProduceRules, Stamp, rebuild};
    use proptest::prelude::*;

    const RULES: ProduceRules = ProduceRules {
        batch_bytes_max: 1 << 20,
        decompressed_record_bytes_max: 1 << 20,
        key_required: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        now_ms: 1_700_000_000_000,
    };

    type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);
    type OwnedRecord = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<OwnedHeader>);

    fn owned_record() -> impl Strategy<Value = OwnedRecord> {
        (
            -1_i64..2_000_000_000_000,
            any::<Option<Vec<u8>>>(),
            any::<Option<Vec<u8>>>(),
            any::<Vec<OwnedHeader>>(),
        )
    }

    fn read_all(batch: &Batch) -> Vec<(Offset, OwnedRecord)> {
        let mut records = batch.records(usize::MAX).unwrap();
        let mut all = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            let headers = record
                .headers
                .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                .collect();
            let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec));
            all.push((record.offset, (record.timestamp, key, value, headers)));
        }
        all
    }

    fn append_all(builder: &mut BatchBuilder, records: &[OwnedRecord]) {
        for (timestamp, key, value, headers) in records {
            let headers: Vec<RecordHeader<'_>> = headers
                .iter()
                .map(|(key, value)| RecordHeader { key, value: value.as_deref() })
                .collect();
            let record = NewRecord {
                timestamp: *timestamp,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            };
            let before = builder.plain_bytes();
            builder.append(&record);
            assert!(builder.plain_bytes() - before <= builder.record_bytes(&record));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn what_is_built_is_accepted_and_read_again(
            records in prop::collection::vec(owned_record(), 1..40),
            codec in 0_u8..5,
            target in 0_u8..5,
        ) {
            let codec = Codec::from_id(codec).unwrap();
            let mut builder = BatchBuilder::new(Offset(0), codec.into());
            append_all(&mut builder, &records);
            let plain_bytes = builder.plain_bytes();
            let batch = builder.build();
            batch.check_produced(&RULES).unwrap();
            let checked = batch.check_records(&RULES).unwrap().finish().unwrap();
            prop_assert!(checked.offsets_contiguous);
            prop_assert_eq!(checked.max_timestamp, batch.header().max_timestamp);
            prop_assert_eq!(checked.plain_bytes as usize + HEADER_BYTES, plain_bytes);
            let read = read_all(&batch);
            prop_assert!(read.iter().map(|(_, record)| record).eq(&records));
            prop_assert!(read.iter().enumerate().all(|(n, (offset, _))| offset.0 == n as i64));

            let mut paused = batch.check_records(&RULES).unwrap();
            let again = loop {
                if let Some(checked) = paused.advance(7).unwrap() {
                    break checked;
                }
            };
            prop_assert_eq!(again, checked);

            let target = Codec::from_id(target).unwrap();
            let rebuilt = rebuild(&batch, target.into(), usize::MAX).unwrap();
            prop_assert_eq!(read_all(&rebuilt), read);
            rebuilt.check_produced(&ProduceRules { batch_bytes_max: usize::MAX, ..RULES }).unwrap();

            let stamp = Stamp {
                base_offset: Offset(500),
                leader_epoch: LeaderEpoch(3),
                max_timestamp: MaxTimestamp::LogAppendTime(77),
            };
            let stamped = [&batch.stamp(&stamp)[..], &batch.record_bytes()].concat();
            let stamped = Batch::read(&stamped.into()).unwrap().unwrap();
            stamped.check_crc().unwrap();
            prop_assert_eq!(crc32c::crc32c(&stamped.bytes()[21..]), stamped.header().crc);
            prop_assert!(read_all(&stamped).iter().all(|(_, record)| record.0 == 77));
            prop_assert_eq!(stamped.header().base_offset, Offset(500));
        }
    }
}
