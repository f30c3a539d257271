//! What a ledger of rows promises while nothing is killed (`client/tests/client/row_ledger_crash.rs` kills;
//! `tests/tests/system/row_ledger.rs` has the program).

use std::{collections::BTreeMap, fs, ops::ControlFlow, path::PathBuf, sync::Mutex};

use eigenveil_client::{
    Error, Ledger, PendingReport, Prepared, ReportResult, RowCounts, RowLedger, Study,
    UploadRequest,
};
use eigenveil_shared::{
    Error as SharedError, ErrorCode, enrolment::ParticipantToken, report::Report,
};
use rusqlite::Connection;

use crate::{
    common::{
        self, NOW, SERVER, STUDY, assert_says, assert_survives_json, limits, row, study, study_at,
    },
    files::{Folder, prepare, prepared, rows},
};

/// A ledger with reports of this many rows of the study.
pub(crate) fn ledger_of(count: u64) -> (Folder, PathBuf, RowLedger, Study) {
    let folder = Folder::new();
    let (path, study) = (folder.at("rows"), study(STUDY, 1.0));
    let ledger = prepared(&path, &study, count);
    (folder, path, ledger, study)
}

pub(crate) fn pending(ledger: &RowLedger, study: &Study) -> Vec<PendingReport> {
    ledger.pending(study, 0, usize::MAX).unwrap()
}

pub(crate) fn accept(ledger: &mut RowLedger, study: &Study, rows: &[u64]) -> usize {
    let results = rows.iter().map(|row| (*row, ReportResult::Accepted));
    ledger.record(study, results).unwrap()
}

pub(crate) fn refuse(
    ledger: &mut RowLedger,
    study: &Study,
    row: u64,
    code: &str,
    detail: &str,
) -> usize {
    let (code, detail) = (code.to_owned(), detail.to_owned());
    let refused = ReportResult::Refused { code, detail };
    ledger.record(study, [(row, refused)]).unwrap()
}

#[test]
fn bytes_stay_the_same_over_reads_and_restarts() {
    let folder = Folder::new();
    let (path, one) = (folder.at("rows"), study(STUDY, 1.0));
    let mut ledger = RowLedger::open(&path).unwrap().with_clock(|| NOW);
    let file = rows(&ledger, 4);
    let reports = Mutex::new(BTreeMap::<u64, Report>::new());
    let report = |number: u64, now| {
        assert_eq!(now, NOW);
        let prepared = one.report(&row(number as f64), now)?;
        let again = reports
            .lock()
            .unwrap()
            .insert(number, prepared.report().clone());
        assert_eq!(again, None);
        Ok::<_, Error>(prepared)
    };
    let go_on = |_| ControlFlow::Continue(());
    let first = ledger.prepare(&one, &file, report, go_on).unwrap();
    assert_eq!((first.rows, first.unusable, first.stopped), (4, 0, false));
    let before = pending(&ledger, &one);
    let of_rows = before
        .iter()
        .map(|before| (before.row, before.report.clone()));
    assert_eq!(
        of_rows.collect::<BTreeMap<_, _>>(),
        *reports.lock().unwrap()
    );
    assert_eq!(ledger.receipt().unwrap().studies[0].day, "2026-03-14");

    // Again, and after each of a report's ends: the row is not even looked at.
    for _ in 0..3 {
        drop(ledger);
        ledger = RowLedger::open(&path).unwrap();
        let again = ledger.prepare(&one, &file, report, go_on).unwrap();
        assert_eq!(again, Prepared::default());
        let left = pending(&ledger, &one);
        assert_eq!(left, before[4 - left.len()..]);
        let half = left.len() / 2;
        assert_eq!(ledger.pending(&one, 0, half).unwrap(), left[..half]);
        assert_eq!(ledger.pending(&one, 3, 9).unwrap(), before[3..]);
        match left.len() {
            4 => assert_eq!(accept(&mut ledger, &one, &[0]), 1),
            3 => assert_eq!(refuse(&mut ledger, &one, 1, "malformed-report", "no"), 1),
            _ => {}
        }
    }
}

#[test]
fn acknowledged_reports_are_gone_and_refused_ones_can_come_back() {
    let (_folder, path, mut ledger, one) = ledger_of(4);
    let all = pending(&ledger, &one);
    assert_eq!(accept(&mut ledger, &one, &[0, 2, 99]), 2);
    // Repeating is harmless, and nothing is known of what is pending.
    assert_eq!(accept(&mut ledger, &one, &[0, 2]), 0);
    let none = ledger.record(&one, [(3, ReportResult::Pending)]);
    assert_eq!(none.unwrap(), 0);
    let detail = "x".repeat(5_000);
    let code = "payload-not-finite";
    assert_eq!(refuse(&mut ledger, &one, 1, code, &detail), 1);
    assert_eq!(refuse(&mut ledger, &one, 0, code, "too late"), 0);
    // Refused is not pending.
    assert_eq!(accept(&mut ledger, &one, &[1]), 0);
    let counts = RowCounts {
        pending: 1,
        acknowledged: 2,
        refused: 1,
        given_up: 0,
    };
    assert_eq!(ledger.counts(&one).unwrap(), counts);
    assert_eq!(counts.total(), 4);
    drop(ledger);

    let mut ledger = RowLedger::open(&path).unwrap();
    assert_eq!(ledger.counts(&one).unwrap(), counts);
    assert_eq!(pending(&ledger, &one), all[3..]);
    let refused = ledger.refused(&one, 10).unwrap();
    assert_eq!((refused.len(), refused[0].row), (1, 1));
    assert_eq!(refused[0].id, all[1].report.id);
    assert_eq!(refused[0].code, code);
    assert_eq!(refused[0].detail.len(), 1_000);
    // Another study's are its own.
    let two = study("two", 1.0);
    assert_eq!(ledger.requeue_refused(&two).unwrap(), 0);
    assert_eq!(ledger.requeue_refused(&one).unwrap(), 1);
    let back = pending(&ledger, &one);
    assert_eq!(back, [all[1].clone(), all[3].clone()], "the same bytes");
    assert_eq!(ledger.counts(&one).unwrap().refused, 0);
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 1.0);
}

#[test]
fn reports_that_are_given_up_are_never_sent_and_stay_charged() {
    let (_folder, path, mut ledger, one) = ledger_of(4);
    let two = study("two", 1.0);
    let file = rows(&ledger, 4);
    prepare(&mut ledger, &two, &file).unwrap();
    let before = pending(&ledger, &two);
    accept(&mut ledger, &one, &[0]);
    refuse(&mut ledger, &one, 1, "token-spent", "spent");
    ledger.set_tokens(&one, [(2, &token(1))]).unwrap();
    let done = ledger.give_up(STUDY).unwrap();
    assert_eq!((done.given_up, done.acknowledged), (3, 1));
    let words = [STUDY, "3 reports,", "stays (epsilon 1,", "1 report"];
    assert_says(&done, &words);
    let counts = RowCounts {
        acknowledged: 1,
        given_up: 3,
        ..RowCounts::default()
    };
    for _ in 0..2 {
        assert_eq!(ledger.counts(&one).unwrap(), counts);
        assert!(pending(&ledger, &one).is_empty());
        // Neither made again nor brought back; another study's are its own.
        assert_eq!(prepare(&mut ledger, &one, &file).unwrap().rows, 0);
        assert_eq!(ledger.requeue_refused(&one).unwrap(), 0);
        assert_eq!(ledger.set_tokens(&one, [(1, &token(2))]).unwrap(), 0);
        assert_eq!(ledger.give_up(&STUDY[..8]).unwrap(), done);
        assert_eq!(pending(&ledger, &two), before);
        let receipt = ledger.receipt().unwrap();
        assert_eq!(
            (receipt.studies[0].given_up, receipt.spent.epsilon),
            (3, 2.0)
        );
        assert_says(&receipt, &["given up: 3 reports"]);
        assert_survives_json(&receipt);
        drop(ledger);
        let connection = Connection::open(&path).unwrap();
        let back = connection.execute("UPDATE report SET state = 0 WHERE state = 3", []);
        assert!(back.is_err(), "{back:?}");
        drop(connection);
        ledger = RowLedger::open(&path).unwrap();
    }
    // A response to what was under way: a refusal is no news, that the server has one is.
    assert_eq!(refuse(&mut ledger, &one, 2, "malformed-report", "no"), 0);
    accept(&mut ledger, &one, &[3]);
    let done = ledger.give_up(STUDY).unwrap();
    assert_eq!((done.given_up, done.acknowledged), (2, 2));
    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    let error = ledger.give_up("nothing").unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::StudyNotFound));
}

#[test]
fn an_identifier_is_one_study_whatever_the_address_or_the_parameters() {
    let (_folder, _, mut ledger, one) = ledger_of(2);
    let file = rows(&ledger, 2);
    let asked = UploadRequest::default();
    let admitted = |study| ledger.admit_upload(study, &file, &asked);
    let changed = study(STUDY, 2.0);
    for error in [
        admitted(&changed).unwrap_err(),
        ledger.pending(&changed, 0, 9).unwrap_err(),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    }
    let slash = study_at(&format!("{SERVER}/"), STUDY, common::params(1.0));
    admitted(&slash).unwrap();
    // A report of other parameters is refused, and with it the whole write.
    let two = study("two", 1.0);
    let mixed = |number: u64, now| match number {
        1 => changed.report(&row(1.0), now),
        _ => two.report(&row(0.0), now),
    };
    let error = ledger.prepare(&two, &file, mixed, |_| ControlFlow::Continue(()));
    let code = error.unwrap_err().code();
    assert_eq!(code, Some(ErrorCode::WrongFingerprint));
    assert_eq!(ledger.counts(&two).unwrap().total(), 0);
    assert_eq!(ledger.counts(&one).unwrap().total(), 2);
    let receipt = ledger.receipt().unwrap();
    assert_eq!((receipt.studies.len(), receipt.spent.epsilon), (1, 1.0));
}

#[test]
fn preparing_that_was_broken_off_goes_on_without_changing_what_there_is() {
    let folder = Folder::new();
    let one = study(STUDY, 1.0);
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let file = rows(&ledger, 3_000);
    // Each tenth row cannot be prepared, and is sent like the others.
    let report = |number: u64, now| {
        let unusable = number.is_multiple_of(10);
        one.report(&row(if unusable { f64::NAN } else { 1.0 }), now)
    };
    let at_once = ledger.prepare(&one, &file, report, |_| ControlFlow::Break(()));
    let at_once = at_once.unwrap();
    assert_eq!((at_once.rows, at_once.stopped), (0, true));
    assert_eq!(ledger.receipt().unwrap().studies, []);

    let later = |done| match done {
        0..2_000 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let first = ledger.prepare(&one, &file, report, later).unwrap();
    assert!(first.stopped && (1..2_000).contains(&first.rows));
    let charged = |ledger: &RowLedger| ledger.receipt().unwrap().studies[0].rows;
    let kept = pending(&ledger, &one);
    assert_eq!(kept.len() as u64, first.rows);
    assert_eq!(charged(&ledger), first.rows);

    let failing = |number: u64, now| match number {
        2_999 => Err(SharedError::new(ErrorCode::RowNotFinite, "the file ends here").into()),
        _ => report(number, now),
    };
    let go_on = |_| ControlFlow::Continue(());
    let failed = ledger.prepare(&one, &file, failing, go_on);
    assert_eq!(failed.unwrap_err().detail(), "the file ends here");
    let counts = ledger.counts(&one).unwrap();
    assert!(counts.total() < 3_000 && counts.total() == charged(&ledger));
    let before = pending(&ledger, &one);
    assert_eq!(before[..kept.len()], kept);

    let rest = ledger.prepare(&one, &file, report, go_on).unwrap();
    assert_eq!(rest.rows, 3_000 - counts.total());
    assert!(rest.unusable > 0 && !rest.stopped);
    assert_eq!(charged(&ledger), 3_000);
    let all = pending(&ledger, &one);
    assert_eq!(all[..before.len()], before);
    assert!(all.iter().map(|report| report.row).eq(0..3_000));
}

#[test]
fn rows_that_took_part_in_different_studies_have_their_own_limits() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let mut ledger = RowLedger::open(&path).unwrap();
    ledger.set_limits(limits(4.0, 6.0, 1e-4)).unwrap();
    let [ten, four, twelve] = [10, 4, 12].map(|count| rows(&ledger, count));
    let (a, b, c) = (study("a", 2.0), study("b", 3.0), study("c", 2.0));
    assert_eq!(prepare(&mut ledger, &a, &ten).unwrap().rows, 10);
    assert_eq!(prepare(&mut ledger, &a, &ten).unwrap().rows, 0);
    assert_eq!(prepare(&mut ledger, &b, &four).unwrap().rows, 4);
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.spent.epsilon, 5.0);
    let rows: Vec<u64> = receipt.studies.iter().map(|study| study.rows).collect();
    assert_eq!(rows, [10, 4]);
    // Rows 1 to 4 have spent 5, 5 to 10 have spent 2, 11 and 12 nothing: for another 2 the first are in the way, for
    // all rows together.
    let refused = prepare(&mut ledger, &c, &twelve).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::BudgetExceeded));
    assert_says(refused, &["rows 1 to 4:"]);
    // Who has taken part in the study already needs no room for it.
    ledger.set_limits(limits(0.0, 0.0, 0.0)).unwrap();
    assert_eq!(prepare(&mut ledger, &b, &four).unwrap().rows, 0);
    ledger.set_limits(limits(4.0, 7.0, 1e-4)).unwrap();
    let asked = UploadRequest::default();
    let admitted = ledger.admit_upload(&c, &twelve, &asked).unwrap();
    assert_eq!(admitted.cost.epsilon(), 2.0);
    assert_eq!(prepare(&mut ledger, &c, &twelve).unwrap().rows, 12);
    let receipt = ledger.receipt().unwrap();
    assert_eq!(receipt.remaining.epsilon, 0.0);
    assert_survives_json(&receipt);
    // Durable, and no ledger of a device.
    drop(ledger);
    drop(Ledger::open(folder.at("device")).unwrap());
    assert!(RowLedger::is_at(&path) && !RowLedger::is_at(folder.at("device")));
    let ledger = RowLedger::open_existing(&path).unwrap();
    assert_eq!(ledger.receipt().unwrap(), receipt);
}

#[test]
fn another_file_or_another_reading_of_it_is_told() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let bytes = b"1,2\n3,4\n5,6\n7,8\n";
    let (one, two) = (study("one", 1.0), study("two", 1.0));
    let file = ledger.row_file(3, bytes, b"both columns").unwrap();
    assert_eq!(prepare(&mut ledger, &one, &file).unwrap().rows, 3);
    // The same bytes read with a header and without are other participants, one place further.
    let without_header = ledger.row_file(4, bytes, b"both columns").unwrap();
    let error = prepare(&mut ledger, &two, &without_header).unwrap_err();
    assert!(error.is_row_file_mismatch(), "{error}");
    assert_eq!(error.name(), "other-rows");
    // A study has one reading; whoever the rows are.
    let same_people = without_header.assume_same_participants();
    let first_column = ledger.row_file(3, bytes, b"first column").unwrap();
    for other in [&same_people, &first_column] {
        let error = prepare(&mut ledger, &one, other).unwrap_err();
        assert_eq!(error.name(), "rows-changed");
        assert_says(error, &["changed since their reports", "other columns"]);
    }
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 1.0);
    // Another study may have another.
    assert_eq!(prepare(&mut ledger, &two, &first_column).unwrap().rows, 3);
    assert_eq!(prepare(&mut ledger, &one, &file).unwrap().rows, 0);
    let error = ledger.row_file(1 << 40, bytes, b"").unwrap_err();
    assert_says(error, &["fewer than 2^40"]);
}

#[test]
fn the_file_itself_refuses_to_forget_and_holds_no_digest_that_is_the_same_elsewhere() {
    let folder = Folder::new();
    let one = study("one", 1.0);
    let digests = ["a", "b"].map(|name| {
        let mut ledger = prepared(&folder.at(name), &one, 3);
        accept(&mut ledger, &one, &[0]);
        refuse(&mut ledger, &one, 1, "malformed-report", "no");
        drop(ledger);
        let connection = Connection::open(folder.at(name)).unwrap();
        for statement in [
            "DELETE FROM study",
            "UPDATE study SET epsilon = 0.1",
            "DELETE FROM charge",
            "UPDATE charge SET rows = 1",
            "UPDATE charge SET reports_digest = zeroblob(32)",
            // A report outside a charge: another row, another study.
            "INSERT INTO report VALUES ((1 << 40) + 3, zeroblob(16), 0)",
            "INSERT INTO report VALUES (2 << 40, zeroblob(16), 0)",
            "DELETE FROM report",
            "UPDATE report SET id = zeroblob(16)",
            "UPDATE report SET key = key + (1 << 40)",
            "UPDATE report SET state = 0 WHERE state = 1",
            "UPDATE report SET state = 2 WHERE state = 1",
            "UPDATE report SET state = 3 WHERE state = 1",
            // What is pending, what is refused.
            "DELETE FROM payload WHERE key = (1 << 40) + 2",
            "DELETE FROM payload WHERE key = (1 << 40) + 1",
            "UPDATE payload SET bytes = zeroblob(60)",
        ] {
            let done = connection.execute(statement, []);
            assert!(done.is_err(), "{statement}: {done:?}");
        }
        let digests = connection.query_row(
            "SELECT file.digest, reading.digest FROM file, reading",
            [],
            |row| Ok([row.get::<_, Vec<u8>>(0)?, row.get(1)?]),
        );
        digests.unwrap()
    });
    assert_ne!(digests[0][0], digests[1][0]);
    assert_ne!(digests[0][1], digests[1][1]);
    // A charge that is missing is noticed.
    let connection = Connection::open(folder.at("a")).unwrap();
    connection
        .execute_batch("DROP TRIGGER charges_stay; DELETE FROM charge")
        .unwrap();
    drop(connection);
    let error = RowLedger::open(folder.at("a")).unwrap_err();
    assert_says(error, &["damaged"]);
}

#[test]
fn a_cost_that_is_no_number_and_a_report_cut_short_are_noticed() {
    let (_folder, path, ledger, one) = ledger_of(200);
    drop(ledger);
    let whole = fs::read(&path).unwrap();
    let read = || {
        let ledger = RowLedger::open(&path)?;
        ledger.pending(&one, 0, usize::MAX)
    };
    for statement in [
        "UPDATE study SET epsilon = -1",
        "UPDATE limits SET epsilon_total = 9e999",
        "UPDATE payload SET bytes = zeroblob(7) WHERE key = (1 << 40) + 9",
    ] {
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(&format!(
                "PRAGMA ignore_check_constraints = 1; DROP TRIGGER what_studies_cost_stays;
                 DROP TRIGGER payloads_are_fixed; {statement}"
            ))
            .unwrap();
        drop(connection);
        assert_says(read().unwrap_err(), &["damaged"]);
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(read().unwrap().len(), 200);
}

/// Checkpoints write pages in ascending order. Without the log that one was cut off from, a file is as before the change,
/// as after it, or refused.
#[test]
fn a_checkpoint_that_was_cut_off_is_noticed_without_its_log() {
    let (_folder, path, ledger, one) = ledger_of(400);
    drop(ledger);
    let two = study("two", 1.0);
    let seen = || {
        let ledger = RowLedger::open(&path)?;
        let of_studies = [&one, &two].map(|study| {
            let refused = ledger.refused(study, 400);
            (ledger.counts(study), pending(&ledger, study), refused)
        });
        Ok::<_, Error>(format!("{:?} {of_studies:?}", ledger.receipt()))
    };
    let thirds: Vec<u64> = (0..400).step_by(3).collect();
    let changes: [&dyn Fn(&mut RowLedger); 5] = [
        &|ledger| {
            let file = rows(ledger, 400);
            prepare(ledger, &two, &file).unwrap();
        },
        &|ledger| assert_eq!(accept(ledger, &two, &thirds), thirds.len()),
        &|ledger| {
            let refused = |row| {
                let (code, detail) = ("token-spent".to_owned(), "no".to_owned());
                (row, ReportResult::Refused { code, detail })
            };
            ledger.record(&one, (0..400).map(refused)).unwrap();
        },
        &|ledger| assert_eq!(ledger.requeue_refused(&one).unwrap(), 400),
        &|ledger| assert_eq!(ledger.give_up("two").unwrap().given_up, 266),
    ];
    let (mut refused, page) = (0, 4_096);
    for change in changes {
        let (before, was) = (fs::read(&path).unwrap(), seen().unwrap());
        change(&mut RowLedger::open(&path).unwrap());
        let (after, is) = (fs::read(&path).unwrap(), seen().unwrap());
        for cut in (page..after.len()).step_by(page) {
            let torn = [&after[..cut], before.get(cut..).unwrap_or_default()].concat();
            fs::write(&path, torn).unwrap();
            match seen() {
                Ok(found) => assert!(found == was || found == is, "{cut}: {found}"),
                Err(error) => {
                    assert_says(error, &["damaged"]);
                    refused += 1;
                }
            }
        }
        fs::write(&path, &after).unwrap();
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn the_space_of_acknowledged_reports_is_used_again() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let size = |rounds: std::ops::Range<u64>| {
        let mut ledger = RowLedger::open(&path).unwrap();
        ledger.set_limits(limits(1.0, 9.0, 1e-4)).unwrap();
        for round in rounds {
            let study = study(&format!("study {round}"), 0.125);
            let file = rows(&ledger, 500);
            prepare(&mut ledger, &study, &file).unwrap();
            let numbers: Vec<u64> = (0..500).collect();
            assert_eq!(accept(&mut ledger, &study, &numbers), 500);
        }
        drop(ledger);
        fs::metadata(&path).unwrap().len()
    };
    let early = size(0..2);
    let late = size(2..40);
    // What stays is number, identifier and state: below 40 bytes, where a report is over 60.
    assert!(late - early < 38 * 500 * 40, "{early} -> {late}");
}

pub(crate) fn token(byte: u8) -> ParticipantToken {
    ParticipantToken::from_bytes([byte; 32])
}

pub(crate) fn tokens_of(ledger: &RowLedger, study: &Study) -> Vec<(u64, Option<ParticipantToken>)> {
    let pending = pending(ledger, study).into_iter();
    pending
        .map(|pending| (pending.row, pending.token))
        .collect()
}

#[test]
fn a_token_stays_with_its_report_until_it_is_acknowledged() {
    let (_folder, path, mut ledger, one) = ledger_of(4);
    let two = study("two", 1.0);
    // Without a report there is nothing to send it with.
    assert_eq!(ledger.set_tokens(&two, [(1, &token(9))]).unwrap(), 0);
    let given = [(1, &token(1)), (2, &token(2)), (9, &token(9))];
    assert_eq!(ledger.set_tokens(&one, given).unwrap(), 2);
    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    let tokens = [None, Some(token(1)), Some(token(2)), None];
    let expected: Vec<_> = (0..).zip(tokens).collect();
    assert_eq!(tokens_of(&ledger, &one), expected);
    // Refused for its token: another one makes it good. Refused for another reason: it does not.
    refuse(&mut ledger, &one, 1, "token-spent", "spent");
    refuse(&mut ledger, &one, 3, "payload-not-finite", "broken");
    let again = [(1, &token(4)), (3, &token(5))];
    assert_eq!(ledger.set_tokens(&one, again).unwrap(), 2);
    let expected = [(0, None), (1, Some(token(4))), (2, Some(token(2)))];
    assert_eq!(tokens_of(&ledger, &one), expected);
    assert_eq!(ledger.counts(&one).unwrap().refused, 1);
    accept(&mut ledger, &one, &[1]);
    assert_eq!(ledger.set_tokens(&one, [(1, &token(6))]).unwrap(), 0);
    let debug = format!("{:?}", pending(&ledger, &one));
    assert!(debug.contains("ParticipantToken(…)"), "{debug}");
}
