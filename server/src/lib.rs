//! Eigenveil's aggregation server as a library.
//!
//! ```text
//! device ──HTTP──▶ decode, validate ──▶ queue ──▶ writer: ids + sums, or seeds, in one transaction ──▶ acknowledgement
//! analyst ──HTTP─▶ job ──▶ snapshot of the bucket sums ──▶ estimate ──▶ JSON, CSV, npy
//! ```
//!
//! * [`Server`]: listens, serves and shuts down gracefully. [`router`]: the same routes for an axum
//!   application of your own, around an [`AppState`].
//! * [`Store`]: one embedded database file with a single writer thread. No acknowledged report is ever lost,
//!   and uploads are idempotent: no report is counted twice.
//! * Web pages: the studies, one study live, a form with the planner beside it (`docs/run-a-server.md`).
//! * [`ServerConfig`]: the operator's settings. [`Environment`]: clock and randomness, injected for tests.
//!
//! # What is not here
//!
//! No replication: one process per data directory. Numeric payloads are added up and dropped; seeds are stored without
//! their identifiers. Either way no single report can be removed from an estimate afterwards.

mod app;
mod check;
mod config;
mod environment;
mod faults;
mod http;
mod jobs;
mod metrics;
mod net;
mod pages;
mod request_id;
mod routes;
#[cfg(test)]
mod scenarios;
mod sessions;
pub mod store;

pub use app::AppState;
pub use check::check;
pub use config::{Durability, Network, PublicUrl, ServerConfig, StoreUrl, Tuning};
pub use environment::{Clock, Entropy, Environment, SystemClock, SystemEntropy};
pub use http::EstimateList;
pub use net::{Certificates, Reload, Server};
pub use routes::{openapi, router};
pub use store::{Store, Study, StudyId};
