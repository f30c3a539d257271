//! What a device was told of a study: kept for the receipt, and its last day kept to.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use eigenveil_client::{Ledger, Outbox, Reporter, Result, RowLedger, StudyRef, http::StudyClient};
use eigenveil_shared::{
    ErrorCode,
    about::{About, UtcDate},
    mechanism::MechanismKind,
    preprocess::{Feature, Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

use crate::{
    common::{self, Folder, SERVER, assert_says, assert_survives_json},
    server::{Reply, Server, document},
};

const LONG_NAME: &str = "od280/od315_of_diluted_wines, measured twice and written out whole";

fn about() -> About {
    About {
        purpose: Some("What makes wines differ".to_owned()),
        responsible_party: Some("Institute of Wine, Example".to_owned()),
        contact: Some("wine@example.org".to_owned()),
        last_day: Some("2027-03-31".parse().unwrap()),
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

fn reporter() -> (Reporter, StudyRef) {
    let study_ref = StudyRef::new(SERVER, "0123", &params());
    let reporter = Reporter::new(params())
        .with_study_info("wines", about())
        .with_clock(|| 20_526 * 86_400_000);
    (reporter, study_ref)
}

/// One row of a file reported and charged.
fn charge(folder: &Folder, reporter: &Reporter, study_ref: &StudyRef) -> Result<RowLedger> {
    let mut rows = RowLedger::open(folder.at("rows.ledger"))?;
    let mut outbox = Outbox::open(folder.at("outbox"), study_ref)?;
    let file = rows.row_file(1, b"13,2")?;
    rows.admit(reporter, study_ref, &file, &outbox)?;
    outbox.enqueue(0, &reporter.report(&Row::new(vec![13.0, 2.0]))?)?;
    rows.charge(reporter, study_ref, &file, &outbox)?;
    Ok(rows)
}

#[test]
fn both_receipts_show_all_terms() {
    let folder = Folder::new();
    let (reporter, study_ref) = reporter();
    let mut ledger = Ledger::open(folder.at("ledger")).unwrap();
    let row = Row::new(vec![13.0, 2.0]);
    ledger.participate(&reporter, &study_ref, &row).unwrap();
    let receipt = ledger.receipt().unwrap();
    let rows = charge(&folder, &reporter, &study_ref).unwrap();
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
        "double-cap",
        "epsilon 4, delta 0",
        &format!("{LONG_NAME}: center 2.6, scale 0.75"),
        &params().fingerprint().to_string(),
    ];
    assert_says(&receipt, &words);
    assert_says(&of_rows, &words);
    for terms in [&receipt.studies[0].terms, &of_rows.studies[0].terms] {
        assert_eq!(terms.name.as_deref(), Some("wines"));
        assert_eq!(terms.about, about());
        assert_eq!(terms.parameters.as_ref(), Some(&params()));
    }
    assert_survives_json(&receipt);
    assert_survives_json(&of_rows);
    // What was agreed to is not rewritten.
    drop((ledger, rows));
    for file in ["ledger", "rows.ledger"] {
        let connection = rusqlite::Connection::open(folder.at(file)).unwrap();
        for statement in [
            "DELETE FROM study_terms",
            "UPDATE study_terms SET purpose = 'another'",
        ] {
            connection.execute(statement, []).unwrap_err();
        }
    }
}

/// The last day belongs to the study to its last millisecond; from the next one on nothing is perturbed or charged.
#[test]
fn nothing_is_perturbed_or_charged_after_the_last_day() {
    let end = about().last_day.unwrap().end_ms();
    assert_eq!(end, 1_806_537_600_000);
    let now = Arc::new(AtomicU64::new(end));
    let clock = Arc::clone(&now);
    let (reporter, study_ref) = reporter();
    let reporter = reporter.with_clock(move || clock.load(Ordering::Relaxed));
    let folder = Folder::new();
    let mut ledger = Ledger::open(folder.at("ledger")).unwrap();
    let mut rows = RowLedger::open(folder.at("rows")).unwrap();
    let file = rows.row_file(1, b"13,2").unwrap();
    let mut outbox = Outbox::open(folder.at("early"), &study_ref).unwrap();
    let row = Row::new(vec![13.0, 2.0]);
    // Perturbed in time, and killed before it was charged.
    now.store(end - 1, Ordering::Relaxed);
    reporter.check_open().unwrap();
    outbox.enqueue(0, &reporter.report(&row).unwrap()).unwrap();
    for late in [end, end + 1, u64::MAX] {
        now.store(late, Ordering::Relaxed);
        for error in [
            reporter.check_open().unwrap_err(),
            reporter.report(&row).unwrap_err(),
            // Whatever is in the row.
            reporter.report(&Row::new(vec![f64::NAN; 2])).unwrap_err(),
            ledger.participate(&reporter, &study_ref, &row).unwrap_err(),
            rows.charge(&reporter, &study_ref, &file, &outbox)
                .unwrap_err(),
        ] {
            assert_eq!(error.code(), Some(ErrorCode::StudyEnded), "{error}");
            let what = "nothing was perturbed or charged";
            assert_says(error, &["\"wines\"", "2027-03-31", what, "clock"]);
        }
        assert_eq!(ledger.spent().unwrap().epsilon, 0.0);
        assert_eq!(rows.receipt().unwrap().spent.epsilon, 0.0);
    }
    now.store(end - 1, Ordering::Relaxed);
    let taken = ledger.participate(&reporter, &study_ref, &row).unwrap();
    assert!(taken.is_new());
    let charged = rows.charge(&reporter, &study_ref, &file, &outbox);
    assert_eq!(charged.unwrap(), 1);
    // What was charged in time is still owed, and asked for again it is the same.
    now.store(end, Ordering::Relaxed);
    let again = ledger.participate(&reporter, &study_ref, &row).unwrap();
    assert_eq!(again.to_send(), taken.to_send());
}

/// A server cannot make a device keep, and show its owner, what nobody could have stated.
#[tokio::test]
async fn invalid_descriptions_are_refused() {
    let honest = About {
        last_day: Some(UtcDate(2_900_000)),
        ..about()
    };
    let with = |contact: &str, purpose: &str| About {
        contact: Some(contact.to_owned()),
        purpose: Some(purpose.to_owned()),
        ..honest.clone()
    };
    for (about, taken) in [
        (honest.clone(), true),
        (with("javascript:alert(1)", "p"), false),
        (with("a@b.org", "\u{1b}[2J"), false),
        (with("a@b.org", &"x".repeat(1_001)), false),
    ] {
        let mut study = document(&params());
        study.about = about.clone();
        let server = Server::start(move |_| Reply::json(200, &study)).await;
        let client = StudyClient::new(&server.address).unwrap();
        let fetched = client.fetch_study(common::STUDY).await;
        if taken {
            let reporter = fetched.unwrap().reporter();
            assert_eq!(reporter.about(), &about);
            assert_eq!(reporter.study_name(), Some("A study"));
        } else {
            let error = fetched.unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::InvalidAbout));
            assert!(!error.to_string().contains('\u{1b}'));
        }
    }
}
