//! The lock of a ledger or outbox: a file beside it, named with `.lock` at the end, that stays when it is released.
//!
//! SQLite has a lock of its own, but a POSIX one: a process loses it as soon as *any* descriptor of the database is
//! closed in it (a copy of the file is enough), without being told. This one belongs to an open file that nobody
//! else opens. A forked child has that file too, so the lock also knows whose it is.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::Path,
};

/// A lock that is held as long as the value lives.
#[derive(Debug)]
pub(crate) struct FileLock {
    // Never read or written: closing it gives up the lock.
    _file: File,
    process: u32,
}

impl FileLock {
    /// Takes the lock at this path, creating its file (for the owner only); `None` if it is held already.
    pub(crate) fn acquire(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self {
                _file: file,
                process: std::process::id(),
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether this process took the lock: a forked child did not.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// What a forked child has of it.
    #[cfg(test)]
    pub(crate) fn as_in_a_fork(&mut self) {
        self.process = self.process.wrapping_add(1);
    }
}
