//! Lines about clients that misbehave and disks that are full: a few, however often that is.

use base::{Duration, Instant, Map};

/// How often a listener or a directory has such a line at most. More would let a client fill the
/// operator's disk.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// What was said of each listener, or of each directory, by its number.
#[derive(Debug, Default)]
pub struct Complaints {
    by_number: Map<u16, Said>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    suppressed: u64,
}

impl Complaints {
    /// Whether there may be a line about this listener or directory now, and then how many were
    /// suppressed since the last one.
    pub fn may_say(&mut self, now: Instant, number: u16) -> Option<u64> {
        match self.by_number.get_mut(&number) {
            Some(said) if now.since(said.at) < LINE_EVERY => {
                said.suppressed += 1;
                None
            }
            Some(said) => {
                said.at = now;
                Some(std::mem::take(&mut said.suppressed))
            }
            None => {
                self.by_number.insert(number, Said { at: now, suppressed: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_has_a_line_a_second_and_counts_the_others() {
        let mut complaints = Complaints::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(complaints.may_say(at(0), 0), Some(0));
        assert_eq!(complaints.may_say(at(1), 1), Some(0), "another listener");
        for ms in 2..1_000 {
            assert_eq!(complaints.may_say(at(ms), 0), None);
        }
        assert_eq!(complaints.may_say(at(1_000), 0), Some(998));
        assert_eq!(complaints.may_say(at(2_000), 0), Some(0));
    }
}
