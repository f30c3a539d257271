//! Ledgers of both kinds and what is done with them, for the test files that need files.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use eigenveil_client::{
    Ledger, Participation, Prepared, Result, RowFile, RowLedger, Study, book::Entry,
};

use crate::common::{ACCEPTED, row, with_refusal};

/// A folder that goes with the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// All that is in it: names, times of the last write, and bytes where there are some.
    pub(crate) fn contents(&self) -> BTreeMap<OsString, (SystemTime, Option<Vec<u8>>)> {
        let file = |file: fs::DirEntry| {
            let written = file.metadata().unwrap().modified().unwrap();
            (file.file_name(), (written, fs::read(file.path()).ok()))
        };
        let files = fs::read_dir(self.path()).unwrap();
        files.map(|found| file(found.unwrap())).collect()
    }
}

/// This test program as another process, which runs one test.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(child_arguments(test));
    command
}

pub(crate) fn child_arguments(test: &str) -> [&str; 4] {
    ["--exact", test, "--nocapture", "--test-threads=1"]
}

pub(crate) fn participate(ledger: &mut Ledger, study: &Study) -> Participation {
    ledger.participate(study, &row(1.0)).unwrap()
}

/// The ledger's entry of this study.
pub(crate) fn entry_of(ledger: &Ledger, study: &str) -> Entry {
    ledger.book().unwrap().find(study).unwrap().clone()
}

/// The server has the report of this entry.
pub(crate) fn acknowledge(ledger: &mut Ledger, entry: &Entry) {
    let request = ledger.request(entry).unwrap();
    let answer = ledger.settle(&request, &ACCEPTED).unwrap();
    answer.into_result().unwrap();
}

/// The server refuses the report of this entry for good.
pub(crate) fn refuse(ledger: &mut Ledger, entry: &Entry, code: &str, detail: &str) {
    let request = ledger.request(entry).unwrap();
    let answer = with_refusal(code, detail, |response| ledger.settle(&request, response));
    let error = answer.unwrap().into_result().unwrap_err();
    assert_eq!(error.code_text(), Some(code));
}

/// A file of this many rows, of the same participants as any other.
pub(crate) fn rows(ledger: &RowLedger, count: u64) -> RowFile {
    let file = ledger.row_file(count, b"rows", b"all columns").unwrap();
    file.assume_same_participants()
}

/// Makes the reports of the rows that have none.
pub(crate) fn prepare(ledger: &mut RowLedger, study: &Study, file: &RowFile) -> Result<Prepared> {
    let report = |number: u64, now| study.report(&row(number as f64), now);
    ledger.prepare(study, file, report, |_| ControlFlow::Continue(()))
}

/// A new ledger with reports of this many rows.
pub(crate) fn prepared(path: &Path, study: &Study, count: u64) -> RowLedger {
    let mut ledger = RowLedger::open(path).unwrap();
    let file = rows(&ledger, count);
    assert_eq!(prepare(&mut ledger, study, &file).unwrap().rows, count);
    ledger
}
