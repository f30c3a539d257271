//! What every engine has in common.

pub(crate) mod archive;
pub(crate) mod decide;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod job;
pub(crate) mod listener;
pub(crate) mod memory;
mod reports;
pub(crate) mod study;
pub(crate) mod study_json;
mod tokens;
pub(crate) mod transfer;

pub(crate) use self::{
    reports::{arrivals, checksum, report, submission, sums},
    tokens::{credentials, participant_token, token, token_files},
};
