//! The tables of a ledger, and how their rows are read.

use std::path::Path;

use eigenveil_shared::{
    Error as SharedError, ErrorCode, privacy::Budget, report::ReportId, study::Fingerprint,
};
use rusqlite::{Connection, Row, params, types::Type};

use super::{EntryState, limits::Limits, moved::MOVED, terms::STUDY_TERMS};
use crate::{
    error::{Error, Result},
    file::{FileSchema, LockedFile},
    outbox::StudyRef,
};

/// How a ledger is recognised.
pub(super) const SCHEMA: FileSchema = FileSchema {
    name: "ledger",
    // "EvDL"; before "EvLg"
    application_id: 0x4576_444c,
    earlier_application_id: 0x4576_4c67,
    tables: &[LIMITS, TABLES, STUDY_TERMS, MOVED],
    append_only_table: "entry",
};

pub(super) const OWED: i64 = 0;
pub(super) const ACKNOWLEDGED: i64 = 1;
pub(super) const REFUSED: i64 = 2;

/// What may be spent, in either kind of ledger.
pub(super) const LIMITS: &str = "
    CREATE TABLE limits (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epsilon_per_study REAL NOT NULL,
        epsilon_total REAL NOT NULL,
        delta_total REAL NOT NULL
    ) STRICT;
";

// The database itself enforces it with triggers: a charge stays, and so does the report it was for.
const TABLES: &str = "
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        server TEXT NOT NULL,
        study TEXT NOT NULL UNIQUE,
        fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
        payload_len INTEGER NOT NULL CHECK (payload_len > 0),
        mechanism TEXT NOT NULL,
        dimension INTEGER NOT NULL CHECK (dimension > 0),
        neighbours TEXT NOT NULL,
        sentence TEXT NOT NULL,
        epsilon REAL NOT NULL CHECK (epsilon > 0),
        delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
        day INTEGER NOT NULL,
        report BLOB NOT NULL UNIQUE CHECK (length(report) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
        code TEXT,
        detail TEXT,
        CHECK ((state = 2) = (code IS NOT NULL AND detail IS NOT NULL))
    ) STRICT;
    CREATE TABLE payload (number INTEGER PRIMARY KEY REFERENCES entry, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE token (
        number INTEGER PRIMARY KEY REFERENCES entry,
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TRIGGER entries_stay BEFORE DELETE ON entry
        BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never deleted'); END;
    CREATE TRIGGER charges_stay
        BEFORE UPDATE OF number, server, study, fingerprint, payload_len, mechanism, dimension,
            neighbours, sentence, epsilon, delta, day, report ON entry
        BEGIN SELECT RAISE(ABORT, 'what an entry of a ledger says is never changed'); END;
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE OF state ON entry WHEN OLD.state = 1
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER reports_stay BEFORE UPDATE ON payload
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
    CREATE TRIGGER owed_reports_stay BEFORE DELETE ON payload
        WHEN (SELECT state FROM entry WHERE number = OLD.number) IS NOT 1
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged'); END;
";

/// Writes the limits of either kind of ledger.
pub(super) fn write_limits(file: &Connection, limits: &Limits) -> rusqlite::Result<usize> {
    file.execute(
        "INSERT INTO limits (id, epsilon_per_study, epsilon_total, delta_total)
         VALUES (1, ?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET
            epsilon_per_study = excluded.epsilon_per_study,
            epsilon_total = excluded.epsilon_total,
            delta_total = excluded.delta_total",
        params![
            limits.epsilon_per_study(),
            limits.epsilon_total(),
            limits.delta_total()
        ],
    )
}

/// Reads the limits of either kind of ledger.
pub(super) fn read_limits(schema: &FileSchema, store: &LockedFile) -> Result<Limits> {
    let (per_study, total, delta) = store.one(
        "SELECT epsilon_per_study, epsilon_total, delta_total FROM limits",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Limits::new(per_study, total, delta).map_err(|error| schema.damaged(store.path(), error))
}

/// One row of `entry`.
pub(crate) struct Entry {
    pub(super) number: i64,
    pub(crate) study_ref: StudyRef,
    /// Where the device took part.
    pub(super) first_server: String,
    pub(super) mechanism: String,
    pub(super) dimension: u64,
    pub(super) neighbours: String,
    pub(super) sentence: String,
    pub(super) charge: Budget,
    pub(super) day: u64,
    pub(super) report: ReportId,
    pub(super) state: EntryState,
}

impl Entry {
    /// The columns that [`Entry::read`] wants. Of addresses the latest.
    pub(super) const COLUMNS: &'static str = "number, coalesce((SELECT moved.server FROM moved \
        WHERE moved.number = entry.number ORDER BY moved.id DESC LIMIT 1), server), study, fingerprint, payload_len, \
        mechanism, dimension, neighbours, sentence, epsilon, delta, day, report, state, code, detail, server";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            study_ref: StudyRef {
                server: row.get(1)?,
                study: row.get(2)?,
                fingerprint: Fingerprint(row.get(3)?),
                payload_len: row.get(4)?,
            },
            first_server: row.get(16)?,
            mechanism: row.get(5)?,
            dimension: row.get(6)?,
            neighbours: row.get(7)?,
            sentence: row.get(8)?,
            charge: budget(row, 9)?,
            day: row.get(11)?,
            report: ReportId(row.get(12)?),
            state: match row.get(13)? {
                OWED => EntryState::Owed,
                ACKNOWLEDGED => EntryState::Acknowledged,
                _ => EntryState::Refused {
                    code: row.get(14)?,
                    detail: row.get(15)?,
                },
            },
        })
    }
}

/// The ε and δ in this column and the next.
pub(super) fn budget(row: &Row<'_>, at: usize) -> rusqlite::Result<Budget> {
    Budget::new(row.get(at)?, row.get(at + 1)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(at, Type::Real, Box::new(error)))
}

/// Refuses a study that `who` took part in already, at another address or with other parameters.
pub(super) fn check_known(
    study_ref: &StudyRef,
    who: &str,
    server: &str,
    fingerprint: Fingerprint,
) -> Result<()> {
    let study = study_ref.study();
    let (code, what) = if server != study_ref.server() {
        let here = study_ref.server();
        (
            ErrorCode::AlreadyParticipated,
            format!(
                "{who} took part in study {study} at {server}, and not again at {here}, where a second report could reach the same study: use that address, or say that the study has moved here (Ledger::accept_move, report --moved), so that the same report is sent here"
            ),
        )
    } else if fingerprint != study_ref.fingerprint() {
        let now = study_ref.fingerprint();
        (
            ErrorCode::WrongFingerprint,
            format!(
                "{who} took part in study {study} with parameters {fingerprint}, and now the server gives it parameters {now}; do not take part again"
            ),
        )
    } else {
        return Ok(());
    };
    Err(SharedError::new(code, what).into())
}

/// The error for an entry whose bytes are not there, or are not its own.
pub(super) fn without_its_bytes(path: &Path, entry: &Entry, found: Option<usize>) -> Error {
    SCHEMA.damaged(
        path,
        format_args!(
            "the report for study {} has {} bytes instead of {}",
            entry.study_ref.study,
            found.map_or_else(|| "no".to_owned(), |found| found.to_string()),
            entry.study_ref.payload_len
        ),
    )
}
