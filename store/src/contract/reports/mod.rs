//! Reports as they come in, and what a study keeps of them.

pub(crate) mod arrivals;
pub(crate) mod duplicates;
pub(crate) mod report;
pub(crate) mod submission;
pub(crate) mod sums;
