//! Files: a device's [`Ledger`] and the [`RowLedger`] of a file of rows, each an SQLite database.

/// Implements opening for both kinds of ledger.
macro_rules! ledger_file {
    ($ledger:ident, $schema:expr) => {
        impl std::fmt::Debug for $ledger {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($ledger), "({:?})"), self.store)
            }
        }

        impl $ledger {
            /// Opens the ledger, creating the file (readable by its owner only, with the default
            /// [`Limits`](crate::Limits)) if there is none. A lost ledger looks like one that never existed: see
            /// [`open_existing`](Self::open_existing).
            ///
            /// # Errors
            /// [`Error::is_locked`](crate::Error::is_locked) when another process (or another value) has it open;
            /// otherwise the file could not be created, read or written, is empty or damaged, has two names, or is not
            /// such a ledger; or the log beside it belongs to another file.
            pub fn open(path: impl AsRef<std::path::Path>) -> crate::Result<Self> {
                Self::checked($schema.open_or_create(path.as_ref())?)
            }

            /// Opens an existing ledger, and never creates one by mistake.
            pub fn open_existing(path: impl AsRef<std::path::Path>) -> crate::Result<Self> {
                Self::checked($schema.open(path.as_ref())?)
            }

            fn checked(store: crate::sqlite::file::LockedFile) -> crate::Result<Self> {
                let clock = Box::new(eigenveil_shared::clock::SystemClock);
                let ledger = Self { store, clock };
                // A ledger whose charges cannot be added up must not be used.
                ledger.receipt()?;
                Ok(ledger)
            }

            /// Replaces the clock.
            #[must_use]
            pub fn with_clock(mut self, clock: impl crate::Clock + 'static) -> Self {
                self.clock = Box::new(clock);
                self
            }

            /// The path of the file.
            pub fn path(&self) -> &std::path::Path {
                self.store.path()
            }
        }
    };
}

mod file;
mod file_lock;
mod layout_1;
mod ledger;
mod records;
mod rows;

pub use ledger::{Ledger, Participation};
pub use rows::{
    AdmittedRows, AdmittedTable, PendingReport, Prepared, RefusedRow, RowCounts, RowFile,
    RowLedger, RowReceipt, RowStudy, SitePersons, SiteRecord, SiteReportRecord, SiteTable,
    SiteUploadRequest, TableCounts, UploadRequest,
};
