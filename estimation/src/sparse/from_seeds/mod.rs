//! Row-sparse components of `double-cap` studies at p in the tens of thousands, from seeds that are read twice.
//!
//! 1. One pass adds the reports up in a single triangle of f32 (2p² bytes; 0.8 GB at p = 20,000).
//! 2. The Fantope problem is solved on a few hundred candidate rows (in f64, by
//!    [`fantope::solve`](crate::fantope::solve)).
//! 3. Its dual point is extended to all p rows, and a Cholesky factorisation in f64 (4p² bytes) proves that no X on any
//!    rows has an objective beyond the gap. Rows that violate the proof join the candidates.
//! 4. A second pass adds up the selected rows alone, in f64 and bucket by bucket: refit, verdict and error bars come
//!    from these sums.
//!
//! The problem that is solved and proved uses S̃ as summed (in f32) by the first pass.

mod candidates;
mod certificate;
mod components;
mod dual;
mod matrix;
mod solve;
mod source;
#[cfg(test)]
mod tests;

pub use components::{
    MAX_COMPONENTS, MIN_STREAMED_DIMENSION, bytes_needed, can_stream, sparse_components,
};
pub use source::SeedSource;
