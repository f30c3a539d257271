//! The ledger of a file of rows: which studies each participant reported to, what was charged, and which reports are
//! pending.
//!
//! Row `i` of every file that is used with a ledger is participant `i`: the ledger stores nothing else about a
//! participant. It stores salted digests of each whole file, to detect a different file, whose rows may be other
//! people, or the same people in another order. Whoever has the ledger can compare a digest with a guess at the whole
//! file, which for one row is a guess at that row: keep the ledger as private as the file.
//!
//! **A row has both charge and report, or neither**: they are one write, in chunks. Wherever a crash interrupts this,
//! the bytes that were (or may have been) sent are the bytes that will be sent again, and no second report of a row is
//! drawn for a study. A report is then acknowledged (its bytes are dropped, the space is used again) or refused (the
//! bytes stay, so that a server's mistake can be corrected with [`RowLedger::requeue_refused`]), or given up (its bytes
//! are dropped, its charge stays: [`RowLedger::give_up`]).

mod admission;
mod ledger;
mod persons;
mod prepare;
mod queue;
mod receipt;
mod schema;
mod site;
mod tables;

pub use admission::{AdmittedRows, UploadRequest};
pub use ledger::{RowFile, RowLedger};
pub use persons::SitePersons;
pub use prepare::Prepared;
pub use queue::{PendingReport, RefusedRow, RowCounts};
pub use receipt::{RowReceipt, RowStudy, SiteRecord, SiteReportRecord};
pub use site::{AdmittedTable, SiteTable, SiteUploadRequest, TableCounts};
