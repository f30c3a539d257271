//! What may become of the file of a ledger while nothing is killed (`client/tests/client/ledger_crash.rs` kills): emptied, moved,
//! linked to, beside the log of another time, of an earlier version.

use std::fs;

use eigenveil_client::{Ledger, Limits, Participant, StudyBinding, TakePart};
use eigenveil_shared::{enrolment::ParticipantToken, preprocess::Row};

use crate::common::{self, params};

const SERVER: &str = "http://localhost:8080";

/// A study of this ε on the server, by name.
fn study(name: &str, epsilon: f64) -> (Participant, StudyBinding) {
    let params = params(epsilon);
    let binding = StudyBinding::new(SERVER, name, &params);
    (Participant::new(params), binding)
}

fn row(first: f64) -> Row {
    Row::new(vec![first, 1.0, 2.0, 3.0, 4.0])
}

fn take_part(
    ledger: &mut Ledger,
    (participant, binding): &(Participant, StudyBinding),
) -> TakePart {
    ledger.take_part(participant, binding, &row(1.0)).unwrap()
}

/// As emptied by somebody else's program, or as the creation of an earlier version left it when it was killed.
#[test]
fn an_existing_file_that_holds_nothing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let no_tables = || {
        rusqlite::Connection::open(&path)
            .unwrap()
            .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .unwrap();
    };
    let empty = || fs::write(&path, "").unwrap();
    for (make, says) in [
        (&empty as &dyn Fn(), "only if there never was a ledger here"),
        (&no_tables, "not an Eigenveil ledger"),
    ] {
        make();
        let before = fs::read(&path).unwrap();
        for error in [Ledger::open(&path), Ledger::open_existing(&path)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    // The way out.
    fs::remove_file(&path).unwrap();
    assert!(Ledger::open(&path).unwrap().owed().unwrap().is_empty());
}

/// The bytes of an acknowledged report are in no file any more, while it is open and after.
#[test]
fn an_acknowledged_report_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let holds = |payload: &[u8]| {
        fs::read_dir(folder.path()).unwrap().any(|file| {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            bytes.windows(payload.len()).any(|window| window == payload)
        })
    };
    let mut ledger = Ledger::open(&path).unwrap();
    for name in ["a", "b", "c"] {
        let owed = take_part(&mut ledger, &study(name, 1.0))
            .to_send()
            .unwrap()
            .clone();
        let token = ParticipantToken::from_bytes([name.as_bytes()[0]; 32]);
        ledger.keep_token(name, &token).unwrap();
        assert!(holds(&owed.report.payload) && holds(token.as_bytes()));
        ledger.acknowledge(owed.report.id).unwrap();
        assert!(!holds(&owed.report.payload) && !holds(token.as_bytes()));
    }
    // What an earlier version left in free space goes when the file is upgraded.
    drop(ledger);
    common::downgrade(&path, 2);
    let seed = [0xab; 60];
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("PRAGMA secure_delete = 0; CREATE TABLE left_over (bytes BLOB);")
        .unwrap();
    connection
        .execute("INSERT INTO left_over VALUES (?1)", [&seed[..]])
        .unwrap();
    connection.execute_batch("DROP TABLE left_over").unwrap();
    drop(connection);
    assert!(holds(&seed));
    drop(Ledger::open(&path).unwrap());
    assert!(!holds(&seed));
}

#[test]
fn a_file_with_two_names_is_refused_until_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let other = folder.path().join("other");
    let mut ledger = Ledger::open(&path).unwrap();
    take_part(&mut ledger, &study("a", 1.0));
    // Linked while it is open: nothing more is written.
    fs::hard_link(&path, &other).unwrap();
    let (participant, binding) = study("b", 1.0);
    let error = ledger
        .take_part(&participant, &binding, &row(1.0))
        .unwrap_err()
        .to_string();
    assert!(error.contains("linked to"), "{error}");
    drop(ledger);
    for name in [&path, &other] {
        let error = Ledger::open(name).unwrap_err().to_string();
        assert!(error.contains("2 names"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(Ledger::open(&other).unwrap().spent().unwrap().epsilon, 1.0);
}

#[test]
fn a_file_that_is_moved_keeps_what_was_spent_and_is_not_written_at_its_old_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let other = folder.path().join("other");
    let mut ledger = Ledger::open(&path).unwrap();
    let first = take_part(&mut ledger, &study("a", 1.0));
    fs::rename(&path, &other).unwrap();
    let (participant, binding) = study("b", 1.0);
    let error = ledger
        .take_part(&participant, &binding, &row(1.0))
        .unwrap_err()
        .to_string();
    assert!(error.contains("was moved"), "{error}");
    // Nobody makes a new one while the moved one is in use: its log is there.
    let error = Ledger::open(&path).unwrap_err().to_string();
    assert!(error.contains("moved away or lost"), "{error}");
    // It has it open by the other name too.
    assert!(Ledger::open(&other).unwrap_err().is_locked());
    drop(ledger);
    let mut ledger = Ledger::open(&other).unwrap();
    assert_eq!(
        take_part(&mut ledger, &study("a", 1.0)).to_send(),
        first.to_send()
    );
    assert_eq!(ledger.spent().unwrap().epsilon, 1.0);
}

/// A change that nobody saw, in a log; the file goes on elsewhere without it and comes back.
#[test]
fn a_log_that_is_not_of_the_files_last_change_is_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let log = folder.path().join("ledger-wal");
    let mut ledger = Ledger::open(&path).unwrap();
    take_part(&mut ledger, &study("a", 1.0));
    drop(ledger);
    // As a kill between the log and the file leaves it.
    let before = fs::read(&path).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA wal_autocheckpoint = 0; BEGIN;
             UPDATE limits SET epsilon_total = 3;
             UPDATE head SET previous = token, token = randomblob(16); COMMIT;",
        )
        .unwrap();
    let left = fs::read(&log).unwrap();
    drop(connection);
    fs::write(&path, &before).unwrap();
    fs::write(&log, &left).unwrap();
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.limits().unwrap().epsilon_total(), 3.0, "its own log");
    ledger.set_limits(Limits::default()).unwrap();
    take_part(&mut ledger, &study("b", 4.0));
    drop(ledger);
    let after = fs::read(&path).unwrap();
    fs::write(&log, &left).unwrap();
    let error = Ledger::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("does not belong to its last change"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), after);
    // The way out.
    fs::remove_file(&log).unwrap();
    assert_eq!(Ledger::open(&path).unwrap().spent().unwrap().epsilon, 5.0);
}

/// A ledger of the version before, killed: its charges are in the log alone.
#[test]
fn a_killed_ledger_of_layout_2_keeps_its_charges() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let first = take_part(&mut ledger, &study("a", 1.0));
    drop(ledger);
    common::downgrade(&path, 2);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA wal_autocheckpoint = 0;
             INSERT INTO entry SELECT 2, server, 'b', fingerprint, payload_len, mechanism, dimension,
                 neighbours, sentence, 4, delta, day, zeroblob(16), state, code, detail FROM entry;
             INSERT INTO payload SELECT 2, bytes FROM payload;",
        )
        .unwrap();
    let (file, log) = (
        fs::read(&path).unwrap(),
        fs::read(folder.path().join("ledger-wal")).unwrap(),
    );
    drop(connection);
    fs::write(&path, &file).unwrap();
    fs::write(folder.path().join("ledger-wal"), &log).unwrap();
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.spent().unwrap().epsilon, 5.0);
    assert_eq!(
        take_part(&mut ledger, &study("a", 1.0)).to_send(),
        first.to_send()
    );
    drop(ledger);
    fs::remove_file(folder.path().join("ledger-wal")).unwrap_err();
    assert_eq!(Ledger::open(&path).unwrap().spent().unwrap().epsilon, 5.0);
}

/// `cargo test -p eigenveil-client --test client ledger_file::what_it_costs_to_take_part -- --ignored --nocapture`: a participation, synced into
/// the file, beside a commit that is in the log alone.
#[test]
#[ignore = "measures, with nothing to pass or fail"]
fn what_it_costs_to_take_part() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plain = rusqlite::Connection::open(folder.path().join("plain")).unwrap();
    plain
        .execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE t (number INTEGER PRIMARY KEY, study TEXT UNIQUE, bytes BLOB);",
        )
        .unwrap();
    let mut ledger = Ledger::open(folder.path().join("ledger")).unwrap();
    ledger
        .set_limits(Limits::new(1.0, 1e3, 0.1).unwrap())
        .unwrap();
    let (mut in_file, mut in_log) = (Vec::new(), Vec::new());
    for number in 0..200 {
        let study = study(&format!("{number}"), 0.5);
        let begun = std::time::Instant::now();
        take_part(&mut ledger, &study);
        in_file.push(begun.elapsed().as_secs_f64());
        let begun = std::time::Instant::now();
        plain
            .execute(
                "INSERT INTO t VALUES (?1, ?2, zeroblob(400))",
                rusqlite::params![number, study.1.study()],
            )
            .unwrap();
        in_log.push(begun.elapsed().as_secs_f64());
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        1e3 * times[times.len() / 2]
    };
    println!(
        "take_part: {:.2} ms; a commit to a log alone: {:.2} ms (medians of 200)",
        median(&mut in_file),
        median(&mut in_log)
    );
}
