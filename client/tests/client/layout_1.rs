//! Ledgers of devices in layout 1, which is no longer written (`layout_1.sql` has its tables), and their upgrade.

use std::{fs, path::Path};

use eigenveil_client::{EntryState, Ledger, Receipt, book::Entry};
use eigenveil_shared::{about::StudyNotice, enrolment::ParticipantToken};
use rusqlite::Connection;

use crate::{
    common::{SERVER, assert_says, limits, params, study, study_at},
    files::{Folder, acknowledge, entry_of, participate, refuse},
};

/// Puts a ledger of layout 1 that says the same in the place of this one.
pub(crate) fn to_layout_1(path: &Path) {
    let old = path.with_extension("old");
    let connection = Connection::open(&old).unwrap();
    let attach = connection.execute("ATTACH ?1 AS new", [path.to_str()]);
    attach.unwrap();
    let tables = include_str!("layout_1.sql");
    connection.execute_batch(tables).unwrap();
    drop(connection);
    assert_eq!(layout(&old), 1);
    fs::rename(&old, path).unwrap();
}

pub(crate) fn layout(path: &Path) -> i32 {
    let connection = Connection::open(path).unwrap();
    let layout = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    layout.unwrap()
}

/// All that a ledger knows, with what it would send.
fn said(ledger: &Ledger) -> (Receipt, Vec<Entry>, Vec<Vec<u8>>) {
    let entries = ledger.book().unwrap().entries().to_vec();
    let mut bodies = Vec::new();
    for entry in &entries {
        if entry.state() != &EntryState::Acknowledged {
            bodies.push(ledger.request(entry).unwrap().body);
        }
    }
    (ledger.receipt().unwrap(), entries, bodies)
}

/// A ledger with reports in each state, tokens, a move, and terms.
fn filled(path: &Path) -> Ledger {
    let mut ledger = Ledger::open(path).unwrap();
    ledger.set_limits(limits(2.0, 9.0, 1e-5)).unwrap();
    let told = |server: &str| {
        let about = StudyNotice {
            purpose: Some("What makes \"wines\" differ".to_owned()),
            responsible_party: Some("Institute of Wine".to_owned()),
            contact: Some("wine@example.org".to_owned()),
            last_day: Some("2099-03-31".parse().unwrap()),
            features: None,
        };
        study_at(server, "told", params(0.3)).with_info("wines", about)
    };
    participate(&mut ledger, &told(SERVER));
    ledger.accept_move(&told("https://new.example")).unwrap();
    ledger.accept_move(&told("https://newer.example")).unwrap();
    for name in ["acknowledged", "refused", "pending"] {
        participate(&mut ledger, &study(name, 0.7));
        let token = ParticipantToken::from_bytes([name.len() as u8; 32]);
        assert!(ledger.set_token(name, &token).unwrap());
    }
    let entry = entry_of(&ledger, "acknowledged");
    acknowledge(&mut ledger, &entry);
    let entry = entry_of(&ledger, "refused");
    refuse(&mut ledger, &entry, "implausible-report", "too \"large\"");
    ledger
}

#[test]
fn a_ledger_of_layout_1_says_and_sends_the_same_as_records() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    let before = said(&filled(&path));
    assert_eq!((before.1.len(), before.2.len()), (4, 3));
    to_layout_1(&path);
    let mut ledger = Ledger::open_existing(&path).unwrap();
    assert_eq!(said(&ledger), before);
    // It goes on, with the entries that came from layout 1, too.
    assert!(!participate(&mut ledger, &study("pending", 0.7)).is_new());
    assert!(participate(&mut ledger, &study("another", 0.7)).is_new());
    assert_eq!(ledger.requeue_refused().unwrap(), 1);
    for entry in ledger.pending().unwrap() {
        acknowledge(&mut ledger, &entry);
    }
    drop(ledger);
    assert_eq!(layout(&path), 3);
    let ledger = Ledger::open(&path).unwrap();
    assert!(ledger.pending().unwrap().is_empty());
    let spent = ledger.spent().unwrap().epsilon;
    assert!((spent - 3.1).abs() < 1e-3, "{spent}");
}

/// Checkpoints write pages in ascending order: without its log, a file is the new ledger, the old one, or refused.
/// (`ledger_crash.rs` kills.)
#[test]
fn an_upgrade_that_was_cut_off_forgets_nothing() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    drop(filled(&path));
    to_layout_1(&path);
    let before = fs::read(&path).unwrap();
    let ledger = Ledger::open(&path).unwrap();
    let said_after = said(&ledger);
    drop(ledger);
    let after = fs::read(&path).unwrap();
    let page = 4_096;
    let mut refused = 0;
    for cut in (page..after.len()).step_by(page) {
        let torn = [&after[..cut], before.get(cut..).unwrap_or_default()].concat();
        fs::write(&path, torn).unwrap();
        match Ledger::open(&path) {
            Ok(ledger) => assert_eq!(said(&ledger), said_after, "{cut}"),
            Err(error) => {
                assert_says(error, &["damaged"]);
                refused += 1;
            }
        }
    }
    assert!(refused > 4, "{refused}");
}

#[test]
fn a_ledger_of_layout_1_that_lost_a_report_or_a_charge_is_refused_and_left() {
    let folder = Folder::new();
    let path = folder.at("ledger");
    drop(filled(&path));
    to_layout_1(&path);
    let whole = fs::read(&path).unwrap();
    for lost in [
        "DROP TRIGGER owed_reports_stay; DELETE FROM payload WHERE number = 4",
        "DROP TRIGGER entries_stay; DELETE FROM entry WHERE number = 2",
    ] {
        let connection = Connection::open(&path).unwrap();
        let edit = format!("PRAGMA foreign_keys = 0; {lost}");
        connection.execute_batch(&edit).unwrap();
        drop(connection);
        let error = Ledger::open(&path).unwrap_err();
        assert_says(error, &["damaged", "rows are missing"]);
        assert_eq!(layout(&path), 1);
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(said(&Ledger::open(&path).unwrap()).1.len(), 4);
}
