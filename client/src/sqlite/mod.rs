//! Files: a device's [`Ledger`] and the [`RowLedger`] of a file of rows, each an SQLite database.

mod file;
mod file_lock;
mod ledger;
mod rows;
mod tables;

pub use ledger::{Ledger, Participation};
pub use rows::{
    PendingReport, Prepared, RefusedRow, RowCounts, RowFile, RowLedger, RowReceipt, RowStudy,
};
