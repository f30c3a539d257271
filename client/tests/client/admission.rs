//! What rows may be uploaded, and that a refusal leaves their ledger as it was; the table is for bindings, too.

use std::{fs, ops::ControlFlow};

use eigenveil_client::{
    Error, Hint, Prepared, Response, Result, RowFile, RowLedger, Study, UploadRequest,
};
use eigenveil_shared::{
    Error as SharedError, ErrorCode, enrolment::ParticipantToken, preprocess::Row,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    common::{SERVER, STUDY, assert_says, params, study_at},
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

#[test]
fn uploads_are_admitted_as_the_table_says() {
    let text = include_str!("../../../bindings/conformance/uploads.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let name = &case.name;
        let folder = Folder::new();
        let path = folder.at("rows");
        let then = study_with(&Map::new(), SERVER);
        if let Some(end) = &case.earlier {
            let mut ledger = RowLedger::open(&path).unwrap();
            let file = rows(&ledger, 3);
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
        let before = folder.contents();
        let mut ledger = RowLedger::open_unchanged(&path).unwrap();
        let file = rows(&ledger, 3);
        let done = take_part(&mut ledger, &study, &file, &asked(case.ask));
        let refused = done.err().map(|error| error.name().to_owned());
        assert_eq!(refused, case.refused, "{name}");
        if refused.is_none() {
            assert_eq!(pending(&ledger, &study).len() as u64, case.sent, "{name}");
            continue;
        }
        drop(ledger);
        assert!(folder.contents() == before, "{name}");
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
        (
            with(&[1, 2, 1]),
            Hint::DuplicateTokens {
                first: 0,
                second: 2,
            },
        ),
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

/// Whatever is killed between two writes.
#[test]
fn a_row_is_charged_with_its_token() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open_unchanged(folder.at("rows")).unwrap();
    let file = rows(&ledger, 3_000);
    let changes = json!({"enrolment": "token"});
    let study = study_with(changes.as_object().unwrap(), SERVER);
    let tokens = (0..3_000).map(|row: u16| {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&row.to_le_bytes());
        ParticipantToken::from_bytes(bytes)
    });
    let asked = UploadRequest {
        tokens: Some(tokens.collect()),
        ..UploadRequest::default()
    };
    let row = Row::new(vec![1.0; study.params().dimension()]);
    let report = |number: u64, now| match number {
        2_999 => Err(Error::from(SharedError::new(
            ErrorCode::RandomnessUnavailable,
            "no",
        ))),
        _ => study.report(&row, now),
    };
    let admitted = ledger.admit_upload(&study, &file, &asked).unwrap();
    let failed = ledger.take_part(admitted, report, |_| ControlFlow::Continue(()));
    assert_says(failed.unwrap_err(), &["randomness-unavailable"]);
    let stored = tokens_of(&ledger, &study);
    assert!(!stored.is_empty());
    let tokens = (0..).zip(asked.tokens.into_iter().flatten().map(Some));
    assert_eq!(stored, tokens.take(stored.len()).collect::<Vec<_>>());
}

#[test]
fn what_is_admitted_says_which_refused_reports_are_sent_again() {
    let (_folder, _, mut ledger, one) = ledger_of(3);
    let file = rows(&ledger, 3);
    refuse(&mut ledger, &one, 0, "malformed-report", "no");
    refuse(&mut ledger, &one, 1, "token-spent", "no");
    let tokens = UploadRequest {
        tokens: Some([1, 2, 3].map(token).to_vec()),
        ..UploadRequest::default()
    };
    let again = UploadRequest {
        resend_refused: true,
        ..UploadRequest::default()
    };
    for (asked, refused) in [(UploadRequest::default(), 2), (tokens, 1), (again, 0)] {
        let counts = ledger.admit_upload(&one, &file, &asked).unwrap().counts;
        assert_eq!((counts.refused, counts.total()), (refused, 3));
        take_part(&mut ledger, &one, &file, &asked).unwrap();
        assert_eq!(ledger.counts(&one).unwrap(), counts);
    }
}

/// Opened for no more than a look, with whatever a kill or somebody's tidying left beside it.
#[test]
fn a_ledger_that_is_not_written_to_changes_no_file() {
    let (folder, path, ledger, one) = ledger_of(3);
    drop(ledger);
    let (log, lock) = (folder.at("rows-wal"), folder.at("rows.lock"));
    let changes: [&dyn Fn(); 3] = [&|| {}, &|| fs::write(&log, "").unwrap(), &|| {
        fs::remove_file(&lock).unwrap();
    }];
    for change in changes {
        change();
        let before = folder.contents();
        let ledger = RowLedger::open_unchanged(&path).unwrap();
        assert_eq!(ledger.counts(&one).unwrap().pending, 3);
        // Locked without the file of a lock, too.
        assert!(RowLedger::open_unchanged(&path).unwrap_err().is_locked());
        drop(ledger);
        assert!(folder.contents() == before);
    }
    let mut ledger = RowLedger::open_unchanged(&path).unwrap();
    let file = rows(&ledger, 3);
    take_part(&mut ledger, &one, &file, &UploadRequest::default()).unwrap();
    drop(ledger);
    assert!(lock.exists() && !log.exists());
}

/// Whatever is in the way of a new ledger, nothing is made.
#[cfg(unix)]
#[test]
fn a_ledger_that_cannot_be_made_is_refused_before_anything_is_made() {
    use std::os::unix::fs::symlink;
    type Case<'a> = (&'a str, &'a dyn Fn(&Folder), &'a str);
    let cases: [Case<'_>; 6] = [
        (
            "rows",
            &|folder| fs::write(folder.at("rows-wal"), "x").unwrap(),
            "moved away or lost",
        ),
        (
            "rows",
            &|folder| fs::write(folder.at("rows-journal"), "x").unwrap(),
            "moved away or lost",
        ),
        (
            "rows",
            &|folder| symlink("nowhere", folder.at("rows")).unwrap(),
            "no such file",
        ),
        (
            "rows",
            &|folder| symlink("nowhere", folder.at("rows.lock")).unwrap(),
            "is a symbolic link",
        ),
        ("no/rows", &|_| {}, "cannot be created"),
        (
            "file/rows",
            &|folder| fs::write(folder.at("file"), "x").unwrap(),
            "cannot be created",
        ),
    ];
    for (name, make, word) in cases {
        let folder = Folder::new();
        make(&folder);
        let before = folder.contents();
        let error = RowLedger::open_unchanged(folder.at(name)).unwrap_err();
        assert_says(error, &[word]);
        assert!(folder.contents() == before, "{name}: {word}");
        assert_says(RowLedger::open(folder.at(name)).unwrap_err(), &[word]);
    }
}

/// SQLite would take it for the log, and remove it.
#[test]
fn another_file_by_the_name_of_the_log_is_refused_and_kept() {
    let (folder, path, ledger, _) = ledger_of(3);
    drop(ledger);
    let other = folder.at("rows-wal");
    fs::write(&other, "SQLite format 3").unwrap();
    assert_says(
        RowLedger::open(&path).unwrap_err(),
        &["is a different file"],
    );
    assert_eq!(fs::read_to_string(&other).unwrap(), "SQLite format 3");
}

/// Both found no ledger; the one that writes later was admitted to another one.
#[test]
fn of_two_first_runs_at_once_one_is_refused() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let [mut first, mut second] = [(); 2].map(|()| RowLedger::open_unchanged(&path).unwrap());
    let study = study_with(&Map::new(), SERVER);
    let file = rows(&first, 3);
    take_part(&mut first, &study, &file, &UploadRequest::default()).unwrap();
    let mut is_refused = || {
        let file = rows(&second, 3);
        let done = take_part(&mut second, &study, &file, &UploadRequest::default());
        assert!(done.unwrap_err().is_locked());
    };
    is_refused();
    assert_eq!(pending(&first, &study).len(), 3);
    drop(first);
    is_refused();
}
