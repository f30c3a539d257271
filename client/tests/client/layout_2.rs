//! Ledgers of a device in layout 2, in which no report could be given up, and their upgrade. (The layout before that:
//! `layout_1.rs`.)

use std::path::Path;

use eigenveil_client::Ledger;
use rusqlite::Connection;

use crate::{
    common::{assert_says, study},
    files::{Folder, acknowledge, entry_of, participate},
    layout_1::layout,
};

/// Turns a device's ledger into one of layout 2 that says the same.
const TO_LAYOUT_2: &str = "
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

/// Puts the ledger back into an earlier layout.
pub(crate) fn put_back(path: &Path, sql: &str) {
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
    put_back(&path, TO_LAYOUT_2);
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(state_of(&ledger), before);
    assert_eq!(ledger.give_up("pending").unwrap().given_up, 1);
    drop(ledger);
    assert_eq!(layout(&path), 3);
    assert!(Ledger::open(&path).unwrap().pending().unwrap().is_empty());
    // A report that is lost is noticed before the upgrade.
    participate(&mut Ledger::open(&path).unwrap(), &study("lost", 0.5));
    put_back(&path, TO_LAYOUT_2);
    put_back(
        &path,
        "DROP TRIGGER pending_reports_stay; DELETE FROM payload",
    );
    assert_says(Ledger::open(&path).unwrap_err(), &["damaged"]);
    assert_eq!(layout(&path), 2);
}
