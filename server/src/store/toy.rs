//! An engine of maps in memory: what an engine has to do, without a database, and what each mistake in one looks like.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use eigenveil_estimation::{Cancel, accumulate::Accumulator};
use eigenveil_shared::{
    Result,
    api::{
        EstimateJob, EstimateRequest, EstimateState, ImportOutcome, Problem, StudyState,
        TokenCounts,
    },
    enrolment::AdmissionKey,
    mechanism::{Payload, double_cap::Seed},
};

use super::{
    archive::{self, ArchiveItem, ArchiveWriter, Header},
    credentials::{Analyst, Credentials},
    decide::{self, Door, Facts, Spent, SubmitOutcome, admit},
    embedded::ArrivalCount,
    failure::{Failure, unavailable},
    job::{Job, StoredEstimate},
    listener::{Listener, Notice},
    report::{Outcomes, Reports},
    study::{NewStudy, Study, StudyId, StudyIndex, StudyKey, study_not_found},
    sums::{BucketSums, StoredSeeds, decode_sum},
    token::TokenHash,
    transfer::{Imported, VerifiedExport, rewind},
};
use crate::{environment::Environment, net::memory::Reservation};

/// As of a server with `retain_ids_days` = 30.
const RETAIN_IDS_MS: u64 = 30 * 86_400_000;

/// A mistake that [`conformance`](super::conformance) has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    NoDedupe,
    EarlyAnswer,
    /// The identifier of a refused report is kept, so that its next copy is answered as a duplicate.
    SecondCopyIsDuplicate,
    TokenSpentForARefusedReport,
    CloseTouchesTheRegistryOnly,
    KeyUsedAgain,
    /// What a snapshot says that it has is what was seen last.
    CountOfAnotherMoment,
    LeaseIgnored,
}

pub(super) struct Toy {
    maps: Mutex<Maps>,
    pub(super) studies: StudyIndex,
    pub(super) credentials: Credentials,
    listener: Listener,
    environment: Environment,
    mutation: Option<Mutation>,
}

#[derive(Default)]
struct Maps {
    last_key: i64,
    studies: BTreeMap<StudyKey, Kept>,
    jobs: Vec<KeptJob>,
}

#[derive(Clone)]
struct Kept {
    state: StudyState,
    closed_at_ms: Option<u64>,
    ids: BTreeSet<[u8; 16]>,
    /// Whether the identifiers are those of all reports.
    has_identifiers: bool,
    keys: BTreeMap<AdmissionKey, bool>,
    imports: BTreeSet<[u8; 32]>,
    arrivals: BTreeMap<u64, u64>,
    sum: Accumulator,
    seeds: Vec<Seed>,
}

struct KeptJob {
    study: StudyKey,
    document: EstimateJob,
    text: Option<String>,
    attempts: u32,
}

impl Kept {
    fn new(study: &Study, state: StudyState) -> Result<Self> {
        Ok(Self {
            state,
            closed_at_ms: None,
            ids: BTreeSet::new(),
            has_identifiers: true,
            keys: BTreeMap::new(),
            imports: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            sum: Accumulator::new(study.params().report_dimension())?,
            seeds: Vec::new(),
        })
    }

    fn add(&mut self, payload: &Payload<Bytes>) -> Result<()> {
        match payload {
            Payload::Seed(seed) => self.seeds.push(*seed),
            Payload::Floats(numbers) => self.sum.add(numbers)?,
            Payload::Integers(numbers) => self.sum.add(numbers)?,
        }
        Ok(())
    }

    fn counted(&self) -> u64 {
        self.sum.count() + self.seeds.len() as u64
    }
}

/// A transaction's view of a study.
struct View<'a> {
    kept: &'a mut Kept,
    mutation: Option<Mutation>,
}

impl Facts for View<'_> {
    type Failure = Failure;

    fn is_known(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        Ok(self.kept.ids.contains(id))
    }

    fn take(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        Ok(self.kept.ids.insert(*id) || self.mutation == Some(Mutation::NoDedupe))
    }

    fn spend(&mut self, key: &AdmissionKey) -> Result<Spent, Failure> {
        Ok(match self.kept.keys.get_mut(key) {
            None => Spent::Unknown,
            Some(spent) if *spent => Spent::Before,
            Some(spent) => {
                *spent = true;
                Spent::Now
            }
        })
    }
}

impl Toy {
    pub(super) fn new(
        environment: Environment,
        listener: Listener,
        mutation: Option<Mutation>,
    ) -> Self {
        Self {
            maps: Mutex::default(),
            studies: StudyIndex::default(),
            credentials: Credentials::new(TokenHash::new("operator"), Vec::new()),
            listener,
            environment,
            mutation,
        }
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap()
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What is kept of a study, unless it was deleted.
    fn with<T>(&self, study: &Study, read: impl FnOnce(&mut Kept) -> Result<T>) -> Result<T> {
        let mut maps = self.maps();
        let kept = maps.studies.get_mut(&study.key);
        read(kept.ok_or_else(|| study_not_found(study.id()))?)
    }

    fn insert(&self, id: StudyId, design: NewStudy, created_at_ms: u64) -> Result<Arc<Study>> {
        let mut maps = self.maps();
        maps.last_key = match self.has(Mutation::KeyUsedAgain) {
            true => maps.studies.keys().next_back().map_or(0, |key| key.0),
            false => maps.last_key,
        } + 1;
        let state = design.state;
        let study = Arc::new(Study::new(
            StudyKey(maps.last_key),
            id,
            design,
            created_at_ms,
        ));
        maps.studies.insert(study.key, Kept::new(&study, state)?);
        self.studies.add(Arc::clone(&study));
        Ok(study)
    }

    pub(crate) async fn create(&self, id: StudyId, design: NewStudy) -> Result<Arc<Study>> {
        self.insert(id, design, self.unix_ms())
    }

    pub(crate) async fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Result<()> {
        let now = self.unix_ms();
        self.with(study, |kept| {
            if decide::changes_state(study.id(), kept.state, wanted)?
                && !self.has(Mutation::CloseTouchesTheRegistryOnly)
            {
                kept.state = wanted;
                kept.closed_at_ms = (wanted == StudyState::Closed).then_some(now);
            }
            Ok(())
        })?;
        study.publish_state(wanted);
        Ok(())
    }

    pub(crate) async fn delete(&self, study: &Arc<Study>) -> Result<()> {
        self.with(study, |kept| decide::may_delete(study.id(), kept.state))?;
        let mut maps = self.maps();
        maps.studies.remove(&study.key);
        maps.jobs.retain(|job| job.study != study.key);
        self.studies.remove(study.id());
        self.credentials.forget_study(study.id());
        Ok(())
    }

    pub(crate) async fn append(
        &self,
        study: &Arc<Study>,
        reports: Reports,
        _reservation: Reservation,
    ) -> Result<Outcomes> {
        if self.has(Mutation::EarlyAnswer) {
            return Ok(reports.iter().map(|_| SubmitOutcome::Accepted).collect());
        }
        let now = self.unix_ms();
        let mut maps = self.maps();
        let Some(stored) = maps.studies.get_mut(&study.key) else {
            return Ok(reports
                .iter()
                .map(|_| SubmitOutcome::StudyDeleted)
                .collect());
        };
        let door = Door {
            is_open: stored.state == StudyState::Open,
            is_over: study.about().is_over(now),
            enrolment: study.enrolment(),
        };
        let mut kept = stored.clone();
        let mut outcomes = Outcomes::new();
        for report in &reports {
            let (id, key) = (&report.id.0, report.token.as_deref());
            let mut view = View {
                kept: &mut kept,
                mutation: self.mutation,
            };
            let outcome = admit(door, &mut view, id, key).map_err(Failure::into_error)?;
            match outcome {
                SubmitOutcome::Accepted => {
                    kept.add(&report.payload)?;
                    *kept.arrivals.entry(now / 60_000 * 60).or_default() += 1;
                }
                SubmitOutcome::NotAdmitted(_) if self.has(Mutation::SecondCopyIsDuplicate) => {
                    kept.ids.insert(*id);
                }
                SubmitOutcome::NotOpen | SubmitOutcome::Ended
                    if self.has(Mutation::TokenSpentForARefusedReport) =>
                {
                    if let Some(spent) = key.and_then(|key| kept.keys.get_mut(key)) {
                        *spent = true;
                    }
                }
                _ => {}
            }
            outcomes.push(outcome);
        }
        let seen = match self.has(Mutation::CountOfAnotherMoment) {
            true => stored.counted(),
            false => kept.counted(),
        };
        *stored = kept;
        study.publish_count(seen);
        Ok(outcomes)
    }

    pub(crate) async fn issue(&self, study: &Study, keys: Vec<AdmissionKey>) -> Result<()> {
        self.with(study, |kept| {
            decide::may_issue(study.id(), kept.state, study.enrolment())?;
            kept.keys.extend(keys.into_iter().map(|key| (key, false)));
            Ok(())
        })
    }

    pub(crate) fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        self.with(study, |kept| {
            Ok(TokenCounts {
                issued: kept.keys.len() as u64,
                spent: kept.keys.values().filter(|spent| **spent).count() as u64,
            })
        })
    }

    /// In one bucket, whatever the study says.
    pub(crate) fn sums(&self, study: &Study) -> Result<BucketSums> {
        self.with(study, |kept| {
            Ok(BucketSums {
                n: match self.has(Mutation::CountOfAnotherMoment) {
                    true => study.reports_accepted(),
                    false => kept.sum.count(),
                },
                duplicates: 0,
                buckets: (kept.sum.count() > 0)
                    .then(|| (0, kept.sum.clone()))
                    .into_iter()
                    .collect(),
            })
        })
    }

    pub(crate) fn seeds<'a>(&self, study: &'a Study, _: Cancel<'_>) -> Result<StoredSeeds<'a>> {
        self.with(study, |kept| {
            Ok(StoredSeeds {
                stored: kept.seeds.len() as u64,
                source: Box::new(vec![kept.seeds.clone()]),
            })
        })
    }

    /// Keeps no sums of seeds.
    pub(crate) fn fold(&self, _: &Study, _: Cancel<'_>) -> Result<()> {
        Ok(())
    }

    pub(crate) async fn add_job(
        &self,
        study: &Study,
        request: EstimateRequest,
    ) -> Result<EstimateJob> {
        self.with(study, |_| Ok(()))?;
        let mut maps = self.maps();
        let waiting = maps.jobs.iter().filter(|job| job.is_running()).count();
        decide::is_room_for_job(waiting as u32, 100)?;
        let of_study = maps
            .jobs
            .iter()
            .filter(|job| job.study == study.key)
            .count();
        let document = EstimateJob {
            number: of_study as u64 + 1,
            study: study.id().to_string(),
            state: EstimateState::Running,
            request,
            estimate: None,
            problem: None,
            created_at_ms: self.unix_ms(),
        };
        maps.jobs.push(KeptJob {
            study: study.key,
            document: document.clone(),
            text: None,
            attempts: 0,
        });
        self.listener.tell(Notice::JobAdded);
        Ok(document)
    }

    pub(crate) async fn cancel_job(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        let mut maps = self.maps();
        let (at, job) = find(&mut maps.jobs, study, number)?;
        decide::may_cancel(number, job.document.state)?;
        job.document.state = EstimateState::Cancelled;
        self.listener.tell(Notice::JobCancelled(at as i64));
        Ok(job.document.clone())
    }

    pub(crate) fn job(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        let mut maps = self.maps();
        let (_, job) = find(&mut maps.jobs, study, number)?;
        Ok(StoredEstimate {
            document: job.document.clone(),
            text: job.text.clone(),
        })
    }

    pub(crate) fn jobs(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        let maps = self.maps();
        let of_study = maps.jobs.iter().filter(|job| job.study == study.key);
        Ok(of_study.map(|job| job.document.clone()).collect())
    }

    pub(crate) fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        let mut maps = self.maps();
        let next = maps
            .jobs
            .iter_mut()
            .enumerate()
            .find(|(_, job)| job.is_running());
        let Some((at, job)) = next else {
            return Ok(None);
        };
        job.attempts += 1;
        let claimed = Job {
            id: at as i64,
            study: job.study,
            request: job.document.request.clone(),
            attempts: job.attempts - 1,
        };
        Ok(self.studies.by_key(job.study).map(|study| (study, claimed)))
    }

    pub(crate) fn finish_job(&self, job: i64, result: Result<String, Problem>) -> Result<()> {
        let mut maps = self.maps();
        let job = &mut maps.jobs[job as usize];
        if !job.is_running() && !self.has(Mutation::LeaseIgnored) {
            return Ok(());
        }
        match result {
            Ok(estimate) => {
                job.document.state = EstimateState::Done;
                job.text = Some(estimate);
            }
            Err(problem) => {
                job.document.state = EstimateState::Failed;
                job.document.problem = Some(problem);
            }
        }
        Ok(())
    }

    pub(crate) fn put_back_job(&self, job: i64) -> Result<()> {
        self.maps().jobs[job as usize].attempts -= 1;
        Ok(())
    }

    pub(crate) fn close_ended(&self) -> Result<Option<Duration>> {
        let (now, mut next) = (self.unix_ms(), None::<u64>);
        for study in self.studies.list() {
            let Some(day) = study.about().last_day else {
                continue;
            };
            self.with(&study, |kept| {
                let was_wrong = kept.closed_at_ms.is_some_and(|at| at >= day.end_ms());
                match kept.state {
                    StudyState::Open if day.is_over(now) => {
                        (kept.state, kept.closed_at_ms) = (StudyState::Closed, Some(now));
                    }
                    StudyState::Closed if !day.is_over(now) && was_wrong => {
                        (kept.state, kept.closed_at_ms) = (StudyState::Open, None);
                    }
                    _ => {}
                }
                study.publish_state(kept.state);
                if kept.state == StudyState::Open {
                    let left = day.end_ms().saturating_sub(now);
                    next = Some(next.map_or(left, |next| next.min(left)));
                }
                Ok(())
            })?;
        }
        Ok(next.map(Duration::from_millis))
    }

    pub(crate) fn sweep(&self, _stopping: &dyn Fn() -> bool) -> Result<()> {
        let before = self.unix_ms() - RETAIN_IDS_MS;
        for kept in self.maps().studies.values_mut() {
            if kept.state == StudyState::Closed && kept.closed_at_ms < Some(before) {
                kept.ids.clear();
                kept.has_identifiers = false;
            }
        }
        Ok(())
    }

    pub(crate) fn export(&self, study: &Study) -> Result<File> {
        self.with(study, |kept| {
            decide::has_identifiers(study.id(), kept.has_identifiers, decide::EXPORT_INSTEAD)?;
            let sections = usize::from(kept.counted() > 0);
            let header = Header::of(study, kept.state, kept.counted(), sections);
            let bytes = match kept.seeds.is_empty() {
                true => kept
                    .sum
                    .sum()
                    .as_slice()
                    .iter()
                    .flat_map(|x| x.to_le_bytes())
                    .collect(),
                false => kept.seeds.concat(),
            };
            let file = self.temporary_file()?;
            let write = || -> Result<File, Failure> {
                let mut archive = ArchiveWriter::new(&file, &header)?;
                for id in &kept.ids {
                    archive.put(id)?;
                }
                if header.sections > 0 {
                    archive.section(0, header.reports, bytes.len() as u64)?;
                    archive.put(&bytes)?;
                }
                archive.finish()?;
                rewind(file)
            };
            write().map_err(Failure::into_error)
        })
    }

    pub(crate) async fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Result<Imported> {
        let VerifiedExport {
            file,
            header,
            id,
            design,
            sha256,
        } = export;
        let (study, mut outcome) = match into.or_else(|| self.studies.get(id)) {
            Some(study) => {
                decide::may_merge(&study, &design)?;
                (study, ImportOutcome::Merged)
            }
            None => (
                self.insert(id, design, header.created_at_ms)?,
                ImportOutcome::Created,
            ),
        };
        let reports = self.with(&study, |stored| {
            let mut kept = stored.clone();
            if !kept.imports.insert(sha256) {
                outcome = ImportOutcome::AlreadyImported;
                return Ok(0);
            }
            decide::has_identifiers(study.id(), kept.has_identifiers, decide::IMPORT_INSTEAD)?;
            let read = || -> Result<u64, Failure> {
                let (_, reader) = archive::read_header(rewind(file)?)?;
                let mut overlap = 0;
                reader.read_items(&header, study.params(), |item| {
                    match item {
                        ArchiveItem::Identifier(id) => overlap += u64::from(!kept.ids.insert(id)),
                        ArchiveItem::Section { n, bytes, .. } => match bytes.as_chunks() {
                            (seeds, []) if kept.counted() == 0 && seeds.len() as u64 == n => {
                                kept.seeds.extend_from_slice(seeds);
                            }
                            _ => kept
                                .sum
                                .merge(&decode_sum(kept.sum.dimension(), n, &bytes)?)?,
                        },
                    }
                    Ok(())
                })?;
                Ok(overlap)
            };
            decide::none_is_counted(
                study.id(),
                read().map_err(Failure::into_error)?,
                header.reports,
            )?;
            study.publish_count(kept.counted());
            *stored = kept;
            Ok(header.reports)
        })?;
        Ok(Imported {
            study,
            outcome,
            reports,
        })
    }

    pub(crate) fn backup(&self) -> Result<File> {
        Err(unavailable("memory has no backup"))
    }

    pub(crate) fn temporary_file(&self) -> Result<File> {
        tempfile::tempfile().map_err(|error| Failure::file(error).into_error())
    }

    pub(crate) fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        self.with(study, |kept| {
            let counts = kept.arrivals.iter().map(|(&start, &n)| ArrivalCount {
                seconds: 60,
                start,
                n,
            });
            Ok(counts.collect())
        })
    }

    pub(crate) async fn rotate_operator(&self, token: String) -> Result<()> {
        self.credentials
            .change(|table| table.operator = TokenHash::new(&token));
        Ok(())
    }

    pub(crate) async fn add_analyst(&self, analyst: Analyst, _: Option<Arc<Study>>) -> Result<()> {
        self.credentials
            .change(|table| table.analysts.push(analyst));
        Ok(())
    }

    pub(crate) async fn remove_analyst(&self, id: [u8; 8]) -> Result<bool> {
        let mut removed = false;
        self.credentials.change(|table| {
            let before = table.analysts.len();
            table.analysts.retain(|analyst| analyst.id != id);
            removed = table.analysts.len() < before;
        });
        Ok(removed)
    }

    pub(crate) async fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn measure(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn is_damaged(&self) -> bool {
        false
    }

    pub(crate) async fn ended(&self) {
        std::future::pending::<()>().await;
    }

    pub(crate) fn close(&self) {}

    pub(crate) fn token_path(&self) -> PathBuf {
        PathBuf::new()
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.environment.clock.unix_ms()
    }

    pub(crate) async fn look_again(&self) -> Result<()> {
        Ok(())
    }
}

impl KeptJob {
    fn is_running(&self) -> bool {
        self.document.state == EstimateState::Running
    }
}

fn find<'a>(
    jobs: &'a mut [KeptJob],
    study: &Study,
    number: u64,
) -> Result<(usize, &'a mut KeptJob)> {
    jobs.iter_mut()
        .enumerate()
        .find(|(_, job)| job.study == study.key && job.document.number == number)
        .ok_or_else(|| decide::no_estimate(study.id(), number))
}

impl std::fmt::Debug for Toy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toy")
    }
}
