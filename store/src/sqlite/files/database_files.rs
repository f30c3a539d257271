//! The main file and its write-ahead log: what a start asks of them, that they are still the same before anything is
//! acknowledged, and what a stop leaves.
//!
//! SQLite's files are SQLite's: nothing here reads the log. What is noticed is that somebody removed, moved or replaced a
//! file, or restored one over a running server. A mark in the database says that the log may have what the main file
//! lacks. It is in the main file before anything is acknowledged, and goes once everything is there. Wherever a start or
//! a stop is cut off, a main file without the mark has at most one frame beside it, so a longer log is another one's.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use eigenveil_shared::Result;
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use super::{directory::DataDirectory, notice, reserve::disk_bytes, schema, schema::PAGE_BYTES};
use crate::{
    contract::failure::{Failure, unavailable},
    sqlite::checksum,
};

/// Present while the write-ahead log may have what the main file lacks.
const IN_USE: &str = "in-use";
/// Device and inode of the main file when it was last opened.
const FILE_ID: &str = "file-id";
/// The hash of the operator token.
pub(crate) const OPERATOR_HASH: &str = "operator-token-sha256";

/// A log of one frame: its header, the frame's, and a page.
const ONE_FRAME_BYTES: u64 = 32 + 24 + PAGE_BYTES;

/// Device and inode.
type FileId = (u64, u64);

/// The main file as the last checkpoint of our own left it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MainFile {
    id: FileId,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl MainFile {
    fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            id: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

/// Device and inode of the log. Its times are not asked for: Linux (since 6.13) would give the next change another one,
/// which a commit would have to sync, too.
fn log_id(path: &Path) -> io::Result<FileId> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        if let Ok(found) = statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
            let device = makedev(found.stx_dev_major, found.stx_dev_minor);
            return Ok((device, found.stx_ino));
        }
    }
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The files as they were before SQLite opened them.
pub(crate) struct LookedAt {
    /// The main file is shorter than it says, and its log may have the rest.
    is_cut_short: bool,
}

/// Refuses files that SQLite would open with a loss: it makes a log where there is none, and applies any that it finds.
pub(crate) fn look(directory: &DataDirectory) -> Result<LookedAt> {
    let main = directory.database();
    let log = fs::metadata(directory.wal_path()).map(|log| log.len()).ok();
    // None where the main file alone is no store yet.
    let alone = schema::open_without_log(&main).map_err(Failure::from);
    let is_in_use = alone.and_then(|main| Ok(setting(&main, IN_USE)?.is_some()));
    // Of a database that was being made SQLite takes back what was begun.
    let sizes = match directory.journal_path().exists() {
        true => None,
        false => main_sizes(&main).ok().filter(|(found, said)| found < said),
    };
    match (log, is_in_use.ok(), sizes) {
        (None, Some(true), _) => Err(wal_missing_error(directory)),
        (Some(bytes), Some(false), _) if bytes > ONE_FRAME_BYTES => {
            Err(foreign_wal_error(directory))
        }
        (None | Some(0), _, Some((found, said))) => {
            let damage = format!("the file is cut short: {found} bytes of {said}");
            Err(Failure::damaged(damage).of_file(&main).into_error())
        }
        _ => Ok(LookedAt {
            is_cut_short: sizes.is_some(),
        }),
    }
}

/// The files of a database that is open for writing.
pub(crate) struct DatabaseFiles {
    main_path: PathBuf,
    log_path: PathBuf,
    main: MainFile,
    log: FileId,
    /// In the log after the last commit.
    frames: Arc<AtomicU64>,
    max_frames: u64,
}

impl DatabaseFiles {
    /// Marks the database as in use. It is checked for damage where the main file is another one than the last server's,
    /// is short of what its log may have, or was replaced under the last server.
    pub(crate) fn take(
        connection: &mut Connection,
        directory: &DataDirectory,
        looked_at: &LookedAt,
    ) -> Result<Self, Failure> {
        let (main_path, log_path) = (directory.database(), directory.wal_path());
        let main = MainFile::at(&main_path).map_err(Failure::file)?;
        let id = [main.id.0, main.id.1].map(u64::to_le_bytes).concat();
        let before = setting(connection, FILE_ID)?;
        let is_copy = before.as_deref() != Some(&id);
        if is_copy || looked_at.is_cut_short || notice::path(directory.path()).exists() {
            check(connection)?;
            if is_copy && before.is_some() {
                tracing::warn!(
                    "the database is an undamaged copy; reports acknowledged after it was made may not be in it"
                );
            }
        }
        notice::settle(connection, directory.path())?;
        let busy = |does| Failure::from(other_program_error(directory, does));
        if !empty_log(connection)? {
            return Err(busy("reading"));
        }
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy) => busy("writing to"),
                _ => error.into(),
            })?;
        for (key, value) in [(FILE_ID, &id[..]), (IN_USE, &[1])] {
            // The mark stays where a crash left it.
            transaction.execute(
                "INSERT INTO settings (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value != excluded.value",
                params![key, value],
            )?;
        }
        transaction.commit()?;
        if !empty_log(connection)? {
            // A program that ends after this one moves the log, with the mark, into the main file, and removes it: nothing
            // must then seem to be missing.
            let _ = connection.execute("DELETE FROM settings WHERE key = ?", [IN_USE]);
            return Err(busy("reading"));
        }
        schema::migrate(connection)?;
        let frames = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&frames);
        // In place of SQLite's own checkpoints, which would change the main file unseen.
        connection.wal_hook(Some(move |_: &mut _, frames| {
            counter.store(u64::try_from(frames).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self {
            main: MainFile::at(&main_path).map_err(Failure::file)?,
            log: log_id(&log_path).map_err(Failure::file)?,
            max_frames: schema::log_pages(disk_bytes(main_path.parent().unwrap_or(Path::new("")))),
            main_path,
            log_path,
            frames,
        })
    }

    /// Whether the main file is as it was left.
    fn has_main(&self) -> bool {
        MainFile::at(&self.main_path).is_ok_and(|found| found == self.main)
    }

    /// Whether both files are as they were left: what was committed is then in the database for good.
    pub(crate) fn are_ours(&self) -> bool {
        self.has_main() && log_id(&self.log_path).is_ok_and(|found| found == self.log)
    }

    /// Looks at the files after a commit. Nothing of it may be answered before: what is removed while a commit runs has
    /// been written to a file that nobody opens again.
    pub(crate) fn committed(&mut self, connection: &Connection) -> Result<(), Failure> {
        if !self.are_ours() {
            return Err(Failure::FilesReplaced);
        }
        // One that is not possible now is made after a later commit.
        if self.frames.load(Ordering::Relaxed) >= self.max_frames
            && let Err(failure) = self.checkpoint(connection, "PASSIVE")
        {
            tracing::debug!(%failure, "checkpoint failed; the write-ahead log grows");
        }
        Ok(())
    }

    /// Copies the log into the main file, as far as no reader needs it; the next write restarts the log. Whether all of it
    /// is there.
    pub(crate) fn checkpoint(
        &mut self,
        connection: &Connection,
        how: &str,
    ) -> Result<bool, Failure> {
        if !self.has_main() {
            return Err(Failure::FilesReplaced);
        }
        let outcome = checkpoint(connection, how);
        let main_file = MainFile::at(&self.main_path).map_err(|_| Failure::FilesReplaced)?;
        if main_file.id != self.main.id {
            return Err(Failure::FilesReplaced);
        }
        self.main = main_file;
        outcome
    }

    /// Moves what the log has into the main file if only the log is gone from its place: it is still open here.
    pub(crate) fn rescue_log(&mut self, connection: &Connection) -> Result<(), Failure> {
        match self.has_main() {
            true => self.complete(connection, "PASSIVE"),
            false => Ok(()),
        }
    }

    /// Leaves a complete database with an empty log; where another program is reading it, one in use with its log.
    pub(crate) fn release(&mut self, connection: &Connection) -> Result<(), Failure> {
        match self.are_ours() {
            true => self.complete(connection, "TRUNCATE"),
            false => Err(Failure::FilesReplaced),
        }
    }

    /// The log goes to the main file before the mark does, so that a main file without the mark is complete, whenever this
    /// is cut off.
    fn complete(&mut self, connection: &Connection, how: &str) -> Result<(), Failure> {
        if !self.checkpoint(connection, how)? {
            tracing::warn!(
                "another program is reading the database: the write-ahead log stays beside it. If that program moves it into the database when it ends, nothing is lost, but the next start asks for an empty log"
            );
            return Ok(());
        }
        connection.execute("DELETE FROM settings WHERE key = ?", [IN_USE])?;
        self.checkpoint(connection, "PASSIVE")?;
        self.checkpoint(connection, how).map(drop)
    }
}

/// Makes a checkpoint; whether all of the log is in the main file then.
pub(crate) fn checkpoint(connection: &Connection, how: &str) -> Result<bool, Failure> {
    let pragma = format!("PRAGMA wal_checkpoint({how})");
    let (is_busy, frames, copied): (bool, i32, i32) = connection.query_row(&pragma, [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    Ok(!is_busy && frames >= 0 && frames == copied)
}

/// Moves all of the log into the main file and empties it, unless another program is reading.
fn empty_log(connection: &Connection) -> Result<bool, Failure> {
    checkpoint(connection, "TRUNCATE")
}

/// Makes a complete copy, such as a backup, usable anywhere.
pub(crate) fn detach_copy(copy: &Path) -> Result<(), Failure> {
    let connection = Connection::open(copy)?;
    connection.execute(
        "DELETE FROM settings WHERE key IN (?, ?)",
        params![IN_USE, FILE_ID],
    )?;
    connection.close().map_err(|(_, error)| error.into())
}

pub(crate) fn setting(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    Ok(connection
        .query_row("SELECT value FROM settings WHERE key = ?", [key], |row| {
            row.get(0)
        })
        .optional()?)
}

/// Bytes of a store's file, and those of the pages that its header counts. Not while SQLite has it open, whose locks
/// end when any descriptor of the file is closed.
fn main_sizes(database: &Path) -> io::Result<(u64, u64)> {
    let mut file = fs::File::open(database)?;
    let mut header = [0; 72];
    file.read_exact(&mut header)?;
    // Of another program's file SQLite says what it is.
    if header[68..] != schema::APPLICATION_ID.to_be_bytes() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
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
         Put the log beside it, or restore a backup. If you have neither, create an empty file of that name to go on without; \
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

/// Checks for what an inconsistent copy would lack: pages, reports that are counted but missing, and their bytes.
fn check(connection: &Connection) -> Result<(), Failure> {
    let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if result != "ok" {
        return Err(Failure::damaged(result));
    }
    let sites = match schema::has_site_reports(connection)? {
        true => "(SELECT count(*) FROM site_reports AS t WHERE t.study_pk = s.study_pk)",
        false => "0",
    };
    let inconsistent: Option<(String, u64)> = connection
        .query_row(
            &format!("SELECT name, reports_accepted FROM studies AS s
             WHERE study_pk NOT IN (SELECT study_pk FROM deleted_studies)
             AND (reports_accepted != coalesce((SELECT sum(n) FROM buckets AS b WHERE b.study_pk = s.study_pk), 0)
                                    + coalesce((SELECT sum(n) FROM seeds AS d WHERE d.study_pk = s.study_pk), 0) + {sites}
                  OR closed_at_ms IS NULL
                  AND reports_accepted != (SELECT count(*) FROM report_ids AS r WHERE r.study_pk = s.study_pk)
                      + coalesce((SELECT sum(length(ids)) / 16 FROM recent_ids AS i WHERE i.study_pk = s.study_pk), 0))
             LIMIT 1"),
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
