//! A study as a device fetches it: what is believed of it, and what it may ask for.

use std::time::Duration;

use eigenveil_client::{
    Ledger, Outbox, RowLedger,
    http::{HttpSettings, RetryPolicy, StudyClient},
};
use eigenveil_shared::{
    ErrorCode,
    api::{StudyDocument, StudyState},
    mechanism::MechanismKind,
    preprocess::Row,
    study::to_hex,
};

use crate::{
    common::{self, Folder, STUDY, assert_says, borrowed, params, params_of, prepare},
    server::{Reply, Server, closed_address, document, http, study_server},
    upload::{NEVER, ms},
};

fn client(address: &str) -> StudyClient {
    StudyClient::with_settings(address, &http()).unwrap()
}

#[tokio::test]
async fn a_study_is_checked_before_it_is_believed() {
    let honest = params_of(MechanismKind::IsotropicGaussian, 1.0);
    let fetch = |document: StudyDocument| async move {
        let server = Server::start(move |_| Reply::json(200, &document)).await;
        client(&server.address).fetch_study(STUDY).await
    };
    let study = fetch(document(&honest)).await.unwrap();
    assert_eq!(study.params(), &honest);
    assert_eq!(study.fingerprint(), honest.fingerprint());
    assert_eq!(study.study_ref().study(), STUDY);

    // What only describes the parameters is worked out again.
    let mut embellished = document(&honest);
    embellished.params = params(2.0);
    embellished.privacy.true_delta = 0.0;
    embellished.privacy.sentence = "Perfectly safe.".to_owned();
    let study = fetch(embellished).await.unwrap();
    assert_eq!(study.document().params, honest);
    assert_eq!(study.document().privacy, document(&honest).privacy);

    let mut canonical = honest.canonical_bytes();
    let sigma = honest.mechanism().gaussian_noise().unwrap().sigma();
    let mut windows = canonical.windows(8);
    let at = windows.position(|own| own == sigma.to_le_bytes()).unwrap();
    canonical[at..at + 8].copy_from_slice(&(sigma * 0.9).to_le_bytes());
    let weaker = to_hex(&canonical);
    let other = params(2.0).fingerprint().to_string();
    type Change<'a> = &'a dyn Fn(&mut StudyDocument);
    let changes: [(&str, Change<'_>); 7] = [
        ("another study", &|d| d.id = "ffff".into()),
        ("not hexadecimal", &|d| d.canonical_params = "zz".into()),
        ("cannot be read", &|d| d.canonical_params.truncate(8)),
        ("do not take part", &|d| d.canonical_params = weaker.clone()),
        ("not that of its parameters", &|d| {
            d.fingerprint = other.clone();
        }),
        ("a batch", &|d| d.max_batch_reports = 0),
        ("3 bytes", &|d| d.report_bytes = 3),
    ];
    for (says, change) in changes {
        let mut changed = document(&honest);
        change(&mut changed);
        assert_says(fetch(changed).await.unwrap_err(), &[says]);
    }
}

/// A device that was told that a study is closed neither draws noise for it nor pays.
#[tokio::test]
async fn nothing_is_perturbed_or_charged_for_a_study_that_is_not_open() {
    let folder = Folder::new();
    let mut closed = document(&params(1.0));
    closed.state = StudyState::Closed;
    let server = Server::start(move |_| Reply::json(200, &closed)).await;
    let study = client(&server.address).fetch_study(STUDY).await.unwrap();
    let (reporter, row) = (study.reporter(), Row::new(vec![1.0; 5]));
    let mut device = Ledger::open(folder.at("device")).unwrap();
    let mut rows = RowLedger::open(folder.at("rows")).unwrap();
    let file = rows.row_file(1, b"1,1,1,1,1").unwrap();
    let mut outbox = Outbox::open(folder.at("outbox"), study.study_ref()).unwrap();
    // Perturbed while it was open, and killed before it was charged.
    let earlier = prepare(&common::reporter(), &[0]);
    outbox.enqueue_batch(borrowed(&earlier)).unwrap();
    let errors = [
        reporter.check_open().unwrap_err(),
        reporter.report(&row).unwrap_err(),
        device
            .participate(&reporter, study.study_ref(), &row)
            .unwrap_err(),
        rows.charge(&reporter, study.study_ref(), &file, &outbox)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), Some(ErrorCode::StudyNotOpen));
        assert_says(error, &["is closed", "another one"]);
    }
    assert_eq!(device.spent().unwrap().epsilon, 0.0);
    assert_eq!(rows.receipt().unwrap().spent.epsilon, 0.0);
}

#[tokio::test]
async fn a_pinned_study_must_be_the_one() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let client = client(&server.address);
    let pinned = params(1.0).fingerprint();
    assert!(client.fetch_study_pinned(STUDY, pinned).await.is_ok());
    let other = params(2.0).fingerprint();
    let error = client.fetch_study_pinned(STUDY, other).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    let error = client.fetch_study("0000").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NotFound));
    assert_eq!(error.status(), Some(404));
    // An identifier cannot reach another route.
    client.fetch_study("../studies/x?y#z").await.unwrap_err();
    let line = server.requests().last().unwrap().line.clone();
    assert_eq!(line, "GET /v1/studies/..%2Fstudies%2Fx%3Fy%23z HTTP/1.1");
}

#[tokio::test]
async fn answers_of_other_programs_give_a_clear_sentence() {
    type Answer = fn() -> Reply;
    let cases: [(Answer, bool, &str); 8] = [
        (
            // No length is announced: it ends with the connection.
            || {
                let mut bytes =
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
                bytes.resize(3_000, b' ');
                Reply::Raw(bytes)
            },
            false,
            "larger than 2000 bytes",
        ),
        (
            || Reply::Raw(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
            true,
            "no HTTP response from",
        ),
        (|| Reply::Drop, true, "no HTTP response from"),
        (
            || Reply::of(200, "text/html", b"<html>"),
            false,
            "with text/html instead of application/json",
        ),
        (
            || Reply::json(200, &serde_json::json!({"a": 1})),
            true,
            "JSON of an unexpected form",
        ),
        (
            || Reply::json(200, &"x".repeat(3_000)),
            false,
            "larger than 2000 bytes",
        ),
        (|| Reply::of(404, "text/plain", b"nope"), false, "404"),
        (
            || Reply::After(NEVER, Box::new(Reply::Drop)),
            true,
            "within 0.4 s",
        ),
    ];
    for (answer, retryable, says) in cases {
        let server = Server::start(move |_| answer()).await;
        let settings = HttpSettings {
            max_response_bytes: 2_000,
            // So little for the silent one alone: a busy machine may take longer over the others.
            request_timeout: if says.starts_with("within") {
                ms(400)
            } else {
                Duration::from_secs(60)
            },
            retry: RetryPolicy::never(),
            ..http()
        };
        let client = StudyClient::with_settings(&server.address, &settings).unwrap();
        let error = client.fetch_study(STUDY).await.unwrap_err();
        assert_says(&error, &[says, &server.address]);
        assert_eq!(error.is_retryable(), retryable, "{error}");
    }
    // A port where nobody listens.
    let closed = closed_address();
    let error = client(&closed).fetch_study(STUDY).await.unwrap_err();
    let cannot = format!("cannot connect to {closed}");
    assert_says(error, &[&cannot, "after 6 attempts"]);
}
