//! Requests that the controller answers: they are passed on whole, and so are the answers.

use api::Part;
use base::Token;
use intercom::{QuorumReply, QuorumRequest};
use protocol::{DecodeError, RequestFrame};

use crate::shard::{Io, Shard};

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    shard.ask_quorum(io, call, QuorumRequest::Api(frame.clone()), |shard, io, call, reply| {
        let QuorumReply::Api(answer) = reply else {
            unreachable!("a request of a client was answered by {reply:?}");
        };
        match answer {
            Ok(frame) => shard.answer(call, vec![Part::Bytes(frame)]),
            Err(sentence) => shard.refuse(io, call, &sentence),
        }
    });
    Ok(())
}
