//! Requests of clients that are under way.

use api::{Part, SocketId};
use base::{TimerId, Token};
use intercom::QuorumReply;
use protocol::ApiKey;

use crate::apis::{creation, describe_log_dirs, fetch};
use crate::shard::{Io, Shard};
use crate::spread::SpreadCall;

/// Calls of one shard at once. At the limit no connection starts another one.
pub(crate) const CALLS_MAX: usize = 1 << 16;

/// What the answer to a request has to repeat of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) api_key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// One request under way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) socket: SocketId,
    pub(crate) head: Head,
    pub(crate) stage: Stage,
    pub(crate) timer: Option<TimerId>,
}

/// How far a request has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its handler has not said what it waits for.
    Started,
    /// It waits for the quorum shard, whose answer this function passes on.
    Quorum(Forwarded),
    /// It waits for the owners of its partitions.
    Spread(Box<dyn SpreadCall>),
    Fetch(Box<fetch::State>),
    DescribeLogDirs(describe_log_dirs::State),
    /// It waits for topics to be made.
    Creation(Box<creation::State>),
    /// The answer waits for those of earlier requests.
    Answered(Vec<Part>),
    /// It is done and there is no answer (acks=0).
    Silent,
}

/// Passes on what the quorum shard answered.
pub(crate) type Forwarded = fn(&mut Shard, &mut Io<'_>, Token, QuorumReply);

/// A question of a call to another shard, and which of the call's partitions it is about.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) call: Token,
    pub(crate) slots: Vec<usize>,
}
