//! Reports that are still to be sent, and the outcomes of the others.

use std::ops::Range;

use eigenveil_shared::{
    ErrorCode,
    enrolment::ParticipantToken,
    report::{Report, ReportId},
};
use rusqlite::{Connection, params};
use serde::Serialize;

use super::{
    ledger::RowLedger,
    schema::{key, row_of},
    tables::{ACKNOWLEDGED, GIVEN_UP, PENDING, REFUSED, budget},
};
use crate::{
    error::Result, exchange::ReportResult, given_up::GivenUp, rules::TOKEN_ERRORS,
    study_info::StudyInfo, study_name::find_study,
};

/// Numbers of reports of a study, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Not yet acknowledged.
    pub pending: u64,
    /// Stored by the server.
    pub acknowledged: u64,
    /// Refused by the server, for a reason that does not go away by sending again.
    pub refused: u64,
    /// Given up before the server acknowledged them: never sent again.
    pub given_up: u64,
}

impl RowCounts {
    /// All reports.
    pub fn total(self) -> u64 {
        self.pending + self.acknowledged + self.refused + self.given_up
    }
}

/// A report to be sent; its bytes are the same whenever it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReport {
    /// The row.
    pub row: u64,
    /// The report.
    pub report: Report,
    /// The one-time token with which it is sent, if it has one.
    pub token: Option<ParticipantToken>,
}

/// A report that the server refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRow {
    /// The row.
    pub row: u64,
    /// The report's identifier.
    #[serde(skip)]
    pub id: ReportId,
    /// Stable code.
    pub code: String,
    /// The server's message.
    pub detail: String,
}

/// Consecutive keys that are acknowledged; or one key, with the code and message of its refusal.
type Run = (Range<i64>, Option<(String, String)>);

impl RowLedger {
    /// The number of a study; `None` if no row took part in it.
    fn number(&self, study: &StudyInfo) -> Result<Option<i64>> {
        Ok(self.known(study.id())?.map(|known| known.number))
    }

    /// The first reports of a study, from this row on, that are not yet acknowledged, at most `limit`.
    ///
    /// # Errors
    /// `wrong-fingerprint` if the study's parameters are not those of the reports, `already-participated` if these were
    /// made for another address ([`accept_move`](Self::accept_move)); the file was moved, replaced or overwritten while
    /// it was open.
    pub fn pending(
        &self,
        study: &StudyInfo,
        from: u64,
        limit: usize,
    ) -> Result<Vec<PendingReport>> {
        self.store.check_current()?;
        let Some(known) = self.known(study.id())? else {
            return Ok(Vec::new());
        };
        known.check(study, false)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.store.all(
            "SELECT p.key, r.id, p.bytes, t.bytes FROM payload AS p
             CROSS JOIN report AS r ON r.key = p.key
             LEFT JOIN token AS t ON t.key = p.key
             WHERE p.key >= ?1 AND p.key < ?2 AND r.state = ?3 ORDER BY p.key LIMIT ?4",
            params![
                key(known.number, from),
                key(known.number + 1, 0),
                PENDING,
                limit
            ],
            |row| {
                Ok(PendingReport {
                    row: row_of(row.get(0)?),
                    report: Report {
                        id: ReportId(row.get(1)?),
                        fingerprint: study.fingerprint(),
                        payload: row.get(2)?,
                    },
                    token: row
                        .get::<_, Option<_>>(3)?
                        .map(ParticipantToken::from_bytes),
                })
            },
        )?;
        let expected_length = study.payload_len();
        let mut lengths = rows.iter().map(|pending| pending.report.payload.len());
        match lengths.find(|length| *length != expected_length) {
            None => Ok(rows),
            Some(length) => Err(self.store.damaged_error(format_args!(
                "a payload has {length} bytes instead of {expected_length}"
            ))),
        }
    }

    /// Records the outcomes of the reports of these rows, with one sync; drops the bytes of acknowledged reports. Of a
    /// report that was given up, only that the server has it is recorded. Returns the number of reports that are no
    /// longer pending. It may be repeated.
    pub fn record(
        &mut self,
        study: &StudyInfo,
        results: impl IntoIterator<Item = (u64, ReportResult)>,
    ) -> Result<usize> {
        let Some(number) = self.number(study)? else {
            return Ok(0);
        };
        // Consecutive rows are acknowledged together: a statement for each, with its triggers, takes several times as
        // long.
        let mut runs: Vec<Run> = Vec::new();
        for (row, result) in results {
            let key = key(number, row);
            match (result.into_ledger_state(), runs.last_mut()) {
                (None, _) => {}
                (Some(None), Some((run, None))) if run.end == key => run.end += 1,
                (Some(refusal), _) => runs.push((key..key + 1, refusal)),
            }
        }
        self.store.write(|file| {
            let (mut settled, mut acknowledged) = (0, 0);
            let mut set_state = file.prepare_cached(
                "UPDATE report SET state = ?3 WHERE key >= ?1 AND key < ?2 AND state = ?4",
            )?;
            let mut delete_payloads = file.prepare_cached(
                "DELETE FROM payload WHERE key >= ?1 AND key < ?2
                 AND (SELECT state FROM report WHERE report.key = payload.key) = ?3",
            )?;
            let mut delete_tokens = file.prepare_cached(
                "DELETE FROM token WHERE key >= ?1 AND key < ?2
                 AND (SELECT state FROM report WHERE report.key = token.key) = ?3",
            )?;
            let mut insert_refusal =
                file.prepare_cached("INSERT INTO refusal (key, code, detail) VALUES (?1, ?2, ?3)")?;
            for (run, refusal) in runs {
                let state = match refusal {
                    None => ACKNOWLEDGED,
                    Some(_) => REFUSED,
                };
                let count = set_state.execute([run.start, run.end, state, PENDING])?;
                settled += count;
                match refusal {
                    None => {
                        acknowledged += count;
                        set_state.execute([run.start, run.end, state, GIVEN_UP])?;
                        delete_payloads.execute([run.start, run.end, ACKNOWLEDGED])?;
                        delete_tokens.execute([run.start, run.end, ACKNOWLEDGED])?;
                    }
                    Some((code, detail)) if count == 1 => {
                        insert_refusal.execute(params![run.start, code, detail])?;
                    }
                    Some(_) => {}
                }
            }
            file.execute(
                "UPDATE file_state SET row_count = row_count + ?1",
                [acknowledged],
            )?;
            Ok(settled)
        })
    }

    /// The first reports of a study that were refused, by row, at most `limit`.
    pub fn refused(&self, study: &StudyInfo, limit: usize) -> Result<Vec<RefusedRow>> {
        let Some(number) = self.number(study)? else {
            return Ok(Vec::new());
        };
        self.store.all(
            "SELECT f.key, r.id, f.code, f.detail FROM refusal AS f
             CROSS JOIN report AS r ON r.key = f.key
             WHERE f.key >= ?1 AND f.key < ?2 ORDER BY f.key LIMIT ?3",
            [
                key(number, 0),
                key(number + 1, 0),
                i64::try_from(limit).unwrap_or(i64::MAX),
            ],
            |row| {
                Ok(RefusedRow {
                    row: row_of(row.get(0)?),
                    id: ReportId(row.get(1)?),
                    code: row.get(2)?,
                    detail: row.get(3)?,
                })
            },
        )
    }

    /// Makes all refused reports of a study pending again, with the same bytes. Returns their number.
    pub fn requeue_refused(&mut self, study: &StudyInfo) -> Result<usize> {
        let Some(number) = self.number(study)? else {
            return Ok(0);
        };
        let range = [key(number, 0), key(number + 1, 0)];
        self.store.write(|file| {
            let count = file.execute(
                "UPDATE report SET state = 0
                 WHERE key IN (SELECT key FROM refusal WHERE key >= ?1 AND key < ?2)",
                range,
            )?;
            file.execute("DELETE FROM refusal WHERE key >= ?1 AND key < ?2", range)?;
            Ok(count)
        })
    }

    /// Gives up the reports of the study that is called so (by its identifier, the first four digits or more of it, or
    /// its name) that are pending or refused: their bytes go, they are never sent again, and no other report of these
    /// rows is made for this study. Their charges stay: the server may have reports whose acknowledgement was lost. All
    /// of it is one write, durable when this returns; it may be repeated.
    ///
    /// # Errors
    /// `study-not-found` if no row took part in a study that is called so, `usage` with the identifiers if rows took
    /// part in several.
    pub fn give_up(&mut self, called: &str) -> Result<GivenUp> {
        let studies: Vec<(i64, String, Option<String>)> = self.store.all(
            "SELECT number, study, name FROM study JOIN study_terms USING (number) ORDER BY number",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        let named = studies.iter();
        let named = named.map(|(_, id, name)| (id.as_str(), name.as_deref()));
        let at = find_study(named, called, "that rows of the ledger took part in")?;
        let (number, study, _) = &studies[at];
        let counts = self.counts_of(*number)?;
        if counts.pending + counts.refused > 0 {
            self.store.write(|file| Ok(give_up(file, *number)?))?;
        }
        let counts = self.counts_of(*number)?;
        Ok(GivenUp {
            study: study.clone(),
            given_up: counts.given_up,
            acknowledged: counts.acknowledged,
            charged: self.store.one(
                "SELECT epsilon, delta FROM study WHERE number = ?1",
                [number],
                |row| budget(row, 0),
            )?,
        })
    }

    /// Stores the token with which the report of each of these rows is sent, every time. A second token replaces the
    /// first; a report that was refused for its token is pending again. Returns the number of rows with a stored token:
    /// reports that are acknowledged or given up need none any more, and rows without a report have nothing to send.
    ///
    /// Replacing a token is always safe: a server that already has the report ignores the token.
    pub fn set_tokens<'a>(
        &mut self,
        study: &StudyInfo,
        tokens: impl IntoIterator<Item = (u64, &'a ParticipantToken)>,
    ) -> Result<usize> {
        let Some(number) = self.number(study)? else {
            return Ok(0);
        };
        self.store.write(|file| {
            let mut stored = 0;
            let mut store_token = file.prepare_cached(
                "INSERT INTO token (key, bytes) SELECT ?1, ?2
                 WHERE EXISTS (SELECT 1 FROM report WHERE key = ?1 AND state IN (?3, ?4))
                 ON CONFLICT (key) DO UPDATE SET bytes = excluded.bytes",
            )?;
            let mut delete_refusal =
                file.prepare_cached("DELETE FROM refusal WHERE key = ?1 AND code IN (?2, ?3, ?4)")?;
            let mut requeue = file.prepare_cached("UPDATE report SET state = ?2 WHERE key = ?1")?;
            let [required, unknown, spent] = TOKEN_ERRORS.map(ErrorCode::as_str);
            for (row, token) in tokens {
                let key = key(number, row);
                stored += store_token.execute(params![key, token.as_bytes(), PENDING, REFUSED])?;
                if delete_refusal.execute(params![key, required, unknown, spent])? == 1 {
                    requeue.execute(params![key, PENDING])?;
                }
            }
            Ok(stored)
        })
    }

    /// Number of reports of a study that were refused for their tokens.
    pub(super) fn refused_for_tokens(&self, study: &StudyInfo) -> Result<u64> {
        let Some(number) = self.number(study)? else {
            return Ok(0);
        };
        let [required, unknown, spent] = TOKEN_ERRORS.map(ErrorCode::as_str);
        self.store.one(
            "SELECT count(*) FROM refusal WHERE key >= ?1 AND key < ?2 AND code IN (?3, ?4, ?5)",
            params![key(number, 0), key(number + 1, 0), required, unknown, spent],
            |row| row.get(0),
        )
    }

    /// Numbers of reports of a study, by state.
    pub fn counts(&self, study: &StudyInfo) -> Result<RowCounts> {
        match self.number(study)? {
            Some(number) => self.counts_of(number),
            None => Ok(RowCounts::default()),
        }
    }

    fn counts_of(&self, number: i64) -> Result<RowCounts> {
        self.store.one(
            "SELECT count(*) FILTER (WHERE state = ?3), count(*) FILTER (WHERE state = ?4),
                count(*) FILTER (WHERE state = ?5), count(*) FILTER (WHERE state = ?6)
             FROM report WHERE key >= ?1 AND key < ?2",
            [
                key(number, 0),
                key(number + 1, 0),
                PENDING,
                ACKNOWLEDGED,
                REFUSED,
                GIVEN_UP,
            ],
            |row| {
                Ok(RowCounts {
                    pending: row.get(0)?,
                    acknowledged: row.get(1)?,
                    refused: row.get(2)?,
                    given_up: row.get(3)?,
                })
            },
        )
    }
}

/// Gives up the reports of the study with this number that can still be sent.
fn give_up(file: &Connection, number: i64) -> rusqlite::Result<()> {
    let range = [key(number, 0), key(number + 1, 0)];
    let given_up = file.execute(
        &format!(
            "UPDATE report SET state = {GIVEN_UP}
             WHERE key >= ?1 AND key < ?2 AND state IN ({PENDING}, {REFUSED})"
        ),
        range,
    )?;
    // Tokens of acknowledged reports are gone already.
    for table in ["payload", "token", "refusal"] {
        let delete = format!("DELETE FROM {table} WHERE key >= ?1 AND key < ?2");
        file.execute(&delete, range)?;
    }
    file.execute(
        "UPDATE file_state SET row_count = row_count + ?1",
        [given_up],
    )
    .map(drop)
}
