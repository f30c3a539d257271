//! Estimates, their moment, scores.

pub(crate) mod estimate;
pub(crate) mod moment;
pub(crate) mod project;
