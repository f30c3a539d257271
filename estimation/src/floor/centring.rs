//! What removing an estimated mean does to the noise's spectrum (`docs/derivations/centring.md`,
//! "The spurious component").
//!
//! The noise of Ĉ has the metric `I + m̂m̂ᵀ/a²` instead of I. With x = ‖m‖/a > 1 its `−δmᵀ − mδᵀ` (δ the error
//! of m̂) leaves the bulk: pure noise then has an eigenvalue at `(x + 1/x)·r` above the centre, with squared cosine
//! `(x² − 1)/(2x²)` to m̂, which looks like a component but is not one.

use super::{EigenvalueVerdict, Floor, Measured};
use crate::warning::Warning;

/// Excess noise along a component, `m_v²/a²`, that triggers a warning.
const EXCESS_TO_WARN_OF: f64 = 0.25;

/// Excess noise along component `j`; 0 where the noise does not differ between directions.
pub(super) fn excess(measured: &Measured<'_>, j: usize) -> f64 {
    let vector = measured.vectors.column(j);
    measured
        .excess_noise
        .map_or(0.0, |noise| noise.along(vector))
}

fn excess_along_mean(measured: &Measured<'_>, j: usize) -> f64 {
    let vector = measured.vectors.column(j);
    measured
        .excess_noise
        .map_or(0.0, |noise| noise.along_mean(vector))
}

/// A warning for components that lie along m̂ and barely above the noise.
pub(super) fn towards_mean(
    measured: &Measured<'_>,
    floor: &Floor,
    verdicts: &[EigenvalueVerdict],
) -> Option<Warning> {
    let limit = floor.threshold + (floor.threshold - floor.edge);
    let doubtful: Vec<usize> = (0..verdicts.len())
        .filter(|&j| {
            let value = measured.values[j];
            value > floor.edge
                && value <= limit
                && excess_along_mean(measured, j) >= EXCESS_TO_WARN_OF
        })
        .map(|j| j + 1)
        .collect();
    (!doubtful.is_empty()).then_some(Warning::TowardsMean(doubtful))
}
