//! Latencies, kept so that percentiles of several runs can be taken together.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is told apart; a longer one counts as this.
const LATENCY_MAX: Duration = Duration::from_secs(100);
/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// A distribution of latencies, exact to three digits, in microseconds from 1 µs to 100 s.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let max = LATENCY_MAX.as_nanos() as u64;
        Self(Histogram::new_with_bounds(1_000, max, DIGITS).expect("the bounds are in order"))
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all that another one counted.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency in milliseconds that `percent` of all stay within; 100 is the longest one.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        milliseconds.for_each(|value| latencies.record(Duration::from_millis(value)));
        latencies
    }

    #[track_caller]
    fn check(latencies: &Latencies, percent: f64, expected: f64) {
        let found = latencies.percentile_ms(percent);
        assert!((found / expected - 1.0).abs() < 0.002, "{percent}: {found}, not {expected}");
    }

    #[test]
    fn merged_percentiles_are_those_of_all_values_together() {
        let mut merged = of((1..=1_000).filter(|value| value % 3 == 0));
        merged.merge(&of((1..=1_000).filter(|value| value % 3 != 0)));
        let whole = of(1..=1_000);
        assert_eq!(merged.count(), 1_000);
        for percent in [50.0, 90.0, 99.0, 99.9, 100.0] {
            assert!((merged.percentile_ms(percent) - whole.percentile_ms(percent)).abs() < 1e-9);
        }
        check(&merged, 50.0, 500.0);
        check(&merged, 99.0, 990.0);
        check(&merged, 100.0, 1_000.0);
    }

    #[test]
    fn one_slow_answer_is_the_longest_and_no_median() {
        let mut latencies = of((0..999).map(|_| 1));
        latencies.record(Duration::from_secs(1_000_000));
        check(&latencies, 50.0, 1.0);
        check(&latencies, 100.0, 100_000.0);
    }

    #[test]
    fn nothing_counted_has_no_latency() {
        assert!(Latencies::default().percentile_ms(99.0) < 0.001);
    }
}
