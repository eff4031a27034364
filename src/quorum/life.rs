//! The broker of this node, as the controller sees it, and the end of the shard
//! (`BrokerLifecycleManager`).

use api::Effects;
use base::{Instant, Now, Uuid};
use intercom::{Endpoint, Message, QuorumReply};
use protocol::broker_registration_request::{Feature, Listener};
use protocol::{BrokerHeartbeatRequest, BrokerRegistrationRequest};

use crate::shard::{Asker, Quorum, Stage};

impl Quorum {
    /// Registers the broker and lets it lead, in two batches that are synced together. It has seen
    /// its own registration as soon as it is answered, since the image is posted before.
    pub(crate) fn broker_ready(
        &mut self,
        now: Now,
        from: Asker,
        request: &BrokerRegistrationRequest,
    ) {
        let new_epoch = self.raft.end_offset().0;
        // Whoever was registered under this number was an earlier process on this directory, which
        // is locked: there is no session to wait for.
        let registered = controller::register_broker(
            &self.controller,
            self.timeline.applied(),
            request,
            new_epoch,
            false,
        );
        let epoch = match registered {
            Ok(proposal) => {
                self.propose(now, &proposal.records);
                proposal.response
            }
            Err(error) => {
                let message = error.message.unwrap_or_else(|| error.code.message().to_owned());
                let sentence = format!("The broker cannot be registered: {message}");
                let offset = self.timeline.end_offset();
                return self.answer_at(offset, from, QuorumReply::BrokerReady(Err(sentence)));
            }
        };
        self.life.broker_epoch = Some(epoch);
        let mut beat = self.heartbeat(epoch);
        beat.cordoned_log_dirs = Some(Vec::new());
        let proposal = controller::heartbeat(&self.controller, self.timeline.applied(), &beat)
            .expect("the broker was registered just now");
        let offset = self.propose(now, &proposal.records);
        self.answer_at(offset, from, QuorumReply::BrokerReady(Ok(epoch)));
    }

    /// Takes the broker out of the partitions that it has in directories that failed.
    pub(crate) fn directories_failed(
        &mut self,
        now: Now,
        from: Asker,
        offline_log_dirs: Vec<Uuid>,
    ) {
        if let Some(epoch) = self.life.broker_epoch {
            let beat = BrokerHeartbeatRequest { offline_log_dirs, ..self.heartbeat(epoch) };
            match controller::heartbeat(&self.controller, self.timeline.applied(), &beat) {
                Ok(proposal) => drop(self.propose(now, &proposal.records)),
                Err(error) => tracing::warn!(?error, "a failed directory is not registered"),
            }
        }
        let offset = self.timeline.end_offset();
        self.answer_at(offset, from, QuorumReply::DirectoriesFailed);
    }

    /// Takes the broker's leaderships away and fences it.
    pub(crate) fn broker_stopping(&mut self, now: Now, from: Asker) {
        self.life.broker_stops = true;
        if let Some(epoch) = self.life.broker_epoch {
            let mut beat = self.heartbeat(epoch);
            beat.want_shut_down = true;
            // First it leaves its partitions; with nothing left to lead it may go.
            loop {
                let image = self.timeline.applied();
                let proposal = match controller::heartbeat(&self.controller, image, &beat) {
                    Ok(proposal) => proposal,
                    Err(error) => {
                        // It was unregistered meanwhile.
                        tracing::warn!(?error, "the broker stops without having been registered");
                        break;
                    }
                };
                self.propose(now, &proposal.records);
                if proposal.response.should_shut_down || proposal.records.is_empty() {
                    break;
                }
            }
        }
        let offset = self.timeline.end_offset();
        self.answer_at(offset, from, QuorumReply::BrokerStopping);
    }

    fn heartbeat(&self, epoch: i64) -> BrokerHeartbeatRequest {
        BrokerHeartbeatRequest {
            broker_id: self.node().0,
            broker_epoch: epoch,
            current_metadata_offset: self.timeline.end_offset().0 - 1,
            ..BrokerHeartbeatRequest::default()
        }
    }

    pub(crate) fn registration(
        &self,
        endpoints: &[Endpoint],
        previous_broker_epoch: i64,
        log_dirs: Vec<Uuid>,
    ) -> BrokerRegistrationRequest {
        let listeners = endpoints.iter().map(|endpoint| Listener {
            name: (&*endpoint.name).into(),
            host: (&*endpoint.host).into(),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol.0,
            ..Listener::default()
        });
        let supported = metadata::supported_features().into_iter().map(|(name, range)| Feature {
            name: name.into(),
            min_supported_version: range.min,
            max_supported_version: range.max,
            ..Feature::default()
        });
        let rack = self.params.config.simple.broker_rack.as_deref().map(Into::into);
        BrokerRegistrationRequest {
            broker_id: self.node().0,
            cluster_id: self.controller.cluster_id.as_str().into(),
            incarnation_id: self.life.broker_incarnation,
            listeners: listeners.collect(),
            features: supported.collect(),
            rack,
            log_dirs,
            previous_broker_epoch,
            ..BrokerRegistrationRequest::default()
        }
    }

    /// Closes the log once the broker is gone, or its time is up.
    pub(crate) fn stop_when_due(&mut self, now: Now, effects: &mut Effects<Message>) {
        let Some(stop_at) = self.life.stop_at else { return };
        let is_answered = self.life.broker_stops && (!self.has_pending() || self.store.is_full());
        let is_late = stop_at <= now.mono;
        if !(is_answered || is_late) || matches!(self.stage, Stage::Closing | Stage::Over) {
            return;
        }
        if is_late && self.life.broker_epoch.is_some() {
            tracing::warn!("the quorum stops before its broker has");
        }
        self.clients.close(now, effects);
        let mut outputs = Vec::new();
        self.raft.resign(now, &mut outputs);
        self.take_outputs(now, outputs, effects);
        self.stage = Stage::Closing;
        self.life.stop_at = Some(Instant::FAR_FUTURE);
        self.close_store(now, effects);
    }
}
