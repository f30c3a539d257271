//! Eigenveil's aggregation server as a library.
//!
//! ```text
//! device ──HTTP──▶ decode, validate ──▶ queue ──▶ writer: ids + sums, or seeds, in one transaction ──▶ acknowledgement
//! analyst ──HTTP─▶ job ──▶ bucket sums of one moment ──▶ estimate ──▶ JSON, CSV, npy
//! ```
//!
//! * [`Server`]: listens and serves until told to stop. [`router`]: the same routes for an axum
//!   application of your own, around an [`AppState`].
//! * [`Store`]: one embedded database file, one thread that writes. Nothing acknowledged is ever lost,
//!   nothing is counted twice.
//! * Pages for people: studies, one study live, a form with the planner beside it (`docs/run-a-server.md`).
//! * [`ServerConfig`]: what an operator may set. [`Environment`]: clock and randomness, passed in.
//!
//! # What is not here
//!
//! One process per data
//! directory: there is no replication. Payloads of numbers are added up and dropped; seeds are kept
//! without their identifiers: either way an estimate cannot leave single reports out afterwards.

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
mod status;
pub mod store;

pub use app::AppState;
pub use check::check;
pub use config::{Network, ServerConfig, Tuning};
pub use environment::{Clock, Entropy, Environment, SystemClock, SystemEntropy};
pub use http::EstimateList;
pub use net::{Certificates, Reload, Server};
pub use routes::{openapi, router};
pub use status::status_of;
pub use store::{Store, Study, StudyId};
