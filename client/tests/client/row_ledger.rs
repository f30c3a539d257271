//! What a ledger of rows promises (`tests/tests/system/row_ledger.rs` has the program and its kills).

use std::{fs, path::Path};

use eigenveil_client::{Ledger, Outbox, Reporter, Result, RowFileDigest, RowLedger, StudyRef};
use eigenveil_shared::ErrorCode;

use crate::common::{self, Folder, assert_says, assert_survives_json, borrowed, limits, prepare};

struct Study {
    reporter: Reporter,
    study_ref: StudyRef,
}

fn study(name: &str, epsilon: f64) -> Study {
    let (reporter, study_ref) = common::study(name, epsilon);
    Study {
        reporter,
        study_ref,
    }
}

impl Study {
    fn outbox(&self, path: &Path) -> Outbox {
        Outbox::open(path, &self.study_ref).unwrap()
    }

    /// Perturbs what is missing in these rows.
    fn fill(&self, outbox: &mut Outbox, rows: std::ops::Range<u64>) {
        let missing = outbox.missing(rows).unwrap();
        let prepared = prepare(&self.reporter, &missing);
        outbox.enqueue_batch(borrowed(&prepared)).unwrap();
    }

    fn admit(
        &self,
        ledger: &RowLedger,
        file: &RowFileDigest,
        outbox: &Outbox,
    ) -> Option<ErrorCode> {
        let admitted = ledger.admit(&self.reporter, &self.study_ref, file, outbox);
        admitted.err().map(|error| error.code().unwrap())
    }

    fn charge(&self, ledger: &mut RowLedger, file: &RowFileDigest, outbox: &Outbox) -> Result<u64> {
        ledger.charge(&self.reporter, &self.study_ref, file, outbox)
    }
}

#[test]
fn rows_that_took_part_in_different_studies_have_their_own_limits() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let mut ledger = RowLedger::open(at("ledger")).unwrap();
    ledger.set_limits(limits(4.0, 6.0, 1e-4)).unwrap();
    // Study a with rows 0..10, b with 0..4 and, later, 8..12.
    let (a, b, c) = (study("a", 2.0), study("b", 3.0), study("c", 2.0));
    let ten = ledger.row_file(10, b"ten").unwrap();
    let mut outbox = a.outbox(&at("a"));
    a.fill(&mut outbox, 0..10);
    assert_eq!(a.charge(&mut ledger, &ten, &outbox).unwrap(), 10);
    assert_eq!(a.charge(&mut ledger, &ten, &outbox).unwrap(), 0);
    let four = ledger.row_file(4, b"four").unwrap();
    let four = four.assume_same_participants();
    let mut outbox = b.outbox(&at("b"));
    b.fill(&mut outbox, 0..4);
    assert_eq!(b.charge(&mut ledger, &four, &outbox).unwrap(), 4);
    b.fill(&mut outbox, 8..12);
    let twelve = ledger.row_file(12, b"twelve").unwrap();
    let twelve = twelve.assume_same_participants();
    assert_eq!(b.charge(&mut ledger, &twelve, &outbox).unwrap(), 4);
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.spent.epsilon, 5.0);
    let rows: Vec<u64> = receipt.studies.iter().map(|study| study.rows).collect();
    assert_eq!(rows, [10, 8]);
    // Rows 1 to 4 and 9 to 10 have spent 5, 5 to 8 have spent 2, 11 and 12 have spent 3: for another 2 the first
    // are in the way, for all rows together.
    let outbox = c.outbox(&at("c"));
    let refused = ledger.admit(&c.reporter, &c.study_ref, &twelve, &outbox);
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::BudgetExceeded));
    assert_says(refused, &["rows 1 to 4:"]);
    ledger.set_limits(limits(4.0, 7.0, 1e-4)).unwrap();
    assert_eq!(c.admit(&ledger, &twelve, &outbox), None);
    // Durable, and no ledger of a device.
    let receipt = ledger.receipt().unwrap();
    drop(ledger);
    assert!(RowLedger::is_at(at("ledger")) && !RowLedger::is_at(at("a")));
    let ledger = RowLedger::open_existing(at("ledger")).unwrap();
    assert_eq!(ledger.receipt().unwrap(), receipt);
    drop(ledger);
    let error = Ledger::open(at("ledger")).unwrap_err();
    assert_says(error, &["not an Eigenveil ledger"]);
    assert_survives_json(&receipt);
}

/// Killed between outbox and ledger; older copies of an outbox; a report that was drawn twice.
#[test]
fn only_charged_reports_may_be_sent() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let one = study("one", 1.0);
    let mut ledger = RowLedger::open(at("ledger")).unwrap();
    let file = ledger.row_file(20, b"rows").unwrap();
    // Drawn, and killed before it was charged.
    let mut first = one.outbox(&at("first"));
    one.fill(&mut first, 0..12);
    drop(first);
    fs::copy(at("first"), at("older")).unwrap();
    let mut second = one.outbox(&at("second"));
    assert_eq!(one.admit(&ledger, &file, &second), None);
    one.fill(&mut second, 0..20);
    assert_eq!(one.charge(&mut ledger, &file, &second).unwrap(), 20);
    for name in ["first", "older", "new"] {
        let mut outbox = one.outbox(&at(name));
        let refused = Some(ErrorCode::AlreadyParticipated);
        assert_eq!(one.admit(&ledger, &file, &outbox), refused);
        one.fill(&mut outbox, 0..20);
        let error = one.charge(&mut ledger, &file, &outbox).unwrap_err();
        assert_eq!(error.code(), refused, "{name}");
    }
    // The other one goes on, and so does its copy; what was acknowledged counts.
    second.record_acknowledged(&[1, 2]).unwrap();
    assert_eq!(one.charge(&mut ledger, &file, &second).unwrap(), 0);
    drop(second);
    fs::copy(at("second"), at("copy")).unwrap();
    assert_eq!(one.admit(&ledger, &file, &one.outbox(&at("copy"))), None);
    // The same study elsewhere, or with other parameters.
    let second = Outbox::open_existing(at("second")).unwrap();
    let elsewhere = StudyRef::new("http://elsewhere", "one", one.reporter.params());
    let refused = ledger.admit(&one.reporter, &elsewhere, &file, &second);
    let code = refused.unwrap_err().code();
    assert_eq!(code, Some(ErrorCode::AlreadyParticipated));
    let changed = study("one", 2.0).admit(&ledger, &file, &second);
    assert_eq!(changed, Some(ErrorCode::WrongFingerprint));
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 1.0);
}

/// A report of no row of the file would be sent with the others, and nobody would have paid for it.
#[test]
fn a_report_beyond_the_rows_of_the_file_is_not_passed_over() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let one = study("one", 1.0);
    let mut ledger = RowLedger::open(at("ledger")).unwrap();
    let mut outbox = one.outbox(&at("outbox"));
    one.fill(&mut outbox, 0..12);
    let ten = ledger.row_file(10, b"ten").unwrap();
    let error = one.charge(&mut ledger, &ten, &outbox).unwrap_err();
    assert_says(error, &["a report of row 11", "has 10 rows"]);
    assert_eq!(ledger.receipt().unwrap().studies, []);
    // With the file that has them; those that are charged may be of a longer file.
    let twelve = ledger.row_file(12, b"twelve").unwrap();
    assert_eq!(one.charge(&mut ledger, &twelve, &outbox).unwrap(), 12);
    let ten = ten.assume_same_participants();
    assert_eq!(one.charge(&mut ledger, &ten, &outbox).unwrap(), 0);
}

/// The same bytes read with a header and without are other participants, one place further.
#[test]
fn the_same_bytes_with_another_number_of_rows_are_another_file() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let one = study("one", 1.0);
    let two = study("two", 1.0);
    let mut ledger = RowLedger::open(at("ledger")).unwrap();
    let mut outbox = one.outbox(&at("outbox"));
    one.fill(&mut outbox, 0..3);
    let with_header = ledger.row_file(3, b"1,2\n3,4\n5,6\n7,8\n").unwrap();
    assert_eq!(one.charge(&mut ledger, &with_header, &outbox).unwrap(), 3);
    let mut other = two.outbox(&at("other"));
    two.fill(&mut other, 0..4);
    let without = ledger.row_file(4, b"1,2\n3,4\n5,6\n7,8\n").unwrap();
    let error = two.charge(&mut ledger, &without, &other).unwrap_err();
    assert!(error.is_row_file_mismatch(), "{error}");
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 1.0);
}

#[test]
fn the_file_itself_refuses_to_forget_and_holds_no_digest_that_is_the_same_elsewhere() {
    let folder = Folder::new();
    let at = |name: &str| folder.at(name);
    let one = study("one", 1.0);
    let mut digests = Vec::new();
    for name in ["a", "b"] {
        let mut ledger = RowLedger::open(at(name)).unwrap();
        let file = ledger.row_file(3, b"the same rows").unwrap();
        let mut outbox = one.outbox(&at(&format!("outbox-{name}")));
        one.fill(&mut outbox, 0..3);
        one.charge(&mut ledger, &file, &outbox).unwrap();
        drop(ledger);
        let connection = rusqlite::Connection::open(at(name)).unwrap();
        for statement in [
            "DELETE FROM charge",
            "DELETE FROM study",
            "UPDATE study SET epsilon = 0.1",
            "UPDATE charge SET rows = 1",
        ] {
            connection.execute(statement, []).unwrap_err();
        }
        let digest: Vec<u8> = connection
            .query_row("SELECT digest FROM file", [], |row| row.get(0))
            .unwrap();
        digests.push(digest);
    }
    assert_ne!(digests[0], digests[1]);
    // A charge that is missing is noticed.
    let connection = rusqlite::Connection::open(at("a")).unwrap();
    connection
        .execute_batch("DROP TRIGGER charges_stay; DELETE FROM charge")
        .unwrap();
    drop(connection);
    let error = RowLedger::open(at("a")).unwrap_err();
    assert_says(error, &["holds 0 entries and should hold 1"]);
    fs::write(at("b"), "").unwrap();
    let error = RowLedger::open(at("b")).unwrap_err();
    assert_says(error, &["the file is empty"]);
}
