//! Every algorithm by name: the only module that knows them all.

use eigenveil_shared::{Error, ErrorCode, Result};

use crate::{
    Amin, AnalyzeGauss, ModSulq, Pca, PrivatePowerIteration, SparsePca, Wishart,
    baseline::Entry,
    dp_pca::DpPca,
    oja::Oja,
    power::{NoisyPower, PrivatePower, StreamingPower},
    robust::{Glad, Reaper},
    stochastic::{DpSpca, DpVrpca},
};

/// Every algorithm, in the order of the documentation.
pub const ALGORITHMS: &[Entry] = &[
    Pca::ENTRY,
    SparsePca::ENTRY,
    NoisyPower::ENTRY,
    StreamingPower::ENTRY,
    PrivatePower::ENTRY,
    Oja::PLAIN_ENTRY,
    Oja::PRIVATE_ENTRY,
    Oja::MINIBATCH_ENTRY,
    DpPca::ENTRY,
    DpSpca::ENTRY,
    DpVrpca::ENTRY,
    AnalyzeGauss::ENTRY,
    ModSulq::ENTRY,
    PrivatePowerIteration::ENTRY,
    Wishart::ENTRY,
    Amin::ENTRY,
    Glad::GGD_ENTRY,
    Glad::NGGD_ENTRY,
    Glad::SGGD_ENTRY,
    Glad::NSGGD_ENTRY,
    Glad::DP_GGD_ENTRY,
    Glad::DP_SGGD_ENTRY,
    Reaper::GD_ENTRY,
    Reaper::SGD_ENTRY,
    Reaper::MD_ENTRY,
    Reaper::SMD_ENTRY,
];

/// The algorithm of this name.
///
/// # Errors
/// `invalid-request` lists the names there are.
pub fn find(name: &str) -> Result<&'static Entry> {
    ALGORITHMS
        .iter()
        .find(|entry| entry.card.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = ALGORITHMS.iter().map(|entry| entry.card.name).collect();
            Error::new(
                ErrorCode::InvalidRequest,
                format!(
                    "there is no algorithm {name:?}; use one of {}",
                    names.join(", ")
                ),
            )
        })
}
