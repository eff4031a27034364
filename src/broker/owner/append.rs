//! Appends: checked and given to the log in the order they come, answered when they are as
//! durable as the topic demands.

use base::Token;
use intercom::{AppendAnswer, AppendAsk, AppendPartition, Appended, Reply};
use protocol::ErrorCode;

use super::{Asker, Desk, Owner, PARKED_MAX, Serving};
use crate::partition::Place;

impl Owner {
    pub(super) fn append(&mut self, desk: &mut Desk<'_>, asker: Asker, ask: AppendAsk) {
        let missing = ask.partitions.len();
        let outcomes = vec![None; missing];
        let serving = Serving::Append { asker, outcomes, missing, is_late: false };
        let token = self.serving.insert(serving).expect("there was room");
        for (index, part) in ask.partitions.into_iter().enumerate() {
            self.append_part(desk, part, Place { ask: token, index });
        }
        if missing == 0 {
            self.answer_append(desk, token);
        }
    }

    /// Appends to one partition, or keeps the part until its log is open or its disk catches up.
    pub(super) fn append_part(&mut self, desk: &mut Desk<'_>, part: AppendPartition, place: Place) {
        match self.directory_to_wait_for(part.key) {
            Some(directory) => self.wait_for_disk(desk, directory, part, place),
            None => self.append_now(desk, part, place),
        }
    }

    /// Appends to one partition, or keeps the part until its log is open.
    pub(super) fn append_now(&mut self, desk: &mut Desk<'_>, part: AppendPartition, place: Place) {
        let refused = |code| Some(Box::new(Appended::refused(code, None)));
        let answer = match self.find(part.key) {
            Err(code) => refused(code),
            Ok(token) => {
                let partition = self.partition(token);
                if !partition.is_opening() {
                    let answer = partition.append(desk.now, &part.records, place);
                    self.count_dirt(token);
                    self.touch(token);
                    answer
                } else {
                    return self.wait_for_log(desk, token, part, place);
                }
            }
        };
        if let Some(answer) = answer {
            self.appended(desk, place, *answer);
        }
    }

    /// Keeps a part of an append until its log is open, which can take minutes.
    fn wait_for_log(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        mut part: AppendPartition,
        place: Place,
    ) {
        let partition = self.partition(token);
        let (directory, has_place) =
            (partition.directory, partition.parked_appends.len() < PARKED_MAX);
        if has_place && self.keep(directory, &mut part) {
            self.partition(token).parked_appends.push((part, place));
            return self.say_later(desk, place.ask);
        }
        let refused = Appended::refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, None);
        self.appended(desk, place, refused);
    }

    /// One partition of an ask is done.
    pub(super) fn appended(&mut self, desk: &mut Desk<'_>, place: Place, appended: Appended) {
        let serving = self.serving.get_mut(place.ask);
        let Some(Serving::Append { outcomes, missing, .. }) = serving else {
            unreachable!("an append was answered before all of it was done");
        };
        outcomes[place.index] = Some(appended);
        *missing -= 1;
        if *missing == 0 {
            self.answer_append(desk, place.ask);
        }
    }

    fn answer_append(&mut self, desk: &mut Desk<'_>, token: Token) {
        let Some(Serving::Append { asker, outcomes, is_late, .. }) = self.serving.remove(token)
        else {
            unreachable!("only appends are answered here");
        };
        let partitions = outcomes.into_iter().flatten().collect();
        let reply = Reply::Append(AppendAnswer { partitions });
        if is_late { desk.reply_late(asker, reply) } else { desk.reply(asker, reply) }
    }

    /// Says that an append takes a while: its client is not read meanwhile.
    pub(super) fn say_later(&mut self, desk: &mut Desk<'_>, token: Token) {
        if let Some(Serving::Append { asker, is_late, .. }) = self.serving.get_mut(token)
            && !std::mem::replace(is_late, true)
        {
            let asker = *asker;
            desk.reply(asker, Reply::Later);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Effects;
    use base::{
        Instant, LeaderEpoch, Now, Offset, PartitionIndex, Random, ShardId, TopicPartition,
    };
    use base::{NodeId, Uuid};
    use bytes::Bytes;
    use commitlog::Checkpoints;
    use config::{BrokerConfig, Pairs};
    use intercom::{Message, PartitionKey, Request};
    use records::{BatchBuilder, Compression, NewRecord};

    use super::*;
    use crate::files::Files;
    use crate::mail::Mail;
    use crate::owner::{Found, Opening};
    use crate::rules::{TopicRules, group_config};
    use crate::setup::Setup;

    const ME: ShardId = ShardId(0);
    const KEY: PartitionKey = PartitionKey { topic: Uuid([1; 16]), partition: PartitionIndex(0) };

    /// An owner whose files never answer.
    struct Bench {
        owner: Owner,
        effects: Effects<Message>,
        mail: Mail,
        files: Files,
        rules: Arc<TopicRules>,
    }

    impl Bench {
        fn new() -> Self {
            let text = "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://:9092\n\
                        controller.listener.names=C\ncontroller.quorum.voters=7@c:9093\n\
                        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n";
            let config = BrokerConfig::parse(text.as_bytes()).expect("it is valid");
            let topic = config.topic_config(&Pairs::new()).expect("defaults are valid");
            let rules = Arc::new(TopicRules::of(&topic, &config));
            let setup = Setup {
                shard: ME,
                data_shards: 1,
                quorum: ShardId(1),
                lane_slots: 16,
                node: NodeId(1),
                cluster_id: "c".into(),
                log_directories: Vec::new().into(),
                dirty_bytes_max: 256 << 20,
                calls_max: 1 << 10,
                listeners: Vec::new().into(),
                config: Arc::new(config),
            };
            let owner = Owner::new(&setup, group_config(&setup.config), Random::new(1));
            let (mail, files) = (Mail::new(ME, 2, setup.lane_slots), Files::default());
            Self { owner, effects: Effects::new(), mail, files, rules }
        }

        fn with<R>(&mut self, work: impl FnOnce(&mut Owner, &mut Desk<'_>) -> R) -> R {
            let mut desk = Desk {
                now: Now { mono: Instant::ZERO, wall_ms: 1_000 },
                effects: &mut self.effects,
                mail: &mut self.mail,
                files: &mut self.files,
                image: None,
            };
            work(&mut self.owner, &mut desk)
        }

        fn open(&mut self, found: Found) {
            let opening = Opening {
                key: KEY,
                name: TopicPartition { topic: Arc::from("t"), partition: KEY.partition },
                directory: 0,
                path: "/a/t-0".into(),
                rules: Arc::clone(&self.rules),
                leads: true,
                leader_epoch: LeaderEpoch(0),
                found,
            };
            self.with(|owner, desk| owner.take_in(desk, opening));
        }

        fn send(&mut self, records: Bytes) {
            let partitions = vec![AppendPartition { key: KEY, records }];
            let asker = Asker { shard: ME, id: Token::NONE };
            let request = Request::Append(AppendAsk { partitions });
            self.with(|owner, desk| owner.ask(desk, asker, request));
        }

        /// What was answered: the codes, and how many were told that it takes a while.
        fn answers(&mut self) -> (Vec<ErrorCode>, usize) {
            let (mut codes, mut later) = (Vec::new(), 0);
            while let Some(message) = self.mail.next_local() {
                match message {
                    Message::Reply { body: Reply::Later, .. } => later += 1,
                    Message::Reply { body, .. } => codes.push(code_of(&body)),
                    Message::Request { body: Request::Late { body, .. }, .. } => {
                        codes.push(code_of(&body));
                    }
                    other => panic!("{other:?}"),
                }
            }
            (codes, later)
        }
    }

    fn code_of(reply: &Reply) -> ErrorCode {
        let Reply::Append(answer) = reply else { panic!("{reply:?}") };
        answer.partitions[0].error
    }

    fn batch(value: &[u8]) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(0), Compression::None);
        builder.append(&NewRecord { value: Some(value), ..NewRecord::default() });
        builder.build().bytes().clone()
    }

    #[test]
    fn what_waits_for_a_log_to_open_pins_nothing_and_is_bounded() {
        const BYTES: usize = 1 << 20;
        const FIT: usize = 31;
        let mut bench = Bench::new();
        let clean_shutdown = false;
        let (recovery_point, log_start_offset) = (Offset(0), Offset(0));
        let first_dirty = None;
        bench.open(Found::Log(Checkpoints {
            clean_shutdown,
            recovery_point,
            log_start_offset,
            first_dirty,
        }));
        let received = batch(&vec![7; BYTES]);
        for _ in 0..FIT + 3 {
            bench.send(received.clone());
        }
        assert!(received.is_unique(), "the core can receive into it again");
        let (codes, later) = bench.answers();
        assert_eq!(codes, [ErrorCode::NOT_LEADER_OR_FOLLOWER; 3], "it is tried again");
        assert_eq!(later, FIT, "no slot of a lane is kept");
        // What was refused left room for what is small.
        bench.send(batch(b"small"));
        assert_eq!(bench.answers(), (vec![], 1));

        bench.with(|owner, desk| owner.delete(desk, KEY, Offset(1), Uuid([2; 16])));
        let (codes, _) = bench.answers();
        assert_eq!(codes, [ErrorCode::NOT_LEADER_OR_FOLLOWER; FIT + 1]);
        bench.open(Found::Nothing);
        bench.send(received.clone());
        assert_eq!(bench.answers(), (vec![], 1), "there is room again");
    }
}
