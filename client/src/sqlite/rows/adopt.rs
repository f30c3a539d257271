//! Reports that an earlier version kept in a file of their own, an outbox.

use std::{fs, ops::Range, path::Path};

use eigenveil_shared::{Error as SharedError, ErrorCode, report::ReportId, study::Fingerprint};
use rusqlite::params;
use sha2::{Digest, Sha256};

use super::{
    ledger::{RowFile, RowLedger},
    schema::key,
};
use crate::{
    error::{Error, Result},
    sqlite::file::{FileSchema, LockedFile},
    study::Study,
};

/// How an outbox is recognised.
const OUTBOX: FileSchema = FileSchema {
    name: "outbox",
    // "EvOB"; before "EvOb"
    application_id: 0x4576_4f42,
    earlier_application_id: 0x4576_4f62,
    tables: &[],
    upgrades: &[],
    append_only_table: "report",
};
/// Reports copied at a time.
const CHUNK: i64 = 1_024;

impl RowLedger {
    /// Takes over the reports of an outbox that an earlier version made for the rows of this file, in one change, and
    /// then renames it (`.adopted`). What was charged has to be what it holds, by its digest; what it holds and was not
    /// charged is charged. `rows_sha256` and `reading` are what the earlier version kept of the file. Gives how many
    /// reports it holds; `None` for an outbox of another study.
    ///
    /// # Errors
    /// `already-participated` where other reports were charged; `budget-exceeded`; a file that has changed since; the
    /// outbox is locked, damaged or none.
    pub fn adopt(
        &mut self,
        outbox: impl AsRef<Path>,
        study: &Study,
        file: &RowFile,
        rows_sha256: &[u8],
        reading: &[u8],
    ) -> Result<Option<u64>> {
        let path = outbox.as_ref();
        let outbox = OUTBOX.open(path)?;
        let bound: (String, Fingerprint) =
            outbox.one("SELECT study, fingerprint FROM binding", [], |row| {
                Ok((row.get(0)?, Fingerprint(row.get(1)?)))
            })?;
        if bound != (study.id().to_owned(), study.fingerprint()) {
            return Ok(None);
        }
        check_meta(
            &outbox,
            [("rows_sha256", rows_sha256), ("rows_read_as", reading)],
        )?;
        let cost = self.check_study(study, file)?;
        let known = self.known(study.id())?.map(|known| known.number);
        for (rows, digest) in &self.charges_with_digests(known)? {
            if ids_digest(&outbox, rows)? != Some(*digest) {
                return Err(SharedError::new(
                    ErrorCode::AlreadyParticipated,
                    format!(
                        "rows {} to {} have taken part in study {}, and the reports in {} are not those that were charged; adopt the outbox that holds them",
                        rows.start + 1,
                        rows.end,
                        study.id(),
                        path.display()
                    ),
                )
                .into());
            }
        }
        let new = uncharged(&outbox, &self.missing(study.id(), u64::MAX)?, file.rows)?;
        self.check_limits(study, file, cost)?;
        let now = Error::check_clock(self.clock.unix_ms())?;
        let mut adopted = 0;
        self.store.write(|ledger| {
            let number = match known {
                Some(number) => number,
                None => super::prepare::insert_study(ledger, study, cost, now)?,
            };
            super::prepare::insert_file(ledger, number, file)?;
            let mut charge =
                ledger.prepare("INSERT INTO charge (study, first, rows) VALUES (?1, ?2, ?3)")?;
            for rows in &new {
                charge.execute(params![number, rows.start, rows.end - rows.start])?;
            }
            // What a run that was killed before it renamed the outbox has taken over is here already.
            let mut report = ledger.prepare(
                "INSERT INTO report (key, id, state) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?;
            let mut payload = ledger.prepare("INSERT INTO payload (key, bytes) VALUES (?1, ?2)")?;
            let mut token = ledger.prepare("INSERT INTO token (key, bytes) VALUES (?1, ?2)")?;
            let mut refusal =
                ledger.prepare("INSERT INTO refusal (key, code, detail) VALUES (?1, ?2, ?3)")?;
            let mut from = 0;
            loop {
                let chunk = chunk(&outbox, from)?;
                let Some(last) = chunk.last() else {
                    return Ok(());
                };
                from = last.row + 1;
                for kept in chunk {
                    let key = key(number, kept.row.cast_unsigned());
                    if report.execute(params![key, kept.id.0, kept.state])? == 0 {
                        continue;
                    }
                    if let Some(bytes) = kept.payload {
                        payload.execute(params![key, bytes])?;
                    }
                    if let Some(bytes) = kept.token {
                        token.execute(params![key, bytes])?;
                    }
                    if let Some((code, detail)) = kept.refusal {
                        refusal.execute(params![key, code, detail])?;
                    }
                    adopted += 1;
                }
            }
        })?;
        drop(outbox);
        let mut name = path.as_os_str().to_owned();
        name.push(".adopted");
        fs::rename(path, name).map_err(|error| {
            Error::file(
                "outbox",
                path,
                format_args!("its reports were taken over, but it cannot be renamed: {error}"),
            )
        })?;
        Ok(Some(adopted))
    }

    /// The charges of a study that an earlier version made, with the digests of their reports.
    fn charges_with_digests(&self, study: Option<i64>) -> Result<Vec<(Range<u64>, [u8; 32])>> {
        self.store.all(
            "SELECT first, first + rows, reports_digest FROM charge
             WHERE study = ?1 AND reports_digest IS NOT NULL ORDER BY first",
            [study],
            |row| Ok((row.get(0)?..row.get(1)?, row.get(2)?)),
        )
    }
}

/// One row of an outbox.
struct Kept {
    row: i64,
    id: ReportId,
    state: i64,
    payload: Option<Vec<u8>>,
    token: Option<Vec<u8>>,
    refusal: Option<(String, String)>,
}

fn chunk(outbox: &LockedFile, from: i64) -> Result<Vec<Kept>> {
    outbox.all(
        "SELECT r.participant, r.id, r.state, p.bytes, t.bytes, f.code, f.detail FROM report AS r
         LEFT JOIN payload AS p ON p.participant = r.participant
         LEFT JOIN token AS t ON t.participant = r.participant
         LEFT JOIN refusal AS f ON f.participant = r.participant
         WHERE r.participant >= ?1 ORDER BY r.participant LIMIT ?2",
        [from, CHUNK],
        |row| {
            Ok(Kept {
                row: row.get(0)?,
                id: ReportId(row.get(1)?),
                state: row.get(2)?,
                payload: row.get(3)?,
                token: row.get(4)?,
                refusal: row.get::<_, Option<_>>(5)?.zip(row.get(6)?),
            })
        },
    )
}

/// Refuses another file than the one whose rows are in the outbox.
fn check_meta(outbox: &LockedFile, expected: [(&str, &[u8]); 2]) -> Result<()> {
    for (name, expected) in expected {
        let found: Option<Vec<u8>> =
            outbox.first("SELECT value FROM meta WHERE key = ?1", [name], |row| {
                row.get(0)
            })?;
        if found.is_some_and(|found| found != expected) {
            return Err(Error::usage(format!(
                "the file is not, or is not read as, the one whose reports are in {}; restore it, and give the flags that were given then",
                outbox.path().display()
            )));
        }
    }
    Ok(())
}

/// Digest of the identifiers of the reports of these rows; `None` where one has no report.
fn ids_digest(outbox: &LockedFile, rows: &Range<u64>) -> Result<Option<[u8; 32]>> {
    let mut digest = Sha256::new();
    let mut next = rows.start;
    outbox.all(
        "SELECT participant, id FROM report WHERE participant >= ?1 AND participant < ?2
         ORDER BY participant",
        [rows.start, rows.end],
        |row| {
            next += u64::from(row.get::<_, u64>(0)? == next);
            digest.update(row.get::<_, [u8; 16]>(1)?);
            Ok(())
        },
    )?;
    Ok((next == rows.end).then(|| digest.finalize().into()))
}

/// Runs of reports of rows in these ranges, which were not charged.
fn uncharged(outbox: &LockedFile, missing: &[Range<u64>], rows: u64) -> Result<Vec<Range<u64>>> {
    let all: Vec<u64> = outbox.all(
        "SELECT participant FROM report ORDER BY participant",
        [],
        |row| row.get(0),
    )?;
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut missing = missing.iter().peekable();
    for row in all {
        while missing.peek().is_some_and(|range| range.end <= row) {
            missing.next();
        }
        if missing.peek().is_none_or(|range| row < range.start) {
            continue;
        }
        if row >= rows {
            return Err(Error::usage(format!(
                "{} has a report of row {}, which was not charged, and the file has {rows} rows; use the file that has this row",
                outbox.path().display(),
                row + 1
            )));
        }
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    Ok(runs)
}
