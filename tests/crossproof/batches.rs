//! Record batches go both ways between our code and Apache Kafka's, and both must answer alike to
//! batches that are broken at random.
#![allow(clippy::disallowed_methods, reason = "it exchanges files with a Java program")]

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base::{LeaderEpoch, Offset, Random};
use bytes::Bytes;
use records::{
    Batch, BatchBuilder, BatchError, Codec, MaxTimestamp, NewRecord, ProduceRules, RecordFault,
    RecordHeader, Stamp, TimestampType, code, single_batch,
};

const BROKEN_BATCHES: usize = 1_000;

fn java(arguments: &[&str], files: &[PathBuf]) -> String {
    let source = xtask::workspace_root().join("tests/crossproof/RecordBatches.java");
    let classes = xtask::kafka::compile_java(&source).unwrap_or_else(|error| panic!("{error}"));
    let mut java = xtask::kafka::java(&["-Xmx512M"], Some(&classes), "RecordBatches")
        .unwrap_or_else(|error| panic!("{error}"));
    let output = java.args(arguments).args(files).output().expect("java was just compiled with");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("it prints ASCII")
}

#[test]
fn kafka_still_writes_the_fixtures() {
    let folder = tempfile::tempdir().unwrap();
    java(&["write", folder.path().to_str().unwrap()], &[]);
    let fixtures = xtask::workspace_root().join("src/records/fixtures");
    let mut compared = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let fixture = fixtures.join(path.file_name().unwrap());
        assert!(fs::read(&path).unwrap() == fs::read(&fixture).unwrap(), "{}", fixture.display());
        compared += 1;
    }
    assert_eq!(compared, 16);
}

#[test]
fn kafka_reads_what_we_build() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let mut expected = String::new();
    for codec in (0..=4).filter_map(Codec::from_id) {
        let batch = large_batch(codec);
        let mut records = batch.records(1 << 20).unwrap();
        while let Some(record) = records.next_record().unwrap() {
            let (offset, timestamp) = (record.offset, record.timestamp);
            let (key, value) = (hex(record.key), hex(record.value));
            expected.push_str(&format!("record {offset} {timestamp} {key} {value}"));
            for header in record.headers {
                let name = String::from_utf8_lossy(header.key);
                expected.push_str(&format!(" {name}={}", hex(header.value)));
            }
            expected.push('\n');
        }
        files.push(folder.path().join(codec.name()));
        fs::write(files.last().unwrap(), batch.bytes()).unwrap();
    }
    let read = java(&["read"], &files);
    let read: Vec<&str> = read.lines().filter(|line| line.starts_with("record")).collect();
    assert_eq!(read.len(), 5 * 60);
    assert!(read == expected.lines().collect::<Vec<_>>(), "Kafka reads other records");
}

/// Sixty records in several blocks of each codec, half of them noise.
fn large_batch(codec: Codec) -> Batch {
    let mut random = Random::new(21);
    let mut builder = BatchBuilder::new(Offset(70), codec.into());
    for n in 0..60 {
        let mut value = vec![b'v'; random.below(9_000) as usize];
        let half = value.len() / 2;
        random.fill(&mut value[..half]);
        let header = RecordHeader { key: b"name", value: (n % 3 != 0).then_some(b"content") };
        builder.append(&NewRecord {
            timestamp: 1_000 + random.below(100) as i64,
            key: (n % 2 == 0).then_some(b"key"),
            value: (n % 5 != 0).then_some(&value),
            headers: &[header; 3][..n % 4],
        });
    }
    builder.build()
}

#[test]
fn kafka_gives_the_same_answer_to_broken_batches() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(22);
    let mut batches = Vec::new();
    let mut files = Vec::new();
    for n in 0..BROKEN_BATCHES {
        let bytes = Bytes::from(fuzz::broken_batch(&mut random));
        files.push(folder.path().join(n.to_string()));
        fs::write(files.last().unwrap(), &bytes).unwrap();
        batches.push(bytes);
    }
    let answers = java(&["judge"], &files);
    let mut lines = answers.lines().peekable();
    let (mut accepted, mut refused, mut faults) = (0, 0, Vec::new());
    for (n, bytes) in batches.into_iter().enumerate() {
        let line = lines.next().expect("an answer for each batch");
        let header = lines.next_if(|line| line.starts_with("  ")).map(str::trim);
        let theirs = line.strip_prefix(&format!("{n} ")).expect("answers in order");
        let ours = answer(&bytes);
        if ours.is_ok() {
            accepted += 1
        } else {
            refused += 1
        }
        if !agree(theirs, header, &ours) {
            faults.push(format!("{n}: Kafka {theirs} {header:?}, here {ours:?}"));
        }
    }
    assert!(
        faults.is_empty(),
        "{} differences:\n{}",
        faults.len(),
        faults[..faults.len().min(20)].join("\n")
    );
    assert!(accepted > 50 && refused > 200, "{accepted} accepted, {refused} refused");
}

/// What we make of a batch: whether its offsets were contiguous, and its stamped header in hex.
struct Accepted {
    offsets_contiguous: bool,
    header: String,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "contiguous: {} {}", self.offsets_contiguous, self.header)
    }
}

fn answer(bytes: &Bytes) -> Result<Accepted, (bool, BatchError)> {
    let batch = single_batch(bytes, true).map_err(|error| (false, error))?;
    let compressed = batch.header().is_compressed();
    check(&batch).map_err(|error| (compressed, error))
}

fn check(batch: &Batch) -> Result<Accepted, BatchError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let rules = ProduceRules {
        batch_bytes_max: usize::MAX,
        decompressed_record_bytes_max: 1 << 20,
        key_required: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        now_ms: now.as_millis() as i64,
    };
    batch.check_produced(&rules)?;
    let checked = batch.check_records(&rules)?.finish()?;
    let header = batch.stamp(&Stamp {
        base_offset: Offset(500),
        leader_epoch: LeaderEpoch(3),
        max_timestamp: MaxTimestamp::CreateTime(checked.max_timestamp),
    });
    let offsets_contiguous = checked.offsets_contiguous;
    Ok(Accepted { offsets_contiguous, header: hex(Some(&header))[1..].to_owned() })
}

fn agree(theirs: &str, header: Option<&str>, ours: &Result<Accepted, (bool, BatchError)>) -> bool {
    let name = theirs.split(' ').next().unwrap_or_default();
    match ours {
        // Kafka keeps wrong offsets, or fails in rebuilding the batch.
        Ok(accepted) if !accepted.offsets_contiguous => {
            name == "OK" || name == "UNKNOWN_SERVER_ERROR"
        }
        Ok(accepted) => name == "OK" && header == Some(&accepted.header),
        // Kafka does not compare a compressed record's size with its fields.
        Err((true, BatchError::Record { fault, .. })) if name == "OK" => {
            matches!(fault, RecordFault::SizeMismatch(_) | RecordFault::HeaderCount(_))
        }
        // Which of several faults of a broken stream is met first depends on the decompressor.
        Err((
            true,
            BatchError::Record { .. } | BatchError::Compression(_) | BatchError::BytesAfterRecords,
        )) => name != "OK",
        // A batch shorter than a header has no base offset that could be wrong, but Kafka looks.
        Err((_, BatchError::LengthTooSmall { .. })) => name != "OK",
        Err((_, error)) => name == code_name(error.code()),
    }
}

fn code_name(number: i16) -> &'static str {
    match number {
        code::UNKNOWN_SERVER_ERROR => "UNKNOWN_SERVER_ERROR",
        code::CORRUPT_MESSAGE => "CORRUPT_MESSAGE",
        code::INVALID_TIMESTAMP => "INVALID_TIMESTAMP",
        code::INVALID_RECORD => "INVALID_RECORD",
        _ => "another error",
    }
}

fn hex(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "null".to_owned() };
    bytes.iter().fold("x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
