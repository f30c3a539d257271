//! The data directory: the database in its files, the operator's token, and what is kept beside them.

pub(super) mod database_files;
pub(super) mod directory;
pub(super) mod notice;
pub(super) mod operator_token;
pub(super) mod reserve;
pub(super) mod schema;
