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
                } else if partition.parked_appends.len() < PARKED_MAX {
                    partition.parked_appends.push((part, place));
                    None
                } else {
                    refused(ErrorCode::NOT_LEADER_OR_FOLLOWER)
                }
            }
        };
        if let Some(answer) = answer {
            self.appended(desk, place, *answer);
        }
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
