//! Blocks of producer ids (`ProducerIdControlManager`).

use base::{NodeId, ProducerId};
use metadata::Image;
use protocol::{ErrorCode, ProducerIdsRecord};

use crate::outcome::v0;
use crate::{ApiError, Proposal};

/// How many ids a block has (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
pub const PRODUCER_IDS_PER_BLOCK: i32 = 1_000;

/// Gives the next block of ids to a broker; the answer is its first id.
///
/// # Errors
/// If the broker is not registered with that epoch, or no ids are left.
pub fn allocate_producer_ids(
    image: &Image,
    broker: NodeId,
    broker_epoch: i64,
) -> Result<Proposal<ProducerId>, ApiError> {
    crate::brokers::check_epoch(image, broker, broker_epoch)?;
    let first = image.next_producer_id();
    let Some(next) = first.0.checked_add(i64::from(PRODUCER_IDS_PER_BLOCK)) else {
        let message = "Exhausted all producerIds as the next block's end producerId has exceeded \
                       the int64 type limit";
        return Err(ApiError::new(ErrorCode::UNKNOWN_SERVER_ERROR, message));
    };
    let record = ProducerIdsRecord {
        broker_id: broker.0,
        broker_epoch,
        next_producer_id: next,
        ..ProducerIdsRecord::default()
    };
    Ok(Proposal::new(vec![v0(record)], first))
}
