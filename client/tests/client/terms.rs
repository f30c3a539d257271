//! What a device was told of a study: kept for the receipt, and its last day kept to. (A study that is not open:
//! `exchange.rs`.)

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use eigenveil_client::{Ledger, Prepared, Result, RowLedger, Study};
use eigenveil_shared::{
    ErrorCode,
    about::{FeatureNotice, StudyNotice},
    mechanism::MechanismKind,
    preprocess::{Feature, Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

use crate::{
    common::{NOW, assert_says, assert_survives_json, study_of},
    files::Folder,
};

const LONG_NAME: &str = "od280/od315_of_diluted_wines, measured twice and written out whole";

fn about() -> StudyNotice {
    StudyNotice {
        purpose: Some("What makes wines differ".to_owned()),
        responsible_party: Some("Institute of Wine, Example".to_owned()),
        contact: Some("wine@example.org".to_owned()),
        last_day: Some("2027-03-31".parse().unwrap()),
        features: Some(vec![
            FeatureNotice {
                label: Some("Alcohol".to_owned()),
                unit: Some("% vol".to_owned()),
                description: Some("as the label says".to_owned()),
            },
            FeatureNotice::default(),
        ]),
    }
}

fn params() -> StudyParams {
    StudyParams::freeze(StudyDesign {
        features: Some(vec![
            Feature::new("alcohol", 13.0, 0.8125),
            Feature::new(LONG_NAME, 2.6, 0.75),
        ]),
        norm: Norm::Clip { radius: 3.5 },
        centring: Some(0.25),
        ..StudyDesign::new(MechanismKind::DoubleCap, 2, Budget::pure(4.0).unwrap())
    })
    .unwrap()
}

fn study() -> Study {
    study_of("0123", params()).with_info("wines", about())
}

fn row() -> Row {
    Row::new(vec![13.0, 2.0])
}

/// The row of a file reported and charged.
fn prepare(ledger: &mut RowLedger) -> Result<Prepared> {
    let (study, file) = (study(), ledger.row_file(1, b"13,2", b"")?);
    let report = |_, now| study.report(&row(), now);
    ledger.prepare(&study, &file, report, |_| ControlFlow::Continue(()))
}

fn open(folder: &Path, clock: &Arc<AtomicU64>) -> (Ledger, RowLedger) {
    let clock = || {
        let clock = Arc::clone(clock);
        move || clock.load(Ordering::Relaxed)
    };
    let ledger = Ledger::open(folder.join("ledger")).unwrap();
    let rows = RowLedger::open(folder.join("rows")).unwrap();
    (ledger.with_clock(clock()), rows.with_clock(clock()))
}

#[test]
fn both_receipts_show_all_terms() {
    let folder = Folder::new();
    let (mut ledger, mut rows) = open(folder.path(), &Arc::new(AtomicU64::new(NOW)));
    ledger.participate(&study(), &row()).unwrap();
    prepare(&mut rows).unwrap();
    let receipt = ledger.receipt().unwrap();
    let of_rows = rows.receipt().unwrap();
    let words = [
        "wines",
        "What makes wines differ",
        "Institute of Wine, Example",
        "wine@example.org",
        "2027-03-31 (UTC)",
        "clip: rows longer than 3.5",
        "private, with constant 0.25",
        "alcohol: center 13, scale 0.8125",
        "Alcohol (% vol): as the label says",
        "double-cap",
        "epsilon 4, delta 0",
        &format!("{LONG_NAME}: center 2.6, scale 0.75"),
        &params().fingerprint().to_string(),
    ];
    assert_says(&receipt, &words);
    assert_says(&of_rows, &words);
    for terms in [&receipt.studies[0].terms, &of_rows.studies[0].terms] {
        assert_eq!(
            (terms.name.as_deref(), &terms.about),
            (Some("wines"), &about())
        );
        assert_eq!(terms.parameters, Some(params().into()));
    }
    assert_survives_json(&receipt);
    assert_survives_json(&of_rows);
    // What was agreed to is not rewritten (nor in a device's ledger: `ledger.rs`).
    drop((ledger, rows));
    let connection = rusqlite::Connection::open(folder.at("rows")).unwrap();
    for statement in [
        "DELETE FROM study_terms",
        "UPDATE study_terms SET purpose = 'another'",
    ] {
        connection.execute(statement, []).unwrap_err();
    }
}

/// The last day belongs to the study to its last millisecond; from the next one on nothing is perturbed or charged.
#[test]
fn nothing_is_perturbed_or_charged_after_the_last_day() {
    let end = about().last_day.unwrap().end_ms();
    assert_eq!(end, 1_806_537_600_000);
    let clock = Arc::new(AtomicU64::new(end));
    let folder = Folder::new();
    let (mut ledger, mut rows) = open(folder.path(), &clock);
    let (study, row) = (study(), row());
    for late in [end, end + 1, u64::MAX] {
        clock.store(late, Ordering::Relaxed);
        for error in [
            study.check_open(late).unwrap_err(),
            study.report(&row, late).unwrap_err(),
            // Whatever is in the row.
            study
                .report(&Row::new(vec![f64::NAN; 2]), late)
                .unwrap_err(),
            ledger.participate(&study, &row).unwrap_err(),
            prepare(&mut rows).unwrap_err(),
        ] {
            assert_eq!(error.code(), Some(ErrorCode::StudyEnded), "{error}");
            let assurance = "nothing was perturbed or charged";
            assert_says(error, &["\"wines\"", "2027-03-31", assurance, "clock"]);
        }
        assert_eq!(ledger.spent().unwrap().epsilon, 0.0);
        assert_eq!(rows.receipt().unwrap().spent.epsilon, 0.0);
    }
    clock.store(end - 1, Ordering::Relaxed);
    study.check_open(end - 1).unwrap();
    let taken = ledger.participate(&study, &row).unwrap();
    assert!(taken.is_new());
    assert_eq!(prepare(&mut rows).unwrap().rows, 1);
    let pending = rows.pending(&study, 0, 9).unwrap();
    // What was charged in time is still pending, and asked for again it is the same.
    clock.store(end, Ordering::Relaxed);
    let again = ledger.participate(&study, &row).unwrap();
    assert_eq!(again.entry(), taken.entry());
    assert_eq!(ledger.pending().unwrap().len(), 1);
    assert_eq!(prepare(&mut rows).unwrap(), Prepared::default());
    assert_eq!(rows.pending(&study, 0, 9).unwrap(), pending);
}

/// A device that has lost its time would take part after the last day.
#[test]
fn nothing_is_perturbed_or_charged_by_a_clock_that_was_lost() {
    let clock = Arc::new(AtomicU64::new(NOW));
    let folder = Folder::new();
    let (mut ledger, mut rows) = open(folder.path(), &clock);
    clock.store(86_400_000, Ordering::Relaxed);
    for error in [
        ledger.participate(&study(), &row()).unwrap_err(),
        prepare(&mut rows).unwrap_err(),
    ] {
        assert_eq!(error.name(), "clock-unavailable");
        assert_says(error, &["nothing was perturbed or charged", "set it"]);
    }
    assert_eq!(ledger.spent().unwrap().epsilon, 0.0);
    assert_eq!(rows.receipt().unwrap().studies, []);
    // What there is is given whatever the clock says.
    clock.store(NOW, Ordering::Relaxed);
    ledger.participate(&study(), &row()).unwrap();
    prepare(&mut rows).unwrap();
    clock.store(0, Ordering::Relaxed);
    assert!(!ledger.participate(&study(), &row()).unwrap().is_new());
    assert_eq!(prepare(&mut rows).unwrap(), Prepared::default());
}
