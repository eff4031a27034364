//! What the crate `protocol` says of APIs and of the records' frames, against Kafka's classes.

use bytes::Bytes;
use protocol::{
    ApiKey, DecodeError, EncodeError, GroupRecord, Listener, ShareRecord, TransactionRecord,
    VersionedRecord,
};

#[test]
fn apis_and_record_frames_are_kafkas() {
    let tables = crossproof::kafka_tables().unwrap_or_else(|error| panic!("{error}"));
    let (mut apis, mut records) = (0, 0);
    for line in tables.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["api", id, rest @ ..] => {
                check_api(line, number(id), rest);
                apis += 1;
                continue;
            }
            ["metadata", kind, version, bytes] => {
                let bytes = unhex(bytes);
                let record = VersionedRecord::decode(&bytes).expect(line);
                assert_eq!(record.record.kind(), number(kind), "{line}");
                assert_eq!(record.version, number(version), "{line}");
                assert_eq!(record.encode(), Ok(bytes), "{line}");
            }
            ["group", kind, rest @ ..] => {
                check_record(line, rest, GroupRecord::decode, GroupRecord::encode, |record| {
                    assert_eq!(record.kind(), number(kind), "{line}");
                });
            }
            ["transaction", kind, rest @ ..] => check_record(
                line,
                rest,
                TransactionRecord::decode,
                TransactionRecord::encode,
                |record| assert_eq!(record.kind(), number(kind), "{line}"),
            ),
            ["share", kind, rest @ ..] => {
                check_record(line, rest, ShareRecord::decode, ShareRecord::encode, |record| {
                    assert_eq!(record.kind(), number(kind), "{line}");
                });
            }
            _ => panic!("{line}"),
        }
        records += 1;
    }
    assert_eq!(apis, ApiKey::all().count());
    assert!(records > 60, "{records}");
}

fn check_api(line: &str, id: i16, words: &[&str]) {
    let [name, stable, unstable, broker, controller, headers @ ..] = words else {
        panic!("{line}");
    };
    let key = ApiKey::from_code(id).expect(line);
    assert_eq!(key.name(), *name, "{line}");
    assert_eq!(range(key.advertised_versions(false)), *stable, "{line}");
    assert_eq!(range(key.advertised_versions(true)), *unstable, "{line}");
    assert_eq!(key.is_taken_by(Listener::Broker).to_string(), *broker, "{line}");
    assert_eq!(key.is_taken_by(Listener::Controller).to_string(), *controller, "{line}");
    let versions = key.versions().map_or(0, |(first, last)| last - first + 1);
    assert_eq!(headers.len(), usize::try_from(versions).expect("counted"), "{line}");
    for header in headers {
        let version = number(header.split(':').next().expect(line));
        let (request, response) =
            (key.request_header_version(version), key.response_header_version(version));
        assert_eq!(format!("{version}:{request}:{response}"), *header, "{line}");
    }
}

fn check_record<R>(
    line: &str,
    words: &[&str],
    decode: impl Fn(&Bytes, Option<&Bytes>) -> Result<R, DecodeError>,
    encode: impl Fn(&R, i16) -> Result<(Bytes, Option<Bytes>), EncodeError>,
    check: impl Fn(&R),
) {
    let [version, key, value] = words else { panic!("{line}") };
    let (key, value) = (unhex(key), unhex(value));
    let record = decode(&key, Some(&value)).expect(line);
    check(&record);
    assert_eq!(encode(&record, number(version)), Ok((key.clone(), Some(value))), "{line}");
    let tombstone = decode(&key, None).expect(line);
    assert_eq!(encode(&tombstone, 0), Ok((key, None)), "{line}");
}

fn range(versions: Option<(i16, i16)>) -> String {
    versions.map_or("none".to_owned(), |(first, last)| format!("{first}-{last}"))
}

fn number(word: &str) -> i16 {
    word.parse().expect("a number")
}

fn unhex(text: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}
