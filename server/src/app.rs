//! State shared by all requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use eigenveil_shared::Result;
use eigenveil_store::{Environment, MemoryBudget, Store};
use tokio::sync::watch;

use crate::{
    config::ServerConfig, jobs::EstimateQueue, metrics::Metrics, net::rate_limiter::RateLimits,
    sessions::Sessions,
};

/// A running server: the store, the estimate thread and the settings. Clones share it.
///
/// To serve it inside your own axum application, mount [`router`](crate::router) and call
/// [`close`](Self::close) when you stop; [`Server`](crate::Server) does both.
///
/// ```
/// use eigenveil_server::{AppState, Environment, ServerConfig, router};
/// let directory = tempfile::tempdir()?;
/// let config = ServerConfig::new(directory.path().join("data"));
/// let app = AppState::open(config, Environment::system())?;
/// let mine: axum::Router = axum::Router::new().nest("/eigenveil", router(app.clone()));
/// app.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AppState {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    metrics: Arc<Metrics>,
    jobs: EstimateQueue,
    rate_limits: RateLimits,
    config: ServerConfig,
    sessions: Sessions,
    responses: Arc<MemoryBudget>,
    phase: watch::Sender<Phase>,
    requests: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// `/readyz` returns 503, so that load balancers send no more requests; those that come are answered.
    Leaving,
    /// No further connection is accepted, and event streams end.
    Stopping,
}

impl AppState {
    /// Opens the store and resumes unfinished estimates.
    pub fn open(config: ServerConfig, environment: Environment) -> Result<Self> {
        config.check()?;
        let rate_limits = RateLimits::new(&config, &environment.entropy)?;
        let store = Store::open(&config.of_store(), environment)?;
        let metrics = Metrics::new(
            store.counters(),
            config.tuning.max_queued_requests,
            config.store.is_none(),
        );
        let jobs = EstimateQueue::start(
            store.clone(),
            config.estimate_threads(),
            Arc::clone(&metrics),
        )?;
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                metrics,
                jobs,
                rate_limits,
                responses: MemoryBudget::new(
                    config.tuning.max_response_bytes,
                    "other responses have not been read yet: retry after a second",
                ),
                config,
                sessions: Sessions::default(),
                phase: watch::Sender::new(Phase::Serving),
                requests: AtomicU64::new(0),
            }),
        })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The settings.
    pub fn config(&self) -> &ServerConfig {
        &self.inner.config
    }

    /// From now on `/readyz` returns 503, so that load balancers send no more requests; those that come are answered.
    pub fn leave(&self) {
        self.enter(Phase::Leaving);
    }

    /// Leaves as [`leave`](Self::leave) does, ends event streams, and has a [`Server`](crate::Server) wait no longer
    /// for its balancer.
    pub fn announce_stop(&self) {
        self.enter(Phase::Stopping);
    }

    fn enter(&self, next: Phase) {
        self.inner.phase.send_if_modified(|phase| {
            let is_later = next > *phase;
            *phase = next.max(*phase);
            is_later
        });
    }

    /// Requeues the estimate being computed, commits queued writes and ends both threads. Blocks for about the shutdown
    /// timeout at most; later requests get `shutting-down`.
    pub fn close(&self) {
        self.announce_stop();
        self.inner.jobs.stop(self.inner.config.shutdown_timeout());
        self.inner.store.close();
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    pub(crate) fn jobs(&self) -> &EstimateQueue {
        &self.inner.jobs
    }

    pub(crate) fn rate_limits(&self) -> &RateLimits {
        &self.inner.rate_limits
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// Memory budget of responses that clients have not read yet.
    pub(crate) fn response_memory(&self) -> &Arc<MemoryBudget> {
        &self.inner.responses
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.inner.phase.borrow()
    }

    /// Until the server stops.
    pub(crate) fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.inner.phase.subscribe();
        async move {
            // The sender lives as long as the server.
            let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
        }
    }

    pub(crate) fn next_request_id(&self) -> u64 {
        self.inner.requests.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AppState({:?})", self.inner.store)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The estimate thread owns a clone of the store; without this it would never end.
        self.jobs.stop(Duration::from_secs(1));
    }
}
