//! The penalty λ.

use eigenveil_shared::{
    Result,
    api::{Lambda, SparseSettings},
    mechanism::NoiseModel,
};
use nalgebra::DMatrix;

use crate::assessment::check_reports;

/// κ of the automatic λ without a refit. The largest of p(p−1)/2 noise entries is about `s√(2 ln(p(p−1)/2)/n)`;
/// penalising that much (κ = 1) shrinks the signal too.
///
/// Both constants come from `eigenveil reproduce own-kappa` (table: `docs/papers/own-kappa.csv`): 16 settings of
/// `double-cap` and `isotropic-gaussian`, p = 100 to 400, s = 10 to 30, ε = 2 to 8, n = 2e4 to 1e6. The error over that
/// of each setting's best κ, as a geometric mean, is 1.04, 1.01, 1.06, 1.26, 1.66, 2.27, 3.21 for κ = 0.15, 0.2, 0.25,
/// 0.35, 0.5, 0.7, 1; of the three best this one selects the fewest noise features.
pub const KAPPA: f64 = 0.25;

/// κ where PCA is refitted on the selected features: there shrinkage is harmless but a noise feature is not. In the
/// same experiment 2.26, 1.74, 1.36, 1.08, 1.03, 1.26, 1.61: 0.23 to 0.49 of plain PCA's error on the same reports, F1
/// of the support 0.83 to 1.
pub const KAPPA_REFIT: f64 = 0.35;

/// `λ = κ·s·√(2 ln(p(p−1)/2)/n)`, in units of the moment's entries: the noise level is *known*, because
/// the mechanism is. 0 for p ≤ 2, where there is at most one off-diagonal entry.
pub fn automatic_lambda(noise: &NoiseModel, p: usize, n_eff: f64, refit: bool) -> Result<f64> {
    check_reports(n_eff)?;
    let kappa = if refit { KAPPA_REFIT } else { KAPPA };
    let pairs = (p * p.saturating_sub(1) / 2).max(1) as f64;
    Ok(kappa * noise.off_diagonal_sd() * (2.0 * pairs.ln() / n_eff).sqrt())
}

/// Share of the noise's own effect on the objective that is not worth iterating for.
const NEGLIGIBLE: f64 = 0.01;

/// A duality gap that is negligible compared with the noise: 1 % of `s√(2k/n)`, the maximum standard deviation of
/// `⟨noise, X⟩` for an X in the Fantope (`‖X‖_F ≤ √k`; s is the off-diagonal noise of one report). In units of the
/// moment's entries; what [`AdmmSettings::noise_gap`](super::AdmmSettings) is for.
///
/// ```
/// use eigenveil_estimation::fantope::negligible_gap;
/// use eigenveil_shared::mechanism::NoiseModel;
/// let noise = NoiseModel::gaussian(5.0);
/// assert!((negligible_gap(&noise, 2, 1e4) - 0.001).abs() < 1e-15);
/// ```
pub fn negligible_gap(noise: &NoiseModel, k: usize, n_eff: f64) -> f64 {
    NEGLIGIBLE * noise.off_diagonal_sd() * (2.0 * k as f64 / n_eff).sqrt()
}

/// `max_{i≠j} |S̃ᵢⱼ|`: at or above it a diagonal solution is optimal (it may be so earlier).
pub fn max_useful_lambda(moment: &DMatrix<f64>) -> f64 {
    let mut largest = 0.0_f64;
    for j in 0..moment.ncols() {
        for i in 0..moment.nrows() {
            if i != j {
                largest = largest.max(moment[(i, j)].abs());
            }
        }
    }
    largest
}

/// The value of a λ setting that needs no solver; `None` for `cv` and `path`, which
/// [`cross_validate`](super::cross_validate) and [`lambda_path`](super::lambda_path) choose.
pub fn resolve_lambda(
    settings: &SparseSettings,
    noise: &NoiseModel,
    p: usize,
    n_eff: f64,
) -> Result<Option<f64>> {
    match settings.lambda.check()? {
        Lambda::Auto => automatic_lambda(noise, p, n_eff, settings.refit).map(Some),
        Lambda::Fixed(value) => Ok(Some(value)),
        Lambda::CrossValidated | Lambda::Path => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn settings_resolve_or_say_why_not() {
        let noise = NoiseModel::gaussian(2.0);
        let settings_with = |lambda, refit| SparseSettings {
            lambda,
            refit,
            ..SparseSettings::default()
        };
        for (refit, kappa) in [(false, 0.25), (true, 0.35)] {
            let auto = resolve_lambda(&settings_with(Lambda::Auto, refit), &noise, 200, 1e5)
                .unwrap()
                .unwrap();
            let exact = kappa * 2.0 * (2.0 * 19_900.0_f64.ln() / 100_000.0).sqrt();
            assert!((auto - exact).abs() < 1e-15);
        }
        assert_eq!(automatic_lambda(&noise, 1, 10.0, false).unwrap(), 0.0);
        assert_eq!(automatic_lambda(&noise, 2, 10.0, true).unwrap(), 0.0);
        assert!(automatic_lambda(&noise, 2, 0.0, false).is_err());
        let fixed = settings_with(Lambda::Fixed(0.5), true);
        assert_eq!(resolve_lambda(&fixed, &noise, 3, 1.0).unwrap(), Some(0.5));
        for searched in [Lambda::CrossValidated, Lambda::Path] {
            let settings = settings_with(searched, true);
            assert_eq!(resolve_lambda(&settings, &noise, 3, 1.0).unwrap(), None);
        }
        for bad in [Lambda::Fixed(-1.0), Lambda::Fixed(f64::NAN)] {
            let error = resolve_lambda(&settings_with(bad, false), &noise, 3, 1.0).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
        let moment = nalgebra::dmatrix![9.0, -3.0; -3.0, 1.0];
        assert_eq!(max_useful_lambda(&moment), 3.0);
    }
}
