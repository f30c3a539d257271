//! Disk kept back, so that a full one can be emptied by deleting: a deletion has to be written down too.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
};

use eigenveil_shared::{Error, ErrorCode};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// The file's name in the data directory.
const FILE_NAME: &str = "eigenveil.reserve";
/// Its size: the changed pages of some transactions that delete.
const FILE_BYTES: u64 = 8 << 20;

/// A file of nothing, given up when a deletion finds no room.
#[derive(Clone, Debug)]
pub(super) struct ReserveFile {
    directory: PathBuf,
}

impl ReserveFile {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// Makes the file where it is missing and there is room for it and more.
    pub(super) fn ensure(&self) {
        let path = self.path();
        if fs::metadata(&path).is_ok_and(|file| file.len() == FILE_BYTES)
            || self.free() < 4 * FILE_BYTES
        {
            return;
        }
        if let Err(error) = make(&path) {
            tracing::warn!(%error, "no disk space could be kept back for deletions");
            // What there is of it would only be in the way.
            let _ = fs::remove_file(&path);
        }
    }

    /// Gives the disk free.
    pub(super) fn release(&self) {
        match fs::remove_file(self.path()) {
            Ok(()) => {
                tracing::warn!("the disk is full; what was kept back for deletions is released");
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "the disk space kept back for deletions cannot be released");
            }
        }
    }

    /// The error of a start for which neither the disk nor what was kept back has room.
    pub(super) fn no_room_to_start(&self) -> Error {
        Error::new(
            ErrorCode::StoreFull,
            format!(
                "the disk of {} is full ({} bytes are free) and nothing is kept back on it any more: the server has to write a few pages before it can serve, deletions included. \
                 Free {} bytes there, by moving away files that are not the server's (none of the eigenveil.db files: they hold what was acknowledged), start again, then close and delete studies",
                self.directory.display(),
                self.free(),
                5 * FILE_BYTES
            ),
        )
    }

    /// Whether less is free than a deletion may need.
    pub(super) fn is_needed(&self) -> bool {
        self.free() < FILE_BYTES
    }

    fn free(&self) -> u64 {
        // Where nobody can tell there is enough.
        statvfs(&self.directory)
            .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

fn make(path: &std::path::Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file: File = options.open(path)?;
    if fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES).is_ok() {
        return Ok(());
    }
    // Not every file system sets blocks aside without their being written.
    let zeros = vec![0; 1 << 16];
    for _ in 0..FILE_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}
