//! Topics that are made because a client, or the broker itself, needs them: the call goes on when
//! the image has them, or when they cannot be made.

use base::{Duration, ShardId, Token};
use intercom::{QuorumReply, QuorumRequest, Reply, Request};
use protocol::create_topics_request::CreatableTopic;
use protocol::{CreateTopicsRequest, ErrorCode, RequestFrame, Str};

use crate::shard::{Io, Shard, Waiting};

/// How long a call waits for topics to be made, at most.
const CREATION_WAIT: Duration = Duration::from_secs(5);

/// Goes on with a call, whether the topics are there or not.
type Resume = fn(&mut Shard, &mut Io<'_>, Token, &RequestFrame);

/// A call that waits for topics to be made.
#[derive(Debug)]
struct Creation {
    frame: RequestFrame,
    resume: Resume,
    /// The topics that are being made.
    awaited: Vec<Str>,
}

/// Has topics made, and goes on with the call afterwards.
pub(crate) fn create(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
    topics: Vec<CreatableTopic>,
    resume: Resume,
) {
    let awaited = topics.iter().map(|topic| topic.name.clone()).collect();
    let creation = Creation { frame: frame.clone(), resume, awaited };
    shard.wait(call, Box::new(creation));
    shard.set_timer(call, io.now.mono + CREATION_WAIT);
    shard.await_view(call);
    let timeout_ms = i32::try_from(CREATION_WAIT.as_millis()).expect("a few seconds");
    let request = CreateTopicsRequest { topics, timeout_ms, ..Default::default() };
    let request = QuorumRequest::CreateTopics(request);
    let to = shard.setup.quorum;
    shard.ask(io, call, to, Request::Quorum(Box::new(request)));
}

impl Waiting for Creation {
    /// The controller has answered: what it refused is not waited for.
    fn answered(
        mut self: Box<Self>,
        shard: &mut Shard,
        io: &mut Io<'_>,
        call: Token,
        _: ShardId,
        reply: Reply,
    ) {
        let Reply::Quorum(reply) = reply else { unreachable!("answered by {reply:?}") };
        let QuorumReply::CreateTopics(response) = *reply else { unreachable!("{reply:?}") };
        for topic in response.topics {
            let exists = [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS];
            if !exists.contains(&topic.error_code) {
                let why = topic.error_message.unwrap_or_default();
                tracing::warn!(topic = %topic.name, error = %topic.error_code, "not made: {why}");
                self.awaited.retain(|name| *name != topic.name);
            }
        }
        self.view_changed(shard, io, call);
    }

    /// There may be a newer image: does it have what is waited for?
    fn view_changed(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        let view = shard.view.as_ref();
        let is_there = |name: &Str| view.is_some_and(|view| view.image.topic_id(name).is_some());
        if self.awaited.iter().all(is_there) {
            return self.timed_out(shard, io, call);
        }
        shard.await_view(call);
        shard.wait(call, self);
    }

    /// Nothing more is waited for.
    fn timed_out(self: Box<Self>, shard: &mut Shard, io: &mut Io<'_>, call: Token) {
        (self.resume)(shard, io, call, &self.frame);
    }
}
