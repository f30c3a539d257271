//! Reports of rows, and their receipt.

pub(crate) mod receipt;
pub(crate) mod report;
mod report_check;
mod report_give_up;
mod report_persons;
mod report_questions;
