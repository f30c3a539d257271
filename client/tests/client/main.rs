//! The integration tests of this crate in one program, linked once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "http")]
#[path = "../../../server/tests/common/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "sqlite")]
#[path = "../common/files.rs"]
mod files;
#[cfg(feature = "http")]
#[path = "../common/server.rs"]
mod server;

#[cfg(feature = "sqlite")]
mod admission;
#[cfg(feature = "http")]
mod analyst;
mod book;
mod exchange;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(feature = "sqlite")]
mod file_lock;
#[cfg(feature = "sqlite")]
mod layout_1;
#[cfg(feature = "sqlite")]
mod layout_2;
#[cfg(feature = "sqlite")]
mod ledger;
#[cfg(feature = "sqlite")]
mod ledger_crash;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod ledger_upload;
#[cfg(feature = "sqlite")]
mod moved;
#[cfg(feature = "sqlite")]
mod preparation;
#[cfg(feature = "sqlite")]
mod row_layout_1;
#[cfg(feature = "sqlite")]
mod row_layout_2;
#[cfg(feature = "sqlite")]
mod row_ledger;
#[cfg(feature = "sqlite")]
mod row_ledger_crash;
#[cfg(feature = "sqlite")]
mod site;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod site_upload;
#[cfg(feature = "http")]
mod study;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod table;
#[cfg(feature = "sqlite")]
mod terms;
#[cfg(feature = "http")]
mod tls;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod upload;
