//! The quorum's formats against files of Apache Kafka 4.4.0, and its only voter's way to lead.

use base::{Instant, LeaderEpoch, NodeId, Now, Offset, Random, Uuid};
use bytes::Bytes;
use records::{Batch, BatchBuilder, Batches, Compression, NewRecord};

use super::snapshot::{Snapshot, SnapshotError, SnapshotId};
use super::*;

/// Written by `kafka-storage format --standalone`.
const STANDALONE: &[u8] = include_bytes!("testdata/standalone.checkpoint");
/// Written by `kafka-storage format` of a node with `controller.quorum.voters`.
const STATIC: &[u8] = include_bytes!("testdata/static.checkpoint");
/// The first two batches of the log of a node that was formatted as `STANDALONE`.
const FIRST_BATCHES: &[u8] = include_bytes!("testdata/first-batches.log");

const NODE: NodeId = NodeId(1);

fn replica() -> ReplicaKey {
    let directory: Uuid = "4rrYtq7BToiZRRu0fVVEog".parse().expect("is an id");
    ReplicaKey { id: NODE, directory }
}

/// The bytes with everything that a clock decides as zeros: the times of the batches, those in
/// snapshots' headers, and so the checksums.
fn timeless(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for batch in Batches::new(Bytes::copy_from_slice(bytes)) {
        let batch = batch.expect("is a batch");
        let mut header = *batch.header();
        header.crc = 0;
        header.base_timestamp = 0;
        header.max_timestamp = 0;
        out.extend_from_slice(&header.write());
        let records = batch.record_bytes();
        let is_snapshot_header = batch.header().is_control()
            && matches!(
                control_records(&batch).expect("can be read").first(),
                Some(ControlRecord::SnapshotHeader(_))
            );
        let at = out.len();
        out.extend_from_slice(&records);
        if is_snapshot_header {
            // Before the time: length, attributes, deltas, key, length of the value, version.
            out[at + 12..at + 20].fill(0);
        }
    }
    out
}

#[test]
fn snapshots_have_the_bytes_of_kafka() {
    for (file, kraft_version, has_voters) in [(STANDALONE, 1, true), (STATIC, 0, false)] {
        let snapshot = Snapshot::of_bytes(Bytes::from_static(file)).expect("Kafka's can be read");
        assert_eq!((snapshot.kraft_version, snapshot.values.len()), (kraft_version, 6));
        assert_eq!(snapshot.voters.is_some(), has_voters);
        let ours = snapshot.to_bytes(LeaderEpoch(0), 1_796_082_968_000);
        assert_eq!(timeless(&ours), timeless(file));
        assert_eq!(Snapshot::of_bytes(ours), Ok(snapshot));
    }
}

#[test]
fn broken_snapshots_are_refused() {
    let cut = Bytes::from_static(&STANDALONE[..STANDALONE.len() - 75]);
    assert_eq!(Snapshot::of_bytes(cut), Err(SnapshotError::NoFooter));
    assert_eq!(Snapshot::of_bytes(Bytes::new()), Err(SnapshotError::NoHeader));
    for position in 0..STANDALONE.len() {
        let mut flipped = STANDALONE.to_vec();
        flipped[position] ^= 0x40;
        // Base offset and epoch of a batch are not covered by its checksum.
        let read = Snapshot::of_bytes(flipped.into());
        let whole = Snapshot::of_bytes(Bytes::from_static(STANDALONE)).expect("is whole");
        assert!(read.is_err() || read == Ok(whole), "byte {position}");
    }
}

#[test]
fn snapshots_have_the_names_of_kafka() {
    let id = SnapshotId { end_offset: Offset(1_234), epoch: LeaderEpoch(7) };
    assert_eq!(id.file_name(), "00000000000000001234-0000000007.checkpoint");
    assert_eq!(SnapshotId::of_file_name(&id.file_name()), Some(id));
    for name in
        ["0-0.checkpoint", "00000000000000001234-0000000007.checkpoint.part", "quorum-state"]
    {
        assert_eq!(SnapshotId::of_file_name(name), None, "{name}");
    }
}

fn endpoint(port: u16) -> Vec<VoterEndpoint> {
    vec![VoterEndpoint { listener: "CONTROLLER".into(), host: "127.0.0.1".into(), port }]
}

/// Where the node of `STANDALONE` is reached.
const PORT: u16 = 29_493;

fn new(port: u16, configured_voters: VoterSet) -> Raft {
    Raft::new(Params {
        own: Voter { key: replica(), endpoints: endpoint(port), kraft_versions: (0, 1) },
        cluster_id: "cluster".into(),
        configured_voters,
        bootstrap_servers: 0,
        timing: Timing::default(),
        random: Random::new(1),
    })
}

/// A replica that has read the bootstrap snapshot.
fn formatted(port: u16) -> Raft {
    let mut raft = new(port, VoterSet::default());
    let snapshot = Snapshot::of_bytes(Bytes::from_static(STANDALONE)).expect("can be read");
    let bytes = STANDALONE.len() as u64;
    raft.on_snapshot(SnapshotId::BOOTSTRAP, bytes, snapshot.kraft_version, snapshot.voters);
    raft
}

fn at(wall_ms: i64) -> Now {
    Now { mono: Instant::ZERO, wall_ms }
}

/// A batch of another leader, with the offsets from `base` up to `end`.
pub(crate) fn batch(base: i64, end: i64, epoch: i32) -> Batch {
    let mut builder = BatchBuilder::new(Offset(base), Compression::None);
    builder = builder.leader_epoch(LeaderEpoch(epoch));
    for _ in base..end {
        builder.append(&NewRecord { value: Some(b"x"), ..NewRecord::default() });
    }
    builder.build()
}

fn first_batch(out: &[Output]) -> Batch {
    let mut batches = Batches::new(appended(out));
    batches.next().expect("there is one").expect("is a batch")
}

fn appended(out: &[Output]) -> Bytes {
    let mut bytes = Vec::new();
    for output in out {
        if let Output::Append(batch) = output {
            bytes.extend_from_slice(batch.bytes());
        }
    }
    bytes.into()
}

#[test]
fn the_first_epoch_has_the_bytes_of_kafka() {
    let batches: Vec<_> = Batches::new(Bytes::from_static(FIRST_BATCHES))
        .map(|batch| batch.expect("is a batch"))
        .collect();
    let [leader_change, bootstrap] = &batches[..] else { panic!("there are two") };
    let mut raft = formatted(PORT);
    let mut out = Vec::new();
    let now = at(leader_change.header().base_timestamp);
    raft.start(now, None, &mut out).expect("it is the only voter");
    let [Output::WriteElection(state, written)] = out[..] else { panic!("{out:?}") };
    assert_eq!(
        raft.election_text(state),
        "{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\
         \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}"
    );
    assert!(!raft.is_leader(), "an epoch is led only when its claim is durable");
    assert_eq!(raft.append(now, &[Bytes::new()], &mut out), Err(NotLeader));

    out.clear();
    raft.on_election_written(now, written, &mut out);
    assert_eq!(&appended(&out), leader_change.bytes());
    assert_eq!(out.last(), Some(&Output::Leading(LeaderEpoch(1))));

    let mut values = Vec::new();
    let mut reader = bootstrap.records(usize::MAX).expect("can be read");
    while let Some(record) = reader.next_record().expect("can be read") {
        values.push(Bytes::copy_from_slice(record.value.expect("has a value")));
    }
    out.clear();
    let base = raft.append(at(bootstrap.header().base_timestamp), &values, &mut out);
    assert_eq!(base, Ok(Offset(3)));
    assert_eq!(&appended(&out), bootstrap.bytes());
}

/// A voter whose log has ten records of epoch 4, which it led.
fn led_before(mut raft: Raft, out: &mut Vec<Output>) -> (Raft, ElectionWritten) {
    raft.on_batch(&batch(0, 10, 4)).expect("can be read");
    let before = ElectionState { epoch: LeaderEpoch(4), leader: NODE, voted: None };
    raft.start(at(0), Some(before), out).expect("it is the only voter");
    let [Output::WriteElection(state, written)] = out[..] else { panic!("{out:?}") };
    assert_eq!(state.epoch, LeaderEpoch(5));
    out.clear();
    (raft, written)
}

#[test]
fn what_is_durable_is_committed_from_the_epochs_first_record_on() {
    let mut out = Vec::new();
    let (mut raft, written) = led_before(formatted(PORT), &mut out);
    raft.on_election_written(at(0), written, &mut out);
    out.clear();
    raft.on_synced(at(0), Offset(10), &mut out);
    assert_eq!(out, [], "what others wrote is not committed by itself");
    assert_eq!(raft.high_watermark(), None);
    raft.on_synced(at(0), Offset(13), &mut out);
    raft.on_synced(at(0), Offset(12), &mut out);
    assert_eq!(out, [Output::HighWatermark(Offset(13))]);
    raft.resign(at(0), &mut out);
    assert_eq!(raft.append(at(0), &[Bytes::new()], &mut out), Err(NotLeader));
}

#[test]
fn voters_are_said_once_in_the_log() {
    let mut raft = formatted(PORT);
    for batch in Batches::new(Bytes::from_static(FIRST_BATCHES)) {
        raft.on_batch(&batch.expect("is a batch")).expect("can be read");
    }
    let mut out = Vec::new();
    let election = ElectionState { epoch: LeaderEpoch(1), leader: NODE, voted: None };
    raft.start(at(0), Some(election), &mut out).expect("it is the only voter");
    let [Output::WriteElection(_, written)] = out[..] else { panic!("{out:?}") };
    out.clear();
    raft.on_election_written(at(0), written, &mut out);
    assert_eq!(first_batch(&out).header().record_count, 1);
}

#[test]
fn who_cannot_take_part_is_told_why() {
    let voter = |id: i32, directory| Voter {
        key: ReplicaKey { id: NodeId(id), directory },
        endpoints: Vec::new(),
        kraft_versions: (0, 1),
    };
    let other = Uuid([7; 16]);
    let start = |voters: Vec<Voter>, batches: &[Batch]| {
        let mut raft = new(PORT, VoterSet::default());
        raft.on_snapshot(SnapshotId::BOOTSTRAP, 0, 1, Some(VoterSet::new(voters)));
        for batch in batches {
            raft.on_batch(batch).expect("can be read");
        }
        raft.start(at(0), None, &mut Vec::new()).map(|()| raft)
    };
    let refused = |result: Result<Raft, RaftError>| result.expect_err("it cannot").to_string();
    let log = [batch(0, 9, 3)];
    let own = voter(1, replica().directory);
    assert!(refused(start(vec![], &[])).starts_with("the quorum has no voters"));
    assert!(refused(start(vec![own.clone()], &log)).contains("epoch 3"));
    let observer = start(vec![voter(1, other)], &log).expect("an observer gives no votes");
    assert_eq!((observer.is_voter(), observer.election().epoch), (false, LeaderEpoch(3)));
    let several = start(vec![own, voter(2, other)], &[]).expect("it may be one of two");
    assert_eq!((several.is_voter(), several.is_leader()), (true, false));
    let mut raft = new(PORT, VoterSet::new(vec![voter(1, other)]));
    assert_eq!(raft.start(at(0), None, &mut Vec::new()), Ok(()));
    assert!(raft.is_voter(), "configured voters have no directories");
}

#[test]
fn a_voter_says_where_it_is_reached_now() {
    let mut out = Vec::new();
    let (mut raft, written) = led_before(formatted(9), &mut out);
    raft.on_election_written(at(0), written, &mut out);
    let batch = first_batch(&out);
    assert_eq!((batch.header().base_offset, batch.header().record_count), (Offset(10), 3));
    let Some(ControlRecord::Voters(voters)) = control_records(&batch).expect("can be read").pop()
    else {
        panic!("the batch names the voters")
    };
    assert_eq!(&voters, raft.voters());
    assert_eq!(voters.iter().next().expect("there is one").endpoints, endpoint(9));
}
