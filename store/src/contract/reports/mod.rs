//! Incoming reports, and the part that is stored.

pub(crate) mod arrivals;
pub(crate) mod checksum;
pub(crate) mod report;
pub(crate) mod submission;
pub(crate) mod sums;
