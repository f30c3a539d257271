//! When to send again, and when to give up.

use std::{
    future::Future,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::{Error, Result};

/// How often and how long one request is tried.
///
/// Delays double from `first_delay` to `max_delay`, each with random jitter added. A longer `Retry-After` is honoured;
/// if it does not fit into `max_elapsed` the request fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Largest number of attempts, including the first; 0 means 1.
    pub max_attempts: usize,
    /// Delay before the second attempt.
    pub first_delay: Duration,
    /// Longest delay before the random share is added.
    pub max_delay: Duration,
    /// No new attempt begins later than this after the first one began.
    pub max_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts over some ten seconds: somebody is waiting.
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

    /// Ten attempts over some minutes: a server restarts, a phone changes networks.
    pub fn patient() -> Self {
        Self {
            max_attempts: 10,
            first_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(30),
            max_elapsed: Duration::from_secs(300),
        }
    }

    fn delays(&self) -> impl Iterator<Item = Duration> + use<> {
        ExponentialBuilder::new()
            .with_jitter()
            .with_factor(2.0)
            .with_min_delay(self.first_delay)
            .with_max_delay(self.max_delay)
            .with_max_times(self.max_attempts.saturating_sub(1))
            .build()
    }
}

/// After which failures a request may be sent again: a request that is not idempotent only if it certainly had no
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    /// After any failure that may pass: the request may be acted on twice.
    Always,
    /// Only when the server certainly did not act on it.
    IfUnprocessed,
}

impl RetrySafety {
    fn allows(self, error: &Error) -> bool {
        error.failure().is_some_and(|failure| {
            failure.retryable && (self == RetrySafety::Always || failure.not_processed)
        })
    }
}

/// Delays all requests to a server until its `Retry-After` has passed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opens: Mutex<Option<Instant>>,
}

impl Gate {
    async fn wait(&self) {
        loop {
            let opens = *self.opens.lock().unwrap_or_else(PoisonError::into_inner);
            match opens {
                Some(opens) if opens > Instant::now() => sleep_until(opens).await,
                _ => return,
            }
        }
    }

    fn close_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        *opens = (*opens).max(Some(until));
    }
}

/// Runs `attempt` until it succeeds, fails for good, or the policy is used up.
pub(crate) async fn retry<T, F>(
    policy: &RetryPolicy,
    gate: &Gate,
    retry_safety: RetrySafety,
    retries: &AtomicU64,
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut delays = policy.delays();
    let mut attempts = 0_u64;
    loop {
        attempts += 1;
        gate.wait().await;
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if !retry_safety.allows(&error) {
            return Err(error);
        }
        let Some(delay) = delays.next() else {
            return Err(match attempts {
                1 => error,
                _ => error.with_remark(format_args!("gave up after {attempts} attempts")),
            });
        };
        let asked = error.retry_after();
        let wait = asked.map_or(delay, |asked| delay.max(asked.saturating_add(delay / 4)));
        if started.elapsed().saturating_add(wait) > policy.max_elapsed {
            return Err(match asked {
                Some(asked) => error.with_remark(format_args!(
                    "the server asks to wait {} s, which is more than the {} s one request may take here",
                    asked.as_secs(),
                    policy.max_elapsed.as_secs()
                )),
                None => error.with_remark(format_args!("gave up after {attempts} attempts")),
            });
        }
        if let Some(asked) = asked {
            gate.close_for(asked);
        }
        retries.fetch_add(1, Ordering::Relaxed);
        sleep(wait).await;
    }
}

/// `Retry-After`, as seconds or as a date; a date is measured against the server's own clock where
/// the response tells it.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(RETRY_AFTER)?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = text(DATE)
        .and_then(|date| httpdate::parse_http_date(date).ok())
        .unwrap_or_else(SystemTime::now);
    // A date in the past means "now".
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use reqwest::header::HeaderValue;

    use super::*;
    use crate::error::HttpFailure;

    fn failure(failure: HttpFailure) -> Error {
        Error::http(failure, "it failed")
    }

    fn passing() -> Error {
        failure(HttpFailure {
            retryable: true,
            ..HttpFailure::default()
        })
    }

    fn asking(seconds: u64) -> Error {
        failure(HttpFailure {
            retryable: true,
            retry_after: Some(Duration::from_secs(seconds)),
            ..HttpFailure::default()
        })
    }

    /// Runs against these failures, then success; gives the outcome and when attempts were made.
    async fn run(
        policy: RetryPolicy,
        retry_safety: RetrySafety,
        failures: impl IntoIterator<Item = Error>,
    ) -> (Result<&'static str>, Vec<Duration>, u64) {
        let started = Instant::now();
        let failures = RefCell::new(failures.into_iter());
        let times = RefCell::new(Vec::new());
        let retries = AtomicU64::new(0);
        let result = retry(&policy, &Gate::default(), retry_safety, &retries, || {
            times.borrow_mut().push(started.elapsed());
            let failure = failures.borrow_mut().next();
            async { failure.map_or(Ok("done"), Err) }
        })
        .await;
        (result, times.into_inner(), retries.into_inner())
    }

    fn seconds(time: Duration) -> f64 {
        time.as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_with_jitter_up_to_the_limit() {
        let policy = RetryPolicy {
            max_attempts: 8,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(4),
            max_elapsed: Duration::from_secs(1_000),
        };
        let failures = std::iter::repeat_with(passing).take(7);
        let (result, times, retries) = run(policy, RetrySafety::Always, failures).await;
        assert_eq!(result.unwrap(), "done");
        assert_eq!((times.len(), retries), (8, 7));
        for (pair, base) in times.windows(2).zip([1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]) {
            let gap = seconds(pair[1] - pair[0]);
            assert!(gap >= base && gap <= 2.0 * base + 0.002, "{gap} for {base}");
        }
        let jitter: Vec<_> = times
            .windows(2)
            .map(|t| (t[1] - t[0]).subsec_millis())
            .collect();
        assert!(jitter.iter().any(|ms| *ms != jitter[0]), "{jitter:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_and_time_are_bounded() {
        let policy = RetryPolicy {
            max_attempts: 4,
            ..RetryPolicy::default()
        };
        let (result, times, _) =
            run(policy, RetrySafety::Always, std::iter::repeat_with(passing)).await;
        let error = result.unwrap_err();
        assert_eq!(times.len(), 4);
        assert!(
            error.is_retryable() && error.to_string().contains("after 4 attempts"),
            "{error}"
        );

        let policy = RetryPolicy {
            max_attempts: usize::MAX,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(2),
            max_elapsed: Duration::from_secs(30),
        };
        let (result, times, _) =
            run(policy, RetrySafety::Always, std::iter::repeat_with(passing)).await;
        assert!(result.is_err());
        assert!(*times.last().unwrap() <= policy.max_elapsed);
        assert!(times.len() >= 8, "{times:?}");

        let (result, times, _) = run(RetryPolicy::never(), RetrySafety::Always, [passing()]).await;
        assert!(!result.unwrap_err().to_string().contains("gave up"));
        assert_eq!(times.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_kept_to_or_given_up_at_once() {
        let (result, times, _) = run(
            RetryPolicy::default(),
            RetrySafety::Always,
            [asking(17), passing()],
        )
        .await;
        result.unwrap();
        let gap = seconds(times[1]);
        assert!((17.0..17.2).contains(&gap), "{gap}");

        let (result, times, _) =
            run(RetryPolicy::default(), RetrySafety::Always, [asking(3_600)]).await;
        let error = result.unwrap_err().to_string();
        assert_eq!(times.len(), 1);
        assert!(
            error.contains("3600 s") && error.contains("60 s"),
            "{error}"
        );
        run(
            RetryPolicy::default(),
            RetrySafety::Always,
            [asking(u64::MAX)],
        )
        .await
        .0
        .unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_wait_for_the_gate() {
        let gate = Gate::default();
        let started = Instant::now();
        gate.close_for(Duration::from_secs(9));
        gate.close_for(Duration::from_secs(5));
        let passed = retry(
            &RetryPolicy::default(),
            &gate,
            RetrySafety::Always,
            &AtomicU64::new(0),
            || async { Ok(started.elapsed()) },
        )
        .await
        .unwrap();
        assert!(seconds(passed) >= 9.0);
    }

    #[tokio::test(start_paused = true)]
    async fn non_idempotent_requests_are_not_resent() {
        let (result, times, _) = run(
            RetryPolicy::default(),
            RetrySafety::IfUnprocessed,
            [passing()],
        )
        .await;
        assert!(result.is_err());
        assert_eq!(times.len(), 1);
        let unsent = failure(HttpFailure {
            retryable: true,
            not_processed: true,
            ..HttpFailure::default()
        });
        let (result, times, _) =
            run(RetryPolicy::default(), RetrySafety::IfUnprocessed, [unsent]).await;
        assert!(result.is_ok());
        assert_eq!(times.len(), 2);
        let refused = failure(HttpFailure::default());
        let (result, times, _) = run(RetryPolicy::default(), RetrySafety::Always, [refused]).await;
        assert!(result.is_err());
        assert_eq!(times.len(), 1);
    }

    #[test]
    fn retry_after_reads_seconds_and_dates() {
        let headers = |after: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
            if let Some(date) = date {
                headers.insert(DATE, HeaderValue::from_str(date).unwrap());
            }
            headers
        };
        let at = Duration::from_secs;
        assert_eq!(retry_after(&headers(" 120 ", None)), Some(at(120)));
        let (noon, later) = (
            "Fri, 31 Dec 1999 12:00:00 GMT",
            "Fri, 31 Dec 1999 12:01:30 GMT",
        );
        // The server's clock counts, not ours.
        assert_eq!(retry_after(&headers(later, Some(noon))), Some(at(90)));
        assert_eq!(retry_after(&headers(noon, Some(later))), Some(at(0)));
        assert_eq!(retry_after(&headers(later, None)), Some(at(0)));
        let later = httpdate::fmt_http_date(SystemTime::now() + at(3_600));
        let wait = retry_after(&headers(&later, None)).unwrap();
        assert!(wait <= at(3_600) && wait > at(3_000), "{wait:?}");
        assert_eq!(retry_after(&headers("-1", None)), None);
        assert_eq!(retry_after(&headers("soon", None)), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
