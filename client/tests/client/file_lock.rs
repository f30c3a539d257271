//! Whoever opens the file at once with another: what is given out is what is recorded. The test program runs itself as
//! the other process.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use eigenveil_client::{GivenUp, Ledger, Result, RowLedger};

use crate::{
    common::{assert_says, row, study},
    files::{self, Folder, prepare, rows},
};

const PATH: &str = "EIGENVEIL_TEST_LOCKED_LEDGER";
/// If set, the other process only gives up the report of this study.
const GIVE_UP: &str = "EIGENVEIL_TEST_GIVE_UP";

/// Studies and the reports for them.
type Given = BTreeSet<(String, String)>;

/// A ledger of either kind, for one row.
trait OneRow {
    /// Takes part in a study; what may be sent for it.
    fn give(&mut self, study: &str) -> Result<String>;
    fn give_up(&mut self, study: &str) -> Result<GivenUp>;
    fn recorded(&self) -> Given;
}

impl OneRow for Ledger {
    fn give(&mut self, name: &str) -> Result<String> {
        let taken = self.participate(&study(name, 0.125), &row(1.0))?;
        self.request(taken.entry())?;
        Ok(taken.entry().report().to_string())
    }

    fn give_up(&mut self, study: &str) -> Result<GivenUp> {
        Ledger::give_up(self, study)
    }

    fn recorded(&self) -> Given {
        let studies = self.receipt().unwrap().studies.into_iter();
        studies
            .map(|entry| (entry.record.study, entry.report))
            .collect()
    }
}

impl OneRow for RowLedger {
    fn give(&mut self, name: &str) -> Result<String> {
        let (study, file) = (study(name, 0.125), rows(self, 1));
        prepare(self, &study, &file)?;
        let pending = self.pending(&study, 0, 2)?;
        assert_eq!(pending.len(), 1);
        Ok(pending[0].report.id.to_string())
    }

    fn give_up(&mut self, study: &str) -> Result<GivenUp> {
        RowLedger::give_up(self, study)
    }

    fn recorded(&self) -> Given {
        let studies = self.receipt().unwrap().studies.into_iter();
        let of_study = |name: String| {
            let pending = self.pending(&study(&name, 0.125), 0, 2).unwrap();
            (name, pending[0].report.id.to_string())
        };
        studies.map(|own| of_study(own.record.study)).collect()
    }
}

/// The kinds, by what the names of their files begin with.
const KINDS: [&str; 2] = ["device", "rows"];

fn open(path: &Path) -> Result<Box<dyn OneRow>> {
    let name = path.file_name().unwrap().to_str().unwrap();
    if name.starts_with("rows") {
        return Ok(Box::new(RowLedger::open(path)?));
    }
    Ok(Box::new(Ledger::open(path)?))
}

fn is_locked(opened: Result<Box<dyn OneRow>>) -> bool {
    opened.is_err_and(|error| error.is_locked())
}

/// Takes part in the study that all take part in, and in one of its own; prints what it may send.
#[test]
fn child() {
    let Some(path) = env::var_os(PATH).map(PathBuf::from) else {
        return;
    };
    let given_up = env::var(GIVE_UP);
    match (open(&path), given_up) {
        (Ok(mut ledger), Ok(study)) => println!("\n{}", ledger.give_up(&study).unwrap()),
        (Ok(mut ledger), Err(_)) => {
            for name in ["common".to_owned(), std::process::id().to_string()] {
                let report = ledger.give(&name).unwrap();
                println!("\ngiven {name} {report}");
            }
        }
        (Err(error), _) => assert!(error.is_locked(), "{error}"),
    }
}

fn command(ledger: &Path) -> Command {
    let mut child = files::child("file_lock::child");
    child
        .env(PATH, ledger)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    child
}

fn start(ledger: &Path) -> Child {
    command(ledger).spawn().unwrap()
}

/// Study and report that the child may send.
fn given(child: Child) -> Given {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    text.lines()
        .filter_map(|line| {
            let (study, report) = line.strip_prefix("given ")?.split_once(' ')?;
            Some((study.to_owned(), report.to_owned()))
        })
        .collect()
}

/// To copy a file is to close a descriptor of it, and with that the process loses SQLite's lock; so is a second opener,
/// and a look at what kind of file it is.
#[test]
fn copying_an_open_ledger_keeps_its_lock() {
    for kind in KINDS {
        let folder = Folder::new();
        let path = folder.at(kind);
        let ledger = open(&path).unwrap();
        fs::copy(&path, folder.at("copy")).unwrap();
        assert!(is_locked(open(&path)));
        assert_eq!(RowLedger::is_at(&path), kind == "rows");
        assert!(given(start(&path)).is_empty());
        drop(ledger);
        assert_eq!(given(start(&path)).len(), 2);
    }
}

/// Should both locks be lost, what the other process charged is not overwritten.
#[test]
fn charges_of_another_process_are_not_overwritten() {
    for kind in KINDS {
        let folder = Folder::new();
        let path = folder.at(kind);
        let mut ledger = open(&path).unwrap();
        fs::remove_file(folder.at(&format!("{kind}.lock"))).unwrap();
        fs::copy(&path, folder.at("copy")).unwrap();
        let elsewhere = given(start(&path));
        assert_eq!(elsewhere.len(), 2);
        let error = ledger.give("common").unwrap_err();
        assert_says(error, &["changed by another process"]);
        drop(ledger);
        assert_eq!(open(&path).unwrap().recorded(), elsewhere);
    }
}

/// A report that another process gave up is not sent by one that has it in its outbox: with the lock nothing is given
/// up, and should both locks be lost, nothing is sent.
#[test]
fn a_report_that_another_process_gave_up_is_not_sent() {
    for kind in KINDS {
        let folder = Folder::new();
        let path = folder.at(kind);
        let mut ledger = open(&path).unwrap();
        ledger.give("common").unwrap();
        let gives_up = || {
            let output = command(&path).env(GIVE_UP, "common").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stdout).contains("1 report, never sent")
        };
        assert!(!gives_up());
        ledger.give("common").unwrap();
        fs::remove_file(folder.at(&format!("{kind}.lock"))).unwrap();
        fs::copy(&path, folder.at("copy")).unwrap();
        assert!(gives_up());
        let error = ledger.give("common").unwrap_err();
        assert_says(error, &["changed by another process"]);
    }
}

#[test]
fn first_runs_at_the_same_time_make_one_ledger() {
    let runs = env::var("EIGENVEIL_TEST_FIRST_RUNS").map_or(20, |runs| runs.parse().unwrap());
    let folder = Folder::new();
    for (kind, run) in KINDS
        .iter()
        .flat_map(|kind| (0..runs).map(move |run| (kind, run)))
    {
        let path = folder.at(&format!("{kind}-{run}"));
        let both = [start(&path), start(&path)].map(given);
        let given: Given = both.into_iter().flatten().collect();
        assert!(!given.is_empty());
        assert_eq!(open(&path).unwrap().recorded(), given, "{kind} {run}");
    }
}

/// Root would make or lock whatever the link leads to.
#[cfg(unix)]
#[test]
fn a_link_in_place_of_the_lock_is_not_followed() {
    let folder = Folder::new();
    let (path, lock) = (folder.at("ledger"), folder.at("ledger.lock"));
    fs::write(folder.at("there"), "").unwrap();
    for target in ["there", "not there"] {
        std::os::unix::fs::symlink(target, &lock).unwrap();
        let error = Ledger::open(&path).unwrap_err();
        assert_says(error, &["ledger.lock is a symbolic link"]);
        assert!(!folder.at("not there").exists());
        fs::remove_file(&lock).unwrap();
    }
    drop(Ledger::open(&path).unwrap());
}

/// `sudo` once: the lock that root makes is the owner's, as the ledger is.
#[cfg(unix)]
#[test]
fn a_lock_made_by_root_does_not_shut_the_owner_out() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    /// Any user but root.
    const OWNER: u32 = 65_534;
    let folder = Folder::new();
    let (path, lock) = (folder.at("ledger"), folder.at("ledger.lock"));
    drop(Ledger::open(&path).unwrap());
    if chown(&path, Some(OWNER), Some(OWNER)).is_err() {
        println!("SKIPPED: only root can make a lock for somebody else");
        return;
    }
    fs::remove_file(&lock).unwrap();
    drop(Ledger::open(&path).unwrap());
    let owner = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    assert_eq!(owner(&lock), (OWNER, OWNER, 0o600));
}
