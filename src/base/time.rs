//! Time as a machine sees it: it enters with each step and is never asked for.

pub use std::time::Duration;

/// Monotonic time of one process, in nanoseconds since a start that has no meaning outside of it.
///
/// Timers use it. It never goes back, and it says nothing about the date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The earliest instant.
    pub const ZERO: Instant = Instant(0);
    /// An instant that no clock reaches: "never" for a timer.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant that lies `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero when `earlier` is the later one.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at [`Instant::FAR_FUTURE`].
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

/// What the clocks showed when a step began.
///
/// The two are skewed apart by the simulator, as they are by an administrator who sets the date:
/// timers and time-outs use `mono`; retention, LogAppendTime and token expiry use `wall_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time.
    pub mono: Instant,
    /// Milliseconds since 1970-01-01 UTC, as record timestamps count them.
    pub wall_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_saturates_and_since_never_underflows() {
        assert_eq!(Instant::FAR_FUTURE + Duration::from_secs(1), Instant::FAR_FUTURE);
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
