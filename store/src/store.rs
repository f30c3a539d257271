//! The store as a server uses it.

mod bearer_tokens;
mod enrolment;

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use eigenveil_estimation::{
    Cancel, SiteSum, accumulate::Accumulator, sparse_from_seeds::SeedSource as _, sums_of_seeds,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{
        CreateStudyRequest, EstimateJob, EstimateRequest, PreparationAnswers, Problem,
        RoundAnswers, StudyState,
    },
    error,
    study::{Fingerprint, to_hex},
    wording::{MAX_NAMED, counted, first_few},
};

#[cfg(test)]
use crate::faults::Faults;
#[cfg(feature = "postgres")]
use crate::postgres;
use crate::{
    config::StoreConfig,
    contract::{
        arrivals::ArrivalCount,
        decide::SubmitOutcome,
        engine::Engine,
        failure::Failure,
        job::{Ended, Job, StoredEstimate},
        listener::{Listener, Notice},
        memory::{MemoryBudget, Reservation},
        report::{NewReport, Outcomes, Reports},
        study::{NewStudy, Study, StudyId, check_about, study_not_found},
        sums::{BucketSums, answer_counts},
        transfer::{Imported, VerifiedExport},
    },
    counters::StoreCounters,
    environment::Environment,
    folds::{Folding, Rounds, StoredSeeds, Use, fold_study, move_on},
    sqlite,
};

/// Time between two looks whether uploads still wait.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest time for which folding waits for them, range by range: it goes on under any load.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time after which folding in the background lets other work go first.
const TURN: Duration = Duration::from_secs(1);

/// The store of one server. Clones share it; it closes when the last one is dropped.
///
/// ```
/// use eigenveil_store::{Environment, Store, StoreConfig};
/// let directory = tempfile::tempdir()?;
/// let config = StoreConfig::new(directory.path().join("data"));
/// let store = Store::open(&config, Environment::system())?;
/// assert!(store.studies().is_empty());
/// // The directory is in use until the store is dropped.
/// assert!(Store::open(&config, Environment::system()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) engine: Box<dyn Engine>,
    listener: Listener,
    environment: Environment,
    config: StoreConfig,
    ingest: Arc<MemoryBudget>,
    counters: StoreCounters,
    /// Buckets to be folded in the background.
    rounds: Mutex<Rounds>,
}

impl Store {
    /// Opens the data directory of this configuration, creating it if it is missing, or the database that it names.
    ///
    /// # Errors
    /// `store-unavailable` if the directory contains something else or is in use by another server, or if the database
    /// is damaged, of another program or of a newer version; `invalid-config` for a configuration that cannot work;
    /// `randomness-unavailable` at the first start.
    pub fn open(config: &StoreConfig, environment: Environment) -> Result<Self> {
        config.check()?;
        let counters = StoreCounters::default();
        let listener = Listener::default();
        let (told, counted) = (listener.clone(), counters.clone());
        let engine = open(config, environment.clone(), counted, told)?;
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
                counters,
                rounds: Mutex::new(Rounds::new()),
            }),
        })
    }

    /// A store whose writer gets these faults.
    #[cfg(test)]
    pub(crate) fn with_faults(config: &StoreConfig, faults: &Faults) -> Self {
        let environment = Environment {
            faults: faults.clone(),
            ..Environment::system()
        };
        Self::open(config, environment).unwrap()
    }

    /// Commits queued writes, then ends. Later requests get `shutting-down`.
    pub fn close(&self) {
        self.engine().close();
    }

    /// Calls this after each commit that the queue of estimates has to know of.
    pub fn listen(&self, listen: impl Fn(Notice) + Send + Sync + 'static) {
        self.shared.listener.set(listen);
    }

    /// Returns once nothing can be written any more.
    pub async fn ended(&self) {
        self.engine().ended().await;
    }

    /// Whether writes are taken at all.
    pub fn check_running(&self) -> Result<()> {
        self.engine().check_running()
    }

    /// Whether reports can be stored now: nothing is damaged, and after a failed commit a trial write succeeds.
    pub async fn check_writable(&self) -> Result<()> {
        self.engine().check_writable().await
    }

    /// The file with the operator token.
    pub fn token_path(&self) -> PathBuf {
        self.engine().token_path()
    }

    fn engine(&self) -> &dyn Engine {
        &*self.shared.engine
    }

    /// All studies, oldest first.
    pub fn studies(&self) -> Vec<Arc<Study>> {
        self.engine().studies().list()
    }

    /// The studies after a position in the list that `wanted` accepts: at most `limit`, and the position to continue
    /// from.
    pub fn studies_after(
        &self,
        after: i64,
        limit: usize,
        wanted: impl Fn(&Study) -> bool,
    ) -> (Vec<Arc<Study>>, Option<i64>) {
        self.engine().studies().page(after, limit, wanted)
    }

    /// The study with this identifier.
    pub fn study(&self, id: StudyId) -> Result<Arc<Study>> {
        self.engine()
            .studies()
            .get(id)
            .ok_or_else(|| study_not_found(id))
    }

    /// Reads anew what another server may have changed within the last second: before something is said to be unknown.
    pub async fn look_again(&self) -> Result<()> {
        self.engine().look_again().await
    }

    /// Checks, freezes and stores a study. The first round of a second one must be here, with answers.
    pub async fn create_study(&self, request: CreateStudyRequest) -> Result<Arc<Study>> {
        let design = NewStudy::from_request(request, &self.shared.config, self.unix_ms())?;
        if let Ok(second) = design.params.preparation()
            && let Some(after) = second.after()
        {
            self.look_again().await?;
            let first = self.first_round(after)?;
            first.params().preparation()?.check_second(second)?;
            if first.reports_accepted() == 0 {
                return Err(Error::invalid_request(format!(
                    "nobody has answered study {}, the first round of this preparation, so that nothing is known to ask about; create the second round when the first one has answers",
                    first.id()
                )));
            }
        }
        let mut id = [0; 16];
        self.shared.environment.entropy.fill(&mut id)?;
        self.engine().create(StudyId(id), design).await
    }

    /// The first round of a preparation, by its fingerprint. Studies without answers do not count beside one with some.
    ///
    /// # Errors
    /// `invalid-request` unless one study has it.
    fn first_round(&self, fingerprint: Fingerprint) -> Result<Arc<Study>> {
        let mut studies = self.studies();
        studies.retain(|study| study.fingerprint() == fingerprint);
        if studies.iter().any(|study| study.reports_accepted() > 0) {
            studies.retain(|study| study.reports_accepted() > 0);
        }
        match <[_; 1]>::try_from(studies) {
            Ok([first]) => Ok(first),
            Err(others) if others.is_empty() => Err(Error::invalid_request(format!(
                "the first round of this preparation, with fingerprint {fingerprint}, is not on this server; import it, or create the second round where it is"
            ))),
            Err(others) => {
                let all = others.iter().map(|study| named(study));
                let listed = first_few(all, MAX_NAMED, |more| format!(" and {more} more"));
                Err(Error::invalid_request(format!(
                    "{} studies have the fingerprint of the first round of this preparation: {listed}; delete those that were trials, or merge them by an export and an import, and delete the parts",
                    others.len()
                )))
            }
        }
    }

    /// Moves a study to another state; does nothing if it has this state already. Reports committed before the change
    /// are counted, later ones are not.
    pub async fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Result<()> {
        if wanted == StudyState::Open && study.state() == StudyState::Draft {
            check_about(study.about(), self.unix_ms())?;
        }
        self.engine().set_state(study, wanted).await
    }

    /// Deletes a study with its reports, identifiers and estimates. Its identifier is unknown at once; disk space is
    /// freed in the background.
    ///
    /// # Errors
    /// `invalid-transition` for an open study, and for the first round of a preparation while the second one is here.
    pub async fn delete_study(&self, study: &Arc<Study>) -> Result<()> {
        if study.params().preparation().is_ok() {
            self.look_again().await?;
            self.check_not_needed(study)?;
        }
        self.engine().delete(study).await
    }

    /// A second round says nothing without the answers of the first one; a study of the same questions with as many
    /// may have them, too.
    fn check_not_needed(&self, first: &Study) -> Result<()> {
        let (studies, fingerprint) = (self.studies(), first.fingerprint());
        let answers = first.reports_accepted();
        let others = studies
            .iter()
            .filter(|study| study.fingerprint() == fingerprint);
        let others = others.filter(|study| study.id() != first.id());
        let largest = others.max_by_key(|study| study.reports_accepted());
        if answers == 0 || largest.is_some_and(|other| other.reports_accepted() >= answers) {
            return Ok(());
        }
        let second = studies.iter().find(|study| {
            let params = study.params().preparation();
            params.is_ok_and(|params| params.after() == Some(fingerprint))
        });
        second.map_or(Ok(()), |second| {
            let has_fewer = largest.map(|other| format!(" ({} has the same questions)", named(other)));
            Err(error!(
                InvalidTransition,
                "{} is the first round of preparation {}, which finds nothing without its answers{}; delete study {} first",
                named(first),
                second.id(),
                has_fewer.unwrap_or_default(),
                second.id()
            ))
        })
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

    /// Submits like [`submit`](Self::submit), with the reservation that holds the bodies' memory until the commit.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    pub async fn submit_reserved(
        &self,
        study: &Arc<Study>,
        reports: Reports,
        reservation: Reservation,
    ) -> Result<Outcomes> {
        if !reports.iter().all(|report| report.is_for(study)) {
            return Err(error!(
                WrongFingerprint,
                "a report was decoded for other parameters than those of study {}",
                study.id()
            ));
        }
        self.engine().append(study, reports, reservation).await
    }

    /// A consistent snapshot of the sums of a study of single rows. Of seeds, each counted once, those that are in no
    /// fold are added up now, on [`Threads::current`](eigenveil_estimation::linalg::Threads::current) threads.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read or do not match the accepted reports; `invalid-request` for a study
    /// of sites or a preparation; `estimate-failed` if the sums of seeds need more than `sum_cache_bytes`, or if it was
    /// cancelled.
    pub fn bucket_sums(&self, study: &Study, cancel: Cancel<'_>) -> Result<BucketSums> {
        let p = study.params().rows()?.report_dimension();
        if !study.has_seeds() {
            return self.engine().sums(study);
        }
        let seeds = self.folded_seeds(study, cancel)?;
        Ok(BucketSums {
            n: seeds.stored(),
            duplicates: seeds.repeated(),
            buckets: sums_of_seeds(&seeds, p, self.shared.config.sum_cache_bytes, cancel)?,
        })
    }

    /// A consistent snapshot of a preparation: how often each answer to each question was given. Blocks.
    ///
    /// # Errors
    /// `store-unavailable` if the counts cannot be read or do not match the accepted reports; `invalid-request` for a
    /// study that is no preparation.
    pub fn answer_counts(&self, study: &Study) -> Result<Vec<u64>> {
        let params = study.params().preparation()?;
        let mut total = Accumulator::new(params.sum_dimension())?;
        for (_, sum) in self.engine().sums(study)?.buckets {
            total.merge(&sum)?;
        }
        answer_counts(params, &total).ok_or_else(|| {
            Failure::damaged("counts of answers are no counts of its reports").into_error()
        })
    }

    /// The counts of a preparation, with those of the first round if it is a second one. Blocks.
    ///
    /// # Errors
    /// Those of [`answer_counts`](Self::answer_counts); `invalid-request` for a second round whose first one is not among
    /// the studies, or twice.
    pub fn preparation_answers(&self, study: &Study) -> Result<PreparationAnswers> {
        let first = study.params().preparation()?.after();
        let first = first.map(|first| self.first_round(first)).transpose()?;
        let rounds = first.as_deref().into_iter().chain([study]);
        let rounds = rounds.map(|study| {
            Ok(RoundAnswers {
                study: study.id().to_string(),
                canonical_params: to_hex(&study.params().canonical_bytes()),
                counts: self.answer_counts(study)?,
            })
        });
        Ok(PreparationAnswers {
            rounds: rounds.collect::<Result<_>>()?,
        })
    }

    /// A consistent snapshot of the reports of a study of sites, in the order in which they were stored. Takes 8 bytes
    /// of memory a number, at most `max_site_bytes`. Blocks.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read or do not match the accepted reports; `invalid-request` for a study
    /// of single rows.
    pub fn site_sums(&self, study: &Study) -> Result<Vec<SiteSum>> {
        study.params().sites()?;
        self.engine().site_sums(study)
    }

    /// A snapshot of all seeds of a study, which can be read repeatedly: later reports are not included. Duplicate seeds
    /// are included once.
    ///
    /// # Errors
    /// `store-unavailable` if they cannot be read; `invalid-request` for a study whose reports are not seeds;
    /// `estimate-failed` if it was cancelled.
    pub fn seeds(&self, study: &Study, cancel: Cancel<'_>) -> Result<StoredSeeds> {
        self.read_seeds(study, Use::Seeds, cancel)
    }

    /// A snapshot like [`seeds`](Self::seeds)'s, with the sums that are [kept](Self::fold) in the place of their seeds:
    /// for estimates from sums.
    ///
    /// # Errors
    /// Those of [`seeds`](Self::seeds).
    pub fn folded_seeds(&self, study: &Study, cancel: Cancel<'_>) -> Result<StoredSeeds> {
        self.read_seeds(study, Use::Folds, cancel)
    }

    fn read_seeds(&self, study: &Study, what: Use, cancel: Cancel<'_>) -> Result<StoredSeeds> {
        if !study.has_seeds() {
            return Err(Error::invalid_request(format!(
                "study {} has no seeds; only studies with double-cap have",
                study.id()
            )));
        }
        StoredSeeds::read(self.engine(), self.config(), study, what, cancel)
    }

    /// Adds up the seeds that a study has now, if it has any, and keeps their sums for
    /// [`folded_seeds`](Self::folded_seeds): where enough of them are new, and as far as `max_fold_bytes` and the disk
    /// allow. Works on [`Threads::current`](eigenveil_estimation::linalg::Threads::current) threads. Blocks.
    ///
    /// # Errors
    /// `estimate-failed` if it was cancelled; those of the store. Whatever was kept before stays.
    pub fn fold(&self, study: &Study, cancel: Cancel<'_>) -> Result<()> {
        let folding = Folding {
            config: self.config(),
            cancel,
            pause: &|| (),
        };
        fold_study(self.engine(), study, &folding)
    }

    /// Folds for about a second what studies have got, for estimates to come; each range waits a while for uploads that
    /// wait for a commit. Returns whether there may be more; ends early if `stopping` returns true. Blocks.
    ///
    /// # Errors
    /// Those of [`fold`](Self::fold), once all studies have had their turn.
    pub fn fold_in_background(&self, stopping: &dyn Fn() -> bool) -> Result<bool> {
        let begun = Instant::now();
        let pause = || {
            let begun = Instant::now();
            while self.counters().queue_depth.get() > 0 && begun.elapsed() < PATIENCE && !stopping()
            {
                sleep(PAUSE);
            }
        };
        let folding = Folding {
            config: self.config(),
            cancel: Cancel::when(stopping),
            pause: &pause,
        };
        let mut ended = Ok(false);
        for study in self.studies() {
            while let Some(bucket) = self.next_bucket(&study) {
                if begun.elapsed() > TURN || stopping() {
                    return Ok(true);
                }
                let moved_on = catch_unwind(AssertUnwindSafe(|| {
                    move_on(self.engine(), &study, bucket, &mut None, &folding)
                }));
                if matches!(moved_on, Ok(Err(_))) && stopping() {
                    return Ok(true);
                }
                // A bucket that fails has had its turn.
                let has_more = matches!(moved_on, Ok(Ok(true)));
                self.rounds().done(&study, has_more);
                match moved_on {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        // Not one that was deleted meanwhile.
                        if error.code() != ErrorCode::StudyNotFound {
                            ended = Err(error);
                        }
                        break;
                    }
                    Err(_) => {
                        tracing::error!(study = %study.id(), "adding up seeds failed because of a bug; the reports are unchanged: please report this");
                    }
                }
            }
        }
        ended
    }

    fn next_bucket(&self, study: &Study) -> Option<u32> {
        self.rounds().next(study, self.config())
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        let rounds = self.shared.rounds.lock();
        rounds.unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings.
    pub fn config(&self) -> &StoreConfig {
        &self.shared.config
    }

    /// Stores a request for an estimate, which waits to be claimed.
    pub async fn add_job(&self, study: &Study, request: EstimateRequest) -> Result<EstimateJob> {
        self.engine().add_job(study, request).await
    }

    /// Cancels an estimate that waits or is being computed.
    pub async fn cancel_job(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        self.engine().cancel_job(study, number).await
    }

    /// An estimate, with its result if it has one. Blocks while reading.
    pub fn estimate(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        let stored = self.stored_estimate(study, number)?;
        stored.parse().map_err(Failure::into_error)
    }

    /// An estimate like [`estimate`](Self::estimate)'s, with the result as the stored JSON text. Blocks while reading.
    pub fn stored_estimate(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        self.engine().job(study, number)
    }

    /// All estimates of a study. Blocks while reading.
    pub fn estimates(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        self.engine().jobs(study)
    }

    /// The next job, marked as started, and its study. Blocks.
    pub fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        self.engine().claim_job()
    }

    /// Stores the result of a job, an estimate as JSON, unless it was cancelled. Blocks.
    pub fn finish_job(&self, job: i64, result: Result<String, Problem>) -> Result<()> {
        let ended = Ended::with(result).map_err(Failure::into_error)?;
        self.engine().finish_job(job, ended)
    }

    /// Undoes [`claim_job`](Self::claim_job): after a graceful shutdown the job runs again. Blocks.
    pub fn put_back_job(&self, job: i64) -> Result<()> {
        self.engine().put_back_job(job)
    }

    /// Whether damage was found: only a backup helps.
    pub fn is_damaged(&self) -> bool {
        self.engine().is_damaged()
    }

    /// Closes open studies whose last day is over, and reopens those whose closing time lies in the future because the
    /// clock was wrong. Returns the time until the next study ends. Blocks.
    pub fn close_ended(&self) -> Result<Option<Duration>> {
        let now = self.engine().moment_ms()?;
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
                self.engine().end(&study, wanted, over_at, now)?;
            }
            if study.state() == StudyState::Open {
                let left = over_at.saturating_sub(now);
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        Ok(next.map(Duration::from_millis))
    }

    /// Does the work for times without a job: removes what is left of deleted studies, and identifiers past their
    /// retention time, and writes the rows of closed studies anew; ends early if `stopping` returns true. Blocks.
    pub fn sweep(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        self.engine().sweep(stopping)
    }

    /// Whether the study is closed and [sweeps](Self::sweep) have written its rows anew: the database no longer shows
    /// which identifier, token and seed came together, or what a report added to a sum. Blocks.
    pub fn is_rewritten(&self, study: &Study) -> Result<bool> {
        self.engine().is_rewritten(study)
    }

    /// A snapshot of a study as an unnamed file: parameters, identifiers, and sums or seeds. Estimates are not
    /// included. Blocks.
    ///
    /// # Errors
    /// `study-not-found`; `invalid-transition` if its identifiers were deleted, since a server that imported it could
    /// count a report twice; those of the store.
    pub fn export(&self, study: &Study) -> Result<File> {
        self.engine().export(study)
    }

    /// A snapshot of the whole store as an unnamed file: a database that a server opens as `eigenveil.db` in an
    /// otherwise empty data directory. Blocks.
    pub fn backup(&self) -> Result<File> {
        self.engine().backup()
    }

    /// An unnamed file for data that does not fit into memory, deleted when it is closed.
    pub fn temporary_file(&self) -> Result<File> {
        self.engine().temporary_file()
    }

    /// Adds the reports of an export to the study `into`, or to the exported study, which is created if it is missing.
    /// One transaction, all or nothing: uploads wait meanwhile (about a second for a million reports). Idempotent: the
    /// same export again changes nothing.
    ///
    /// # Errors
    /// `wrong-fingerprint` if the parameters differ; `invalid-about` if the reports were given for a purpose that the
    /// study does not state; `already-counted` if the study has already counted a report of the export, since it cannot
    /// be taken out of a sum; `study-not-found`; those of the store.
    pub async fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Result<Imported> {
        self.engine().import(export, into).await
    }

    /// When the study's reports were uploaded, oldest first; imported reports are not included. Blocks while reading.
    pub fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        self.engine().arrivals(study)
    }

    /// Measures what is not counted continuously. Blocks while reading.
    pub fn measure(&self) -> Result<()> {
        self.engine().measure()
    }

    /// The counters.
    pub fn counters(&self) -> &StoreCounters {
        &self.shared.counters
    }

    /// Memory budget of reports that are being read or wait for a commit.
    pub fn ingest_memory(&self) -> &Arc<MemoryBudget> {
        &self.shared.ingest
    }

    /// Milliseconds since 1970-01-01 UTC, by the engine's clock.
    pub fn unix_ms(&self) -> u64 {
        self.engine().unix_ms()
    }
}

/// A study with the number of its answers.
fn named(study: &Study) -> String {
    let answers = counted(study.reports_accepted(), "answer");
    format!("study {} with {answers}", study.id())
}

fn open(
    config: &StoreConfig,
    environment: Environment,
    counters: StoreCounters,
    listener: Listener,
) -> Result<Box<dyn Engine>> {
    #[cfg(feature = "postgres")]
    if let Some(url) = &config.database {
        let engine = postgres::Postgres::open(config, url, environment, counters, listener)?;
        return Ok(Box::new(engine));
    }
    let engine = sqlite::Sqlite::open(config, environment, counters, listener)?;
    Ok(Box::new(engine))
}

/// Whether a server could use the store of this configuration, without changing or locking anything. Returns warnings.
pub fn check(config: &StoreConfig) -> Result<Vec<String>> {
    #[cfg(feature = "postgres")]
    if let Some(url) = &config.database {
        return postgres::check_store(config, url);
    }
    sqlite::check_directory(&config.data_dir)?;
    Ok(sqlite::exposed(&config.data_dir))
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.engine())
    }
}
