//! The writer lease: one server at a time may write to the database, even if somebody removed the lock file (fencing).
//!
//! A server that opens the database for writing stores a random id in it, and each of its transactions checks that the
//! id is still there. If somebody removes the lock file and a second server starts, the first stops writing, and
//! neither counts what the other has counted. A mark in the database says that its write-ahead log (`-wal`) belongs to
//! it: it is on disk before anything is acknowledged, and removed once everything is in the main file.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::SystemTime,
};

use eigenveil_shared::Result;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

use super::{
    checksum,
    database_files::DatabaseFiles,
    directory::DataDirectory,
    log::{self, PAGE_BYTES},
    notice, schema,
};
use crate::store::failure::{Failure, TAKEN_OVER, unavailable};

/// Id of the last server that opened the database: 16 random bytes.
const LEASE_HOLDER: &str = "server";
/// Present while the write-ahead log may contain data that the main file lacks.
const IN_USE: &str = "in-use";
/// Device and inode of the main file when it was last opened.
const FILE_ID: &str = "file-id";
/// The hash of the operator token.
pub(super) const OPERATOR_HASH: &str = "operator-token-sha256";

/// The right to write, until another server takes over or other files stand in place of the database.
pub(super) struct WriterLease {
    id: [u8; 16],
    pub(super) files: DatabaseFiles,
}

/// What the database's write-ahead log tells before the database is opened, which creates one.
#[derive(Clone, Copy)]
pub(super) struct WalFile {
    exists: bool,
    /// The main file was changed after it: usually a last checkpoint, but perhaps another file was copied over it. Or it is
    /// known that a file was, or that the log was damaged.
    is_suspect: bool,
    /// Bytes of the main file, and how many it says itself that it has, if these are more.
    cut_short: Option<(u64, u64)>,
    /// Whether it may have the rest of such a file.
    has_content: bool,
    unexpected: Option<UnexpectedLog>,
    /// Whether the mark was there when [`WriterLease::acquire`] was first called.
    was_in_use: Option<bool>,
}

/// A log with content, beside a main file that alone says that it is complete.
#[derive(Clone, Copy)]
struct UnexpectedLog {
    /// Whether it would change more of the main file than the page of the mark.
    changes_more: bool,
    /// The hash of the operator token in the main file alone, which is on that page.
    operator: Option<[u8; 32]>,
}

impl UnexpectedLog {
    fn find(log: &Path, database: &Path) -> Option<Self> {
        let main = schema::open_without_log(database).ok()?;
        if setting(&main, IN_USE).ok()?.is_some() {
            return None;
        }
        let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'settings'";
        let page = main.query_row(page, [], |row| row.get(0)).ok()?;
        let operator = setting(&main, OPERATOR_HASH).ok().flatten();
        let changes_more = |log: log::Log| log.changes_more_than(page);
        Some(Self {
            changes_more: log::Log::open(log, database).is_ok_and(changes_more),
            operator: operator.and_then(|hash| hash.try_into().ok()),
        })
    }

    /// Whether somebody has put another file beside the log, or another log beside the file. A server that ends while it
    /// sets or removes the mark leaves only that.
    fn is_foreign(self, with_log: &Connection) -> Result<bool, Failure> {
        Ok(self.changes_more
            || match self.operator {
                Some(main) => setting(with_log, OPERATOR_HASH)?.is_none_or(|found| found != main),
                None => false,
            })
    }
}

impl WalFile {
    /// # Errors
    /// The log is damaged in front of commits that were acknowledged. The next start then checks the database.
    pub(super) fn in_directory(directory: &DataDirectory) -> Result<Self> {
        let path = directory.wal_path();
        let damaged = log::damaged_at(&path).map_err(|error| {
            unavailable(format!(
                "the write-ahead log {} cannot be read ({error}); check the disk and the permissions",
                path.display()
            ))
        });
        if let Some(at) = damaged? {
            if let Err(error) = notice::suspect(directory.path()) {
                tracing::warn!(%error, "the next start cannot be told to check the database");
            }
            return Err(wal_damaged_error(&path, at));
        }
        let modified = |path| fs::metadata(path).and_then(|file| file.modified());
        let wal: Option<SystemTime> = modified(directory.wal_path()).ok();
        let is_older =
            wal.is_some_and(|wal| modified(directory.database()).is_ok_and(|main| main > wal));
        let has_no_header = log::lacks_header(&path).unwrap_or(false);
        if has_no_header {
            tracing::warn!(
                "the write-ahead log {} has no header, so what it had is lost: if the server was killed, reports acknowledged last may be missing",
                path.display()
            );
        }
        let is_suspect = is_older || has_no_header || notice::path(directory.path()).exists();
        let has_content = fs::metadata(&path).is_ok_and(|log| log.len() > 0);
        let main = directory.database();
        let unexpected = has_content.then(|| UnexpectedLog::find(&path, &main));
        // What is too short to say so is refused by SQLite, unless it is empty.
        let sizes = main_sizes(&main).ok();
        Ok(Self {
            exists: wal.is_some(),
            is_suspect,
            cut_short: sizes.filter(|(found, said)| found < said),
            has_content,
            unexpected: unexpected.flatten(),
            was_in_use: None,
        })
    }
}

impl WriterLease {
    /// Takes over the database. It is checked for damage if it is not at the place where the last server left it, was
    /// changed after its log, was overwritten while the last server ran, or is short of what its log may have.
    pub(super) fn acquire(
        connection: &mut Connection,
        directory: &DataDirectory,
        wal: &mut WalFile,
    ) -> Result<Self, Failure> {
        let was_in_use = setting(connection, IN_USE)?.is_some();
        // In a second try on a full disk the mark may be that of the first.
        let was_in_use = *wal.was_in_use.get_or_insert(was_in_use);
        if was_in_use && !wal.exists {
            // The log created by opening it must not be taken for the missing one next time.
            schema::keep_wal(connection, false)?;
            return Err(wal_missing_error(directory).into());
        }
        if let Some((found, said)) = wal.cut_short
            && !was_in_use
            && !wal.has_content
        {
            return Err(Failure::damaged(format!(
                "the file is cut short: {found} bytes of {said}"
            )));
        }
        if let Some(log) = wal.unexpected
            && log.is_foreign(connection)?
        {
            return Err(foreign_wal_error(directory).into());
        }
        let found = file_id(&directory.database())?;
        let before = setting(connection, FILE_ID)?;
        let is_copy = before.as_deref() != Some(&found);
        if is_copy || wal.is_suspect || wal.cut_short.is_some() {
            check(connection)?;
            if is_copy && before.is_some() {
                tracing::warn!(
                    "the database is an undamaged copy; reports acknowledged after it was made are not in it"
                );
            }
        }
        notice::settle(connection, directory.path())?;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy) => {
                    other_program_error(directory, "writing to").into()
                }
                _ => Failure::from(error),
            })?;
        // It need not be secret, only different each time.
        let id: [u8; 16] = transaction.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        for (key, value) in [
            (LEASE_HOLDER, &id[..]),
            (FILE_ID, &found),
            (IN_USE, &[1][..]),
        ] {
            // The mark is rewritten only if it is missing: it stays where a crash left it.
            transaction.execute(
                "INSERT INTO settings (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value != excluded.value",
                params![key, value],
            )?;
        }
        transaction.commit()?;
        if !was_in_use || wal.unexpected.is_some() {
            // Checkpointed before anything is acknowledged that only the log contains.
            let copied = schema::checkpoint(connection, "TRUNCATE");
            if !copied
                .as_ref()
                .is_ok_and(|&copied| schema::is_complete(copied))
            {
                // The main file has all but the mark. A program that ends after this one moves the log there and removes
                // it: nothing must then seem to be missing.
                let _ = connection.execute("DELETE FROM settings WHERE key = ?", [IN_USE]);
                copied?;
                return Err(other_program_error(directory, "reading").into());
            }
        }
        let files = DatabaseFiles::watch(connection, directory)?;
        Ok(Self { id, files })
    }

    /// A write transaction; [`Failure::LeaseLost`] if another server has taken over the database, or its files are gone.
    pub(super) fn transaction<'a>(
        &self,
        connection: &'a mut Connection,
    ) -> Result<Transaction<'a>, Failure> {
        match self.begin(connection) {
            Ok((transaction, true)) => self.files.begin(&transaction).map(|()| transaction),
            // Whatever happened to the files is the other server's doing.
            Ok((_, false)) => Err(Failure::LeaseLost(TAKEN_OVER)),
            Err(error) => self.files.check_places().and(Err(error.into())),
        }
    }

    /// Begins a transaction, and tells whether the database still belongs to this lease.
    fn begin<'a>(
        &self,
        connection: &'a mut Connection,
    ) -> rusqlite::Result<(Transaction<'a>, bool)> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let same: Option<bool> = transaction
            .prepare_cached("SELECT value = ? FROM settings WHERE key = ?")?
            .query_row(params![self.id, LEASE_HOLDER], |row| row.get(0))
            .optional()?;
        Ok((transaction, same == Some(true)))
    }

    /// Commits a transaction of this lease, which is in the database for good if this returns without an error.
    pub(super) fn commit(&self, transaction: Transaction<'_>) -> Result<(), Failure> {
        transaction.commit()?;
        self.files.committed()
    }

    /// To be called when nothing is written for a while.
    pub(super) fn rest(&self) {
        self.files.rest();
    }

    /// Copies the write-ahead log into the main file, as far as no reader needs it; the next write restarts the log.
    pub(super) fn checkpoint(&self, connection: &Connection) -> Result<(), Failure> {
        self.files.checkpoint(connection, "PASSIVE").map(drop)
    }

    /// Leaves a complete database without a write-ahead log; where another program is reading it, one in use with its log.
    pub(super) fn checkpoint_and_release(
        &self,
        connection: &mut Connection,
    ) -> Result<(), Failure> {
        // First, so that a main file without the mark is complete, whenever this is cut off.
        if !self.files.checkpoint(connection, "PASSIVE")? {
            tracing::warn!(
                "another program is reading the database: the write-ahead log stays beside it. If that program moves it into the database when it ends, nothing is lost, but the next start asks for an empty log"
            );
            return Ok(());
        }
        let transaction = self.transaction(connection)?;
        transaction.execute("DELETE FROM settings WHERE key = ?", [IN_USE])?;
        self.commit(transaction)?;
        // The log is kept if the main file is overwritten just now.
        self.files.checkpoint(connection, "PASSIVE")?;
        // Empty if nobody is reading just now: it cannot be taken for the log of another database.
        self.files.checkpoint(connection, "TRUNCATE").map(drop)
    }
}

/// Makes a complete copy, such as a backup, usable anywhere.
pub(super) fn detach_copy(copy: &Path) -> Result<(), Failure> {
    let connection = Connection::open(copy)?;
    connection.execute(
        "DELETE FROM settings WHERE key IN (?, ?, ?)",
        // Without a holder: restored into the files of a running server, it is not taken for that server's own.
        params![IN_USE, FILE_ID, LEASE_HOLDER],
    )?;
    connection.close().map_err(|(_, error)| error.into())
}

pub(super) fn setting(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    Ok(connection
        .query_row("SELECT value FROM settings WHERE key = ?", [key], |row| {
            row.get(0)
        })
        .optional()?)
}

fn file_id(database: &Path) -> Result<Vec<u8>, Failure> {
    let file = std::fs::metadata(database).map_err(Failure::file)?;
    Ok([file.dev(), file.ino()].map(u64::to_le_bytes).concat())
}

/// Bytes of a database's file, and those of the pages that its header counts. Not while SQLite has it open, whose locks
/// end when any descriptor of the file is closed.
fn main_sizes(database: &Path) -> io::Result<(u64, u64)> {
    let mut file = fs::File::open(database)?;
    let mut header = [0; 32];
    file.read_exact(&mut header)?;
    let [.., a, b, c, d] = header;
    let pages = u32::from_be_bytes([a, b, c, d]);
    Ok((file.metadata()?.len(), u64::from(pages) * PAGE_BYTES))
}

fn other_program_error(directory: &DataDirectory, does: &str) -> eigenveil_shared::Error {
    unavailable(format!(
        "another program is {does} the database {}; end it, and start again",
        directory.database().display()
    ))
}

fn wal_missing_error(directory: &DataDirectory) -> eigenveil_shared::Error {
    let wal = directory.wal_path();
    unavailable(format!(
        "the store {} was in use when it was copied or its server ended, and its write-ahead log {} is missing: the reports acknowledged last are lost with it. \
         Put the log beside it, or restore a backup (eigenveil backup). If you have neither, create an empty file of that name to go on without; \
         devices do not send acknowledged reports again. If another program has opened the store since, nothing is lost",
        directory.database().display(),
        wal.display()
    ))
}

fn foreign_wal_error(directory: &DataDirectory) -> eigenveil_shared::Error {
    unavailable(format!(
        "the write-ahead log {} is not that of {}, which was closed without one: one of them is of another time or another store; nothing was changed. \
         Put files of one moment there, or move the log away to start with the database alone",
        directory.wal_path().display(),
        directory.database().display()
    ))
}

fn wal_damaged_error(wal: &Path, at: u64) -> eigenveil_shared::Error {
    unavailable(format!(
        "the write-ahead log {0} is damaged at byte {at}, and acknowledged reports that follow there would be lost; nothing was changed. \
         Put an undamaged copy of the log in its place, or restore a backup (eigenveil backup) into an empty directory. If you have neither, keep a copy of the log and \
         cut it off there (truncate -s {at} {0}) to go on without what follows; devices do not send acknowledged reports again",
        wal.display()
    ))
}

/// Checks for what an inconsistent copy would lack: pages, reports that are counted but missing, and their bytes.
fn check(connection: &Connection) -> Result<(), Failure> {
    let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if result != "ok" {
        return Err(Failure::damaged(result));
    }
    let inconsistent: Option<(String, u64)> = connection
        .query_row(
            "SELECT name, reports_accepted FROM studies AS s
             WHERE study_pk NOT IN (SELECT study_pk FROM deleted_studies)
             AND (reports_accepted != coalesce((SELECT sum(n) FROM buckets AS b WHERE b.study_pk = s.study_pk), 0)
                                    + coalesce((SELECT sum(n) FROM seeds AS d WHERE d.study_pk = s.study_pk), 0)
                  OR closed_at_ms IS NULL
                  AND reports_accepted != (SELECT count(*) FROM report_ids AS r WHERE r.study_pk = s.study_pk)
                      + coalesce((SELECT sum(length(ids)) / 16 FROM recent_ids AS i WHERE i.study_pk = s.study_pk), 0))
             LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match inconsistent {
        Some((name, reports)) => Err(Failure::damaged(format!(
            "the study {name:?} has accepted {reports} reports, but its sums or identifiers are those of a different number"
        ))),
        None => checksum::verify_all(connection),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use eigenveil_shared::Result;
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::runtime::Runtime;

    use crate::{
        Environment, ServerConfig,
        store::{
            Store, StudyId, database_path,
            fixtures::{create, report},
        },
    };

    /// As after a kill, with a bit of the log flipped: SQLite would take the commits after it for unfinished ones.
    #[test]
    fn a_log_that_is_damaged_before_acknowledged_reports_is_refused() {
        const REPORTS: u8 = 20;
        let running = tempfile::tempdir().unwrap();
        let config = ServerConfig::new(running.path().join("data"));
        let store = Store::open(&config, Environment::system()).unwrap();
        let runtime = Runtime::new().unwrap();
        let study = runtime.block_on(create(&store, &json!({})));
        for number in 0..REPORTS {
            let submitted = store.submit(&study, vec![report(&study, number)]);
            runtime.block_on(submitted).unwrap();
        }
        let main = fs::read(database_path(&config.data_dir)).unwrap();
        let wal = fs::read(config.data_dir.join("eigenveil.db-wal")).unwrap();
        drop(store);
        let with_log = |log: &[u8]| {
            let killed = tempfile::tempdir().unwrap();
            fs::write(database_path(killed.path()), &main).unwrap();
            fs::write(killed.path().join("eigenveil.db-wal"), log).unwrap();
            killed
        };
        let open = |killed: &TempDir| {
            Store::open(&ServerConfig::new(killed.path()), Environment::system())
        };
        let counted = |store: Store| store.study(study.id()).unwrap().reports_accepted();
        assert_eq!(counted(open(&with_log(&wal)).unwrap()), u64::from(REPORTS));

        let mut flipped = wal.clone();
        flipped[wal.len() / 2] ^= 4;
        let killed = with_log(&flipped);
        let path = killed.path().join("eigenveil.db-wal");
        let error = open(&killed).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), "acknowledged reports", "backup"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), flipped);
        // The way out.
        let (_, cut) = error.split_once("truncate -s ").unwrap();
        let (bytes, _) = cut.split_once(' ').unwrap();
        let log = fs::File::options().write(true).open(&path).unwrap();
        log.set_len(bytes.parse().unwrap()).unwrap();
        let left = counted(open(&killed).unwrap());
        assert!((1..u64::from(REPORTS)).contains(&left), "{left}");
        // The database was checked, once.
        assert!(!killed.path().join("eigenveil.overwritten").exists());
    }

    /// A store that was closed, with a study.
    struct Closed {
        config: ServerConfig,
        database: PathBuf,
        log: PathBuf,
        runtime: Runtime,
        study: StudyId,
        _folder: TempDir,
    }

    impl Closed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = ServerConfig::new(folder.path());
            let runtime = Runtime::new().unwrap();
            let store = Store::open(&config, Environment::system()).unwrap();
            let study = runtime.block_on(create(&store, &json!({})));
            Self {
                config,
                database: database_path(folder.path()),
                log: folder.path().join("eigenveil.db-wal"),
                runtime,
                study: study.id(),
                _folder: folder,
            }
        }

        fn open(&self) -> Result<Store> {
            Store::open(&self.config, Environment::system())
        }

        fn submit(&self, store: &Store, number: u8) {
            let study = store.study(self.study).unwrap();
            let submitted = store.submit(&study, vec![report(&study, number)]);
            self.runtime.block_on(submitted).unwrap();
        }

        fn accepted(&self) -> u64 {
            let store = self.open().unwrap();
            store.study(self.study).unwrap().reports_accepted()
        }

        /// As of a server that is killed once this is committed.
        fn change_settings(&self, change: &str) {
            let connection = super::schema::open_for_writing(&self.database, None).unwrap();
            connection.execute(change, []).unwrap();
        }

        fn assert_foreign(&self) {
            let error = self.open().unwrap_err().to_string();
            assert!(error.contains("is not that of"), "{error}");
        }
    }

    /// SQLite applies any log that fits itself.
    #[test]
    fn a_log_of_an_earlier_time_is_refused() {
        let closed = Closed::new();
        let store = closed.open().unwrap();
        closed.submit(&store, 0);
        let earlier = fs::read(&closed.log).unwrap();
        drop(store);
        closed.submit(&closed.open().unwrap(), 1);
        fs::write(&closed.log, &earlier).unwrap();
        let main = fs::read(&closed.database).unwrap();
        closed.assert_foreign();
        assert!(fs::read(&closed.database).unwrap() == main);
        assert!(fs::read(&closed.log).unwrap() == earlier);
        // The way out.
        fs::remove_file(&closed.log).unwrap();
        assert_eq!(closed.accepted(), 2);
    }

    /// Its page is the mark's, too.
    #[test]
    fn a_log_with_an_operator_token_of_an_earlier_time_is_refused() {
        let closed = Closed::new();
        closed.change_settings(
            "UPDATE settings SET value = zeroblob(32) WHERE key = 'operator-token-sha256'",
        );
        closed.assert_foreign();
        fs::write(&closed.log, "").unwrap();
        assert_eq!(closed.accepted(), 0);
    }

    /// That program then moves the log, with the mark, into the database.
    #[test]
    fn a_start_beside_a_reader_succeeds_once_the_reader_has_ended() {
        let closed = Closed::new();
        let reader = rusqlite::Connection::open(&closed.database).unwrap();
        reader
            .execute_batch("BEGIN; SELECT * FROM settings")
            .unwrap();
        let error = closed.open().unwrap_err().to_string();
        assert!(error.contains("another program is reading"), "{error}");
        reader.execute_batch("COMMIT").unwrap();
        drop(reader);
        assert!(!closed.log.exists());
        assert_eq!(closed.accepted(), 0);
    }

    /// On a full disk the mark may be committed to the log, and not copied. Without a copy the main file would seem to be
    /// closed, whatever is acknowledged then.
    #[test]
    fn a_second_try_has_the_mark_in_the_main_file() {
        let closed = Closed::new();
        let directory = super::DataDirectory::open(closed.database.parent().unwrap()).unwrap();
        let mut wal = super::WalFile::in_directory(&directory).unwrap();
        let mut connection = super::schema::open_for_writing(&closed.database, None).unwrap();
        wal.was_in_use = Some(false);
        connection
            .execute("INSERT INTO settings VALUES ('in-use', x'01')", [])
            .unwrap();
        let _lease = super::WriterLease::acquire(&mut connection, &directory, &mut wal).unwrap();
        let main = super::schema::open_without_log(&closed.database).unwrap();
        assert!(super::setting(&main, super::IN_USE).unwrap().is_some());
    }

    /// A start that ends between the commit of the mark and its checkpoint, and then a kill.
    #[test]
    fn a_start_that_is_cut_off_leaves_no_foreign_log() {
        let closed = Closed::new();
        closed.change_settings("INSERT INTO settings VALUES ('in-use', x'01')");
        assert!(fs::metadata(&closed.log).unwrap().len() > 0);
        let store = closed.open().unwrap();
        closed.submit(&store, 0);
        let files = [&closed.database, &closed.log];
        let killed = files.map(|file| fs::read(file).unwrap());
        drop(store);
        for (file, bytes) in files.into_iter().zip(killed) {
            fs::write(file, bytes).unwrap();
        }
        assert_eq!(closed.accepted(), 1);
    }

    /// Bytes that a disk lost: what the log had cannot be told any more.
    #[test]
    fn a_log_without_a_header_has_the_database_checked() {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(&ServerConfig::new(folder.path()), Environment::system()).unwrap());
        let directory = super::DataDirectory::open(folder.path()).unwrap();
        for (bytes, wanted) in [(0, false), (31, true), (8_192, true)] {
            fs::write(directory.wal_path(), vec![0; bytes]).unwrap();
            let found = super::WalFile::in_directory(&directory).unwrap();
            assert_eq!(found.is_suspect, wanted, "{bytes}");
        }
    }
}
