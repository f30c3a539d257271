//! Studies that have moved to another address: the same bytes go there, and nothing is drawn again.

use std::ops::ControlFlow;

use eigenveil_client::{Hint, Ledger, Participation, ReportResult, RowLedger, Study};
use eigenveil_shared::{ErrorCode, about::StudyNotice};

use crate::{
    common::{SERVER, assert_says, params, row, study_at},
    files::{Folder, acknowledge, prepare, rows},
};

const NEW: &str = "https://study.example";
const THIRD: &str = "https://other.example";

fn study(server: &str, epsilon: f64, purpose: &str) -> Study {
    let about = StudyNotice {
        purpose: Some(purpose.to_owned()),
        ..StudyNotice::default()
    };
    study_at(server, "one", params(epsilon)).with_info("One", about)
}

/// Changes that are no move: other parameters, another purpose.
fn others() -> [(Study, ErrorCode); 2] {
    [
        (study(NEW, 0.25, "sleep"), ErrorCode::WrongFingerprint),
        (study(NEW, 0.5, "insurance"), ErrorCode::InvalidNotice),
    ]
}

#[test]
fn a_ledger_sends_the_same_report_to_the_new_address() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let (old, new) = (study(SERVER, 0.5, "sleep"), study(NEW, 0.5, "sleep"));
    let unknown = ledger.accept_move(&new).unwrap_err();
    assert_eq!(unknown.code(), Some(ErrorCode::StudyNotFound));
    let taken = ledger.participate(&old, &row(1.0)).unwrap();
    let first = ledger.request(taken.entry()).unwrap();

    // Another address alone is no move, nor is another study.
    let refused = ledger.participate(&new, &row(1.0)).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::AlreadyParticipated));
    for (other, code) in others() {
        let error = ledger.accept_move(&other).unwrap_err();
        assert_eq!(error.code(), Some(code), "{error}");
    }
    assert_eq!(ledger.pending().unwrap()[0].server(), old.server());

    ledger.accept_move(&new).unwrap();
    drop(ledger);
    let mut ledger = Ledger::open(&path).unwrap();
    let pending = ledger.pending().unwrap().remove(0);
    let moved = ledger.request(&pending).unwrap();
    assert_eq!((moved.server(), &moved.body), (new.server(), &first.body));
    assert_eq!(moved.url, format!("{NEW}/v1/studies/one/reports"));
    let again = ledger.participate(&new, &row(2.0)).unwrap();
    assert_eq!(again, Participation::Known(pending.clone()));
    assert!(ledger.participate(&old, &row(1.0)).is_err());
    // Also after the server has it; all addresses are in the receipt.
    acknowledge(&mut ledger, &pending);
    let third = study(THIRD, 0.5, "sleep");
    ledger.accept_move(&third).unwrap();
    ledger.accept_move(&third).unwrap();
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.studies.len(), 1);
    assert_eq!(receipt.spent.epsilon, 0.5);
    assert_eq!(receipt.studies[0].server, SERVER);
    assert_eq!(receipt.studies[0].moved_to, [NEW, THIRD]);
    assert_says(
        receipt,
        &[&format!("at {SERVER}, moved to {NEW}, moved to {THIRD}")],
    );
}

#[test]
fn rows_keep_their_reports_at_the_new_address() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let (old, new) = (study(SERVER, 0.5, "sleep"), study(NEW, 0.5, "sleep"));
    let mut ledger = RowLedger::open(&path).unwrap();
    let file = rows(&ledger, 1_500);
    // Broken off once some rows have their reports.
    let report = |number: u64, now| old.report(&row(number as f64), now);
    let first = ledger.prepare(&old, &file, report, |done| match done {
        1_400.. => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let made = first.unwrap().rows;
    assert!((2..1_400).contains(&made));
    ledger.record(&old, [(0, ReportResult::Accepted)]).unwrap();
    let pending = ledger.pending(&old, 0, usize::MAX).unwrap();

    let error = prepare(&mut ledger, &new, &file).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
    // Where it is, a study has other rows only for the purpose of the reports that are pending.
    let purpose = study(SERVER, 0.5, "insurance");
    let error = prepare(&mut ledger, &purpose, &file).unwrap_err();
    assert_eq!(error.hint(), Some(&Hint::NewPurpose));
    drop(ledger);
    let given_up = folder.at("given up");
    std::fs::copy(&path, &given_up).unwrap();
    let mut ledger = RowLedger::open(&path).unwrap();
    let mut stopped = RowLedger::open(&given_up).unwrap();
    assert_eq!(stopped.give_up("one").unwrap().given_up, made - 1);
    let error = prepare(&mut stopped, &purpose, &file).unwrap_err();
    assert_eq!(error.hint(), Some(&Hint::NewPurpose));
    for (other, code) in others() {
        let error = ledger.accept_move(&other).unwrap_err();
        assert_eq!(error.code(), Some(code), "{error}");
    }
    let at = |ledger: &RowLedger| ledger.server_of("one").unwrap().unwrap();
    assert_eq!(&at(&ledger), old.server());
    ledger.accept_move(&new).unwrap();
    ledger.accept_move(&new).unwrap();
    // In a study in which no row took part there is nothing to move.
    let another = study_at(NEW, "another", params(0.5));
    ledger.accept_move(&another).unwrap();
    assert_eq!(ledger.server_of("another").unwrap(), None);
    drop(ledger);

    let mut ledger = RowLedger::open(&path).unwrap();
    assert_eq!(&at(&ledger), new.server());
    // The rows without a report get theirs; the others keep the one they have.
    assert!(prepare(&mut ledger, &old, &file).is_err());
    let rest = prepare(&mut ledger, &new, &file).unwrap();
    assert_eq!(rest.rows, 1_500 - made);
    assert_eq!(ledger.pending(&new, 0, pending.len()).unwrap(), pending);
    let study = ledger.receipt().unwrap().studies.remove(0);
    assert_eq!(study.terms.about.purpose.as_deref(), Some("sleep"));
    assert_eq!(
        (study.rows, study.record.moved_to),
        (1_500, vec![NEW.to_owned()])
    );
}
