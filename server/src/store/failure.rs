//! Why the store could not do something.

use std::fmt;

use eigenveil_shared::{Error, ErrorCode};

/// A failed read or transaction. Whatever it is, nothing was counted.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite refused.
    Sqlite(rusqlite::Error),
    /// Stored bytes are not what was written: how so.
    Damaged(String),
    /// Another server has taken the database over: this one may not write any more.
    LeaseLost,
    /// The request cannot be done in the state the store is in.
    Refused(Error),
}

impl Failure {
    /// Stored bytes that are not what was written.
    pub(super) fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string())
    }

    /// What is to be said of the damage, if it is that.
    pub(super) fn damage(&self) -> Option<String> {
        let what: &dyn fmt::Display = match self {
            Failure::Damaged(what) => what,
            Failure::Sqlite(error)
                if matches!(
                    error.sqlite_error_code(),
                    Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
                ) =>
            {
                error
            }
            _ => return None,
        };
        Some(format!(
            "the store is damaged ({what}); restore it from a backup"
        ))
    }

    /// Whether there was no room for it.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Failure::Sqlite(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }

    /// A file beside the database that cannot be written or read.
    pub(super) fn file(why: impl fmt::Display) -> Self {
        Self::Refused(unavailable(format!(
            "a temporary file in the data directory cannot be used ({why}); nothing was changed: check the disk and try again"
        )))
    }

    pub(super) fn into_error(self) -> Error {
        if let Some(damage) = self.damage() {
            return unavailable(damage);
        }
        if self.is_full() {
            return Error::new(
                ErrorCode::StoreFull,
                "the store has no room for this and nothing was changed; the operator has to free disk space, delete studies, or raise max_store_bytes: send it again after that",
            );
        }
        match self {
            Failure::LeaseLost => unavailable(LEASE_LOST),
            Failure::Damaged(what) => unavailable(what),
            Failure::Sqlite(error) => unavailable(format!(
                "the store could not do this ({error}); nothing was changed: try again, and tell the operator if it keeps failing"
            )),
            Failure::Refused(error) => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Sqlite(error) => error.fmt(f),
            Failure::Damaged(what) => what.fmt(f),
            Failure::LeaseLost => LEASE_LOST.fmt(f),
            Failure::Refused(error) => error.fmt(f),
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sqlite(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

/// What is said of [`Failure::LeaseLost`].
const LEASE_LOST: &str = "another server has opened this data directory meanwhile and this one writes nothing any more; stop one of the two: \
     the lock file in the directory must not be removed";

pub(crate) fn unavailable(detail: impl Into<String>) -> Error {
    Error::new(ErrorCode::StoreUnavailable, detail)
}
