//! The file: how it is created, locked, recognised and bound to its study.

use std::{fs::OpenOptions, io, path::Path, time::Duration};

use eigenveil_shared::study::Fingerprint;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::StudyBinding;
use crate::error::{Error, Result};

/// "EvOb": tells an outbox from any other SQLite file.
const APPLICATION_ID: i32 = 0x4576_4f62;
/// Version of the tables below.
const SCHEMA_VERSION: i32 = 1;

// Payloads have a table of their own: deleting one frees whole pages, which the next one uses again.
const TABLES: &str = "
    CREATE TABLE binding (
        one INTEGER PRIMARY KEY CHECK (one = 1),
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
    CREATE TABLE refusal (
        participant INTEGER PRIMARY KEY,
        code TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
";

/// The error for a failed statement.
pub(super) fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::outbox_locked(path),
        Some(ErrorCode::NotADatabase) => not_an_outbox(path),
        Some(ErrorCode::DiskFull) => Error::outbox(
            path,
            "the disk is full; what was kept before is safe: make room and run again",
        ),
        _ => Error::outbox(path, error),
    }
}

fn not_an_outbox(path: &Path) -> Error {
    Error::outbox(
        path,
        "the file is not an Eigenveil outbox and was left as it is; name another path",
    )
}

/// Creates an empty file that only its owner can read, unless there is a file.
pub(super) fn create_private(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::outbox(
            path,
            format_args!("cannot be created: {error}"),
        )),
    }
}

/// Opens the file, locks it for as long as the connection lives, and makes commits durable.
pub(super) fn connect(path: &Path) -> Result<Connection> {
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        // Before the first read: the lock is then taken with it, and kept.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let application: i32 =
            connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
        // A creation that was cut short leaves a file without tables, which is an empty one.
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
        if application != APPLICATION_ID && tables > 0 {
            return Ok(None);
        }
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |r| r.get(0))?;
        // Rollback journals are as safe; WAL is what saves one of two syncs.
        debug_assert_eq!(mode, "wal");
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Some disks of macOS acknowledge a plain fsync early.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
        Ok(Some(connection))
    };
    match open() {
        Ok(Some(connection)) => Ok(connection),
        Ok(None) => Err(not_an_outbox(path)),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Creates the tables for this study in an empty file; checks the version of a file that has them.
pub(super) fn prepare(
    path: &Path,
    connection: &mut Connection,
    binding: Option<&StudyBinding>,
) -> Result<()> {
    let failed = |error| failed(path, &error);
    let version: i32 = connection
        .pragma_query_value(None, "user_version", |r| r.get(0))
        .map_err(failed)?;
    match (version, binding) {
        (SCHEMA_VERSION, _) => Ok(()),
        (0, Some(binding)) => create(connection, binding).map_err(failed),
        (0, None) => Err(not_an_outbox(path)),
        (other, _) => Err(Error::outbox(
            path,
            format_args!(
                "the file has layout version {other} but this program knows {SCHEMA_VERSION}; update it"
            ),
        )),
    }
}

/// Tables, versions and binding in one transaction: a file has all of them or is empty.
fn create(connection: &mut Connection, binding: &StudyBinding) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.execute(
        "INSERT INTO binding (one, server, study, fingerprint, payload_len) VALUES (1, ?1, ?2, ?3, ?4)",
        params![
            binding.server,
            binding.study,
            binding.fingerprint.0,
            i64::try_from(binding.payload_len).unwrap_or(i64::MAX),
        ],
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

/// The study recorded in the file.
pub(super) fn binding(path: &Path, connection: &Connection) -> Result<StudyBinding> {
    connection
        .query_row(
            "SELECT server, study, fingerprint, payload_len FROM binding",
            [],
            |row| {
                Ok(StudyBinding {
                    server: row.get(0)?,
                    study: row.get(1)?,
                    fingerprint: Fingerprint(row.get(2)?),
                    payload_len: usize::try_from(row.get::<_, i64>(3)?).unwrap_or(usize::MAX),
                })
            },
        )
        .map_err(|error| failed(path, &error))
}

/// Refuses an outbox of another study.
pub(super) fn check_binding(
    path: &Path,
    recorded: &StudyBinding,
    wanted: &StudyBinding,
) -> Result<()> {
    if recorded == wanted {
        return Ok(());
    }
    let differs = if recorded.study != wanted.study {
        format!(
            "it belongs to study {}, not to {}",
            recorded.study, wanted.study
        )
    } else if recorded.server != wanted.server {
        format!(
            "it belongs to server {}, not to {}",
            recorded.server, wanted.server
        )
    } else {
        format!(
            "it was made for study parameters {}, not {}",
            recorded.fingerprint, wanted.fingerprint
        )
    };
    Err(Error::outbox_other_study(path, differs))
}
