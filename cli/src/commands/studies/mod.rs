//! Studies and tokens.

pub(crate) mod study;
pub(crate) mod study_name;
pub(crate) mod token;
