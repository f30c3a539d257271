//! The durable store: one embedded database file with a single writer thread.
//!
//! No acknowledged report is ever lost, and uploads are idempotent: inserting a report's identifier decides whether the
//! report is new, its payload is added to a sum (or its seed appended) in the same transaction, and the reply is sent
//! after the commit.

mod analysts;
mod archive;
mod arrivals;
mod buckets;
mod checksum;
mod credentials;
mod database_files;
mod decide;
mod directory;
mod duplicates;
mod enrolment;
mod estimates;
mod expiry;
mod failure;
#[cfg(test)]
pub(crate) mod fixtures;
mod health;
mod probe;
mod recent;
mod removal;

mod lease;
mod log;
mod notice;
mod reserve;
mod rows;
mod schema;
mod seeds;
mod snapshot;
mod study;
mod study_json;
mod token;
mod transfer;
mod writer;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use eigenveil_estimation::{
    Cancel, accumulate::Accumulator, sparse_from_seeds::SeedSource as _, sums_of_seeds,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{CreateStudy, EstimateJob, EstimateRequest, Problem, StudyState},
    estimate::Estimate,
    mechanism::PayloadKind,
};
use rusqlite::{Connection, Transaction, params};
use tokio::sync::{oneshot, watch};

pub use self::directory::database_path;
pub(crate) use self::directory::{check as check_directory, exposed};
pub(crate) use self::{
    arrivals::ArrivalCount,
    credentials::Identity,
    estimates::{Job, StoredEstimate},
    failure::unavailable,
    rows::{invalid_study_id, study_not_found},
    study::{check_about, check_name, check_rank, frozen},
    token::TokenHash,
    transfer::VerifiedExport,
};
pub use self::{
    decide::SubmitOutcome,
    seeds::StoredSeeds,
    study::{MAX_BUCKETS, Study, StudyId},
    token::rotate_operator_token,
    transfer::Imported,
    writer::NewReport,
};

use self::{
    buckets::{BucketCache, BucketKey, read_sums},
    credentials::Credentials,
    directory::DataDirectory,
    failure::Failure,
    health::Health,
    lease::{WalFile, WriterLease},
    recent::RecentIds,
    reserve::ReserveFile,
    study::{NewStudy, StudyIndex},
    writer::{Caches, Command, Outcomes, Reports, Submission, Writer},
};
use crate::{
    config::ServerConfig,
    environment::Environment,
    metrics::Metrics,
    net::memory::{MemoryBudget, Reservation},
    request_id,
};

/// The store of one server. Clones share it; it closes when the last one is dropped.
///
/// ```
/// use eigenveil_server::{Environment, ServerConfig, Store};
/// let directory = tempfile::tempdir()?;
/// let config = ServerConfig::new(directory.path().join("data"));
/// let store = Store::open(&config, Environment::system())?;
/// assert!(store.studies().is_empty());
/// // The directory is in use until the store is dropped.
/// assert!(Store::open(&config, Environment::system()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    commands: SyncSender<Command>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the writer thread has ended.
    running: watch::Receiver<()>,
    reader: Mutex<Connection>,
    study_index: Arc<StudyIndex>,
    environment: Environment,
    config: ServerConfig,
    ingest: Arc<MemoryBudget>,
    metrics: Arc<Metrics>,
    credentials: Arc<Credentials>,
    stopping: AtomicBool,
    health: Arc<Health>,
    reserve: ReserveFile,
    // Last: the directory is unlocked only after the writer has ended.
    directory: DataDirectory,
}

/// A snapshot of a study's bucket sums. Their total, decoded, is the second-moment matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSums {
    /// Reports stored.
    pub n: u64,
    /// Reports excluded from the sums because they are duplicate seeds.
    pub duplicates: u64,
    /// The sums of the buckets with reports, by bucket number.
    pub buckets: Vec<(u32, Accumulator)>,
}

impl Store {
    /// Opens the data directory of this configuration, creating it if it is missing.
    ///
    /// # Errors
    /// `store-unavailable` if the directory contains something else or is in use by another server, or if the database
    /// is damaged, of another program or of a newer version; `invalid-config` for a configuration that cannot work;
    /// `randomness-unavailable` at the first start.
    pub fn open(config: &ServerConfig, environment: Environment) -> Result<Self> {
        config.check()?;
        let directory = DataDirectory::open(&config.data_dir)?;
        for warning in exposed(directory.path()) {
            tracing::warn!("{warning}");
        }
        let wal = WalFile::in_directory(&directory);
        let mut connection =
            schema::open_for_writing(&directory.database(), config.max_store_bytes)?;
        let reserve = ReserveFile::beside(&directory.database());
        // Before anything is read that the writer caches: from here on, no other server writes.
        let lease = match WriterLease::acquire(&mut connection, &directory, wal) {
            Err(failure) if failure.is_full() => {
                reserve.release();
                // A checkpoint needs no space for pages that the main file already has, and restarts the log.
                if let Err(failure) = schema::checkpoint(&connection, "PASSIVE") {
                    tracing::debug!(%failure, "checkpoint failed; the write-ahead log was not reset");
                }
                WriterLease::acquire(&mut connection, &directory, wal)
            }
            acquired => acquired,
        };
        let lease = lease.map_err(|failure| match failure.is_full() {
            true => reserve.no_room_to_start(),
            false => failure.into_error(),
        })?;
        reserve.ensure();
        let operator = token::ensure(&connection, &directory.token_files(), &*environment.entropy)?;
        let credentials = Credentials::load(&connection, operator).map_err(Failure::into_error)?;
        let study_index = Arc::new(rows::load(&connection).map_err(Failure::into_error)?);
        let recent = RecentIds::load(&connection).map_err(Failure::into_error)?;
        let reader = schema::open_for_reading(&directory.database())
            .map_err(|error| Failure::from(error).into_error())?;
        let key = BucketKey::draw(&*environment.entropy)?;
        let (commands, received) = sync_channel(config.tuning.max_queued_requests);
        let health = Arc::new(Health::default());
        let metrics = Metrics::new(config.tuning.max_queued_requests);
        let writer = Writer {
            connection,
            commands: received,
            caches: Caches {
                sums: BucketCache::new(config.sum_cache_bytes, key),
                recent,
            },
            max_commit_reports: config.tuning.max_commit_reports,
            health: Arc::clone(&health),
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&environment.clock),
            lease,
            reserve: reserve.clone(),
            lease_lost: false,
            studies: Arc::clone(&study_index),
            data_dir: directory.path().to_owned(),
            #[cfg(test)]
            faults: environment.faults.clone(),
            #[cfg(not(test))]
            faults: crate::faults::Faults,
        };
        let (running, ended) = watch::channel(());
        let writer = std::thread::Builder::new()
            .name("eigenveil-writer".into())
            .spawn(move || {
                // Dropped when the thread ends, also by a panic.
                let _running = running;
                writer.run();
            })
            .map_err(|error| {
                unavailable(format!(
                    "the writer thread cannot start ({error}); restart the server"
                ))
            })?;
        Ok(Self {
            shared: Arc::new(Shared {
                commands,
                writer: Mutex::new(Some(writer)),
                running: ended,
                reader: Mutex::new(reader),
                study_index,
                environment,
                config: config.clone(),
                ingest: MemoryBudget::new(
                    config.max_ingest_bytes,
                    "other bodies wait to be stored: retry after a second",
                ),
                metrics,
                credentials: Arc::new(credentials),
                stopping: AtomicBool::new(false),
                health,
                reserve,
                directory,
            }),
        })
    }

    /// A store whose writer gets these faults.
    #[cfg(test)]
    fn with_faults(config: &ServerConfig, faults: &crate::faults::Faults) -> Self {
        let environment = Environment {
            faults: faults.clone(),
            ..Environment::system()
        };
        Self::open(config, environment).unwrap()
    }

    /// Commits queued writes, then ends the writer. Later requests get `shutting-down`.
    pub fn close(&self) {
        self.shared.close();
    }

    pub(crate) async fn writer_ended(&self) {
        let mut running = self.shared.running.clone();
        while running.changed().await.is_ok() {}
    }

    pub(crate) fn check_writer(&self) -> Result<()> {
        // The thread ends shortly after it has lost the lease.
        match self.shared.running.has_changed() {
            Ok(_) if self.shared.health.lease_lost().is_none() => Ok(()),
            _ => Err(self.writer_stopped()),
        }
    }

    /// The file with the operator token.
    pub fn token_path(&self) -> PathBuf {
        self.shared.directory.token_files().path()
    }

    /// All studies, oldest first.
    pub fn studies(&self) -> Vec<Arc<Study>> {
        self.shared.study_index.list()
    }

    /// The studies after a position in the list that `wanted` accepts: at most `limit`, and the position to continue
    /// from.
    pub(crate) fn studies_after(
        &self,
        after: i64,
        limit: usize,
        wanted: impl Fn(&Study) -> bool,
    ) -> (Vec<Arc<Study>>, Option<i64>) {
        self.shared.study_index.page(after, limit, wanted)
    }

    /// The study with this identifier.
    pub fn study(&self, id: StudyId) -> Result<Arc<Study>> {
        self.shared
            .study_index
            .get(id)
            .ok_or_else(|| rows::study_not_found(id))
    }

    /// Checks, freezes and stores a study.
    pub async fn create_study(&self, request: CreateStudy) -> Result<Arc<Study>> {
        let design =
            NewStudy::from_request(request, self.shared.config.sum_cache_bytes, self.unix_ms())?;
        let mut id = [0; 16];
        self.shared.environment.entropy.fill(&mut id)?;
        let created_at_ms = self.unix_ms();
        let study_index = Arc::clone(&self.shared.study_index);
        self.write(
            move |transaction| {
                let pk = rows::insert(transaction, StudyId(id), &design, created_at_ms)?;
                Ok(Arc::new(Study::new(pk, StudyId(id), design, created_at_ms)))
            },
            move |study, _| study_index.add(Arc::clone(study)),
        )
        .await
    }

    /// Moves a study to another state; does nothing if it has this state already. Reports committed before the change
    /// are counted, later ones are not.
    pub async fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Result<()> {
        let (pk, id, now) = (study.pk, study.id(), self.unix_ms());
        if wanted == StudyState::Open && study.state() == StudyState::Draft {
            check_about(study.about(), now)?;
        }
        let study = Arc::clone(study);
        // A study must be closed before it can be deleted.
        let kind = match wanted {
            StudyState::Closed => TaskKind::FreesSpace,
            _ => TaskKind::Request,
        };
        self.write_as(
            kind,
            move |transaction| {
                let current = rows::state(transaction, pk, id)?;
                match (current, wanted) {
                    (from, to) if from == to => {}
                    (StudyState::Draft, StudyState::Open)
                    | (StudyState::Open, StudyState::Closed) => {
                        let closed_at_ms = (wanted == StudyState::Closed).then_some(now);
                        transaction.execute(
                            "UPDATE studies SET state = ?, closed_at_ms = ? WHERE study_pk = ?",
                            params![wanted.as_str(), closed_at_ms, pk],
                        )?;
                    }
                    (from, to) => {
                        return Err(Error::new(
                            ErrorCode::InvalidTransition,
                            format!(
                                "study {id} is {} and cannot become {}; a study goes from draft to open to closed",
                                from.as_str(),
                                to.as_str()
                            ),
                        )
                        .into());
                    }
                }
                Ok(())
            },
            move |(), _| study.publish_state(wanted),
        )
        .await
    }

    /// Stores reports in one commit and returns after it. Idempotent: a report stored before is a duplicate.
    ///
    /// # Errors
    /// `wrong-fingerprint` for reports decoded for other parameters; `too-many-requests` if the queue is full;
    /// `store-unavailable` if the commit failed (then none of them was counted); `shutting-down`.
    pub async fn submit(
        &self,
        study: &Arc<Study>,
        reports: Vec<NewReport>,
    ) -> Result<Vec<SubmitOutcome>> {
        let reservation = Reservation::empty(&self.shared.ingest);
        let outcomes = self
            .submit_reserved(study, reports.into(), reservation)
            .await?;
        Ok(outcomes.into_vec())
    }

    pub(crate) async fn submit_reserved(
        &self,
        study: &Arc<Study>,
        reports: Reports,
        reservation: Reservation,
    ) -> Result<Outcomes> {
        if !reports.iter().all(|report| report.is_for(study)) {
            return Err(Error::new(
                ErrorCode::WrongFingerprint,
                format!(
                    "a report was decoded for other parameters than those of study {}",
                    study.id()
                ),
            ));
        }
        let (reply, outcome) = oneshot::channel();
        self.send(Command::Submit(Submission {
            study: Arc::clone(study),
            reports,
            reply,
            reservation,
            request: request_id::current(),
        }))?;
        outcome.await.unwrap_or_else(|_| Err(self.writer_stopped()))
    }

    /// A consistent snapshot of a study's sums. Seeds are expanded and added up now, on this thread, each counted once;
    /// `cancel` is checked every 256 seeds.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read or do not match the accepted reports; `estimate-failed` if the sums
    /// of seeds need more than `sum_cache_bytes`, or if it was cancelled.
    pub fn bucket_sums(&self, study: &Study, cancel: Cancel<'_>) -> Result<BucketSums> {
        if study.report_format().payload_kind() == PayloadKind::Seed {
            let seeds = self.seeds(study, cancel)?;
            let p = study.params().report_dimension();
            return Ok(BucketSums {
                n: seeds.stored(),
                duplicates: seeds.repeated(),
                buckets: sums_of_seeds(&seeds, p, self.shared.config.sum_cache_bytes, cancel)?,
            });
        }
        // A separate connection: reading a gigabyte must not block other readers.
        let read = || -> Result<BucketSums, Failure> {
            let mut connection = schema::open_for_reading(&self.shared.directory.database())?;
            let transaction = connection.transaction()?;
            let (n, _) = accepted(&transaction, study)?;
            let buckets = read_sums(&transaction, study)?;
            let summed: u64 = buckets.iter().map(|(_, sums)| sums.count()).sum();
            if summed != n {
                return Err(Failure::damaged(format!(
                    "{n} reports were accepted but the sums contain {summed}"
                )));
            }
            Ok(BucketSums {
                n,
                duplicates: 0,
                buckets,
            })
        };
        self.note_damage(read())
    }

    /// A snapshot of a study's seeds, which can be read repeatedly: later reports are not included. Duplicate seeds are
    /// included once.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read; `invalid-request` for a study whose reports are not seeds;
    /// `estimate-failed` if it was cancelled.
    pub fn seeds<'a>(&self, study: &'a Study, cancel: Cancel<'_>) -> Result<StoredSeeds<'a>> {
        if study.report_format().payload_kind() != PayloadKind::Seed {
            return Err(Error::invalid_request(format!(
                "study {} has no seeds; only studies with double-cap have",
                study.id()
            )));
        }
        let read = || -> Result<StoredSeeds<'a>, Failure> {
            // Earlier commits never change, so no transaction is needed.
            let connection = schema::open_for_reading(&self.shared.directory.database())?;
            let (n, end) = accepted(&connection, study)?;
            let memory = self.shared.config.sum_cache_bytes;
            let health = Arc::clone(&self.shared.health);
            StoredSeeds::new(connection, study, end, n, memory, health, cancel)
        };
        self.note_damage(read())
    }

    /// Converts a failed read, recording it if it is damage.
    fn note_damage<T>(&self, read: Result<T, Failure>) -> Result<T> {
        read.map_err(|failure| {
            self.shared.health.record_damage(&failure);
            failure.into_error()
        })
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    pub(crate) async fn add_estimate(
        &self,
        study: &Study,
        request: EstimateRequest,
        wake: impl FnOnce() + Send + 'static,
    ) -> Result<EstimateJob> {
        let (pk, id, now) = (study.pk, study.id(), self.unix_ms());
        let limit = self.shared.config.tuning.max_waiting_estimates;
        self.write(
            move |transaction| {
                rows::require(transaction, pk, id)?;
                estimates::check_room(transaction, limit)?;
                estimates::insert(transaction, pk, id, request, now)
            },
            move |_, _| wake(),
        )
        .await
    }

    pub(crate) async fn cancel_estimate(
        &self,
        study: &Study,
        number: u64,
        cancelled: impl FnOnce(i64) + Send + 'static,
    ) -> Result<EstimateJob> {
        let (pk, id, now) = (study.pk, study.id(), self.unix_ms());
        let (document, _) = self
            .write(
                move |transaction| estimates::cancel(transaction, pk, id, number, now),
                move |(_, job), _| cancelled(*job),
            )
            .await?;
        Ok(document)
    }

    /// Blocks while reading.
    pub(crate) fn estimate(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        let stored = self.stored_estimate(study, number)?;
        stored.parse().map_err(Failure::into_error)
    }

    /// As [`estimate`](Self::estimate), with the result as the stored JSON text. Blocks while reading.
    pub(crate) fn stored_estimate(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        // Others wait for the reader, so nothing is parsed here: that takes seconds for a large result.
        let reader = self.reader();
        estimates::get(&reader, study.pk, study.id(), number).map_err(Failure::into_error)
    }

    /// Blocks while reading.
    pub(crate) fn estimates(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        let reader = self.reader();
        estimates::list(&reader, study.pk, study.id()).map_err(Failure::into_error)
    }

    /// The next job, marked as started, and its study. Blocks.
    pub(crate) fn start_next_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        // A study deleted between the two steps took its jobs with it.
        for _ in 0..8 {
            let Some(job) = self.write_blocking(estimates::start_next)? else {
                return Ok(None);
            };
            if let Some(study) = self.shared.study_index.by_pk(job.study_pk) {
                return Ok(Some((study, job)));
            }
        }
        Err(Failure::damaged("an estimate belongs to no study").into_error())
    }

    /// Blocks.
    pub(crate) fn finish_job(&self, job: i64, result: Result<Estimate, Problem>) -> Result<()> {
        let (now, keep) = (self.unix_ms(), self.shared.config.retain_estimates);
        self.write_blocking(move |transaction| {
            estimates::finish(transaction, job, &result, now)?;
            estimates::delete_old(transaction, job, keep)
        })
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.shared.health.is_damaged()
    }

    /// Blocks.
    pub(crate) fn requeue_job(&self, job: i64) -> Result<()> {
        self.write_blocking(move |transaction| estimates::requeue(transaction, job))
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    pub(crate) fn ingest_memory(&self) -> &Arc<MemoryBudget> {
        &self.shared.ingest
    }

    /// Milliseconds since 1970-01-01 UTC, by the injected clock.
    pub(crate) fn unix_ms(&self) -> u64 {
        // SQLite's integers are signed.
        self.shared.environment.clock.unix_ms().min(i64::MAX as u64)
    }

    fn reader(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.shared
            .reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` in its own transaction on the writer thread, in order; `publish` runs there too, after the commit
    /// and before the next write.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
        publish: impl FnOnce(&T, &mut Caches) + Send + 'static,
    ) -> Result<T> {
        self.write_as(TaskKind::Request, work, publish).await
    }

    async fn write_as<T: Send + 'static>(
        &self,
        kind: TaskKind,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
        publish: impl FnOnce(&T, &mut Caches) + Send + 'static,
    ) -> Result<T> {
        let (task, outcome) = task(work, publish, kind);
        self.send(task)?;
        outcome.await.unwrap_or_else(|_| Err(self.writer_stopped()))
    }

    /// As `write`, for a thread that may block: waits for room in the queue.
    fn write_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        self.write_blocking_then(TaskKind::Background, work, |_, _| ())
    }

    fn write_blocking_then<T: Send + 'static>(
        &self,
        kind: TaskKind,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
        publish: impl FnOnce(&T, &mut Caches) + Send + 'static,
    ) -> Result<T> {
        let (task, outcome) = task(work, publish, kind);
        self.shared.metrics.queue_depth.inc();
        self.shared
            .commands
            .send(task)
            .map_err(|_| self.writer_stopped())?;
        outcome
            .blocking_recv()
            .unwrap_or_else(|_| Err(self.writer_stopped()))
    }

    fn send(&self, command: Command) -> Result<()> {
        let depth = &self.shared.metrics.queue_depth;
        depth.inc();
        self.shared.commands.try_send(command).map_err(|error| {
            depth.dec();
            match error {
                TrySendError::Full(_) => Error::new(
                    ErrorCode::TooManyRequests,
                    "the write queue is full; retry after a second",
                ),
                TrySendError::Disconnected(_) => self.writer_stopped(),
            }
        })
    }

    /// Why the writer does not reply.
    fn writer_stopped(&self) -> Error {
        if self.shared.stopping.load(Ordering::Acquire) {
            Error::new(
                ErrorCode::ShuttingDown,
                "the server is stopping and did not write this; retry when it is back",
            )
        } else {
            let why = self.shared.health.lease_lost();
            unavailable(
                why.unwrap_or(
                    "the writer thread has ended; nothing was written: restart the server",
                ),
            )
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.shared.directory)
    }
}

impl Shared {
    fn close(&self) {
        self.stopping.store(true, Ordering::Release);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            // Fails only if the writer has ended already.
            self.metrics.queue_depth.inc();
            let _ = self.commands.send(Command::Stop);
            if thread.join().is_err() {
                tracing::error!("the writer thread had panicked");
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    Request,
    /// A request that frees space, or must come before one that does: a full disk must not reject it.
    FreesSpace,
    Background,
    /// Work of the background thread that frees space.
    BackgroundCleanup,
}

/// A command for the writer, and the receiver of its outcome.
fn task<T: Send + 'static>(
    work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    publish: impl FnOnce(&T, &mut Caches) + Send + 'static,
    kind: TaskKind,
) -> (Command, oneshot::Receiver<Result<T>>) {
    let (reply, outcome) = oneshot::channel();
    let request = request_id::current();
    // Injected faults affect requests, not the background thread.
    let has_faults = matches!(kind, TaskKind::Request | TaskKind::FreesSpace);
    let task = move |writer: &mut Writer| {
        if matches!(kind, TaskKind::FreesSpace | TaskKind::BackgroundCleanup) {
            writer.make_room();
        }
        let run = || -> Result<T, Failure> {
            let transaction = writer.lease.transaction(&mut writer.connection)?;
            let value = work(&transaction)?;
            if !has_faults || writer.faults.permit_commit()? {
                writer.lease.commit(transaction)?;
            }
            if has_faults {
                writer.faults.after_commit();
            }
            Ok(value)
        };
        let result = run().map_err(|failure| {
            writer.note(&failure);
            match failure.is_full() {
                true => writer.health.commit_failed(&failure),
                false => writer.health.record_damage(&failure),
            }
            if let Failure::Sqlite(error) = &failure {
                tracing::error!(request_id = request, %error, "transaction failed; nothing was changed");
            }
            failure.into_error()
        });
        if let Ok(value) = &result {
            publish(value, &mut writer.caches);
        }
        // The caller may have gone; the work is done anyway.
        let _ = reply.send(result);
        writer.faults.after_replies();
    };
    (Command::Task(Box::new(task)), outcome)
}

/// The number of accepted reports and of the next commit; fails if the study was deleted.
fn accepted(connection: &Connection, study: &Study) -> Result<(u64, u64), Failure> {
    rows::require(connection, study.pk, study.id())?;
    Ok(connection.query_row(
        "SELECT reports_accepted, commit_seq FROM studies WHERE study_pk = ?",
        [study.pk],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?)
}
