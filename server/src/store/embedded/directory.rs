//! The data directory: created if missing, rejected if it contains something else, locked while in use.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use eigenveil_shared::{Error, Result};
use rustix::fs::Access;

use super::reserve;
use crate::store::{
    failure::{Failure, is_disk_full, unavailable},
    token::TokenHash,
};

pub(super) const DATABASE: &str = "eigenveil.db";
/// The operator token in force.
pub(super) const TOKEN: &str = "operator.token";
/// The staged operator token, about to replace it.
const NEXT_TOKEN: &str = "operator.token.new";
/// What a server whose files were replaced leaves for the next start.
pub(super) const NOTICE: &str = "eigenveil.overwritten";
/// Far more than a token has.
const MAX_TOKEN_FILE_BYTES: u64 = 1_024;
/// Prefix of temporary files, which a crash may leave behind and the next start removes.
pub(super) const TEMPORARY: &str = ".eigenveil-";

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    unavailable(format!(
        "the data directory {} cannot be {what} ({error}); check the path and its permissions",
        path.display()
    ))
}

/// Rejects a directory that is used for something else, or lost its database.
fn reject_foreign(path: &Path) -> Result<()> {
    let database = fs::canonicalize(path.join(DATABASE));
    let own = [TOKEN, NEXT_TOKEN, NOTICE, reserve::FILE_NAME];
    let mut own = own.map(|name| path.join(name)).to_vec();
    if let Ok(database) = &database {
        own.push(database.clone());
        own.extend(["-wal", "-shm", "-journal"].map(|ending| beside(database, ending)));
    }
    for file in own {
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
        "the store {} is empty although it was in use: something has emptied it, and nothing was changed. Put the file back, with its {} if that has content, or restore a backup (eigenveil backup) into an empty directory. To begin anew, give an empty directory",
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

/// Locks a directory itself: there is no lock file that somebody could remove.
fn lock(directory: &Path) -> Result<File> {
    let failed = |error| failed(directory, "locked", &error);
    let lock = File::open(directory).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(unavailable(format!(
            "another server is using {}; stop it first, or give another directory",
            directory.display()
        ))),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// A data directory used by this process only, until dropped.
#[derive(Debug)]
pub(super) struct DataDirectory {
    path: PathBuf,
    /// Without symbolic links: SQLite puts the write-ahead log beside the file that a link leads to.
    database: PathBuf,
    /// On the directory, and on that of the database where a link leads to it.
    _locks: Vec<File>,
}

impl DataDirectory {
    /// Creates the directory if it is missing, and locks it.
    pub(super) fn open(path: &Path) -> Result<Self> {
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

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The database file, where a link leads to it.
    pub(super) fn database(&self) -> PathBuf {
        self.database.clone()
    }

    pub(super) fn wal_path(&self) -> PathBuf {
        wal_of(&self.database)
    }

    /// There is one only while the database is made.
    pub(super) fn journal_path(&self) -> PathBuf {
        beside(&self.database, "-journal")
    }

    pub(super) fn token_files(&self) -> TokenFiles {
        TokenFiles::in_directory(&self.path)
    }
}

/// The file of the operator token, and of the staged one.
#[derive(Clone, Debug)]
pub(in crate::store) struct TokenFiles {
    directory: PathBuf,
}

impl TokenFiles {
    pub(in crate::store) fn in_directory(path: &Path) -> Self {
        Self {
            directory: path.to_owned(),
        }
    }

    pub(in crate::store) fn path(&self) -> PathBuf {
        self.directory.join(TOKEN)
    }

    pub(in crate::store) fn next(&self) -> PathBuf {
        self.directory.join(NEXT_TOKEN)
    }

    /// The token that was staged and neither adopted nor discarded.
    fn staged(&self) -> Result<Option<String>> {
        let path = self.next();
        let read = || {
            if !fs::symlink_metadata(&path)?.is_file() {
                return Err(io::Error::other(format!(
                    "{NEXT_TOKEN} is not a regular file"
                )));
            }
            let mut text = String::new();
            File::open(&path)?
                .take(MAX_TOKEN_FILE_BYTES)
                .read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes a token durably to the staging file, readable by its owner only. It is not valid yet.
    pub(in crate::store) fn stage(&self, token: &str) -> Result<()> {
        let write = || -> io::Result<()> {
            // Created anew: others might be able to read an existing file.
            self.remove_staged()?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.next())?;
            writeln!(file, "{token}")?;
            file.sync_all()?;
            self.sync()
        };
        write().map_err(|error| self.failed(&error))
    }

    /// The staged token replaces the one in force.
    pub(in crate::store) fn adopt(&self) -> Result<()> {
        fs::rename(self.next(), self.path())
            .and_then(|()| self.sync())
            .map_err(|error| self.failed(&error))
    }

    /// After an interruption: the staged token, if it has this hash, replaces the one in force. Whether it does.
    pub(in crate::store) fn adopt_if_valid(&self, hash: &TokenHash) -> Result<bool> {
        let staged = self.staged()?;
        let is_valid = staged.is_some_and(|staged| TokenHash::new(&staged).is(hash));
        if is_valid {
            self.adopt()?;
        }
        Ok(is_valid)
    }

    /// As [`adopt_if_valid`](Self::adopt_if_valid); another one goes, where nobody else can be committing its hash.
    pub(super) fn settle(&self, hash: &TokenHash) -> Result<()> {
        match self.adopt_if_valid(hash)? {
            true => Ok(()),
            false => self.discard(),
        }
    }

    pub(in crate::store) fn discard(&self) -> Result<()> {
        self.remove_staged().map_err(|error| self.failed(&error))
    }

    fn remove_staged(&self) -> io::Result<()> {
        match fs::remove_file(self.next()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn failed(&self, error: &io::Error) -> Error {
        if is_disk_full(error) {
            return Failure::Full.into_error();
        }
        unavailable(format!(
            "the operator token cannot be written to {} ({error}); check the permissions of the directory",
            self.path().display()
        ))
    }
}

/// The path of the database in a data directory, for backups and inspection.
pub fn database_path(data_dir: &Path) -> PathBuf {
    data_dir.join(DATABASE)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn a_token_that_finds_no_room_is_not_a_matter_of_permissions() {
        let files = TokenFiles::in_directory(Path::new("data"));
        for (why, code) in [
            (io::ErrorKind::StorageFull, ErrorCode::StoreFull),
            (io::ErrorKind::QuotaExceeded, ErrorCode::StoreFull),
            (io::ErrorKind::PermissionDenied, ErrorCode::StoreUnavailable),
        ] {
            assert_eq!(files.failed(&why.into()).code(), code);
        }
    }

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
