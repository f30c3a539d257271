//! Reports of rows, and their receipt.

pub(crate) mod receipt;
pub(crate) mod report;
mod report_check;
mod report_persons;
