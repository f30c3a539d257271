//! Every algorithm by name: the only module that knows them all.

use eigenveil_shared::{Error, Result};

use crate::{
    amin, baseline::Card, dp_pca, exact, input_perturbation, oja, power, private_power_iteration,
    robust, sparse_pca, stochastic,
};

/// Every algorithm, in the order of the documentation.
pub static ALGORITHMS: &[&Card] = &[
    &exact::CARD,
    &sparse_pca::CARD,
    &power::PLAIN,
    &power::STREAMING,
    &power::PRIVATE,
    &oja::PLAIN,
    &oja::PRIVATE,
    &oja::MINIBATCH,
    &dp_pca::CARD,
    &stochastic::SPCA,
    &stochastic::VRPCA,
    &input_perturbation::ANALYZE_GAUSS,
    &input_perturbation::MOD_SULQ,
    &private_power_iteration::CARD,
    &input_perturbation::WISHART,
    &amin::CARD,
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
///
/// # Errors
/// `invalid-request` lists the names there are.
pub fn find(name: &str) -> Result<&'static Card> {
    let found = ALGORITHMS.iter().find(|card| card.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = ALGORITHMS.iter().map(|card| card.name).collect();
        Error::invalid_request(format!(
            "there is no algorithm {name:?}; use one of {}",
            names.join(", ")
        ))
    })
}
