//! The quorum's formats against files of Apache Kafka 4.4.0, and its only voter's way to lead.

use base::{LeaderEpoch, NodeId, Offset, Uuid};
use bytes::Bytes;
use records::Batches;

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

/// A replica that has read the bootstrap snapshot.
fn formatted() -> Raft {
    let mut raft = Raft::new(replica(), VoterSet::default());
    let snapshot = Snapshot::of_bytes(Bytes::from_static(STANDALONE)).expect("can be read");
    raft.on_snapshot(snapshot.kraft_version, snapshot.voters);
    raft
}

fn found(election: Option<ElectionState>, end_offset: i64, last_epoch: i32) -> Found {
    let (end_offset, last_epoch) = (Offset(end_offset), LeaderEpoch(last_epoch));
    Found { election, end_offset, last_epoch }
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
    let mut raft = formatted();
    let mut out = Vec::new();
    raft.start(&found(None, 0, 0), &mut out).expect("it is the only voter");
    let [Output::WriteElection(state, written)] = out[..] else { panic!("{out:?}") };
    assert_eq!(
        raft.election_text(state),
        "{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\
         \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}"
    );
    assert!(!raft.is_leader(), "an epoch is led only when its claim is durable");
    assert_eq!(raft.append(0, &[Bytes::new()], &mut out), Err(NotLeader));

    out.clear();
    raft.on_election_written(leader_change.header().base_timestamp, written, &mut out);
    assert_eq!(&appended(&out), leader_change.bytes());
    assert_eq!(out.last(), Some(&Output::Leading(LeaderEpoch(1))));

    let mut values = Vec::new();
    let mut reader = bootstrap.records(usize::MAX).expect("can be read");
    while let Some(record) = reader.next_record().expect("can be read") {
        values.push(Bytes::copy_from_slice(record.value.expect("has a value")));
    }
    out.clear();
    let base = raft.append(bootstrap.header().base_timestamp, &values, &mut out);
    assert_eq!(base, Ok(Offset(3)));
    assert_eq!(&appended(&out), bootstrap.bytes());
}

#[test]
fn what_is_durable_is_committed_from_the_epochs_first_record_on() {
    let mut raft = formatted();
    let mut out = Vec::new();
    let before = ElectionState { epoch: LeaderEpoch(4), leader: NODE, voted: None };
    raft.start(&found(Some(before), 10, 4), &mut out).expect("it is the only voter");
    let [Output::WriteElection(state, written)] = out[..] else { panic!("{out:?}") };
    assert_eq!(state.epoch, LeaderEpoch(5));
    raft.on_election_written(0, written, &mut out);
    out.clear();
    raft.on_synced(Offset(10), &mut out);
    assert_eq!(out, [], "what others wrote is not committed by itself");
    assert_eq!(raft.high_watermark(), None);
    raft.on_synced(Offset(13), &mut out);
    raft.on_synced(Offset(12), &mut out);
    assert_eq!(out, [Output::HighWatermark(Offset(13))]);
    raft.resign();
    assert_eq!(raft.append(0, &[Bytes::new()], &mut out), Err(NotLeader));
}

#[test]
fn voters_are_said_once_in_the_log() {
    let mut raft = formatted();
    let batch = Batches::new(Bytes::from_static(FIRST_BATCHES)).next().expect("there is one");
    for record in control_records(&batch.expect("is a batch")).expect("can be read") {
        raft.on_control_record(&record);
    }
    let mut out = Vec::new();
    let election = ElectionState { epoch: LeaderEpoch(1), leader: NODE, voted: None };
    raft.start(&found(Some(election), 12, 1), &mut out).expect("it is the only voter");
    let [Output::WriteElection(_, written)] = out[..] else { panic!("{out:?}") };
    raft.on_election_written(0, written, &mut out);
    let Some(Output::Append(batch)) = out.get(1) else { panic!("{out:?}") };
    assert_eq!(batch.header().record_count, 1);
}

#[test]
fn who_cannot_lead_is_told_why() {
    let voter = |id: i32, directory| Voter {
        key: ReplicaKey { id: NodeId(id), directory },
        endpoints: Vec::new(),
        kraft_versions: (0, 1),
    };
    let other = Uuid([7; 16]);
    let start = |voters: Vec<Voter>, found: &Found| {
        let mut raft = Raft::new(replica(), VoterSet::default());
        raft.on_snapshot(1, Some(VoterSet::new(voters)));
        raft.start(found, &mut Vec::new()).expect_err("it cannot lead").to_string()
    };
    let fresh = found(None, 0, 0);
    assert!(start(vec![], &fresh).starts_with("the quorum has no voters"));
    assert!(start(vec![voter(2, other)], &fresh).contains("is not a voter"));
    assert!(start(vec![voter(1, other)], &fresh).contains("is not a voter"));
    assert!(
        start(vec![voter(1, replica().directory), voter(2, other)], &fresh).contains("2 voters")
    );
    assert!(start(vec![voter(1, replica().directory)], &found(None, 9, 3)).contains("epoch 3"));
    let mut raft = Raft::new(replica(), VoterSet::new(vec![voter(1, other)]));
    assert_eq!(raft.start(&fresh, &mut Vec::new()), Ok(()), "static voters have no directories");
}

#[test]
fn a_voter_says_where_it_is_reached_now() {
    let mut raft = formatted();
    let mut out = Vec::new();
    raft.start(&found(None, 0, 0), &mut out).expect("it is the only voter");
    let [Output::WriteElection(_, written)] = out[..] else { panic!("{out:?}") };
    raft.on_election_written(0, written, &mut out);
    out.clear();
    let endpoint =
        |port| [VoterEndpoint { listener: "CONTROLLER".into(), host: "127.0.0.1".into(), port }];
    raft.update_own_endpoints(0, &endpoint(29_493), &mut out);
    assert_eq!(out, [], "the snapshot says so already");
    raft.update_own_endpoints(0, &endpoint(9), &mut out);
    let [Output::Append(batch)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(batch.header().base_offset, Offset(3));
    let Some(ControlRecord::Voters(voters)) = control_records(batch).expect("can be read").pop()
    else {
        panic!("the batch names the voters")
    };
    assert_eq!(&voters, raft.voters());
    assert_eq!(voters.iter().next().expect("there is one").endpoints, endpoint(9));
}
