//! Topics that are made because a client, or the broker itself, needs them: the call goes on when
//! the image has them, or when they cannot be made.

use base::{Duration, Token};
use intercom::{QuorumReply, QuorumRequest, Reply, Request};
use protocol::create_topics_request::CreatableTopic;
use protocol::{CreateTopicsRequest, ErrorCode, RequestFrame, Str};

use crate::calls::Stage;
use crate::shard::{Io, Shard};

/// How long a call waits for topics to be made, at most.
const CREATION_WAIT: Duration = Duration::from_secs(5);

/// Goes on with a call, whether the topics are there or not.
pub(crate) type Resume = fn(&mut Shard, &mut Io<'_>, Token, &RequestFrame);

/// A call that waits for topics to be made.
#[derive(Debug)]
pub(crate) struct State {
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
    let state = State { frame: frame.clone(), resume, awaited };
    shard.wait(call, Stage::Creation(Box::new(state)));
    shard.set_timer(call, io.now.mono + CREATION_WAIT);
    shard.await_view(call);
    let timeout_ms = i32::try_from(CREATION_WAIT.as_millis()).expect("a few seconds");
    let request = CreateTopicsRequest { topics, timeout_ms, ..Default::default() };
    let request = QuorumRequest::CreateTopics { request };
    let to = shard.setup.quorum;
    shard.ask(io, call, to, Vec::new(), Request::Quorum(Box::new(request)));
}

/// The controller has answered: what it refused is not waited for.
pub(crate) fn answered(shard: &mut Shard, io: &mut Io<'_>, call: Token, reply: Reply) {
    let Reply::Quorum(reply) = reply else { unreachable!("a creation was answered by {reply:?}") };
    let QuorumReply::CreateTopics(response) = *reply else { unreachable!("{reply:?}") };
    let Some(Stage::Creation(state)) = shard.stage_mut(call) else { return };
    for topic in response.topics {
        let exists = [ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS];
        if !exists.contains(&topic.error_code) {
            let why = topic.error_message.unwrap_or_default();
            tracing::warn!(topic = %topic.name, error = %topic.error_code, "not created: {why}");
            state.awaited.retain(|name| *name != topic.name);
        }
    }
    view_changed(shard, io, call);
}

/// There may be a newer image: does it have what is waited for?
pub(crate) fn view_changed(shard: &mut Shard, io: &mut Io<'_>, call: Token) {
    let Some(image) = shard.view.as_ref().map(|view| view.image.clone()) else { return };
    let Some(Stage::Creation(state)) = shard.stage_mut(call) else { return };
    if state.awaited.iter().all(|name| image.topic_id(name).is_some()) {
        timed_out(shard, io, call);
    }
}

/// Nothing more is waited for.
pub(crate) fn timed_out(shard: &mut Shard, io: &mut Io<'_>, call: Token) {
    if let Some(Stage::Creation(state)) = shard.take_stage(call) {
        (state.resume)(shard, io, call, &state.frame);
    }
}
