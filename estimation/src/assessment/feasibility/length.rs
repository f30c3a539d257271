//! How much of the rows' squared length lies along directions chosen without looking at them.

use eigenveil_shared::{
    estimate::SquaredNormCheck,
    mechanism::{Decoding, NoiseModel, double_cap::DoubleCapParameters},
    study::StudyParams,
};

use super::split::{SHARE, SampleSplit};
use crate::{dense::pca::rayleigh_quotients, linalg::packed_to_dense, search::bisect};

/// The leading directions whose sum exceeds its limit most, or comes nearest to it.
pub(super) fn check(split: &SampleSplit, params: &StudyParams) -> SquaredNormCheck {
    let n = split.others.count() as f64;
    let directions = split.directions.ncols();
    let ln_alarms = (directions as f64 / SHARE).ln();
    let sum = packed_to_dense(split.others.sum());
    let mut total = 0.0;
    let checks = rayleigh_quotients(&sum, &split.directions)
        .iter()
        .enumerate()
        .map(|(j, value)| {
            total += value / n;
            SquaredNormCheck {
                directions: j + 1,
                found: total,
                limit: limit(params, j + 1, n, ln_alarms),
            }
        })
        .collect::<Vec<_>>();
    let room = |check: &SquaredNormCheck| check.limit - check.found;
    checks
        .into_iter()
        .min_by(|a, b| room(a).total_cmp(&room(b)))
        .unwrap_or(SquaredNormCheck {
            directions: 0,
            found: 0.0,
            limit: 1.0,
        })
}

/// The limit that `Σ vᵀS̃v` over `directions` orthonormal vectors exceeds with probability e^{−ln_alarms} at most, S̃
/// the mean of n reports.
fn limit(params: &StudyParams, directions: usize, n: f64, ln_alarms: f64) -> f64 {
    let j = directions as f64;
    let p = params.report_dimension() as f64;
    let mechanism = params.mechanism();
    // Rows are rounded to a grid: half a step an entry.
    let rounding = match mechanism.decoding() {
        Decoding::Direction(parameters) => {
            let deviation = deviation(&parameters, j, n, ln_alarms);
            return 1.0 - j / p + parameters.scale * deviation;
        }
        Decoding::Entries => 0.0,
        Decoding::Grid {
            diagonal_step,
            off_diagonal_step,
        } => 0.5 * p * diagonal_step.max(off_diagonal_step),
    };
    match mechanism.noise_model() {
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } => {
            // tr(PN) of a projector P has variance 2s²‖P‖² + (d² − 2s²)Σ Pᵢᵢ², ‖P‖² = j ≥ Σ Pᵢᵢ²; and P(z > t) ≤
            // e^{−t²/2}, for the discrete Gaussian too.
            let variance = j * (2.0 * off_diagonal_sd.powi(2)).max(diagonal_sd.powi(2));
            1.0 + j * rounding + (2.0 * ln_alarms * variance / n).sqrt()
        }
        // An unknown distribution has no limit.
        NoiseModel::DoubleCap { .. } | NoiseModel::Transformed { .. } => f64::MAX,
    }
}

/// How far the mean of `Y = ‖Vᵀg‖²` over n reports exceeds its expectation, with probability e^{−ln_alarms} at most:
/// Bennett's inequality for `0 ≤ Y ≤ 1` with `E Y² ≤ (e^ε/Z)·j(j+2)/(p(p+2))`, e^ε/Z times that of a random direction.
fn deviation(parameters: &DoubleCapParameters, j: f64, n: f64, ln_alarms: f64) -> f64 {
    let p = parameters.dimension as f64;
    let variance = (parameters.expected_attempts() * j * (j + 2.0) / (p * (p + 2.0))).min(0.25);
    let wanted = ln_alarms / (n * variance);
    // h(u) = (1+u)ln(1+u) − u rises, and is at least u²/(2 + 2u/3).
    let short = |u: f64| (1.0 + u) * f64::ln_1p(u) - u <= wanted;
    let (_, high) = bisect(0.0, (2.0 * wanted).sqrt() + wanted, 100, short);
    variance * high
}
