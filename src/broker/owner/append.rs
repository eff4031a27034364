//! Appends: checked and given to the log in the order they come, answered when they are as
//! durable as the topic demands.

use base::Token;
use intercom::{AppendAnswer, AppendAsk, AppendPartition, Appended, Reply};
use protocol::ErrorCode;

use super::{Asker, Desk, Owner, PARKED_MAX, Serving};
use crate::partition::{Append, Place};

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

    /// Appends to one partition; or keeps the part, until what came before it is appended, its log
    /// is open, its disk has caught up and its batch is checked.
    fn append_part(&mut self, desk: &mut Desk<'_>, part: AppendPartition, place: Place) {
        let token = match self.find(part.key) {
            Ok(token) => token,
            Err(code) => return self.appended(desk, place, Appended::refused(code, None)),
        };
        let partition = self.partition(token);
        let directory = partition.directory;
        if partition.is_opening() {
            let code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            self.wait_in_queue(desk, token, part, place, code);
        } else if partition.has_queue() {
            self.wait_in_queue(desk, token, part, place, ErrorCode::REQUEST_TIMED_OUT);
        } else if self.is_behind(directory) {
            if self.wait_in_queue(desk, token, part, place, ErrorCode::REQUEST_TIMED_OUT) {
                self.wait_for_disk(token);
            }
        } else {
            self.append_now(desk, token, part, place);
        }
    }

    /// Appends to one partition, for which nothing else waits.
    fn append_now(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        part: AppendPartition,
        place: Place,
    ) {
        let mut budget = *self.bytes_to_check();
        let append = self.partition(token).append(desk.now, &part.records, place, &mut budget);
        *self.bytes_to_check() = budget;
        match append {
            Append::Done(answer) => {
                self.touch(token);
                if let Some(answer) = answer {
                    self.appended(desk, place, *answer);
                }
            }
            Append::Paused(check) => {
                if self.wait_in_queue(desk, token, part, place, ErrorCode::REQUEST_TIMED_OUT) {
                    self.check_later(token, check);
                }
            }
        }
    }

    /// Keeps a part of an append, which can take minutes. False where too much waits already: it is
    /// refused.
    fn wait_in_queue(
        &mut self,
        desk: &mut Desk<'_>,
        token: Token,
        mut part: AppendPartition,
        place: Place,
        refused: ErrorCode,
    ) -> bool {
        let partition = self.partition(token);
        let (directory, has_place) = (partition.directory, partition.queue.len() < PARKED_MAX);
        let is_kept = has_place && self.keep(directory, &mut part);
        if is_kept {
            self.partition(token).queue.push_back((part, place));
            self.say_later(desk, place.ask);
        } else {
            self.appended(desk, place, Appended::refused(refused, None));
        }
        is_kept
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
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::Arc;

    use api::{Effect, Effects, FileEffect, FileOutcome};
    use base::{
        Instant, LeaderEpoch, Now, Offset, PartitionIndex, Random, ShardId, TopicPartition,
    };
    use base::{NodeId, ProducerEpoch, ProducerId, Uuid};
    use bytes::Bytes;
    use commitlog::Checkpoints;
    use config::{BrokerConfig, Pairs};
    use intercom::{FoundOffset, Message, OffsetsPartition, PartitionKey, Request};
    use records::{BatchBuilder, Compression, NewRecord};

    use super::*;
    use crate::files::{FileStep, Files};
    use crate::mail::Mail;
    use crate::owner::rounds::LOGS_A_TURN;
    use crate::owner::work::{BYTES_PER_SLICE, BYTES_PER_TURN, CHECKS_MAX, SEARCHES_MAX};
    use crate::owner::{Found, Opening};
    use crate::partition::Partition;
    use crate::rules::{TopicRules, group_config};
    use crate::setup::Setup;

    const ME: ShardId = ShardId(0);
    const BOMB_BYTES: usize = 4 * BYTES_PER_TURN;
    const DIRTY_BYTES_MAX: u64 = 32 << 20;
    const BOMB_RECORDS: usize = 128;
    /// That of the last record of a [`bomb`], in which there is no other of this time or later.
    const LAST_TIMESTAMP: i64 = 1_000;
    /// More than are under way at once.
    const MANY: i32 = (CHECKS_MAX + SEARCHES_MAX) as i32 + 2;
    const KEY: PartitionKey = PartitionKey { topic: Uuid([1; 16]), partition: PartitionIndex(0) };

    /// What was written, by path.
    type Disk = BTreeMap<PathBuf, Vec<u8>>;

    /// An owner whose files answer when the test says so.
    struct Bench {
        owner: Owner,
        effects: Effects<Message>,
        mail: Mail,
        files: Files,
        disk: Disk,
        /// What is brought to the disk gets there when the test says so.
        holds_write_backs: bool,
        held: Vec<(Token, FileOutcome)>,
        topic: &'static str,
        config: Arc<BrokerConfig>,
        rules: Arc<TopicRules>,
    }

    impl Bench {
        fn new() -> Self {
            let text = "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://:9092\n\
                        controller.listener.names=C\ncontroller.quorum.voters=7@c:9093\n\
                        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n";
            let config = Arc::new(BrokerConfig::parse(text.as_bytes()).expect("it is valid"));
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
                dirty_bytes_max: DIRTY_BYTES_MAX,
                calls_max: 1 << 10,
                listeners: Vec::new().into(),
                config: Arc::clone(&config),
            };
            let owner = Owner::new(&setup, group_config(&setup.config), Random::new(1));
            let (mail, files) = (Mail::new(ME, 2, setup.lane_slots), Files::default());
            let disk = Disk::new();
            let (effects, held) = (Effects::new(), Vec::new());
            let (topic, holds_write_backs) = ("t", false);
            Self {
                owner,
                effects,
                mail,
                files,
                disk,
                holds_write_backs,
                held,
                topic,
                config,
                rules,
            }
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

        /// Partitions that are opened from now on have these settings of their topic.
        fn set_rules(&mut self, settings: &Pairs) {
            let topic = self.config.topic_config(settings).expect("they are valid");
            self.rules = Arc::new(TopicRules::of(&topic, &self.config));
        }

        /// With this many partitions whose logs are open.
        fn with_open(partitions: i32) -> Self {
            let mut bench = Self::new();
            for index in 0..partitions {
                bench.open(key(index), Found::Nothing);
            }
            bench.end_files();
            bench
        }

        fn end_files(&mut self) {
            loop {
                let holds = self.holds_write_backs;
                let is_held = |effect: &Effect<Message>| {
                    holds && matches!(effect, Effect::File(FileEffect::WriteBack { .. }))
                };
                let (held, effects): (Vec<_>, Vec<_>) = self.effects.drain().partition(is_held);
                let disk = &mut self.disk;
                self.held.extend(held.into_iter().filter_map(|effect| ended(disk, effect)));
                let ended: Vec<_> =
                    effects.into_iter().filter_map(|effect| ended(disk, effect)).collect();
                if ended.is_empty() {
                    return;
                }
                self.end(ended);
            }
        }

        /// The ends of what is asked of files now.
        fn drain_files(&mut self) -> Vec<(Token, FileOutcome)> {
            let disk = &mut self.disk;
            self.effects.drain().filter_map(|effect| ended(disk, effect)).collect()
        }

        fn end(&mut self, ended: Vec<(Token, FileOutcome)>) {
            for (token, outcome) in ended {
                let FileStep::Log(partition, step) = self.files.done(token) else {
                    panic!("nothing but logs has files here")
                };
                self.with(|owner, desk| owner.on_file(desk, partition, step, outcome));
            }
        }

        fn end_turn(&mut self) {
            self.with(|owner, desk| owner.end_of_turn(desk));
            self.end_files();
        }

        /// Ends turns until nothing is checked any more; how many there were.
        fn end_turns(&mut self) -> usize {
            let mut turns = 1;
            self.end_turn();
            while self.owner.has_work() {
                turns += 1;
                self.end_turn();
                self.assert_windows_are_few();
            }
            turns
        }

        fn assert_windows_are_few(&self) {
            let count = |has_window: fn(&Partition) -> bool| {
                let partitions = self.owner.partitions.iter();
                partitions.filter(|(_, partition)| has_window(partition)).count()
            };
            let checks = count(|one| one.check.as_ref().is_some_and(|check| check.has_window()));
            let searches = count(|one| one.log.holds_batch());
            assert!(checks <= CHECKS_MAX, "{checks} windows of checks");
            assert!(searches <= SEARCHES_MAX, "{searches} windows and batches of searches");
        }

        fn open(&mut self, key: PartitionKey, found: Found) {
            let opening = Opening {
                key,
                name: TopicPartition { topic: Arc::from(self.topic), partition: key.partition },
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
            self.send_to(0, 0, records);
        }

        /// Sends one batch to one partition; the answer has this number.
        fn send_to(&mut self, index: i32, number: u64, records: Bytes) {
            let partitions = vec![AppendPartition { key: key(index), records }];
            let asker = Asker { shard: ME, id: Token::from_bits(number) };
            let request = Request::Append(AppendAsk { partitions });
            self.with(|owner, desk| owner.ask(desk, asker, request));
        }

        /// Searches so many times in each of so many partitions for the last record of a [`bomb`].
        fn search(&mut self, partitions: i32, times: usize) {
            let part = |index| OffsetsPartition {
                key: key(index),
                leader_epoch: LeaderEpoch::NONE,
                timestamp: LAST_TIMESTAMP,
                read_committed: false,
            };
            let parts = (0..partitions).flat_map(|index| (0..times).map(move |_| part(index)));
            let (asker, parts) = (Asker { shard: ME, id: Token::from_bits(0) }, parts.collect());
            self.with(|owner, desk| owner.ask(desk, asker, Request::Offsets(parts)));
            self.end_files();
        }

        /// What was found by the one search that has been asked for.
        fn found(&mut self) -> Vec<FoundOffset> {
            match self.mail.next_local() {
                Some(Message::Reply { body: Reply::Offsets(found), .. }) => found,
                other => panic!("{other:?}"),
            }
        }

        /// What was answered: the codes, and how many were told that it takes a while.
        fn answers(&mut self) -> (Vec<ErrorCode>, usize) {
            let (answers, later) = self.numbered_answers();
            (answers.into_iter().map(|(_, code, _)| code).collect(), later)
        }

        /// The numbers of what was answered, with code and base offset.
        fn numbered_answers(&mut self) -> (Vec<(u64, ErrorCode, i64)>, usize) {
            let (mut answers, mut later) = (Vec::new(), 0);
            while let Some(message) = self.mail.next_local() {
                let (id, body) = match message {
                    Message::Reply { id, body } => (id, body),
                    Message::Request { body: Request::Late { id, body }, .. } => (id, *body),
                    other => panic!("{other:?}"),
                };
                match body {
                    Reply::Later => later += 1,
                    Reply::Append(answer) => {
                        let appended = &answer.partitions[0];
                        answers.push((id.to_bits(), appended.error, appended.base_offset.0));
                    }
                    other => panic!("{other:?}"),
                }
            }
            (answers, later)
        }
    }

    fn key(index: i32) -> PartitionKey {
        PartitionKey { partition: PartitionIndex(index), ..KEY }
    }

    /// The end of a file effect on a disk that has room and holds what was written.
    fn ended(disk: &mut Disk, effect: Effect<Message>) -> Option<(Token, FileOutcome)> {
        let Effect::File(effect) = effect else { return None };
        let outcome = match &effect {
            FileEffect::List { .. } => FileOutcome::Listed(Ok(Vec::new())),
            FileEffect::Write { file, position, parts, .. } => {
                let content = disk.entry(file.path().to_path_buf()).or_default();
                content.resize(usize::try_from(*position).expect("it is small"), 0);
                parts.iter().for_each(|part| content.extend_from_slice(part));
                FileOutcome::Done(Ok(()))
            }
            FileEffect::Read { file, position, length, .. } => {
                let content = disk.get(&*file.path()).map_or(&[][..], Vec::as_slice);
                let behind = content.get(usize::try_from(*position).expect("it is small")..);
                let behind = behind.unwrap_or_default();
                let read = &behind[..behind.len().min(*length as usize)];
                FileOutcome::Read(Ok(Bytes::copy_from_slice(read)))
            }
            _ => FileOutcome::Done(Ok(())),
        };
        let mut found = None;
        let _ = effect.map(|token| found = Some(token));
        found.map(|token| (token, outcome))
    }

    /// A batch of an idempotent producer that is small and holds [`BOMB_BYTES`].
    fn bomb(sequence: i32) -> Bytes {
        let compression = Compression::Zstd { level: 1 };
        let builder = BatchBuilder::new(Offset(0), compression);
        let mut builder = builder.producer(ProducerId(5), ProducerEpoch(0), sequence);
        for index in 1..=BOMB_RECORDS {
            let value = Some(&[0; BOMB_BYTES / BOMB_RECORDS][..]);
            let timestamp = if index < BOMB_RECORDS { LAST_TIMESTAMP - 1 } else { LAST_TIMESTAMP };
            builder.append(&NewRecord { value, timestamp, ..NewRecord::default() });
        }
        builder.build().bytes().clone()
    }

    fn next_of_producer(sequence: i32) -> Bytes {
        let builder = BatchBuilder::new(Offset(0), Compression::None);
        let mut builder = builder.producer(ProducerId(5), ProducerEpoch(0), sequence);
        builder.append(&NewRecord { timestamp: 1_000, ..NewRecord::default() });
        builder.build().bytes().clone()
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
        let found = Checkpoints { clean_shutdown, recovery_point, log_start_offset, first_dirty };
        bench.open(KEY, Found::Log(found));
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
        bench.open(KEY, Found::Nothing);
        bench.send(received.clone());
        assert_eq!(bench.answers(), (vec![], 1), "there is room again");
    }

    #[test]
    fn a_batch_that_holds_much_is_checked_over_turns_and_only_its_partition_waits() {
        let mut bench = Bench::with_open(2);
        let records = i32::try_from(BOMB_RECORDS).expect("few");
        bench.send_to(0, 1, bomb(0));
        bench.send_to(0, 2, next_of_producer(records));
        bench.send_to(1, 3, batch(b"of another partition"));
        bench.end_turn();
        assert_eq!(bench.numbered_answers(), (vec![(3, ErrorCode::NONE, 0)], 2));
        let turns = 1 + bench.end_turns();
        let expected = (BOMB_BYTES - BYTES_PER_TURN) / BYTES_PER_SLICE;
        assert!((expected..expected + 3).contains(&turns), "{turns} turns");
        let in_order = vec![(1, ErrorCode::NONE, 0), (2, ErrorCode::NONE, i64::from(records))];
        assert_eq!(bench.numbered_answers(), (in_order, 0), "the sequences are in order, too");
    }

    #[test]
    fn what_a_turn_has_no_time_for_waits_for_the_next_one() {
        const BATCHES: usize = 2 * MANY as usize;
        let mut bench = Bench::with_open(MANY);
        let mut sent = 0;
        for index in 0..MANY {
            for sequence in 0..2 {
                sent += 1;
                bench.send_to(index, sent, bomb(sequence * BOMB_RECORDS as i32));
            }
        }
        let turns = bench.end_turns();
        let expected = BATCHES * BOMB_BYTES / (CHECKS_MAX * BYTES_PER_SLICE);
        assert!((expected - 1..expected + expected / 5).contains(&turns), "{turns} turns");
        let (mut answers, _) = bench.numbered_answers();
        answers.sort_by_key(|answer| answer.0);
        let expected = (1..=sent).map(|number| {
            let base_offset = if number % 2 == 1 { 0 } else { BOMB_RECORDS as i64 };
            (number, ErrorCode::NONE, base_offset)
        });
        assert_eq!(answers, expected.collect::<Vec<_>>());
        bench.send(batch(b"small"));
        assert!(!bench.owner.has_work(), "nothing was left in the line");
    }

    /// With a [`bomb`] in each of so many partitions.
    fn bench_with_bombs(partitions: i32) -> Bench {
        let mut bench = Bench::with_open(partitions);
        (0..partitions).for_each(|index| bench.send_to(index, 1, bomb(0)));
        bench.end_turns();
        assert_eq!(bench.answers().0, vec![ErrorCode::NONE; partitions as usize]);
        bench
    }

    #[test]
    fn searches_hold_no_more_than_their_place_until_their_turn_comes() {
        let mut bench = bench_with_bombs(MANY);
        bench.search(MANY, 2);
        let turns = bench.end_turns();
        let searches = 2 * MANY as usize;
        let least = searches * BOMB_BYTES / BYTES_PER_SLICE;
        assert!((least..least + 2 * searches).contains(&turns), "{turns} turns");
        let offsets: Vec<_> = bench.found().iter().map(|found| found.offset).collect();
        assert_eq!(offsets, vec![Offset(BOMB_RECORDS as i64 - 1); searches]);
    }

    #[test]
    fn searches_keep_no_batch_from_being_checked() {
        let mut bench = bench_with_bombs(MANY);
        bench.search(MANY, 2);
        (0..3).for_each(|_| bench.end_turn());
        bench.send_to(0, 7, bomb(BOMB_RECORDS as i32));
        for _ in 0..BOMB_BYTES / BYTES_PER_SLICE {
            bench.end_turn();
            bench.assert_windows_are_few();
        }
        let answer = (7, ErrorCode::NONE, BOMB_RECORDS as i64);
        assert_eq!(bench.numbered_answers(), (vec![answer], 1));
        bench.end_turns();
        assert_eq!(bench.found().len(), 2 * MANY as usize);
    }

    #[test]
    fn a_core_may_sleep_while_the_batch_of_a_search_is_read() {
        let mut bench = bench_with_bombs(1);
        bench.search(1, 1);
        assert!(bench.owner.has_work());
        bench.with(|owner, desk| owner.end_of_turn(desk));
        assert!(!bench.owner.has_work(), "there is nothing to do until it is there");
        bench.end_files();
        assert!(bench.owner.has_work());
    }

    #[test]
    fn what_waits_for_a_log_stays_before_what_comes_when_its_disk_is_behind() {
        const BYTES: usize = 1 << 19;
        let mut bench = Bench::with_open(1);
        bench.holds_write_backs = true;
        bench.open(key(1), Found::Nothing);
        let opening = bench.drain_files();
        bench.send_to(1, 1, batch(b"before"));
        for _ in 0..DIRTY_BYTES_MAX / BYTES as u64 {
            bench.send_to(0, 0, batch(&vec![7; BYTES]));
            bench.end_turn();
        }
        bench.answers();
        bench.send_to(0, 2, batch(b"to another log"));
        bench.send_to(1, 3, batch(b"behind"));
        bench.end(opening);
        bench.end_turn();
        bench.send_to(1, 4, batch(b"last"));
        bench.end_turn();
        assert_eq!(bench.numbered_answers(), (vec![], 3), "the disk is behind");

        bench.holds_write_backs = false;
        let held = std::mem::take(&mut bench.held);
        assert!(!held.is_empty());
        bench.end(held);
        bench.end_turn();
        bench.end_turn();
        let (mut answers, _) = bench.numbered_answers();
        answers.sort_by_key(|answer| answer.0);
        let offsets: Vec<_> = answers.iter().map(|answer| (answer.0, answer.2)).collect();
        let of_other = (DIRTY_BYTES_MAX / BYTES as u64) as i64;
        assert_eq!(offsets, [(1, 0), (2, of_other), (3, 1), (4, 2)]);
    }

    #[test]
    fn a_coordinator_takes_nothing_of_an_earlier_one_for_its_own() {
        // A move of the high watermark calls a coordinator, and so does what it has appended.
        for (is_led_anew, calls) in [(false, 2), (true, 1)] {
            let mut bench = Bench::new();
            bench.topic = "__consumer_offsets";
            bench.open(KEY, Found::Nothing);
            bench.end_files();
            let token = bench.owner.by_key[&KEY];
            bench.with(|owner, desk| {
                owner.append_for_coordinator(desk, token, &batch(b"committed"));
                owner.end_of_turn(desk);
            });
            let writing = bench.drain_files();
            if is_led_anew {
                for leads in [false, true] {
                    bench.with(|owner, desk| owner.set_leader(desk, KEY, leads, LeaderEpoch(1)));
                }
            }
            bench.owner.hosts.called.clear();
            bench.end(writing);
            assert_eq!(bench.owner.hosts.called, vec![token; calls], "led anew: {is_led_anew}");
        }
    }

    #[test]
    fn who_waits_for_a_check_is_told_when_the_log_goes() {
        let refused = [ErrorCode::NOT_LEADER_OR_FOLLOWER; 2];
        let leave: [fn(&mut Owner, &mut Desk<'_>); 3] = [
            |owner, desk| owner.delete(desk, KEY, Offset(1), Uuid([2; 16])),
            |owner, desk| owner.close_all(desk),
            |owner, desk| {
                owner.set_leader(desk, KEY, false, LeaderEpoch(1));
                owner.end_of_turn(desk);
            },
        ];
        for leave in leave {
            let mut bench = Bench::with_open(1);
            bench.send(bomb(0));
            bench.send(batch(b"behind it"));
            bench.end_turn();
            assert_eq!(bench.answers().0, []);
            bench.with(leave);
            assert_eq!(bench.answers().0, refused);
            assert!(!bench.owner.has_work());
        }
    }

    #[test]
    fn what_retention_gives_up_is_looked_for_in_some_logs_each_turn() {
        const LOGS: i32 = 2 * LOGS_A_TURN as i32 + 1;
        let mut bench = Bench::new();
        let keeps_nothing = Pairs::from([("retention.bytes".to_owned(), "0".to_owned())]);
        bench.set_rules(&keeps_nothing);
        for index in 0..LOGS {
            bench.open(key(index), Found::Nothing);
        }
        bench.end_files();
        (0..LOGS).for_each(|index| bench.send_to(index, 1, batch(b"one")));
        bench.end_turns();
        // The first round seals what is written, the second one gives it up.
        for round in 1..=2 {
            bench.owner.apply_retention();
            let mut turns = 0;
            while bench.owner.has_work() {
                turns += 1;
                bench.owner.apply_retention();
                bench.with(|owner, desk| owner.on_time(desk));
                bench.end_turn();
            }
            assert_eq!(turns, 3, "round {round}");
        }
        let logs = bench.owner.partitions.iter().map(|(_, partition)| &partition.log);
        let given_up = logs.filter(|log| log.log_start_offset() == Offset(1)).count();
        assert_eq!(given_up, LOGS as usize);
    }
}
