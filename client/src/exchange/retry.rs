//! When to send again, and when to give up. Only arithmetic: the sender waits.

use std::time::Duration;

/// Number of attempts at one request, and their delays.
///
/// Delays double from `first_delay` to `max_delay`, each with random jitter added. A longer `Retry-After` is honoured;
/// if it does not fit into `max_elapsed` the request fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Largest number of attempts, including the first; 0 means 1.
    pub max_attempts: usize,
    /// Delay before the second attempt.
    pub first_delay: Duration,
    /// Longest delay before jitter is added.
    pub max_delay: Duration,
    /// No new attempt begins later than this after the first one began.
    pub max_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts with four to eight seconds of delays in total, for a person who is waiting.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            first_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(10),
            max_elapsed: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// One attempt.
    pub fn never() -> Self {
        Self {
            max_attempts: 1,
            ..Self::default()
        }
    }

    /// Ten attempts over some minutes, enough for a server to restart or a phone to change networks.
    pub fn patient() -> Self {
        Self {
            max_attempts: 10,
            first_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(30),
            max_elapsed: Duration::from_secs(300),
        }
    }

    /// The delay after `attempts` failed attempts, the first of which began `elapsed` ago; `None` to give up.
    /// `retry_after` is the delay that the server asked for, and `jitter` a random number in [0, 1).
    pub fn delay(
        &self,
        attempts: usize,
        elapsed: Duration,
        retry_after: Option<Duration>,
        jitter: f64,
    ) -> Option<Duration> {
        if attempts >= self.max_attempts {
            return None;
        }
        let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let base = self.first_delay.saturating_mul(factor).min(self.max_delay);
        let jitter_steps = (jitter.clamp(0.0, 1.0) * 1_024.0) as u32;
        let delay = base.saturating_add(base.saturating_mul(jitter_steps) / 1_024);
        let total_delay = retry_after.map_or(delay, |retry_after| {
            delay.max(retry_after.saturating_add(delay / 4))
        });
        (elapsed.saturating_add(total_delay) <= self.max_elapsed).then_some(total_delay)
    }
}

/// Parses `Retry-After`: seconds, or a date, which is compared with the response's own `Date` if it has one, and
/// otherwise with `now`, in milliseconds since 1970.
pub(super) fn retry_after(value: &str, date: Option<&str>, now: Option<u64>) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = date
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .or(now.map(|now| std::time::UNIX_EPOCH + Duration::from_millis(now)))?;
    // A date in the past means "now".
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_with_jitter_up_to_the_limit() {
        let policy = RetryPolicy {
            max_attempts: 8,
            first_delay: SECOND,
            max_delay: 4 * SECOND,
            max_elapsed: 1_000 * SECOND,
        };
        let bases = [1, 2, 4, 4, 4, 4, 4];
        for (attempts, base) in (1..).zip(bases) {
            for jitter in [0.0, 0.5, 1.0, 7.0] {
                let delay = policy
                    .delay(attempts, Duration::ZERO, None, jitter)
                    .unwrap();
                let expected = (base * SECOND).mul_f64(1.0 + jitter.min(1.0));
                assert_eq!(delay, expected);
            }
        }
        assert_eq!(policy.delay(8, Duration::ZERO, None, 0.0), None);
        let endless = RetryPolicy {
            max_attempts: usize::MAX,
            ..policy
        };
        let late = endless.delay(1_000_000, Duration::ZERO, None, 0.0);
        assert_eq!(late, Some(4 * SECOND));
    }

    #[test]
    fn retry_after_reads_seconds_and_dates() {
        let at = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(retry_after("120", None, None), at(120));
        let noon = "Fri, 31 Dec 1999 12:00:00 GMT";
        let later = "Fri, 31 Dec 1999 12:01:30 GMT";
        // The server's clock counts, not ours.
        assert_eq!(retry_after(later, Some(noon), Some(0)), at(90));
        assert_eq!(retry_after(noon, Some(later), None), at(0));
        assert_eq!(retry_after(later, None, Some(946_641_600_000)), at(90));
        for unreadable in ["-1", "soon", ""] {
            assert_eq!(retry_after(unreadable, None, None), None);
        }
        assert_eq!(retry_after(later, None, None), None);
    }
}
