//! Notices that somebody removed, moved, replaced or overwrote the database or its write-ahead log while the server runs.
//!
//! What is written to such files is lost: nobody opens a removed file again, and a copied file does not fit the log. The
//! main file changes only in checkpoints, which only the writer makes, and the log only in transactions, so size and time
//! of the last change tell whether anything but SQLite has written to them.

use std::{
    fs::{self, File, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rusqlite::{Connection, hooks::Wal};

use super::{
    directory::DataDirectory,
    failure::{FILES_REPLACED, Failure},
    reserve::disk_bytes,
    schema,
};

/// The files of an open database, as they were left.
pub(super) struct DatabaseFiles {
    main: PathBuf,
    wal: PathBuf,
    left: Arc<Mutex<Left>>,
}

/// What the writer left.
#[derive(Clone, Copy)]
struct Left {
    main: FileState,
    /// Of the log only the file itself is known while a transaction writes to it, or after one has failed.
    wal: FileState,
    wal_is_known: bool,
    /// Changes with every transaction of another connection.
    data_version: i64,
}

/// Which file it is, and its content as far as `stat` tells.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    id: (u64, u64),
    bytes: u64,
    modified: Option<SystemTime>,
}

impl From<Metadata> for FileState {
    fn from(metadata: Metadata) -> Self {
        Self {
            id: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

impl DatabaseFiles {
    /// Watches the files of this connection, which from now on makes its checkpoints here.
    pub(super) fn watch(
        connection: &mut Connection,
        directory: &DataDirectory,
    ) -> Result<Self, Failure> {
        let (main, wal) = (directory.database(), directory.wal_path());
        let state = |path| {
            fs::metadata(path)
                .map(FileState::from)
                .map_err(Failure::file)
        };
        let left = Arc::new(Mutex::new(Left {
            main: state(&main)?,
            wal: state(&wal)?,
            wal_is_known: false,
            data_version: data_version(connection)?,
        }));
        let files = Self { main, wal, left };
        let (main, left) = (files.main.clone(), Arc::clone(&files.left));
        let log_pages = schema::log_pages(disk_bytes(main.parent().unwrap_or(Path::new(""))));
        connection.wal_hook(Some(move |wal: &mut Wal, pages| {
            if u64::try_from(pages).is_ok_and(|pages| pages >= log_pages) {
                // One that is not possible now is made after a later commit; files that are no longer ours are left alone.
                let _ = checkpoint(&main, &mut lock(&left), || wal.checkpoint());
            }
            Ok(())
        }))?;
        Ok(files)
    }

    /// Copies the log into the main file, as far as no reader needs it; the next write restarts the log.
    pub(super) fn checkpoint(&self, connection: &Connection, how: &str) -> Result<(), Failure> {
        checkpoint(&self.main, &mut lock(&self.left), || {
            super::lease::checkpoint(connection, how)
        })
    }

    /// To be called in a transaction that nothing was written in: it keeps other connections from writing.
    pub(super) fn begin(&self, transaction: &Connection) -> Result<(), Failure> {
        let mut left = lock(&self.left);
        let wal = self.check(&left)?;
        if left.wal_is_known && wal != left.wal {
            let before = left.data_version;
            left.data_version = data_version(transaction)?;
            if left.data_version == before {
                return Err(Failure::LeaseLost(FILES_REPLACED));
            }
        }
        left.wal_is_known = false;
        Ok(())
    }

    /// To be called if no transaction could begin: whether that is because of the files.
    pub(super) fn check_places(&self) -> Result<(), Failure> {
        self.check(&lock(&self.left)).map(drop)
    }

    /// To be called after a commit: nothing may be acknowledged that was written before this was checked.
    pub(super) fn committed(&self) -> Result<(), Failure> {
        let mut left = lock(&self.left);
        left.wal = self.check(&left)?;
        left.wal_is_known = true;
        Ok(())
    }

    /// The state of the log, if both files are at their places and the main file is as it was left.
    fn check(&self, left: &Left) -> Result<FileState, Failure> {
        let state = |path| fs::metadata(path).map(FileState::from);
        match (state(&self.main), state(&self.wal)) {
            (Ok(main), Ok(wal)) if main == left.main && wal.id == left.wal.id => Ok(wal),
            _ => Err(Failure::LeaseLost(FILES_REPLACED)),
        }
    }

    /// Marks the main file as changed after the log if the failure is about the files, so that the next start looks for
    /// damage.
    pub(super) fn mark(&self, failure: Failure) -> Failure {
        if !matches!(failure, Failure::LeaseLost(_)) {
            return failure;
        }
        let changed = |file: File| file.set_modified(SystemTime::now());
        let file = File::options().append(true).open(&self.main);
        if let Err(error) = file.and_then(changed) {
            tracing::debug!(%error, "the database could not be marked as changed");
        }
        failure
    }
}

fn checkpoint<E: Into<Failure>>(
    main: &PathBuf,
    left: &mut Left,
    checkpoint: impl FnOnce() -> Result<(), E>,
) -> Result<(), Failure> {
    let state = || fs::metadata(main).map(FileState::from);
    if !state().is_ok_and(|found| found == left.main) {
        return Err(Failure::LeaseLost(FILES_REPLACED));
    }
    let outcome = checkpoint().map_err(Into::into);
    // Also after a failure, which may have copied some pages.
    if let Ok(found) = state()
        && found.id == left.main.id
    {
        left.main = found;
    }
    outcome
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn lock(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}
