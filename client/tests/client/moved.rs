//! Studies that have moved to another address: the same bytes go there, and nothing is drawn again.

use eigenveil_client::{Ledger, Outbox, Participation, Reporter, RowLedger, StudyRef};
use eigenveil_shared::{ErrorCode, about::About};

use crate::common::{Folder, SERVER, assert_says, params, prepare, row};

const NEW: &str = "https://study.example";

fn study(server: &str, epsilon: f64, purpose: &str) -> (Reporter, StudyRef) {
    let params = params(epsilon);
    let about = About {
        purpose: Some(purpose.to_owned()),
        ..About::default()
    };
    let study_ref = StudyRef::new(server, "one", &params);
    let reporter = Reporter::new(params).with_clock(|| 20_526 * 86_400_000);
    (reporter.with_study_info("One", about), study_ref)
}

#[test]
fn a_ledger_sends_the_same_report_to_the_new_address() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let (old, new) = (study(SERVER, 0.5, "sleep"), study(NEW, 0.5, "sleep"));
    let unknown = ledger.accept_move(&new.0, &new.1).unwrap_err();
    assert_eq!(unknown.code(), Some(ErrorCode::StudyNotFound));
    let taken = ledger.participate(&old.0, &old.1, &row(1.0)).unwrap();
    let first = taken.to_send().unwrap().report.clone();

    // Another address alone is no move, nor is another study.
    let refused = ledger.participate(&new.0, &new.1, &row(1.0)).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::AlreadyParticipated));
    for (other, code) in [
        (study(NEW, 0.25, "sleep"), ErrorCode::WrongFingerprint),
        (study(NEW, 0.5, "insurance"), ErrorCode::InvalidAbout),
    ] {
        let error = ledger.accept_move(&other.0, &other.1).unwrap_err();
        assert_eq!(error.code(), Some(code), "{error}");
    }
    assert_eq!(ledger.owed().unwrap()[0].study_ref, old.1);

    ledger.accept_move(&new.0, &new.1).unwrap();
    drop(ledger);
    let mut ledger = Ledger::open(&path).unwrap();
    let owed = ledger.owed().unwrap().remove(0);
    assert_eq!((&owed.study_ref, &owed.report), (&new.1, &first));
    let Participation::Owed(again) = ledger.participate(&new.0, &new.1, &row(2.0)).unwrap() else {
        panic!("it was drawn again");
    };
    assert_eq!(again.report, first);
    assert!(ledger.participate(&old.0, &old.1, &row(1.0)).is_err());
    // Also after the server has it; both addresses are in the receipt.
    ledger.record_acknowledged(first.id).unwrap();
    let third = study("https://other.example", 0.5, "sleep");
    ledger.accept_move(&third.0, &third.1).unwrap();
    ledger.accept_move(&third.0, &third.1).unwrap();
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.studies.len(), 1);
    assert_eq!(receipt.spent.epsilon, 0.5);
    assert_eq!(receipt.studies[0].server, SERVER);
    assert_eq!(receipt.studies[0].moved_to, [NEW, "https://other.example"]);
    let moves = format!("at {SERVER}, moved to {NEW}, moved to");
    assert_says(receipt, &[&moves]);
}

#[test]
fn rows_and_their_outbox_move_together() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let (old, new) = (study(SERVER, 0.5, "sleep"), study(NEW, 0.5, "sleep"));
    let mut rows = RowLedger::open(at("rows")).unwrap();
    let file = rows.row_file(3, b"three rows").unwrap();
    let mut outbox = Outbox::open(at("outbox"), &old.1).unwrap();
    for (index, report) in prepare(&old.0, &[0, 1]) {
        outbox.enqueue(index, &report).unwrap();
    }
    assert_eq!(rows.charge(&old.0, &old.1, &file, &outbox).unwrap(), 2);
    outbox.record_acknowledged(&[0]).unwrap();
    let pending = outbox.pending(9).unwrap();
    drop(outbox);

    let error = Outbox::open(at("outbox"), &new.1).unwrap_err();
    assert!(error.is_study_mismatch());
    let mut outbox = Outbox::open_existing(at("outbox")).unwrap();
    let other = study(NEW, 0.25, "sleep");
    let error = outbox.accept_move(&other.1).unwrap_err();
    assert!(error.is_study_mismatch());
    let insurance = study(NEW, 0.5, "insurance");
    let error = rows.accept_move(&insurance.0, &insurance.1).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidAbout));
    rows.accept_move(&new.0, &new.1).unwrap();
    outbox.accept_move(&new.1).unwrap();
    drop(outbox);
    let mut outbox = Outbox::open(at("outbox"), &new.1).unwrap();
    // The row without a report gets one; the others keep theirs.
    assert_eq!(outbox.missing(0..3).unwrap(), [2]);
    let (index, report) = prepare(&new.0, &[2]).remove(0);
    outbox.enqueue(index, &report).unwrap();
    assert_eq!(rows.charge(&new.0, &new.1, &file, &outbox).unwrap(), 1);
    assert_eq!(outbox.pending(1).unwrap(), pending);
    let study = rows.receipt().unwrap().studies.remove(0);
    assert_eq!((study.rows, study.moved_to), (3, vec![NEW.to_owned()]));
    // A new outbox holds none of the reports that were charged.
    let empty = Outbox::open(at("another"), &new.1).unwrap();
    let error = rows.admit(&new.0, &new.1, &file, &empty).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
}
