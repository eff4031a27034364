//! Tests against batches that Apache Kafka 4.4.0's own classes wrote (`fixtures/`, made by
//! `tests/crossproof/RecordBatches.java`), and of the answers that its validator gives.

use base::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use bytes::Bytes;

use crate::code::{CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR};
use crate::*;

const BASE_TIME: i64 = 1_700_000_000_000;

const RULES: ProduceRules = ProduceRules {
    batch_bytes_max: 1 << 20,
    decompressed_record_bytes_max: 1 << 20,
    key_required: false,
    timestamp_type: TimestampType::CreateTime,
    timestamp_before_max_ms: i64::MAX,
    timestamp_after_max_ms: 3_600_000,
    now_ms: BASE_TIME + 1_000_000,
};

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_bytes!(concat!("fixtures/", $name, ".batch")).as_slice())
    };
}

const RECORDS: &[(&str, &[u8])] = &[
    fixture!("records-none"),
    fixture!("records-gzip"),
    fixture!("records-snappy"),
    fixture!("records-lz4"),
    fixture!("records-zstd"),
    fixture!("gzip-9"),
    fixture!("lz4-17"),
    fixture!("zstd-19"),
];
const LARGE: &[(&str, &[u8])] = &[
    fixture!("large-gzip"),
    fixture!("large-snappy"),
    fixture!("large-lz4"),
    fixture!("large-zstd"),
];

fn batch(bytes: &[u8]) -> Batch {
    let bytes = Bytes::copy_from_slice(bytes);
    let batch = Batch::read(&bytes).unwrap().unwrap();
    assert_eq!(batch.size(), bytes.len());
    batch.check_crc().unwrap();
    assert_eq!(crc32c::crc32c(&bytes[offsets::ATTRIBUTES..]), batch.header().crc);
    batch
}

/// The hundred records of the fixtures, through our builder.
fn built(builder: BatchBuilder) -> Batch {
    let mut builder = builder;
    for n in 0..100_u8 {
        let key = (n % 3 != 0).then(|| format!("key-{n}").into_bytes());
        let value =
            (n % 7 != 0).then(|| format!("value-{n}-{}", "abc".repeat(n.into())).into_bytes());
        let bytes = [n, 0, 0xff];
        let headers = [
            RecordHeader { key: b"h0", value: Some(&bytes) },
            RecordHeader { key: b"h1", value: Some(&bytes) },
            RecordHeader { key: b"h2", value: None },
        ];
        builder.append(&NewRecord {
            timestamp: BASE_TIME + i64::from(n) * 1000,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers[..usize::from(n % 4)],
        });
    }
    builder.build()
}

/// One line for each record, to compare batches with each other.
fn lines(batch: &Batch) -> Vec<String> {
    let mut records = batch.records(1 << 20).unwrap();
    let mut lines = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        let headers: Vec<RecordHeader<'_>> = record.headers.collect();
        lines.push(format!(
            "{} {} {:?} {:?} {headers:?}",
            record.offset, record.timestamp, record.key, record.value
        ));
    }
    lines
}

#[test]
fn without_compression_our_batch_has_kafkas_bytes() {
    let plain = built(BatchBuilder::new(Offset(0), Compression::None));
    assert_eq!(plain.bytes(), RECORDS[0].1);

    let append_time =
        built(BatchBuilder::new(Offset(0), Compression::None).log_append_time(BASE_TIME + 99));
    assert_eq!(append_time.bytes(), fixture!("log-append-time").1);

    let mut transactional = BatchBuilder::new(Offset(42), Compression::None)
        .leader_epoch(LeaderEpoch(5))
        .producer(ProducerId(4000), ProducerEpoch(7), 2_147_483_646)
        .transactional();
    for n in 0..4 {
        let (key, value) = (format!("k{n}"), format!("v{n}"));
        transactional.append(&NewRecord {
            timestamp: BASE_TIME + 10 - 5 * n,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: &[],
        });
    }
    let transactional = transactional.build();
    assert_eq!(transactional.bytes(), fixture!("transactional").1);
    assert_eq!(transactional.header().last_sequence(), 1);

    for (control_type, (_, bytes)) in [
        (ControlType::Commit, fixture!("marker-commit")),
        (ControlType::Abort, fixture!("marker-abort")),
    ] {
        let mut marker = BatchBuilder::new(Offset(9), Compression::None)
            .leader_epoch(LeaderEpoch(5))
            .producer(ProducerId(4000), ProducerEpoch(7), NO_SEQUENCE)
            .transactional()
            .control();
        marker.append(&NewRecord {
            timestamp: BASE_TIME,
            key: Some(&ControlKey::new(control_type).write()),
            value: Some(&end_transaction_marker(11)),
            headers: &[],
        });
        assert_eq!(marker.build().bytes(), bytes);
    }
}

#[test]
fn kafkas_compressed_batches_hold_the_same_records() {
    let plain = lines(&batch(RECORDS[0].1));
    assert_eq!(plain.len(), 100);
    for (name, bytes) in RECORDS {
        let batch = batch(bytes);
        assert_eq!(lines(&batch), plain, "{name}");
        batch.check_produced(&RULES).unwrap();
        let checked = batch.check_records(&RULES).unwrap().finish().unwrap();
        assert_eq!(checked.max_timestamp, BASE_TIME + 99_000, "{name}");
        assert_eq!(checked.plain_bytes as usize, RECORDS[0].1.len() - HEADER_BYTES, "{name}");
    }
    let large = lines(&batch(LARGE[0].1));
    for (name, bytes) in LARGE {
        assert_eq!(lines(&batch(bytes)), large, "{name}");
    }
}

#[test]
fn rewriting_a_batch_of_kafka_keeps_its_records() {
    for (name, bytes) in RECORDS {
        for codec in (0..=4).filter_map(Codec::from_id) {
            let rebuilt = rebuild(&batch(bytes), codec.into(), 1 << 20).unwrap();
            assert_eq!(lines(&rebuilt), lines(&batch(RECORDS[0].1)), "{name} as {codec}");
            if codec == Codec::None {
                assert_eq!(rebuilt.bytes(), RECORDS[0].1, "{name}");
            }
        }
    }
    let refused = rebuild(&batch(RECORDS[1].1), Compression::None, 4000);
    assert!(matches!(refused, Err(BatchError::TooLarge { max: 4000, .. })), "{refused:?}");
}

/// A small batch with fields that `change` made wrong, its checksum right again.
fn changed(compression: Compression, change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let good = built(BatchBuilder::new(Offset(0), compression));
    let mut header = *good.header();
    change(&mut header);
    with_records(header, &good.record_bytes())
}

fn with_records(mut header: BatchHeader, records: &[u8]) -> Vec<u8> {
    header.length = (records.len() + HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32;
    let mut bytes = [&header.write()[..], records].concat();
    let crc = crc_of(&bytes[offsets::ATTRIBUTES..]);
    bytes[offsets::CRC..offsets::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// One record with these body bytes, in a batch of one.
fn one_record(compression: Compression, size: i32, body: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    base::varint::write_varint(size, &mut records);
    records.extend_from_slice(body);
    let mut compressor = codec::Compressor::new(compression, Vec::new());
    compressor.write(&records);
    with_records(header_of_one(compression), &compressor.finish())
}

fn header_of_one(compression: Compression) -> BatchHeader {
    let mut header = *built(BatchBuilder::new(Offset(0), compression)).header();
    (header.record_count, header.last_offset_delta) = (1, 0);
    header
}

/// A name (`RecordBatches judge` takes its rules from it), bytes, and the answer: an error code, or
/// whether the batch must be rebuilt.
type Row = (String, Vec<u8>, Result<bool, i16>);

/// A name, a record's size and its body, and the answer.
type RecordRow<'a> = (&'a str, i32, &'a [u8], Result<bool, i16>);

/// The rows of one codec.
struct Table {
    compression: Compression,
    good: Vec<u8>,
    rows: Vec<Row>,
}

fn answers() -> Vec<Row> {
    let mut rows = Vec::new();
    for codec in (0..=4).filter_map(Codec::from_id) {
        let compression = Compression::from(codec);
        let good = changed(compression, |_| {});
        let mut table = Table { compression, good, rows: Vec::new() };
        table.add_envelopes();
        table.add_headers();
        table.add_records();
        if codec != Codec::None {
            table.add_streams();
        }
        rows.append(&mut table.rows);
    }
    rows
}

impl Table {
    fn add(&mut self, name: &str, bytes: Vec<u8>, answer: Result<bool, i16>) {
        self.rows.push((format!("{}-{name}", self.compression.codec()), bytes, answer));
    }

    fn add_changed(
        &mut self,
        name: &str,
        answer: Result<bool, i16>,
        change: impl FnOnce(&mut BatchHeader),
    ) {
        self.add(name, changed(self.compression, change), answer);
    }

    /// What a Produce request holds for a partition.
    fn add_envelopes(&mut self) {
        let good = self.good.clone();
        self.add("good", good.clone(), Ok(false));
        self.add("cut-tail", [&good[..], &good[..30]].concat(), Ok(false));
        self.add("cut", good[..good.len() - 1].to_vec(), Err(INVALID_RECORD));
        self.add("nothing", Vec::new(), Err(INVALID_RECORD));
        self.add("twice", good.repeat(2), Err(INVALID_RECORD));
        self.add("garbage-tail", [&good[..], &[0; 20]].concat(), Err(CORRUPT_MESSAGE));
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        self.add("flipped", flipped, Err(CORRUPT_MESSAGE));
        self.add("compacted", good.clone(), Err(INVALID_RECORD));
        self.add("appendtopic", good, Ok(false));
    }

    fn add_headers(&mut self) {
        let invalid = Err(INVALID_RECORD);
        self.add_changed("magic0", invalid, |header| header.magic = 0);
        self.add_changed("magic1", invalid, |header| header.magic = 1);
        self.add_changed("magic3", Err(CORRUPT_MESSAGE), |header| header.magic = 3);
        self.add_changed("base-offset", invalid, |header| header.base_offset = Offset(7));
        for (name, count, last_offset_delta) in [
            ("count-less", 99, 98),
            ("count-more", 101, 100),
            ("count-huge", i32::MAX, i32::MAX - 1),
            ("count-zero", 0, -1),
            ("count-negative", -1, 0),
            ("count-delta", 100, 98),
        ] {
            self.add_changed(name, invalid, |header| {
                (header.record_count, header.last_offset_delta) = (count, last_offset_delta);
            });
        }
        self.add_changed("control", invalid, BatchHeader::set_control);
        self.add_changed("codec7", Err(UNKNOWN_SERVER_ERROR), |header| header.attributes |= 7);
        self.add_changed("sequence", invalid, |header| header.producer_id = ProducerId(1));
        self.add_changed("max-timestamp", Ok(false), |header| header.max_timestamp = 5);
        self.add_changed("append", Ok(false), |header| header.attributes |= 8);
        let invalid_timestamp = Err(INVALID_TIMESTAMP);
        self.add_changed("append-appendtopic", invalid_timestamp, |header| header.attributes |= 8);
        self.add_changed("future", invalid_timestamp, |header| header.base_timestamp = 1 << 62);
        self.add_changed("unused-bits", Ok(false), |header| header.attributes |= 0x7f80);
    }

    fn add_records(&mut self) {
        let mut gap = BatchBuilder::new(Offset(0), self.compression);
        gap.append(&NewRecord::default());
        gap.append_at(Offset(3), &NewRecord::default());
        let gap = gap.build();
        let header = BatchHeader { last_offset_delta: 1, ..*gap.header() };
        // Kafka keeps the uncompressed one as it is, and fails in rebuilding the compressed ones.
        self.add("gap", with_records(header, &gap.record_bytes()), Ok(true));

        let invalid = Err(INVALID_RECORD);
        let rows: &[RecordRow<'_>] = &[
            // Attributes, timestamp, offset, key, value, number of headers.
            ("record", 6, &[0, 0, 0, 1, 1, 0], Ok(false)),
            ("record-attributes", 6, &[0xff, 0, 0, 1, 1, 0], Ok(false)),
            ("record-key-minus-9", 6, &[0, 0, 0, 17, 1, 0], Ok(false)),
            ("record-negative", -1, &[0, 0, 0, 1, 1, 0], invalid),
            ("record-huge", i32::MAX, &[0, 0, 0, 1, 1, 0], invalid),
            ("record-key-huge", 6, &[0, 0, 0, 0x7e, 1, 0], invalid),
            ("record-headers-negative", 6, &[0, 0, 0, 1, 1, 1], invalid),
            ("record-headers-many", 6, &[0, 0, 0, 1, 1, 0x7e], invalid),
            ("record-header-key", 8, &[0, 0, 0, 1, 1, 2, 1, 0], invalid),
            ("record-varint", 9, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], invalid),
            ("record-trailing", 6, &[0, 0, 0, 1, 1, 0, 9], invalid),
            // Kafka keeps the next two when they are compressed, and its consumer then fails.
            ("record-ends", 7, &[0, 0, 0, 1, 1, 0], invalid),
            ("record-size-less", 5, &[0, 0, 0, 1, 1, 0], invalid),
            ("record-size-more", 7, &[0, 0, 0, 1, 1, 0, 0], invalid),
        ];
        for &(name, size, body, answer) in rows {
            self.add(name, one_record(self.compression, size, body), answer);
        }
    }

    /// What only a compressed batch can have wrong.
    fn add_streams(&mut self) {
        let header = *batch(&self.good).header();
        self.add("noise", with_records(header, &[0x55; 200]), Err(UNKNOWN_SERVER_ERROR));
        let empty = match self.compression.codec() {
            Codec::Zstd => INVALID_RECORD,
            _ => UNKNOWN_SERVER_ERROR,
        };
        self.add("empty", with_records(header, &[]), Err(empty));
        let half = with_records(header, &self.good[HEADER_BYTES..self.good.len() / 2]);
        self.add("half-stream", half, Err(UNKNOWN_SERVER_ERROR));
        let (size, body) = record_of_zeros(3 << 19);
        self.add(
            "record-above-limit",
            one_record(self.compression, size, &body),
            Err(INVALID_RECORD),
        );
    }
}

/// Size and body of a record with a value of so many zeros.
fn record_of_zeros(bytes: usize) -> (i32, Vec<u8>) {
    let mut body = vec![0, 0, 0, 1];
    base::varint::write_varint(bytes as i32, &mut body);
    body.resize(body.len() + bytes + 1, 0);
    (body.len() as i32, body)
}

#[test]
fn a_bomb_is_walked_in_portions_and_never_unpacked() {
    const BOMB_BYTES: usize = 8 << 20;
    const PORTION_BYTES: usize = 1 << 20;
    let rules = ProduceRules { decompressed_record_bytes_max: usize::MAX, ..RULES };
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let (size, body) = record_of_zeros(BOMB_BYTES);
        let bomb = batch(&one_record(codec.into(), size, &body));
        assert!(bomb.size() < BOMB_BYTES / 200, "{codec}: {}", bomb.size());
        let mut check = bomb.check_records(&rules).unwrap();
        let mut pauses = 0;
        while check.advance(PORTION_BYTES).unwrap().is_none() {
            pauses += 1;
            assert!(check.held_bytes() <= 64 * 1024, "{codec}: {}", check.held_bytes());
        }
        assert!(pauses >= BOMB_BYTES / PORTION_BYTES - 1, "{codec}: {pauses}");
        assert!(matches!(
            bomb.check_records(&RULES).unwrap().finish(),
            Err(BatchError::Record { fault: RecordFault::TooLarge { .. }, .. })
        ));

        let mut search = RecordSearch::new(&bomb).unwrap();
        let mut pauses = 0;
        while search.advance(PORTION_BYTES, |_, _| false).unwrap() == Searched::Paused {
            pauses += 1;
        }
        assert!(pauses >= BOMB_BYTES / PORTION_BYTES - 1, "{codec}: {pauses}");
        assert_eq!(search.plain_bytes(), check.plain_bytes());

        let mut rebuild = Rebuild::new(&bomb, codec.into(), bomb.size()).unwrap();
        let mut pauses = 0;
        while !rebuild.advance(PORTION_BYTES).unwrap() {
            pauses += 1;
            assert!(rebuild.held_bytes() <= 64 * 1024, "{codec}: {}", rebuild.held_bytes());
        }
        assert!(pauses >= BOMB_BYTES / PORTION_BYTES - 1, "{codec}: {pauses}");
        assert_eq!(rebuild.plain_bytes(), check.plain_bytes());
        let rebuilt = rebuild.finish().unwrap();
        let checked = rebuilt.check_records(&rules).unwrap().finish().unwrap();
        assert_eq!(checked.plain_bytes, check.plain_bytes());
    }
}

#[test]
fn a_batch_may_hold_what_an_uncompressed_one_could_and_no_more() {
    const FRAME_BYTES: usize = 32 << 20;
    let zeros = zstd::encode_all(&vec![0; FRAME_BYTES][..], 1).unwrap();
    for (bytes, is_accepted) in [(PLAIN_BYTES_MAX, true), (PLAIN_BYTES_MAX + 1, false)] {
        // Before the value stand five bytes of the size, four of fields and five of the value's
        // size, behind it the number of headers.
        let value = bytes as usize - 15;
        let mut head = Vec::new();
        base::varint::write_varint((value + 10) as i32, &mut head);
        head.extend([0, 0, 0, 1]);
        base::varint::write_varint(value as i32, &mut head);
        let mut stream = zstd::encode_all(&head[..], 1).unwrap();
        for _ in 0..value / FRAME_BYTES {
            stream.extend(&zeros);
        }
        stream.extend(zstd::encode_all(&vec![0; value % FRAME_BYTES + 1][..], 1).unwrap());
        let bomb = batch(&with_records(header_of_one(Codec::Zstd.into()), &stream));
        let rules = ProduceRules { decompressed_record_bytes_max: usize::MAX, ..RULES };
        let checked = bomb.check_records(&rules).unwrap().finish();
        if is_accepted {
            assert_eq!(checked.unwrap().plain_bytes, bytes);
        } else {
            assert_eq!(checked, Err(BatchError::TooLargePlain));
            assert_eq!(BatchError::TooLargePlain.code(), code::MESSAGE_TOO_LARGE);
        }
    }
}

#[test]
fn a_search_finds_the_first_record_that_is_wanted() {
    for (name, bytes) in RECORDS {
        let batch = batch(bytes);
        for (wanted, found) in
            [(0, Some(0)), (41_500, Some(42)), (99_000, Some(99)), (99_001, None)]
        {
            let mut search = RecordSearch::new(&batch).unwrap();
            let searched = loop {
                match search.advance(7, |_, timestamp| timestamp >= BASE_TIME + wanted).unwrap() {
                    Searched::Paused => {}
                    searched => break searched,
                }
            };
            let expected = found.map_or(Searched::Over, |n| Searched::Found {
                offset: Offset(n),
                timestamp: BASE_TIME + n * 1_000,
            });
            assert_eq!(searched, expected, "{name}, {wanted}");
        }
    }
}

fn answer(name: &str, bytes: &[u8]) -> Result<bool, BatchError> {
    let rules = ProduceRules {
        key_required: name.contains("compacted"),
        timestamp_type: if name.contains("appendtopic") {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        ..RULES
    };
    let batch = single_batch(&Bytes::copy_from_slice(bytes), true)?;
    batch.check_produced(&rules)?;
    Ok(!batch.check_records(&rules)?.finish()?.offsets_contiguous)
}

#[test]
fn every_bad_batch_gets_its_answer() {
    for (name, bytes, expected) in answers() {
        let got = answer(&name, &bytes);
        assert_eq!(got.as_ref().copied().map_err(BatchError::code), expected, "{name}: {got:?}");
        // Reading it ends as well, whatever it holds: a log can hold what was never checked.
        let Ok(Some(batch)) = Batch::read(&Bytes::from(bytes)) else { continue };
        let Ok(mut records) = batch.records(1 << 20) else { continue };
        while let Ok(Some(_)) = records.next_record() {}
    }
}

/// What Kafka's validator makes of the headers of accepted batches: base offset 500, epoch 3.
#[test]
fn a_stamped_header_is_the_one_that_kafka_makes() {
    let accepted = answers();
    let mut compared = 0;
    for line in include_str!("fixtures/stamped.txt").lines() {
        let (name, expected) = line.split_once(' ').unwrap();
        let (_, bytes, _) = accepted.iter().find(|(of, ..)| of == name).unwrap();
        let batch = single_batch(&Bytes::copy_from_slice(bytes), true).unwrap();
        let checked = batch.check_records(&RULES).unwrap().finish().unwrap();
        let header = batch.stamp(&Stamp {
            base_offset: Offset(500),
            leader_epoch: LeaderEpoch(3),
            max_timestamp: MaxTimestamp::CreateTime(checked.max_timestamp),
        });
        let hex: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 8);
}
