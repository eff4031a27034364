//! Whether to look around for a while before sleeping.

use std::time::Duration;

use base::Instant;

/// How long an adaptive spin lasts: what waking a sleeping core costs.
const SPIN: Duration = Duration::from_micros(30);
/// So many more spins in vain than with success, and the core sleeps without.
const MISSES_MAX: u32 = 4;
/// A sleep shorter than this says that a spin would have paid.
const SHORT_SLEEP: Duration = Duration::from_micros(40);
/// After repeated failures so many short sleeps in a row are wanted before spinning is tried again.
const SHORT_SLEEPS_WANTED_MAX: u32 = 64;

/// What a core does when it has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Spins for some 30 µs before it sleeps, as long as that pays.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Never,
    /// Spins so long before every sleep: a core is paid for latency.
    Always(Duration),
}

/// Keeps account of whether spinning pays.
#[derive(Debug)]
pub(crate) struct Spinner {
    spin: Spin,
    misses: u32,
    short_sleeps: u32,
    /// How many short sleeps in a row bring spinning back: doubled each time that it failed.
    short_sleeps_wanted: u32,
}

impl Spinner {
    pub(crate) fn new(spin: Spin) -> Self {
        Self { spin, misses: 0, short_sleeps: 0, short_sleeps_wanted: 1 }
    }

    /// How long to spin now.
    pub(crate) fn time(&self) -> Duration {
        match self.spin {
            Spin::Adaptive if self.misses < MISSES_MAX => SPIN,
            Spin::Adaptive | Spin::Never => Duration::ZERO,
            Spin::Always(time) => time,
        }
    }

    pub(crate) fn won(&mut self) {
        self.misses = self.misses.saturating_sub(1);
        if self.misses == 0 {
            self.short_sleeps_wanted = 1;
        }
    }

    pub(crate) fn lost(&mut self) {
        self.misses = self.misses.saturating_add(1);
        if self.misses == MISSES_MAX {
            self.short_sleeps_wanted = (self.short_sleeps_wanted * 2).min(SHORT_SLEEPS_WANTED_MAX);
        }
    }

    /// The core slept, without a spin before if spinning is off.
    pub(crate) fn slept(&mut self, from: Instant, to: Instant) {
        let is_short = to.since(from) < SHORT_SLEEP;
        self.short_sleeps = if is_short { self.short_sleeps + 1 } else { 0 };
        if self.misses >= MISSES_MAX && self.short_sleeps >= self.short_sleeps_wanted {
            (self.misses, self.short_sleeps) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(spinner: &mut Spinner, micros: u64) {
        spinner.slept(Instant::ZERO, Instant::ZERO + Duration::from_micros(micros));
    }

    #[test]
    fn spinning_stops_when_it_does_not_pay_and_begins_again_after_short_sleeps() {
        let mut spinner = Spinner::new(Spin::Adaptive);
        let mut wanted = 1;
        for _ in 0..10 {
            for _ in 0..MISSES_MAX {
                assert_eq!(spinner.time(), SPIN);
                spinner.lost();
            }
            wanted = (wanted * 2).min(SHORT_SLEEPS_WANTED_MAX);
            sleep(&mut spinner, 41);
            for _ in 0..wanted {
                assert_eq!(spinner.time(), Duration::ZERO);
                sleep(&mut spinner, 39);
            }
        }
        spinner.won();
        assert_eq!((spinner.time(), spinner.short_sleeps_wanted), (SPIN, 1));
    }

    #[test]
    fn a_core_that_wins_as_often_as_it_loses_goes_on() {
        let mut spinner = Spinner::new(Spin::Adaptive);
        for _ in 0..100 {
            spinner.lost();
            spinner.won();
            assert_eq!(spinner.time(), SPIN);
        }
    }
}
