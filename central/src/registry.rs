//! The registry of algorithms, by name.

use eigenveil_shared::{Error, Result};

use crate::{
    amin, baseline::AlgorithmInfo, dp_pca, exact_pca, input_perturbation, oja, power,
    private_power_iteration, robust, sparse_pca, stochastic,
};

/// All algorithms, in the order of the documentation.
pub static ALGORITHMS: &[&AlgorithmInfo] = &[
    &exact_pca::INFO,
    &sparse_pca::INFO,
    &power::PLAIN,
    &power::STREAMING,
    &power::PRIVATE,
    &oja::PLAIN,
    &oja::PRIVATE,
    &oja::MINIBATCH,
    &dp_pca::INFO,
    &stochastic::SPCA,
    &stochastic::VRPCA,
    &input_perturbation::ANALYZE_GAUSS,
    &input_perturbation::MOD_SULQ,
    &private_power_iteration::INFO,
    &input_perturbation::WISHART,
    &amin::INFO,
    &robust::GGD,
    &robust::NGGD,
    &robust::SGGD,
    &robust::NSGGD,
    &robust::DP_GGD,
    &robust::DP_SGGD,
    &robust::GD,
    &robust::SGD,
    &robust::MD,
    &robust::SMD,
];

/// The algorithm of this name.
pub fn find(name: &str) -> Result<&'static AlgorithmInfo> {
    let found = ALGORITHMS.iter().find(|info| info.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = ALGORITHMS.iter().map(|info| info.name).collect();
        Error::invalid_request(format!(
            "there is no algorithm {name:?}; use one of {}",
            names.join(", ")
        ))
    })
}
