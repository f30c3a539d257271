//! What the ledger promises while nothing is killed (`client/tests/client/ledger_crash.rs` kills).

use std::{fs, path::PathBuf};

use eigenveil_client::{EntryState, Ledger, Participation, Request, Result, Study};
use eigenveil_shared::{
    ErrorCode,
    about::StudyNotice,
    codec,
    enrolment::{ENROLLED_REPORT_MEDIA_TYPE, ParticipantToken},
    mechanism::MechanismKind,
    preprocess::{Row, Weights},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

use crate::{
    common::{
        ACCEPTED, NOW, PAYLOAD_LEN, STUDY, assert_says, assert_survives_json, limits, params, row,
        study, study_of, with_refusal,
    },
    files::{Folder, acknowledge, entry_of, participate, refuse},
};

fn new_ledger() -> (Folder, PathBuf, Ledger) {
    let folder = Folder::new();
    let path = folder.at("ledger");
    let ledger = Ledger::open(&path).unwrap().with_clock(|| NOW);
    (folder, path, ledger)
}

fn code_of(ledger: &mut Ledger, study: &Study) -> Option<ErrorCode> {
    let refused = ledger.participate(study, &row(1.0));
    refused.unwrap_err().code()
}

#[test]
fn a_second_participation_gives_the_very_same_report() {
    let (_folder, path, mut ledger) = new_ledger();
    let one = study(STUDY, 1.0);
    let first = participate(&mut ledger, &one);
    assert!(first.is_new());
    let entry = first.entry().clone();
    assert_eq!((entry.server(), entry.study()), (one.server(), STUDY));
    let request = ledger.request(&entry).unwrap();
    assert_eq!(request.reports(), [entry.report()]);
    for _ in 0..3 {
        // Another row, also one that could not be prepared: it is not looked at.
        for other in [row(2.0), row(f64::NAN), Row::new(vec![1.0])] {
            let again = ledger.participate(&one, &other).unwrap();
            assert_eq!(again, Participation::Known(entry.clone()));
        }
        assert_eq!(ledger.pending().unwrap(), std::slice::from_ref(&entry));
        let again = ledger.request(&entry).unwrap();
        assert_eq!((&again.url, &again.body), (&request.url, &request.body));
        assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
        drop(ledger);
        ledger = Ledger::open(&path).unwrap();
    }

    ledger.settle(&request, &ACCEPTED).unwrap();
    // Harmless when repeated, and final.
    ledger.settle(&request, &ACCEPTED).unwrap();
    with_refusal("malformed-report", "too late", |response| {
        ledger.settle(&request, response).unwrap();
    });
    for _ in 0..2 {
        let after = participate(&mut ledger, &one);
        assert!(!after.is_new());
        assert_eq!(after.entry().state(), &EntryState::Acknowledged);
        assert_eq!(after.entry().report(), entry.report());
        assert!(ledger.pending().unwrap().is_empty());
        assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
        drop(ledger);
        ledger = Ledger::open(&path).unwrap();
    }
}

#[test]
fn limits_hold_and_stay() {
    let (_folder, path, mut ledger) = new_ledger();
    // Room for the 2⁻²⁰ that double-cap costs besides.
    assert_eq!(ledger.limits().unwrap(), limits(8.001, 16.01, 1e-5));
    let lowered = limits(8.0, 12.0, 1e-5);
    ledger.set_limits(lowered).unwrap();
    participate(&mut ledger, &study("a", 8.0));
    drop(ledger);
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.limits().unwrap(), lowered);
    let refused = Some(ErrorCode::BudgetExceeded);
    let above = study("b", 4.0_f64.next_up());
    assert_eq!(code_of(&mut ledger, &above), refused);
    participate(&mut ledger, &study("b", 4.0));
    assert_eq!(ledger.spent().unwrap().epsilon, 12.0);
    assert_eq!(ledger.receipt().unwrap().remaining.epsilon, 0.0);
    // Below what is spent: nothing more, but what there is stays and is given.
    ledger.set_limits(limits(0.0, 0.0, 0.0)).unwrap();
    assert_eq!(code_of(&mut ledger, &study("c", 0.5)), refused);
    assert!(!participate(&mut ledger, &study("a", 8.0)).is_new());
    assert_eq!(ledger.pending().unwrap().len(), 2);
}

#[test]
fn a_row_that_cannot_be_prepared_is_charged_and_sent() {
    let (_folder, _, mut ledger) = new_ledger();
    let taken = ledger.participate(&study(STUDY, 1.0), &row(f64::NAN));
    let Ok(Participation::New {
        entry,
        local_warning,
    }) = taken
    else {
        panic!("{taken:?}");
    };
    assert_eq!(local_warning.unwrap().code(), ErrorCode::RowNotFinite);
    let body = ledger.request(&entry).unwrap().body;
    assert_eq!(body.len(), codec::report_len(PAYLOAD_LEN));
    assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
    // The program's mistake is not charged: its row says nothing.
    let other = study("b", 1.0);
    let error = ledger.participate(&other, &Row::new(vec![1.0]));
    let code = error.unwrap_err().code();
    assert_eq!(code, Some(ErrorCode::WrongDimension));
    assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
    // The limit comes before the row: of two reasons to refuse it is the one that says nothing of it.
    ledger.set_limits(limits(0.5, 9.0, 1e-5)).unwrap();
    for row in [row(1.0), row(f64::NAN), Row::new(vec![1.0])] {
        let error = ledger.participate(&other, &row).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BudgetExceeded));
    }
}

#[test]
fn a_device_takes_part_with_a_weight_where_a_study_has_them_and_as_a_person_elsewhere() {
    let (_folder, _, mut ledger) = new_ledger();
    let budget = Budget::approximate(1.0, 1e-6).unwrap();
    let design = StudyDesign {
        weights: Some(Weights::default()),
        ..StudyDesign::new(MechanismKind::DiscreteGaussian, 5, budget)
    };
    let weighted = study_of(STUDY, StudyParams::freeze(design).unwrap());
    let other = study("b", 1.0);
    let rows = [row(1.0), row(2.0)];
    let plain = ledger.participate(&weighted, &rows[0]);
    let person = ledger.participate_as_person(&weighted, &rows);
    for refused in [plain, person] {
        assert_eq!(refused.unwrap_err().name(), "usage");
    }
    let refused = ledger.participate_weighted(&other, &rows[0], 0.5);
    let code = refused.unwrap_err().code();
    assert_eq!(code, Some(ErrorCode::InvalidPreprocessing));
    assert!(ledger.receipt().unwrap().studies.is_empty());
    let taken = ledger.participate_weighted(&weighted, &rows[0], 0.5);
    assert!(taken.unwrap().is_new());
    // Known: the row is not looked at.
    assert!(!ledger.participate(&weighted, &rows[0]).unwrap().is_new());
    let taken = ledger.participate_as_person(&other, &rows);
    assert!(taken.unwrap().is_new());
    let studies = ledger.receipt().unwrap().studies;
    let neighbours = studies.iter().map(|study| &study.record.neighbours);
    let of_persons = neighbours.map(|text| text.contains("of one person"));
    assert!(of_persons.eq([false, true]));
}

#[test]
fn a_charge_survives_refusal() {
    let (_folder, path, mut ledger) = new_ledger();
    let one = study(STUDY, 1.0);
    let entry = participate(&mut ledger, &one).entry().clone();
    let request = ledger.request(&entry).unwrap();
    refuse(
        &mut ledger,
        &entry,
        "payload-not-finite",
        &"é".repeat(5_000),
    );
    // Refused is not pending: what comes later changes nothing.
    refuse(&mut ledger, &entry, "malformed-report", "again");
    ledger.settle(&request, &ACCEPTED).unwrap();
    drop(ledger);
    let mut ledger = Ledger::open(&path).unwrap();
    let again = participate(&mut ledger, &one);
    let EntryState::Refused { code, detail } = again.entry().state() else {
        panic!("{again:?}");
    };
    assert!(!again.is_new());
    assert_eq!(again.entry().report(), entry.report());
    assert_eq!(code, "payload-not-finite");
    assert_eq!(detail.chars().count(), 1_000);
    assert!(ledger.pending().unwrap().is_empty());
    assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
    // The server's mistake is made good with the same bytes and no second charge.
    assert_eq!(ledger.requeue_refused().unwrap(), 1);
    assert_eq!(ledger.requeue_refused().unwrap(), 0);
    assert_eq!(participate(&mut ledger, &one), Participation::Known(entry));
    let pending = ledger.pending().unwrap().remove(0);
    assert_eq!(ledger.request(&pending).unwrap().body, request.body);
    assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
}

#[test]
fn a_report_that_is_given_up_is_never_sent_and_stays_charged() {
    let (_folder, path, mut ledger) = new_ledger();
    let one = study(STUDY, 1.0).with_info("sleep", StudyNotice::default());
    let entry = participate(&mut ledger, &one).entry().clone();
    let request = ledger.request(&entry).unwrap();
    let done = ledger.give_up("sleep").unwrap();
    assert_eq!((done.given_up, done.acknowledged), (1, 0));
    let words = [
        STUDY,
        "1 report,",
        "stays (epsilon 1,",
        "may have one already",
    ];
    assert_says(&done, &words);
    // An entry that was read before makes no request any more.
    assert_says(ledger.request(&entry).unwrap_err(), &["was given up"]);
    for _ in 0..2 {
        assert!(ledger.pending().unwrap().is_empty());
        assert!(!participate(&mut ledger, &one).is_new());
        assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
        assert_eq!(ledger.give_up(&STUDY[..8]).unwrap(), done);
        let receipt = ledger.receipt().unwrap();
        assert_says(&receipt, &["given up, and never sent again"]);
        assert_survives_json(&receipt);
        drop(ledger);
        ledger = Ledger::open(&path).unwrap();
    }
    // The response to a request that was under way.
    ledger.settle(&request, &ACCEPTED).unwrap();
    let done = ledger.give_up(STUDY).unwrap();
    assert_eq!((done.given_up, done.acknowledged), (0, 1));
    assert_says(done, &["nothing to give up", "1 report"]);
}

#[test]
fn the_file_itself_refuses_to_forget() {
    let (_folder, path, mut ledger) = new_ledger();
    let taken = participate(&mut ledger, &study("a", 1.0));
    participate(&mut ledger, &study("b", 1.0));
    acknowledge(&mut ledger, taken.entry());
    participate(&mut ledger, &study("given up", 1.0));
    ledger.give_up("given up").unwrap();
    drop(ledger);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let refuses = |statement: &str| {
        let done = connection.execute(statement, []);
        assert!(done.is_err(), "{statement}: {done:?}");
    };
    [
        "DELETE FROM record",
        "DELETE FROM record WHERE key = 'head'",
        "UPDATE record SET key = 'entry/4' WHERE key = 'entry/2'",
        "UPDATE payload SET value = zeroblob(60)",
        "DELETE FROM payload",
        // A second entry of a study.
        "INSERT INTO record (key, value) SELECT 'entry/4', value FROM record WHERE study = 'b'",
    ]
    .into_iter()
    .for_each(refuses);
    for (key, at, value) in [
        ("entry/1", "state", "'owed'"),
        ("entry/1", "state", "'given-up'"),
        ("entry/3", "state", "'owed'"),
        ("entry/2", "charge.epsilon", "0.1"),
        ("entry/2", "study", "'c'"),
        ("entry/2", "report", "'0123456789abcdef0123456789abcdef'"),
        ("entry/2", "about.purpose", "'another'"),
        ("entry/2", "canonical_params", "'00'"),
    ] {
        refuses(&set(key, at, value));
    }
    // Only its state, its token and its addresses change.
    connection
        .execute(&set("entry/2", "state", "'acknowledged'"), [])
        .unwrap();
}

/// A statement that changes a member of a record.
fn set(key: &str, at: &str, value: &str) -> String {
    format!(
        "UPDATE record SET value = CAST(json_set(CAST(value AS TEXT), '$.{at}', {value}) AS BLOB) WHERE key = '{key}'"
    )
}

fn requests(ledger: &Ledger) -> Result<Vec<Request>> {
    let pending = ledger.pending()?;
    pending.iter().map(|entry| ledger.request(entry)).collect()
}

#[test]
fn a_charge_that_is_no_number_and_a_lost_report_are_noticed() {
    let (_folder, path, mut ledger) = new_ledger();
    for name in ["a", "b", "c"] {
        participate(&mut ledger, &study(name, 1.0));
    }
    drop(ledger);
    let whole = fs::read(&path).unwrap();
    // Found before anything is sent.
    let edit = |statement: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(&format!(
                "DROP TRIGGER entries_are_fixed; DROP TRIGGER pending_reports_stay;
                 DROP TRIGGER reports_stay; {statement}"
            ))
            .unwrap();
        drop(connection);
        let requests = Ledger::open(&path).and_then(|ledger| requests(&ledger));
        assert_says(requests.unwrap_err(), &["damaged"]);
        fs::write(&path, &whole).unwrap();
    };
    edit(&set("entry/2", "charge.epsilon", "-1"));
    edit(&set("entry/2", "charge.delta", "2"));
    edit(&set("head", "limits.epsilon_total", "9e999"));
    edit("DELETE FROM payload WHERE key = 'payload/2'");
    edit("UPDATE payload SET value = zeroblob(7) WHERE key = 'payload/2'");
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(requests(&ledger).unwrap().len(), 3);
}

const TEXT: &str = "\
This device took part in 3 studies.

                   spent    remaining        limit
  epsilon            5.5        10.51        16.01
  delta             3e-6         7e-6         1e-5

One study may cost epsilon 8.001 at most. Costs add up, whoever runs the studies.

1. 2026-03-14  study 1111 at http://localhost:8080
   one row of 5 numbers, perturbed by discrete-gaussian
   charged epsilon 1, delta 1e-6 (replacement: any two rows the participant might hold)
   Whatever the server believed about two possible rows of a participant, one report changes the odds between them by a factor of at most 2.72, except with probability 2.8e-5.
   report ID-1: the server has it
TOLD
   claimed      epsilon 1, delta 1e-6
   fingerprint  8a93e41da2f5e98c423d43f3927919d1a661abac6d54c9c72907b609bdacf51b

2. 2026-03-14  study 2222 at http://localhost:8080
   one row of 5 numbers, perturbed by discrete-gaussian
   charged epsilon 0.5, delta 1e-6 (replacement: any two rows the participant might hold)
   Whatever the server believed about two possible rows of a participant, one report changes the odds between them by a factor of at most 1.65, except with probability 5.8e-5.
   report ID-2: refused by the server (payload-not-finite: entry 3 is not a  [31mnumber); charged all the same, since it may have been seen
TOLD
   claimed      epsilon 0.5, delta 1e-6
   fingerprint  a48dffbf0784fcc7f8b0a1d97623482627937e8838002755cba01939bdb2de01

3. 2026-03-14  study 3333 at http://localhost:8080
   one row of 5 numbers, perturbed by discrete-gaussian
   charged epsilon 4, delta 1e-6 (replacement: any two rows the participant might hold)
   Whatever the server believed about two possible rows of a participant, one report changes the odds between them by a factor of at most 55, except with probability 6.8e-6.
   report ID-3: not yet known to have arrived
TOLD
   claimed      epsilon 4, delta 1e-6
   fingerprint  81a6e59e0103e941b4c5d6fa369c889d2cee6a77817f6f4ec0313c08c07a1c7b
";

const TOLD: &str = "   name         not stated
   purpose      not stated
   responsible  not stated
   contact      not stated
   last day     not stated
   norm         normalize: each row divided by its length
   centring     none
   features     5 unnamed numbers, used unchanged";

#[test]
fn the_receipt_is_a_text_a_person_can_read_and_survives_json() {
    let (_folder, _, mut ledger) = new_ledger();
    assert_says(ledger.receipt().unwrap(), &["took part in no study"]);
    let studies = [("1111", 1.0), ("2222", 0.5), ("3333", 4.0)];
    let entries = studies.map(|(name, epsilon)| {
        let taken = participate(&mut ledger, &study(name, epsilon));
        taken.entry().clone()
    });
    acknowledge(&mut ledger, &entries[0]);
    let detail = "entry 3 is\nnot a \u{1b}[31mnumber";
    refuse(&mut ledger, &entries[1], "payload-not-finite", detail);
    let receipt = ledger.receipt().unwrap();
    let mut text = receipt.to_string();
    for (number, entry) in (1..).zip(&entries) {
        text = text.replace(&entry.report().to_string(), &format!("ID-{number}"));
    }
    assert_eq!(text, TEXT.replace("TOLD", TOLD), "\n{text}");

    assert_survives_json(&receipt);
    let json = serde_json::to_value(&receipt).unwrap();
    assert_eq!(json["limits"]["epsilon_total"], 16.01);
    assert_eq!(json["spent"]["epsilon"], 5.5);
    assert!((json["remaining"]["epsilon"].as_f64().unwrap() - 10.51).abs() < 1e-12);
    let studies = json["studies"].as_array().unwrap();
    assert_eq!(studies[0]["state"], "acknowledged");
    assert_eq!(studies[1]["state"]["refused"]["code"], "payload-not-finite");
    assert_eq!(studies[2]["state"], "owed");
    assert_eq!(studies[2]["report"], entries[2].report().to_string());
    assert_eq!(studies[2]["charged"]["delta"], 1e-6);
    let fingerprint = params(4.0).fingerprint().to_string();
    assert_eq!(studies[2]["fingerprint"], fingerprint);
}

#[test]
fn a_token_stays_with_its_report_until_it_is_acknowledged() {
    let (_folder, path, mut ledger) = new_ledger();
    let token = |byte| ParticipantToken::from_bytes([byte; 32]);
    let error = ledger.set_token(STUDY, &token(1)).unwrap_err();
    assert_says(error, &["no study that the device took part in"]);
    let taken = participate(&mut ledger, &study(STUDY, 1.0));
    let report = ledger.request(taken.entry()).unwrap().body;
    // The same report, behind the token.
    let assert_sent_with = |ledger: &Ledger, byte: u8| {
        let pending = ledger.pending().unwrap().remove(0);
        let request = ledger.request(&pending).unwrap();
        let of_type = ("content-type", ENROLLED_REPORT_MEDIA_TYPE.to_owned());
        assert!(request.headers.contains(&of_type), "{:?}", request.headers);
        assert_eq!(request.body, [&[byte; 32], &report[..]].concat());
        assert!(!format!("{pending:?} {request:?}").contains("01010101"));
    };
    assert!(ledger.set_token(STUDY, &token(1)).unwrap());
    drop(ledger);
    let mut ledger = Ledger::open(&path).unwrap();
    assert_sent_with(&ledger, 1);
    // Refused for its token, another one makes it good.
    let entry = entry_of(&ledger, STUDY);
    refuse(&mut ledger, &entry, "participant-token-unknown", "no such");
    assert!(ledger.pending().unwrap().is_empty());
    assert!(ledger.set_token(STUDY, &token(2)).unwrap());
    assert_sent_with(&ledger, 2);
    // Refused for another reason: it does not.
    refuse(&mut ledger, &entry, "implausible-report", "too large");
    assert!(ledger.set_token(STUDY, &token(3)).unwrap());
    assert!(ledger.pending().unwrap().is_empty());
    ledger.requeue_refused().unwrap();
    assert_sent_with(&ledger, 3);
    acknowledge(&mut ledger, &entry);
    assert!(!ledger.set_token(STUDY, &token(4)).unwrap());
}
