//! Ledgers of rows in layout 2, which is no longer written, and their upgrade. (The layout before that:
//! `row_layout_1.rs`.)

use std::fs;

use eigenveil_client::{ReportResult, RowLedger};
use eigenveil_shared::site_study::SiteTerms;

use crate::{
    common::{STUDY, assert_says},
    files::Folder,
    layout_1::layout,
    layout_2::put_back,
    row_layout_1::{filled, said},
    site::{self, Line, Table, lines, persons_of_at_most, request, settle, take_part},
};

/// Turns a ledger of rows into one of layout 2 that says the same: it had no tables of sites.
const TO_LAYOUT_2: &str = "
    DROP TABLE spelling; DROP TABLE person; DROP TABLE site_report; DROP TABLE site;
    PRAGMA user_version = 2;
";

#[test]
fn a_ledger_of_rows_of_layout_2_says_and_sends_the_same_and_knows_sites() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let before = said(&filled(&path));
    put_back(&path, TO_LAYOUT_2);
    // Reading leaves it as it is, also where sites are asked for.
    let bytes = fs::read(&path).unwrap();
    let ledger = RowLedger::open_unchanged(&path).unwrap();
    assert_eq!(said(&ledger), before);
    let of_site = site::study("of a site", SiteTerms::new(1_000));
    let table = Table::of_persons(&ledger, &lines(4, 0..4));
    let error = ledger
        .admit_site(&of_site, &table, &request(1))
        .unwrap_err();
    assert_says(error, &["place of their row"]);
    drop(ledger);
    assert_eq!(fs::read(&path).unwrap(), bytes);

    let mut ledger = RowLedger::open(&path).unwrap();
    assert_eq!(said(&ledger), before);
    let mut of_rows = request(2);
    of_rows.upload.same_participants = true;
    of_rows.upload.epsilon_per_study = Some(4.0);
    let table = Table::of_rows(&lines(6, 0..6));
    let counts = take_part(&mut ledger, &of_site, &table, &of_rows).unwrap();
    assert_eq!(counts.charged, 6);
    drop(ledger);
    assert_eq!(layout(&path), 3);
}

#[test]
fn a_ledger_of_rows_of_layout_2_that_lost_a_charge_is_refused_and_left() {
    let folder = Folder::new();
    let path = folder.at("rows");
    drop(filled(&path));
    put_back(&path, TO_LAYOUT_2);
    let lost = "DROP TRIGGER charges_stay; DELETE FROM charge WHERE study = 2";
    put_back(&path, lost);
    let error = RowLedger::open(&path).unwrap_err();
    assert_says(error, &["damaged", "rows are missing"]);
    assert_eq!(layout(&path), 2);
}

/// Sites came into ledgers before these had another number, and numbers of identifiers were fewer then: those of persons
/// who come again are stored with them.
#[test]
fn a_ledger_of_layout_2_that_has_sites_goes_on() {
    let folder = Folder::new();
    let path = folder.at("persons");
    let study = site::study(STUDY, persons_of_at_most(3));
    let with_number = |persons, spelled: &str| {
        let mut lines = lines(4, 0..persons);
        lines.push(Line(spelled.to_owned(), [1.0, 0.0, 0.0]));
        lines
    };
    let mut ledger = RowLedger::open(&path).unwrap();
    let table = Table::of_persons(&ledger, &with_number(4, "7.0"));
    take_part(&mut ledger, &study, &table, &request(1)).unwrap();
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let before = ledger.receipt().unwrap();
    drop(ledger);
    let earlier = "DROP TRIGGER spellings_stay; DELETE FROM spelling;
        UPDATE file_state SET row_count = row_count - 1; PRAGMA user_version = 2";
    put_back(&path, earlier);
    let ledger = RowLedger::open_unchanged(&path).unwrap();
    assert_eq!(ledger.receipt().unwrap(), before);
    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    assert_eq!(ledger.receipt().unwrap(), before);
    let mut later = with_number(4, "7.0");
    later.push(Line("p9".to_owned(), [1.0, 0.0, 0.0]));
    let table = Table::of_persons(&ledger, &later);
    let counts = take_part(&mut ledger, &study, &table, &request(2)).unwrap();
    assert_eq!((counts.charged, counts.charged_before), (1, 5));
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let table = Table::of_persons(&ledger, &with_number(4, "7"));
    let error = take_part(&mut ledger, &study, &table, &request(3)).unwrap_err();
    assert_says(&error, &["row 5 ", "another spelling"]);
    drop(ledger);
    assert_eq!(layout(&path), 3);
}
