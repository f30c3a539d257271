//! The background thread: computes estimates in the order of their requests, removes deleted data, adds up seeds for
//! estimates to come, and closes studies whose last day is over. It has a low priority: uploads keep their rate.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use eigenveil_estimation::{
    self as estimation, Cancel, Source, check_site_settings, fantope::check_settings,
    linalg::Threads,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{EstimateJob, EstimateRequest, Problem},
    error,
    estimate::Estimate,
    parameters::Parameters,
};
use eigenveil_store::{Job, Notice, Store, Study, check_component_count, estimate_settings};

use crate::{
    metrics::{EstimateEnd, Metrics},
    priority,
};

/// Runs of a job during which the process may crash before the job fails: it must not crash the server at every start.
const MAX_CRASHED_RUNS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 5_000 });
/// Attempts after store errors, which are not the job's fault: an hour's worth, then the job fails.
const MAX_STORE_RETRIES: u32 = 720;
/// Longest sleep when there is nothing to do; a new job ends it at once.
const MAX_IDLE: Duration = Duration::from_secs(3_600);
/// Nice value of the thread and those that it starts: beside busy threads of the server they get a thirtieth of a
/// processor.
const NICE: i32 = 15;
/// Time between two looks for seeds to be added up.
const FOLD_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct EstimateQueue {
    store: Store,
    control: Arc<WorkerControl>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct WorkerControl {
    stop: AtomicBool,
    signals: Mutex<Signals>,
    woken: Condvar,
}

#[derive(Default)]
struct Signals {
    wake: bool,
    cancelled: HashSet<i64>,
}

impl WorkerControl {
    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, notice: Notice) {
        match notice {
            Notice::JobAdded | Notice::StudiesChanged => self.wake(),
            Notice::JobCancelled(job) => {
                self.signals().cancelled.insert(job);
                self.woken.notify_all();
            }
        }
    }

    fn wake(&self) {
        self.signals().wake = true;
        self.woken.notify_all();
    }

    fn wait(&self, timeout: Duration) {
        let guard = self.signals();
        let (mut guard, _) = self
            .woken
            .wait_timeout_while(guard, timeout, |signals| !signals.wake)
            .unwrap_or_else(PoisonError::into_inner);
        guard.wake = false;
    }

    /// Waits before the store is tried again; ends early if this job is cancelled or the server stops.
    fn pause(&self, job: i64) {
        let guard = self.signals();
        // Stopping and cancelling notify; a new job does not end the pause.
        drop(
            self.woken
                .wait_timeout_while(guard, RETRY_DELAY, |signals| {
                    !self.stopping() && !signals.cancelled.contains(&job)
                }),
        );
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn cancelled(&self, job: i64) -> bool {
        self.stopping() || self.signals().cancelled.contains(&job)
    }
}

impl EstimateQueue {
    /// Starts the thread, whose estimates may use `threads`; jobs that an earlier process did not finish come first.
    pub(crate) fn start(store: Store, threads: Threads, metrics: Arc<Metrics>) -> Result<Self> {
        let control = Arc::new(WorkerControl::default());
        let shared_control = Arc::clone(&control);
        store.listen(move |notice| shared_control.tell(notice));
        let thread = std::thread::Builder::new()
            .name("eigenveil-estimates".into())
            .spawn({
                let (store, control) = (store.clone(), Arc::clone(&control));
                move || {
                    priority::lower(NICE, "estimates");
                    threads.run(|| work(&store, &control, &metrics));
                }
            })
            .map_err(|error| {
                error!(
                    StoreUnavailable,
                    "the estimate thread cannot start ({error}); restart the server"
                )
            })?;
        Ok(Self {
            store,
            control,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// # Errors
    /// `invalid-request` for what cannot be computed, before it is queued.
    pub(crate) async fn add(&self, study: &Study, request: EstimateRequest) -> Result<EstimateJob> {
        // A preparation has no components.
        study.params().preprocessing()?;
        if let Some(k) = request.k {
            check_component_count(k, study.params().dimension())?;
        }
        if let Some(sparse) = &request.sparse {
            check_settings(sparse)?;
            if study.has_sites() {
                check_site_settings(sparse)?;
            }
        }
        self.store.add_job(study, request).await
    }

    pub(crate) async fn cancel(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        self.store.cancel_job(study, number).await
    }

    /// Stops the job being computed, which runs again after the next start. A decomposition in progress cannot be
    /// interrupted: after `timeout` its thread is left to end by itself.
    pub(crate) fn stop(&self, timeout: Duration) {
        self.control.stop.store(true, Ordering::Release);
        self.control.wake();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(handle) = thread.take() else { return };
        let started = Instant::now();
        while !handle.is_finished() {
            if started.elapsed() >= timeout {
                tracing::warn!(
                    "an estimate is still being computed at shutdown; it will run again"
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if handle.join().is_err() {
            tracing::error!("the estimate thread had panicked");
        }
    }
}

fn work(store: &Store, control: &WorkerControl, metrics: &Metrics) {
    let computes = store.config().computes_estimates;
    while !control.stopping() {
        // No job is being computed, and one that another server had taken over may come back.
        control.signals().cancelled.clear();
        let claimed = if computes {
            store.claim_job()
        } else {
            Ok(None)
        };
        match claimed {
            Ok(Some((study, job))) => run(store, control, metrics, &study, &job),
            Ok(None) => {
                let stopping = || control.stopping() || control.signals().wake;
                let mut idle = tidy(store, &stopping).min(close_ended_studies(store));
                if computes {
                    idle = idle.min(fold(store, &stopping));
                }
                control.wait(idle);
            }
            Err(error) if error.code() == ErrorCode::ShuttingDown => return,
            Err(error) => {
                tracing::error!(%error, "reading the queue of estimates failed");
                control.wait(RETRY_DELAY);
            }
        }
    }
}

/// Removes what nobody needs any more; returns how long to sleep.
fn tidy(store: &Store, stopping: &dyn Fn() -> bool) -> Duration {
    match store.sweep(stopping) {
        Ok(()) => MAX_IDLE,
        Err(error) => {
            tracing::warn!(%error, "tidying the store failed; it will be retried");
            RETRY_DELAY
        }
    }
}

/// Adds up seeds for a while; returns how long to sleep.
fn fold(store: &Store, stopping: &dyn Fn() -> bool) -> Duration {
    match store.fold_in_background(stopping) {
        Ok(true) => Duration::ZERO,
        Ok(false) if store.studies().iter().any(|study| study.has_seeds()) => FOLD_EVERY,
        Ok(false) => MAX_IDLE,
        Err(error) => {
            tracing::warn!(%error, "adding up seeds for later estimates failed; it will be retried");
            FOLD_EVERY
        }
    }
}

/// Closes studies whose last day is over; returns how long to sleep.
fn close_ended_studies(store: &Store) -> Duration {
    match store.close_ended() {
        Ok(next) => next.map_or(MAX_IDLE, |next| next.min(MAX_IDLE)),
        Err(error) => {
            tracing::warn!(%error, "a study past its last day could not be closed; it accepts no reports anyway");
            RETRY_DELAY
        }
    }
}

fn run(store: &Store, control: &WorkerControl, metrics: &Metrics, study: &Study, job: &Job) {
    let cancelled = || control.cancelled(job.id);
    let started = Instant::now();
    let result = if job.attempts >= MAX_CRASHED_RUNS {
        Err(Error::estimate_failed(format!(
            "the server stopped {} times while it computed this; request fewer components or give it more memory",
            job.attempts
        )))
    } else {
        retry_store_errors(store, control, job, || {
            catch_unwind(AssertUnwindSafe(|| {
                compute(store, study, &job.request, Cancel::when(&cancelled))
            }))
            .unwrap_or_else(|_| {
                Err(Error::estimate_failed("the computation failed because of a bug; the reports are unchanged: please report this"))
            })
        })
    };
    let end = match &result {
        Ok(_) => EstimateEnd::Done,
        Err(_) if cancelled() => EstimateEnd::Cancelled,
        Err(_) => EstimateEnd::Failed,
    };
    metrics.estimate_ended(end, started.elapsed());
    let stored = match result {
        Err(_) if control.stopping() => store.put_back_job(job.id),
        // The row already says so.
        Err(_) if cancelled() => Ok(()),
        Err(error) => {
            tracing::info!(study = %study.id(), code = %error.code(), "estimate failed");
            let problem = Problem::new(&error);
            retry_store_errors(store, control, job, || {
                store.finish_job(job.id, Err(problem.clone()))
            })
        }
        Ok((estimate, json)) => {
            tracing::info!(study = %study.id(), n = estimate.n, k = estimate.k, seconds = estimate.seconds, "estimate done");
            // A result that took long is not computed again because the disk is full.
            retry_store_errors(store, control, job, || {
                store.finish_job(job.id, Ok(json.clone()))
            })
        }
    };
    if let Err(error) = stored {
        tracing::error!(%error, "the result of an estimate could not be stored; it will run again");
        if error.code() != ErrorCode::ShuttingDown {
            control.wait(RETRY_DELAY);
        }
    }
}

/// Retries while the store fails for a reason that may pass: no file descriptor, a busy or full disk.
fn retry_store_errors<T>(
    store: &Store,
    control: &WorkerControl,
    job: &Job,
    mut work: impl FnMut() -> Result<T>,
) -> Result<T> {
    for _ in 1..MAX_STORE_RETRIES {
        match work() {
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::StoreUnavailable | ErrorCode::StoreFull
                ) && !store.is_damaged()
                    && !control.cancelled(job.id) =>
            {
                tracing::warn!(%error, "store error; the estimate is retried");
                // It may wait for the room of what is deleted.
                tidy(store, &|| control.stopping() || control.cancelled(job.id));
                control.pause(job.id);
            }
            result => return result,
        }
    }
    work()
}

fn compute(
    store: &Store,
    study: &Study,
    request: &EstimateRequest,
    cancel: Cancel<'_>,
) -> Result<(Estimate, String)> {
    let settings = estimate_settings(study, request, store.config());
    let estimate = match study.params() {
        Parameters::Sites(params) => {
            let reports = store.site_sums(study)?;
            estimation::estimate_sites(&reports, params, &settings, cancel)
        }
        Parameters::Preparation(_) => Err(Error::estimate_failed(
            "a preparation finds centers and scales, and no components",
        )),
        Parameters::Rows(params) if study.has_seeds() => {
            let seeds = match settings.streams(params) {
                true => store.seeds(study, cancel)?,
                false => {
                    if let Err(error) = store.fold(study, cancel) {
                        cancel.check()?;
                        // Not of one that was deleted meanwhile.
                        if error.code() != ErrorCode::StudyNotFound {
                            tracing::warn!(study = %study.id(), %error, "sums of seeds could not be kept; the estimate adds them up itself");
                        }
                    }
                    store.folded_seeds(study, cancel)?
                }
            };
            estimation::estimate(Source::Seeds(&seeds), params, &settings, cancel)
        }
        Parameters::Rows(params) => {
            let sums = Source::Sums(store.bucket_sums(study, cancel)?.buckets);
            estimation::estimate(sums, params, &settings, cancel)
        }
    }?;
    let json = estimation::to_json(&estimate)?;
    Ok((estimate, json))
}

#[cfg(feature = "postgres")]
#[cfg(test)]
mod in_fleet;
#[cfg(test)]
mod tests {
    use super::*;
    use eigenveil_store::{Environment, StoreConfig, StudyKey, unavailable};

    /// An estimate is retried while the store may recover and nobody has cancelled it.
    #[test]
    fn an_estimate_survives_temporary_store_errors() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(directory.path().join("data"));
        let store = Store::open(&config, Environment::system()).unwrap();
        let control = WorkerControl::default();
        let job = Job {
            id: 1,
            study: StudyKey(1),
            request: EstimateRequest::default(),
            attempts: 0,
        };
        let attempts_of = |outcome: &dyn Fn(u32) -> Result<()>| {
            let mut attempts = 0;
            let ended = retry_store_errors(&store, &control, &job, || {
                attempts += 1;
                outcome(attempts)
            });
            (attempts, ended.map_err(|error| error.code()))
        };
        let full = || Err(error!(StoreFull, "no room"));
        let recovers = |attempts| match attempts {
            1 => Err(unavailable("no descriptor")),
            2 => full(),
            _ => Ok(()),
        };
        assert_eq!(attempts_of(&recovers), (3, Ok(())));
        // Other errors are not retried.
        let own = ErrorCode::EstimateFailed;
        let fails = |_| Err(Error::new(own, "no reports"));
        assert_eq!(attempts_of(&fails), (1, Err(own)));
        let cancelled_after = |attempts| {
            if attempts == 2 {
                control.signals().cancelled.insert(job.id);
            }
            full()
        };
        assert_eq!(
            attempts_of(&cancelled_after),
            (2, Err(ErrorCode::StoreFull))
        );
    }
}
