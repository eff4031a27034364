//! A member of a classic group: it joins, is assigned partitions, commits offsets and leaves.

use protocol::Str;

use crate::history::{History, Place};
use crate::lie::Lie;

/// One member, which has one request in flight at a time.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its group.
    pub group: usize,
    /// The id that the coordinator gave it; empty before.
    pub id: Str,
    /// The generation that it belongs to.
    pub generation: i32,
    /// How far it is.
    pub stage: Stage,
    /// What it was assigned.
    pub assigned: Vec<Place>,
}

/// How far a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It looks for the coordinator.
    Finding,
    /// It joins the next generation.
    Joining,
    /// It asks for its assignment; the leader brings those of all.
    Syncing(Vec<(Str, Vec<Place>)>),
    /// It consumes.
    Stable,
}

impl Member {
    /// Somebody who wants to be a member of this group.
    pub fn new(group: usize) -> Self {
        let (id, assigned) = (Str::default(), Vec::new());
        Self { group, id, generation: -1, stage: Stage::Finding, assigned }
    }

    /// It is the leader of a new generation: who gets what.
    pub fn plan(&self, history: &History, members: &[Str]) -> Vec<(Str, Vec<Place>)> {
        let places = &history.groups[self.group].places;
        let share = |number: usize| {
            let of_all = history.lie == Some(Lie::AssignedTwice);
            let mine = places.iter().enumerate();
            let mine = mine.filter(|(index, _)| of_all || index % members.len() == number);
            mine.map(|(_, place)| *place).collect()
        };
        members.iter().enumerate().map(|(number, id)| (id.clone(), share(number))).collect()
    }

    /// It is no member any more, or not of this generation.
    pub fn begins_anew(&mut self) {
        *self = Self { stage: Stage::Joining, ..Self::new(self.group) };
    }

    /// The connection was lost: what it asked for last has an unknown fate.
    pub fn lost_connection(&mut self) {
        if matches!(self.stage, Stage::Syncing(_)) {
            self.stage = Stage::Joining;
        }
    }
}
