//! Incoming reports, and the part that is stored.

pub(crate) mod arrivals;
pub(crate) mod duplicates;
pub(crate) mod report;
pub(crate) mod submission;
pub(crate) mod sums;
