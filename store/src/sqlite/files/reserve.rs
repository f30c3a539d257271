//! Reserved disk space, so that studies can be deleted on a full disk: a deletion has to be written, too.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use rustix::fs::statvfs;

use super::schema::PAGE_BYTES;
use crate::contract::failure::Failure;

pub(crate) const FILE_NAME: &str = "eigenveil.reserve";
/// Its size on a disk of 64 MiB or more: the pages that a few deletions change.
const MAX_BYTES: u64 = 8 << 20;
/// Its part of a smaller disk. More than the write-ahead log takes there, so that the log can be moved into the database.
const DISK_FRACTION: u64 = 8;

/// A placeholder file, deleted when a deletion finds no space.
#[derive(Clone, Debug)]
pub(crate) struct ReserveFile {
    directory: PathBuf,
    bytes: u64,
}

/// The size of the disk of this directory; if it cannot be determined, it is taken for large.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    statvfs(directory).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize))
}

impl ReserveFile {
    /// On the disk that the database fills.
    pub(crate) fn beside(database: &Path) -> Self {
        let directory = database.parent().unwrap_or(Path::new("")).to_owned();
        let bytes = MAX_BYTES.min(disk_bytes(&directory) / DISK_FRACTION);
        Self { directory, bytes }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// Creates the file if it is missing and there is space for it and more.
    pub(crate) fn ensure(&self) {
        let path = self.path();
        if self.is_there() || !self.has_room() {
            return;
        }
        if let Err(error) = create(&path, self.bytes) {
            tracing::warn!(%error, "reserving disk space for deletions failed");
            // A partial file would only waste space.
            let _ = fs::remove_file(&path);
        }
    }

    /// Refuses reports that would be written into the space that was released for deletions. Pages that are free in the
    /// database count: the file does not grow for them.
    pub(crate) fn check_room(&self, connection: &Connection) -> Result<(), Failure> {
        if self.is_there() {
            return Ok(());
        }
        let free_pages: u64 =
            connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        match self.free().saturating_add(free_pages * PAGE_BYTES) < self.bytes {
            true => Err(Failure::Full),
            false => Ok(()),
        }
    }

    /// Whether what only tidies up may take space: not what was released for a deletion.
    pub(crate) fn allows_growth(&self) -> bool {
        self.is_there() || self.has_room()
    }

    /// Whether there is room for more than a deletion may need.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_for(0)
    }

    /// Whether there is room for these bytes, and for more than a deletion may need.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.free() >= (4 * self.bytes).saturating_add(bytes)
    }

    fn is_there(&self) -> bool {
        fs::symlink_metadata(self.path()).is_ok_and(|file| file.len() == self.bytes)
    }

    /// Deletes the file to free its space, if the disk is full; whether there was one.
    pub(crate) fn release(&self) -> bool {
        // A store that has reached its own limit gains nothing by it.
        if !self.is_needed() {
            return false;
        }
        let removed = fs::remove_file(self.path());
        match &removed {
            Ok(()) => {
                tracing::warn!("the disk is full; the space reserved for deletions is released");
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "releasing the disk space reserved for deletions failed");
            }
        }
        removed.is_ok()
    }

    /// Whether less space is free than a deletion may need.
    pub(crate) fn is_needed(&self) -> bool {
        self.free() < self.bytes
    }

    fn free(&self) -> u64 {
        // If it cannot be determined, assume that there is enough.
        statvfs(&self.directory)
            .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

fn create(path: &Path, bytes: u64) -> io::Result<()> {
    // Created anew: a link would lead to another file.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    // Not every file system can allocate blocks without writing them.
    io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs::metadata;

    use tokio::runtime::Runtime;

    use super::FILE_NAME;
    use crate::{
        Store,
        config::StoreConfig,
        environment::Environment,
        testing::fixtures::{create, numbered, of_seeds},
    };

    /// A store that has all that it may have is no full disk.
    #[test]
    fn a_full_store_releases_no_space_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            max_store_bytes: Some(1 << 20),
            ..StoreConfig::new(folder.path().join("data"))
        };
        let store = Store::open(&config, Environment::system()).unwrap();
        let runtime = Runtime::new().unwrap();
        let study = runtime.block_on(create(&store, &of_seeds()));
        let modified = || {
            let file = metadata(config.data_dir.join(FILE_NAME)).unwrap();
            file.modified().unwrap()
        };
        let before = modified();
        let is_taken = |first: u32| {
            let reports = (first..first + 400).map(|number| numbered(&study, number));
            runtime
                .block_on(store.submit(&study, reports.collect()))
                .is_ok()
        };
        let full = (0..100_000).step_by(400).any(|first| !is_taken(first));
        assert!(full, "the limit is not kept");
        store.sweep(&|| false).unwrap();
        assert_eq!(modified(), before);
    }
}
