//! The data directory: created if missing, rejected if it contains something else, locked while in use.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use eigenveil_shared::{Error, Result};
use rustix::fs::Access;

use super::reserve;
use crate::contract::{
    failure::unavailable,
    token_files::{NEXT_TOKEN, TOKEN, TokenFiles},
};

pub(crate) const DATABASE: &str = "eigenveil.db";
/// Name of the file that a server whose files were replaced leaves for the next start.
pub(crate) const NOTICE: &str = "eigenveil.overwritten";
/// Prefix of temporary files, which a crash may leave behind and the next start removes.
pub(crate) const TEMPORARY: &str = ".eigenveil-";

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    unavailable(format!(
        "the data directory {} cannot be {what} ({error}); check the path and its permissions",
        path.display()
    ))
}

/// Rejects a directory that is used for something else, or lost its database.
fn reject_foreign(path: &Path) -> Result<()> {
    let database = fs::canonicalize(path.join(DATABASE));
    let names = [TOKEN, NEXT_TOKEN, NOTICE, reserve::FILE_NAME];
    let mut names = names.map(|name| path.join(name)).to_vec();
    if let Ok(database) = &database {
        names.push(database.clone());
        names.extend(["-wal", "-shm", "-journal"].map(|ending| beside(database, ending)));
    }
    for file in names {
        // Opening a pipe would wait for its other end.
        if fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(unavailable(format!(
                "{} is not a regular file; move it away",
                file.display()
            )));
        }
    }
    if let Ok(database) = database {
        return reject_emptied(path, &database);
    }
    for entry in fs::read_dir(path).map_err(|e| failed(path, "read", &e))? {
        let name = entry.map_err(|e| failed(path, "read", &e))?.file_name();
        // A new volume has it.
        if name != "lost+found" {
            return Err(unavailable(format!(
                "the directory {} contains {name:?} but no {DATABASE}; give an empty directory, or the data directory of an earlier run",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Rejects an empty database that was not empty before: SQLite would delete its write-ahead log, and the operator token
/// would be replaced. SQLite takes one byte for none. A first start that ended early leaves neither; SQLite writes to the
/// database before the log.
fn reject_emptied(path: &Path, database: &Path) -> Result<()> {
    let bytes = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    let (log, token) = (wal_of(database), path.join(TOKEN));
    if bytes(database) > 1 || bytes(&log) == 0 && !token.exists() {
        return Ok(());
    }
    Err(unavailable(format!(
        "the store {} is empty although it was in use: something has emptied it, and nothing was changed. Put the file back, with its {} if that has content, or restore a backup into an empty directory. To begin anew, give an empty directory",
        database.display(),
        log.display()
    )))
}

fn wal_of(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// The file of SQLite's with this ending.
fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push(ending);
    path.into()
}

/// Whether a server could use this data directory, as far as can be told without changing or locking anything.
pub(crate) fn check(path: &Path) -> Result<()> {
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    if path.exists() {
        rustix::fs::access(path, access).map_err(|e| failed(path, "used", &e.into()))?;
        reject_foreign(path)?;
        let database = path.join(DATABASE);
        if database.exists() {
            rustix::fs::access(&database, Access::READ_OK | Access::WRITE_OK)
                .map_err(|e| failed(path, "written to", &e.into()))?;
        }
        return Ok(());
    }
    // It will be created, together with its missing parents.
    let above = std::path::absolute(path).map_err(|e| failed(path, "created", &e))?;
    match above.ancestors().find(|above| above.exists()) {
        Some(above) => {
            rustix::fs::access(above, access).map_err(|e| failed(path, "created", &e.into()))
        }
        None => Ok(()),
    }
}

/// Warnings about what other users of this machine could read or change; nothing is missing by itself.
pub(crate) fn exposed(path: &Path) -> Vec<String> {
    let files =
        [TOKEN, NEXT_TOKEN, DATABASE, &format!("{DATABASE}-wal")].map(|name| path.join(name));
    let mut warnings = Vec::new();
    for (path, wanted) in
        std::iter::once((path, 0o700)).chain(files.iter().map(|file| (&**file, 0o600)))
    {
        let Ok(mode) = fs::metadata(path).map(|found| found.mode() & 0o777) else {
            continue;
        };
        if mode & 0o077 != 0 {
            let path = path.display();
            warnings.push(format!(
                "other users of this machine may have access to {path} (mode {mode:o}); chmod {wanted:o} {path}"
            ));
        }
    }
    warnings
}

/// A lock on a directory itself: there is no lock file that somebody could remove.
#[derive(Debug)]
struct DirectoryLock {
    directory: File,
    process: u32,
}

impl Drop for DirectoryLock {
    /// Closing would not do: a program that another thread is starting has a copy of the open file until it executes.
    fn drop(&mut self) {
        // A forked child did not take it.
        if self.process == std::process::id() {
            let _ = self.directory.unlock();
        }
    }
}

fn lock(directory: &Path) -> Result<DirectoryLock> {
    let failed = |error| failed(directory, "locked", &error);
    let open = File::open(directory).map_err(failed)?;
    match open.try_lock() {
        Ok(()) => Ok(DirectoryLock {
            directory: open,
            process: std::process::id(),
        }),
        Err(TryLockError::WouldBlock) => Err(unavailable(format!(
            "another server is using {}; stop it first, or give another directory",
            directory.display()
        ))),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// A data directory used by this process only, until dropped.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    /// Without symbolic links: SQLite puts the write-ahead log beside the file that a link leads to.
    database: PathBuf,
    /// On the directory, and on that of the database where a link leads to it.
    _locks: Vec<DirectoryLock>,
}

impl DataDirectory {
    /// Creates the directory if it is missing, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |what: &str, error| failed(path, what, &error);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|e| failed("created", e))?;
        reject_foreign(path)?;
        let mut locks = vec![lock(path)?];
        for entry in fs::read_dir(path).map_err(|e| failed("read", e))? {
            let entry = entry.map_err(|e| failed("read", e))?;
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_file(entry.path()).map_err(|e| failed("cleared", e))?;
            }
        }
        // Created here so that nobody else can read it, whatever the mode of the directory; an empty file is an empty
        // database, and the write-ahead log inherits its mode.
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(DATABASE))
            .map_err(|e| failed("written to", e))?;
        let database = fs::canonicalize(path.join(DATABASE)).map_err(|e| failed("read", e))?;
        let folder = database.parent().unwrap_or(path);
        if folder != fs::canonicalize(path).map_err(|e| failed("read", e))? {
            locks.push(lock(folder)?);
        }
        Ok(Self {
            path: path.to_owned(),
            database,
            _locks: locks,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The database file, where a link leads to it.
    pub(crate) fn database(&self) -> PathBuf {
        self.database.clone()
    }

    pub(crate) fn wal_path(&self) -> PathBuf {
        wal_of(&self.database)
    }

    /// There is one only while the database is made.
    pub(crate) fn journal_path(&self) -> PathBuf {
        beside(&self.database, "-journal")
    }

    pub(crate) fn token_files(&self) -> TokenFiles {
        TokenFiles::in_directory(&self.path)
    }
}

/// The path of the database in a data directory, for backups and inspection.
pub fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join(DATABASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_place_of_a_file_is_refused_and_not_waited_for() {
        for name in [NEXT_TOKEN, reserve::FILE_NAME] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
            let error = DataDirectory::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains("is not a regular file"), "{error}");
        }
    }
}
