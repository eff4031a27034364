//! How the machines of one core reach those of the others, and the connections handed between.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use api::{Event, Lane, ShardId};
use mesh::{Full, LaneReceiver, LaneSender, SlotReceiver, SlotSender, lane, slot};
use ring::Socket;

use crate::purpose::Seat;

/// Connections under way from one core to another; more wait on the side that hands them over.
const HAND_OVER_SLOTS: usize = 256;

/// A connection on its way to the shard that will serve it.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) seat: Seat,
    pub(crate) socket: Arc<Socket>,
    pub(crate) listener: u16,
    pub(crate) peer: SocketAddr,
}

/// The way from one machine to another.
enum Link<M> {
    /// To a machine of the same core: a queue until the next turn.
    Near {
        seat: Seat,
        requests: usize,
        replies: usize,
        posted: Option<M>,
    },
    Far {
        thread: usize,
        requests: LaneSender<M>,
        replies: LaneSender<M>,
        newest: SlotSender<M>,
    },
}

/// The way that messages of one machine elsewhere come in.
struct Incoming<M> {
    seat: Seat,
    from: ShardId,
    requests: LaneReceiver<M>,
    replies: LaneReceiver<M>,
    newest: SlotReceiver<M>,
}

/// The way that connections go from this core to another.
struct HandOverLane {
    thread: usize,
    lane: LaneSender<HandedOver>,
    waiting: VecDeque<HandedOver>,
}

/// Where a shard is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) thread: usize,
    pub(crate) seat: Seat,
}

/// All ways that lead to and from the machines of one core.
pub(crate) struct Links<M> {
    thread: usize,
    places: Arc<[Place]>,
    slots: usize,
    /// By seat, then by the shard that a message goes to.
    out: Vec<Vec<Link<M>>>,
    incoming: Vec<Incoming<M>>,
    hand_over: Vec<HandOverLane>,
    handed_over: Vec<LaneReceiver<HandedOver>>,
    /// The cores that were sent something in this turn.
    touched: Vec<bool>,
}

/// Lays the ways between all machines: one [`Links`] a core. `shards` are the machines of each.
///
/// # Panics
/// If the shards are not numbered from 0 without a gap.
pub(crate) fn lay<M: Send>(shards: &[Vec<ShardId>], slots: usize) -> Vec<Links<M>> {
    let places = places(shards);
    let mut all: Vec<Links<M>> = (0..shards.len())
        .map(|thread| Links {
            thread,
            places: Arc::clone(&places),
            slots,
            out: shards[thread].iter().map(|_| Vec::new()).collect(),
            incoming: Vec::new(),
            hand_over: Vec::new(),
            handed_over: Vec::new(),
            touched: vec![false; shards.len()],
        })
        .collect();
    for (thread, own) in shards.iter().enumerate() {
        for (seat, from) in own.iter().enumerate() {
            for to in places.iter() {
                let link = link(&mut all, *from, thread, *to, slots);
                all[thread].out[seat].push(link);
            }
        }
        for other in (0..shards.len()).filter(|other| *other != thread) {
            let (sender, receiver) = lane(HAND_OVER_SLOTS);
            let waiting = VecDeque::new();
            all[thread].hand_over.push(HandOverLane { thread: other, lane: sender, waiting });
            all[other].handed_over.push(receiver);
        }
    }
    all
}

fn places(shards: &[Vec<ShardId>]) -> Arc<[Place]> {
    let mut places: Vec<(ShardId, Place)> = Vec::new();
    for (thread, own) in shards.iter().enumerate() {
        for (seat, shard) in own.iter().enumerate() {
            let seat = Seat::try_from(seat).expect("a core has few machines");
            places.push((*shard, Place { thread, seat }));
        }
    }
    places.sort_by_key(|(shard, _)| *shard);
    let dense = places.iter().enumerate().all(|(index, (shard, _))| usize::from(shard.0) == index);
    assert!(dense, "the shards of a node are numbered from 0 without a gap: {places:?}");
    places.into_iter().map(|(_, place)| place).collect()
}

fn link<M: Send>(
    all: &mut [Links<M>],
    from: ShardId,
    thread: usize,
    to: Place,
    slots: usize,
) -> Link<M> {
    if to.thread == thread {
        return Link::Near { seat: to.seat, requests: 0, replies: 0, posted: None };
    }
    let (requests, requests_in) = lane(slots);
    let (replies, replies_in) = lane(slots);
    let (newest, newest_in) = slot();
    all[to.thread].incoming.push(Incoming {
        seat: to.seat,
        from,
        requests: requests_in,
        replies: replies_in,
        newest: newest_in,
    });
    Link::Far { thread: to.thread, requests, replies, newest }
}

impl<M> Links<M> {
    /// Where `shard` is served.
    ///
    /// # Panics
    /// If the node has no such shard: a bug of the machine that names it.
    pub(crate) fn place(&self, shard: ShardId) -> Place {
        let place = self.places.get(usize::from(shard.0));
        *place.unwrap_or_else(|| panic!("this node has no shard {shard}"))
    }

    /// Sends a message. One to a machine of this core goes to `near`, the events of the next turn.
    ///
    /// # Panics
    /// If the lane is full: the sender's account of its credits is wrong.
    pub(crate) fn send(
        &mut self,
        (seat, from): (Seat, ShardId),
        to: ShardId,
        which: Lane,
        message: M,
        near: &mut Vec<(Seat, Event<M>)>,
    ) {
        let full = || panic!("the {which:?} lane from shard {from} to shard {to} overflows");
        match &mut self.out[usize::from(seat)][usize::from(to.0)] {
            Link::Near { seat, requests, replies, .. } => {
                let count = if which == Lane::Request { requests } else { replies };
                if *count == self.slots {
                    full();
                }
                *count += 1;
                near.push((*seat, Event::Mesh { from, message }));
            }
            Link::Far { thread, requests, replies, .. } => {
                let lane = if which == Lane::Request { requests } else { replies };
                if lane.put(message).is_err() {
                    full();
                }
                self.touched[*thread] = true;
            }
        }
    }

    /// Puts a message into the latest-wins slot towards another machine.
    pub(crate) fn post(&mut self, seat: Seat, to: ShardId, message: M) {
        match &mut self.out[usize::from(seat)][usize::from(to.0)] {
            Link::Near { posted, .. } => *posted = Some(message),
            Link::Far { thread, newest, .. } => {
                newest.post(message);
                self.touched[*thread] = true;
            }
        }
    }

    /// Hands a connection to another core, behind those that wait for room.
    pub(crate) fn hand_over(&mut self, thread: usize, handed_over: HandedOver) {
        let lane = self.hand_over.iter_mut().find(|lane| lane.thread == thread);
        lane.expect("there is one to each other core").waiting.push_back(handed_over);
    }

    /// Ends a turn: what was posted near is an event of the next one, connections that waited for
    /// room move on, and `wake` is called for each core that was sent something.
    pub(crate) fn end_of_turn(
        &mut self,
        shards: &[ShardId],
        near: &mut Vec<(Seat, Event<M>)>,
        mut wake: impl FnMut(usize),
    ) {
        for (links, from) in self.out.iter_mut().zip(shards) {
            for link in links {
                let Link::Near { seat, requests, replies, posted } = link else { continue };
                (*requests, *replies) = (0, 0);
                let message = posted.take();
                near.extend(message.map(|message| (*seat, Event::Mesh { from: *from, message })));
            }
        }
        for lane in &mut self.hand_over {
            while let Some(next) = lane.waiting.pop_front() {
                match lane.lane.put(next) {
                    Ok(()) => self.touched[lane.thread] = true,
                    Err(Full(next)) => {
                        lane.waiting.push_front(next);
                        break;
                    }
                }
            }
        }
        for (thread, touched) in self.touched.iter_mut().enumerate() {
            if std::mem::take(touched) {
                wake(thread);
            }
        }
    }

    /// Whether connections wait for room in the lane to another core.
    pub(crate) fn is_hand_over_waiting(&self) -> bool {
        self.hand_over.iter().any(|lane| !lane.waiting.is_empty())
    }

    /// Whether nothing has come in.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.handed_over.iter_mut().all(LaneReceiver::is_empty)
            && self.incoming.iter_mut().all(|incoming| {
                incoming.requests.is_empty()
                    && incoming.replies.is_empty()
                    && incoming.newest.is_empty()
            })
    }

    /// Takes the messages that are there now.
    pub(crate) fn take_messages(&mut self, events: &mut Vec<(Seat, Event<M>)>) {
        for Incoming { seat, from, requests, replies, newest } in &mut self.incoming {
            let (seat, from) = (*seat, *from);
            let mut arrived = |message| events.push((seat, Event::Mesh { from, message }));
            for lane in [replies, requests] {
                for _ in 0..lane.len() {
                    lane.take().into_iter().for_each(&mut arrived);
                }
            }
            newest.take().into_iter().for_each(&mut arrived);
        }
    }

    /// Takes the connections that were handed to this core.
    pub(crate) fn take_handed_over(&mut self, list: &mut Vec<HandedOver>) {
        for lane in &mut self.handed_over {
            for _ in 0..lane.len() {
                list.extend(lane.take());
            }
        }
    }

    /// The index of this core.
    pub(crate) fn thread(&self) -> usize {
        self.thread
    }
}
