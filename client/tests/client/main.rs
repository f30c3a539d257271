//! The integration tests of this crate in one program, linked once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "http")]
#[path = "../../../server/tests/common/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "http")]
#[path = "../common/server.rs"]
mod server;
#[cfg(feature = "http")]
#[path = "../../../server/tests/common/waiting.rs"]
mod waiting;

#[cfg(feature = "http")]
mod analyst;
mod file;
mod file_lock;
mod ledger;
mod ledger_crash;
#[cfg(feature = "http")]
mod ledger_upload;
mod moved;
mod outbox;
mod outbox_crash;
mod row_ledger;
#[cfg(feature = "http")]
mod study;
#[cfg(feature = "http")]
mod terms;
#[cfg(feature = "http")]
mod tls;
#[cfg(feature = "http")]
mod upload;
