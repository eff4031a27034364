//! A machine that counts: each call adds a number to a name and answers with the sum.

use super::*;
use std::collections::BTreeMap;

use records::{BatchBuilder, Compression, NewRecord};

use crate::journal::KeyValue;

#[derive(Debug, Default)]
struct Sums {
    sums: BTreeMap<Vec<u8>, u8>,
    ended: Vec<(i64, bool)>,
}

impl Machine for Sums {
    type Call = (&'static str, u8);
    type Reply = Result<u8, Refusal>;
    type Context = ();

    fn replay(&mut self, record: &Replayed<'_>) -> Result<(), String> {
        let [value] = record.value.ok_or("a tombstone")? else { return Err("too long".into()) };
        self.sums.insert(record.key.to_vec(), *value);
        Ok(())
    }

    fn end_transaction(&mut self, producer: ProducerId, committed: bool) {
        self.ended.push((producer.0, committed));
    }

    fn loaded(&mut self, _: &mut Turn<'_, Self::Reply>) {}

    fn handle(
        &mut self,
        turn: &mut Turn<'_, Self::Reply>,
        (): &(),
        (name, by): Self::Call,
        ticket: Token,
    ) {
        let sum = self.sums.get(name.as_bytes()).copied().unwrap_or_default() + by;
        if by > 0 {
            let key = Bytes::from_static(name.as_bytes());
            let value = Some(Bytes::copy_from_slice(&[sum]));
            if turn.write(&[KeyValue { key, value }]).is_err() {
                return turn.reply_at_once(ticket, Err(Refusal::AppendFailed(10)));
            }
            self.sums.insert(name.into(), sum);
        }
        turn.reply(ticket, Ok(sum));
    }

    fn next_timer(&self) -> Option<Instant> {
        None
    }

    fn on_timer(&mut self, _: &mut Turn<'_, Self::Reply>) {}

    fn forget(&mut self, _: &mut Turn<'_, Self::Reply>) {
        self.sums.clear();
    }

    fn refuse(_: &Self::Call, refusal: Refusal) -> Self::Reply {
        Err(refusal)
    }

    fn retract(_: Self::Reply, refusal: Refusal) -> Self::Reply {
        Err(refusal)
    }
}

const NOW: Now = Now { mono: Instant::ZERO, wall_ms: 1_000 };

fn coordinator() -> Coordinator<Sums> {
    let rules = WriteRules { compression: Compression::None, batch_bytes_max: 200 };
    Coordinator::new(Sums::default(), rules)
}

fn active() -> Coordinator<Sums> {
    let mut coordinator = coordinator();
    coordinator.loaded(NOW);
    coordinator
}

fn add(coordinator: &mut Coordinator<Sums>, name: &'static str, by: u8, ticket: u64) {
    coordinator.handle(NOW, &(), (name, by), Token::from_bits(ticket));
}

/// The outputs of the turn: what is appended, and the replies by ticket.
type Outputs = (Vec<Bytes>, Vec<(u64, Result<u8, Refusal>)>, bool);

fn outputs(coordinator: &mut Coordinator<Sums>) -> Outputs {
    let (mut out, mut all) = (Vec::new(), Outputs::default());
    coordinator.end_of_turn(&mut out);
    for output in out {
        match output {
            Output::Append { batch } => all.0.push(batch),
            Output::Reply { ticket, reply } => all.1.push((ticket.to_bits(), reply)),
            Output::Reload => all.2 = true,
        }
    }
    all
}

#[test]
fn a_reply_waits_until_its_records_are_committed() {
    let mut coordinator = active();
    add(&mut coordinator, "a", 2, 1);
    add(&mut coordinator, "a", 3, 2);
    let (appends, replies, _) = outputs(&mut coordinator);
    assert_eq!((appends.len(), replies.len()), (1, 0), "one append for the turn");
    add(&mut coordinator, "a", 0, 3);
    add(&mut coordinator, "b", 1, 4);
    assert_eq!(outputs(&mut coordinator), (vec![], vec![], false), "one in flight");
    coordinator.high_watermark(Offset(2));
    assert_eq!(outputs(&mut coordinator).1, vec![], "committed, but not known to be ours");
    coordinator.appended(NOW, Ok(Offset(1)));
    let (appends, replies, _) = outputs(&mut coordinator);
    assert_eq!(replies, vec![(1, Ok(2)), (2, Ok(5)), (3, Ok(5))], "the read waited too");
    assert_eq!(appends.len(), 1);
    coordinator.appended(NOW, Ok(Offset(2)));
    assert_eq!(outputs(&mut coordinator).1, vec![]);
    coordinator.high_watermark(Offset(3));
    assert_eq!(outputs(&mut coordinator).1, vec![(4, Ok(1))]);
    add(&mut coordinator, "a", 0, 5);
    assert_eq!(outputs(&mut coordinator).1, vec![(5, Ok(5))], "nothing is on its way");
}

#[test]
fn what_does_not_fit_goes_into_the_next_batch_and_what_never_fits_is_refused() {
    let mut coordinator = active();
    for ticket in 0..4 {
        add(&mut coordinator, "0123456789012345678901234567890123456789", 1, ticket);
    }
    let mut batches = 0;
    let mut last = -1;
    loop {
        let (appends, _, _) = outputs(&mut coordinator);
        let Some(batch) = appends.first() else { break };
        assert!(batch.len() <= 200, "{} bytes", batch.len());
        last +=
            i64::from(Batches::new(batch.clone()).next().unwrap().unwrap().header().record_count);
        coordinator.appended(NOW, Ok(Offset(last)));
        batches += 1;
    }
    assert!(batches > 1);
    assert_eq!(last, 3);
    let long = "x".repeat(200).leak();
    add(&mut coordinator, long, 1, 9);
    assert_eq!(outputs(&mut coordinator).1, vec![(9, Err(Refusal::AppendFailed(10)))]);
}

#[test]
fn a_failed_append_forgets_everything_and_asks_for_the_log() {
    let mut coordinator = active();
    add(&mut coordinator, "a", 1, 1);
    outputs(&mut coordinator);
    add(&mut coordinator, "a", 1, 2);
    coordinator.appended(NOW, Err(56));
    let failed = Err(Refusal::AppendFailed(56));
    assert_eq!(outputs(&mut coordinator), (vec![], vec![(1, failed), (2, failed)], true));
    assert!(coordinator.machine().sums.is_empty());
    add(&mut coordinator, "a", 1, 3);
    assert_eq!(outputs(&mut coordinator).1, vec![(3, Err(Refusal::Loading))]);
    coordinator.loaded(NOW);
    add(&mut coordinator, "a", 1, 4);
    assert_eq!(outputs(&mut coordinator).0.len(), 1);
    coordinator.unload(NOW);
    coordinator.appended(NOW, Err(6));
    coordinator.appended(NOW, Ok(Offset(9)));
    add(&mut coordinator, "a", 1, 5);
    let not = Err(Refusal::NotCoordinator);
    assert_eq!(outputs(&mut coordinator), (vec![], vec![(4, not), (5, not)], false));
}

#[test]
fn what_was_written_is_loaded_again_batch_by_batch() {
    let mut coordinator = active();
    add(&mut coordinator, "a", 2, 1);
    let mut log = outputs(&mut coordinator).0.remove(0).to_vec();
    coordinator.appended(NOW, Ok(Offset(0)));
    let mut second = BatchBuilder::new(Offset(1), Compression::None);
    second.append(&NewRecord { key: Some(b"b"), value: Some(&[7]), ..Default::default() });
    let second = second.build();
    log.extend_from_slice(second.bytes());

    let mut loading = self::coordinator();
    let torn = Bytes::copy_from_slice(&log[..log.len() - 1]);
    assert_eq!(loading.load(torn).unwrap(), Offset(1));
    assert_eq!(loading.load(log.into()).unwrap(), Offset(2), "the first is passed over");
    assert_eq!(loading.machine().sums, BTreeMap::from([(b"a".to_vec(), 2), (b"b".to_vec(), 7)]));
    assert_eq!(loading.phase(), Phase::Loading);

    let mut damaged = second.bytes().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(self::coordinator().load(damaged.into()), Err(LoadError::Batch { .. })));
    let mut tombstone = BatchBuilder::new(Offset(4), Compression::None);
    tombstone.append(&NewRecord { key: Some(b"b"), ..Default::default() });
    let result = self::coordinator().load(tombstone.build().bytes().clone());
    assert!(matches!(result, Err(LoadError::Record { offset: Offset(4), .. })));
}

#[test]
fn ends_of_transactions_are_told() {
    let mut log = Vec::new();
    for (offset, kind) in [(0, ControlType::Commit), (1, ControlType::Abort)] {
        let mut batch = BatchBuilder::new(Offset(offset), Compression::None)
            .producer(ProducerId(40 + offset), base::ProducerEpoch(0), -1)
            .transactional()
            .control();
        let key = ControlKey::new(kind).write();
        let value = records::end_transaction_marker(0);
        batch.append(&NewRecord { key: Some(&key), value: Some(&value), ..Default::default() });
        log.extend_from_slice(batch.build().bytes());
    }
    let mut coordinator = coordinator();
    assert_eq!(coordinator.load(log.into()).unwrap(), Offset(2));
    assert_eq!(coordinator.machine().ended, vec![(40, true), (41, false)]);
}
