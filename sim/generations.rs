//! A generation of a group has one leader, and each partition at most one member.

use std::collections::BTreeMap;

use crate::terms::{Boot, Life, Place, Violation, ensure};

/// What is known of the generations of one group.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    /// A generation that was not written down before a crash comes again.
    leaders: BTreeMap<(Boot, i32), String>,
    members: BTreeMap<(Life, i32, Place), String>,
}

impl Generations {
    /// A member was told who leads a generation. True if nobody was before.
    pub fn led_by(&mut self, boot: Boot, generation: i32, leader: &str) -> Result<bool, Violation> {
        let is_new = !self.leaders.contains_key(&(boot, generation));
        let known = self.leaders.entry((boot, generation)).or_insert_with(|| leader.to_owned());
        ensure(known == leader, || {
            format!("generation {generation} is led by {known} and by {leader}")
        })?;
        Ok(is_new)
    }

    /// A member was assigned a partition.
    pub fn assigned(
        &mut self,
        life: Life,
        generation: i32,
        place: Place,
        member: &str,
    ) -> Result<(), Violation> {
        let known = self.members.entry((life, generation, place));
        let known = known.or_insert_with(|| member.to_owned());
        ensure(known == member, || {
            format!("in generation {generation}, {place:?} belongs to {known} and to {member}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_one_member_a_generation() {
        let mut generations = Generations::default();
        generations.assigned(0, 1, (0, 0), "a").expect("the first");
        generations.assigned(0, 1, (0, 0), "a").expect("once more");
        generations.assigned(0, 1, (0, 0), "b").expect_err("two members");
        generations.assigned(0, 2, (0, 0), "b").expect("another generation");
        generations.assigned(1, 1, (0, 0), "b").expect("another life");
        assert_eq!(generations.led_by(1, 1, "a"), Ok(true));
        assert_eq!(generations.led_by(1, 1, "a"), Ok(false));
        generations.led_by(1, 1, "b").expect_err("two leaders");
        assert_eq!(generations.led_by(2, 1, "b"), Ok(true));
    }
}
