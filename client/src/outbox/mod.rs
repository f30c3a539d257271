//! Reports that are final but not yet acknowledged, in one durable file.
//!
//! The invariant: **a participant has no report, or exactly one, fixed for ever.** Whatever is killed
//! at whatever point, the bytes that were (or may have been) sent are the bytes that will be sent
//! again. A report is written here, and synced to the disk, before its first send.
//!
//! One participant's report is `pending`, then `acknowledged` (its bytes are dropped, the space is
//! used again) or `refused` (the bytes stay, so that a server's mistake can be made good with
//! [`Outbox::requeue_refused`] and not with a second draw of noise).
//!
//! The file is an SQLite database, locked while it is open and complete in itself: what was given to be
//! sent is not in the log beside it alone. Keep it on a local disk: locks of network file systems cannot be
//! relied on. An outbox knows its own reports only: what one participant spends in several outboxes,
//! and in several studies, is for a [`RowLedger`](crate::RowLedger).

mod schema;
mod tokens;

use std::{ops::Range, path::Path};

use eigenveil_shared::{
    enrolment::ParticipantToken,
    report::{Report, ReportId},
    study::{Fingerprint, StudyParams},
};
use rusqlite::params;

use self::schema::SCHEMA;
pub(crate) use self::tokens::TOKEN_ERRORS;
use crate::{
    error::{Error, Result},
    file::{LockedFile, MAX_DETAIL},
    reporter::{PreparedReport, check_fingerprint},
};

const PENDING: i64 = 0;
const ACKNOWLEDGED: i64 = 1;
const REFUSED: i64 = 2;

/// The study that an outbox, or a report of a ledger, belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StudyRef {
    pub(crate) server: String,
    pub(crate) study: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) payload_len: usize,
}

impl StudyRef {
    /// A reference to the study with this identifier and these parameters on this server. A slash at the end of the
    /// address is ignored.
    pub fn new(server: &str, study: &str, params: &StudyParams) -> Self {
        Self {
            server: server.trim_end_matches('/').to_owned(),
            study: study.to_owned(),
            fingerprint: params.fingerprint(),
            payload_len: params.payload_len(),
        }
    }

    /// Address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Identifier of the study.
    pub fn study(&self) -> &str {
        &self.study
    }

    /// Fingerprint of the study's parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.payload_len
    }
}

/// How many reports are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Not yet acknowledged.
    pub pending: u64,
    /// Stored by the server.
    pub acknowledged: u64,
    /// Refused by the server, for a reason that sending again does not cure.
    pub refused: u64,
}

impl OutboxCounts {
    /// All reports.
    pub fn total(self) -> u64 {
        self.pending + self.acknowledged + self.refused
    }
}

/// A report to be sent; its bytes are the same whenever it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReport {
    /// The participant.
    pub participant: u64,
    /// The report.
    pub report: Report,
    /// The one-time token it is sent with, where it has one.
    pub token: Option<ParticipantToken>,
}

/// A report that the server refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedEntry {
    /// The participant.
    pub participant: u64,
    /// The report's identifier.
    pub id: ReportId,
    /// Stable code.
    pub code: String,
    /// The server's sentence.
    pub detail: String,
}

/// A refusal to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) participant: u64,
    pub(crate) code: &'a str,
    pub(crate) detail: &'a str,
}

/// The durable file of reports of one study; see the [module](self).
///
/// Participants are numbers below 2⁶³: a row number, or 0 on a device with one participant.
/// [`RowLedger`](crate::RowLedger) has an example.
#[derive(Debug)]
pub struct Outbox {
    study_ref: StudyRef,
    store: LockedFile,
}

impl Outbox {
    /// Opens the outbox of a study, creating the file (readable by its owner only) if there is none.
    ///
    /// # Errors
    /// [`Error::is_locked`] when another process (or another `Outbox`) has it open,
    /// [`Error::is_study_mismatch`] when it was created for another study, other parameters
    /// or another server; otherwise the file could not be created, read or written, is empty or damaged, has
    /// two names, or is no outbox; or the log beside it is not its own.
    pub fn open(path: impl AsRef<Path>, study_ref: &StudyRef) -> Result<Self> {
        let path = path.as_ref();
        let outbox =
            Self::of_file(SCHEMA.open_or_create(path, |file| schema::bind(file, study_ref))?)?;
        schema::check_study_ref(path, &outbox.study_ref, study_ref)?;
        Ok(outbox)
    }

    /// Opens an outbox that is there, whatever study it belongs to: to look at it.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self> {
        Self::of_file(SCHEMA.open(path.as_ref())?)
    }

    fn of_file(store: LockedFile) -> Result<Self> {
        Ok(Self {
            study_ref: schema::study_ref(&store)?,
            store,
        })
    }

    /// Records that the study is at another address now: the same reports are sent there. Ask whoever answers for the
    /// rows first, and see [`RowLedger::accept_move`](crate::RowLedger::accept_move).
    ///
    /// # Errors
    /// [`Error::is_study_mismatch`] when it is another study, or has other parameters; the outbox could not be written.
    pub fn accept_move(&mut self, study_ref: &StudyRef) -> Result<()> {
        if self.study_ref == *study_ref {
            return Ok(());
        }
        let there = StudyRef {
            server: self.study_ref.server.clone(),
            ..study_ref.clone()
        };
        schema::check_study_ref(self.store.path(), &self.study_ref, &there)?;
        self.store.write(|file| {
            file.execute("UPDATE binding SET server = ?1", [study_ref.server()])?;
            Ok(())
        })?;
        self.study_ref = study_ref.clone();
        Ok(())
    }

    /// The study this outbox belongs to.
    pub fn study_ref(&self) -> &StudyRef {
        &self.study_ref
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Keeps one report; `false` when the participant already has one, which stays as it is.
    pub fn enqueue(&mut self, participant: u64, report: &PreparedReport) -> Result<bool> {
        Ok(!self.enqueue_batch([(participant, report)])?.is_empty())
    }

    /// Keeps reports, all or none, with one sync to the disk. A participant that has a report keeps
    /// it, and the new one is dropped unsent. Gives the participants whose report was kept now.
    ///
    /// # Errors
    /// `wrong-fingerprint` for a report of other study parameters; the file could not be written.
    pub fn enqueue_batch<'a>(
        &mut self,
        reports: impl IntoIterator<Item = (u64, &'a PreparedReport)>,
    ) -> Result<Vec<u64>> {
        let fingerprint = self.study_ref.fingerprint;
        self.store.write(|file| {
            let mut new = Vec::new();
            let mut insert = file.prepare_cached(
                "INSERT INTO report (participant, id, state) VALUES (?1, ?2, ?3)
                 ON CONFLICT (participant) DO NOTHING",
            )?;
            let mut queue =
                file.prepare_cached("INSERT INTO payload (participant, bytes) VALUES (?1, ?2)")?;
            for (participant, prepared) in reports {
                let report = prepared.report();
                check_fingerprint(report.fingerprint, fingerprint)?;
                let key = key(participant)?;
                // The insert itself decides who was first.
                if insert.execute(params![key, report.id.0, PENDING])? == 1 {
                    queue.execute(params![key, report.payload])?;
                    new.push(participant);
                }
            }
            Ok(new)
        })
    }

    /// Whether the participant has a report, in whatever state.
    pub fn has_report(&self, participant: u64) -> Result<bool> {
        let key = key(participant)?;
        let known = "SELECT 1 FROM report WHERE participant = ?1";
        Ok(self.store.first(known, [key], |_| Ok(()))?.is_some())
    }

    /// The identifiers of the reports of this range, ascending by participant, whatever their state.
    pub(crate) fn ids(&self, range: Range<u64>) -> Result<Vec<(u64, [u8; 16])>> {
        self.store.all(
            "SELECT participant, id FROM report WHERE participant >= ?1 AND participant < ?2
             ORDER BY participant",
            [key_up_to(range.start), key_up_to(range.end)],
            |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)),
        )
    }

    /// The participants of this range that have no report yet, ascending: the only rows to perturb.
    /// Ask for a range that fits in memory.
    pub fn missing(&self, range: Range<u64>) -> Result<Vec<u64>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        key(range.end)?;
        let mut missing = Vec::new();
        let mut next = range.start;
        for (participant, _) in self.ids(range.clone())? {
            missing.extend(next..participant);
            next = participant + 1;
        }
        missing.extend(next..range.end);
        Ok(missing)
    }

    /// The first reports that are not yet acknowledged, by participant, at most `limit`.
    pub fn pending(&self, limit: usize) -> Result<Vec<PendingReport>> {
        self.pending_from(0, limit)
    }

    /// As [`Outbox::pending`], beginning with this participant.
    pub fn pending_from(&self, participant: u64, limit: usize) -> Result<Vec<PendingReport>> {
        self.store.settle()?;
        let found = self.store.all(
            "SELECT p.participant, r.id, p.bytes, t.bytes FROM payload AS p
             CROSS JOIN report AS r ON r.participant = p.participant
             LEFT JOIN token AS t ON t.participant = p.participant
             WHERE p.participant >= ?1 AND r.state = ?2 ORDER BY p.participant LIMIT ?3",
            params![key(participant)?, PENDING, limit_of(limit)],
            |row| {
                Ok(PendingReport {
                    participant: row.get::<_, i64>(0)?.cast_unsigned(),
                    report: Report {
                        id: ReportId(row.get(1)?),
                        fingerprint: self.study_ref.fingerprint,
                        payload: row.get(2)?,
                    },
                    token: row
                        .get::<_, Option<_>>(3)?
                        .map(ParticipantToken::from_bytes),
                })
            },
        )?;
        let wanted = self.study_ref.payload_len;
        let mut lengths = found.iter().map(|found| found.report.payload.len());
        match lengths.find(|length| *length != wanted) {
            None => Ok(found),
            Some(length) => Err(SCHEMA.damaged(
                self.store.path(),
                format_args!("a payload has {length} bytes instead of {wanted}"),
            )),
        }
    }

    /// Records that the server has these participants' reports, with one sync; their bytes are
    /// dropped. Gives how many of them were pending. Harmless when repeated.
    pub fn record_acknowledged(&mut self, participants: &[u64]) -> Result<usize> {
        self.settle(participants, &[])
    }

    /// Records that the server refused a participant's report for good. Gives whether it was pending.
    pub fn record_refused(&mut self, participant: u64, code: &str, detail: &str) -> Result<bool> {
        let refusal = Refusal {
            participant,
            code,
            detail,
        };
        Ok(self.settle(&[], &[refusal])? == 1)
    }

    /// Acknowledgements and refusals in one transaction; how many of the reports were pending.
    pub(crate) fn settle(
        &mut self,
        acknowledged: &[u64],
        refused: &[Refusal<'_>],
    ) -> Result<usize> {
        self.store.write(|file| {
            let mut settled = 0;
            let mut update = file.prepare_cached(
                "UPDATE report SET state = ?2 WHERE participant = ?1 AND state = ?3",
            )?;
            let mut forget = file.prepare_cached("DELETE FROM payload WHERE participant = ?1")?;
            let mut forget_token =
                file.prepare_cached("DELETE FROM token WHERE participant = ?1")?;
            for &participant in acknowledged {
                let key = key(participant)?;
                if update.execute(params![key, ACKNOWLEDGED, PENDING])? == 1 {
                    forget.execute([key])?;
                    forget_token.execute([key])?;
                    settled += 1;
                }
            }
            let mut explain = file.prepare_cached(
                "INSERT INTO refusal (participant, code, detail) VALUES (?1, ?2, ?3)",
            )?;
            for refusal in refused {
                let key = key(refusal.participant)?;
                if update.execute(params![key, REFUSED, PENDING])? == 1 {
                    let detail: String = refusal.detail.chars().take(MAX_DETAIL).collect();
                    explain.execute(params![key, refusal.code, detail])?;
                    settled += 1;
                }
            }
            Ok(settled)
        })
    }

    /// The first reports that were refused, by participant, at most `limit`.
    pub fn refused(&self, limit: usize) -> Result<Vec<RefusedEntry>> {
        self.store.all(
            "SELECT f.participant, r.id, f.code, f.detail FROM refusal AS f
             CROSS JOIN report AS r ON r.participant = f.participant
             ORDER BY f.participant LIMIT ?1",
            [limit_of(limit)],
            |row| {
                Ok(RefusedEntry {
                    participant: row.get::<_, i64>(0)?.cast_unsigned(),
                    id: ReportId(row.get(1)?),
                    code: row.get(2)?,
                    detail: row.get(3)?,
                })
            },
        )
    }

    /// Makes all refused reports pending again, with the bytes they had. Gives how many.
    pub fn requeue_refused(&mut self) -> Result<usize> {
        self.store.write(|file| {
            let count = file.execute(
                "UPDATE report SET state = ?1
                 WHERE participant IN (SELECT participant FROM refusal)",
                [PENDING],
            )?;
            file.execute("DELETE FROM refusal", [])?;
            Ok(count)
        })
    }

    /// How many reports are in which state.
    pub fn counts(&self) -> Result<OutboxCounts> {
        let (total, kept, refused): (u64, u64, u64) = self.store.one(
            "SELECT (SELECT count(*) FROM report), (SELECT count(*) FROM payload),
                (SELECT count(*) FROM refusal)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        Ok(OutboxCounts {
            pending: kept - refused,
            acknowledged: total - kept,
            refused,
        })
    }

    /// A value that the caller keeps with the outbox, such as a digest of the file its rows come from.
    pub fn get_meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let value = "SELECT value FROM meta WHERE key = ?1";
        self.store.first(value, [key], |row| row.get(0))
    }

    /// Keeps a value with the outbox, in place of what was there under this key.
    pub fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.store.write(|file| {
            file.execute(
                "INSERT INTO meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                params![key, value],
            )?;
            Ok(())
        })
    }
}

/// A participant as SQLite's signed key.
fn key(participant: u64) -> Result<i64> {
    i64::try_from(participant).map_err(|_| {
        Error::usage(format!(
            "participant {participant} is out of range; an outbox takes numbers below 2^63"
        ))
    })
}

/// A number of rows as SQLite takes it.
fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A bound of a range of participants as SQLite's key.
fn key_up_to(bound: u64) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}
