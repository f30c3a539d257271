//! What rows may be uploaded, and that a refusal leaves their ledger as it was; the table is for bindings, too.

use std::ops::ControlFlow;

use eigenveil_client::{
    Hint, Prepared, Response, Result, RowFile, RowLedger, Study, UploadRequest, check_weights,
};
use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken, preprocess::Row};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    common::{SERVER, STUDY, params, study_at},
    files::{Folder, rows},
    row_ledger::{ledger_of, pending, refuse, token, tokens_of},
};

const ELSEWHERE: &str = "https://study.example";

/// A case of `bindings/conformance/uploads.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// `pending`, or the code with which the reports of an earlier upload were refused.
    earlier: Option<String>,
    /// The study's document as it is now.
    study: Map<String, Value>,
    #[serde(default)]
    elsewhere: bool,
    /// How a person calls the study now, if not by its identifier.
    called: Option<String>,
    ask: Map<String, Value>,
    refused: Option<String>,
    sent: u64,
}

/// The first study of `bindings/conformance/studies.json` with these members of its document changed.
fn study_with(changes: &Map<String, Value>, server: &str) -> Study {
    let text = include_str!("../../../bindings/conformance/studies.json");
    let mut cases: Value = serde_json::from_str(text).unwrap();
    let mut document = cases[0]["document"].take();
    document.as_object_mut().unwrap().extend(changes.clone());
    let body = serde_json::to_vec(&document).unwrap();
    let response = Response {
        status: 200,
        headers: &[("content-type", "application/json")],
        body: &body,
        now: None,
    };
    let id = document["id"].as_str().unwrap();
    Study::read(&server.parse().unwrap(), id, &response, None).unwrap()
}

fn asked(mut ask: Map<String, Value>) -> UploadRequest {
    let tokens = ask.remove("tokens").map(|texts| {
        let texts: Vec<String> = serde_json::from_value(texts).unwrap();
        let tokens = texts.iter();
        let tokens = tokens.map(|text| ParticipantToken::parse(text).unwrap());
        tokens.collect::<Vec<_>>()
    });
    let request: UploadRequest = serde_json::from_value(Value::Object(ask)).unwrap();
    UploadRequest { tokens, ..request }
}

fn take_part(
    ledger: &mut RowLedger,
    study: &Study,
    file: &RowFile,
    asked: &UploadRequest,
) -> Result<Prepared> {
    let admitted = ledger.admit_upload(study, file, asked)?;
    let row = Row::new(vec![1.0; study.params().dimension()]);
    let report = |_, now| study.report(&row, now);
    ledger.take_part(admitted, report, |_| ControlFlow::Continue(()))
}

/// All that a refusal must leave as it was, in words.
fn state(ledger: &RowLedger, study: &Study) -> String {
    let (receipt, counts) = (ledger.receipt().unwrap(), ledger.counts(study).unwrap());
    let server = ledger.server_of(study.id()).unwrap();
    format!("{receipt:?} {counts:?} {server:?}")
}

#[test]
fn uploads_are_admitted_as_the_table_says() {
    let text = include_str!("../../../bindings/conformance/uploads.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let name = &case.name;
        let folder = Folder::new();
        let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
        let file = rows(&ledger, 3);
        let then = study_with(&Map::new(), SERVER);
        if let Some(end) = &case.earlier {
            take_part(&mut ledger, &then, &file, &UploadRequest::default()).unwrap();
            for row in (0..3).filter(|_| end != "pending") {
                refuse(&mut ledger, &then, row, end, "no");
            }
        }
        let study = study_with(
            &case.study,
            [SERVER, ELSEWHERE][usize::from(case.elsewhere)],
        );
        let study = match &case.called {
            Some(called) => study.called(called),
            None => study,
        };
        let before = state(&ledger, &then);
        let done = take_part(&mut ledger, &study, &file, &asked(case.ask));
        let refused = done.err().map(|error| error.name().to_owned());
        assert_eq!(refused, case.refused, "{name}");
        match refused {
            Some(_) => assert_eq!(state(&ledger, &then), before, "{name}"),
            None => assert_eq!(pending(&ledger, &study).len() as u64, case.sent, "{name}"),
        }
    }
}

#[test]
fn all_that_is_asked_for_is_stored_at_once() {
    let (_folder, _, mut ledger, one) = ledger_of(3);
    let file = rows(&ledger, 3);
    refuse(&mut ledger, &one, 0, "malformed-report", "no");
    let moved = study_at(ELSEWHERE, STUDY, params(1.0));
    let asked = UploadRequest {
        moved: true,
        resend_refused: true,
        epsilon_total: Some(9.0),
        ..UploadRequest::default()
    };
    let unsaid = take_part(&mut ledger, &moved, &file, &UploadRequest::default());
    let hint = Hint::Move(SERVER.to_owned());
    assert_eq!(unsaid.unwrap_err().hint(), Some(&hint));
    take_part(&mut ledger, &moved, &file, &asked).unwrap();
    let server = ledger.server_of(STUDY).unwrap();
    assert_eq!(server.as_ref(), Some(moved.server()));
    assert_eq!(ledger.limits().unwrap().epsilon_total(), 9.0);
    assert_eq!(pending(&ledger, &moved).len(), 3);
}

#[test]
fn rows_without_a_token_of_their_own_are_not_charged() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let file = rows(&ledger, 3);
    let changes = json!({"enrolment": "token"});
    let study = study_with(changes.as_object().unwrap(), SERVER);
    let with = |bytes: &[u8]| UploadRequest {
        tokens: Some(bytes.iter().map(|byte| token(*byte)).collect()),
        ..UploadRequest::default()
    };
    for (asked, hint) in [
        (UploadRequest::default(), Hint::Tokens(0, 3)),
        (with(&[]), Hint::Tokens(0, 3)),
        (with(&[1, 2]), Hint::Tokens(2, 3)),
        (with(&[1, 2, 1]), Hint::OtherTokens(0, 2)),
    ] {
        let error = take_part(&mut ledger, &study, &file, &asked).unwrap_err();
        assert_eq!(error.hint(), Some(&hint), "{error}");
        assert_eq!(ledger.receipt().unwrap().studies, []);
    }
    // Those beyond the last row are not looked at.
    take_part(&mut ledger, &study, &file, &with(&[1, 2, 3, 1])).unwrap();
    let kept = [1, 2, 3].map(|byte| Some(token(byte)));
    let kept: Vec<_> = (0..).zip(kept).collect();
    assert_eq!(tokens_of(&ledger, &study), kept);
    // They are needed once.
    take_part(&mut ledger, &study, &file, &UploadRequest::default()).unwrap();
    assert_eq!(tokens_of(&ledger, &study), kept);
}

#[test]
fn a_study_that_takes_no_reports_makes_no_ledger() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let changes = json!({"state": "closed"});
    let closed = study_with(changes.as_object().unwrap(), SERVER);
    let error = RowLedger::open_for(&path, &closed).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::StudyNotOpen));
    assert!(!path.exists());
    drop(RowLedger::open(&path).unwrap());
    // Reports may be in it that the study has counted.
    RowLedger::open_for(&path, &closed).unwrap();
}

#[test]
fn weights_of_another_scale_are_refused_and_single_ones_are_not() {
    let fine: [&[f64]; 4] = [&[], &[9.0, f64::NAN], &[9.0, 1.0, 0.5], &[0.0, 0.1, 1.0]];
    for weights in fine {
        check_weights(weights).unwrap();
    }
    for wrong in [[9.0, 1.1, 0.5], [0.0, -1.0, 1.0], [f64::NAN; 3]] {
        assert_eq!(check_weights(&wrong).unwrap_err().name(), "usage");
    }
}
