//! When each request of an open loop is meant to be sent.

use std::time::Duration;

/// Requests at an even pace. The n-th one is meant for `n / rate` after the start, whatever became
/// of those before it: a server that stalls is charged for all that had to wait.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    nanoseconds_between: f64,
}

impl Schedule {
    /// A pace in requests per second.
    ///
    /// # Panics
    /// If it is not a positive number.
    pub fn new(requests_per_second: f64) -> Self {
        assert!(requests_per_second > 0.0, "a pace is positive: {requests_per_second}");
        Self { nanoseconds_between: 1e9 / requests_per_second }
    }

    /// When the request of this number, counted from 0, is meant to be sent.
    pub fn intended(&self, number: u64) -> Duration {
        Duration::from_nanos((number as f64 * self.nanoseconds_between) as u64)
    }

    /// How many requests are meant to have been sent by then.
    pub fn due(&self, elapsed: Duration) -> u64 {
        let guess = (elapsed.as_nanos() as f64 / self.nanoseconds_between) as u64;
        // The division may be off by one against the multiplication above.
        (guess.saturating_sub(1)..)
            .find(|number| self.intended(*number) > elapsed)
            .expect("intended times grow without end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_due_at_once_and_the_rest_evenly() {
        let schedule = Schedule::new(1_000.0);
        let check = |microseconds, count| {
            assert_eq!(schedule.due(Duration::from_micros(microseconds)), count, "{microseconds}");
        };
        check(0, 1);
        check(999, 1);
        check(1_000, 2);
        check(1_999, 2);
        check(10_000, 11);
        assert_eq!(schedule.intended(10), Duration::from_millis(10));
    }

    #[test]
    fn both_directions_agree_at_odd_paces() {
        for rate in [0.5, 3.0, 7.7, 333.3, 29_999.0, 1_234_567.0] {
            let schedule = Schedule::new(rate);
            for number in (0..100_000).step_by(37) {
                let intended = schedule.intended(number);
                assert!(schedule.due(intended) > number, "{rate} {number}");
                if let Some(before) = intended.checked_sub(Duration::from_nanos(1)) {
                    assert!(schedule.due(before) <= number, "{rate} {number}");
                }
            }
        }
    }

    #[test]
    fn a_stall_does_not_move_what_follows() {
        let schedule = Schedule::new(100.0);
        let before = schedule.due(Duration::from_millis(50));
        let after = schedule.due(Duration::from_millis(1_050));
        assert_eq!(after - before, 100, "all that was meant for the second is owed");
    }
}
