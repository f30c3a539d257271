//! Stochastic private PCA (Shang et al. 2021).
//!
//! * `dp-spca`: Algorithm 1, stochastic gradient ascent.
//! * `dp-vrpca`: Algorithm 2, with variance reduction: a full gradient once an epoch, and samples of the
//!   difference to it.
//!
//! Batches are Poisson samples, as the accountant requires, even under `as-published`, where the paper draws one row
//! uniformly. Sums are divided by the expected size, which is public. An update is `x(xᵀV)`, of norm at most G = 1; the
//! objective's gradient is twice that, and the factor is absorbed by the step size.

mod batches;
mod calibration;
mod run;
mod spca;
mod vrpca;

pub(crate) use {spca::INFO as SPCA, vrpca::INFO as VRPCA};
