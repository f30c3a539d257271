//! What the choice of the rows adds to the noise (`docs/derivations/sites.md`, "Sampling").

use eigenveil_shared::preprocess::Norm;
use nalgebra::DVectorView;

use crate::input::moment::NoisyMoment;

/// Adds the sampling of its rows to the noise of a moment of tables; also returns their E‖z‖⁴/(E‖z‖²)².
pub(crate) fn with_sampling(moment: NoisyMoment, norm: Norm) -> (NoisyMoment, f64) {
    let total = moment.mean().trace();
    let (squared_mean, along) = moment.estimated_mean().map_or((0.0, 0.0), |mean| {
        let values = DVectorView::from_slice(mean.values(), mean.values().len());
        let along = values.dot(&(moment.dense() * values));
        (mean.squared_length(), along.max(0.0))
    });
    let fourth = fourth_moment(total, (squared_mean, along), norm);
    (moment.with_sampling(fourth), fourth)
}

/// E‖z‖⁴/(E‖z‖²)² of prepared rows x around their mean m, z = x − m; at most, where their lengths are not fixed. `total` is
/// E‖z‖², and `mean` is ‖m‖² and the variance of mᵀx.
pub(crate) fn fourth_moment(total: f64, mean: (f64, f64), norm: Norm) -> f64 {
    let (squared_mean, along) = mean;
    // Also false for NaN.
    let varies = total > 0.0;
    if !varies {
        return 1.0;
    }
    let length = match norm {
        Norm::Normalize => 1.0,
        Norm::Clip { .. } | Norm::Require { .. } => (total + squared_mean).clamp(0.0, 1.0),
    };
    // ‖z‖² = ‖x‖² − 2mᵀz − ‖m‖², of which the first part varies by ρ(1 − ρ) at most, as a number from 0 to 1 does.
    let deviation = (length * (1.0 - length)).sqrt() + 2.0 * along.sqrt();
    let most = (1.0 + squared_mean.sqrt()).powi(2) / total;
    (1.0 + (deviation / total).powi(2)).min(most.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of length one, without a mean: 1. Rows that are zero or of length one: 1/ρ. And rows ±e₁ or e₂ around their
    /// mean, by hand: m = e₂/2, E‖z‖² = 3/4, of which half has length² 5/4 and half 1/4.
    #[test]
    fn ratios_by_hand() {
        assert_eq!(fourth_moment(1.0, (0.0, 0.0), Norm::Normalize), 1.0);
        let clip = Norm::Clip { radius: 1.0 };
        assert!((fourth_moment(0.25, (0.0, 0.0), clip) - 4.0).abs() < 1e-12);
        let exact = 0.5 * (1.25_f64.powi(2) + 0.25_f64.powi(2)) / 0.75_f64.powi(2);
        // The variance of mᵀx: that of 1/2 or 0.
        let fourth = fourth_moment(0.75, (0.25, 1.0 / 16.0), Norm::Normalize);
        assert!((fourth - exact).abs() < 1e-12, "{fourth} {exact}");
        assert_eq!(fourth_moment(0.0, (0.1, 0.0), Norm::Normalize), 1.0);
    }
}
