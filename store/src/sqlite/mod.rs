//! The embedded engine: one SQLite file with a single writer thread.

mod analysts;
mod estimates;
mod expiry;
mod files;
mod health;
mod probe;
mod removal;
mod reports;
mod rewrite;
mod rows;
mod snapshot;
mod studies;
mod tokens;
mod transfer;
mod writer;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use eigenveil_shared::{Error, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{oneshot, watch};

pub(crate) use self::directory::{check as check_directory, exposed};
pub use self::{directory::database_path, operator_token::rotate_operator_token};

use self::{
    buckets::{BucketCache, BucketKey},
    database_files::DatabaseFiles,
    directory::DataDirectory,
    files::{database_files, directory, notice, operator_token, reserve, schema},
    health::Health,
    recent::{LogSizes, RecentIds},
    reports::{arrivals, buckets, checksum, folds, recent, seeds, site_reports},
    reserve::ReserveFile,
    rewrite::Position,
    writer::{Caches, Command, Writer},
};
use crate::{
    config::StoreConfig,
    contract::{
        credentials::Credentials,
        engine::{Engine, Pending},
        failure::{FILES_REPLACED, Failure, queue_is_full, stopping, unavailable},
        listener::Listener,
        memory::Reservation,
        report::{Outcomes, Reports},
        study::{Study, StudyIndex},
        submission::Submission,
    },
    counters::StoreCounters,
    environment::Environment,
    request_id,
};

pub(super) struct Sqlite {
    commands: SyncSender<Command>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the writer thread has ended.
    running: watch::Receiver<()>,
    reader: Mutex<Connection>,
    studies: Arc<StudyIndex>,
    credentials: Arc<Credentials>,
    listener: Listener,
    environment: Environment,
    config: StoreConfig,
    counters: StoreCounters,
    stopping: AtomicBool,
    health: Arc<Health>,
    reserve: ReserveFile,
    /// How far the seeds of a closed study are sorted.
    sorted: Mutex<Option<Position>>,
    // Last: the directory is unlocked only after the writer has ended.
    directory: DataDirectory,
}

impl Engine for Sqlite {
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
            self.send(Command::Submit(submission))?;
            answer.await.unwrap_or_else(|_| Err(self.writer_stopped()))
        })
    }

    /// Commits queued writes, then ends the writer. Later requests get `shutting-down`.
    fn close(&self) {
        self.stopping.store(true, Ordering::Release);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            // Fails only if the writer has ended already.
            self.counters.queue_depth.inc();
            let _ = self.commands.send(Command::Stop);
            if thread.join().is_err() {
                tracing::error!("the writer thread had panicked");
            }
        }
    }

    fn ended(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut running = self.running.clone();
            while running.changed().await.is_ok() {}
        })
    }

    fn check_running(&self) -> Result<()> {
        // The thread ends shortly after it has found other files.
        match self.running.has_changed() {
            Ok(_) if !self.health.are_files_replaced() => Ok(()),
            _ => Err(self.writer_stopped()),
        }
    }

    fn check_writable(&self) -> Pending<'_, Result<()>> {
        Box::pin(self.check_by_probe())
    }

    fn is_damaged(&self) -> bool {
        self.health.is_damaged()
    }

    /// Nobody else changes anything.
    fn look_again(&self) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// By the injected clock.
    fn unix_ms(&self) -> u64 {
        // SQLite's integers are signed.
        self.environment.clock.unix_ms().min(i64::MAX as u64)
    }

    fn token_path(&self) -> PathBuf {
        self.directory.token_files().path()
    }
}

/// A thread for the writer; `running` is dropped when it ends, also by a panic.
fn spawn(writer: Writer, running: watch::Sender<()>) -> Result<JoinHandle<()>> {
    let run = move || {
        let _running = running;
        writer.run();
    };
    let thread = std::thread::Builder::new().name("eigenveil-writer".into());
    thread.spawn(run).map_err(|error| {
        unavailable(format!(
            "the writer thread cannot start ({error}); restart the server"
        ))
    })
}

impl Sqlite {
    pub(super) fn open(
        config: &StoreConfig,
        environment: Environment,
        counters: StoreCounters,
        listener: Listener,
    ) -> Result<Self> {
        let directory = DataDirectory::open(&config.data_dir)?;
        for warning in exposed(directory.path()) {
            tracing::warn!("{warning}");
        }
        let looked_at = database_files::look(&directory)?;
        let reserve = ReserveFile::beside(&directory.database());
        let open = || -> Result<_, Failure> {
            let mut connection = schema::open_for_writing(&directory.database())?;
            // Before anything is read that the writer caches.
            let files = DatabaseFiles::take(&mut connection, &directory, &looked_at)?;
            if let Some(bytes) = config.max_store_bytes {
                schema::limit_size(&connection, bytes)?;
            }
            Ok((connection, files))
        };
        let named = |failure: Failure| failure.of_file(&directory.database()).into_error();
        let (connection, files) = open()
            .or_else(|failure| match reserve.release() {
                true => open(),
                false => Err(failure),
            })
            .map_err(named)?;
        reserve.ensure();
        let operator =
            operator_token::ensure(&connection, &directory.token_files(), &*environment.entropy)?;
        let credentials = analysts::load(&connection, operator).map_err(named)?;
        let studies = Arc::new(rows::load(&connection, listener.clone()).map_err(named)?);
        let faults = environment.faults();
        let log_sizes = LogSizes::new(faults.has_small_log());
        let recent = RecentIds::load(&connection, log_sizes).map_err(named)?;
        let reader =
            schema::open_for_reading(&directory.database()).map_err(|error| named(error.into()))?;
        let key = BucketKey::draw(&*environment.entropy)?;
        let (commands, received) = sync_channel(config.max_queued_requests);
        let health = Arc::new(Health::default());
        let writer = Writer {
            connection,
            commands: received,
            caches: Caches {
                sums: BucketCache::new(config.sum_cache_bytes, key),
                recent,
            },
            config: config.clone(),
            health: Arc::clone(&health),
            counters: counters.clone(),
            clock: Arc::clone(&environment.clock),
            files,
            reserve: reserve.clone(),
            has_stopped: false,
            studies: Arc::clone(&studies),
            data_dir: directory.path().to_owned(),
            faults,
        };
        let (running, ended) = watch::channel(());
        let writer = spawn(writer, running)?;
        Ok(Self {
            commands,
            writer: Mutex::new(Some(writer)),
            running: ended,
            reader: Mutex::new(reader),
            studies,
            credentials: Arc::new(credentials),
            listener,
            environment,
            config: config.clone(),
            counters,
            stopping: AtomicBool::new(false),
            health,
            reserve,
            sorted: Mutex::default(),
            directory,
        })
    }

    /// Converts a failed read, recording it if it is damage.
    fn note_damage<T>(&self, read: Result<T, Failure>) -> Result<T> {
        read.map_err(|failure| {
            self.health.record_damage(&failure);
            failure.into_error()
        })
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Writes like `write`, for a thread that may block: waits for room in the queue.
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
        self.ask_blocking(task, outcome)
    }

    /// Runs `work` on the writer thread, outside of any transaction, for a thread that may block.
    fn on_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let (reply, outcome) = oneshot::channel();
        let task = move |writer: &mut Writer| {
            let result =
                work(writer).map_err(|failure| writer.classify_failure(failure).into_error());
            // The caller may have gone; the work is done anyway.
            let _ = reply.send(result);
        };
        self.ask_blocking(Command::Task(Box::new(task)), outcome)
    }

    fn ask_blocking<T>(
        &self,
        command: Command,
        outcome: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        self.counters.queue_depth.inc();
        self.commands
            .send(command)
            .map_err(|_| self.writer_stopped())?;
        outcome
            .blocking_recv()
            .unwrap_or_else(|_| Err(self.writer_stopped()))
    }

    fn send(&self, command: Command) -> Result<()> {
        let depth = &self.counters.queue_depth;
        depth.inc();
        self.commands.try_send(command).map_err(|error| {
            depth.dec();
            match error {
                TrySendError::Full(_) => queue_is_full(),
                TrySendError::Disconnected(_) => self.writer_stopped(),
            }
        })
    }

    /// Why the writer does not reply.
    fn writer_stopped(&self) -> Error {
        if self.stopping.load(Ordering::Acquire) {
            stopping()
        } else {
            unavailable(match self.health.are_files_replaced() {
                true => FILES_REPLACED,
                false => "the writer thread has ended; nothing was written: restart the server",
            })
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.directory)
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
            let transaction = writer
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            if !has_faults || writer.faults.permit_commit()? {
                transaction.commit()?;
                writer.files.committed(&writer.connection)?;
            }
            if has_faults {
                writer.faults.after_commit();
            }
            Ok(value)
        };
        let result = run().map_err(|failure| {
            let failure = writer.classify_failure(failure);
            match failure.is_full() {
                true => writer.health.commit_failed(&failure),
                false => writer.health.record_damage(&failure),
            }
            if let Failure::Unavailable(error) = &failure {
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

/// Whether a page of the database lies beyond the end of its file.
fn is_cut_short(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};
        match error.sqlite_error_code() {
            _ if is_cut_short(&error) => Self::damaged("the file is cut short"),
            Some(DiskFull) => Self::Full,
            Some(DatabaseCorrupt | NotADatabase) => Self::damaged(error),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
