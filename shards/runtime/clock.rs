//! The clocks of a node.

use std::time::{SystemTime, UNIX_EPOCH};

use base::{Instant, Now};

/// Where monotonic time begins: the same for all threads of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

#[allow(clippy::disallowed_methods)] // Here time enters.
impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let wall_ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(_) => 0,
        };
        Now { mono: self.mono(), wall_ms }
    }

    pub(crate) fn mono(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
