//! Tables other than those of the reports: limits, terms of studies, and moves.

use eigenveil_shared::{
    about::{StudyNotice, UtcDate},
    privacy::Budget,
};
use rusqlite::{Connection, Row, params, types::Type};

use crate::{
    error::Result,
    exchange::Server,
    rules::{Limits, StudyTerms},
    sqlite::file::LockedFile,
};

/// States of a report, as they are stored.
pub(super) const PENDING: i64 = 0;
pub(super) const ACKNOWLEDGED: i64 = 1;
pub(super) const REFUSED: i64 = 2;
pub(super) const GIVEN_UP: i64 = 3;

/// The table of limits.
pub(super) const LIMITS: &str = "
    CREATE TABLE limits (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        epsilon_per_study REAL NOT NULL,
        epsilon_total REAL NOT NULL,
        delta_total REAL NOT NULL
    ) STRICT;
";

/// The table of terms, stored unchanged, by the number of the study.
pub(super) const STUDY_TERMS: &str = "
    CREATE TABLE study_terms (
        number INTEGER PRIMARY KEY,
        name TEXT,
        purpose TEXT,
        responsible_party TEXT,
        contact TEXT,
        last_day INTEGER CHECK (last_day >= 0),
        canonical_params BLOB NOT NULL,
        features TEXT
    ) STRICT;
    CREATE TRIGGER study_terms_stay BEFORE DELETE ON study_terms
        BEGIN SELECT RAISE(ABORT, 'what a device was told is never deleted'); END;
    CREATE TRIGGER study_terms_are_fixed BEFORE UPDATE ON study_terms
        BEGIN SELECT RAISE(ABORT, 'what a device was told is never changed'); END;
";

/// Later addresses of a study. Its reports stay the same bytes, so that they are counted only once. A server at the new
/// address could be somebody else's, with a copy of the study: therefore the person responsible for the rows confirms a
/// move, and all addresses stay in the receipt.
pub(super) const MOVED: &str = "
    CREATE TABLE moved (
        id INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        server TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER moves_stay BEFORE DELETE ON moved
        BEGIN SELECT RAISE(ABORT, 'the addresses of a study are never deleted'); END;
";

pub(super) fn write_limits(file: &Connection, limits: &Limits) -> rusqlite::Result<()> {
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
    .map(drop)
}

pub(super) fn read_limits(store: &LockedFile) -> Result<Limits> {
    let (per_study, total, delta) = store.one(
        "SELECT epsilon_per_study, epsilon_total, delta_total FROM limits",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Limits::new(per_study, total, delta).map_err(|error| store.damaged_error(error))
}

/// Stores the terms of the study with this number.
pub(super) fn write_terms(
    file: &Connection,
    number: i64,
    terms: &StudyTerms,
    canonical_params: &[u8],
) -> rusqlite::Result<()> {
    let about = &terms.about;
    let features = about.features.as_ref().map(serde_json::to_string);
    let features = features.transpose();
    file.execute(
        "INSERT INTO study_terms (number, name, purpose, responsible_party, contact, last_day, canonical_params, features)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            number,
            terms.name,
            about.purpose,
            about.responsible_party,
            about.contact,
            about.last_day.map(|day| day.0),
            canonical_params,
            features.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?,
        ],
    )
    .map(drop)
}

/// The terms of the study with this number.
pub(super) fn read_terms(store: &LockedFile, number: i64) -> Result<StudyTerms> {
    let read = |row: &Row<'_>| {
        let features: Option<String> = row.get(6)?;
        let features = features.map(|text| serde_json::from_str(&text));
        let about = StudyNotice {
            purpose: row.get(1)?,
            responsible_party: row.get(2)?,
            contact: row.get(3)?,
            last_day: row.get::<_, Option<u64>>(4)?.map(UtcDate),
            features: features
                .transpose()
                .map_err(|error| invalid(6, Type::Text, error))?,
        };
        let canonical: Vec<u8> = row.get(5)?;
        Ok(StudyTerms::new(row.get(0)?, about, &canonical))
    };
    // A file that is only read may have the layout before.
    let features = match store.layout()? {
        1 => "NULL",
        _ => "features",
    };
    store.one(
        &format!(
            "SELECT name, purpose, responsible_party, contact, last_day, canonical_params, {features}
             FROM study_terms WHERE number = ?1"
        ),
        [number],
        read,
    )
}

/// The error for a stored value that is invalid.
fn invalid(
    column: usize,
    of: Type,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, of, Box::new(error))
}

/// The addresses of the study with this number, newest last; `first` is the first address.
pub(super) fn read_servers(store: &LockedFile, number: i64, first: &str) -> Result<Vec<Server>> {
    let later: Vec<String> = store.all(
        "SELECT server FROM moved WHERE number = ?1 ORDER BY id",
        [number],
        |row| row.get(0),
    )?;
    let servers = std::iter::once(first).chain(later.iter().map(String::as_str));
    servers
        .map(|server| server.parse().map_err(|error| store.damaged_error(error)))
        .collect()
}

pub(super) fn write_move(file: &Connection, number: i64, to: &Server) -> rusqlite::Result<()> {
    file.execute(
        "INSERT INTO moved (number, server) VALUES (?1, ?2)",
        params![number, to.as_str()],
    )
    .map(drop)
}

/// The ε and δ in this column and the next.
pub(super) fn budget(row: &Row<'_>, column: usize) -> rusqlite::Result<Budget> {
    Budget::new(row.get(column)?, row.get(column + 1)?)
        .map_err(|error| invalid(column, Type::Real, error))
}
