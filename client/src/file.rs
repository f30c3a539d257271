//! What every file of this crate has in common: created private, locked while open, recognised by its
//! application identifier, and durable at each commit.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Error, Result};

/// Longest explanation of a refusal that is kept, in characters.
pub(crate) const MAX_DETAIL: usize = 1_000;

/// How a kind of file is recognised.
#[derive(Debug)]
pub(crate) struct Layout {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// Tells it from any other SQLite file.
    pub(crate) application_id: i32,
    /// Version of its tables.
    pub(crate) version: i32,
    /// Step `i` brings tables of version `i + 1` to version `i + 2`.
    pub(crate) upgrades: &'static [&'static str],
}

impl Layout {
    /// The error for a failed statement.
    pub(crate) fn failed(&self, path: &Path, error: &rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::locked(self.name, path)
            }
            Some(ErrorCode::NotADatabase) => self.not_one(path),
            Some(ErrorCode::DatabaseCorrupt) => self.damaged(path, error),
            Some(ErrorCode::DiskFull) => Error::file(
                self.name,
                path,
                "the disk is full; what was kept before is safe: make room and run again",
            ),
            _ => Error::file(self.name, path, error),
        }
    }

    /// The error for a file that is none of this kind.
    pub(crate) fn not_one(&self, path: &Path) -> Error {
        Error::file(
            self.name,
            path,
            format_args!(
                "the file is not an Eigenveil {} and was left as it is; name another path",
                self.name
            ),
        )
    }

    /// The error for a file whose contents cannot be.
    pub(crate) fn damaged(&self, path: &Path, what: impl std::fmt::Display) -> Error {
        Error::file(self.name, path, format_args!("the file is damaged: {what}"))
    }

    /// Creates an empty file that only its owner can read, unless there is a file.
    pub(crate) fn create_private(&self, path: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(path) {
            Ok(_) => {
                sync_folder_of(path);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(Error::file(
                self.name,
                path,
                format_args!("cannot be created: {error}"),
            )),
        }
    }

    /// Opens the file, locks it for as long as the connection lives, and makes commits durable.
    pub(crate) fn connect(&self, path: &Path) -> Result<Connection> {
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
            if application != self.application_id && tables > 0 {
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
            self.upgrade(&connection)?;
            Ok(Some(connection))
        };
        match open() {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => Err(self.not_one(path)),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Brings tables of an earlier version to this one's.
    fn upgrade(&self, connection: &Connection) -> rusqlite::Result<()> {
        let version: i32 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
        if !(1..self.version).contains(&version) {
            return Ok(());
        }
        let transaction = connection.unchecked_transaction()?;
        let done = usize::try_from(version - 1).unwrap_or(usize::MAX);
        for step in self.upgrades.iter().skip(done) {
            transaction.execute_batch(step)?;
        }
        self.mark(&transaction)?;
        transaction.commit()
    }

    /// Whether the tables are still to be made; refuses tables of another version.
    pub(crate) fn is_empty(&self, path: &Path, connection: &Connection) -> Result<bool> {
        let version: i32 = connection
            .pragma_query_value(None, "user_version", |r| r.get(0))
            .map_err(|error| self.failed(path, &error))?;
        match version {
            0 => Ok(true),
            version if version == self.version => Ok(false),
            other => Err(Error::file(
                self.name,
                path,
                format_args!(
                    "the file has layout version {other} but this program knows {}; update it",
                    self.version
                ),
            )),
        }
    }

    /// Makes the tables, first those of version 1, in the transaction of the caller, and marks the file as one of this
    /// kind and version.
    pub(crate) fn make(&self, connection: &Connection, first: &str) -> rusqlite::Result<()> {
        connection.execute_batch(first)?;
        for step in self.upgrades {
            connection.execute_batch(step)?;
        }
        self.mark(connection)
    }

    fn mark(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.pragma_update(None, "application_id", self.application_id)?;
        connection.pragma_update(None, "user_version", self.version)
    }
}

/// Makes the new file's name durable too. SQLite does so with its first log; where a folder cannot be
/// opened or synced there is nothing more to do.
fn sync_folder_of(path: &Path) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
