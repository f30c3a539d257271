//! The clock of devices and servers.

use std::time::{SystemTime, UNIX_EPOCH};

/// A clock, passed in so that tests set the time. Any `Fn() -> u64` is one.
///
/// ```
/// use eigenveil_shared::clock::{Clock, SystemClock};
/// assert!(SystemClock.unix_ms() > 1_700_000_000_000);
/// let stopped = || 42_u64;
/// assert_eq!(stopped.unix_ms(), 42);
/// ```
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn unix_ms(&self) -> u64;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        // Before 1970 a report's identifier loses its order, and nothing else depends on it.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| {
                u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
            })
    }
}

impl<F: Fn() -> u64 + Send + Sync> Clock for F {
    fn unix_ms(&self) -> u64 {
        self()
    }
}
