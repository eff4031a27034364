//! Whether to look around for a while before sleeping.

use std::time::Duration;

use base::Instant;

/// How long an adaptive spin lasts: what waking a sleeping core costs.
const SPIN: Duration = Duration::from_micros(30);
/// So many spins in vain, and the next sleeps come without.
const MISSES_MAX: u32 = 4;
/// A sleep shorter than this says that a spin would have paid.
const SHORT_SLEEP: Duration = Duration::from_micros(40);

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
}

impl Spinner {
    pub(crate) fn new(spin: Spin) -> Self {
        Self { spin, misses: 0 }
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
        self.misses = 0;
    }

    pub(crate) fn lost(&mut self) {
        self.misses = self.misses.saturating_add(1);
    }

    pub(crate) fn slept(&mut self, from: Instant, to: Instant) {
        if to.since(from) < SHORT_SLEEP {
            self.misses = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_stops_when_it_does_not_pay_and_begins_again_after_a_short_sleep() {
        let mut spinner = Spinner::new(Spin::Adaptive);
        for _ in 0..MISSES_MAX {
            assert_eq!(spinner.time(), SPIN);
            spinner.lost();
        }
        assert_eq!(spinner.time(), Duration::ZERO);
        spinner.slept(Instant::from_nanos(0), Instant::from_nanos(41_000));
        assert_eq!(spinner.time(), Duration::ZERO);
        spinner.slept(Instant::from_nanos(0), Instant::from_nanos(39_000));
        assert_eq!(spinner.time(), SPIN);
    }
}
