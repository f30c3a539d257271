//! From noisy sums of reports to principal subspaces with error bars and verdicts.
//!
//! ```text
//! payloads ─▶ Accumulator ─▶ NoisyMoment ─┬▶ pca ─────────────┬▶ floor::assess ─▶ components with a verdict
//!            (bucket sums)   (S̃, n, noise) └▶ fantope::solve ──┘
//! ```
//!
//! # What is not here
//!
//! TLS, storage, HTTP: the server has them. Only [`models`] and [`simulate`] touch raw rows, and those are synthetic.

pub mod accumulate;
pub mod agreement;
mod cancel;
pub mod centring;
pub mod components;
pub mod fantope;
pub mod feasibility;
pub mod floor;
pub mod format;
pub mod jackknife;
pub mod linalg;
pub mod metrics;
mod missing;
pub mod models;
pub mod moment;
pub mod npy;
pub mod pca;
mod pipeline;
pub mod plan;
pub mod search;
mod seed_sums;
pub mod simulate;
pub mod sparse_from_seeds;
pub mod statistics;
mod warning;

pub use cancel::Cancel;
pub use pipeline::{Request, Source, estimate, to_json};
pub use seed_sums::sums_of_seeds;
pub use warning::{Outlook, Warning};
