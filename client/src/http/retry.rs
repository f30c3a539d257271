//! Retries with tokio timers.

use std::{
    future::Future,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{TryRng, rngs::SysRng};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    error::{Error, Result},
    exchange::RetryPolicy,
};

/// The failures after which a request may be sent again; one that is not idempotent only if it certainly had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetrySafety {
    /// After any transient failure; the request may be processed twice.
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

/// A wait from which on its reason is worth telling: shorter ones pass before anybody wonders.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// The repeated attempts of one request or of several, as somebody beside them sees them.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Attempts beyond the first of a request.
    pub(crate) repeated: AtomicU64,
    /// Until when, and after which failure.
    waiting: Mutex<Option<(Instant, String)>>,
}

impl Attempts {
    /// The failure after which the next attempt is put off for seconds, if there is one.
    #[cfg(feature = "sqlite")]
    pub(crate) fn waiting(&self) -> Option<String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, reason) = waiting.as_ref()?;
        (*until > Instant::now()).then(|| reason.clone())
    }

    fn wait_for(&self, delay: Duration, error: &Error) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
        if delay >= LONG_WAIT {
            let waiting = Some((Instant::now() + delay, error.to_string()));
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
        }
    }
}

/// Delays all requests to a server until its `Retry-After` has passed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opens_at: Mutex<Option<Instant>>,
}

impl Gate {
    async fn wait(&self) {
        loop {
            let opens_at = *self.opens_at.lock().unwrap_or_else(PoisonError::into_inner);
            match opens_at {
                Some(opens_at) if opens_at > Instant::now() => sleep_until(opens_at).await,
                _ => return,
            }
        }
    }

    fn close_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut opens_at = self.opens_at.lock().unwrap_or_else(PoisonError::into_inner);
        *opens_at = (*opens_at).max(Some(until));
    }
}

/// Runs `attempt` until it succeeds, fails permanently, or the policy is exhausted.
pub(crate) async fn retry<T, F>(
    policy: &RetryPolicy,
    gate: &Gate,
    retry_safety: RetrySafety,
    made: &Attempts,
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut attempts = 0;
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
        let retry_after = error.retry_after();
        let elapsed = started.elapsed();
        let Some(delay) = policy.delay(attempts, elapsed, retry_after, jitter()) else {
            return Err(match retry_after {
                Some(retry_after) if attempts < policy.max_attempts => error.with_remark(format_args!(
                    "the server asks to wait {} s, and {} of the {} s for which one request is repeated here are over",
                    retry_after.as_secs(),
                    elapsed.as_secs(),
                    policy.max_elapsed.as_secs()
                )),
                _ if attempts == 1 => error,
                _ => error.with_remark(format_args!("gave up after {attempts} attempts")),
            });
        };
        if let Some(retry_after) = retry_after {
            gate.close_for(retry_after);
        }
        made.wait_for(delay, &error);
        sleep(delay).await;
    }
}

/// A random share of a delay, so that many devices do not return at the same time.
fn jitter() -> f64 {
    let random = SysRng.try_next_u32().unwrap_or(u32::MAX / 2);
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::error::HttpFailure;

    fn passing() -> Error {
        let failure = HttpFailure {
            retryable: true,
            ..HttpFailure::default()
        };
        Error::http(failure, "it failed")
    }

    fn asking(seconds: u64) -> Error {
        let failure = HttpFailure {
            retryable: true,
            retry_after: Some(Duration::from_secs(seconds)),
            ..HttpFailure::default()
        };
        Error::http(failure, "it failed")
    }

    /// Runs against these failures, then success; returns the outcome and the times of the attempts.
    async fn run(
        policy: RetryPolicy,
        failures: impl IntoIterator<Item = Error>,
    ) -> (Result<&'static str>, Vec<Duration>) {
        let started = Instant::now();
        let failures = RefCell::new(failures.into_iter());
        let times = RefCell::new(Vec::new());
        let (gate, made) = (Gate::default(), Attempts::default());
        let result = retry(&policy, &gate, RetrySafety::Always, &made, || {
            times.borrow_mut().push(started.elapsed());
            let failure = failures.borrow_mut().next();
            async { failure.map_or(Ok("done"), Err) }
        })
        .await;
        let times = times.into_inner();
        assert_eq!(made.repeated.into_inner() + 1, times.len() as u64);
        (result, times)
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_and_time_are_bounded() {
        let policy = RetryPolicy {
            max_attempts: 4,
            ..RetryPolicy::default()
        };
        let passing_always = std::iter::repeat_with(passing);
        let (result, times) = run(policy, passing_always).await;
        let error = result.unwrap_err();
        assert_eq!(times.len(), 4);
        assert!(error.is_retryable());
        assert!(error.to_string().contains("after 4 attempts"), "{error}");

        let policy = RetryPolicy {
            max_attempts: usize::MAX,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(2),
            max_elapsed: Duration::from_secs(30),
        };
        let passing_always = std::iter::repeat_with(passing);
        let (result, times) = run(policy, passing_always).await;
        assert!(result.is_err());
        assert!(*times.last().unwrap() <= policy.max_elapsed);
        assert!(times.len() >= 8, "{times:?}");

        let (result, times) = run(RetryPolicy::never(), [passing()]).await;
        assert!(!result.unwrap_err().to_string().contains("gave up"));
        assert_eq!(times.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_kept_to_or_given_up_at_once() {
        let policy = RetryPolicy::default();
        let (result, times) = run(policy, [asking(17), passing()]).await;
        result.unwrap();
        let gap = times[1].as_secs_f64();
        assert!((17.0..17.2).contains(&gap), "{gap}");

        let (result, times) = run(policy, [asking(3_600)]).await;
        let error = result.unwrap_err().to_string();
        assert_eq!(times.len(), 1);
        assert!(error.contains("wait 3600 s, and 0 of the 60 s"), "{error}");
        run(policy, [asking(u64::MAX)]).await.0.unwrap_err();
        // What was waited before is what ran out.
        let (result, times) = run(policy, [asking(50), asking(20)]).await;
        let error = result.unwrap_err().to_string();
        assert_eq!(times.len(), 2);
        assert!(error.contains("wait 20 s, and 50 of the 60 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_wait_for_the_gate() {
        let (policy, gate) = (RetryPolicy::default(), Gate::default());
        let attempts = Attempts::default();
        let started = Instant::now();
        gate.close_for(Duration::from_secs(9));
        gate.close_for(Duration::from_secs(5));
        let passed = retry(&policy, &gate, RetrySafety::Always, &attempts, || async {
            Ok(started.elapsed())
        });
        assert!(passed.await.unwrap() >= Duration::from_secs(9));
    }
}
