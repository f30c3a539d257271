//! The analyst's client: routes, token, what is sent again and what is not, waiting for an estimate.

use std::time::{Duration, Instant};

use eigenveil_client::http::{BearerToken, EstimateFormat, OperatorClient};
use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    api::{
        BACKUP_MEDIA_TYPE, CreateStudyRequest, EstimateJob, EstimateRequest, EstimateState,
        Problem, StudyList,
    },
};
use serde_json::json;

use crate::{
    common::{STUDY, assert_says, params},
    server::{Reply, Request, Server, document, http},
};

fn client(server: &Server) -> OperatorClient {
    let token = BearerToken::new("s3cret").unwrap();
    OperatorClient::with_settings(&server.address, &token, &http()).unwrap()
}

fn create() -> CreateStudyRequest {
    let design = json!({"name": "A study", "dimension": 5, "epsilon": 1.0, "draft": true});
    serde_json::from_value(design).unwrap()
}

fn estimate(state: EstimateState, problem: Option<Problem>) -> EstimateJob {
    EstimateJob {
        number: 7,
        study: STUDY.to_owned(),
        state,
        request: EstimateRequest::default(),
        estimate: None,
        problem,
        created_at_ms: 0,
    }
}

/// Some of the server's routes, as the contract has them; its own tests call the others by this client.
fn routes(request: &Request) -> Reply {
    assert_eq!(request.headers["authorization"], "Bearer s3cret");
    let prefix = format!("/v1/studies/{STUDY}");
    let line = request.line.strip_suffix(" HTTP/1.1").unwrap();
    let study = document(&params(1.0));
    match line.replace(&prefix, "S").as_str() {
        "POST /v1/studies" => {
            assert_eq!(request.headers["content-type"], "application/json");
            let asked: CreateStudyRequest = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(asked, create());
            Reply::json(201, &study)
        }
        "GET /v1/backup" => Reply::of(200, BACKUP_MEDIA_TYPE, b"SQLite"),
        "GET /v1/studies" | "GET /v1/studies?after=7" => {
            let next = (!line.contains("after")).then(|| "7".into());
            let studies = vec![(&study).into()];
            Reply::json(200, &StudyList { studies, next })
        }
        "GET S/estimates/7" => Reply::json(200, &estimate(EstimateState::Done, None)),
        "GET S/estimates/7?format=csv" => Reply::of(200, "text/csv", b"0.5,0.5\n"),
        "GET S/estimates/7?format=npy" => {
            Reply::of(200, "application/octet-stream", &[0x93, 0, 255])
        }
        "GET S/estimates/7?format=json" => Reply::json(200, &"whole"),
        "DELETE S/estimates/7" => Reply::json(200, &estimate(EstimateState::Cancelled, None)),
        _ => Reply::problem(404, ErrorCode::NotFound, "no such route"),
    }
}

#[tokio::test]
async fn a_file_that_does_not_come_or_cannot_be_written_is_told() {
    let server = Server::start(routes).await;
    let client = client(&server);
    // A refusal is told as such and nothing is written.
    let mut file = Vec::new();
    let error = client.export("elsewhere", &mut file).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotFound));
    assert!(file.is_empty());
    // A full disk here is no fault of the server.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = client.backup(&mut Full).await.unwrap_err();
    assert_says(&error, &["cannot be written"]);
    assert_eq!(error.status(), None);
}

#[tokio::test]
async fn calls_have_their_routes() {
    let server = Server::start(routes).await;
    let client = client(&server);
    assert_eq!(client.list().await.unwrap().len(), 2);
    let done = client.fetch_estimate(STUDY, 7).await.unwrap();
    assert_eq!(done.state, EstimateState::Done);
    let cancelled = client.cancel_estimate(STUDY, 7).await.unwrap();
    assert_eq!(cancelled.state, EstimateState::Cancelled);
    for (format, bytes) in [
        (EstimateFormat::Csv, &b"0.5,0.5\n"[..]),
        (EstimateFormat::Npy, &[0x93, 0, 255]),
        (EstimateFormat::Json, b"\"whole\""),
    ] {
        let file = client.fetch_estimate_file(STUDY, 7, format).await;
        assert_eq!(file.unwrap(), bytes);
    }
    let debug_text = format!("{client:?}");
    assert_says(&debug_text, &[&server.address]);
    assert!(!debug_text.contains("s3cret"));
}

#[tokio::test]
async fn a_study_is_never_created_twice_by_a_retry() {
    // The answer is lost: whether it was created is not known.
    let server = Server::start(|_| Reply::Drop).await;
    let error = client(&server).create_study(&create()).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(server.requests().len(), 1);
    let server = Server::start(|_| Reply::problem(500, ErrorCode::StoreUnavailable, "oops")).await;
    let error = client(&server).create_study(&create()).await.unwrap_err();
    assert_eq!(error.status(), Some(500));
    assert_eq!(server.requests().len(), 1);
    // Asking for something twice does no harm.
    assert!(client(&server).list().await.is_err());
    assert_eq!(server.requests().len(), 1 + 6);

    // Refused because it is busy: it was not.
    let mut calls = 0;
    let server = Server::start(move |request| {
        calls += 1;
        match calls {
            1 => Reply::problem(503, ErrorCode::ShuttingDown, "restarting"),
            2 => Reply::problem(429, ErrorCode::TooManyRequests, "slow down"),
            _ => routes(request),
        }
    })
    .await;
    client(&server).create_study(&create()).await.unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn errors_keep_code_status_and_detail() {
    let unknown =
        br#"{"type":"urn:x","title":"t","status":418,"code":"brand-new","detail":"Tea.\u001b[2J"}"#;
    for (reply, code, text, status, says) in [
        (
            Reply::problem(401, ErrorCode::Unauthorized, "the token is not known"),
            Some(ErrorCode::Unauthorized),
            Some("unauthorized"),
            401,
            "the token is not known [unauthorized]",
        ),
        (
            Reply::problem(422, ErrorCode::InvalidBudget, "epsilon is -1"),
            Some(ErrorCode::InvalidBudget),
            Some("invalid-budget"),
            422,
            "epsilon is -1 [invalid-budget]",
        ),
        (
            // A newer server's code.
            Reply::of(418, "application/problem+json; charset=utf-8", unknown),
            None,
            Some("brand-new"),
            418,
            "Tea. [2J [brand-new]",
        ),
        (
            Reply::of(403, "application/problem+json", b"{"),
            None,
            None,
            403,
            "instead of a problem document",
        ),
    ] {
        let mut reply = Some(reply);
        let server = Server::start(move |_| reply.take().unwrap()).await;
        let error = client(&server).create_study(&create()).await.unwrap_err();
        assert_eq!(
            (error.code(), error.code_text(), error.status()),
            (code, text, Some(status))
        );
        assert_says(&error, &[says]);
        assert!(!error.is_retryable());
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}

/// A server on which the estimate runs for some polls and ends like this.
async fn ending(polls: usize, end: EstimateJob) -> Server {
    let mut left = polls;
    Server::start(move |_| {
        if left == 0 {
            return Reply::json(200, &end);
        }
        left -= 1;
        Reply::json(200, &estimate(EstimateState::Running, None))
    })
    .await
}

#[tokio::test]
async fn waiting_ends_with_the_estimate() {
    let patience = Duration::from_secs(300);
    let waited = async |server: &Server| {
        let client = client(server);
        client.wait_for_estimate(STUDY, 7, patience).await
    };
    let server = ending(3, estimate(EstimateState::Done, None)).await;
    let done = waited(&server).await.unwrap();
    assert_eq!(done.state, EstimateState::Done);
    let polls = server.requests();
    assert_eq!(polls.len(), 4);
    // Less and less often: 50, 75, 112 ms.
    assert!(polls[3].at - polls[2].at > Duration::from_millis(110));

    let problem = Problem::new(&SharedError::estimate_failed("there are no reports"));
    let server = ending(1, estimate(EstimateState::Failed, Some(problem))).await;
    let error = waited(&server).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::EstimateFailed));
    assert_says(error, &["there are no reports"]);

    let server = ending(0, estimate(EstimateState::Cancelled, None)).await;
    let error = waited(&server).await.unwrap_err();
    assert_says(&error, &["cancelled"]);
    assert!(!error.is_timeout());
}

#[tokio::test]
async fn waiting_ends_when_the_time_is_up() {
    let server = ending(usize::MAX, estimate(EstimateState::Done, None)).await;
    let started = Instant::now();
    let error = client(&server)
        .wait_for_estimate(STUDY, 7, Duration::from_millis(300))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(300));
    // At 0, 50, 125, 237 and 300 ms; a busy machine may ask less often.
    let polls = server.requests().len();
    assert!((1..=5).contains(&polls), "{polls}");
}
