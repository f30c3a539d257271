//! How much noise a whole run needs, and what a given noise gives.
//!
//! Noise is counted in **multipliers** z = σ/Δ, σ the standard deviation of the noise on each coordinate and
//! Δ the L2 sensitivity of what it is added to (see [`Neighbours`](crate::Neighbours)).
//!
//! * [`full_batch`]: T releases of all rows, exactly.
//! * [`RunAccountant`]: any mixture of full-batch and Poisson-subsampled releases, by Rényi divergences (quick) or by
//!   composing the privacy losses numerically (tight).
//!   Releases of **disjoint** sets of rows, fixed before the data are seen, compose in parallel: the worst set decides.
//! * [`laplace`]: pure ε.
//! * [`noise_multiplier`]: the noise of a whole run.

mod convolution;
pub mod full_batch;
pub mod laplace;
mod privacy_loss;
mod renyi;
mod run;

pub use run::{RunAccountant, noise_multiplier};
