//! Common behaviour of this crate's files: they are created atomically and readable by their owner only, locked while
//! open, recognised by their application identifier, and self-contained after each commit.
//!
//! The files are SQLite databases. SQLite first writes a change to a write-ahead log (WAL) beside the file, and finds
//! the log by name: a file that is renamed, or opened under another name, loses its log. Therefore nothing is returned
//! to the caller before its change is in the file itself and synced (a checkpoint after each commit), and a log holds
//! at most one change, which nobody has seen yet. Each change also records a random revision number and that of the
//! change before, so that a log that does not belong to the file's last change is detected and not applied.

use std::{
    cell::Cell,
    fmt,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Params, Row, Transaction,
    config::DbConfig,
    ffi,
    types::{ToSqlOutput, ValueRef},
};

use self::paths::{
    FileId, canonical_path, check_folder, folder_of, has_log, identity, immutable_uri, sync_folder,
    with_suffix,
};
use super::file_lock::FileLock;
use crate::error::{Error, Result};

/// A kind of file: its tables, and how it is recognised.
pub(crate) struct FileSchema {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// Application identifier, which distinguishes it from other SQLite files.
    pub(crate) application_id: i32,
    /// SQL that creates its tables, in addition to `file_state`, which every file has. Their triggers count in
    /// `file_state.row_count` what is never deleted, so that lost rows are noticed.
    pub(crate) tables: &'static [&'static str],
    /// Fills the tables of a new file.
    pub(crate) fill: fn(&Connection) -> Result<(), Failure>,
    /// Upgrades from each earlier layout to the next, from layout 1 on. Each upgrade is one change, which also sets
    /// `user_version`.
    pub(crate) upgrades: &'static [fn(&mut LockedFile) -> Result<()>],
    /// SQL expression over `file_state` and the tables that holds after each change. If a checkpoint was cut off and
    /// its log is gone, some pages are from before the change and others from after it.
    pub(crate) consistency_check_sql: &'static str,
}

/// Why a change failed.
pub(crate) enum Failure {
    Sqlite(rusqlite::Error),
    Other(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Random numbers of the last change and of the one before it.
type Revisions = ([u8; 16], [u8; 16]);

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    /// To write to it; it must exist.
    Existing,
    /// To write to it; it is created if it does not exist.
    OrCreate,
    /// Without a change on the disk before [`LockedFile::begin`]; it need not exist.
    Unchanged,
}

impl FileSchema {
    /// SQL that creates all tables; `file_state` has the revision of the last change, and how many rows must be there.
    fn schema(&self) -> String {
        let tables = self.tables.concat();
        format!(
            "{tables}
             CREATE TABLE file_state (
                 id INTEGER PRIMARY KEY CHECK (id = 1),
                 revision BLOB NOT NULL CHECK (length(revision) = 16),
                 previous_revision BLOB NOT NULL CHECK (length(previous_revision) = 16),
                 row_count INTEGER NOT NULL
             ) STRICT;
             INSERT INTO file_state VALUES (1, randomblob(16), randomblob(16), 0);"
        )
    }

    /// The layout of new files.
    fn layout(&self) -> i32 {
        1 + self.upgrades.len() as i32
    }

    /// The error for a failed statement.
    pub(crate) fn statement_error(&self, path: &Path, error: &rusqlite::Error) -> Error {
        if let rusqlite::Error::FromSqlConversionFailure(_, _, detail) = error {
            return self.damaged_error(path, detail);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::locked(self.name, path)
            }
            Some(ErrorCode::NotADatabase) => self.wrong_kind_error(path),
            // `Unknown`: a table is missing or a JSON value is invalid.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) => {
                self.damaged_error(path, error)
            }
            Some(ErrorCode::DiskFull) => Error::file(
                self.name,
                path,
                "the disk is full; what was stored before is safe: free some space and run again",
            ),
            _ => Error::file(self.name, path, error),
        }
    }

    /// Refuses a file that has another application identifier.
    fn check_kind(&self, path: &Path, application_id: i32) -> Result<()> {
        match application_id == self.application_id {
            true => Ok(()),
            false => Err(self.wrong_kind_error(path)),
        }
    }

    /// The error for a file of another kind.
    fn wrong_kind_error(&self, path: &Path) -> Error {
        Error::file(
            self.name,
            path,
            format_args!(
                "the file is not an Eigenveil {} and was left as it is; name another path",
                self.name
            ),
        )
    }

    /// The error for a file with inconsistent contents.
    fn damaged_error(&self, path: &Path, detail: impl fmt::Display) -> Error {
        Error::file(
            self.name,
            path,
            format_args!(
                "the file is damaged: {detail}. Restore its write-ahead log ({}), if it had one, or the latest copy of the file",
                with_suffix(path, "-wal").display()
            ),
        )
    }

    /// The error for an empty file. It may have been truncated: a new file in its place would not know what was spent.
    fn empty_file_error(&self, path: &Path) -> Error {
        Error::file(
            self.name,
            path,
            format_args!(
                "the file is empty: its contents are lost, and a new {0} would not know them. Restore the latest copy; delete the file and run again only if there never was a {0} here",
                self.name
            ),
        )
    }

    /// A new file's contents, in memory.
    fn in_memory(&self, path: &Path) -> Result<Connection> {
        let build = || -> Result<Connection, Failure> {
            let connection = Connection::open_in_memory()?;
            connection.execute_batch(&self.schema())?;
            (self.fill)(&connection)?;
            connection.pragma_update(None, "application_id", self.application_id)?;
            connection.pragma_update(None, "user_version", self.layout())?;
            Ok(connection)
        };
        build().map_err(|failure| self.error_of(path, failure))
    }

    /// Creates a file that only its owner can read: it is completed under a temporary name, so that after a crash the
    /// file either has all its tables or does not exist.
    fn create(&self, path: &Path, contents: &Connection) -> Result<()> {
        self.check_can_be_created(path)?;
        let creation_error = |error: &dyn fmt::Display| self.creation_error(path, error);
        let folder = folder_of(path);
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".");
        let temp_file = tempfile::Builder::new()
            .prefix(&name)
            .suffix(".new")
            .tempfile_in(folder)
            .map_err(|error| creation_error(&error))?;
        let write = || -> rusqlite::Result<()> {
            let name = ValueRef::Text(temp_file.path().as_os_str().as_encoded_bytes());
            contents.execute("VACUUM INTO ?1", [ToSqlOutput::Borrowed(name)])?;
            let connection = Connection::open_with_flags(
                temp_file.path(),
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            // Nobody else knows this file, which is synced below.
            connection.pragma_update(None, "journal_mode", "MEMORY")?;
            connection.pragma_update(None, "synchronous", "OFF")?;
            set_wal(&connection)?;
            connection.close().map_err(|(_, error)| error)
        };
        write().map_err(|error| creation_error(&error))?;
        temp_file
            .as_file()
            .sync_all()
            .map_err(|error| creation_error(&error))?;
        // Its descriptor is closed before anybody can open the file by its name.
        temp_file
            .into_temp_path()
            .persist_noclobber(path)
            .map_err(|failed| creation_error(&failed.error))?;
        sync_folder(folder);
        Ok(())
    }

    fn creation_error(&self, path: &Path, error: &dyn fmt::Display) -> Error {
        Error::file(self.name, path, format_args!("cannot be created: {error}"))
    }

    /// Refuses to create a file in a folder that is not writable, or if another file's log remains.
    fn check_can_be_created(&self, path: &Path) -> Result<()> {
        check_folder(folder_of(path)).map_err(|error| self.creation_error(path, &error))?;
        let logs = ["-wal", "-journal"].map(|suffix| with_suffix(path, suffix));
        let Some(log) = logs.iter().find(|log| fs::symlink_metadata(log).is_ok()) else {
            return Ok(());
        };
        Err(Error::file(
            self.name,
            path,
            format_args!(
                "there is no such file, but its log is here ({}): the file was moved away or lost. Restore it; delete the log only if there never was a file here",
                log.display()
            ),
        ))
    }

    /// Whether the file at this path is of this kind, as far as can be told without its log.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let is_this_kind = |id| id == self.application_id;
        std::path::absolute(path)
            .is_ok_and(|absolute_path| application_of(&absolute_path).is_ok_and(is_this_kind))
    }

    /// Opens an existing file to write to it, and locks it for as long as the value lives.
    ///
    /// # Errors
    /// Locked, empty, damaged, of another kind or version; has more than one name (hard links); or the write-ahead log
    /// beside it does not match its last change.
    pub(crate) fn open(&'static self, path: &Path) -> Result<LockedFile> {
        let absolute_path = self.absolute_path(path)?;
        // Identify first, so that no lock file is created beside a mistyped name or another program's file.
        self.identify(path, &absolute_path)?;
        self.open_with(path, absolute_path, OpenMode::Existing)
    }

    /// Opens the file to write to it, or creates it if there is none.
    pub(crate) fn open_or_create(&'static self, path: &Path) -> Result<LockedFile> {
        self.open_with(path, self.absolute_path(path)?, OpenMode::OrCreate)
    }

    /// Opens the file as [`open_or_create`](Self::open_or_create) does, and changes nothing on the disk before
    /// [`LockedFile::begin`]: a missing file is created in memory only, no lock is created, and the log of an
    /// interrupted change is read and stays as it is.
    pub(crate) fn open_unchanged(&'static self, path: &Path) -> Result<LockedFile> {
        self.open_with(path, self.absolute_path(path)?, OpenMode::Unchanged)
    }

    fn open_with(
        &'static self,
        path: &Path,
        absolute_path: PathBuf,
        mode: OpenMode,
    ) -> Result<LockedFile> {
        let to_write = mode != OpenMode::Unchanged;
        let may_be_new = mode != OpenMode::Existing;
        let lock = self.lock(path, &absolute_path, to_write)?;
        let (id, connection) = if may_be_new && fs::symlink_metadata(&absolute_path).is_err() {
            self.check_can_be_created(path)?;
            (None, self.in_memory(path)?)
        } else {
            (
                Some(self.identify(path, &absolute_path)?),
                self.connect(path, &absolute_path)?,
            )
        };
        let mut file = LockedFile {
            schema: self,
            path: path.to_owned(),
            absolute_path,
            id,
            connection,
            begun: false,
            wal_pending: Cell::new(true),
            revisions: Cell::default(),
            lock,
        };
        file.check()?;
        if to_write {
            file.begin()?;
        }
        Ok(file)
    }

    fn absolute_path(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|error| Error::file(self.name, path, error))
    }

    fn lock(&self, path: &Path, absolute_path: &Path, create: bool) -> Result<FileLock> {
        let canonical = canonical_path(absolute_path);
        let lock_path = with_suffix(&canonical, ".lock");
        FileLock::acquire(&lock_path, &canonical, create)
            .map_err(|error| {
                let lock = lock_path.display();
                let advice = match lock_path.exists() {
                    _ if lock_path.is_symlink() => {
                        format!("{lock} is a symbolic link instead of a lock file; remove it")
                    }
                    true => format!("{lock} cannot be opened: {error}"),
                    false => format!("{lock} cannot be created: {error}"),
                };
                Error::file(self.name, path, advice)
            })?
            .ok_or_else(|| Error::locked(self.name, path))
    }

    /// Identifies the file, which must have only one name: SQLite finds its log by name. Refuses a file of another
    /// kind, as far as can be told without its log.
    fn identify(&self, path: &Path, absolute_path: &Path) -> Result<FileId> {
        let metadata = match fs::metadata(absolute_path) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Err(Error::file(self.name, path, "it is not a file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::file(self.name, path, "there is no such file"));
            }
            Err(error) => return Err(Error::file(self.name, path, error)),
        };
        if metadata.len() == 0 {
            return Err(self.empty_file_error(path));
        }
        let (id, names) = identity(&metadata);
        if names > 1 {
            return Err(Error::file(
                self.name,
                path,
                format_args!(
                    "the file has {names} names (hard links), and each would have a log of its own; remove all but one (find -samefile)"
                ),
            ));
        }
        let canonical = canonical_path(absolute_path);
        let [journal, wal] = ["-journal", "-wal"].map(|suffix| with_suffix(&canonical, suffix));
        for side_file in [&journal, &wal] {
            // Opening a pipe would wait for its other end.
            if fs::metadata(side_file).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(Error::file(
                    self.name,
                    path,
                    format_args!(
                        "{} is not a regular file; move it away",
                        side_file.display()
                    ),
                ));
            }
        }
        if fs::metadata(&journal).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(Error::file(
                self.name,
                path,
                format_args!(
                    "beside it is a journal that this program did not write ({}) and that would undo what the file holds; move it away",
                    journal.display()
                ),
            ));
        }
        // SQLite would truncate and remove any file with the name of its log. A header that a crash cut off begins with
        // zeros.
        let mut magic = [0; 4];
        if File::open(&wal).is_ok_and(|mut log| log.read_exact(&mut magic).is_ok())
            && !matches!(magic, [0, 0, 0, 0] | [0x37, 0x7f, 0x06, 0x82 | 0x83])
        {
            return Err(Error::file(
                self.name,
                path,
                format_args!(
                    "{} has the name of its write-ahead log but is a different file; move it away",
                    wal.display()
                ),
            ));
        }
        // Files of other programs are not touched.
        if !has_log(absolute_path) {
            match application_of(absolute_path) {
                Ok(id) => self.check_kind(path, id)?,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                    return Err(self.wrong_kind_error(path));
                }
                Err(_) => {}
            }
        }
        Ok(id)
    }

    /// Connects with an exclusive lock; does not change the file.
    fn connect(&self, path: &Path, absolute_path: &Path) -> Result<Connection> {
        self.try_connect(path, absolute_path)
            .map_err(|failure| self.error_of(path, failure))
    }

    fn try_connect(&self, path: &Path, absolute_path: &Path) -> Result<Connection, Failure> {
        let has_log =
            fs::symlink_metadata(with_suffix(&canonical_path(absolute_path), "-wal")).is_ok();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(absolute_path, flags)?;
        // A log is not applied before it has been checked, not even on close. If there is none, SQLite makes an empty
        // one, which is removed when the file is closed.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
        connection.busy_timeout(Duration::ZERO)?;
        // Before the first read, which then takes the lock and keeps it.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let id = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        self.check_kind(path, id)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Some disks of macOS acknowledge a plain fsync early.
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        // A report that was acknowledged is overwritten, not left in free space.
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        // `LockedFile::checkpoint` checkpoints explicitly, so that a failure is reported.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
        Ok(connection)
    }

    /// The error for a failed change.
    fn error_of(&self, path: &Path, failure: Failure) -> Error {
        match failure {
            Failure::Sqlite(error) => self.statement_error(path, &error),
            Failure::Other(error) => error,
        }
    }
}

/// A file that is open and locked; it is not changed before [`begin`](Self::begin).
pub(crate) struct LockedFile {
    schema: &'static FileSchema,
    /// The path as the caller named it.
    path: PathBuf,
    absolute_path: PathBuf,
    /// `None` if the file does not exist yet; the connection then holds its contents in memory.
    id: Option<FileId>,
    connection: Connection,
    begun: bool,
    /// Whether the log may hold something that the file does not.
    wal_pending: Cell<bool>,
    /// Revisions of the last change made here, or read on opening.
    revisions: Cell<Revisions>,
    // Dropped after the connection, and so released only when that is closed.
    lock: FileLock,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If a forked child, or one of two processes that hold the file, closed it normally, SQLite would delete the
        // log that the other one still uses.
        let alone = !self.begun || self.check_not_moved().is_err() || self.is_unchanged();
        if !(self.lock.is_ours() && alone) {
            let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(keep_log, true);
        }
    }
}

impl fmt::Debug for LockedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl LockedFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All rows of a query.
    pub(crate) fn all<T>(
        &self,
        query: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        self.connection
            .prepare_cached(query)
            .and_then(|mut query| query.query_map(values, read)?.collect())
            .map_err(|error| self.statement_error(&error))
    }

    /// The first row of a query, if there is one.
    pub(crate) fn first<T>(
        &self,
        query: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.connection
            .prepare_cached(query)
            .and_then(|mut query| query.query_row(values, read).optional())
            .map_err(|error| self.statement_error(&error))
    }

    /// The one row of a query, which must be there.
    pub(crate) fn one<T>(
        &self,
        query: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.first(query, values, read)?
            .ok_or_else(|| self.damaged_error("a required row is missing"))
    }

    /// The error for a file with inconsistent contents.
    pub(crate) fn damaged_error(&self, detail: impl fmt::Display) -> Error {
        self.schema.damaged_error(&self.path, detail)
    }

    /// The error for a failed statement.
    pub(crate) fn statement_error(&self, error: &rusqlite::Error) -> Error {
        self.schema.statement_error(&self.path, error)
    }

    /// Checks log and file, and changes neither.
    fn check(&self) -> Result<()> {
        let sqlite = |error| self.statement_error(&error);
        let schema = self.schema;
        let (layout, newest) = (self.layout()?, schema.layout());
        if layout > newest {
            return Err(Error::file(
                schema.name,
                &self.path,
                format_args!(
                    "the file was made by a later Eigenveil: it has layout {layout} but this program knows {newest}; update it"
                ),
            ));
        }
        if layout < 1 {
            return Err(schema.empty_file_error(&self.path));
        }
        // The log belongs to the file if the file's revision is that of the log's last change, or of the change before
        // it. (A file that cannot be read without its log cannot be compared.)
        let (revision, previous) = revisions(&self.connection).map_err(sqlite)?;
        if let Ok((in_file, _)) = self.revisions_of_file()
            && in_file != revision
            && in_file != previous
        {
            return Err(Error::file(
                schema.name,
                &self.path,
                format_args!(
                    "the write-ahead log beside it ({}) does not match its last change: the file was used elsewhere without the log, or replaced. Nothing that is only in a log has been given out: move the log away and run again",
                    with_suffix(&self.absolute_path, "-wal").display()
                ),
            ));
        }
        let answer: String = self
            .connection
            .pragma_query_value(None, "integrity_check", |row| row.get(0))
            .map_err(sqlite)?;
        if answer != "ok" {
            return Err(self.damaged_error(answer));
        }
        // An earlier layout is checked by its upgrade.
        if layout == newest {
            self.check_consistent(schema.consistency_check_sql)?;
        }
        self.revisions.set((revision, previous));
        Ok(())
    }

    /// The layout of the tables.
    pub(crate) fn layout(&self) -> Result<i32> {
        self.one("PRAGMA user_version", [], |row| row.get(0))
    }

    /// Refuses a file in which this expression over `file_state` and the tables does not hold.
    pub(crate) fn check_consistent(&self, expression: &str) -> Result<()> {
        let query = format!("SELECT {expression} FROM file_state");
        match self.one(&query, [], |row| row.get(0))? {
            true => Ok(()),
            false => Err(self.incomplete_error()),
        }
    }

    /// The error for a file of which a part is missing.
    pub(crate) fn incomplete_error(&self) -> Error {
        self.damaged_error("its last change was only partly written, or rows are missing")
    }

    /// Makes the file ready to be written to: creates it and its lock, if they do not exist, empties its log, also on
    /// close, and upgrades its tables.
    ///
    /// # Errors
    /// The file cannot be created or written; locked, also if another process has created it since it was opened.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        self.check_not_forked()?;
        let schema = self.schema;
        if !self.lock.is_taken() {
            self.lock = schema.lock(&self.path, &self.absolute_path, true)?;
        }
        if self.id.is_none() {
            if fs::symlink_metadata(&self.absolute_path).is_ok() {
                return Err(Error::locked(schema.name, &self.path));
            }
            schema.create(&self.absolute_path, &self.connection)?;
            let id = schema.identify(&self.path, &self.absolute_path)?;
            self.connection = schema.connect(&self.path, &self.absolute_path)?;
            self.id = Some(id);
            self.check()?;
        }
        set_wal(&self.connection).map_err(|error| self.statement_error(&error))?;
        self.checkpoint()?;
        self.connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(|error| self.statement_error(&error))?;
        self.begun = true;
        for upgrade in schema.upgrades.iter().skip(self.layout()? as usize - 1) {
            upgrade(self)?;
        }
        Ok(())
    }

    /// The revisions in the file itself, whatever the log contains.
    ///
    /// They are read through a second connection rather than directly: closing a file that this process has locked
    /// elsewhere would give up that lock (POSIX), which SQLite avoids.
    fn revisions_of_file(&self) -> rusqlite::Result<Revisions> {
        revisions(&open_without_log(&self.absolute_path)?)
    }

    /// Makes one atomic change, durable when this returns.
    ///
    /// # Errors
    /// Those of the change; the file could not be written, or has been moved. After an error no part of the change may
    /// be used before [`LockedFile::checkpoint`].
    pub(crate) fn write<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<T> {
        self.begin()?;
        self.check_current()?;
        let result = self
            .try_write(change)
            .map_err(|failure| self.schema.error_of(&self.path, failure))?;
        self.checkpoint()?;
        Ok(result)
    }

    fn try_write<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let transaction = self.connection.transaction()?;
        let result = change(&transaction)?;
        transaction.execute(
            "UPDATE file_state SET previous_revision = revision, revision = randomblob(16)",
            [],
        )?;
        let revisions = revisions(&transaction)?;
        self.wal_pending.set(true);
        // Set before the commit, because a commit that reports failure may still have happened.
        self.revisions.set(revisions);
        transaction.commit()?;
        Ok(result)
    }

    /// Checkpoints the log into the file, synced, and empties it. Call it before any change is used.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        if !self.wal_pending.get() {
            return Ok(());
        }
        self.check_not_forked()?;
        let busy: i64 = self.one("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            return Err(Error::locked(self.schema.name, &self.path));
        }
        let revisions =
            revisions(&self.connection).map_err(|error| self.statement_error(&error))?;
        self.revisions.set(revisions);
        self.wal_pending.set(false);
        Ok(())
    }

    /// Checks that no other process has replaced or changed the file: before a write, so that it overwrites no change
    /// of another process even if the locks were lost; and before reports are sent, because the file must record them.
    /// Reads the disk, so call it once for many reports.
    pub(crate) fn check_current(&self) -> Result<()> {
        self.check_not_forked()?;
        self.check_not_moved()?;
        if !self.is_unchanged() {
            return Err(Error::file(
                self.schema.name,
                &self.path,
                "the file was changed by another process, or overwritten, while it was open here; nothing more was written or sent: stop the other process and open the file again",
            ));
        }
        self.checkpoint()
    }

    /// Whether the last change in the file was made here. A locked connection trusts its cache, so a second connection
    /// reads the file.
    fn is_unchanged(&self) -> bool {
        let (last, previous) = self.revisions.get();
        match self.revisions_of_file() {
            Ok((in_file, _)) => in_file == last || self.wal_pending.get() && in_file == previous,
            // An interrupted checkpoint is repeated from the log.
            Err(_) => self.wal_pending.get(),
        }
    }

    /// Refuses to work in a forked child of the process that opened the file.
    fn check_not_forked(&self) -> Result<()> {
        if self.lock.is_ours() {
            return Ok(());
        }
        Err(Error::file(
            self.schema.name,
            &self.path,
            "its parent process opened it before the fork; nothing was written or sent: open it after forking, in one process",
        ))
    }

    /// Refuses to continue with a file that now has another name: its log would stay at the old name.
    fn check_not_moved(&self) -> Result<()> {
        match fs::metadata(&self.absolute_path) {
            Ok(metadata) if self.id.map(|id| (id, 1)) == Some(identity(&metadata)) => Ok(()),
            _ => Err(Error::file(
                self.schema.name,
                &self.path,
                "the file was moved, replaced or linked to while it was open; nothing more was written or sent: open it again under its current name",
            )),
        }
    }
}

fn revisions(connection: &Connection) -> rusqlite::Result<Revisions> {
    connection.query_row(
        "SELECT revision, previous_revision FROM file_state",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

fn set_wal(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |r| r.get(0))?;
    match mode == "wal" {
        true => Ok(()),
        // A write failed without SQLite reporting it.
        false => Err(rusqlite::Error::SqliteFailure(
            ffi::Error::new(ffi::SQLITE_IOERR_WRITE),
            None,
        )),
    }
}

fn application_of(absolute_path: &Path) -> rusqlite::Result<i32> {
    open_without_log(absolute_path)?.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Opens the file without its log and its locks, to read it.
fn open_without_log(absolute_path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(immutable_uri(absolute_path), flags)
}

mod paths;
#[cfg(test)]
mod tests;
