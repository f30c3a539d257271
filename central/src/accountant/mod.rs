//! How much noise a whole run needs, and what a given noise gives.
//!
//! Noise is counted in **multipliers** z = σ/Δ, σ the standard deviation of the noise on each coordinate and
//! Δ the L2 sensitivity of what it is added to (see [`Neighbours`](crate::Neighbours)).

pub mod full_batch;
