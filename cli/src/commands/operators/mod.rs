//! Servers, their store and its backup.

pub(crate) mod backup;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod work;
