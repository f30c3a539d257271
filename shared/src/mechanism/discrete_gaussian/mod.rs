//! `discrete-gaussian`: `svec(xxᵀ)` on a grid, plus independent exact discrete Gaussians.
//!
//! Safe where floating-point noise is not (Mironov 2012): every released number is an integer whose law
//! is exact, and sums of reports are exact integers, the same for every order of merging.

mod parameters;
mod randomizer;
mod sampler;

pub use parameters::{
    DiscreteGaussianParameters, MAX_GRID_BITS, MAX_SIGMA_GRID, MIN_SIGMA_GRID, grid_sensitivity,
};
pub use randomizer::DiscreteGaussian;
pub(super) use sampler::DiscreteGaussianSampler;
