//! Eigenveil's aggregation server as a library
mod config;
mod environment;
mod memory;
pub mod store;
pub use config::ServerConfig;
pub use environment::{Clock, Entropy, Environment, SystemClock, SystemEntropy};
pub use store::{Store, Study, StudyId};
