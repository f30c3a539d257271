//! The tables of an outbox, and how it is bound to its study.

use std::path::Path;

use eigenveil_shared::study::Fingerprint;
use rusqlite::{Connection, params};

use super::StudyRef;
use crate::{
    error::{Error, Result},
    file::{FileSchema, LockedFile},
};

/// How an outbox is recognised.
pub(super) const SCHEMA: FileSchema = FileSchema {
    name: "outbox",
    // "EvOB"; before "EvOb"
    application_id: 0x4576_4f42,
    earlier_application_id: 0x4576_4f62,
    tables: &[TABLES],
    append_only_table: "report",
};

// Payloads have a table of their own: deleting one frees whole pages, which the next one uses again.
const TABLES: &str = "
    CREATE TABLE binding (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        server TEXT NOT NULL,
        study TEXT NOT NULL,
        fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
        payload_len INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE report (
        participant INTEGER PRIMARY KEY,
        id BLOB NOT NULL CHECK (length(id) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2))
    ) STRICT;
    CREATE TABLE payload (participant INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE token (
        participant INTEGER PRIMARY KEY,
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TABLE refusal (
        participant INTEGER PRIMARY KEY,
        code TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
";

/// Binds a new outbox to its study.
pub(super) fn bind(file: &Connection, study_ref: &StudyRef) -> rusqlite::Result<()> {
    file.execute(
        "INSERT INTO binding (id, server, study, fingerprint, payload_len) VALUES (1, ?1, ?2, ?3, ?4)",
        params![
            study_ref.server,
            study_ref.study,
            study_ref.fingerprint.0,
            i64::try_from(study_ref.payload_len).unwrap_or(i64::MAX),
        ],
    )
    .map(drop)
}

/// The study recorded in the file.
pub(super) fn study_ref(store: &LockedFile) -> Result<StudyRef> {
    store.one(
        "SELECT server, study, fingerprint, payload_len FROM binding",
        [],
        |row| {
            Ok(StudyRef {
                server: row.get(0)?,
                study: row.get(1)?,
                fingerprint: Fingerprint(row.get(2)?),
                payload_len: row.get(3)?,
            })
        },
    )
}

/// Refuses an outbox of another study.
pub(super) fn check_study_ref(path: &Path, recorded: &StudyRef, wanted: &StudyRef) -> Result<()> {
    if recorded == wanted {
        return Ok(());
    }
    let differs = if recorded.study != wanted.study {
        format!(
            "it holds reports for study {}, not for study {}",
            recorded.study, wanted.study
        )
    } else if recorded.server != wanted.server {
        format!(
            "it holds reports for the server {}, not for {}",
            recorded.server, wanted.server
        )
    } else {
        format!(
            "it holds reports for study parameters {}, not {}",
            recorded.fingerprint, wanted.fingerprint
        )
    };
    Err(Error::study_mismatch(path, differs))
}
