//! Connections to the database, its schema, and the statements that every commit runs.

pub(super) mod connection;
pub(super) mod schema;
pub(super) mod statements;
mod tls;
