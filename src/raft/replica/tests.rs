//! Each role against each message: what Kafka's rules say of one replica, number 1 of three voters
//! whose log has ten records, the last of epoch 4.

use base::{Duration, Instant, LeaderEpoch, NodeId, Now, Offset, Random, Uuid};
use bytes::Bytes;
use records::Batch;

use crate::control;
use crate::log::EpochOffset;
use crate::snapshot::SnapshotId;
use crate::tests::batch;
use crate::*;

/// With this one a follower whose leader has gone waits long enough to hear of it again.
const SEED: u64 = 2;
const EPOCH: LeaderEpoch = LeaderEpoch(5);

fn key(id: i32) -> ReplicaKey {
    ReplicaKey { id: NodeId(id), directory: Uuid([u8::try_from(id).expect("small"); 16]) }
}

fn voter(id: i32) -> Voter {
    let port = u16::try_from(id).expect("small");
    let endpoint = VoterEndpoint { listener: "CONTROLLER".into(), host: "localhost".into(), port };
    Voter { key: key(id), endpoints: vec![endpoint], kraft_versions: (0, 1) }
}

fn endpoints(id: i32) -> Vec<VoterEndpoint> {
    voter(id).endpoints
}

fn at(epoch: i32, offset: i64) -> EpochOffset {
    EpochOffset { epoch: LeaderEpoch(epoch), offset: Offset(offset) }
}

/// A replica, and what it said since it was last asked.
struct One {
    raft: Raft,
    out: Vec<Output>,
    now_ms: u64,
    next_id: u64,
}

impl One {
    fn new(kraft_version: i16, election: ElectionState) -> Self {
        let voters = VoterSet::new(vec![voter(1), voter(2), voter(3)]);
        let is_static = kraft_version == 0;
        let mut raft = Raft::new(Params {
            own: voter(1),
            cluster_id: "cluster".into(),
            configured_voters: if is_static { voters.clone() } else { VoterSet::default() },
            bootstrap_servers: 0,
            timing: Timing::default(),
            random: Random::new(SEED),
        });
        let voters = (!is_static).then_some(voters);
        raft.on_snapshot(SnapshotId::BOOTSTRAP, 100, kraft_version, voters);
        raft.on_batch(&batch(0, 5, 2)).expect("can be read");
        raft.on_batch(&batch(5, 10, 4)).expect("can be read");
        let mut one = Self { raft, out: Vec::new(), now_ms: 1_000, next_id: 100 };
        let now = one.now();
        one.raft.start(now, Some(election), &mut one.out).expect("it can start");
        one
    }

    fn unattached() -> Self {
        Self::new(1, ElectionState { epoch: EPOCH, ..ElectionState::NONE })
    }

    /// It has voted for number 2.
    fn voted() -> Self {
        Self::new(1, ElectionState { epoch: EPOCH, voted: Some(key(2)), ..ElectionState::NONE })
    }

    /// Its leader is number 3, of which it has heard nothing.
    fn follower() -> Self {
        let leader = NodeId(3);
        Self::new(1, ElectionState { epoch: EPOCH, leader, ..ElectionState::NONE })
    }

    fn fetched() -> Self {
        let mut one = Self::follower();
        one.is_answered(3, fetched(None, FetchContent::Records(Bytes::new())));
        one
    }

    /// Its leader has gone a moment ago.
    fn left() -> Self {
        let mut one = Self::fetched();
        let now = one.now();
        one.raft.leader_gone(now, NodeId(3), &mut one.out);
        one
    }

    fn prospective() -> Self {
        let mut one = Self::unattached();
        one.wait(2_000);
        one
    }

    fn candidate() -> Self {
        let mut one = Self::prospective();
        one.is_answered(2, Ok(ReplyBody::Vote { granted: true }));
        one
    }

    /// In epoch 6, whose first record has the offset 10.
    fn leader_with(kraft_version: i16) -> Self {
        let mut one =
            Self::new(kraft_version, ElectionState { epoch: EPOCH, ..ElectionState::NONE });
        one.wait(2_000);
        for _ in 0..2 {
            one.is_answered(2, Ok(ReplyBody::Vote { granted: true }));
            one.written();
        }
        assert!(one.raft.is_leader());
        one
    }

    fn leader() -> Self {
        Self::leader_with(1)
    }

    fn resigned() -> Self {
        Self::new(1, ElectionState { epoch: EPOCH, leader: NodeId(1), voted: None })
    }

    fn now(&self) -> Now {
        let mono = Instant::from_nanos(self.now_ms * 1_000_000);
        Now { mono, wall_ms: i64::try_from(self.now_ms).expect("small") }
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        let now = self.now();
        self.raft.on_tick(now, &mut self.out);
    }

    /// Whatever is written becomes durable.
    fn written(&mut self) {
        loop {
            let write = self.out.iter().position(|out| matches!(out, Output::WriteElection(..)));
            let Some(at) = write else { return };
            let Output::WriteElection(_, written) = self.out.remove(at) else { unreachable!() };
            let now = self.now();
            self.raft.on_election_written(now, written, &mut self.out);
        }
    }

    fn synced(&mut self, offset: i64) {
        let now = self.now();
        self.raft.on_synced(now, Offset(offset), &mut self.out);
    }

    /// Asks, with everything durable, and returns what is answered at once.
    fn asked(&mut self, body: RequestBody) -> Option<Result<ReplyBody, Refusal>> {
        self.asks("cluster", body);
        self.written();
        self.replied()
    }

    fn asks(&mut self, cluster: &str, body: RequestBody) -> RequestId {
        self.next_id += 1;
        let id = RequestId(self.next_id);
        let request = Request { cluster_id: Some(cluster.into()), body };
        let now = self.now();
        self.raft.on_request(now, id, &request, &mut self.out);
        id
    }

    /// The last answer that left.
    fn replied(&self) -> Option<Result<ReplyBody, Refusal>> {
        self.out.iter().rev().find_map(|out| match out {
            Output::Reply { id, reply } if id.0 == self.next_id => Some(reply.body.clone()),
            _ => None,
        })
    }

    /// The last request to a node.
    fn sent(&self, to: i32) -> Option<(RequestId, RequestBody)> {
        self.out.iter().rev().find_map(|out| match out {
            Output::Send { to: peer, id, request } if *peer == Peer::Node(NodeId(to)) => {
                Some((*id, request.body.clone()))
            }
            _ => None,
        })
    }

    /// The last request.
    fn last_sent(&self) -> (RequestId, RequestBody) {
        let sent = self.out.iter().rev().find_map(|out| match out {
            Output::Send { id, request, .. } => Some((*id, request.body.clone())),
            _ => None,
        });
        sent.expect("something was sent")
    }

    /// A node answers the last request, knowing what this replica knows.
    fn is_answered(&mut self, from: i32, body: Result<ReplyBody, Refusal>) {
        self.written();
        let election = self.raft.election();
        let leader = (election.leader.0 >= 0).then_some(election.leader);
        let known = Known { epoch: election.epoch, leader, endpoints: Vec::new() };
        self.hears(from, Some(Reply { known, body }));
    }

    fn hears(&mut self, from: i32, reply: Option<Reply>) {
        let (id, _) = self.sent(from).expect("it was asked");
        let now = self.now();
        self.raft.on_response(now, Peer::Node(NodeId(from)), id, reply, &mut self.out);
    }

    /// A voter has everything below an offset.
    fn is_fetched(&mut self, by: i32, log_end: EpochOffset) -> Option<Result<ReplyBody, Refusal>> {
        let epoch = self.raft.election().epoch;
        self.asked(RequestBody::Fetch(fetch(epoch, by, log_end)))
    }

    fn role(&self) -> &'static str {
        self.raft.role.name()
    }

    fn high_watermark(&self) -> Option<i64> {
        self.raft.high_watermark().map(|offset| offset.0)
    }
}

fn fetched(high_watermark: Option<i64>, content: FetchContent) -> Result<ReplyBody, Refusal> {
    let high_watermark = high_watermark.map(Offset);
    Ok(ReplyBody::Fetch { high_watermark, log_start: Offset(0), content })
}

fn fetch(epoch: LeaderEpoch, by: i32, log_end: EpochOffset) -> FetchRequest {
    FetchRequest { epoch, replica: key(by), log_end, max_wait_ms: 500, high_watermark: None }
}

fn vote(epoch: i32, candidate: i32, log_end: EpochOffset, pre_vote: bool) -> RequestBody {
    let epoch = LeaderEpoch(epoch);
    let candidate = key(candidate);
    RequestBody::Vote(VoteRequest { epoch, candidate, voter: Some(key(1)), log_end, pre_vote })
}

fn begin(epoch: i32, leader: i32) -> RequestBody {
    RequestBody::BeginQuorumEpoch {
        epoch: LeaderEpoch(epoch),
        leader: NodeId(leader),
        endpoints: endpoints(leader),
        voter: Some(key(1)),
    }
}

type Make = fn() -> One;

#[test]
fn a_log_on_disk_that_no_replica_wrote_is_an_error() {
    let voters = VoterSet::new(vec![voter(1)]);
    let mut raft = Raft::new(Params {
        own: voter(1),
        cluster_id: "cluster".into(),
        configured_voters: VoterSet::default(),
        bootstrap_servers: 0,
        timing: Timing::default(),
        random: Random::new(SEED),
    });
    raft.on_snapshot(SnapshotId::BOOTSTRAP, 100, 1, Some(voters));
    raft.on_batch(&batch(0, 5, 3)).expect("goes on");
    let gap = |base, next| {
        Err(BatchError::Gap { base: Offset(base), next: Offset(next), end: Offset(5) })
    };
    let (epoch, before) = (LeaderEpoch(2), LeaderEpoch(3));
    assert_eq!(raft.on_batch(&batch(6, 7, 3)), gap(6, 7));
    assert_eq!(raft.on_batch(&batch(4, 6, 3)), gap(4, 6));
    assert_eq!(raft.on_batch(&batch(5, 6, 2)), Err(BatchError::OlderEpoch { epoch, before }));
    assert_eq!(raft.on_batch(&batch(5, 6, 3)), Ok(()));
}

#[test]
fn each_role_grants_what_kafka_grants() {
    // PreVote of number 2 and of number 3, their votes; none is behind.
    let cases: [(&str, Make, [bool; 4]); 9] = [
        ("unattached", One::unattached, [true, true, true, true]),
        ("unattached, has voted for 2", One::voted, [true, true, true, false]),
        ("prospective", One::prospective, [true, true, true, true]),
        ("candidate", One::candidate, [true, true, false, false]),
        ("leader", One::leader, [false, false, false, false]),
        ("follower", One::follower, [true, true, false, false]),
        ("follower, has fetched", One::fetched, [false, false, false, false]),
        ("follower, its leader has gone", One::left, [true, true, false, false]),
        ("resigned", One::resigned, [true, true, false, false]),
    ];
    for (name, make, expected) in cases {
        let asks = [(2, true), (3, true), (2, false), (3, false)];
        for ((candidate, pre_vote), granted) in asks.into_iter().zip(expected) {
            let what = format!("{name}: {candidate} asks, PreVote: {pre_vote}");
            let mut one = make();
            one.written();
            let (epoch, end) = (one.raft.election().epoch.0, one.raft.log.end());
            let role = one.role();
            let up_to_date = EpochOffset { offset: end.offset, epoch: end.epoch };
            // A vote of the leader's epoch would be for a log that has a record of it.
            let asked = match end.epoch.0 >= epoch && !pre_vote {
                true => Some(Ok(ReplyBody::Vote { granted })),
                false => one.asked(vote(epoch, candidate, up_to_date, pre_vote)),
            };
            assert_eq!(asked, Some(Ok(ReplyBody::Vote { granted })), "{what}");
            assert_eq!(one.role(), role, "{what}");
            let mut one = make();
            one.written();
            let behind = at(end.epoch.0.min(epoch - 1), end.offset.0 - 1);
            let asked = one.asked(vote(epoch, candidate, behind, pre_vote));
            let has_voted = name.contains("voted") && candidate == 2 && !pre_vote;
            let granted = has_voted;
            assert_eq!(asked, Some(Ok(ReplyBody::Vote { granted })), "{what}, behind");
        }
    }
}

#[test]
fn a_larger_epoch_ends_every_role() {
    let roles: [Make; 8] = [
        One::unattached,
        One::voted,
        One::prospective,
        One::candidate,
        One::leader,
        One::fetched,
        One::left,
        One::resigned,
    ];
    for make in roles {
        for pre_vote in [false, true] {
            let mut one = make();
            let role = one.role();
            let asked = one.asked(vote(9, 2, at(7, 12), pre_vote));
            assert_eq!(asked, Some(Ok(ReplyBody::Vote { granted: true })), "{role}");
            let voted = (!pre_vote).then_some(key(2));
            let election = ElectionState { epoch: LeaderEpoch(9), leader: NodeId::NONE, voted };
            assert_eq!((one.role(), one.raft.election()), ("unattached", election));
        }
        let mut one = make();
        let role = one.role();
        assert_eq!(one.asked(begin(9, 2)), Some(Ok(ReplyBody::BeginQuorumEpoch)), "{role}");
        assert_eq!((one.role(), one.raft.election().leader), ("follower", NodeId(2)));
    }
}

#[test]
fn a_vote_leaves_when_it_is_durable_and_a_prevote_writes_nothing() {
    let mut one = One::unattached();
    one.asks("cluster", vote(5, 2, at(4, 10), false));
    let [.., Output::WriteElection(state, written)] = one.out[..] else { panic!("{:?}", one.out) };
    assert_eq!((state.epoch, state.voted), (EPOCH, Some(key(2))));
    assert_eq!(one.replied(), None);
    let now = one.now();
    one.raft.on_election_written(now, written, &mut one.out);
    assert_eq!(one.replied(), Some(Ok(ReplyBody::Vote { granted: true })));

    let mut one = One::unattached();
    one.asks("cluster", vote(5, 2, at(4, 10), true));
    assert_eq!(one.replied(), Some(Ok(ReplyBody::Vote { granted: true })));
    one.wait(2_000);
    assert_eq!(one.role(), "prospective");
    let (_, body) = one.sent(2).expect("it asks");
    let asks = VoteRequest {
        epoch: EPOCH,
        candidate: key(1),
        voter: Some(key(2)),
        log_end: at(4, 10),
        pre_vote: true,
    };
    assert_eq!(body, RequestBody::Vote(asks));
    assert!(!one.out.iter().any(|out| matches!(out, Output::WriteElection(..))));
    // The candidate's own vote is one.
    one.is_answered(2, Ok(ReplyBody::Vote { granted: true }));
    assert_eq!((one.role(), one.raft.election().epoch.0), ("candidate", 6));
    let before = one.sent(3);
    one.written();
    assert_ne!(one.sent(3), before, "it asks once its own vote is durable");
}

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let wrong_directory = ReplicaKey { id: NodeId(1), directory: Uuid([9; 16]) };
    let to_other = |voter| {
        let (epoch, candidate, log_end) = (EPOCH, key(2), at(4, 10));
        RequestBody::Vote(VoteRequest { epoch, candidate, voter, log_end, pre_vote: false })
    };
    let begin_to = |voter| RequestBody::BeginQuorumEpoch {
        epoch: EPOCH,
        leader: NodeId(3),
        endpoints: Vec::new(),
        voter,
    };
    let end = |epoch| RequestBody::EndQuorumEpoch {
        epoch: LeaderEpoch(epoch),
        leader: NodeId(3),
        endpoints: Vec::new(),
        successors: Vec::new(),
    };
    let snapshot = |epoch| RequestBody::FetchSnapshot {
        epoch: LeaderEpoch(epoch),
        replica: key(2),
        id: SnapshotId { end_offset: Offset(7), epoch: LeaderEpoch(4) },
        position: 0,
        bytes_max: 100,
    };
    let fetching = |epoch, log_end| RequestBody::Fetch(fetch(LeaderEpoch(epoch), 2, log_end));
    let cases = [
        (to_other(Some(wrong_directory)), Refusal::InvalidVoterKey),
        (to_other(Some(key(2))), Refusal::InvalidVoterKey),
        (vote(4, 2, at(3, 10), false), Refusal::FencedLeaderEpoch),
        (vote(5, 2, at(5, 10), false), Refusal::InvalidRequest),
        (vote(5, 2, at(6, 10), true), Refusal::InvalidRequest),
        (vote(5, 2, at(4, -1), false), Refusal::InvalidRequest),
        (begin_to(Some(wrong_directory)), Refusal::InvalidVoterKey),
        (begin(4, 3), Refusal::FencedLeaderEpoch),
        (begin(5, 2), Refusal::InvalidRequest),
        (begin(5, 1), Refusal::InvalidRequest),
        (end(4), Refusal::FencedLeaderEpoch),
        (fetching(4, at(4, 10)), Refusal::FencedLeaderEpoch),
        (fetching(6, at(4, 10)), Refusal::UnknownLeaderEpoch),
        (fetching(5, at(4, 10)), Refusal::NotLeaderOrFollower),
        (fetching(5, at(6, 10)), Refusal::InvalidRequest),
        (fetching(5, at(4, -1)), Refusal::InvalidRequest),
        (snapshot(4), Refusal::FencedLeaderEpoch),
        (snapshot(6), Refusal::UnknownLeaderEpoch),
        (snapshot(5), Refusal::NotLeaderOrFollower),
        (RequestBody::RemoveVoter { voter: key(2) }, Refusal::NotLeaderOrFollower),
    ];
    for (body, refusal) in cases {
        let mut one = One::follower();
        assert_eq!(one.asked(body.clone()), Some(Err(refusal)), "{body:?}");
        one.asks("another", body);
        assert_eq!(one.replied(), Some(Err(Refusal::InconsistentClusterId)));
    }
}

#[test]
fn a_lost_election_leads_back_and_is_tried_again() {
    let mut one = One::follower();
    one.wait(2_000);
    assert_eq!(one.role(), "prospective", "the fetch timeout is over");
    one.is_answered(2, Ok(ReplyBody::Vote { granted: false }));
    assert_eq!(one.role(), "prospective", "number 3 has not said anything");
    one.is_answered(3, Ok(ReplyBody::Vote { granted: false }));
    assert_eq!((one.role(), one.raft.election().leader), ("follower", NodeId(3)));

    let mut one = One::prospective();
    one.is_answered(2, Err(Refusal::UnsupportedVersion));
    assert_eq!(one.role(), "candidate", "number 2 knows no PreVote");
    let mut one = One::prospective();
    let before = one.sent(2);
    one.wait(2_000);
    assert_eq!(one.role(), "prospective", "nobody has answered");
    assert_ne!(one.sent(2), before, "it asks again");
    let mut one = One::candidate();
    one.is_answered(2, Ok(ReplyBody::Vote { granted: false }));
    one.is_answered(3, Ok(ReplyBody::Vote { granted: false }));
    assert_eq!(one.role(), "candidate", "it lets others go first");
    one.wait(2_000);
    assert_eq!((one.role(), one.raft.election().epoch.0), ("prospective", 6));
}

#[test]
fn a_leader_begins_with_its_own_record_and_commits_nothing_without_it() {
    let mut one = One::leader();
    let first = one.out.iter().find_map(|out| match out {
        Output::Append(batch) => Some(batch.clone()),
        _ => None,
    });
    let first = first.expect("its epoch begins with a batch");
    assert_eq!((first.header().base_offset, first.header().leader_epoch.0), (Offset(10), 6));
    let records = control_records(&first).expect("can be read");
    let [ControlRecord::LeaderChange(change), ..] = &records[..] else { panic!("{first:?}") };
    let granting: Vec<_> = change.granting_voters.iter().map(|voter| voter.voter_id).collect();
    assert_eq!((change.leader_id, granting), (1, vec![1, 2]));
    let end = first.header().next_offset().0;
    // A majority has what earlier leaders wrote: that commits nothing.
    one.is_fetched(2, at(4, 10));
    one.is_fetched(3, at(4, 10));
    assert_eq!(one.high_watermark(), None);
    one.is_fetched(2, at(6, end));
    assert_eq!(one.high_watermark(), None, "its own record is not durable here");
    one.synced(end);
    assert_eq!(one.high_watermark(), Some(end));
    one.is_fetched(2, at(4, 10));
    assert_eq!(one.high_watermark(), Some(end), "it never falls");
}

#[test]
fn a_fetch_is_answered_as_its_log_stands_to_the_leaders() {
    let mut one = One::leader();
    let end = one.raft.end_offset().0;
    let range = |from, up_to| FetchContent::Range { from: Offset(from), up_to: Offset(up_to) };
    let cases = [
        (at(4, 10), range(10, end)),
        (at(2, 5), range(5, end)),
        (at(0, 0), range(0, end)),
        (at(4, 12), FetchContent::Diverging(at(4, 10))),
        (at(3, 7), FetchContent::Diverging(at(2, 5))),
        (at(2, 8), FetchContent::Diverging(at(2, 5))),
        (at(5, 10), FetchContent::Diverging(at(4, 10))),
    ];
    for (log_end, content) in cases {
        let expected = Some(fetched(None, content));
        assert_eq!(one.is_fetched(2, log_end), expected, "{log_end:?}");
    }
    // What has everything waits: for records, for the time to pass, for a higher high watermark.
    assert_eq!(one.is_fetched(3, at(6, end)), None);
    let now = one.now();
    one.raft.append(now, &[Bytes::from_static(b"v")], &mut one.out).expect("it leads");
    assert_eq!(one.replied(), Some(fetched(None, range(end, end + 1))));
    assert_eq!(one.is_fetched(3, at(6, end + 1)), None);
    one.wait(500);
    assert_eq!(one.replied(), Some(fetched(None, range(end + 1, end + 1))));
    let knows_nothing =
        FetchRequest { high_watermark: Some(None), ..fetch(LeaderEpoch(6), 3, at(6, end + 1)) };
    assert_eq!(one.asked(RequestBody::Fetch(knows_nothing)), None);
    one.synced(end + 1);
    assert_eq!(one.replied(), Some(fetched(Some(end + 1), range(end + 1, end + 1))));
    // Whoever waits is told when it leads no more.
    assert_eq!(one.is_fetched(3, at(6, end + 1)), None);
    let waiting = one.next_id;
    one.asked(begin(7, 2));
    one.next_id = waiting;
    assert_eq!(one.replied(), Some(Err(Refusal::NotLeaderOrFollower)));
}

#[test]
fn a_fetch_waits_for_a_bounded_time_and_not_for_a_closed_connection() {
    let mut one = One::leader();
    let end = one.raft.end_offset().0;
    let long = FetchRequest { max_wait_ms: i32::MAX, ..fetch(LeaderEpoch(6), 3, at(6, end)) };
    assert_eq!(one.asked(RequestBody::Fetch(long)), None);
    one.wait(1_999);
    assert_eq!(one.replied(), None);
    one.wait(1);
    assert!(one.replied().is_some(), "the fetch timeout is over");
    // Of those that wait one is forgotten.
    let gone = one.asks("cluster", RequestBody::Fetch(long));
    let stays = one.asks("cluster", RequestBody::Fetch(long));
    one.raft.forget(gone);
    one.wait(2_000);
    let is_answered =
        |id| one.out.iter().any(|out| matches!(out, Output::Reply { id: of, .. } if *of == id));
    assert_eq!((is_answered(gone), is_answered(stays)), (false, true));
    // The removal of a voter goes on without who asked for it.
    let (mut one, end) = established(1);
    let gone = one.asks("cluster", RequestBody::RemoveVoter { voter: key(3) });
    one.raft.forget(gone);
    one.synced(end + 1);
    one.is_fetched(2, at(6, end + 1));
    assert_eq!((one.high_watermark(), one.raft.voters().len()), (Some(end + 1), 2));
    assert!(!one.out.iter().any(|out| matches!(out, Output::Reply { id, .. } if *id == gone)));
}

#[test]
fn a_leader_without_a_majority_resigns_and_one_with_it_stays() {
    let mut one = One::leader();
    for _ in 0..5 {
        one.wait(2_900);
        one.is_fetched(3, at(4, 10));
        assert_eq!(one.role(), "leader");
    }
    one.wait(2_999);
    assert_eq!(one.role(), "leader");
    one.wait(1);
    assert_eq!(one.role(), "resigned");
    let (_, body) = one.sent(2).expect("it says so");
    let RequestBody::EndQuorumEpoch { successors, .. } = body else { panic!("{body:?}") };
    assert_eq!(successors, [key(3), key(2)], "the furthest first");
    one.is_answered(2, Ok(ReplyBody::EndQuorumEpoch));
    one.wait(2_000);
    assert_eq!(one.raft.election().epoch.0, 7, "it goes on in the next epoch");
}

#[test]
fn successors_stand_one_after_the_other() {
    for (successors, wait_ms) in [
        (vec![key(1), key(2)], 0),
        (vec![key(2), key(1)], 500),
        (vec![key(2), key(4), key(1)], 500),
        (vec![key(2), key(4), key(5), key(1)], 500),
        (vec![key(2), key(4), key(1), key(5)], 250),
        (vec![key(2)], 1_000),
    ] {
        let mut one = One::fetched();
        let end = RequestBody::EndQuorumEpoch {
            epoch: EPOCH,
            leader: NodeId(3),
            endpoints: endpoints(3),
            successors: successors.clone(),
        };
        assert_eq!(one.asked(end), Some(Ok(ReplyBody::EndQuorumEpoch)));
        if wait_ms > 0 {
            one.wait(wait_ms - 1);
            assert_eq!(one.role(), "follower", "{successors:?}");
            one.wait(1);
        }
        assert_eq!(one.role(), "prospective", "{successors:?}");
        // The leader that lets go votes too.
        one.is_answered(3, Ok(ReplyBody::Vote { granted: true }));
        assert_eq!(one.role(), "candidate", "{successors:?}");
    }
}

#[test]
fn a_leader_that_has_gone_is_not_waited_for() {
    let mut one = One::left();
    assert_eq!(one.role(), "follower", "not all stand at once");
    one.wait(200);
    assert_eq!((one.role(), one.raft.election().epoch), ("prospective", EPOCH));
    // Number 2 still has the leader: nothing has happened.
    one.is_answered(2, Ok(ReplyBody::Vote { granted: false }));
    assert_eq!((one.role(), one.raft.election().leader), ("follower", NodeId(3)));
    let before = one.sent(3);
    let (_, body) = one.last_sent();
    assert!(matches!(body, RequestBody::Fetch(_)), "it asks the other one, {body:?}");
    one.wait(20);
    one.is_answered(2, Err(Refusal::NotLeaderOrFollower));
    assert_ne!(one.sent(3), before, "it asks its leader again, after a moment");
    // A leader that answers after all is not left.
    let mut one = One::left();
    one.is_answered(2, Err(Refusal::NotLeaderOrFollower));
    one.wait(20);
    assert_eq!(one.role(), "follower", "by chance it waits longer");
    one.is_answered(3, fetched(None, FetchContent::Records(Bytes::new())));
    one.wait(1_000);
    assert_eq!(one.role(), "follower");
    // Of another than its own leader it knows nothing.
    let mut one = One::fetched();
    let now = one.now();
    one.raft.leader_gone(now, NodeId(2), &mut one.out);
    one.wait(1_000);
    assert_eq!(one.role(), "follower");
}

#[test]
fn a_follower_claims_what_is_durable_and_appends_what_goes_on() {
    let mut one = One::follower();
    let bytes = |batches: &[Batch]| {
        let all: Vec<u8> = batches.iter().flat_map(|batch| batch.bytes().to_vec()).collect();
        FetchContent::Records(Bytes::from(all))
    };
    one.is_answered(3, fetched(Some(7), bytes(&[batch(10, 12, 4), batch(12, 13, 5)])));
    assert_eq!((one.raft.end_offset(), one.high_watermark()), (Offset(13), Some(7)));
    let (before, _) = one.sent(3).expect("it fetches");
    one.synced(12);
    assert_eq!(one.sent(3).expect("it fetches").0, before, "not all of it is durable");
    one.synced(13);
    let (_, body) = one.sent(3).expect("it fetches on");
    let RequestBody::Fetch(next) = body else { panic!("{body:?}") };
    assert_eq!((next.log_end, next.high_watermark), (at(5, 13), Some(Some(Offset(7)))));

    let mut flipped = batch(13, 14, 5).bytes().to_vec();
    flipped[65] ^= 1;
    let bad = [
        FetchContent::Records(Bytes::from(flipped)),
        bytes(&[batch(14, 15, 5)]),
        bytes(&[batch(12, 14, 5)]),
        bytes(&[batch(13, 14, 4)]),
        bytes(&[batch(13, 14, 6)]),
    ];
    for content in bad {
        one.is_answered(3, fetched(Some(14), content.clone()));
        assert_eq!((one.raft.end_offset(), one.high_watermark()), (Offset(13), Some(7)));
        one.wait(20);
    }
}

#[test]
fn a_peer_that_says_nothing_keeps_no_follower_from_its_leader() {
    let mut one = One::follower();
    let (first, _) = one.sent(3).expect("it fetches");
    one.hears(3, None);
    let (other, body) = one.sent(2).expect("another one may know of a new leader");
    assert!(matches!(body, RequestBody::Fetch(_)), "{body:?}");
    // Number 2 is silent, and the leader is back.
    one.wait(20);
    assert_ne!(one.sent(3).expect("it fetches").0, first);
    let records = |batch: Batch| FetchContent::Records(batch.bytes().clone());
    one.is_answered(3, fetched(Some(10), records(batch(10, 12, 5))));
    one.synced(12);
    for _ in 0..5 {
        one.wait(400);
        one.is_answered(3, fetched(Some(10), FetchContent::Records(Bytes::new())));
    }
    assert_eq!((one.role(), one.raft.log.end()), ("follower", at(5, 12)));
    // What it was asked long ago is of another log than there is now.
    let id = SnapshotId { end_offset: Offset(40), epoch: LeaderEpoch(5) };
    let late =
        [FetchContent::Diverging(at(4, 10)), FetchContent::Snapshot(id), records(batch(12, 13, 5))];
    for content in late {
        let mut one = One::follower();
        one.hears(3, None);
        one.wait(20);
        one.is_answered(3, fetched(Some(10), records(batch(10, 12, 5))));
        one.synced(12);
        assert_eq!(one.sent(2).expect("it was asked").0, other);
        one.is_answered(2, fetched(None, content));
        assert_eq!(one.raft.log.end(), at(5, 12));
        one.is_answered(3, fetched(None, FetchContent::Records(Bytes::new())));
        assert!(matches!(one.last_sent().1, RequestBody::Fetch(_)), "{:?}", one.last_sent());
    }
    // Yet it is heard when it knows of a new leader.
    let mut one = One::follower();
    one.hears(3, None);
    one.wait(20);
    let known = Known { epoch: LeaderEpoch(6), leader: Some(NodeId(2)), endpoints: Vec::new() };
    one.hears(2, Some(Reply { known, body: Err(Refusal::FencedLeaderEpoch) }));
    assert_eq!((one.role(), one.raft.election().leader), ("follower", NodeId(2)));
}

#[test]
fn a_diverging_log_is_cut_off_but_never_below_the_high_watermark() {
    let mut one = One::follower();
    one.is_answered(3, fetched(Some(6), FetchContent::Records(Bytes::new())));
    one.is_answered(3, fetched(None, FetchContent::Diverging(at(4, 8))));
    assert_eq!(one.out.last(), Some(&Output::Truncate(Offset(8))));
    assert_eq!(one.raft.log.end(), at(4, 8));
    let (before, _) = one.sent(3).expect("it fetched");
    one.synced(10);
    assert_eq!(one.sent(3).expect("it fetched").0, before, "the cut is not done");
    let now = one.now();
    one.raft.on_truncated(now, &mut one.out);
    one.is_answered(3, fetched(None, FetchContent::Diverging(at(2, 5))));
    assert_eq!((one.raft.log.end(), one.role()), (at(4, 8), "follower"));
    assert_eq!(one.high_watermark(), Some(6));
}

#[test]
fn voters_hold_from_their_record_on_and_go_with_it() {
    let mut one = One::follower();
    let voters = VoterSet::new(vec![voter(1), voter(2), voter(3), voter(4)]);
    let change = control::voters_change(Offset(10), EPOCH, 0, None, &voters);
    let bytes = change.bytes().clone();
    one.is_answered(3, fetched(None, FetchContent::Records(bytes)));
    assert_eq!((one.raft.voters().len(), one.raft.end_offset()), (4, Offset(11)));
    one.synced(11);
    one.is_answered(3, fetched(None, FetchContent::Diverging(at(4, 10))));
    assert_eq!((one.raft.voters().len(), one.raft.end_offset()), (3, Offset(10)));
}

#[test]
fn a_snapshot_takes_the_place_of_a_log_that_is_behind() {
    let mut one = One::follower();
    let id = SnapshotId { end_offset: Offset(40), epoch: LeaderEpoch(5) };
    one.is_answered(3, fetched(None, FetchContent::Snapshot(id)));
    let part = |position, length| {
        let content = SnapshotContent::Bytes(Bytes::from(vec![1; length]));
        Ok(ReplyBody::FetchSnapshot { id, size: 10, position, content })
    };
    one.is_answered(3, part(0, 6));
    let (_, body) = one.sent(3).expect("it fetches on");
    assert!(matches!(body, RequestBody::FetchSnapshot { position: 6, .. }), "{body:?}");
    one.is_answered(3, part(6, 4));
    assert_eq!(one.out.last(), Some(&Output::InstallSnapshot(id)));
    one.wait(10_000);
    assert_eq!(one.role(), "follower", "it does not stand meanwhile");
    // It votes, though, by the log that it had.
    let mut voting = One { raft: one.raft.clone(), out: one.out.clone(), ..one };
    for (log_end, granted) in [(at(4, 9), false), (at(4, 10), true)] {
        let asked = voting.asked(vote(6, 2, log_end, false));
        assert_eq!(asked, Some(Ok(ReplyBody::Vote { granted })), "{log_end:?}");
    }
    let now = one.now();
    let voters = VoterSet::new(vec![voter(1), voter(2)]);
    one.raft.on_snapshot_installed(now, (id, 10), 1, Some(voters), &mut one.out);
    assert_eq!((one.raft.log.end(), one.high_watermark()), (at(5, 40), Some(40)));
    assert_eq!(one.raft.voters().len(), 2);

    // One that is gone meanwhile is asked for anew, and so is one whose parts do not fit.
    for answer in [Err(Refusal::SnapshotNotFound), part(3, 4), part(0, 11)] {
        let mut one = One::follower();
        one.is_answered(3, fetched(None, FetchContent::Snapshot(id)));
        one.is_answered(3, answer);
        one.wait(20);
        let (_, body) = one.last_sent();
        assert!(matches!(body, RequestBody::Fetch(_)), "{body:?}");
    }
    // A snapshot of less than there is would lose records.
    let mut one = One::follower();
    let old = SnapshotId { end_offset: Offset(9), epoch: LeaderEpoch(4) };
    one.is_answered(3, fetched(None, FetchContent::Snapshot(old)));
    let (_, body) = one.last_sent();
    assert!(matches!(body, RequestBody::Fetch(_)), "{body:?}");
}

#[test]
fn a_leader_gives_the_parts_of_snapshots_that_it_has() {
    let mut one = One::leader();
    let id = SnapshotId { end_offset: Offset(7), epoch: LeaderEpoch(4) };
    let fetching = |id, position| RequestBody::FetchSnapshot {
        epoch: LeaderEpoch(6),
        replica: key(2),
        id,
        position,
        bytes_max: 50,
    };
    assert_eq!(one.asked(fetching(id, 0)), Some(Err(Refusal::SnapshotNotFound)));
    one.raft.keep_snapshot(id, 80);
    let content = SnapshotContent::UpTo(50);
    let part = ReplyBody::FetchSnapshot { id, size: 80, position: 50, content };
    assert_eq!(one.asked(fetching(id, 50)), Some(Ok(part)));
    for position in [-1, 80] {
        assert_eq!(one.asked(fetching(id, position)), Some(Err(Refusal::PositionOutOfRange)));
    }
    assert_eq!(one.asked(fetching(SnapshotId::BOOTSTRAP, 0)), Some(Err(Refusal::SnapshotNotFound)));
    // Whoever has nothing gets the newest, and so does who is behind the log's start.
    assert_eq!(one.is_fetched(2, at(0, 0)), Some(fetched(None, FetchContent::Snapshot(id))));
    one.raft.drop_snapshot(SnapshotId::BOOTSTRAP);
    assert_eq!(one.raft.log.start(), at(4, 7));
    let (log_start, content) = (Offset(7), FetchContent::Snapshot(id));
    let sent_back = ReplyBody::Fetch { high_watermark: None, log_start, content };
    assert_eq!(one.is_fetched(2, at(2, 5)), Some(Ok(sent_back)));
}

/// A leader whose epoch is established; everybody has everything.
fn established(kraft_version: i16) -> (One, i64) {
    let mut one = One::leader_with(kraft_version);
    let end = one.raft.end_offset().0;
    one.synced(end);
    one.is_fetched(2, at(6, end));
    assert_eq!(one.high_watermark(), Some(end));
    (one, end)
}

fn add(id: i32) -> RequestBody {
    add_at(id, endpoints(id))
}

fn add_at(id: i32, endpoints: Vec<VoterEndpoint>) -> RequestBody {
    RequestBody::AddVoter { voter: key(id), endpoints, ack_when_committed: true }
}

#[test]
fn a_voter_is_added_when_it_has_caught_up_and_can_do_the_version() {
    for (fetched_up_to, versions, refusal) in [
        (None, Some((0, 1)), Some(Refusal::RequestTimedOut)),
        (Some(5), Some((0, 1)), Some(Refusal::RequestTimedOut)),
        (Some(-1), Some((0, 0)), Some(Refusal::InvalidRequest)),
        (Some(-1), None, Some(Refusal::InvalidRequest)),
        (Some(-1), Some((0, 1)), None),
    ] {
        let (mut one, end) = established(1);
        match fetched_up_to {
            None => {}
            Some(-1) => drop(one.is_fetched(4, at(6, end))),
            Some(_) => drop(one.is_fetched(4, at(2, 5))),
        }
        one.asks("cluster", add(4));
        assert_eq!((one.replied(), one.raft.joining()), (None, Some(NodeId(4))));
        assert_eq!(one.raft.endpoints_of(NodeId(4)), endpoints(4));
        one.is_answered(4, Ok(ReplyBody::ApiVersions { kraft_versions: versions }));
        let Some(refusal) = refusal else {
            // Three of four are a majority now.
            assert_eq!((one.replied(), one.raft.voters().len()), (None, 4));
            let adding = one.next_id;
            one.synced(end + 1);
            one.is_fetched(2, at(6, end + 1));
            assert_eq!(one.high_watermark(), Some(end));
            one.is_fetched(4, at(6, end + 1));
            one.next_id = adding;
            assert_eq!(one.high_watermark(), Some(end + 1));
            assert_eq!(one.replied(), Some(Ok(ReplyBody::VotersChanged)));
            continue;
        };
        assert_eq!(one.replied(), Some(Err(refusal)), "{fetched_up_to:?} {versions:?}");
        assert_eq!(one.raft.voters().len(), 3);
    }
}

#[test]
fn changes_of_the_voters_are_refused_as_kafka_refuses_them() {
    let remove = |id| RequestBody::RemoveVoter { voter: key(id) };
    let no_directory = ReplicaKey { id: NodeId(2), directory: Uuid::ZERO };
    let update = |epoch, id, kraft_versions| RequestBody::UpdateVoter {
        epoch: LeaderEpoch(epoch),
        voter: Voter { kraft_versions, ..voter(id) },
    };
    let elsewhere =
        vec![VoterEndpoint { listener: "PLAINTEXT".into(), host: "localhost".into(), port: 4 }];
    let mut early = One::leader();
    assert_eq!(early.asked(remove(2)), Some(Err(Refusal::RequestTimedOut)), "no high watermark");
    let (mut old, _) = established(0);
    assert_eq!(old.asked(remove(2)), Some(Err(Refusal::UnsupportedVersion)));
    let cases = [
        (add(2), Err(Refusal::DuplicateVoter)),
        (add_at(4, Vec::new()), Err(Refusal::InvalidRequest)),
        (add_at(4, elsewhere), Err(Refusal::InvalidRequest)),
        (remove(4), Err(Refusal::VoterNotFound)),
        (RequestBody::RemoveVoter { voter: no_directory }, Err(Refusal::InvalidRequest)),
        (update(5, 2, (0, 1)), Err(Refusal::FencedLeaderEpoch)),
        (update(7, 2, (0, 1)), Err(Refusal::UnknownLeaderEpoch)),
        (update(6, 4, (0, 1)), Err(Refusal::VoterNotFound)),
        (update(6, 2, (0, 0)), Err(Refusal::InvalidRequest)),
        (update(6, 2, (1, 0)), Err(Refusal::InvalidRequest)),
        (update(6, 2, (0, 1)), Ok(ReplyBody::VotersChanged)),
        (update(6, 2, (0, 2)), Ok(ReplyBody::VotersChanged)),
        (update(6, 3, (0, 2)), Err(Refusal::RequestTimedOut)),
        (remove(2), Err(Refusal::RequestTimedOut)),
    ];
    let (mut one, _) = established(1);
    for (body, expected) in cases {
        assert_eq!(one.asked(body.clone()), Some(expected), "{body:?}");
    }
}

#[test]
fn a_leader_that_removes_itself_leads_until_that_is_committed() {
    let (mut one, end) = established(1);
    one.asks("cluster", RequestBody::RemoveVoter { voter: key(1) });
    let removing = one.next_id;
    assert_eq!((one.raft.is_voter(), one.role()), (false, "leader"));
    assert_eq!(
        one.asked(RequestBody::RemoveVoter { voter: key(2) }),
        Some(Err(Refusal::RequestTimedOut))
    );
    one.synced(end + 1);
    one.is_fetched(2, at(6, end + 1));
    assert_eq!(one.high_watermark(), Some(end), "the leader is no part of the majority");
    one.is_fetched(3, at(6, end + 1));
    one.next_id = removing;
    assert_eq!(one.replied(), Some(Ok(ReplyBody::VotersChanged)));
    assert_eq!((one.high_watermark(), one.role()), (Some(end + 1), "resigned"));
    one.wait(2_000);
    assert_eq!(one.role(), "unattached");
    one.wait(5_000);
    assert_eq!(one.role(), "unattached", "it does not vote");
}

#[test]
fn the_version_is_raised_once_every_voter_has_said_what_it_can_do() {
    let (mut one, end) = established(0);
    let upgrade = |one: &mut One, validate_only| {
        let now = one.now();
        one.raft.upgrade_kraft_version(now, 1, validate_only, &mut one.out)
    };
    assert_eq!(upgrade(&mut one, false), Err(Refusal::InvalidUpdateVersion));
    for id in [2, 3] {
        let body = RequestBody::UpdateVoter { epoch: LeaderEpoch(6), voter: voter(id) };
        assert_eq!(one.asked(body), Some(Ok(ReplyBody::VotersChanged)));
    }
    assert_eq!(upgrade(&mut one, true), Ok(false), "it is only asked");
    assert_eq!(one.raft.kraft_version(), 0);
    assert_eq!(upgrade(&mut one, false), Ok(true));
    assert_eq!((one.raft.kraft_version(), one.raft.end_offset().0), (1, end + 2));
    assert!(one.raft.voters().contains(key(3)) && one.raft.is_voter());
    assert_eq!(upgrade(&mut one, false), Ok(false));
    one.synced(end + 2);
    one.is_fetched(3, at(6, end + 2));
    assert_eq!(one.high_watermark(), Some(end + 2));
}

#[test]
fn answers_that_come_too_late_say_nothing() {
    let mut one = One::prospective();
    let (id, _) = one.sent(2).expect("it asks");
    one.wait(2_000);
    let known = Known { epoch: EPOCH, ..Known::default() };
    let reply = Reply { known, body: Ok(ReplyBody::Vote { granted: true }) };
    let now = one.now();
    one.raft.on_response(now, Peer::Node(NodeId(2)), id, Some(reply), &mut one.out);
    assert_eq!(one.role(), "prospective", "it is in the next round");
    assert!(one.raft.next_timer(now.mono) > now.mono, "it rests until something happens");
    assert!(one.raft.next_timer(now.mono) < now.mono + Duration::from_secs(10));
}
