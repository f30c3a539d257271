//! Turns rows into charged, stored reports.

use std::{
    ops::{ControlFlow, Range},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use eigenveil_shared::{about::UtcDate, enrolment::ParticipantToken, privacy::PrivacyStatement};
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
    study::{PreparedReport, Study},
    study_info::{StudyInfo, check_fingerprint},
};

/// Maximum number of rows, and maximum duration, of one write.
const ROWS_PER_WRITE: u64 = 1_024;
const TIME_PER_WRITE: Duration = Duration::from_secs(1);
/// Maximum interval between calls of `progress`.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The outcome of [`RowLedger::prepare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Number of rows that were charged and now have reports.
    pub rows: u64,
    /// Number of these whose report is that of the zero row. **Only for the person responsible for the rows.**
    pub unusable: u64,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

impl RowLedger {
    /// Makes and stores the missing reports of an admitted file; token i belongs to row i. See
    /// [`prepare`](Self::prepare).
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
                self.store_reports(study, file, tokens, from, &reports, now)?;
                let unusable = reports
                    .iter()
                    .filter(|report| report.local_warning().is_some());
                prepared.unusable += unusable.count() as u64;
                prepared.rows += reports.len() as u64;
                from += reports.len() as u64;
            }
        }
        Ok(prepared)
    }

    /// Charges and stores consecutive reports, with their tokens; `first` is the row of the first one.
    fn store_reports(
        &mut self,
        study: &Study,
        file: &RowFile,
        tokens: &[ParticipantToken],
        first: u64,
        reports: &[PreparedReport],
        now: u64,
    ) -> Result<()> {
        let study_number = self.known(study.id())?.map(|known| known.number);
        self.store.write(|ledger| {
            let number = match study_number {
                Some(number) => number,
                None => {
                    let statement = match file.persons {
                        true => study.privacy().of_person(),
                        false => study.privacy(),
                    };
                    insert_study(ledger, study, &statement, now)?
                }
            };
            insert_file(ledger, number, file)?;
            insert_charge(ledger, number, first, reports.len() as u64)?;
            let mut insert_report =
                ledger.prepare_cached("INSERT INTO report (key, id, state) VALUES (?1, ?2, ?3)")?;
            let mut insert_payload =
                ledger.prepare_cached("INSERT INTO payload (key, bytes) VALUES (?1, ?2)")?;
            let mut insert_token =
                ledger.prepare_cached("INSERT INTO token (key, bytes) VALUES (?1, ?2)")?;
            let mut tokens = tokens.iter().skip(first as usize);
            for (row, prepared) in (first..).zip(reports) {
                let report = prepared.report();
                check_fingerprint(report.fingerprint, study.fingerprint())?;
                insert_report.execute(params![key(number, row), report.id.0, PENDING])?;
                insert_payload.execute(params![key(number, row), report.payload])?;
                if let Some(token) = tokens.next() {
                    insert_token.execute(params![key(number, row), token.as_bytes()])?;
                }
            }
            Ok(())
        })
    }
}

/// Stores a study and its terms; returns its number.
pub(super) fn insert_study(
    ledger: &Connection,
    study: &StudyInfo,
    statement: &PrivacyStatement,
    now: u64,
) -> Result<i64, Failure> {
    let cost = charge(study.id(), study.parameters(), statement)?;
    ledger.execute(
        "INSERT INTO study (server, study, fingerprint, mechanism, dimension,
            neighbours, sentence, epsilon, delta, day)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            study.server().as_str(),
            study.id(),
            study.fingerprint().0,
            statement.mechanism.as_str(),
            study.parameters().dimension(),
            statement.neighbours,
            statement.sentence,
            cost.epsilon(),
            cost.delta(),
            UtcDate::from_unix_ms(now).0,
        ],
    )?;
    let number = ledger.last_insert_rowid();
    let canonical = study.parameters().canonical_bytes();
    write_terms(ledger, number, &StudyTerms::of(study), &canonical)?;
    Ok(number)
}

/// Stores the digest of the file, and that of the settings with which it was read for this study.
pub(super) fn insert_file(ledger: &Connection, study: i64, file: &RowFile) -> rusqlite::Result<()> {
    ledger
        .prepare_cached("INSERT INTO file VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([file.participants])?;
    ledger
        .prepare_cached("INSERT INTO reading VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![study, file.settings_digest])
        .map(drop)
}

/// Charges consecutive rows for a study.
pub(super) fn insert_charge(
    ledger: &Connection,
    study: i64,
    first: u64,
    rows: u64,
) -> rusqlite::Result<()> {
    ledger
        .prepare_cached("INSERT INTO charge (study, first, rows) VALUES (?1, ?2, ?3)")?
        .execute(params![study, first, rows])
        .map(drop)
}

/// Perturbs rows in order until all are done or the time is up; returns their reports. `None` if `progress` breaks.
fn perturb(
    rows: Range<u64>,
    report: impl Fn(u64) -> Result<PreparedReport> + Sync,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Vec<PreparedReport>>> {
    let next = AtomicU64::new(rows.start);
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + TIME_PER_WRITE;
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (sender, next, stop, report, end) =
                (sender.clone(), &next, &stop, &report, rows.end);
            scope.spawn(move || {
                // A row once taken is always finished, so the finished rows are contiguous.
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
        let (mut reports, mut first_error) = (Vec::new(), None);
        let (mut last_progress, mut is_stopped) = (Instant::now(), false);
        loop {
            match receiver.recv_timeout(PROGRESS_INTERVAL) {
                Ok((row, Ok(report))) => reports.push((row, report)),
                Ok((_, Err(error))) => {
                    stop.store(true, Ordering::Relaxed);
                    first_error.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if last_progress.elapsed() >= PROGRESS_INTERVAL {
                last_progress = Instant::now();
                is_stopped |= progress(reports.len() as u64).is_break();
                stop.fetch_or(is_stopped, Ordering::Relaxed);
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if is_stopped || progress(reports.len() as u64).is_break() {
            return Ok(None);
        }
        reports.sort_unstable_by_key(|(row, _)| *row);
        Ok(Some(
            reports.into_iter().map(|(_, report)| report).collect(),
        ))
    })
}
