//! Preparations in the ledgers of devices and of rows: one answer a person, in one of the rounds, charged beside the
//! study that is prepared.

use std::ops::ControlFlow;

use eigenveil_client::{Ledger, Participation, RowLedger, Study, UploadRequest};
use eigenveil_shared::{
    ErrorCode,
    codec::{self, ReportFormat},
    preparation::{ColumnKind, NumberRange, PreparationColumn, PreparationParams},
    preprocess::Row,
    study::Fingerprint,
};

use crate::{
    common::{NOW, SERVER, assert_says, limits, row, study},
    files::{Folder, rows},
};

/// A preparation with the five columns of [`row`], in the first or the second round.
fn params(after: Option<Fingerprint>) -> PreparationParams {
    params_up_to(3.0, after)
}

/// A second round asks about the values from −3 to `to`.
fn params_up_to(to: f64, after: Option<Fingerprint>) -> PreparationParams {
    let within = after.map(|_| [-3.0, to]);
    let range = NumberRange {
        lo: -8.0,
        hi: 8.0,
        within,
    };
    let columns = ["a", "b", "c", "d", "e"]
        .map(|name| PreparationColumn::new(name, ColumnKind::Number(range)).may_be_missing());
    PreparationParams::freeze(columns.into(), 1.0, after).unwrap()
}

fn preparation(id: &str, params: PreparationParams) -> Study {
    Study::preparation(&SERVER.parse().unwrap(), id, params)
}

#[test]
fn a_device_answers_once_and_is_charged_for_both() {
    let folder = Folder::new();
    let mut ledger = Ledger::open(folder.at("device"))
        .unwrap()
        .with_clock(|| NOW);
    ledger.set_limits(limits(4.0, 5.5, 1e-5)).unwrap();
    let first = preparation("first", params(None));
    let taken = ledger.participate(&first, &row(1.0)).unwrap();
    assert!(matches!(
        &taken,
        Participation::New {
            local_warning: None,
            ..
        }
    ));
    let body = ledger.request(taken.entry()).unwrap().body;
    assert_eq!(body.len(), 62);
    let format = ReportFormat::of_preparation(&params(None));
    codec::decode_report(&body, &format).unwrap();
    // Made from the bytes that a device ships with it is the same study.
    let (bytes, pinned) = (params(None).canonical_bytes(), params(None).fingerprint());
    let shipped = Study::from_canonical(&SERVER.parse().unwrap(), "first", &bytes, pinned);
    let again = ledger.participate(&shipped.unwrap(), &row(3.0)).unwrap();
    assert_eq!(again.entry().study(), "first");
    // The same bytes, whatever the row is then.
    let again = ledger.participate(&first, &row(7.0)).unwrap();
    assert_eq!(ledger.request(again.entry()).unwrap().body, body);
    // Nobody answers in both rounds; a round of another preparation is another study.
    let second = preparation("second", params(Some(params(None).fingerprint())));
    let error = ledger.participate(&second, &row(1.0)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
    assert_says(&error, &["the device", "study first", "one of the rounds"]);
    let of_another = preparation("another", params(Some(Fingerprint([7; 32]))));
    ledger.participate(&of_another, &row(1.0)).unwrap();
    // 1 + 1 + 4 is beyond the limit of 5.5, 1 + 1 + 3.5 is not.
    let error = ledger
        .participate(&study("main", 4.0), &row(1.0))
        .unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BudgetExceeded));
    ledger.participate(&study("main", 3.5), &row(1.0)).unwrap();
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.spent.epsilon, 5.5);
    let text = receipt.to_string();
    assert_says(
        &text,
        &[
            "randomised-response",
            "charged epsilon 1, delta 0",
            "charged epsilon 3.5",
            "a: number -8 8 may-be-missing",
            "a: number -8 8 within -3 3 may-be-missing",
            "one of them is drawn",
        ],
    );
}

/// In any order: after a second round no first one, of one first round no two second ones, and no copy of a round under
/// another identifier.
#[test]
fn each_person_answers_in_one_of_all_rounds() {
    let after = Some(params(None).fingerprint());
    let rounds = [
        preparation("first", params(None)),
        preparation("copy", params(None)),
        preparation("second", params(after)),
        preparation("other", params_up_to(2.0, after)),
    ];
    for (taken, study) in rounds.iter().enumerate() {
        let folder = Folder::new();
        let device = || {
            let ledger = Ledger::open(folder.at("device"));
            ledger.unwrap().with_clock(|| NOW)
        };
        device().participate(study, &row(1.0)).unwrap();
        let mut table = RowLedger::open(folder.at("rows"))
            .unwrap()
            .with_clock(|| NOW);
        let two = rows(&table, 2);
        let report = |number: u64, now| study.report(&row(number as f64), now);
        let go_on = |_| ControlFlow::Continue(());
        table.prepare(study, &two, report, go_on).unwrap();
        for (at, round) in rounds.iter().enumerate() {
            let request = UploadRequest::default();
            for answer in [
                device().participate(round, &row(1.0)).map(drop),
                table.admit_upload(round, &two, &request).map(drop),
            ] {
                let refused = answer.err().and_then(|error| error.code());
                let expected = (at != taken).then_some(ErrorCode::AlreadyParticipated);
                assert_eq!(refused, expected, "{at} after {taken}");
            }
        }
    }
}

/// A cell that is missing, infinite or far off, and a row of nothing, are answered for like any other; nothing tells.
#[test]
fn no_row_is_told_from_another() {
    let study = preparation("first", params(None));
    for values in [[f64::NAN; 5], [f64::INFINITY; 5], [1e300; 5], [0.0; 5]] {
        let prepared = study.report(&Row::new(values.into()), NOW).unwrap();
        assert!(prepared.local_warning().is_none());
        assert_eq!(prepared.report().payload.len(), 4);
    }
    // Also of persons, of whom one row is drawn, and of those without any.
    study.report_one_of(&[row(1.0), row(2.0)], NOW).unwrap();
    study.report_one_of(&[], NOW).unwrap();
    let error = study.report(&Row::new(vec![1.0; 4]), NOW).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
    let error = study.report_weighted(&row(1.0), 0.5, NOW).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidPreprocessing));
}

#[test]
fn rows_of_the_first_round_leave_the_second_one_to_others() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows"))
        .unwrap()
        .with_clock(|| NOW);
    let first = preparation("first", params(None));
    let second = preparation("second", params(Some(params(None).fingerprint())));
    let go_on = |_| ControlFlow::Continue(());
    let report = |study: Study| move |number: u64, now| study.report(&row(number as f64), now);
    let four = rows(&ledger, 4);
    ledger
        .prepare(&first, &four, report(first.clone()), go_on)
        .unwrap();
    let six = rows(&ledger, 6);
    let request = UploadRequest::default();
    let error = ledger.admit_upload(&second, &six, &request).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
    assert_says(&error, &["rows 1 to 4", "study first"]);
    // What was given up stays charged.
    ledger.give_up("first").unwrap();
    let error = ledger.admit_upload(&second, &six, &request).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
    // Others may.
    let mut others = RowLedger::open(folder.at("others"))
        .unwrap()
        .with_clock(|| NOW);
    let six = rows(&others, 6);
    others
        .prepare(&second, &six, report(second.clone()), go_on)
        .unwrap();
    assert_eq!(others.receipt().unwrap().spent.epsilon, 1.0);
}
