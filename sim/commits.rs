//! What a group has committed for a partition is what it finds: commits take effect between
//! request and answer, one that was refused never, and what was acknowledged is not lost while the
//! machine keeps its power, or was synced.

use crate::terms::{Life, Violation, ensure};

/// Counts requests and answers of groups.
pub type Clock = u64;

/// One commit.
#[derive(Clone, Copy, Debug)]
struct Commit {
    number: u64,
    offset: i64,
    sent: Clock,
    /// When it was acknowledged, or first found.
    done: Option<Clock>,
    /// The life in which that was last known.
    life: Life,
    is_refused: bool,
}

/// The commits of one group for one partition.
#[derive(Clone, Debug, Default)]
pub struct Commits {
    commits: Vec<Commit>,
}

impl Commits {
    /// A commit is sent.
    pub fn sent(&mut self, number: u64, offset: i64, now: Clock, life: Life) {
        let commit = Commit { number, offset, sent: now, done: None, life, is_refused: false };
        self.commits.push(commit);
    }

    /// It was acknowledged in this life.
    pub fn acknowledged(&mut self, number: u64, now: Clock, life: Life) {
        if let Some(commit) = self.find(number) {
            commit.done = Some(commit.done.map_or(now, |done| done.min(now)));
            commit.life = commit.life.max(life);
        }
    }

    /// It was refused: it must not be found.
    pub fn refused(&mut self, number: u64) {
        if let Some(commit) = self.find(number) {
            commit.is_refused = true;
        }
    }

    /// The first one that was acknowledged, for those who want to lie.
    pub fn oldest(&self) -> Option<(u64, i64)> {
        let commit = self.commits.iter().find(|commit| commit.done.is_some())?;
        Some((commit.number, commit.offset))
    }

    /// A request that was sent at `sent`, in this life, found this commit, or none.
    pub fn found(
        &mut self,
        found: Option<(u64, i64)>,
        sent: Clock,
        now: Clock,
        life: Life,
        is_synced: bool,
    ) -> Result<(), Violation> {
        let binds = |commit: &&Commit| {
            commit.done.is_some_and(|done| done <= sent) && (is_synced || commit.life >= life)
        };
        let Some((number, offset)) = found else {
            let lost = self.commits.iter().find(binds);
            return ensure(lost.is_none(), || format!("nothing is committed, and was: {lost:?}"));
        };
        let Some(commit) = self.commits.iter().find(|commit| commit.number == number).copied()
        else {
            return Err(Violation(format!("commit {number} was never sent")));
        };
        ensure(commit.offset == offset && !commit.is_refused, || {
            format!("offset {offset} was found, and what was sent is {commit:?}")
        })?;
        if let Some(done) = commit.done {
            let mut binding = self.commits.iter().filter(binds);
            let newer = binding.find(|newer| newer.sent > done);
            ensure(newer.is_none(), || {
                format!("{commit:?} was found, and {newer:?} was committed after it")
            })?;
        }
        self.acknowledged(number, now, life);
        Ok(())
    }

    fn find(&mut self, number: u64) -> Option<&mut Commit> {
        self.commits.iter_mut().find(|commit| commit.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Commits {
        let mut commits = Commits::default();
        commits.sent(1, 10, 1, 0);
        commits.acknowledged(1, 2, 0);
        commits.sent(2, 20, 3, 0);
        commits
    }

    #[test]
    fn commits_take_effect_between_request_and_answer() {
        let (first, second) = (Some((1, 10)), Some((2, 20)));
        let check = |commits: &Commits, found, sent| {
            commits.clone().found(found, sent, sent + 1, 0, false).map_err(|violation| violation.0)
        };
        let mut commits = two();
        for either in [first, second] {
            check(&commits, either, 4).expect("it is on its way");
        }
        check(&commits, None, 4).expect_err("the first was acknowledged");
        check(&commits, None, 1).expect("it was not when this was asked");
        check(&commits, Some((1, 11)), 4).expect_err("another offset");
        check(&commits, Some((3, 30)), 4).expect_err("nobody sent it");
        commits.acknowledged(2, 5, 0);
        check(&commits, first, 6).expect_err("went back");
        check(&commits, first, 4).expect("asked before");
        check(&commits, second, 6).expect("the newest");
        commits.refused(2);
        check(&commits, second, 6).expect_err("it was refused");
    }

    #[test]
    fn what_was_found_is_known_from_then_on() {
        let mut commits = two();
        commits.found(Some((2, 20)), 4, 5, 0, false).expect("it is on its way");
        commits.found(Some((1, 10)), 6, 7, 0, false).expect_err("went back");
    }

    #[test]
    fn a_loss_of_power_takes_what_was_not_synced() {
        let mut commits = two();
        commits.acknowledged(2, 4, 0);
        commits.clone().found(Some((1, 10)), 5, 6, 1, true).expect_err("it was synced");
        commits.found(Some((1, 10)), 5, 6, 1, false).expect("the power was lost");
        commits.found(None, 7, 8, 1, false).expect_err("and has been there since");
    }
}
