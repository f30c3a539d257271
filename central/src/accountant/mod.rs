//! How much noise a whole run needs, and the privacy a given noise provides.
//!
//! Noise is measured as **multipliers** z = σ/Δ: σ is the standard deviation of the noise on each coordinate, Δ the L2
//! sensitivity of the released value (see [`Neighbours`](crate::Neighbours)).
//!
//! Releases of **disjoint** sets of rows that are fixed before looking at the data compose in parallel: the worst set
//! decides.

mod convolution;
pub mod full_batch;
pub mod laplace;
mod privacy_loss;
mod renyi;
mod run;

pub use run::{RunAccountant, noise_multiplier};
