//! The server under test, its devices and its operator, and the invariants.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use eigenveil_estimation::{accumulate::Accumulator, moment::NoisyMoment};
use eigenveil_shared::{
    api::{
        BatchReceipt, EstimateDocument, EstimateState, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE,
        StudyDocument, StudyState,
    },
    mechanism::double_cap::SEED_LEN,
};
use http_body_util::BodyExt;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde_json::json;
use tempfile::TempDir;
use tower::ServiceExt;

use super::{
    model::{Asked, Family, P, StudyModel},
    operations::{Network, Operation, Wanted},
};
use crate::{
    AppState, Clock, Environment, ServerConfig, StudyId, router,
    store::{Fault, Faults, database_path},
};

/// An invariant that does not hold.
pub(super) type Violation = String;
type Checked<T = ()> = Result<T, Violation>;

/// A clock that shows what the scenario says.
#[derive(Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Status and body of an answer.
type Answer = (u16, Vec<u8>);

pub(super) struct World {
    config: ServerConfig,
    environment: Environment,
    clock: Arc<SetClock>,
    faults: Faults,
    app: Option<AppState>,
    routes: Router,
    token: String,
    families: Vec<Family>,
    studies: Vec<StudyModel>,
    // Last: removed when everything is closed.
    _directory: TempDir,
}

impl World {
    /// An empty server with settings drawn from the seed, and a study of numbers and one of seeds.
    pub(super) async fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        // In memory where there is such a place: what is tested is the order of things, not the disk.
        let shared_memory = std::path::Path::new("/dev/shm");
        let directory = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let mut config = ServerConfig::new(directory.path().join("data"));
        if rng.random_bool(0.3) {
            config.queue_requests = 4;
        }
        if rng.random_bool(0.3) {
            config.commit_reports = 3;
        }
        if rng.random_bool(0.3) {
            // Room for a few buckets of one study.
            config.memory_bytes = 8 * 6 * 4;
        }
        let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
        let environment = Environment {
            clock: Arc::<SetClock>::clone(&clock),
            faults: faults.clone(),
            ..Environment::system()
        };
        let mut world = Self {
            config,
            environment,
            clock,
            faults,
            app: None,
            routes: Router::new(),
            token: String::new(),
            families: Vec::new(),
            studies: Vec::new(),
            _directory: directory,
        };
        world.start();
        for mechanism in ["symmetric-gaussian", "double-cap"] {
            let design = json!({
                "name": mechanism, "dimension": P, "mechanism": mechanism, "epsilon": 1.0, "default_k": 1,
            });
            let (status, body) = world.operator("POST", "/v1/studies", Some(&design)).await;
            assert_eq!(status, 201);
            let document: StudyDocument = serde_json::from_slice(&body).unwrap();
            let family = Family::new(design, &document, &mut rng);
            world
                .studies
                .push(StudyModel::new(&document, world.families.len()));
            world.families.push(family);
        }
        world
    }

    fn start(&mut self) {
        let app = AppState::open(self.config.clone(), self.environment.clone()).unwrap();
        let token = std::fs::read_to_string(app.store().token_path()).unwrap();
        token.trim().clone_into(&mut self.token);
        self.routes = router(app.clone());
        self.app = Some(app);
    }

    fn stop(&mut self, drain: bool) {
        self.routes = Router::new();
        if let Some(app) = self.app.take()
            && drain
        {
            app.close();
        }
    }

    fn app(&self) -> &AppState {
        self.app.as_ref().unwrap()
    }

    /// Does one thing and checks everything.
    pub(super) async fn perform(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Upload { study, report, network } => {
                let at = study % self.studies.len();
                self.upload(at, *report, *network).await?;
            }
            Operation::Batch { study, reports, malformed, network } => {
                let at = study % self.studies.len();
                self.batch(at, reports, *malformed, *network).await?;
            }
            Operation::Burst { study, reports, close_at, fault } => {
                let at = study % self.studies.len();
                self.burst(at, reports, *close_at, *fault).await?;
            }
            Operation::SetState { study, wanted, fault } => {
                let at = study % self.studies.len();
                self.set_state(at, *wanted, *fault).await?;
            }
            Operation::Create { like, draft, fault } => {
                let family = self.studies[like % self.studies.len()].family;
                self.create(family, *draft, *fault).await?;
            }
            Operation::Estimate { study } => self.estimate(study % self.studies.len()).await?,
            Operation::Look { study, cancel } => {
                self.look(study % self.studies.len(), *cancel, false).await?;
            }
            Operation::Clock { now_ms } => self.clock.0.store(*now_ms, Ordering::Relaxed),
            Operation::Restart => {
                self.stop(true);
                self.start();
            }
            Operation::Crash => self.crash().await,
        }
        self.audit().await
    }

    /// With nothing broken any more, every device is told; and everything is still there after a restart.
    pub(super) async fn settle(&mut self) -> Checked {
        self.stop(true);
        self.start();
        for at in 0..self.studies.len() {
            if self.studies[at].state == StudyState::Draft {
                self.set_state(at, Wanted::Open, None).await?;
            }
            let open = self.studies[at].state == StudyState::Open;
            for report in 0..self.studies[at].letters.len() {
                self.upload(at, report, Network::Answered).await?;
                let letter = self.studies[at].letters[report];
                check(letter.acknowledged == (open || letter.counted), || {
                    format!("report {report} of an {open:?} study ends as {letter:?}")
                })?;
            }
        }
        self.audit().await?;
        self.stop(true);
        self.start();
        for at in 0..self.studies.len() {
            self.look(at, false, true).await?;
        }
        self.audit().await?;
        self.stop(true);
        Ok(())
    }

    /// The writer dies at the next thing it is told, and with it everything that waits.
    async fn crash(&mut self) {
        self.faults.set_next(Some(Fault::DiesBeforeCommit));
        let probe = self.app().store().check_writable().await;
        self.faults.set_next(None);
        assert!(probe.is_err() || self.app().store().check_writable().await.is_err());
        self.stop(false);
        self.start();
    }

    /// After a fault that killed the writer: nothing is written any more until the next start.
    fn revive(&mut self, fault: Option<Fault>) {
        self.faults.set_next(None);
        if matches!(fault, Some(Fault::DiesBeforeCommit | Fault::DiesAfterCommit)) {
            self.stop(false);
            self.start();
        }
    }

    async fn operator(
        &self,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |value| Body::from(value.to_string()));
        send(self.routes.clone(), request.body(body).unwrap()).await
    }

    async fn upload(&mut self, at: usize, report: usize, network: Network) -> Checked {
        let mut body = self.families[self.studies[at].family].single(report);
        match network {
            Network::RequestLost => return Ok(()),
            Network::CutShort => {
                body.truncate(body.len() - 1);
                let (status, _) = self.post(at, REPORT_MEDIA_TYPE, body).await;
                return check(status == 400, || format!("half a report is answered {status}"));
            }
            Network::Answered | Network::AnswerLost => {}
        }
        let answer = self.post(at, REPORT_MEDIA_TYPE, body).await;
        self.arrived(at, report);
        match network {
            Network::Answered => self.learn(at, report, answer.0, false),
            _ => Ok(()),
        }
    }

    /// It reached a server that may count it.
    fn arrived(&mut self, at: usize, report: usize) {
        let study = &mut self.studies[at];
        study.letters[report].may_count |= study.state == StudyState::Open;
    }

    /// What a device makes of the answer to its report. `sent_twice`: the same request round brought it before.
    fn learn(&mut self, at: usize, report: usize, status: u16, sent_twice: bool) -> Checked {
        let study = &mut self.studies[at];
        let state = study.state;
        let letter = &mut study.letters[report];
        let right = match status {
            201 => !letter.counted && !(letter.acknowledged && !sent_twice) && letter.may_count,
            200 => letter.counted || sent_twice,
            409 => !letter.counted && !letter.acknowledged && state != StudyState::Open,
            _ => false,
        };
        letter.acknowledged |= matches!(status, 200 | 201);
        let letter = *letter;
        check(right, || {
            format!("report {report} is answered {status} in a study that is {state:?}, being {letter:?}")
        })
    }

    async fn batch(
        &mut self,
        at: usize,
        reports: &[usize],
        malformed: Option<usize>,
        network: Network,
    ) -> Checked {
        let malformed = malformed.map(|place| place % reports.len());
        let mut body = self.families[self.studies[at].family].batch(reports, malformed);
        match network {
            Network::RequestLost => return Ok(()),
            Network::CutShort => {
                body.truncate(body.len() - 1);
                let (status, _) = self.post(at, REPORT_BATCH_MEDIA_TYPE, body).await;
                return check(status == 400, || format!("half a batch is answered {status}"));
            }
            Network::Answered | Network::AnswerLost => {}
        }
        let good: Vec<usize> = reports
            .iter()
            .enumerate()
            .filter(|(place, _)| Some(*place) != malformed)
            .map(|(_, report)| *report)
            .collect();
        let (status, body) = self.post(at, REPORT_BATCH_MEDIA_TYPE, body).await;
        for &report in &good {
            self.arrived(at, report);
        }
        if network == Network::AnswerLost {
            return Ok(());
        }
        let state = self.studies[at].state;
        let known = |report: &&usize| self.studies[at].letters[**report].counted;
        if status == 409 {
            return check(
                state != StudyState::Open && !good.iter().any(|report| known(&report)),
                || format!("a batch is refused as a whole in a study that is {state:?}"),
            );
        }
        check(status == 200, || format!("a batch is answered {status}"))?;
        let receipt: BatchReceipt = serde_json::from_slice(&body).unwrap();
        let distinct: HashSet<usize> = good.iter().copied().collect();
        let new = distinct.iter().filter(|report| !known(report)).count() as u64;
        let mut refused: Vec<usize> = malformed.into_iter().collect();
        let expected = if state == StudyState::Open {
            (new, good.len() as u64 - new)
        } else {
            let unknown = reports.iter().enumerate().filter(|(place, report)| {
                Some(*place) != malformed && !self.studies[at].letters[**report].counted
            });
            refused.extend(unknown.map(|(place, _)| place));
            refused.sort_unstable();
            (0, good.iter().filter(known).count() as u64)
        };
        let told: Vec<usize> = receipt.refused.iter().map(|r| r.index as usize).collect();
        check(
            (receipt.accepted, receipt.duplicates) == expected && told == refused,
            || format!("a batch of which {new} are new is answered {receipt:?}"),
        )?;
        for report in good {
            let letter = &mut self.studies[at].letters[report];
            letter.acknowledged |= state == StudyState::Open || letter.counted;
        }
        Ok(())
    }

    async fn burst(
        &mut self,
        at: usize,
        reports: &[usize],
        close_at: Option<usize>,
        fault: Option<Fault>,
    ) -> Checked {
        let before = self.studies[at].state;
        let closes = close_at.is_some() && before == StudyState::Open;
        self.faults.set_next(fault);
        self.faults.hold();
        let mut sent = Vec::new();
        let mut close = None;
        for place in 0..=reports.len() {
            if closes && close_at == Some(place) {
                let path = format!("/v1/studies/{}/close", self.studies[at].id);
                close = Some(tokio::spawn(send(self.routes.clone(), self.order("POST", &path))));
            }
            let Some(&report) = reports.get(place) else { break };
            let body = self.families[self.studies[at].family].single(report);
            let request = self.report_request(at, REPORT_MEDIA_TYPE, body);
            sent.push((report, tokio::spawn(send(self.routes.clone(), request))));
        }
        // Everything spawned runs up to the queue, in order.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.faults.release();
        let mut answers = Vec::new();
        for (report, answer) in sent {
            answers.push((report, answer.await.unwrap().0));
        }
        let closed = match close {
            Some(close) => close.await.unwrap().0 == 200,
            None => false,
        };
        self.revive(fault);
        // Before the close as if there were none, after it as if it had always been.
        let mut seen = HashSet::new();
        for (place, (report, status)) in answers.iter().enumerate() {
            if closed && close_at == Some(place) {
                self.studies[at].state = StudyState::Closed;
            }
            self.arrived(at, *report);
            let sent_twice = !seen.insert(*report);
            match status {
                200 | 201 | 409 => self.learn(at, *report, *status, sent_twice)?,
                429 => {}
                503 | 507 if fault.is_some() => {}
                status => return Err(format!("report {report} in a burst is answered {status}")),
            }
        }
        if closed {
            self.studies[at].state = StudyState::Closed;
        } else if closes {
            // It may or may not have been committed.
            self.studies[at].state = self.document(at).await?.state;
        }
        if fault == Some(Fault::CommitFails) || fault.is_none() {
            let counted = self.on_disk(at)?;
            for (report, _) in answers.iter().filter(|(_, status)| *status >= 429) {
                let times = answers.iter().filter(|(other, _)| other == report).count();
                let letter = self.studies[at].letters[*report];
                check(times > 1 || letter.counted || counted[*report] == 0, || {
                    format!("report {report} was told that it was not written, and was")
                })?;
            }
        }
        Ok(())
    }

    async fn set_state(&mut self, at: usize, wanted: Wanted, fault: Option<Fault>) -> Checked {
        let (verb, target) = match wanted {
            Wanted::Open => ("open", StudyState::Open),
            Wanted::Closed => ("close", StudyState::Closed),
        };
        let path = format!("/v1/studies/{}/{verb}", self.studies[at].id);
        let before = self.studies[at].state;
        let allowed = matches!(
            (before, target),
            (StudyState::Draft | StudyState::Open, StudyState::Open)
                | (StudyState::Open | StudyState::Closed, StudyState::Closed)
        );
        self.faults.set_next(fault);
        let (status, _) = self.operator("POST", &path, None).await;
        self.revive(fault.filter(|_| allowed));
        let after = self.document(at).await?.state;
        let right = match (status, fault) {
            (200, None) => allowed && after == target,
            (409, _) => !allowed && after == before,
            (503 | 507, Some(Fault::CommitFails | Fault::DiesBeforeCommit)) => after == before,
            (503, Some(Fault::DiesAfterCommit)) => after == target,
            _ => false,
        };
        self.studies[at].state = after;
        check(right, || {
            format!("asking a study that is {before:?} for {target:?} is answered {status}, and it is {after:?}")
        })
    }

    async fn create(&mut self, family: usize, draft: bool, fault: Option<Fault>) -> Checked {
        let mut design = self.families[family].design.clone();
        design["draft"] = json!(draft);
        self.faults.set_next(fault);
        let (status, body) = self.operator("POST", "/v1/studies", Some(&design)).await;
        self.revive(fault);
        let listed = self.operator("GET", "/v1/studies", None).await;
        let listed: eigenveil_shared::api::StudyList = serde_json::from_slice(&listed.1).unwrap();
        let new: Vec<&StudyDocument> = listed
            .studies
            .iter()
            .filter(|study| self.studies.iter().all(|known| known.id != study.id))
            .collect();
        let right = match (status, fault) {
            (201, None) => {
                let told: StudyDocument = serde_json::from_slice(&body).unwrap();
                new.len() == 1 && new[0].id == told.id
            }
            (503 | 507, Some(Fault::CommitFails | Fault::DiesBeforeCommit)) => new.is_empty(),
            (503, Some(Fault::DiesAfterCommit)) => new.len() == 1,
            _ => false,
        };
        check(right, || format!("a new study is answered {status} and {} are there", new.len()))?;
        for document in new {
            self.studies.push(StudyModel::new(document, family));
        }
        Ok(())
    }

    async fn estimate(&mut self, at: usize) -> Checked {
        let path = format!("/v1/studies/{}/estimates", self.studies[at].id);
        let (status, body) = self.operator("POST", &path, Some(&json!({}))).await;
        check(status == 202, || format!("asking for an estimate is answered {status}"))?;
        let document: EstimateDocument = serde_json::from_slice(&body).unwrap();
        let study = &mut self.studies[at];
        study.asked.push(Asked {
            number: document.number,
            at_least: study.count(),
            cancelled: false,
        });
        Ok(())
    }

    /// Looks at the estimates of a study; those that are done are of one moment.
    async fn look(&mut self, at: usize, cancel: bool, wait: bool) -> Checked {
        let path = format!("/v1/studies/{}/estimates", self.studies[at].id);
        if cancel && let Some(last) = self.studies[at].asked.len().checked_sub(1) {
            let number = self.studies[at].asked[last].number;
            let (status, _) = self
                .operator("DELETE", &format!("{path}/{number}"), None)
                .await;
            check(matches!(status, 200 | 409), || {
                format!("cancelling an estimate is answered {status}")
            })?;
            self.studies[at].asked[last].cancelled |= status == 200;
        }
        for asked in self.studies[at].asked.clone() {
            let number = asked.number;
            let document = loop {
                let (status, body) = self.operator("GET", &format!("{path}/{number}"), None).await;
                check(status == 200, || format!("estimate {number} is answered {status}"))?;
                let document: EstimateDocument = serde_json::from_slice(&body).unwrap();
                if !wait || document.state != EstimateState::Running {
                    break document;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            };
            let study = &self.studies[at];
            match (document.state, &document.estimate) {
                (EstimateState::Running, None) => {}
                (EstimateState::Cancelled, None) => check(asked.cancelled, || {
                    format!("nobody cancelled estimate {number}")
                })?,
                // An empty study has no estimate.
                (EstimateState::Failed, None) => check(asked.at_least == 0, || {
                    format!("estimate {number} failed: {:?}", document.problem)
                })?,
                (EstimateState::Done, Some(estimate)) => {
                    let n = estimate.n;
                    check(!asked.cancelled && (asked.at_least..=study.count()).contains(&n), || {
                        format!("estimate {number} is of {n} reports: {asked:?}, now {}", study.count())
                    })?;
                    let squares: f64 = estimate.eigenvalues.iter().map(|x| x * x).sum();
                    // Between the commits of one burst nobody looked.
                    if let Some(&expected) = study.spectra.get(&n) {
                        check((squares - expected).abs() <= 1e-9 * expected.max(1.0), || {
                            format!("estimate {number} of {n} reports is not of their sums: {squares} against {expected}")
                        })?;
                    }
                }
                (state, _) => return Err(format!("estimate {number} is {state:?} without its result")),
            }
        }
        Ok(())
    }

    fn report_request(&self, at: usize, media_type: &str, body: Vec<u8>) -> Request<Body> {
        Request::post(format!("/v1/studies/{}/reports", self.studies[at].id))
            .header(header::CONTENT_TYPE, media_type)
            .body(Body::from(body))
            .unwrap()
    }

    fn order(&self, method: &str, path: &str) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Body::empty())
            .unwrap()
    }

    async fn post(&self, at: usize, media_type: &str, body: Vec<u8>) -> Answer {
        let request = self.report_request(at, media_type, body);
        send(self.routes.clone(), request).await
    }

    async fn document(&self, at: usize) -> Checked<StudyDocument> {
        let path = format!("/v1/studies/{}", self.studies[at].id);
        let (status, body) = self.operator("GET", &path, None).await;
        check(status == 200, || format!("a study is answered {status}"))?;
        Ok(serde_json::from_slice(&body).unwrap())
    }

    /// How often each report of a study is counted, read from the disk.
    fn on_disk(&self, at: usize) -> Checked<Vec<u32>> {
        let study = &self.studies[at];
        let family = &self.families[study.family];
        if family.holds_seeds() {
            return self.seeds_on_disk(study, family);
        }
        let store = self.app().store();
        let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
        let moment = store.moment(&stored).map_err(|error| error.to_string())?;
        let mut total = Accumulator::new(P).unwrap();
        for (_, sums) in &moment.buckets {
            total.merge(sums).unwrap();
        }
        family.multiplicities(total.sum().as_slice())
    }

    fn seeds_on_disk(&self, study: &StudyModel, family: &Family) -> Checked<Vec<u32>> {
        let numbers: HashMap<&[u8], usize> = family
            .reports
            .iter()
            .enumerate()
            .map(|(number, report)| (report.payload.as_slice(), number))
            .collect();
        let mut found = vec![0; family.reports.len()];
        for seeds in self.blobs("SELECT seeds FROM seeds JOIN studies USING (study) WHERE id = ?", study) {
            for seed in seeds.chunks(SEED_LEN) {
                match numbers.get(seed) {
                    Some(&number) => found[number] += 1,
                    None => return Err("a seed is stored that nobody sent".into()),
                }
            }
        }
        Ok(found)
    }

    /// A column of blobs about one study, by a connection of our own.
    fn blobs(&self, query: &str, study: &StudyModel) -> Vec<Vec<u8>> {
        let connection = rusqlite::Connection::open_with_flags(
            database_path(&self.config.data_dir),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        )
        .unwrap();
        let mut statement = connection.prepare(query).unwrap();
        let id = StudyId::parse(&study.id).unwrap();
        let rows = statement.query_map([id.0], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Everything that must hold between two operations.
    async fn audit(&mut self) -> Checked {
        for at in 0..self.studies.len() {
            let counted = self.on_disk(at)?;
            let document = self.document(at).await?;
            let study = &self.studies[at];
            let family = &self.families[study.family];
            check(document.state == study.state, || {
                format!("study {at} is {:?} and was {:?}", document.state, study.state)
            })?;
            for (number, (letter, &times)) in study.letters.iter().zip(&counted).enumerate() {
                let told = || format!("report {number} of study {at} ({letter:?}) is");
                check(times <= 1, || format!("{} counted {times} times", told()))?;
                check(times == 1 || !letter.acknowledged, || {
                    format!("{} acknowledged and lost", told())
                })?;
                check(times == 1 || !letter.counted, || format!("{} gone", told()))?;
                check(times == 0 || letter.may_count, || {
                    format!("{} counted and should not be", told())
                })?;
            }
            let n = counted.iter().map(|&times| u64::from(times)).sum::<u64>();
            check(document.reports_accepted == n, || {
                format!("study {at} holds {n} reports and says {}", document.reports_accepted)
            })?;
            let ids = "SELECT report_ids.id FROM report_ids JOIN studies USING (study) WHERE studies.id = ?";
            let stored: HashSet<Vec<u8>> = self.blobs(ids, study).into_iter().collect();
            let expected: HashSet<Vec<u8>> = family
                .reports
                .iter()
                .zip(&counted)
                .filter(|(_, times)| **times == 1)
                .map(|(report, _)| report.id.0.to_vec())
                .collect();
            check(stored == expected, || {
                format!("study {at} holds {} identifiers of {n} reports", stored.len())
            })?;
            let squares = self.spectrum(at, n)?;
            let study = &mut self.studies[at];
            study.spectra.insert(n, squares);
            for (letter, times) in study.letters.iter_mut().zip(counted) {
                letter.counted = times == 1;
            }
        }
        Ok(())
    }

    /// ‖S̃‖²_F of the sums as they are, which is the sum of the squared eigenvalues; n is checked by the way.
    fn spectrum(&self, at: usize, n: u64) -> Checked<f64> {
        let store = self.app().store();
        let study = store.study(StudyId::parse(&self.studies[at].id).unwrap()).unwrap();
        let stored = store.moment(&study).map_err(|error| error.to_string())?;
        check(stored.n == n, || format!("the moment is of {} reports, not {n}", stored.n))?;
        if n == 0 {
            return Ok(0.0);
        }
        let buckets = stored.buckets.into_iter().map(|(_, sums)| sums).collect();
        let moment = NoisyMoment::decode(buckets, study.params()).unwrap();
        Ok(moment.dense().iter().map(|x| x * x).sum())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A violation leaves the writer as it is.
        self.faults.release();
        self.faults.set_next(None);
    }
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Owned, so that it can be spawned.
async fn send(routes: Router, request: Request<Body>) -> Answer {
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, body.to_vec())
}
