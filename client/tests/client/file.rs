//! What both kinds of ledger promise of their file while nothing is killed (`ledger_crash.rs` and `row_ledger_crash.rs`
//! kill): emptied, moved, linked to, beside the log of another time, of another version.

use std::{fmt::Debug, fs, ops::ControlFlow, path::Path};

use eigenveil_client::{Ledger, Limits, ReportResult, Result, RowLedger, Study};
use eigenveil_shared::{enrolment::ParticipantToken, preprocess::Row};

use crate::{
    common::{PAYLOAD_LEN, assert_says, row, study},
    files::{Folder, acknowledge, entry_of, participate, rows},
};

/// A file of reports to studies with these numbers, one each.
trait Reports: Debug {
    fn keep(&mut self, number: u64, row: &Row) -> Result<()>;
    fn set_token(&mut self, number: u64, token: &ParticipantToken);
    fn acknowledge(&mut self, number: u64);
    /// Payloads of what is to be sent, by number.
    fn try_to_send(&self) -> Result<Vec<Vec<u8>>>;
    fn to_send(&self) -> Vec<Vec<u8>> {
        self.try_to_send().unwrap()
    }
    /// The ledger's state as text.
    fn shown(&self) -> String;
}

/// Studies: one less than the limits allow.
const REPORTS: u64 = 9;

fn name(number: u64) -> String {
    format!("{number:03}")
}

fn numbered(number: u64) -> Study {
    study(&name(number), 0.125)
}

impl Reports for Ledger {
    fn keep(&mut self, number: u64, row: &Row) -> Result<()> {
        self.participate(&numbered(number), row).map(drop)
    }

    fn set_token(&mut self, number: u64, token: &ParticipantToken) {
        assert!(Ledger::set_token(self, &name(number), token).unwrap());
    }

    fn acknowledge(&mut self, number: u64) {
        let entry = entry_of(self, &name(number));
        acknowledge(self, &entry);
    }

    fn try_to_send(&self) -> Result<Vec<Vec<u8>>> {
        let pending = self.pending().unwrap().into_iter();
        let bodies = pending.map(|pending| Ok(self.request(&pending)?.body));
        bodies
            .map(|body| body.map(|body| body[body.len() - PAYLOAD_LEN..].to_vec()))
            .collect()
    }

    fn shown(&self) -> String {
        let receipt = self.receipt().unwrap();
        let json = serde_json::to_string(&receipt).unwrap();
        format!("{:?} {receipt} {receipt:?} {json}", self.pending().unwrap())
    }
}

impl Reports for RowLedger {
    fn keep(&mut self, number: u64, row: &Row) -> Result<()> {
        let (study, file) = (numbered(number), rows(self, 1));
        let report = |_, now| study.report(row, now);
        let made = self.prepare(&study, &file, report, |_| ControlFlow::Continue(()));
        made.map(drop)
    }

    fn set_token(&mut self, number: u64, token: &ParticipantToken) {
        let kept = self.set_tokens(&numbered(number), [(0, token)]);
        assert_eq!(kept.unwrap(), 1);
    }

    fn acknowledge(&mut self, number: u64) {
        let settled = self.record(&numbered(number), [(0, ReportResult::Accepted)]);
        assert_eq!(settled.unwrap(), 1);
    }

    fn try_to_send(&self) -> Result<Vec<Vec<u8>>> {
        let mut payloads = Vec::new();
        for own in self.receipt().unwrap().studies {
            let pending = self.pending(&study(&own.study, 0.125), 0, 9)?;
            payloads.extend(pending.into_iter().map(|pending| pending.report.payload));
        }
        Ok(payloads)
    }

    fn shown(&self) -> String {
        let receipt = self.receipt().unwrap();
        let json = serde_json::to_string(&receipt).unwrap();
        let pending = self.pending(&numbered(0), 0, 9).unwrap();
        format!("{pending:?} {receipt} {receipt:?} {json}")
    }
}

type Opened = Result<Box<dyn Reports>>;

fn boxed(opened: Result<impl Reports + 'static>) -> Opened {
    opened.map(|file| Box::new(file) as _)
}

struct Kind {
    open: fn(&Path) -> Opened,
    open_existing: fn(&Path) -> Opened,
}

const LEDGER: Kind = Kind {
    open: |path| boxed(Ledger::open(path)),
    open_existing: |path| boxed(Ledger::open_existing(path)),
};

const ROW_LEDGER: Kind = Kind {
    open: |path| boxed(RowLedger::open(path)),
    open_existing: |path| boxed(RowLedger::open_existing(path)),
};

static KINDS: [Kind; 2] = [LEDGER, ROW_LEDGER];

/// Each kind, in a folder of its own.
fn each(test: impl Fn(&Kind, &Path)) {
    for kind in &KINDS {
        test(kind, Folder::new().path());
    }
}

/// Whether a file of this folder has these bytes in it.
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().any(|file| {
        let found = fs::read(file.unwrap().path()).unwrap();
        found.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    each(|kind, folder| {
        let path = folder.join("file");
        let first = (kind.open)(&path).unwrap();
        for opened in [(kind.open)(&path), (kind.open_existing)(&path)] {
            let error = opened.unwrap_err();
            assert!(error.is_locked(), "{error}");
            assert_says(error, &["ledger", "another process"]);
        }
        drop(first);
        drop((kind.open)(&path).unwrap());
    });
}

#[test]
fn other_files_are_refused_and_left_alone() {
    each(|kind, folder| {
        let [text, database, other] =
            ["rows.csv", "other.db", "other"].map(|name| folder.join(name));
        fs::write(&text, "1,2,3\n".repeat(500)).unwrap();
        rusqlite::Connection::open(&database)
            .unwrap()
            .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);")
            .unwrap();
        let another = KINDS
            .iter()
            .find(|other| other.open as usize != kind.open as usize);
        let another = another.unwrap();
        drop((another.open)(&other).unwrap());
        for path in [text, database, other] {
            let before = fs::read(&path).unwrap();
            let error = (kind.open)(&path).unwrap_err();
            assert_says(error, &["not an Eigenveil ledger"]);
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        let nothing = folder.join("nothing");
        let error = (kind.open_existing)(&nothing).unwrap_err();
        assert_says(error, &["no such file"]);
        assert!(!nothing.exists());
        let error = (kind.open)(&folder.join("no/folder")).unwrap_err();
        assert_says(error, &["cannot be created"]);
        drop((kind.open)(&nothing).unwrap());
        drop((kind.open_existing)(&nothing).unwrap());
    });
}

#[test]
fn a_pipe_beside_the_file_is_refused_and_not_waited_for() {
    each(|kind, folder| {
        for suffix in ["journal", "wal"] {
            let path = folder.join(suffix);
            drop((kind.open)(&path).unwrap());
            let pipe = folder.join(format!("{suffix}-{suffix}"));
            rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
            assert_says((kind.open)(&path).unwrap_err(), &["not a regular file"]);
        }
    });
}

/// A new one in its place would spend, or perturb, everything again.
#[test]
fn an_existing_file_that_holds_nothing_is_an_error() {
    each(|kind, folder| {
        let path = folder.join("file");
        let no_tables = || {
            rusqlite::Connection::open(&path)
                .unwrap()
                .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
                .unwrap();
        };
        let empty = || fs::write(&path, "").unwrap();
        for (make, says) in [
            (&empty as &dyn Fn(), "only if there never was"),
            (&no_tables, "not an Eigenveil"),
        ] {
            make();
            let before = fs::read(&path).unwrap();
            for opened in [(kind.open)(&path), (kind.open_existing)(&path)] {
                assert_says(opened.unwrap_err(), &[says, "ledger"]);
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        // The way out.
        fs::remove_file(&path).unwrap();
        assert!((kind.open)(&path).unwrap().to_send().is_empty());
    });
}

/// A page of rubbish, or the file cut there, wherever the page is.
#[test]
fn a_damaged_file_is_an_error_and_no_new_ledger() {
    each(|kind, folder| {
        let path = folder.join("file");
        let mut file = (kind.open)(&path).unwrap();
        (0..REPORTS).for_each(|number| file.keep(number, &row(1.0)).unwrap());
        drop(file);
        let whole = fs::read(&path).unwrap();
        let page = 4_096;
        assert!(whole.len() > 8 * page, "{}", whole.len());
        for at in (page..whole.len()).step_by(page) {
            let mut rubbish = whole.clone();
            rubbish[at..at + page].fill(0xa5);
            for damaged in [&rubbish[..], &whole[..at]] {
                fs::write(&path, damaged).unwrap();
                let read = (kind.open)(&path).and_then(|file| file.try_to_send());
                assert_says(read.unwrap_err(), &["damaged"]);
            }
        }
    });
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    each(|kind, folder| {
        let path = folder.join("file");
        drop((kind.open)(&path).unwrap());
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        let error = (kind.open)(&path).unwrap_err();
        assert_says(error, &["layout 99", "update"]);
    });
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    each(|kind, folder| {
        let mut file = (kind.open)(&folder.join("file")).unwrap();
        file.keep(1, &row(1.0)).unwrap();
        // The file, its log and its lock.
        let files: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert_eq!(files.len(), 3);
        for file in files {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
    });
}

#[test]
fn no_row_value_reaches_the_file_or_a_message() {
    each(|kind, folder| {
        let sentinel = 54_321.987_f64;
        let path = folder.join("file");
        let mut file = (kind.open)(&path).unwrap();
        file.keep(0, &Row::new(vec![sentinel; 5])).unwrap();
        let messages = format!("{file:?} {}", file.shown());
        assert!(!messages.contains("54321"), "{messages}");
        let mut stored = fs::read(folder.join("file-wal")).unwrap();
        drop(file);
        stored.extend(fs::read(&path).unwrap());
        for raw in [
            sentinel.to_le_bytes().to_vec(),
            sentinel.to_be_bytes().to_vec(),
            (sentinel as f32).to_le_bytes().to_vec(),
        ] {
            assert!(!stored.windows(raw.len()).any(|window| window == raw));
        }
    });
}

/// The bytes of an acknowledged report and of its token are in no file any more, while it is open and after.
#[test]
fn an_acknowledged_report_is_overwritten() {
    each(|kind, folder| {
        let path = folder.join("file");
        let token = |number: u64| ParticipantToken::from_bytes([number as u8 + 1; 32]);
        let mut file = (kind.open)(&path).unwrap();
        for number in 0..REPORTS {
            file.keep(number, &row(1.0)).unwrap();
            file.set_token(number, &token(number));
        }
        let all = file.to_send();
        assert_eq!(all.len() as u64, REPORTS);
        let gone = REPORTS * 3 / 4;
        (0..gone).for_each(|number| file.acknowledge(number));
        for _ in 0..2 {
            for (number, payload) in (0..).zip(&all) {
                assert_eq!(holds(folder, payload), number >= gone, "{number}");
                let token = token(number);
                let token_is_there =
                    holds(folder, token.as_bytes()) || holds(folder, token.reveal().as_bytes());
                assert_eq!(token_is_there, number >= gone, "{number}");
            }
            drop(file);
            file = (kind.open)(&path).unwrap();
        }
    });
}

/// A file as a kill or a power cut leaves it, without the log beside it, has every report that was given.
#[test]
fn copied_while_open_without_its_log_it_has_every_report() {
    each(|kind, folder| {
        let path = folder.join("file");
        let mut file = (kind.open)(&path).unwrap();
        for number in 0..REPORTS {
            file.keep(number, &row(1.0)).unwrap();
            let copy = folder.join(format!("copy-{number}"));
            fs::copy(&path, &copy).unwrap();
            let opened = (kind.open)(&copy).unwrap();
            assert_eq!(opened.to_send(), file.to_send(), "{number}");
        }
    });
}

#[test]
fn a_file_with_two_names_is_refused_until_it_has_one() {
    each(|kind, folder| {
        let (path, other) = (folder.join("file"), folder.join("other"));
        let mut file = (kind.open)(&path).unwrap();
        file.keep(1, &row(1.0)).unwrap();
        let given = file.to_send();
        // Linked while it is open: nothing more is written.
        fs::hard_link(&path, &other).unwrap();
        assert_says(file.keep(2, &row(1.0)).unwrap_err(), &["linked to"]);
        drop(file);
        for name in [&path, &other] {
            assert_says((kind.open)(name).unwrap_err(), &["2 names"]);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!((kind.open)(&other).unwrap().to_send(), given);
    });
}

#[test]
fn a_file_that_is_moved_keeps_what_it_has_and_is_not_written_at_its_old_name() {
    each(|kind, folder| {
        let (path, other) = (folder.join("file"), folder.join("other"));
        let mut file = (kind.open)(&path).unwrap();
        file.keep(1, &row(1.0)).unwrap();
        let given = file.to_send();
        fs::rename(&path, &other).unwrap();
        assert_says(file.keep(2, &row(1.0)).unwrap_err(), &["was moved"]);
        // Nobody makes a new one while the moved one is in use, and it is open by the other name too.
        assert!((kind.open)(&path).unwrap_err().is_locked());
        assert!((kind.open)(&other).unwrap_err().is_locked());
        drop(file);
        // Nor afterwards, beside its log.
        let error = (kind.open)(&path).unwrap_err();
        assert_says(error, &["moved away or lost"]);
        let mut file = (kind.open)(&other).unwrap();
        file.keep(1, &row(2.0)).unwrap();
        assert_eq!(file.to_send(), given);
    });
}

/// Whoever opens the older copy prepares the same rows again: what was given out would be there twice.
#[test]
fn a_file_with_an_older_copy_in_its_place_gives_nothing_out() {
    each(|kind, folder| {
        for how in ["renamed", "written over"] {
            let (path, copy) = (folder.join(how), folder.join("copy"));
            let mut file = (kind.open)(&path).unwrap();
            file.keep(1, &row(1.0)).unwrap();
            fs::copy(&path, &copy).unwrap();
            file.keep(2, &row(1.0)).unwrap();
            match how {
                "renamed" => fs::rename(&copy, &path).unwrap(),
                _ => fs::write(&path, fs::read(&copy).unwrap()).unwrap(),
            }
            assert_says(
                file.try_to_send().unwrap_err(),
                &["nothing more was written or sent"],
            );
        }
    });
}

/// A change that nobody saw, in a log; the file goes on elsewhere without it and comes back.
#[test]
fn a_log_that_is_not_of_the_files_last_change_is_not_applied() {
    let folder = Folder::new();
    let (path, log) = (folder.at("ledger"), folder.at("ledger-wal"));
    let mut ledger = Ledger::open(&path).unwrap();
    participate(&mut ledger, &study("a", 1.0));
    drop(ledger);
    // As a kill between the log and the file leaves it.
    let before = fs::read(&path).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA wal_autocheckpoint = 0; BEGIN;
             UPDATE record SET value = CAST(json_set(CAST(value AS TEXT), '$.limits.epsilon_total', 3) AS BLOB)
                WHERE key = 'head';
             UPDATE file_state SET previous_revision = revision, revision = randomblob(16); COMMIT;",
        )
        .unwrap();
    let left = fs::read(&log).unwrap();
    drop(connection);
    fs::write(&path, &before).unwrap();
    fs::write(&log, &left).unwrap();
    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.limits().unwrap().epsilon_total(), 3.0, "its own log");
    ledger.set_limits(Limits::default()).unwrap();
    participate(&mut ledger, &study("b", 4.0));
    drop(ledger);
    let after = fs::read(&path).unwrap();
    fs::write(&log, &left).unwrap();
    let error = Ledger::open(&path).unwrap_err();
    assert_says(error, &["does not match its last change"]);
    assert_eq!(fs::read(&path).unwrap(), after);
    // The way out.
    fs::remove_file(&log).unwrap();
    assert_eq!(Ledger::open(&path).unwrap().spent().unwrap().epsilon, 5.0);
}
