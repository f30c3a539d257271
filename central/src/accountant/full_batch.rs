//! T Gaussian releases of the whole data, composed adaptively: each may depend on the earlier ones.
//!
//! T releases with multiplier z are together as private as one with multiplier z/√T, exactly: μ = √T/z (Dong,
//! Roth & Su 2022, Corollary 3.3). So the analytic Gaussian calibration of one release is that of all.

use eigenveil_shared::{
    Error, Result,
    privacy::{Budget, gaussian},
};

/// The smallest multiplier z for which `releases` releases together keep the budget, if neighbours may move each of
/// them by Δ.
pub fn noise_multiplier(budget: Budget, releases: u64) -> Result<f64> {
    if releases == 0 {
        return Err(Error::invalid_request(
            "the number of releases is 0; at least one is needed",
        ));
    }
    gaussian::analytic_sigma(budget, (releases as f64).sqrt().next_up())
}

/// The ε that `releases` releases with multiplier `multiplier` give together at `delta`, rounded up; `None`
/// where none does (a multiplier that is not positive).
pub fn true_epsilon(multiplier: f64, releases: u64, delta: f64) -> Option<f64> {
    if releases == 0 {
        return Some(0.0);
    }
    gaussian::true_epsilon(multiplier, (releases as f64).sqrt().next_up(), delta)
}
