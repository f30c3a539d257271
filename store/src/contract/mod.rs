//! What every engine has in common.

pub(crate) mod archive;
pub(crate) mod arrivals;
pub(crate) mod credentials;
pub(crate) mod decide;
pub(crate) mod duplicates;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod job;
pub(crate) mod listener;
pub(crate) mod memory;
pub(crate) mod report;
pub(crate) mod study;
pub(crate) mod study_json;
pub(crate) mod submission;
pub(crate) mod sums;
pub(crate) mod token;
pub(crate) mod token_files;
pub(crate) mod transfer;
