//! Ledgers of rows in layout 1, which is no longer written (`row_layout_1.sql` has its tables), and their upgrade.

use std::{fs, path::Path};

use eigenveil_client::{
    Error, PendingReport, RefusedRow, RowCounts, RowLedger, RowReceipt, UploadRequest,
};
use eigenveil_shared::site_study::SiteTerms;
use rusqlite::Connection;

use crate::{
    common::{STUDY, assert_says, limits, study, study_at},
    files::{Folder, prepare, prepared, rows},
    layout_1::layout,
    row_ledger::{accept, pending, refuse, token},
    site::{self, Table, lines, request, take_part},
};

/// Puts a ledger of layout 1 that says the same in the place of this one.
fn to_layout_1(path: &Path) {
    let old = path.with_extension("old");
    let connection = Connection::open(&old).unwrap();
    let attach = connection.execute("ATTACH ?1 AS new", [path.to_str()]);
    attach.unwrap();
    let tables = include_str!("row_layout_1.sql");
    connection.execute_batch(tables).unwrap();
    drop(connection);
    assert_eq!(layout(&old), 1);
    fs::rename(&old, path).unwrap();
}

/// All that a ledger knows, with what it would send.
pub(crate) fn said(
    ledger: &RowLedger,
) -> (RowReceipt, RowCounts, Vec<PendingReport>, Vec<RefusedRow>) {
    let one = study(STUDY, 0.5);
    (
        ledger.receipt().unwrap(),
        ledger.counts(&one).unwrap(),
        pending(ledger, &one),
        ledger.refused(&one, 9).unwrap(),
    )
}

/// A ledger with reports in each state, tokens, and a study that has moved.
pub(crate) fn filled(path: &Path) -> RowLedger {
    let mut ledger = RowLedger::open(path).unwrap();
    ledger.set_limits(limits(2.0, 9.0, 1e-5)).unwrap();
    let one = study(STUDY, 0.5);
    let file = rows(&ledger, 6);
    prepare(&mut ledger, &one, &file).unwrap();
    let tokens = [token(1), token(2)];
    ledger.set_tokens(&one, (3..).zip(&tokens)).unwrap();
    accept(&mut ledger, &one, &[0, 1, 3]);
    refuse(&mut ledger, &one, 2, "implausible-report", "too \"large\"");
    let moved = study("moved", 0.25);
    let file = rows(&ledger, 4);
    prepare(&mut ledger, &moved, &file).unwrap();
    let there = study_at(
        "https://new.example",
        "moved",
        moved.params().rows().unwrap().clone(),
    );
    ledger.accept_move(&there).unwrap();
    ledger
}

#[test]
fn a_ledger_of_layout_1_says_and_sends_the_same_and_goes_on() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let before = said(&filled(&path));
    assert_eq!((before.2.len(), before.3.len()), (2, 1));
    to_layout_1(&path);
    // Reading leaves it as it is, also where sites would be asked for.
    let bytes = fs::read(&path).unwrap();
    let ledger = RowLedger::open_unchanged(&path).unwrap();
    assert_eq!(said(&ledger), before);
    let one = study(STUDY, 0.5);
    let asked = UploadRequest::default();
    ledger
        .admit_upload(&one, &rows(&ledger, 6), &asked)
        .unwrap();
    let of_site = site::study("of a site", SiteTerms::new(1_000));
    let table = Table::of_persons(&ledger, &lines(4, 0..4));
    let error = ledger
        .admit_site(&of_site, &table, &request(1))
        .unwrap_err();
    assert_says(error, &["place of their row"]);
    drop(ledger);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(layout(&path), 1);

    let mut ledger = RowLedger::open_existing(&path).unwrap();
    assert_eq!(said(&ledger), before);
    let file = rows(&ledger, 6);
    prepare(&mut ledger, &study("another", 0.5), &file).unwrap();
    assert_eq!(ledger.requeue_refused(&one).unwrap(), 1);
    assert_eq!(accept(&mut ledger, &one, &[2, 4, 5]), 3);
    assert_eq!(ledger.give_up("moved").unwrap().given_up, 4);
    let mut of_rows = request(2);
    of_rows.upload.same_participants = true;
    of_rows.upload.epsilon_per_study = Some(4.0);
    let table = Table::of_rows(&lines(6, 0..6));
    let counts = take_part(&mut ledger, &of_site, &table, &of_rows).unwrap();
    assert_eq!(counts.charged, 6);
    drop(ledger);
    assert_eq!(layout(&path), 3);
    let ledger = RowLedger::open(&path).unwrap();
    let counts = ledger.counts(&study("moved", 0.25)).unwrap();
    assert_eq!(counts.given_up, 4);
    let receipt = ledger.receipt().unwrap();
    // The first four rows took part in all studies.
    assert_eq!(receipt.spent.epsilon, 0.5 + 0.25 + 0.5 + 4.0);
}

#[test]
fn a_ledger_of_layout_1_that_lost_a_charge_is_refused_and_left() {
    let folder = Folder::new();
    let path = folder.at("rows");
    drop(filled(&path));
    to_layout_1(&path);
    let connection = Connection::open(&path).unwrap();
    let lost = "DROP TRIGGER charges_stay; DELETE FROM charge WHERE study = 2";
    connection.execute_batch(lost).unwrap();
    drop(connection);
    let error = RowLedger::open(&path).unwrap_err();
    assert_says(error, &["damaged", "rows are missing"]);
    assert_eq!(layout(&path), 1);
}

/// Checkpoints write pages in ascending order: without its log, a file is as before, as after, or refused.
#[test]
fn an_upgrade_that_was_cut_off_forgets_nothing() {
    let folder = Folder::new();
    let (path, one) = (folder.at("rows"), study(STUDY, 0.5));
    let mut ledger = prepared(&path, &one, 400);
    let thirds: Vec<u64> = (0..400).step_by(3).collect();
    accept(&mut ledger, &one, &thirds);
    refuse(&mut ledger, &one, 1, "token-spent", "spent");
    let expected = said(&ledger);
    drop(ledger);
    to_layout_1(&path);
    let before = fs::read(&path).unwrap();
    drop(RowLedger::open(&path).unwrap());
    let after = fs::read(&path).unwrap();
    let page = 4_096;
    let mut refused = 0;
    for cut in (page..after.len()).step_by(page) {
        let torn = [&after[..cut], before.get(cut..).unwrap_or_default()].concat();
        fs::write(&path, torn).unwrap();
        let reopened = RowLedger::open(&path).and_then(|ledger| {
            ledger.pending(&one, 0, usize::MAX)?;
            Ok::<_, Error>(said(&ledger))
        });
        match reopened {
            Ok(reopened) => assert_eq!(reopened, expected, "{cut}"),
            Err(error) => {
                assert_says(error, &["damaged"]);
                refused += 1;
            }
        }
    }
    assert!(refused > 2, "{refused}");
}
