//! Appends: checked and given to the log in the order they come, answered when they are as
//! durable as the topic demands.

use base::Token;
use intercom::{AppendAnswer, AppendAsk, Appended, Reply};

use super::{Asker, Desk, Owner, Serving};
use crate::partition::Place;

impl Owner {
    pub(super) fn append(&mut self, desk: &mut Desk<'_>, asker: Asker, ask: AppendAsk) {
        let missing = ask.partitions.len();
        let serving = Serving::Append { asker, outcomes: vec![None; missing], missing };
        let token = self.serving.insert(serving).expect("those who ask are bounded");
        for (index, part) in ask.partitions.into_iter().enumerate() {
            let place = Place { ask: token, index };
            let result =
                self.find(part.key).map_err(|code| Box::new(Appended::refused(code, None)));
            let result = result.and_then(|partition| {
                self.partition(partition).append(desk.now, &part.records, place)?;
                self.touch(partition);
                Ok(())
            });
            if let Err(refused) = result {
                self.appended(desk, place, *refused);
            }
        }
        if missing == 0 {
            self.answer_append(desk, token);
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
        let Some(Serving::Append { asker, outcomes, .. }) = self.serving.remove(token) else {
            unreachable!("only appends are answered here");
        };
        let partitions = outcomes.into_iter().flatten().collect();
        desk.reply(asker, Reply::Append(AppendAnswer { partitions }));
    }
}
