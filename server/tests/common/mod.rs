//! A server in a temporary directory, driven as a tower service.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file compiles this and uses its own part"
)]

pub mod waiting;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode, header},
};
use eigenveil_estimation::Cancel;
use eigenveil_server::{AppState, Environment, ServerConfig, router};
use eigenveil_shared::{
    ErrorCode,
    api::{
        BatchResponse, EstimateJob, EstimateState, PROBLEM_MEDIA_TYPE, Problem,
        REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, ReportOutcome, ReportResponse,
        STUDY_EXPORT_MEDIA_TYPE, StudyDocument,
    },
    codec::{self, ReportFormat},
    enrolment::{Admission, Enrolment, Frame, ParticipantToken},
    packed::packed_len,
    report::{Report, ReportId},
    study::StudyParams,
};
use eigenveil_store::{
    BucketSums, NewReport, Store, Study, StudyId, database_path, testing::fixtures::SetClock,
};
use http_body_util::BodyExt;
use rusqlite::{Connection, types::FromSql};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub fn environment() -> Environment {
    Environment {
        clock: SetClock::new(),
        ..Environment::system()
    }
}

pub struct Harness {
    pub directory: TempDir,
    pub config: ServerConfig,
    pub app: AppState,
    pub routes: Router,
    pub token: String,
}

/// A report with its participant token.
pub fn with_token(token: &ParticipantToken, report: Vec<u8>) -> Vec<u8> {
    let token = Admission::Token(token.clone());
    let frame = Frame::new(Enrolment::Token, false);
    frame.write(&[&token], report).unwrap()
}

/// A batch with the participant tokens of its reports.
pub fn with_tokens(tokens: &[&ParticipantToken], batch: Vec<u8>) -> Vec<u8> {
    let tokens = tokens
        .iter()
        .map(|token| Admission::Token((*token).clone()));
    let tokens: Vec<_> = tokens.collect();
    let frame = Frame::new(Enrolment::Token, true);
    frame
        .write(&tokens.iter().collect::<Vec<_>>(), batch)
        .unwrap()
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Asserts status, media type and code of a problem, and that they agree.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: ErrorCode) -> Problem {
        let problem: Problem = self.json();
        assert_eq!(
            (self.status.as_u16(), problem.code),
            (status, code),
            "{problem:?}"
        );
        assert_eq!(problem.status, status);
        assert_eq!(self.headers[header::CONTENT_TYPE], PROBLEM_MEDIA_TYPE);
        assert!(problem.problem_type.ends_with(code.as_str()));
        assert!(!problem.detail.is_empty());
        problem
    }
}

impl Harness {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let (directory, mut config) = data();
        change(&mut config);
        Self::start(directory, config)
    }

    pub fn start(directory: TempDir, config: ServerConfig) -> Self {
        Self::open(directory, config, environment())
    }

    pub fn at(directory: TempDir, config: ServerConfig, clock: &Arc<SetClock>) -> Self {
        let environment = Environment {
            clock: Arc::<SetClock>::clone(clock),
            ..environment()
        };
        Self::open(directory, config, environment)
    }

    /// With the token in its file; a backup has none.
    pub fn open(directory: TempDir, config: ServerConfig, environment: Environment) -> Self {
        let app = AppState::open(config.clone(), environment).unwrap();
        let token = std::fs::read_to_string(app.store().token_path()).unwrap_or_default();
        Self {
            directory,
            token: token.trim().to_owned(),
            config,
            routes: router(app.clone()),
            app,
        }
    }

    /// A server for a restored backup, with this operator token.
    pub fn over(directory: TempDir, token: &str) -> Self {
        let config = ServerConfig::new(directory.path());
        Self {
            token: token.to_owned(),
            ..Self::start(directory, config)
        }
    }

    /// Shuts down gracefully and starts again on the same directory.
    pub fn restart(self) -> Self {
        let (directory, config) = self.stop();
        Self::start(directory, config)
    }

    /// Shuts down gracefully; returns what is left.
    pub fn stop(self) -> (TempDir, ServerConfig) {
        let Self {
            directory,
            config,
            app,
            routes,
            ..
        } = self;
        app.close();
        drop((routes, app));
        (directory, config)
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    /// A request with the operator token.
    pub async fn operator(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |value| Body::from(value.to_string()));
        self.send(request.body(body).unwrap()).await
    }

    /// GET as operator.
    pub async fn read(&self, path: &str) -> Reply {
        self.operator("GET", path, None).await
    }

    /// POST as operator, without a body.
    pub async fn order(&self, path: &str) -> Reply {
        self.operator("POST", path, None).await
    }

    /// POST as operator.
    pub async fn tell(&self, path: &str, body: Value) -> Reply {
        self.operator("POST", path, Some(body)).await
    }

    /// DELETE as operator.
    pub async fn remove(&self, path: &str) -> Reply {
        self.operator("DELETE", path, None).await
    }

    /// A separate connection to the database.
    pub fn database(&self) -> Connection {
        Connection::open(database_path(&self.config.data_dir)).unwrap()
    }

    /// Queries the database, one value a row.
    pub fn column<T: FromSql>(&self, query: &str) -> Vec<T> {
        let database = self.database();
        let mut statement = database.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Requests an estimate; returns its location.
    pub async fn ask_estimate(&self, study: &StudyDocument, request: Value) -> String {
        let path = at(study, "/estimates");
        let response = self.tell(&path, request).await;
        assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
        let location = response.headers[header::LOCATION].to_str().unwrap();
        let document: EstimateJob = response.json();
        assert_eq!(location, format!("{path}/{}", document.number));
        assert_eq!(document.state, EstimateState::Running);
        location.to_owned()
    }

    /// The estimate at this location, once it has ended.
    pub async fn wait_for_estimate(&self, location: &str) -> EstimateJob {
        let mut document: Option<EstimateJob> = None;
        waiting::until(location, async || {
            let job = document.insert(self.read(location).await.json());
            job.state != EstimateState::Running
        })
        .await;
        document.unwrap()
    }

    /// Requests an estimate and waits for its end.
    pub async fn estimated(&self, study: &StudyDocument, request: Value) -> EstimateJob {
        let location = self.ask_estimate(study, request).await;
        self.wait_for_estimate(&location).await
    }

    pub async fn state_of(&self, estimate: &str) -> EstimateState {
        let document: EstimateJob = self.read(estimate).await.json();
        document.state
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    pub async fn study(&self, dimension: usize) -> StudyDocument {
        self.study_with(json!({ "dimension": dimension })).await
    }

    /// A study with these keys changed.
    pub async fn study_with(&self, changes: Value) -> StudyDocument {
        let response = self.tell("/v1/studies", design(&changes)).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
        response.json()
    }

    pub async fn post_report(&self, study: &StudyDocument, body: impl Into<Body>) -> Reply {
        self.post(&at(study, "/reports"), REPORT_MEDIA_TYPE, body)
            .await
    }

    pub async fn post_batch(&self, study: &StudyDocument, body: impl Into<Body>) -> Reply {
        let path = at(study, "/reports");
        self.post(&path, REPORT_BATCH_MEDIA_TYPE, body).await
    }

    pub async fn post(&self, path: &str, media_type: &str, body: impl Into<Body>) -> Reply {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, media_type)
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    /// Imports an export, into the exported study or another one.
    pub async fn import(&self, into: Option<&str>, body: impl Into<Body>) -> Reply {
        let path = into.map_or("/v1/imports".to_owned(), |id| {
            format!("/v1/studies/{id}/import")
        });
        let request = Request::post(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, STUDY_EXPORT_MEDIA_TYPE)
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    /// Sends a new report, which is counted.
    pub async fn count_one(&self, study: &StudyDocument) {
        self.counts(study, report(study, new_id(), 1.0)).await;
    }

    /// Sends a report, which is counted.
    pub async fn counts(&self, study: &StudyDocument, body: impl Into<Body>) {
        let response = self.post_report(study, body).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
        let ReportResponse { outcome } = response.json();
        assert_eq!(outcome, ReportOutcome::Accepted);
    }

    /// Sends a batch; returns its response.
    pub async fn receipt(&self, study: &StudyDocument, body: impl Into<Body>) -> BatchResponse {
        let response = self.post_batch(study, body).await;
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
        response.json()
    }

    /// A study whose reports are seeds, with these keys changed.
    pub async fn seed_study(&self, mut changes: Value) -> StudyDocument {
        changes["mechanism"] = json!("double-cap");
        changes["delta"] = Value::Null;
        self.study_with(changes).await
    }

    pub async fn close(&self, study: &StudyDocument) {
        let path = at(study, "/close");
        let response = self.order(&path).await;
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
    }

    pub async fn export(&self, study: &StudyDocument) -> Vec<u8> {
        let path = at(study, "/export");
        let response = self.read(&path).await;
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
        assert_eq!(
            response.headers[header::CONTENT_TYPE],
            STUDY_EXPORT_MEDIA_TYPE
        );
        response.body
    }

    pub fn stored(&self, study: &StudyDocument) -> Arc<Study> {
        study_in(self.app.store(), study)
    }

    pub fn bucket_sums(&self, study: &StudyDocument) -> BucketSums {
        let store = self.app.store();
        store
            .bucket_sums(&self.stored(study), Cancel::NEVER)
            .unwrap()
    }

    /// Reports accepted, as shown to the public, after checking it against the disk.
    pub async fn accepted(&self, study: &StudyDocument) -> u64 {
        let document: StudyDocument = self.get(&at(study, "")).await.json();
        let stored = match study.params.preparation() {
            // Each report has one answer.
            Ok(_) => {
                let store = self.app.store();
                store
                    .answer_counts(&self.stored(study))
                    .unwrap()
                    .iter()
                    .sum()
            }
            Err(_) => self.bucket_sums(study).n,
        };
        assert_eq!(stored, document.reports_accepted);
        document.reports_accepted
    }

    /// The sum over all buckets.
    pub fn total(&self, study: &StudyDocument) -> Vec<f64> {
        let mut total = vec![0.0; packed_len(study.params.sum_dimension())];
        for (_, sums) in &self.bucket_sums(study).buckets {
            for (t, x) in total.iter_mut().zip(sums.sum().as_slice()) {
                *t += x;
            }
        }
        total
    }
}

/// A path of this study: `at(&study, "/reports")`.
pub fn at(study: &StudyDocument, rest: &str) -> String {
    format!("/v1/studies/{}{rest}", study.id)
}

/// The problem with which a request is rejected.
pub async fn refused(
    response: impl Future<Output = Reply>,
    status: u16,
    code: ErrorCode,
) -> Problem {
    response.await.is_problem(status, code)
}

/// A valid design with these keys changed; `null` removes a key.
pub fn design(changes: &Value) -> Value {
    let mut design = json!({
        "name": "test", "dimension": 3, "mechanism": "symmetric-gaussian",
        "epsilon": 1.0, "delta": 1e-6,
    });
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            design.as_object_mut().unwrap().remove(key);
        } else {
            design[key] = value.clone();
        }
    }
    design
}

/// The parameters of a study of single rows.
pub fn params(study: &StudyDocument) -> &StudyParams {
    study.params.rows().unwrap()
}

pub fn format_of(study: &StudyDocument) -> ReportFormat {
    ReportFormat::new(params(study))
}

/// A fresh identifier.
pub fn new_id() -> ReportId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut random = [0; 16];
    random[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    ReportId::from_parts(1_700_000_000_000, random)
}

/// A payload whose numbers are all `value`.
pub fn payload(study: &StudyDocument, value: f32) -> Vec<u8> {
    value
        .to_le_bytes()
        .repeat(format_of(study).payload_len() / 4)
}

pub fn report(study: &StudyDocument, id: ReportId, value: f32) -> Vec<u8> {
    report_with(study, id, payload(study, value))
}

pub fn report_with(study: &StudyDocument, id: ReportId, payload: Vec<u8>) -> Vec<u8> {
    let fingerprint = format_of(study).fingerprint();
    codec::encode_report(&Report {
        id,
        fingerprint,
        payload,
    })
}

pub fn batch(study: &StudyDocument, reports: &[(ReportId, f32)]) -> Vec<u8> {
    let with_payload = |(id, value): &(_, _)| (*id, payload(study, *value));
    let reports: Vec<_> = reports.iter().map(with_payload).collect();
    batch_with(study, &reports)
}

pub fn batch_with(study: &StudyDocument, reports: &[(ReportId, impl AsRef<[u8]>)]) -> Vec<u8> {
    let pairs = reports.iter().map(|(id, payload)| (*id, payload.as_ref()));
    codec::encode_batch(&format_of(study), pairs).unwrap()
}

/// The reports of a batch, as the store takes them.
pub fn decoded(study: &Arc<Study>, batch: Vec<u8>) -> Vec<NewReport> {
    let reports = NewReport::decode_batch(&batch.into(), study).unwrap();
    reports.into_iter().map(Result::unwrap).collect()
}

pub fn study_in(store: &Store, study: &StudyDocument) -> Arc<Study> {
    store.study(StudyId::parse(&study.id).unwrap()).unwrap()
}

/// A directory for a server's data.
pub fn data() -> (TempDir, ServerConfig) {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path().join("data"));
    (directory, config)
}
