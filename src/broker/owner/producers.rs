//! Who writes to the partitions.

use commitlog::ProducerState;
use intercom::{ActiveProducer, FoundProducers, ProducersPartition, Reply};
use protocol::ErrorCode;

use super::{Asker, Desk, Owner};

impl Owner {
    pub(super) fn producers(
        &mut self,
        desk: &mut Desk<'_>,
        asker: Asker,
        list: &[ProducersPartition],
    ) {
        let found = |part: &ProducersPartition| -> Result<FoundProducers, ErrorCode> {
            let token = self.find(part.key)?;
            let partition = self.partitions.get(token).expect("it was found a line ago");
            let producers = partition.log.producers().map(active).collect();
            Ok(FoundProducers { error: ErrorCode::NONE, producers })
        };
        let found = list.iter().map(|part| found(part).unwrap_or_else(FoundProducers::refused));
        let found = found.collect();
        desk.reply(asker, Reply::Producers(found));
    }
}

fn active(state: ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        last_sequence: state.last_sequence,
        last_timestamp: state.last_timestamp,
        coordinator_epoch: state.coordinator_epoch,
        transaction_start: state.transaction_start,
    }
}
