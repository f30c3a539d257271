//! The lock of a ledger: a file beside the ledger, with its name and `.lock`, that remains when the lock is released.
//!
//! SQLite has a lock of its own, but a POSIX one: a process loses it as soon as *any* descriptor of the database is
//! closed in it (a copy of the file is enough), without being told. This lock belongs to an open file that nobody else
//! opens. A forked child inherits that open file, so the lock also records its process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::Path,
    time::Duration,
};

/// Number of attempts at a lock that is held, and the pause after each. A program that was being started when a process
/// was killed has that process's open files until it executes.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// A lock that is held as long as the value lives.
#[derive(Debug)]
pub(crate) struct FileLock {
    // Never read or written. `None`: there is no lock file.
    file: Option<File>,
    process: u32,
}

impl Drop for FileLock {
    /// Closing would not do: a program that another thread is starting has a copy of the open file until it executes.
    fn drop(&mut self) {
        if let (Some(file), true) = (&self.file, self.is_ours()) {
            let _ = file.unlock();
        }
    }
}

/// Gives the file to the owner of `path`. Only root can; otherwise nothing changes.
#[cfg(unix)]
fn give_to_owner_of(path: &Path, file: &File) {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    if let Ok(metadata) = std::fs::metadata(path) {
        let _ = fchown(file, Some(metadata.uid()), Some(metadata.gid()));
    }
}

#[cfg(not(unix))]
fn give_to_owner_of(_: &Path, _: &File) {}

impl FileLock {
    /// Takes the lock at this path; `None` if it is held already. If the lock file is missing, nobody holds it, and
    /// with `create` it is created for the owner of `locked` only: a lock file that belongs to root (after one use of
    /// `sudo`) would shut that owner out from then on.
    pub(crate) fn acquire(path: &Path, locked: &Path, create: bool) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut create_options = options.clone();
        create_options.create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            create_options.mode(0o600);
            // A link may lead to any file, which root would open or create.
            options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        }
        // Only a file created by this call is given to the owner.
        let create_file = || -> io::Result<File> {
            let file = create_options.open(path)?;
            give_to_owner_of(locked, &file);
            Ok(file)
        };
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create.then(create_file)
            {
                // Another process created it in between.
                Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Some(options.open(path)?)
                }
                created => created.transpose()?,
            },
            opened => Some(opened?),
        };
        let process = std::process::id();
        let Some(open) = &file else {
            return Ok(Some(Self { file, process }));
        };
        for _ in 0..ATTEMPTS {
            match open.try_lock() {
                Ok(()) => return Ok(Some(Self { file, process })),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether there is a lock file, which other processes see.
    pub(crate) fn is_taken(&self) -> bool {
        self.file.is_some()
    }

    /// Whether this process took the lock: a forked child did not.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Makes the lock look as it does in a forked child.
    #[cfg(test)]
    pub(crate) fn as_in_a_fork(&mut self) {
        self.process = self.process.wrapping_add(1);
    }
}
