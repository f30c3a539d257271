//! The database file: its owner, its version, and how it is opened.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode as SqliteCode, OpenFlags, config::DbConfig};

use super::reserve::disk_bytes;
use crate::{
    contract::failure::{Failure, unavailable},
    sqlite::is_cut_short,
};

pub(crate) const PAGE_BYTES: u64 = 8_192;

/// `application_id` of an Eigenveil store: "EiVS".
pub(crate) const APPLICATION_ID: i32 = 0x4569_5653;
const VERSION: usize = MIGRATIONS.len();

/// Step `i` brings a database of version `i` to version `i + 1`. Steps are only ever added.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE settings (
        key   TEXT PRIMARY KEY,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- Keys are never reused.
    CREATE TABLE studies (
        study_pk          INTEGER PRIMARY KEY,
        id                BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
        name              TEXT NOT NULL,
        state             TEXT NOT NULL CHECK (state IN ('draft', 'open', 'closed')),
        canonical         BLOB NOT NULL,
        fingerprint       BLOB NOT NULL CHECK (length(fingerprint) = 32),
        default_k         INTEGER,          -- NULL: auto
        buckets           INTEGER NOT NULL CHECK (buckets BETWEEN 1 AND 32),
        enrolment         TEXT NOT NULL DEFAULT 'open' CHECK (enrolment IN ('open', 'token')),
        created_at_ms     INTEGER NOT NULL,
        closed_at_ms      INTEGER,
        reports_accepted  INTEGER NOT NULL DEFAULT 0 CHECK (reports_accepted >= 0),
        commit_seq        INTEGER NOT NULL DEFAULT 0 CHECK (commit_seq >= 0),
        -- 0: the identifiers of a study closed long ago were deleted.
        identifiers_kept  INTEGER NOT NULL DEFAULT 1 CHECK (identifiers_kept IN (0, 1)),
        -- What the study tells the people it invites, fixed with it; NULL: not stated.
        purpose           TEXT,
        responsible_party TEXT,
        contact           TEXT,
        -- The last day on which reports are accepted: days since 1970-01-01 UTC.
        last_day          INTEGER CHECK (last_day >= 0)
    ) STRICT;

    -- A study that is listed here and still has a row is being removed.
    CREATE TABLE deleted_studies (
        study_pk      INTEGER PRIMARY KEY,
        id            BLOB NOT NULL,
        deleted_at_ms INTEGER NOT NULL
    ) STRICT;

    -- Inserting decides whether a report is new.
    CREATE TABLE report_ids (
        study_pk INTEGER NOT NULL REFERENCES studies,
        id       BLOB NOT NULL,
        PRIMARY KEY (study_pk, id)
    ) STRICT, WITHOUT ROWID;

    -- Identifiers not yet in report_ids: a row for each large commit, or a chunk of the sorted id log.
    -- Sorted chunks have the smallest numbers.
    CREATE TABLE recent_ids (
        part     INTEGER PRIMARY KEY,
        study_pk INTEGER NOT NULL REFERENCES studies,
        sorted   INTEGER NOT NULL CHECK (sorted IN (0, 1)),
        ids      BLOB NOT NULL CHECK (length(ids) > 0 AND length(ids) % 16 = 0)
    ) STRICT;

    -- sum: packed upper triangle, f64 little-endian. A bucket without reports has no row. checksum: of key, n and sum.
    CREATE TABLE buckets (
        study_pk INTEGER NOT NULL REFERENCES studies,
        bucket   INTEGER NOT NULL,
        n        INTEGER NOT NULL CHECK (n > 0),
        sum      BLOB NOT NULL,
        checksum BLOB NOT NULL CHECK (length(checksum) = 8),
        PRIMARY KEY (study_pk, bucket)
    ) STRICT;

    -- The seeds of one commit, without their identifiers. A study has rows either here or in buckets.
    CREATE TABLE seeds (
        study_pk   INTEGER NOT NULL REFERENCES studies,
        bucket     INTEGER NOT NULL,
        commit_seq INTEGER NOT NULL,
        n          INTEGER NOT NULL CHECK (n > 0),
        seeds      BLOB NOT NULL CHECK (length(seeds) = 16 * n),
        checksum   BLOB NOT NULL CHECK (length(checksum) = 8),   -- of key and seeds
        PRIMARY KEY (study_pk, bucket, commit_seq)
    ) STRICT, WITHOUT ROWID;

    -- Exports merged into a study, so that each is merged once.
    CREATE TABLE imports (
        study_pk       INTEGER NOT NULL REFERENCES studies,
        sha256         BLOB NOT NULL CHECK (length(sha256) = 32),
        reports        INTEGER NOT NULL,
        imported_at_ms INTEGER NOT NULL,
        PRIMARY KEY (study_pk, sha256)
    ) STRICT, WITHOUT ROWID;

    -- Reports accepted by upload: counts by minute, later by hour and by day, for the pages.
    CREATE TABLE arrivals (
        study_pk INTEGER NOT NULL REFERENCES studies,
        seconds  INTEGER NOT NULL CHECK (seconds IN (60, 3600, 86400)),
        start    INTEGER NOT NULL,          -- seconds since 1970-01-01 UTC
        n        INTEGER NOT NULL CHECK (n > 0),
        PRIMARY KEY (study_pk, seconds, start)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE estimates (
        job            INTEGER PRIMARY KEY AUTOINCREMENT,
        study_pk       INTEGER NOT NULL REFERENCES studies,
        number         INTEGER NOT NULL CHECK (number > 0),
        state          TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
        request        TEXT NOT NULL,
        estimate       TEXT,
        problem        TEXT,
        attempts       INTEGER NOT NULL DEFAULT 0,
        created_at_ms  INTEGER NOT NULL,
        finished_at_ms INTEGER,
        UNIQUE (study_pk, number)
    ) STRICT;
    CREATE INDEX estimates_running ON estimates (job) WHERE state = 'running';

    -- Ordered by hash and without a time, so that no row can be linked to a report.
    CREATE TABLE participant_tokens (
        study_pk INTEGER NOT NULL REFERENCES studies,
        hash     BLOB NOT NULL CHECK (length(hash) = 32),
        spent    INTEGER NOT NULL DEFAULT 0 CHECK (spent IN (0, 1)),
        PRIMARY KEY (study_pk, hash)
    ) STRICT, WITHOUT ROWID;

    -- study_pk NULL: for the estimates of all studies.
    CREATE TABLE analyst_tokens (
        id            BLOB PRIMARY KEY CHECK (length(id) = 8),
        name          TEXT NOT NULL,
        study_pk      INTEGER REFERENCES studies,
        created_at_ms INTEGER NOT NULL,
        hash          BLOB NOT NULL UNIQUE CHECK (length(hash) = 32)
    ) STRICT, WITHOUT ROWID;
", "
    -- The commit_seq of a closed study up to which its seeds are sorted, and the write-ahead log has none of them.
    ALTER TABLE studies ADD COLUMN rewritten_seq INTEGER;
", "
    -- What the study tells people of its features, JSON in their order; NULL: nothing.
    ALTER TABLE studies ADD COLUMN features TEXT;

    -- In a study of sites each token is of a site, for a report of at most so many rows; elsewhere both are NULL.
    ALTER TABLE participant_tokens ADD COLUMN site TEXT;
    ALTER TABLE participant_tokens ADD COLUMN max_rows INTEGER CHECK (max_rows > 0);

    -- The reports of a study of sites, each kept apart, in the order in which they came. A study has rows here, in
    -- buckets or in seeds. checksum: of key, number and payload.
    CREATE TABLE site_reports (
        study_pk INTEGER NOT NULL REFERENCES studies,
        number   INTEGER NOT NULL CHECK (number >= 0),
        site     TEXT NOT NULL,
        payload  BLOB NOT NULL,
        checksum BLOB NOT NULL CHECK (length(checksum) = 8),
        PRIMARY KEY (study_pk, number)
    ) STRICT;
", "
    -- A cache: of the n seeds of a bucket in its rows up to upto the sum, a sample and fingerprints, with a checksum. No
    -- body: none, and upto is below every row. generation: a larger one with each change, also of the rows' order.
    CREATE TABLE folds (
        study_pk   INTEGER NOT NULL REFERENCES studies,
        bucket     INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        upto       INTEGER NOT NULL,
        n          INTEGER NOT NULL CHECK (n >= 0),
        body       BLOB,
        PRIMARY KEY (study_pk, bucket)
    ) STRICT;
"];

/// The last version whose stores have no reports of sites.
const VERSION_WITHOUT_SITES: usize = 2;

/// Whether a database, which need not be of this program's version yet, has a table for the reports of sites.
pub(crate) fn has_site_reports(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(pragma::<usize>(connection, "user_version")? > VERSION_WITHOUT_SITES)
}

/// For other connections.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the database for writing, and creates it if it is empty.
pub(crate) fn open_for_writing(path: &Path) -> Result<Connection, Failure> {
    let open_error = |error: rusqlite::Error| open_error(path, &error);
    let mut connection = Connection::open(path).map_err(open_error)?;
    keep_wal(&connection).map_err(open_error)?;
    // Before anything is written: is it ours?
    let application: i32 = pragma(&connection, "application_id").map_err(open_error)?;
    let version: usize = pragma(&connection, "user_version").map_err(open_error)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(open_error)?;
    let fresh = application == 0 && version == 0 && tables == 0;
    if !fresh && application != APPLICATION_ID {
        return Err(unavailable(format!(
            "{} is a database of another program (application id {application:#x}); give another data directory",
            path.display()
        ))
        .into());
    }
    if version > VERSION {
        return Err(unavailable(format!(
            "{} has schema version {version}; this program knows versions up to {VERSION}: use the newer program that wrote it",
            path.display()
        ))
        .into());
    }
    if fresh {
        // Migrate before enabling the log: a log beside an unmarked database would look like another program's.
        connection
            .pragma_update(None, "page_size", PAGE_BYTES)
            .and_then(|()| migrate(&mut connection))
            .map_err(open_error)?;
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    configure(&connection, disk_bytes(folder)).map_err(open_error)?;
    Ok(connection)
}

/// From now on the database does not grow beyond so many bytes, or beyond what it has. A migration may need more: it comes
/// before.
pub(crate) fn limit_size(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    // SQLite accepts no less than what is in use.
    let pages = (bytes / PAGE_BYTES).max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

/// Reads the main file as it is, whatever its log says.
pub(crate) fn open_without_log(path: &Path) -> rusqlite::Result<Connection> {
    let mut address = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    Connection::open_with_flags(
        address + "?immutable=1",
        OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI,
    )
}

/// Opens the database read-only; the writer must have opened it before.
pub(crate) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    keep_wal(&connection)?;
    Ok(connection)
}

/// The write-ahead log stays when the last connection closes: a stop empties it in an order of its own.
fn keep_wal(connection: &Connection) -> rusqlite::Result<()> {
    let setting = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(setting, true).map(|_| ())
}

/// Pages of write-ahead log after which it is moved into the database: 32 MiB, or a sixteenth of a small disk. There a
/// longer log would fill the disk before any of it is in the database, and nothing could be deleted any more.
pub(crate) fn log_pages(disk_bytes: u64) -> u64 {
    (disk_bytes / 16 / PAGE_BYTES).clamp(16, 4_096)
}

fn configure(connection: &Connection, disk_bytes: u64) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(rusqlite::Error::InvalidParameterName(format!(
            "the file system does not allow write-ahead logging (journal mode {mode}); use a local file system"
        )));
    }
    // FULL: a commit is on disk before it is acknowledged.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Pages that are written anyway keep no copies of rows that have moved.
    connection.pragma_update(None, "secure_delete", "FAST")?;
    // At most twice as much log file is kept after a checkpoint.
    connection.pragma_update(
        None,
        "journal_size_limit",
        2 * log_pages(disk_bytes) * PAGE_BYTES,
    )?;
    // 32 MiB of pages for the index of identifiers; bucket sums have their own cache.
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Brings the database to the version of this program. The caller marks an existing database as in use first.
pub(crate) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let version: usize = pragma(connection, "user_version")?;
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for step in MIGRATIONS.iter().skip(version) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION as i64)?;
    transaction.commit()
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, name: &str) -> rusqlite::Result<T> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

fn open_error(path: &Path, error: &rusqlite::Error) -> Failure {
    let way_out = match error.sqlite_error_code() {
        _ if is_cut_short(error) => "it is cut short: restore it from a backup",
        Some(SqliteCode::NotADatabase) => "it is not a database: restore it from a backup",
        Some(SqliteCode::DatabaseCorrupt) => "it is damaged: restore it from a backup",
        Some(SqliteCode::DiskFull) => return Failure::Full,
        Some(SqliteCode::SystemIoFailure) => {
            "check the disk, which may be full, and the permissions"
        }
        Some(SqliteCode::DatabaseBusy) => "another program has it open: end that, and start again",
        _ => "check the file and its permissions",
    };
    unavailable(format!(
        "the store {} cannot be opened ({error}); {way_out}",
        path.display()
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, config::StoreConfig, database_path, environment::Environment};

    /// The tables of this version are made in a store that has all that it may have.
    #[test]
    fn a_full_store_is_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            max_store_bytes: Some(1 << 20),
            ..StoreConfig::new(folder.path().join("data"))
        };
        let open = || Store::open(&config, Environment::system());
        let connect = || Connection::open(database_path(&config.data_dir)).unwrap();
        drop(open().unwrap());
        // As the version before has it, and larger than the limit.
        let older = "DROP TABLE folds; PRAGMA user_version = 3;
            INSERT INTO settings (key, value) VALUES ('filler', zeroblob(2000000)); VACUUM";
        connect().execute_batch(older).unwrap();
        drop(open().unwrap());
        let version: usize = pragma(&connect(), "user_version").unwrap();
        assert_eq!(version, VERSION);
    }
}
