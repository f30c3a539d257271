//! Ledgers of the layouts in which no report could be given up (layout 2 of a device, layout 1 of rows), and their
//! upgrade. (The layout before that: `layout_1.rs`.)

use std::{fs, path::Path};

use eigenveil_client::{Error, Ledger, RowLedger, Study};
use rusqlite::Connection;

use crate::{
    common::{assert_says, study},
    files::{Folder, acknowledge, entry_of, participate, prepared},
    layout_1::layout,
    row_ledger::{accept, pending, refuse},
};

/// Turns a device's ledger into one of layout 2 that says the same.
const DEVICE: &str = "
    DROP TRIGGER acknowledged_stays; DROP TRIGGER given_up_stays; DROP TRIGGER pending_reports_stay;
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE ON record
        WHEN OLD.state = 'acknowledged' AND NEW.state IS NOT 'acknowledged'
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER pending_reports_stay BEFORE DELETE ON payload
        WHEN (SELECT state FROM record WHERE key = replace(OLD.key, 'payload', 'entry')) IS NOT 'acknowledged'
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged'); END;
    UPDATE record SET value = CAST(json_set(CAST(value AS TEXT), '$.version', 1) AS BLOB) WHERE key = 'head';
    PRAGMA user_version = 2;
";

/// Turns a ledger of rows into one of layout 1 that says the same.
const ROWS: &str = "
    DROP TRIGGER reports_are_charged; DROP TRIGGER reports_stay; DROP TRIGGER reports_are_fixed;
    DROP TRIGGER acknowledged_stays; DROP TRIGGER given_up_stays; DROP TRIGGER owed_payloads_stay;
    ALTER TABLE report RENAME TO report_of_layout_2;
    CREATE TABLE report (
        key INTEGER PRIMARY KEY,
        id BLOB NOT NULL CHECK (length(id) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2))
    ) STRICT;
    INSERT INTO report SELECT * FROM report_of_layout_2;
    DROP TABLE report_of_layout_2;
    CREATE TRIGGER reports_are_charged BEFORE INSERT ON report
        WHEN coalesce((SELECT first + rows FROM charge
            WHERE study = NEW.key >> 40 AND first <= NEW.key & 0xffffffffff ORDER BY first DESC LIMIT 1), 0)
            <= NEW.key & 0xffffffffff
        BEGIN SELECT RAISE(ABORT, 'a report is only within a charge of its study'); END;
    CREATE TRIGGER reports_stay BEFORE DELETE ON report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never deleted'); END;
    CREATE TRIGGER reports_are_fixed BEFORE UPDATE OF key, id ON report
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE OF state ON report WHEN OLD.state = 1
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER owed_payloads_stay BEFORE DELETE ON payload
        WHEN (SELECT state FROM report WHERE key = OLD.key) IS NOT 1
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged'); END;
    ALTER TABLE study_terms DROP COLUMN features;
    PRAGMA user_version = 1;
";

/// Puts the ledger back into an earlier layout.
fn put_back(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn a_device_of_layout_2_says_and_sends_the_same_and_can_give_up() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    for name in ["acknowledged", "pending"] {
        participate(&mut ledger, &study(name, 0.5));
    }
    let entry = entry_of(&ledger, "acknowledged");
    acknowledge(&mut ledger, &entry);
    let state_of = |ledger: &Ledger| {
        let pending = ledger.pending().unwrap().remove(0);
        (
            ledger.receipt().unwrap(),
            ledger.request(&pending).unwrap().body,
        )
    };
    let before = state_of(&ledger);
    drop(ledger);
    put_back(&path, DEVICE);
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(state_of(&ledger), before);
    assert_eq!(ledger.give_up("pending").unwrap().given_up, 1);
    drop(ledger);
    assert_eq!(layout(&path), 3);
    assert!(Ledger::open(&path).unwrap().pending().unwrap().is_empty());
    // A report that is lost is noticed before the upgrade.
    participate(&mut Ledger::open(&path).unwrap(), &study("lost", 0.5));
    put_back(&path, DEVICE);
    put_back(
        &path,
        "DROP TRIGGER pending_reports_stay; DELETE FROM payload",
    );
    assert_says(Ledger::open(&path).unwrap_err(), &["damaged"]);
    assert_eq!(layout(&path), 2);
}

/// All that a ledger of rows says of a study, with what it would send.
fn said(ledger: &RowLedger, study: &Study) -> String {
    let (receipt, counts) = (ledger.receipt().unwrap(), ledger.counts(study).unwrap());
    let refused = ledger.refused(study, 9).unwrap();
    format!(
        "{receipt:?} {counts:?} {refused:?} {:?}",
        pending(ledger, study)
    )
}

/// A file of layout 1, and what it says.
fn rows_of_layout_1(path: &Path, study: &Study) -> String {
    let mut ledger = prepared(path, study, 400);
    let thirds: Vec<u64> = (0..400).step_by(3).collect();
    accept(&mut ledger, study, &thirds);
    refuse(&mut ledger, study, 1, "token-spent", "spent");
    let before = said(&ledger, study);
    drop(ledger);
    put_back(path, ROWS);
    before
}

#[test]
fn rows_of_layout_1_say_and_send_the_same_and_can_be_given_up() {
    let folder = Folder::new();
    let (path, study) = (folder.at("rows"), study("one", 1.0));
    let before = rows_of_layout_1(&path, &study);
    // Read without a change.
    let files = folder.contents();
    let ledger = RowLedger::open_unchanged(&path).unwrap();
    assert_eq!(said(&ledger, &study), before);
    drop(ledger);
    assert_eq!(folder.contents(), files);
    let mut ledger = RowLedger::open(&path).unwrap();
    assert_eq!(said(&ledger, &study), before);
    assert_eq!(ledger.give_up("one").unwrap().given_up, 266);
    drop(ledger);
    assert_eq!(layout(&path), 2);
    assert!(pending(&RowLedger::open(&path).unwrap(), &study).is_empty());
}

/// Checkpoints write pages in ascending order: without its log, a file is as before, as after, or refused.
#[test]
fn an_upgrade_of_rows_that_was_cut_off_forgets_nothing() {
    let folder = Folder::new();
    let (path, study) = (folder.at("rows"), study("one", 1.0));
    let expected = rows_of_layout_1(&path, &study);
    let before = fs::read(&path).unwrap();
    drop(RowLedger::open(&path).unwrap());
    let after = fs::read(&path).unwrap();
    let page = 4_096;
    let mut refused = 0;
    for cut in (page..after.len()).step_by(page) {
        let torn = [&after[..cut], before.get(cut..).unwrap_or_default()].concat();
        fs::write(&path, torn).unwrap();
        let reopened = RowLedger::open(&path).and_then(|ledger| {
            ledger.pending(&study, 0, usize::MAX)?;
            Ok::<_, Error>(said(&ledger, &study))
        });
        match reopened {
            Ok(text) => assert_eq!(text, expected, "{cut}"),
            Err(error) => {
                assert_says(error, &["damaged"]);
                refused += 1;
            }
        }
    }
    assert!(refused > 2, "{refused}");
}
