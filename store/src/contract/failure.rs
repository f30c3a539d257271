//! Failures of the store.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::Path,
};

use eigenveil_shared::{Error, ErrorCode, error};

/// A failed read or transaction. Nothing was counted, unless it is in doubt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no room for this.
    Full,
    Damaged(String),
    /// The database or its log is not the file that the writer left.
    FilesReplaced,
    /// The engine failed for another reason.
    Unavailable(String),
    /// No room, with the database's message.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "the embedded engine has no database to say it")
    )]
    DatabaseFull(String),
    /// A commit was not confirmed: it may have been carried out.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "the embedded engine always knows")
    )]
    InDoubt(String),
    /// The request is not possible in the current state.
    Rejected(Error),
}

impl Failure {
    pub(crate) fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }

    /// The message about the damage, if this is damage.
    pub(crate) fn damage(&self) -> Option<String> {
        match self {
            Failure::Damaged(what) => Some(format!(
                "the store is damaged ({what}); restore it from a backup"
            )),
            _ => None,
        }
    }

    /// With the damaged file.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Damaged(what) => Self::Damaged(format!("{}: {what}", path.display())),
            Self::Full => Self::Rejected(error!(
                StoreFull,
                "the disk of {} is full; free space there by moving other files away, never those beside it, and start again: then studies can be deleted",
                path.display()
            )),
            other => other,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Failure::Full | Failure::DatabaseFull(_))
    }

    /// A temporary file in the data directory could not be written or read.
    pub(crate) fn file(why: impl Into<io::Error>) -> Self {
        let why = why.into();
        if is_disk_full(&why) {
            return Self::Full;
        }
        Self::Rejected(unavailable(format!(
            "a temporary file in the data directory cannot be used ({why}); nothing was changed: check the disk and try again"
        )))
    }

    pub(crate) fn into_error(self) -> Error {
        if let Some(damage) = self.damage() {
            return unavailable(damage);
        }
        match self {
            Failure::Full => error!(
                StoreFull,
                "the store is full and nothing was changed; the operator has to free disk space, delete studies, lower max_fold_bytes, or raise max_store_bytes: retry after that"
            ),
            Failure::FilesReplaced => unavailable(FILES_REPLACED),
            Failure::Damaged(what) => unavailable(what),
            Failure::Unavailable(why) | Failure::DatabaseFull(why) => unavailable(format!(
                "the store failed ({why}); nothing was changed: retry, and tell the operator if it keeps failing"
            )),
            Failure::InDoubt(why) => unavailable(format!(
                "the store did not confirm the write ({why}), which may have been done or not: send the same again; no report is counted twice"
            )),
            Failure::Rejected(error) => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Full => f.write_str("the store is full"),
            Failure::Damaged(what)
            | Failure::Unavailable(what)
            | Failure::DatabaseFull(what)
            | Failure::InDoubt(what) => what.fmt(f),
            Failure::FilesReplaced => f.write_str(FILES_REPLACED),
            Failure::Rejected(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Rejected(error)
    }
}

pub(crate) const FILES_REPLACED: &str = "the database or its write-ahead log was removed, moved, replaced or written by another program, or cannot be reached, while the server was running, so it has stopped \
     writing and nothing more is acknowledged; put the files back, or restore a backup, and start it again";

pub(crate) fn queue_is_full() -> Error {
    error!(
        TooManyRequests,
        "the write queue is full; retry after a second"
    )
}

pub(crate) fn stopping() -> Error {
    error!(
        ShuttingDown,
        "the server is stopping and did not write this; retry when it is back"
    )
}

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// The error for a temporary file in the data directory that could not be written or read.
pub fn file_failed(why: io::Error) -> Error {
    Failure::file(why).into_error()
}

/// The error of a store that cannot be used now.
pub fn unavailable(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::StoreUnavailable, detail)
}
