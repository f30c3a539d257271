//! The tokens of the operator and of analysts: their hashes, what they allow, and the operator's file.

pub(crate) mod credentials;
pub(crate) mod participant_token;
pub(crate) mod token;
pub(crate) mod token_files;
