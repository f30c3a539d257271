//! Eigenveil's aggregation server as a library.
//!
//! ```text
//! device ──HTTP──▶ decode, validate ──▶ queue ──▶ writer: ids + sums, or seeds, in one transaction ──▶ acknowledgement
//! analyst ──HTTP─▶ job ──▶ snapshot of the bucket sums ──▶ estimate ──▶ JSON, CSV, npy
//! ```
//!
//! * [`Server`]: listens, serves and shuts down gracefully. [`router`]: the same routes for an axum
//!   application of your own, around an [`AppState`].
//! * [`eigenveil_store::Store`]: the storage, in its own crate. No acknowledged report is ever lost, and uploads are
//!   idempotent: no report is counted twice.
//! * Web pages: the studies, one study live, a form with the planner beside it (`docs/run-a-server.md`).
//! * [`ServerConfig`]: the operator's settings. [`Environment`]: clock and randomness, injected for tests.
//!
//! # What is not here
//!
//! No replication: servers that share a PostgreSQL database leave replication to the database. Numeric payloads are
//! added up and dropped; seeds are stored without their identifiers. No function removes a single report from either.

mod app;
mod check;
mod config;
mod http;
mod jobs;
mod metrics;
mod net;
mod pages;
mod priority;
mod routes;
#[cfg(test)]
mod scenarios;
mod sessions;

pub use app::AppState;
pub use check::check;
pub use config::{Network, PublicUrl, ServerConfig, Tuning};
pub use eigenveil_store::{
    Clock, Durability, Entropy, Environment, StoreUrl, SystemClock, SystemEntropy,
};
pub use http::EstimateList;
pub use net::{Certificates, Reload, Server};
pub use routes::{openapi, router};
