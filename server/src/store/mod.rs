//! The durable store of studies and reports.
//!
//! No acknowledged report is ever lost, and uploads are idempotent: taking a report's identifier decides whether the
//! report is new, its payload is added to a sum (or its seed appended) in the same transaction, and the reply is sent
//! after the commit.

mod analysts;
mod archive;
#[cfg(test)]
mod conformance;
mod credentials;
mod decide;
mod duplicates;
mod embedded;
mod engine;
mod enrolment;
mod failure;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(feature = "postgres")]
mod fleet;
mod job;
mod listener;
mod report;
mod study;
mod study_json;
mod submission;
mod sums;
mod token;
mod transfer;

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use eigenveil_estimation::{Cancel, sums_of_seeds};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{CreateStudy, EstimateJob, EstimateRequest, Problem, StudyState},
};

pub use self::embedded::{database_path, rotate_operator_token};
#[cfg(all(test, feature = "postgres"))]
pub(crate) use self::fleet::tests as in_fleet;
#[cfg(feature = "postgres")]
pub use self::fleet::{Migrated, migrate_store};
#[cfg(test)]
pub(crate) use self::study::StudyKey;
pub(crate) use self::{
    credentials::Identity,
    embedded::ArrivalCount,
    failure::{file_failed, unavailable},
    job::{Job, StoredEstimate, settings},
    listener::Notice,
    report::{Outcomes, Reports},
    study::{check_about, check_name, check_rank, invalid_study_id, study_not_found},
    token::{TokenHash, token_replaced},
    transfer::VerifiedExport,
};
pub use self::{
    decide::SubmitOutcome,
    report::NewReport,
    study::{MAX_BUCKETS, Study, StudyId},
    sums::{BucketSums, StoredSeeds},
    transfer::Imported,
};

use self::{
    credentials::Credentials,
    engine::{Engine, each},
    failure::Failure,
    job::Ended,
    listener::Listener,
    study::{NewStudy, StudyIndex},
};
use crate::{
    config::ServerConfig,
    environment::Environment,
    metrics::{Metrics, signed},
    net::memory::{MemoryBudget, Reservation},
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
    engine: Engine,
    listener: Listener,
    environment: Environment,
    config: ServerConfig,
    ingest: Arc<MemoryBudget>,
    metrics: Arc<Metrics>,
}

impl Store {
    /// Opens the data directory of this configuration, creating it if it is missing, or the database that it names.
    ///
    /// # Errors
    /// `store-unavailable` if the directory contains something else or is in use by another server, or if the database
    /// is damaged, of another program or of a newer version; `invalid-config` for a configuration that cannot work;
    /// `randomness-unavailable` at the first start.
    pub fn open(config: &ServerConfig, environment: Environment) -> Result<Self> {
        config.check()?;
        let metrics = Metrics::new(config.tuning.max_queued_requests, config.store.is_none());
        let listener = Listener::default();
        let (told, measured) = (listener.clone(), Arc::clone(&metrics));
        let engine = Engine::open(config, environment.clone(), measured, told)?;
        Ok(Self {
            shared: Arc::new(Shared {
                engine,
                listener,
                environment,
                config: config.clone(),
                ingest: MemoryBudget::new(
                    config.max_ingest_bytes,
                    "other bodies wait to be stored: retry after a second",
                ),
                metrics,
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

    /// Commits queued writes, then ends. Later requests get `shutting-down`.
    pub fn close(&self) {
        each!(self, engine => engine.close());
    }

    /// Calls this after each commit that the queue of estimates has to know of.
    pub(crate) fn listen(&self, listen: impl Fn(Notice) + Send + Sync + 'static) {
        self.shared.listener.set(listen);
    }

    /// Returns once nothing can be written any more.
    pub(crate) async fn ended(&self) {
        each!(self, engine => engine.ended().await);
    }

    /// Whether writes are taken at all.
    pub(crate) fn check_running(&self) -> Result<()> {
        each!(self, engine => engine.check_running())
    }

    /// Whether reports can be stored now: nothing is damaged, and after a failed commit a trial write succeeds.
    pub async fn check_writable(&self) -> Result<()> {
        each!(self, engine => engine.check_writable().await)
    }

    /// The file with the operator token.
    pub fn token_path(&self) -> PathBuf {
        each!(self, engine => engine.token_path())
    }

    fn index(&self) -> &StudyIndex {
        each!(self, engine => &engine.studies)
    }

    fn credentials(&self) -> &Credentials {
        each!(self, engine => &engine.credentials)
    }

    /// All studies, oldest first.
    pub fn studies(&self) -> Vec<Arc<Study>> {
        self.index().list()
    }

    /// The studies after a position in the list that `wanted` accepts: at most `limit`, and the position to continue
    /// from.
    pub(crate) fn studies_after(
        &self,
        after: i64,
        limit: usize,
        wanted: impl Fn(&Study) -> bool,
    ) -> (Vec<Arc<Study>>, Option<i64>) {
        self.index().page(after, limit, wanted)
    }

    /// The study with this identifier.
    pub fn study(&self, id: StudyId) -> Result<Arc<Study>> {
        self.index().get(id).ok_or_else(|| study_not_found(id))
    }

    /// Reads anew what another server may have changed within the last second: before something is said to be unknown.
    pub(crate) async fn look_again(&self) -> Result<()> {
        each!(self, engine => engine.look_again().await)
    }

    /// Checks, freezes and stores a study.
    pub async fn create_study(&self, request: CreateStudy) -> Result<Arc<Study>> {
        let design =
            NewStudy::from_request(request, self.shared.config.sum_cache_bytes, self.unix_ms())?;
        let mut id = [0; 16];
        self.shared.environment.entropy.fill(&mut id)?;
        each!(self, engine => engine.create(StudyId(id), design).await)
    }

    /// Moves a study to another state; does nothing if it has this state already. Reports committed before the change
    /// are counted, later ones are not.
    pub async fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Result<()> {
        if wanted == StudyState::Open && study.state() == StudyState::Draft {
            check_about(study.about(), self.unix_ms())?;
        }
        each!(self, engine => engine.set_state(study, wanted).await)
    }

    /// Deletes a study with its reports, identifiers and estimates. Its identifier is unknown at once; disk space is
    /// freed in the background.
    pub async fn delete_study(&self, study: &Arc<Study>) -> Result<()> {
        each!(self, engine => engine.delete(study).await)
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
        each!(self, engine => engine.append(study, reports, reservation).await)
    }

    /// A consistent snapshot of a study's sums. Seeds are expanded and added up now, on this thread, each counted once;
    /// `cancel` is checked every 256 seeds.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read or do not match the accepted reports; `estimate-failed` if the sums
    /// of seeds need more than `sum_cache_bytes`, or if it was cancelled.
    pub fn bucket_sums(&self, study: &Study, cancel: Cancel<'_>) -> Result<BucketSums> {
        if !study.has_seeds() {
            return each!(self, engine => engine.sums(study));
        }
        let seeds = self.seeds(study, cancel)?;
        let p = study.params().report_dimension();
        Ok(BucketSums {
            n: seeds.stored,
            duplicates: seeds.repeated(),
            buckets: sums_of_seeds(&*seeds, p, self.shared.config.sum_cache_bytes, cancel)?,
        })
    }

    /// A snapshot of a study's seeds, which can be read repeatedly: later reports are not included. Duplicate seeds are
    /// included once.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read; `invalid-request` for a study whose reports are not seeds;
    /// `estimate-failed` if it was cancelled.
    pub fn seeds<'a>(&self, study: &'a Study, cancel: Cancel<'_>) -> Result<StoredSeeds<'a>> {
        if !study.has_seeds() {
            return Err(Error::invalid_request(format!(
                "study {} has no seeds; only studies with double-cap have",
                study.id()
            )));
        }
        each!(self, engine => engine.seeds(study, cancel))
    }

    /// Adds up seeds and keeps their sums, where the engine does so: [`seeds`](Self::seeds) has them then. Blocks.
    ///
    /// # Errors
    /// `estimate-failed` if it was cancelled; those of the store. Whatever was kept before stays.
    pub(crate) fn fold(&self, study: &Study, cancel: Cancel<'_>) -> Result<()> {
        each!(self, engine => engine.fold(study, cancel))
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    pub(crate) async fn add_job(
        &self,
        study: &Study,
        request: EstimateRequest,
    ) -> Result<EstimateJob> {
        each!(self, engine => engine.add_job(study, request).await)
    }

    pub(crate) async fn cancel_job(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        each!(self, engine => engine.cancel_job(study, number).await)
    }

    /// Blocks while reading.
    pub(crate) fn estimate(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        let stored = self.stored_estimate(study, number)?;
        stored.parse().map_err(Failure::into_error)
    }

    /// As [`estimate`](Self::estimate), with the result as the stored JSON text. Blocks while reading.
    pub(crate) fn stored_estimate(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        each!(self, engine => engine.job(study, number))
    }

    /// Blocks while reading.
    pub(crate) fn estimates(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        each!(self, engine => engine.jobs(study))
    }

    /// The next job, marked as started, and its study. Blocks.
    pub(crate) fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        each!(self, engine => engine.claim_job())
    }

    /// Stores the result of a job, an estimate as JSON, unless it was cancelled. Blocks.
    pub(crate) fn finish_job(&self, job: i64, result: Result<String, Problem>) -> Result<()> {
        let ended = Ended::with(result).map_err(Failure::into_error)?;
        each!(self, engine => engine.finish_job(job, ended))
    }

    /// Undoes [`claim_job`](Self::claim_job): after a graceful shutdown the job runs again. Blocks.
    pub(crate) fn put_back_job(&self, job: i64) -> Result<()> {
        each!(self, engine => engine.put_back_job(job))
    }

    pub(crate) fn is_damaged(&self) -> bool {
        each!(self, engine => engine.is_damaged())
    }

    /// Closes open studies whose last day is over, and reopens those whose closing time lies in the future because the
    /// clock was wrong. Returns the time until the next study ends. Blocks.
    pub(crate) fn close_ended(&self) -> Result<Option<Duration>> {
        let now = each!(self, engine => engine.moment_ms())?;
        let mut next: Option<u64> = None;
        for study in self.studies() {
            let Some(day) = study.about().last_day else {
                continue;
            };
            let (over_at, over) = (day.end_ms(), day.is_over(now));
            let wanted = match study.state() {
                StudyState::Open if over => Some(StudyState::Closed),
                StudyState::Closed if !over => Some(StudyState::Open),
                _ => None,
            };
            if let Some(wanted) = wanted {
                each!(self, engine => engine.end(&study, wanted, over_at, now))?;
            }
            if study.state() == StudyState::Open {
                let left = over_at.saturating_sub(now);
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        Ok(next.map(Duration::from_millis))
    }

    /// What is to do while there is no job: removes what is left of deleted studies, and identifiers past their retention
    /// time, and helps other servers with theirs; ends early if `stopping` returns true. Blocks.
    pub(crate) fn sweep(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        each!(self, engine => engine.sweep(stopping))
    }

    /// A snapshot of a study as an unnamed file: parameters, identifiers, and sums or seeds. Estimates are not
    /// included. Blocks.
    ///
    /// # Errors
    /// `study-not-found`; `invalid-transition` if its identifiers were deleted, since a server that imported it could
    /// count a report twice; those of the store.
    pub fn export(&self, study: &Study) -> Result<File> {
        each!(self, engine => engine.export(study))
    }

    /// A snapshot of the whole store as an unnamed file: a database that a server opens as `eigenveil.db` in an
    /// otherwise empty data directory. Blocks.
    pub fn backup(&self) -> Result<File> {
        each!(self, engine => engine.backup())
    }

    /// An unnamed file for data that does not fit into memory, deleted when it is closed.
    pub(crate) fn temporary_file(&self) -> Result<File> {
        each!(self, engine => engine.temporary_file())
    }

    /// Adds the reports of an export to the study `into`, or to the exported study, which is created if it is missing.
    /// One transaction, all or nothing: uploads wait meanwhile (about a second for a million reports). Idempotent: the
    /// same export again changes nothing.
    ///
    /// # Errors
    /// `wrong-fingerprint` if the parameters differ; `invalid-about` if the reports were given for a purpose that the
    /// study does not state; `already-counted` if the study has already counted a report of the export, since it cannot
    /// be taken out of a sum; `study-not-found`; those of the store.
    pub(crate) async fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Result<Imported> {
        each!(self, engine => engine.import(export, into).await)
    }

    /// When the study's reports were uploaded, oldest first; imported reports are not included. Blocks while reading.
    pub(crate) fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        each!(self, engine => engine.arrivals(study))
    }

    /// Measures what is not counted continuously. Blocks while reading.
    pub(crate) fn measure(&self) -> Result<()> {
        let ingest = self.shared.ingest.used() as u64;
        self.shared.metrics.ingest_bytes.set(signed(ingest));
        let studies = self.studies();
        for state in [StudyState::Draft, StudyState::Open, StudyState::Closed] {
            let of_it = studies.iter().filter(|study| study.state() == state);
            self.shared.metrics.studies_are(state, of_it.count());
        }
        each!(self, engine => engine.measure())
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    pub(crate) fn ingest_memory(&self) -> &Arc<MemoryBudget> {
        &self.shared.ingest
    }

    /// Milliseconds since 1970-01-01 UTC, by the engine's clock.
    pub(crate) fn unix_ms(&self) -> u64 {
        each!(self, engine => engine.unix_ms())
    }
}

/// Whether a server could use the store of this configuration, without changing or locking anything. Returns warnings.
pub(crate) fn check(config: &ServerConfig) -> Result<Vec<String>> {
    #[cfg(feature = "postgres")]
    if let Some(url) = &config.store {
        return fleet::check_store(config, url);
    }
    embedded::check_directory(&config.data_dir)?;
    Ok(embedded::exposed(&config.data_dir))
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        each!(self, engine => write!(f, "Store({engine:?})"))
    }
}
