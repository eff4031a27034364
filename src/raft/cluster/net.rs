//! The network: messages take their time, get lost, come twice, and one way may be cut while the
//! other is not.

use std::collections::BTreeSet;

use base::Offset;
use bytes::{Bytes, BytesMut};

use super::{Cluster, Event, MS, Node, NodeAt};
use crate::*;

/// The size of every snapshot, and of a part of one.
pub(super) const SNAPSHOT_BYTES: u64 = 20;
const SNAPSHOT_PART_BYTES: u64 = 7;
/// The most batches that a Fetch brings.
const FETCHED_BATCHES_MAX: usize = 2;

pub(super) struct Net {
    cuts: BTreeSet<(NodeAt, NodeAt)>,
    /// Whether messages get lost and come twice.
    is_bad: bool,
    next_id: u64,
}

impl Net {
    pub(super) fn new(is_bad: bool) -> Self {
        Self { cuts: BTreeSet::new(), is_bad, next_id: 0 }
    }

    pub(super) fn heal(&mut self) {
        self.is_bad = false;
        self.cuts.clear();
    }

    pub(super) fn heal_cuts(&mut self) {
        self.cuts.clear();
    }

    pub(super) fn cut(&mut self, from: NodeAt, to: NodeAt) {
        self.cuts.insert((from, to));
    }

    pub(super) fn next_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }
}

impl Cluster {
    pub(super) fn send(&mut self, from: NodeAt, peer: Peer, id: RequestId, request: Request) {
        self.checks.request_leaves(self.nodes[from].key, &request);
        let to = match peer {
            Peer::Node(node) => usize::try_from(node.0 - 1).expect("they are numbered from 1"),
            Peer::Bootstrap(at) => at,
        };
        let life = self.nodes[from].life;
        if to == from {
            // A replica that asks itself learns nothing.
            return self.after(MS, Event::Answer { to: from, life, peer, id, reply: None });
        }
        for wait in self.waits(from, to) {
            let request = request.clone();
            self.after(wait, Event::Request { to, from, life, peer, id, request });
        }
    }

    pub(super) fn request_arrives(
        &mut self,
        to: NodeAt,
        source: (NodeAt, u32, Peer, RequestId),
        request: &Request,
    ) {
        let (from, life, peer, id) = source;
        if self.nodes[to].raft.is_none() {
            // Nobody listens there; a machine that is lost says not even that.
            if self.random.chance(70) {
                self.after(MS, Event::Answer { to: from, life, peer, id, reply: None });
            }
            return;
        }
        let inbound = self.net.next_id();
        self.nodes[to].inbound.insert(inbound, source);
        if let RequestBody::Vote(vote) = &request.body
            && !vote.pre_vote
        {
            self.votes_asked.insert(inbound, vote.epoch);
        }
        self.step(to, |raft, now, out| raft.on_request(now, inbound, request, out));
    }

    pub(super) fn answer(&mut self, from: NodeAt, inbound: RequestId, reply: Reply) {
        let source = self.nodes[from].inbound.remove(&inbound);
        let Some((to, life, peer, id)) = source else { return };
        let granted = matches!(reply.body, Ok(ReplyBody::Vote { granted: true }));
        if let Some(epoch) = self.votes_asked.remove(&inbound).filter(|_| granted) {
            self.checks.votes_for(self.nodes[from].key, epoch, self.nodes[to].key);
        }
        let Some(reply) = self.fill(from, reply) else {
            return self.after(MS, Event::Answer { to, life, peer, id, reply: None });
        };
        for wait in self.waits(from, to) {
            let reply = Some(reply.clone());
            self.after(wait, Event::Answer { to, life, peer, id, reply });
        }
    }

    /// Reads what the answer brings; nothing where that is gone.
    fn fill(&mut self, from: NodeAt, mut reply: Reply) -> Option<Reply> {
        let cuts_batch = self.random.chance(10);
        match &mut reply.body {
            Ok(ReplyBody::Fetch { content, .. }) => {
                if let FetchContent::Range { from: offset, up_to } = *content {
                    let bytes = read(&self.nodes[from], offset, up_to, cuts_batch)?;
                    *content = FetchContent::Records(bytes);
                }
            }
            Ok(ReplyBody::FetchSnapshot { size, position, content, .. }) => {
                let length = (*size - *position).min(SNAPSHOT_PART_BYTES);
                let length = usize::try_from(length).expect("small");
                *content = SnapshotContent::Bytes(Bytes::from(vec![7; length]));
            }
            _ => {}
        }
        Some(reply)
    }

    /// After which times a message arrives; not at all if it is lost.
    fn waits(&mut self, from: NodeAt, to: NodeAt) -> Vec<u64> {
        if self.net.cuts.contains(&(from, to)) || (self.net.is_bad && self.random.chance(4)) {
            return Vec::new();
        }
        let copies = if self.net.is_bad && self.random.chance(4) { 2 } else { 1 };
        let slow = if self.net.is_bad && self.random.chance(3) { 2_500_000 } else { 3_000 };
        let slow = if self.hunts { slow / 2 + 10_000 } else { slow };
        (0..copies).map(|_| self.between(100, slow)).collect()
    }
}

fn read(node: &Node, from: Offset, up_to: Offset, cuts_batch: bool) -> Option<Bytes> {
    if from < node.disk.start() {
        return None;
    }
    let mut bytes = BytesMut::new();
    let is_meant = |batch: &&records::Batch| {
        batch.header().base_offset >= from && batch.header().next_offset() <= up_to
    };
    for batch in node.disk.log.iter().filter(is_meant).take(FETCHED_BATCHES_MAX) {
        bytes.extend_from_slice(batch.bytes());
    }
    if cuts_batch && bytes.len() > 100 {
        bytes.truncate(bytes.len() - 5);
    }
    Some(bytes.freeze())
}
