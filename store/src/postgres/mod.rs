//! The engine of several servers: their one store is a PostgreSQL database (feature `postgres`).
//!
//! Nothing is decided by what a server remembers. A commit locks what it decides by, counts the rows of each of its
//! statements, and is answered after `COMMIT`; whatever else comes back leaves it in doubt, and it runs again. What is
//! shown, the registry of studies and the credentials, is read anew each second.
//!
//! Locks are taken in one order: studies, tokens, identifiers, buckets, sums; within each by key.

mod append;
mod chunks;
mod credentials;
mod database;
mod estimates;
mod folds;
mod operators;
mod registry;
mod rewrite;
mod site_reports;
mod snapshot;
mod studies;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tidy;
mod transfer;

use std::{
    fs::{DirBuilder, File},
    future::Future,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use eigenveil_shared::{Error, Result, error};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc,
    task::JoinHandle,
};

pub(crate) use self::operators::check as check_store;
pub use self::operators::{Migrated, migrate_store};

use self::{
    append::Committer,
    connection::{Pool, Target},
    database::{connection, schema, statements},
};
use crate::{
    config::StoreConfig,
    contract::{
        credentials::Credentials,
        engine::{Engine, Pending},
        failure::{Failure, queue_is_full, stopping, unavailable},
        listener::Listener,
        memory::Reservation,
        report::{Outcomes, Reports},
        study::{Study, StudyIndex},
        submission::Submission,
        token_files::TokenFiles,
    },
    counters::StoreCounters,
    environment::Environment,
    store_url::StoreUrl,
};

pub(super) struct Postgres {
    inner: Arc<Inner>,
    studies: Arc<StudyIndex>,
    credentials: Arc<Credentials>,
    queue: Mutex<Option<mpsc::Sender<Submission>>>,
    committers: Mutex<Vec<JoinHandle<()>>>,
    watcher: JoinHandle<()>,
    /// Ends after what runs on it.
    _background: Background,
}

/// The state that tasks share with the engine.
struct Inner {
    pool: Arc<Pool>,
    handle: Handle,
    studies: Arc<StudyIndex>,
    credentials: Arc<Credentials>,
    /// Held while the registry and the credentials are changed, from before the read or the commit that says what they
    /// are: what is shown never goes back. When the last read of all began.
    registry: tokio::sync::Mutex<Instant>,
    /// Held by an import.
    importing: Mutex<()>,
    listener: Listener,
    environment: Environment,
    config: StoreConfig,
    counters: StoreCounters,
    health: Mutex<Health>,
    /// Milliseconds by which the database's clock is ahead of this server's.
    ahead_ms: AtomicI64,
    /// Number of this process, by which it knows its leases and pulses.
    server: i64,
    /// The job that this server computes.
    held: Mutex<Option<i64>>,
}

#[derive(Default)]
struct Health {
    /// Why the database could not be used the last time, and as it is told.
    unusable: Option<(String, Error)>,
    /// Why the last commit failed, as it is told.
    commit_failed: Option<Error>,
    damage: Option<String>,
}

impl Health {
    /// Whether reports can be counted.
    fn check(&self) -> Result<()> {
        if let Some(damage) = &self.damage {
            return Err(unavailable(damage.clone()));
        }
        let unusable = self.unusable.as_ref().map(|(_, told)| told);
        let why = unusable.or(self.commit_failed.as_ref());
        why.map_or(Ok(()), |why| Err(why.clone()))
    }
}

impl Engine for Postgres {
    fn studies(&self) -> &StudyIndex {
        &self.studies
    }

    fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn append(
        &self,
        study: &Arc<Study>,
        reports: Reports,
        reservation: Reservation,
    ) -> Pending<'_, Result<Outcomes>> {
        let (submission, answer) = Submission::new(study, reports, reservation);
        Box::pin(async move {
            let queue = lock(&self.queue).clone().ok_or_else(stopping)?;
            let depth = &self.inner.counters.queue_depth;
            depth.inc();
            queue.try_send(submission).map_err(|error| {
                depth.dec();
                match error {
                    mpsc::error::TrySendError::Full(_) => queue_is_full(),
                    mpsc::error::TrySendError::Closed(_) => stopping(),
                }
            })?;
            drop(queue);
            match tokio::time::timeout(append::ANSWER, answer).await {
                // Whoever committed it was stopped.
                Ok(answer) => answer.unwrap_or_else(|_| {
                    Err(Failure::InDoubt("the server is stopping".into()).into_error())
                }),
                // The committer goes on: a connection that waits for the standby is not multiplied by retries.
                Err(_) => {
                    let failure = Failure::InDoubt("the database does not answer".into());
                    let error = failure.into_error();
                    lock(&self.inner.health).commit_failed = Some(error.clone());
                    Err(error)
                }
            }
        })
    }

    fn close(&self) {
        if lock(&self.queue).take().is_none() {
            return;
        }
        let committers = std::mem::take(&mut *lock(&self.committers));
        let limit = self.inner.config.shutdown_timeout;
        self.inner.wait(async {
            for mut committer in committers {
                // One may wait for a standby that does not come; what it has is answered by nobody.
                match tokio::time::timeout(limit, &mut committer).await {
                    Ok(ended) if ended.is_err() => {
                        tracing::error!("a task that commits reports had panicked");
                    }
                    Ok(_) => {}
                    Err(_) => committer.abort(),
                }
            }
        });
        self.watcher.abort();
    }

    /// Never: as long as it runs, the database may come back.
    fn ended(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn check_running(&self) -> Result<()> {
        match lock(&self.queue).is_some() {
            true => Ok(()),
            false => Err(stopping()),
        }
    }

    fn is_damaged(&self) -> bool {
        lock(&self.inner.health).damage.is_some()
    }

    fn look_again(&self) -> Pending<'_, Result<()>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move { inner.look_again().await }))
    }

    /// By the database's clock, as this server's went beside it a second ago.
    fn unix_ms(&self) -> u64 {
        let ahead = self.inner.ahead_ms.load(Ordering::Relaxed);
        let local = self.inner.environment.clock.unix_ms();
        local.saturating_add_signed(ahead).min(i64::MAX as u64)
    }

    fn token_path(&self) -> PathBuf {
        TokenFiles::in_directory(&self.inner.config.data_dir).path()
    }

    fn check_writable(&self) -> Pending<'_, Result<()>> {
        let checked = self
            .check_running()
            .and_then(|()| lock(&self.inner.health).check());
        Box::pin(std::future::ready(checked))
    }
}

impl Postgres {
    pub(super) fn open(
        config: &StoreConfig,
        url: &StoreUrl,
        environment: Environment,
        counters: StoreCounters,
        listener: Listener,
    ) -> Result<Self> {
        let target = Target::new(url)?;
        create_directory(config)?;
        let mut server = [0; 8];
        environment.entropy.fill(&mut server)?;
        let background = Background::start()?;
        let handle = &background.handle;
        let studies = Arc::new(StudyIndex::new(listener.clone()));
        let credentials = Arc::new(Credentials::new(None, Vec::new()));
        let inner = Arc::new(Inner {
            pool: Pool::new(target),
            handle: handle.clone(),
            studies: Arc::clone(&studies),
            credentials: Arc::clone(&credentials),
            registry: tokio::sync::Mutex::new(Instant::now()),
            importing: Mutex::default(),
            listener,
            environment,
            config: config.clone(),
            counters,
            health: Mutex::default(),
            ahead_ms: AtomicI64::new(0),
            server: i64::from_le_bytes(server),
            held: Mutex::default(),
        });
        let warnings = inner.wait(async {
            let session = inner.pool.take().await?;
            let target = &inner.pool.target;
            let warnings = schema::check(target, &session, inner.config.durability).await?;
            session.done();
            inner.refresh().await?;
            Ok(warnings)
        });
        for warning in warnings.map_err(Failure::into_error)? {
            tracing::warn!("{warning}");
        }
        let (queue, received) = mpsc::channel(inner.config.max_queued_requests);
        let received = Arc::new(tokio::sync::Mutex::new(received));
        let committers = (0..inner.config.store_connections)
            .map(|number| {
                let committer =
                    Committer::new(Arc::clone(&inner), number as i32, Arc::clone(&received));
                handle.spawn(committer.run())
            })
            .collect();
        let watcher = handle.spawn(registry::watch(Arc::clone(&inner)));
        Ok(Self {
            inner,
            studies,
            credentials,
            queue: Mutex::new(Some(queue)),
            committers: Mutex::new(committers),
            watcher,
            _background: background,
        })
    }

    /// Runs to its end on the engine's own runtime, whether or not the asker waits.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T> {
        self.check_running()?;
        let done = self.inner.handle.spawn(work).await;
        let done = done
            .unwrap_or_else(|_| Err(Failure::Unavailable("a task of the store has ended".into())));
        done.map_err(|failure| self.inner.note(failure))
    }

    /// For a thread that may block.
    fn wait<T: Send>(&self, work: impl Future<Output = Result<T, Failure>> + Send) -> Result<T> {
        self.check_running()?;
        self.inner
            .wait(work)
            .map_err(|failure| self.inner.note(failure))
    }
}

impl Inner {
    fn wait<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        wait(&self.handle, || work)
    }

    fn temporary_file(&self) -> Result<File, Failure> {
        tempfile::tempfile_in(&self.config.data_dir).map_err(Failure::file)
    }

    /// Logs what the database said.
    fn note(&self, failure: Failure) -> Error {
        if let Failure::Unavailable(why) | Failure::DatabaseFull(why) | Failure::InDoubt(why) =
            &failure
        {
            tracing::warn!(why, "the database has failed");
        }
        self.recorded(failure)
    }

    /// Records damage.
    fn recorded(&self, failure: Failure) -> Error {
        if let Some(damage) = failure.damage() {
            lock(&self.health).damage.get_or_insert(damage);
        }
        told(failure)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.inner.pool.target.name)
    }
}

/// Threads of the store's own, which do not depend on whoever asks.
struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("eigenveil-store")
            .enable_all()
            .build()
            .map_err(|error| {
                unavailable(format!(
                    "the threads of the store cannot start ({error}); restart the server"
                ))
            })?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Perhaps on a thread that may not wait for it.
            runtime.shutdown_background();
        }
    }
}

/// On a thread of its own: the caller's may belong to a runtime, which may not block.
fn wait<F: Future<Output: Send>>(handle: &Handle, work: impl FnOnce() -> F + Send) -> F::Output {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| handle.block_on(work()));
        waiting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn create_directory(config: &StoreConfig) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .map_err(|error| {
            unavailable(format!(
                "the data directory {} cannot be created ({error}); check the path and its permissions",
                config.data_dir.display()
            ))
        })
}

/// For whoever asks: where the database is and what it said is for the log alone.
fn told(failure: Failure) -> Error {
    match failure {
        Failure::Unavailable(_) => unavailable(
            "the database is away or has failed, and nothing was changed: retry, and tell the operator if it keeps failing; the server's log says why",
        ),
        Failure::DatabaseFull(_) => full("the disk of the database is full"),
        Failure::InDoubt(_) => Failure::InDoubt("the server's log says why".into()).into_error(),
        Failure::Full => full("the disk of this server's data directory is full"),
        failure => failure.into_error(),
    }
}

fn full(what: &str) -> Error {
    error!(
        StoreFull,
        "{what}, and nothing was changed; the operator has to free space there: retry after that"
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A count, which the database has as a signed number.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
