//! InitProducerId: a new id for an idempotent producer, from the shard's block of ids.

use base::{ProducerId, Token};
use intercom::{QuorumReply, QuorumRequest};
use protocol::{
    DecodeError, ErrorCode, InitProducerIdRequest, InitProducerIdResponse, RequestFrame,
};

use crate::producer_ids::ProducerIds;
use crate::shard::{Io, Shard};

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let request: InitProducerIdRequest = frame.body()?;
    if request.transactional_id.as_ref().is_some_and(|id| id.is_empty()) {
        refuse(shard, io, call, ErrorCode::INVALID_REQUEST);
        return Ok(());
    }
    if request.transactional_id.is_some() {
        // There is no transaction coordinator yet; the code is one that no client tries again.
        refuse(shard, io, call, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
        return Ok(());
    }
    // Without a transactional id a new id is given whatever the producer was before
    // (`TransactionCoordinator.handleInitProducerId`).
    match shard.producer_ids.take() {
        Some(id) => respond(shard, io, call, id),
        None => shard.ask_quorum(io, call, QuorumRequest::AllocateProducerIds, allocated),
    }
    Ok(())
}

/// A new block has come. Several calls may have asked for one: each takes of its own, and the last
/// block is kept.
fn allocated(shard: &mut Shard, io: &mut Io<'_>, call: Token, reply: QuorumReply) {
    let QuorumReply::AllocateProducerIds(block) = reply else {
        unreachable!("a request for producer ids was answered by {reply:?}")
    };
    let Ok(block) = block else {
        return refuse(shard, io, call, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    };
    let next = block.first.0;
    let mut ids = ProducerIds::of_block(next, block.length);
    let id = ids.take().expect("a block has ids");
    shard.producer_ids = ids;
    respond(shard, io, call, id);
}

fn respond(shard: &mut Shard, io: &mut Io<'_>, call: Token, id: ProducerId) {
    let response =
        InitProducerIdResponse { producer_id: id.0, producer_epoch: 0, ..Default::default() };
    shard.respond::<InitProducerIdRequest>(io, call, &response);
}

fn refuse(shard: &mut Shard, io: &mut Io<'_>, call: Token, error_code: ErrorCode) {
    let response = InitProducerIdResponse {
        error_code,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    shard.respond::<InitProducerIdRequest>(io, call, &response);
}
