//! Preparations over HTTP: creation, answers, both rounds, pages, and what is refused. (What an engine does with them:
//! `store/src/testing/conformance.rs`; what they find: `estimation/src/preparation/tests.rs`.)

use axum::http::StatusCode;
use eigenveil_shared::{
    ErrorCode as E,
    api::{
        BatchResponse, PreparationAnswers, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE,
        StudyDocument,
    },
    codec::{self, ReportFormat},
    mechanism::MechanismName,
    parameters::{Parameters, StudyUnit},
    report::Report,
    study::from_hex,
};
use serde_json::{Value, json};

use crate::common::{Harness, Reply, at, new_id, report};

/// A preparation of a number column and a yes-no column, with these keys changed.
fn preparation(changes: &Value) -> Value {
    let mut design = json!({
        "name": "preparation", "epsilon": 1.0, "preparation": {"columns": [
            {"name": "size", "kind": {"number": {"lo": 0.0, "hi": 8.0}}},
            {"name": "smokes", "kind": "yes-no", "may_be_missing": true},
        ]},
    });
    for (key, value) in changes.as_object().unwrap() {
        design[key] = value.clone();
    }
    design
}

async fn created(server: &Harness, changes: Value) -> StudyDocument {
    let response = server.tell("/v1/studies", preparation(&changes)).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    response.json()
}

fn answer(study: &StudyDocument, payload: &[u8]) -> Vec<u8> {
    codec::encode_report(&Report {
        id: new_id(),
        fingerprint: study.params.fingerprint(),
        payload: payload.to_vec(),
    })
}

async fn send(server: &Harness, study: &StudyDocument, body: Vec<u8>) -> Reply {
    server
        .post(&at(study, "/reports"), REPORT_MEDIA_TYPE, body)
        .await
}

async fn answers(server: &Harness, study: &StudyDocument) -> PreparationAnswers {
    server.read(&at(study, "/answers")).await.json()
}

#[tokio::test]
async fn answers_are_counted_and_read_by_whoever_may() {
    let server = Harness::new();
    let study = created(&server, json!({})).await;
    let bytes = from_hex(&study.canonical_params).unwrap();
    assert_eq!(Parameters::from_canonical(&bytes).unwrap(), study.params);
    assert_eq!(study.params.unit(), StudyUnit::Row);
    assert_eq!(study.privacy.mechanism, MechanismName::RANDOMISED_RESPONSE);
    assert_eq!((study.report_bytes, study.privacy.payload_bytes), (62, 4));
    let listed: Value = server.get("/v1/studies").await.json();
    assert_eq!(listed["studies"][0]["mechanism"], "randomised-response");
    let first = answer(&study, &[0, 0, 3, 1]);
    for status in [StatusCode::CREATED, StatusCode::OK] {
        assert_eq!(send(&server, &study, first.clone()).await.status, status);
    }
    // A batch whose second answer is none: 12 combs of 3 answers, then 1 of 3.
    let format = ReportFormat::of_preparation(study.params.preparation().unwrap());
    let pairs = [[1, 0, 0, 2], [1, 0, 1, 0], [1, 0, 0, 2]].map(|bytes| (new_id(), bytes));
    let pairs = pairs.iter().map(|(id, bytes)| (*id, &bytes[..]));
    let batch = codec::encode_batch(&format, pairs).unwrap();
    let path = at(&study, "/reports");
    let receipt: BatchResponse = server
        .post(&path, REPORT_BATCH_MEDIA_TYPE, batch)
        .await
        .json();
    assert_eq!((receipt.accepted, receipt.refused.len()), (2, 1));
    assert_eq!(receipt.refused[0].code, E::PayloadOutOfRange);
    let document = answers(&server, &study).await;
    assert_eq!(
        (document.rounds.len(), &document.rounds[0].study),
        (1, &study.id)
    );
    let mut counts = vec![0; 39];
    (counts[10], counts[38]) = (1, 2);
    assert_eq!(document.rounds[0].counts, counts);
    assert_eq!(server.accepted(&study).await, 3);
    // For readers only; nothing else is estimated of it.
    let anybody = server.get(&at(&study, "/answers")).await;
    anybody.is_problem(401, E::Unauthorized);
    let estimate = server.tell(&at(&study, "/estimates"), json!({})).await;
    estimate.is_problem(422, E::InvalidRequest);
    let rows = server.study(3).await;
    server
        .read(&at(&rows, "/answers"))
        .await
        .is_problem(422, E::InvalidRequest);
}

/// A second round is read together with the first one, which it names, and which must be here with answers.
#[tokio::test]
async fn a_second_round_has_the_answers_of_both() {
    let server = Harness::new();
    let first = created(&server, json!({})).await;
    let refused = async |changes: Value, words: &str| {
        let response = server.tell("/v1/studies", preparation(&changes)).await;
        let problem = response.is_problem(422, E::InvalidRequest);
        assert!(problem.detail.contains(words), "{problem:?}");
    };
    let second = |after: &str| {
        json!({"name": "second", "preparation": {"after": after, "columns": [
            {"name": "size", "kind": {"number": {"lo": 0.0, "hi": 8.0, "within": [2.0, 6.0]}}},
            {"name": "smokes", "kind": "yes-no", "may_be_missing": true},
        ]}})
    };
    refused(second(&first.fingerprint), "nobody has answered").await;
    send(&server, &first, answer(&first, &[0, 0, 0, 0])).await;
    refused(second(&"ab".repeat(32)), "not on this server").await;
    let mut other = second(&first.fingerprint);
    other["epsilon"] = json!(2.0);
    refused(other, "another epsilon").await;
    let mut other = second(&first.fingerprint);
    other["preparation"]["columns"][1]["name"] = json!("drinks");
    refused(other, "other columns").await;
    let study = created(&server, second(&first.fingerprint)).await;
    send(&server, &study, answer(&study, &[0, 0, 5, 2])).await;
    let document = answers(&server, &study).await;
    let ids: Vec<&str> = document
        .rounds
        .iter()
        .map(|round| &round.study[..])
        .collect();
    assert_eq!(ids, [&first.id[..], &study.id]);
    assert_eq!(
        (
            document.rounds[0].counts.len(),
            document.rounds[1].counts.len()
        ),
        (39, 21)
    );
    assert_eq!(
        (document.rounds[0].counts[0], document.rounds[1].counts[17]),
        (1, 1)
    );
    // Of a second round there are six.
    send(&server, &study, answer(&study, &[0, 0, 6, 0]))
        .await
        .is_problem(422, E::PayloadOutOfRange);
    refused(second(&study.fingerprint), "third round").await;
    let rows = server.study(3).await;
    refused(second(&rows.fingerprint), "is no preparation").await;
    // Of two copies of a first round neither is the one.
    created(&server, json!({"name": "again"})).await;
    let why = server
        .read(&at(&study, "/answers"))
        .await
        .is_problem(422, E::InvalidRequest);
    assert!(why.detail.contains("2 studies"), "{why:?}");
    refused(second(&first.fingerprint), "2 studies").await;
}

/// A report of one kind of study reaches no other.
#[tokio::test]
async fn reports_of_other_studies_are_refused() {
    let server = Harness::new();
    let study = created(&server, json!({})).await;
    let rows = server.study(3).await;
    let of_rows = send(&server, &study, report(&rows, new_id(), 1.0)).await;
    assert!(of_rows.status.is_client_error(), "{of_rows:?}");
    let of_preparation = send(&server, &rows, answer(&study, &[0; 4])).await;
    assert!(
        of_preparation.status.is_client_error(),
        "{of_preparation:?}"
    );
    assert_eq!(
        (server.accepted(&study).await, server.accepted(&rows).await),
        (0, 0)
    );
}

#[tokio::test]
async fn designs_that_cannot_be_asked_are_refused() {
    let server = Harness::new();
    let column = |kind: Value| json!({"preparation": {"columns": [{"name": "x", "kind": kind}]}});
    let number = |lo: f64, hi: f64| column(json!({"number": {"lo": lo, "hi": hi}}));
    let many: Vec<String> = (0..11).map(|at| at.to_string()).collect();
    for (changes, code, words) in [
        (number(3.0, 1.0), E::InvalidRequest, "must be smaller"),
        (number(0.0, 1e300), E::InvalidRequest, "another unit"),
        (
            column(json!({"categories": many})),
            E::InvalidRequest,
            "at most 10",
        ),
        (
            json!({"preparation": {"columns": []}}),
            E::InvalidDimension,
            "1 to 65535",
        ),
        (json!({"epsilon": 17.0}), E::InvalidBudget, "at most 16"),
        (
            json!({"dimension": 2}),
            E::InvalidRequest,
            "`dimension` has no effect",
        ),
        (
            json!({"mechanism": "double-cap"}),
            E::InvalidRequest,
            "`mechanism` has no effect",
        ),
        (
            json!({"delta": 1e-6}),
            E::InvalidRequest,
            "`delta` has no effect",
        ),
        (
            json!({"sites": {"max_rows": 5}}),
            E::InvalidRequest,
            "`sites` has no effect",
        ),
    ] {
        let response = server.tell("/v1/studies", preparation(&changes)).await;
        let problem = response.is_problem(422, code);
        assert!(problem.detail.contains(words), "{problem:?}");
    }
    let wide = (0..10_000).map(|at| json!({"name": format!("x{at}"), "kind": "yes-no"}));
    let wide = json!({"preparation": {"columns": wide.collect::<Vec<_>>()}});
    let study = created(&server, wide).await;
    send(&server, &study, answer(&study, &[0x0f, 0x27, 0, 1])).await;
    assert_eq!(answers(&server, &study).await.rounds[0].counts[19_999], 1);
}

#[tokio::test]
async fn pages_show_questions_to_everybody_and_what_was_found_to_readers() {
    let server = Harness::new();
    let study = created(&server, json!({})).await;
    for _ in 0..20 {
        send(&server, &study, answer(&study, &[0, 0, 6, 1])).await;
    }
    let page = async |path: String| {
        let reply = server.get(&path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        String::from_utf8(reply.body).unwrap()
    };
    let asked = page(format!("/studies/{}/participate", study.id)).await;
    for words in [
        "number 0 8",
        "yes-no may-be-missing",
        "draws one of these columns",
        "62 bytes",
    ] {
        assert!(asked.contains(words), "{words}");
    }
    let second = json!({"name": "second", "preparation": {"after": study.fingerprint, "columns": [
        {"name": "size", "kind": {"number": {"lo": 0.0, "hi": 8.0, "within": [2.0, 6.0]}}},
        {"name": "smokes", "kind": "yes-no", "may_be_missing": true},
    ]}});
    let second = created(&server, second).await;
    let asked = page(format!("/studies/{}/participate", second.id)).await;
    assert!(asked.contains("number 0 8 within 2 6"), "{asked}");
    let public = page(format!("/studies/{}", study.id)).await;
    assert!(
        public.contains("for the operator and for analysts"),
        "{public}"
    );
    assert!(!public.contains("id=\"prepared\""));
}
