//! From rows to reports, charged and kept.

use std::{
    ops::{ControlFlow, Range},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use eigenveil_shared::{about::UtcDate, enrolment::ParticipantToken};
use rusqlite::{Connection, params};

use super::{
    ledger::{RowFile, RowLedger},
    schema::key,
    tables::{PENDING, write_terms},
};
use crate::{
    error::{Error, Result},
    rules::{StudyTerms, charge},
    sqlite::file::Failure,
    study::{PreparedReport, Study, check_fingerprint},
};

/// A write has at most this many rows, or what this time gives.
const ROWS_PER_WRITE: u64 = 1_024;
const TIME_PER_WRITE: Duration = Duration::from_secs(1);
/// How often the caller is told, at least.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The outcome of [`RowLedger::prepare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Rows that were charged and have their reports now.
    pub rows: u64,
    /// How many of them were sent as the zero row. **For whoever answers for the rows only.**
    pub unusable: u64,
    /// Whether it was broken off.
    pub stopped: bool,
}

impl RowLedger {
    /// Makes the reports of the rows of an admitted file that have none, and keeps them with these tokens, the first for
    /// row 0; see [`prepare`](Self::prepare).
    pub(super) fn make_reports(
        &mut self,
        study: &Study,
        file: &RowFile,
        tokens: &[ParticipantToken],
        report: impl Fn(u64, u64) -> Result<PreparedReport> + Sync,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        for range in self.missing(study.id(), file.rows)? {
            let mut from = range.start;
            while from < range.end {
                let chunk = from..range.end.min(from + ROWS_PER_WRITE);
                let now = Error::check_clock(self.clock.unix_ms())?;
                let before = prepared.rows;
                let reports = perturb(
                    chunk,
                    |row| report(row, now),
                    |done| progress(before + done),
                )?;
                let Some(reports) = reports else {
                    prepared.stopped = true;
                    return Ok(prepared);
                };
                self.keep(study, file, tokens, from, &reports, now)?;
                let unusable = reports
                    .iter()
                    .filter(|reports| reports.local_warning().is_some());
                prepared.unusable += unusable.count() as u64;
                prepared.rows += reports.len() as u64;
                from += reports.len() as u64;
            }
        }
        Ok(prepared)
    }

    /// Charges and keeps the reports of the rows from this one on, with their tokens.
    fn keep(
        &mut self,
        study: &Study,
        file: &RowFile,
        tokens: &[ParticipantToken],
        first: u64,
        made: &[PreparedReport],
        now: u64,
    ) -> Result<()> {
        let known = self.known(study.id())?.map(|known| known.number);
        self.store.write(|ledger| {
            let number = match known {
                Some(number) => number,
                None => insert_study(ledger, study, file, now)?,
            };
            insert_file(ledger, number, file)?;
            ledger
                .prepare_cached("INSERT INTO charge (study, first, rows) VALUES (?1, ?2, ?3)")?
                .execute(params![number, first, made.len()])?;
            let mut insert =
                ledger.prepare_cached("INSERT INTO report (key, id, state) VALUES (?1, ?2, ?3)")?;
            let mut queue =
                ledger.prepare_cached("INSERT INTO payload (key, bytes) VALUES (?1, ?2)")?;
            let mut send_with =
                ledger.prepare_cached("INSERT INTO token (key, bytes) VALUES (?1, ?2)")?;
            let mut tokens = tokens.iter().skip(first as usize);
            for (row, made) in (first..).zip(made) {
                let report = made.report();
                check_fingerprint(report.fingerprint, study.fingerprint())?;
                insert.execute(params![key(number, row), report.id.0, PENDING])?;
                queue.execute(params![key(number, row), report.payload])?;
                if let Some(token) = tokens.next() {
                    send_with.execute(params![key(number, row), token.as_bytes()])?;
                }
            }
            Ok(())
        })
    }
}

/// Keeps what a study is and says. Gives its number.
fn insert_study(
    ledger: &Connection,
    study: &Study,
    file: &RowFile,
    now: u64,
) -> Result<i64, Failure> {
    let statement = match file.persons {
        true => study.privacy().of_person(),
        false => study.privacy(),
    };
    let cost = charge(study.id(), study.params(), &statement)?;
    ledger.execute(
        "INSERT INTO study (server, study, fingerprint, mechanism, dimension,
            neighbours, sentence, epsilon, delta, day)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            study.server().as_str(),
            study.id(),
            study.fingerprint().0,
            statement.mechanism.as_str(),
            study.params().dimension(),
            statement.neighbours,
            statement.sentence,
            cost.epsilon(),
            cost.delta(),
            UtcDate::from_unix_ms(now).0,
        ],
    )?;
    let number = ledger.last_insert_rowid();
    let canonical = study.params().canonical_bytes();
    write_terms(ledger, number, &StudyTerms::of(study), &canonical)?;
    Ok(number)
}

/// Keeps the digests of the file, and of how it was read for this study.
fn insert_file(ledger: &Connection, study: i64, file: &RowFile) -> rusqlite::Result<()> {
    ledger
        .prepare_cached("INSERT INTO file VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([file.participants])?;
    ledger
        .prepare_cached("INSERT INTO reading VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![study, file.reading])
        .map(drop)
}

/// The reports of the first of these rows, in order: of all of them, or of those that the time allows. `None` when
/// `progress` breaks.
fn perturb(
    rows: Range<u64>,
    report: impl Fn(u64) -> Result<PreparedReport> + Sync,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Vec<PreparedReport>>> {
    let next = AtomicU64::new(rows.start);
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + TIME_PER_WRITE;
    let (sender, made) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next, stop, report, end) =
                (sender.clone(), &next, &stop, &report, rows.end);
            scope.spawn(move || {
                // A row that was taken is finished: those that are made follow one another.
                loop {
                    let row = next.fetch_add(1, Ordering::Relaxed);
                    if row >= end || sender.send((row, report(row))).is_err() {
                        return;
                    }
                    if stop.load(Ordering::Relaxed) || Instant::now() >= deadline {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut reports, mut failed) = (Vec::new(), None);
        let (mut told, mut broken) = (Instant::now(), false);
        loop {
            match made.recv_timeout(PROGRESS_INTERVAL) {
                Ok((row, Ok(report))) => reports.push((row, report)),
                Ok((_, Err(error))) => {
                    stop.store(true, Ordering::Relaxed);
                    failed.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                broken |= progress(reports.len() as u64).is_break();
                stop.fetch_or(broken, Ordering::Relaxed);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if broken || progress(reports.len() as u64).is_break() {
            return Ok(None);
        }
        reports.sort_unstable_by_key(|(row, _)| *row);
        Ok(Some(
            reports.into_iter().map(|(_, report)| report).collect(),
        ))
    })
}
