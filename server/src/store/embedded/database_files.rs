//! Notices that somebody removed, moved, replaced or overwrote the database or its write-ahead log while the server runs.
//!
//! What is written to such files is lost: nobody opens a removed file again, and a copied file does not fit the log. The
//! main file changes only in checkpoints, which only the writer makes, and the log only in transactions, so size and time
//! of the last change tell whether anything but SQLite has written to them in between; of the log under load the size
//! alone. What was written during transactions and checkpoints is read back.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use rusqlite::{Connection, hooks::Wal, wal::CheckpointMode};
#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::{directory::DataDirectory, log::Log, reserve::disk_bytes, schema};
use crate::store::failure::{FILES_REPLACED, Failure};

pub(super) struct DatabaseFiles {
    main: PathBuf,
    wal: PathBuf,
    left: Arc<Mutex<Left>>,
}

struct Left {
    main: FileState,
    /// Of the log only the file itself is known while a transaction writes to it, or after one has failed.
    wal: FileState,
    wal_is_known: bool,
    log: Log,
    /// The log lacks something that was committed, or the main file something that was copied: for good, whatever they
    /// contain later.
    is_lost: bool,
    /// Changes with every transaction of another connection.
    data_version: i64,
}

/// Which file it is, and its content as far as `stat` tells.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    id: (u64, u64),
    bytes: u64,
    /// Of the log only while nothing is written.
    modified: Option<SystemTime>,
}

impl FileState {
    /// Without the time of the last change if that is not needed: once somebody has asked for it Linux (since 6.13) gives
    /// the next change another, which a commit would have to sync, too.
    fn of_log(path: &Path, with_time: bool) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if !with_time
            && let Ok(found) = statx(
                CWD,
                path,
                AtFlags::empty(),
                StatxFlags::INO | StatxFlags::SIZE,
            )
        {
            return Ok(Self {
                id: (
                    makedev(found.stx_dev_major, found.stx_dev_minor),
                    found.stx_ino,
                ),
                bytes: found.stx_size,
                modified: None,
            });
        }
        let found = Self::from(fs::metadata(path)?);
        Ok(Self {
            modified: found.modified.filter(|_| with_time),
            ..found
        })
    }
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
        let left = Arc::new(Mutex::new(Left {
            main: fs::metadata(&main).map_err(Failure::file)?.into(),
            wal: FileState::of_log(&wal, false).map_err(Failure::file)?,
            wal_is_known: false,
            log: Log::open(&wal, &main).map_err(Failure::file)?,
            is_lost: false,
            data_version: data_version(connection)?,
        }));
        let files = Self { main, wal, left };
        let (main, left) = (files.main.clone(), Arc::clone(&files.left));
        let log_pages = schema::log_pages(disk_bytes(main.parent().unwrap_or(Path::new(""))));
        connection.wal_hook(Some(move |wal: &mut Wal, pages| {
            let left = &mut *lock(&left);
            let frames = u64::try_from(pages).unwrap_or_default();
            if !left.log.extends_to(frames) {
                left.is_lost = true;
            } else if frames >= log_pages {
                // One that is not possible now is made after a later commit; files that are no longer ours are left alone.
                let how = CheckpointMode::PASSIVE;
                let _ = checkpoint(&main, left, || wal.checkpoint_v2(how));
            }
            Ok(())
        }))?;
        Ok(files)
    }

    /// Copies the log into the main file, as far as no reader needs it; the next write restarts the log. Whether all of it
    /// is there.
    pub(super) fn checkpoint(&self, connection: &Connection, how: &str) -> Result<bool, Failure> {
        self.checkpoint_with(|| schema::checkpoint(connection, how))
    }

    fn checkpoint_with(
        &self,
        how: impl FnOnce() -> Result<(i32, i32), Failure>,
    ) -> Result<bool, Failure> {
        checkpoint(&self.main, &mut lock(&self.left), how)
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
        left.wal.modified = None;
        Ok(())
    }

    /// To be called when nothing is written for a while: a change of the log is then noticed before it is written to.
    pub(super) fn rest(&self) {
        let mut left = lock(&self.left);
        // A log that is another already is noticed when it is written to.
        if left.wal_is_known
            && let Ok(wal) = FileState::of_log(&self.wal, true)
            && (wal.id, wal.bytes) == (left.wal.id, left.wal.bytes)
        {
            left.wal = wal;
        }
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
        let main = fs::metadata(&self.main).map(FileState::from);
        match (
            main,
            FileState::of_log(&self.wal, left.wal.modified.is_some()),
        ) {
            (Ok(main), Ok(wal)) if !left.is_lost && main == left.main && wal.id == left.wal.id => {
                Ok(wal)
            }
            _ => Err(Failure::LeaseLost(FILES_REPLACED)),
        }
    }
}

/// Makes a checkpoint, which tells the frames in the log and in the main file.
fn checkpoint<E: Into<Failure>>(
    main: &PathBuf,
    left: &mut Left,
    checkpoint: impl FnOnce() -> Result<(i32, i32), E>,
) -> Result<bool, Failure> {
    let state = || fs::metadata(main).map(FileState::from);
    // A log with holes would be copied over the main file.
    left.is_lost |= !left.log.is_there();
    if left.is_lost || !state().is_ok_and(|found| found == left.main) {
        return Err(Failure::LeaseLost(FILES_REPLACED));
    }
    let outcome: Result<_, Failure> = checkpoint().map_err(Into::into);
    let found = state().map_err(|_| Failure::LeaseLost(FILES_REPLACED))?;
    if found != left.main {
        let counted = outcome.as_ref().ok().and_then(|&(frames, copied)| {
            Some((u64::try_from(frames).ok()?, u64::try_from(copied).ok()?))
        });
        // One that failed may have copied some pages; a later one copies them again.
        let (frames, copied) = counted.unwrap_or((left.log.frames(), 0));
        // None are left in a log that was emptied. Another connection may have added some.
        let is_same = match frames {
            0 => left.log.is_copied(left.log.frames()),
            _ => left.log.extends_to(frames) && left.log.is_copied(copied),
        };
        left.is_lost |= !is_same || found.id != left.main.id;
        left.main = found;
    }
    match left.is_lost {
        true => Err(Failure::LeaseLost(FILES_REPLACED)),
        false => outcome.map(schema::is_complete),
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn lock(left: &Mutex<Left>) -> MutexGuard<'_, Left> {
    left.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::{super::log::PAGE_BYTES, DataDirectory, Path, fs};
    use crate::store::{
        embedded::{
            lease::{WalFile, WriterLease},
            schema,
        },
        failure::Failure,
    };

    /// A store with a table of pages.
    struct Fixture {
        lease: WriterLease,
        connection: Connection,
        data: DataDirectory,
        copy: std::path::PathBuf,
        _directory: TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let data = DataDirectory::open(directory.path()).unwrap();
            let mut wal = WalFile::in_directory(&data).unwrap();
            let mut connection = schema::open_for_writing(&data.database(), None).unwrap();
            let lease = WriterLease::acquire(&mut connection, &data, &mut wal).unwrap();
            let copy = directory.path().join(".eigenveil-copy");
            let mut new = Self {
                lease,
                connection,
                data,
                copy,
                _directory: directory,
            };
            new.commit(1, || ()).unwrap();
            new
        }

        /// Commits pages while this happens.
        fn commit(&mut self, pages: u32, event: impl FnOnce()) -> Result<(), Failure> {
            let transaction = self.lease.transaction(&mut self.connection)?;
            for _ in 0..pages {
                transaction.execute(
                    "INSERT INTO settings VALUES (hex(randomblob(8)), randomblob(7000))",
                    [],
                )?;
            }
            event();
            self.lease.commit(transaction)
        }
    }

    fn truncate(path: &Path) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
    }

    fn assert_lost<T: std::fmt::Debug>(outcome: &Result<T, Failure>, what: &str) {
        assert!(
            matches!(outcome, Err(Failure::LeaseLost(_))),
            "{what}: {outcome:?}"
        );
    }

    /// SQLite writes to the log in a commit, so that its state tells nothing.
    #[test]
    fn a_log_overwritten_during_a_commit_is_noticed() {
        for how in ["copied over", "truncated"] {
            for pages in [1, 40] {
                let mut store = Fixture::new();
                let (wal, copy) = (store.data.wal_path(), store.copy.clone());
                fs::copy(&wal, &copy).unwrap();
                store.commit(30, || ()).unwrap();
                let event = || match how {
                    "truncated" => truncate(&wal),
                    _ => drop(fs::copy(&copy, &wal).unwrap()),
                };
                assert_lost(&store.commit(pages, event), how);
                // Nor is such a log copied over the main file, or written to.
                let before = fs::read(store.data.database()).unwrap();
                assert_lost(&store.lease.checkpoint(&store.connection), how);
                assert_lost(&store.commit(1, || ()), how);
                assert_lost(
                    &store.lease.checkpoint_and_release(&mut store.connection),
                    how,
                );
                assert_eq!(fs::read(store.data.database()).unwrap(), before);
            }
        }
    }

    /// While nothing is written any change of the log is noticed, otherwise one of its pages once that is copied.
    #[test]
    fn a_page_overwritten_in_the_log_is_noticed() {
        for rests in [true, false] {
            let mut store = Fixture::new();
            let wal = store.data.wal_path();
            let before = fs::metadata(&wal).unwrap().len();
            store.commit(30, || ()).unwrap();
            if rests {
                store.lease.rest();
            }
            let log = fs::File::options().write(true).open(&wal).unwrap();
            let page = before + 10 * (24 + PAGE_BYTES) + 24;
            log.write_all_at(&[7; 100], page + 4_000).unwrap();
            if !rests {
                assert_lost(&store.lease.checkpoint(&store.connection), "copied");
            }
            assert_lost(&store.commit(1, || ()), "next");
        }
    }

    /// A checkpoint writes to the main file, so that its state tells nothing.
    #[test]
    fn a_main_file_overwritten_during_a_checkpoint_is_noticed() {
        for how in ["copied over before", "copied over", "truncated", "emptied"] {
            for full in ["PASSIVE", "TRUNCATE"] {
                let mut store = Fixture::new();
                let (main, copy) = (store.data.database(), store.copy.clone());
                let old = store.copy.with_extension("old");
                fs::copy(&main, &old).unwrap();
                store.commit(300, || ()).unwrap();
                store.lease.checkpoint(&store.connection).unwrap();
                store.commit(10, || ()).unwrap();
                fs::copy(&main, &copy).unwrap();
                let files = &store.lease.files;
                let outcome = files.checkpoint_with(|| {
                    // The pages of this checkpoint are written after the old ones.
                    if how == "copied over before" {
                        fs::copy(&old, &main).unwrap();
                    }
                    let frames = schema::checkpoint(&store.connection, full)?;
                    match how {
                        "copied over" => drop(fs::copy(&copy, &main).unwrap()),
                        "truncated" => {
                            let file = fs::File::options().write(true).open(&main).unwrap();
                            file.set_len(fs::metadata(&copy).unwrap().len() / 2)
                                .unwrap();
                        }
                        "emptied" => truncate(&main),
                        _ => {}
                    }
                    Ok(frames)
                });
                assert_lost(&outcome, how);
                assert_lost(&store.commit(1, || ()), how);
            }
        }
    }

    /// The log starts over after a checkpoint, and shrinks or grows with it: that is not an overwritten one.
    #[test]
    fn checkpoints_of_our_own_go_on() {
        let mut store = Fixture::new();
        for pages in [40, 3, 5_000, 9_000, 2, 1] {
            store.commit(pages, || ()).unwrap();
            store.commit(1, || ()).unwrap();
            store.lease.checkpoint(&store.connection).unwrap();
        }
        store
            .lease
            .checkpoint_and_release(&mut store.connection)
            .unwrap();
    }

    /// Nor is a log that another connection starts over, as a command that mends the database would.
    #[test]
    fn a_log_that_another_connection_starts_over_goes_on() {
        let mut store = Fixture::new();
        let outside = Connection::open(store.data.database()).unwrap();
        for _ in 0..2 {
            store.commit(3, || ()).unwrap();
            store.lease.checkpoint(&store.connection).unwrap();
            outside
                .execute(
                    "INSERT INTO settings VALUES (hex(randomblob(8)), zeroblob(9))",
                    [],
                )
                .unwrap();
            store.commit(1, || ()).unwrap();
        }
    }
}
