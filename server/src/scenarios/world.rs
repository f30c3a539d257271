//! The server under test, its devices and its operator.

use std::{
    cell::Cell,
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{Request, header},
};
use eigenveil_client::Response;
use eigenveil_shared::{
    Error,
    api::{
        BatchResponse, PROBLEM_MEDIA_TYPE, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE,
        StudyDocument, StudyState,
    },
};
#[cfg(feature = "postgres")]
use eigenveil_store::testing::{fleet, fleet::Database};
use eigenveil_store::{Environment, Fault, Faults, Store, testing::fixtures::SetClock};
use http_body_util::BodyExt;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde_json::json;
use tempfile::TempDir;

use super::{
    device::{Device, Mistake},
    model::{Exported, P, ParameterSet, StudyModel},
    operations::{Fate, Network, Operation},
};
use crate::{AppState, ServerConfig, routes::Routes};

/// Whose tables it is about.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Engine {
    Embedded,
    /// Three servers over one database.
    #[cfg(feature = "postgres")]
    Fleet,
}

pub(super) type Reply = (u16, Vec<u8>);

pub(super) struct World {
    pub(super) config: ServerConfig,
    environment: Environment,
    clock: Arc<SetClock>,
    pub(super) faults: Faults,
    servers: Vec<Server>,
    turn: Cell<usize>,
    /// Requests that may have changed what servers show.
    changes: Cell<u64>,
    pub(super) token: String,
    pub(super) parameter_sets: Vec<ParameterSet>,
    pub(super) studies: Vec<StudyModel>,
    pub(super) exports: Vec<Exported>,
    #[cfg(feature = "postgres")]
    pub(super) database: Option<Database>,
    // Last: deleted after everything is closed.
    _directory: TempDir,
}

struct Server {
    app: AppState,
    routes: Routes,
    /// Changes until it was last told of others'.
    seen: Cell<u64>,
}

impl World {
    /// A new server with settings drawn from the seed, a study with numeric payloads and one with seeds.
    pub(super) async fn new(
        seed: u64,
        engine: Engine,
        faults: Faults,
        mistake: Option<Mistake>,
    ) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        // In memory if possible: the order of operations is tested, not the disk.
        let shared_memory = std::path::Path::new("/dev/shm");
        let directory = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let mut config = ServerConfig::new(directory.path().join("data"));
        if rng.random_bool(0.3) {
            config.tuning.max_queued_requests = 4;
        }
        if rng.random_bool(0.3) {
            config.tuning.max_commit_reports = 3;
        }
        if rng.random_bool(0.3) {
            // Room for a few buckets of one study.
            config.sum_cache_bytes = 8 * 6 * 4;
        }
        if seed.is_multiple_of(2) {
            // Nearly all seeds are in folds.
            config.tuning.min_folded_seeds = 2;
        }
        let servers = match engine {
            Engine::Embedded => 1,
            #[cfg(feature = "postgres")]
            Engine::Fleet => 3,
        };
        #[cfg(feature = "postgres")]
        let database = (engine == Engine::Fleet).then(|| {
            let database = Database::create();
            let mut with_database = config.of_store();
            database.migrate(&mut with_database);
            config.store = with_database.database;
            database
        });
        faults.use_small_log();
        let clock = SetClock::new();
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
            servers: Vec::new(),
            turn: Cell::new(0),
            changes: Cell::new(1),
            token: String::new(),
            parameter_sets: Vec::new(),
            studies: Vec::new(),
            exports: Vec::new(),
            #[cfg(feature = "postgres")]
            database,
            _directory: directory,
        };
        for _ in 0..servers {
            world.start();
        }
        for mechanism in ["symmetric-gaussian", "double-cap"] {
            let design = json!({
                "name": mechanism, "dimension": P, "mechanism": mechanism, "epsilon": 1.0, "default_k": 1,
            });
            let (status, body) = world.operator("POST", "/v1/studies", Some(&design)).await;
            assert_eq!(status, 201);
            let document: StudyDocument = serde_json::from_slice(&body).unwrap();
            let parameters = ParameterSet::new(design, &document, &mut rng, mistake);
            world.studies.push(StudyModel::new(
                &document.id,
                document.state,
                world.parameter_sets.len(),
            ));
            world.parameter_sets.push(parameters);
        }
        world
    }

    fn start(&mut self) {
        let open = || AppState::open(self.config.clone(), self.environment.clone());
        // After a crash the thread of the estimates holds the lock until it has ended.
        let is_locked = |error: &Error| error.detail().starts_with("another server is using");
        let begun = Instant::now();
        let app = loop {
            match open() {
                Err(error) if is_locked(&error) && begun.elapsed() < Duration::from_secs(300) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                opened => break opened.unwrap(),
            }
        };
        let token = std::fs::read_to_string(app.store().token_path()).unwrap();
        token.trim().clone_into(&mut self.token);
        let routes = Routes::new(app.clone());
        self.servers.push(Server {
            app,
            routes,
            seen: Cell::new(0),
        });
    }

    /// The one that has run longest.
    fn restart(&mut self) {
        self.stop(true);
        self.start();
    }

    fn stop(&mut self, drain: bool) {
        let server = self.servers.remove(0);
        if drain {
            server.app.close();
        }
    }

    /// The next one, which shows what the others have done.
    fn server(&self) -> &Server {
        self.turn.set(self.turn.get() + 1);
        let server = &self.servers[self.turn.get() % self.servers.len()];
        if server.seen.replace(self.changes.get()) < self.changes.get() {
            #[cfg(feature = "postgres")]
            fleet::refresh(server.app.store());
        }
        server
    }

    pub(super) fn store(&self) -> &Store {
        self.server().app.store()
    }

    /// For a request that may change something.
    pub(super) fn routes(&self) -> Routes {
        let routes = self.server().routes.clone();
        self.changes.set(self.changes.get() + 1);
        routes
    }

    pub(super) async fn perform(&mut self, operation: Operation) {
        let studies = self.studies.len();
        match operation {
            Operation::Upload {
                study,
                report,
                window,
                fate,
                network,
            } => {
                let at = study % studies;
                self.upload(at, report, (window, fate), network).await;
            }
            Operation::Batch {
                study,
                reports,
                malformed,
                network,
            } => {
                let at = study % studies;
                self.batch(at, &reports, malformed, network).await;
            }
            Operation::Burst {
                study,
                reports,
                close_at,
                fault,
            } => {
                let at = study % studies;
                self.burst(at, &reports, close_at, fault).await;
            }
            Operation::SetState {
                study,
                wanted,
                fault,
            } => self.set_state(study % studies, wanted, fault).await,
            Operation::Create {
                parameters_of,
                draft,
                fault,
            } => {
                let parameters = self.studies[parameters_of % studies].parameters;
                self.create(parameters, draft, fault).await;
            }
            Operation::Estimate { study } => self.estimate(study % studies).await,
            Operation::CheckEstimates { study, cancel } => {
                self.check_estimates(study % studies, cancel, false).await;
            }
            Operation::Export { study } => self.export(study % studies).await,
            Operation::Import {
                export,
                into,
                fault,
            } => {
                if let Some(last) = self.exports.len().checked_sub(1) {
                    let into = into.map(|study| study % studies);
                    self.import(export.min(last), into, fault).await;
                }
            }
            Operation::Delete { study, fault } => self.delete(study % studies, fault).await,
            Operation::Clock { now_ms } => self.clock.set(now_ms),
            Operation::Restart => self.restart(),
            Operation::Crash => self.crash().await,
        }
        self.audit().await;
    }

    /// Without further faults every device is acknowledged, and everything is still there after a restart.
    pub(super) async fn check_final_state(&mut self) {
        self.restart();
        for at in 0..self.studies.len() {
            if self.studies[at].state == StudyState::Draft {
                self.set_state(at, StudyState::Open, None).await;
            }
            let open = self.studies[at].state == StudyState::Open;
            for report in 0..self.studies[at].reports.len() {
                // The other window of most, which is behind.
                let well = (1, Fate::Stored);
                self.upload(at, report, well, Network::Answered).await;
                let report_status = self.studies[at].reports[report];
                assert!(
                    report_status.acknowledged == (open || report_status.counted),
                    "report {report} of an {open:?} study ends as {report_status:?}"
                );
            }
        }
        for study in &self.studies {
            let devices = &mut self.parameter_sets[study.parameters].devices;
            assert!(
                study.state != StudyState::Open || devices.iter_mut().all(Device::is_acknowledged),
                "a device does not know that its report is counted"
            );
        }
        self.audit().await;
        self.restart();
        for at in 0..self.studies.len() {
            self.check_estimates(at, false, true).await;
        }
        self.audit().await;
        while !self.servers.is_empty() {
            self.stop(true);
        }
    }

    /// The writer dies at the next command, with everything that waits; or the servers lose all connections to their
    /// database.
    async fn crash(&mut self) {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            database.cut_off();
            // They may notice only when they ask that a connection is gone.
            for server in &self.servers {
                fleet::eventually(async || server.app.store().look_again().await.ok()).await;
            }
            return;
        }
        self.faults.set_next(Some(Fault::DiesBeforeCommit));
        let probe = self.store().check_writable().await;
        self.faults.set_next(None);
        assert!(probe.is_err() || self.store().check_writable().await.is_err());
        self.stop(false);
        self.start();
    }

    pub(super) fn restart_if_killed(&mut self, fault: Option<Fault>) {
        self.faults.set_next(None);
        if let Some(Fault::DiesBeforeCommit | Fault::DiesAfterCommit) = fault {
            self.stop(false);
            self.start();
        }
    }

    pub(super) async fn operator(
        &self,
        method: &str,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Reply {
        let body = body.map_or_else(Vec::new, |value| value.to_string().into_bytes());
        let request = self.operator_request(method, path, "application/json", body);
        let routes = match method {
            "GET" => self.server().routes.clone(),
            _ => self.routes(),
        };
        send(routes, request).await
    }

    async fn upload(
        &mut self,
        at: usize,
        report: usize,
        (window, fate): (usize, Fate),
        network: Network,
    ) {
        let set = &mut self.parameter_sets[self.studies[at].parameters];
        let device = &mut set.devices[report];
        device.take_part(window, fate);
        let pending = device.pending(window);
        let body = match &pending {
            Some(request) => request.body.clone(),
            None if device.report.is_some() => set.single(report),
            None => return,
        };
        let (status, media_type, body) = match network {
            Network::RequestLost => return,
            Network::CutShort => return self.cut_short(at, REPORT_MEDIA_TYPE, body).await,
            Network::Portal => (200, "text/html", b"<h1>Log in</h1>".to_vec()),
            Network::Answered | Network::ResponseLost => {
                let (status, body) = self.post(at, REPORT_MEDIA_TYPE, body).await;
                self.record_arrival(at, report);
                if network == Network::ResponseLost {
                    return;
                }
                self.record_response(at, report, status, false);
                match status < 300 {
                    true => (status, "application/json", body),
                    false => (status, PROBLEM_MEDIA_TYPE, body),
                }
            }
        };
        let Some(request) = pending else {
            return;
        };
        let response = Response {
            status,
            headers: &[("content-type", media_type)],
            body: &body,
            now: None,
        };
        let device = &mut self.parameter_sets[self.studies[at].parameters].devices[report];
        let acknowledged = device.settle(window, &request, &response, fate);
        assert!(
            network == Network::Portal || acknowledged == (status < 300),
            "a device that gets {status} believes that its report is counted: {acknowledged}"
        );
        self.studies[at].reports[report].acknowledged |= acknowledged;
    }

    /// The last byte of a body never arrives. Drafts stay hidden, and the body of a report is not read if it could be
    /// neither counted nor recognised.
    async fn cut_short(&self, at: usize, media_type: &str, mut body: Vec<u8>) {
        body.truncate(body.len() - 1);
        let (status, _) = self.post(at, media_type, body).await;
        let study = &self.studies[at];
        let some_are_known = study.reports.iter().any(|report| report.acknowledged);
        let right = match study.state {
            StudyState::Draft => status == 404,
            StudyState::Open => status == 400,
            StudyState::Closed => status == 400 || status == 409 && !some_are_known,
        };
        assert!(right, "a part of {media_type} gets {status}");
    }

    /// It reached a server that may count it.
    fn record_arrival(&mut self, at: usize, report: usize) {
        let study = &mut self.studies[at];
        study.reports[report].may_count |= study.state == StudyState::Open;
    }

    /// Records the response to a device's report. `sent_twice`: the same burst sent it before.
    fn record_response(&mut self, at: usize, report: usize, status: u16, sent_twice: bool) {
        let study = &mut self.studies[at];
        let state = study.state;
        let report_status = &mut study.reports[report];
        let right = match status {
            201 => {
                report_status.may_count
                    && !report_status.counted
                    && (sent_twice || !report_status.acknowledged)
            }
            200 => report_status.counted || sent_twice,
            409 => {
                !report_status.counted && !report_status.acknowledged && state == StudyState::Closed
            }
            404 => state == StudyState::Draft,
            _ => false,
        };
        report_status.acknowledged |= matches!(status, 200 | 201);
        let report_status = *report_status;
        assert!(
            right,
            "report {report} gets {status} in a study that is {state:?}, being {report_status:?}"
        );
    }

    async fn batch(
        &mut self,
        at: usize,
        reports: &[usize],
        malformed: Option<usize>,
        network: Network,
    ) {
        let malformed = malformed.map(|position| position % reports.len());
        let body = self.parameter_sets[self.studies[at].parameters].batch(reports, malformed);
        match network {
            Network::RequestLost | Network::Portal => return,
            Network::CutShort => return self.cut_short(at, REPORT_BATCH_MEDIA_TYPE, body).await,
            Network::Answered | Network::ResponseLost => {}
        }
        let good: Vec<usize> = reports
            .iter()
            .enumerate()
            .filter(|(position, _)| Some(*position) != malformed)
            .map(|(_, report)| *report)
            .collect();
        let (status, body) = self.post(at, REPORT_BATCH_MEDIA_TYPE, body).await;
        for &report in &good {
            self.record_arrival(at, report);
        }
        if network == Network::ResponseLost {
            return;
        }
        let state = self.studies[at].state;
        let known = |report: &&usize| self.studies[at].reports[**report].counted;
        if status == 404 {
            assert!(
                state == StudyState::Draft,
                "a study that is {state:?} is hidden"
            );
            return;
        }
        if status == 409 {
            assert!(
                state == StudyState::Closed && !good.iter().any(|report| known(&report)),
                "a batch is refused as a whole in a study that is {state:?}"
            );
            return;
        }
        assert!(status == 200, "a batch gets {status}");
        let receipt: BatchResponse = serde_json::from_slice(&body).unwrap();
        let distinct: HashSet<usize> = good.iter().copied().collect();
        let new = distinct.iter().filter(|report| !known(report)).count() as u64;
        let mut refused: Vec<usize> = malformed.into_iter().collect();
        let expected = if state == StudyState::Open {
            (new, good.len() as u64 - new)
        } else {
            let unknown = reports.iter().enumerate().filter(|(position, report)| {
                Some(*position) != malformed && !self.studies[at].reports[**report].counted
            });
            refused.extend(unknown.map(|(position, _)| position));
            refused.sort_unstable();
            (0, good.iter().filter(known).count() as u64)
        };
        let listed: Vec<usize> = receipt.refused.iter().map(|r| r.index as usize).collect();
        assert!(
            (receipt.accepted, receipt.duplicates) == expected && listed == refused,
            "a batch of which {new} are new gets {receipt:?}"
        );
        for report in good {
            let report_status = &mut self.studies[at].reports[report];
            report_status.acknowledged |= state == StudyState::Open || report_status.counted;
        }
    }

    async fn burst(
        &mut self,
        at: usize,
        reports: &[usize],
        close_at: Option<usize>,
        fault: Option<Fault>,
    ) {
        let before = self.studies[at].state;
        let closes = close_at.is_some() && before == StudyState::Open;
        self.faults.set_next(fault);
        self.faults.hold();
        let mut sent = Vec::new();
        let mut close = None;
        for position in 0..=reports.len() {
            if closes && close_at == Some(position) {
                let path = format!("/v1/studies/{}/close", self.studies[at].id);
                let request = self.operator_request("POST", &path, "", Vec::new());
                close = Some(tokio::spawn(send(self.routes(), request)));
            }
            let Some(&report) = reports.get(position) else {
                break;
            };
            let body = self.parameter_sets[self.studies[at].parameters].single(report);
            let request = report_request(&self.studies[at].id, REPORT_MEDIA_TYPE, body);
            sent.push((report, tokio::spawn(send(self.routes(), request))));
        }
        // Everything spawned runs up to the queue, in order.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.faults.release();
        let mut responses = Vec::new();
        for (report, response) in sent {
            responses.push((report, response.await.unwrap().0));
        }
        let closed = match close {
            Some(close) => close.await.unwrap().0 == 200,
            None => false,
        };
        self.restart_if_killed(fault);
        let has_order = self.servers.len() == 1;
        if !has_order {
            // Of several servers nobody knows it: there has to be one.
            responses.sort_by_key(|(_, status)| (*status == 409, *status != 201));
        }
        // Before the close as if there were none, after it as if it had always been closed.
        let mut seen = HashSet::new();
        for (position, (report, status)) in responses.iter().enumerate() {
            let is_late = match has_order {
                true => close_at == Some(position),
                false => *status == 409,
            };
            if closed && is_late {
                self.studies[at].state = StudyState::Closed;
            }
            self.record_arrival(at, *report);
            let sent_twice = !seen.insert(*report);
            match status {
                200 | 201 | 404 | 409 => self.record_response(at, *report, *status, sent_twice),
                429 => {}
                503 | 507 if fault.is_some() => {}
                status => panic!("report {report} in a burst gets {status}"),
            }
        }
        if closed {
            self.studies[at].state = StudyState::Closed;
        } else if closes {
            // The close may or may not have been committed.
            self.studies[at].state = self.document(&self.studies[at].id).await.state;
        }
        if fault == Some(Fault::CommitFails) || fault.is_none() {
            let counted = self.on_disk(at, &self.stored(at));
            for (report, _) in responses.iter().filter(|(_, status)| *status >= 429) {
                let times = responses
                    .iter()
                    .filter(|(other, _)| other == report)
                    .count();
                let report_status = self.studies[at].reports[*report];
                assert!(
                    times > 1 || report_status.counted || counted[*report] == 0,
                    "report {report} got an error saying that it was not written, but it was"
                );
            }
        }
    }

    pub(super) fn operator_request(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: Vec<u8>,
    ) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, media_type)
            .body(Body::from(body))
            .unwrap()
    }

    async fn post(&self, at: usize, media_type: &str, body: Vec<u8>) -> Reply {
        let request = report_request(&self.studies[at].id, media_type, body);
        send(self.routes(), request).await
    }

    pub(super) async fn document(&self, study: &str) -> StudyDocument {
        let path = format!("/v1/studies/{study}");
        let (status, body) = self.operator("GET", &path, None).await;
        assert!(status == 200, "a study gets {status}");
        serde_json::from_slice(&body).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // After a violation the writer may be held.
        self.faults.release();
        self.faults.set_next(None);
    }
}

pub(super) fn report_request(study: &str, media_type: &str, body: Vec<u8>) -> Request<Body> {
    Request::post(format!("/v1/studies/{study}/reports"))
        .header(header::CONTENT_TYPE, media_type)
        .body(Body::from(body))
        .unwrap()
}

/// Owned, so that it can be spawned.
pub(super) async fn send(routes: Routes, request: Request<Body>) -> Reply {
    let response = routes.respond(request, None).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, body.to_vec())
}
