//! The document of an estimate, its warnings, and numbers as people read them.

pub(crate) mod document;
pub mod format;
pub(crate) mod sites;
pub(crate) mod warning;
