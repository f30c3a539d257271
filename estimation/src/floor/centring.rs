//! What removing an estimated mean does to the noise's spectrum (`docs/derivations/centring.md`,
//! "The spurious component").
//!
//! The noise of Ĉ has the metric `I + m̂m̂ᵀ/a²` instead of I. With x = ‖m‖/a > 1 its `−δmᵀ − mδᵀ` (δ the error
//! of m̂) leaves the bulk: pure noise then has an eigenvalue at `(x + 1/x)·r` above the centre, with squared cosine
//! `(x² − 1)/(2x²)` to m̂, which looks like a component and is none.

use super::{Floor, Judgement, components::Measured};

/// By how much noise is larger along a component that a warning is due: `m_v²/a²`.
const EXCESS_TO_WARN_OF: f64 = 0.25;

/// `max(1, (x + 1/x)/2)`.
pub(super) fn edge_factor(x: f64) -> f64 {
    if x > 1.0 { 0.5 * (x + x.recip()) } else { 1.0 }
}

/// What the noise along m̂ needs as a margin above the edge, in units of r_b, so that it alone exceeds it in one or
/// two of a hundred cases: `2.95·min(x, x²)/√p`.
///
/// An eigenvalue outside the bulk fluctuates like `x√(1.5/p)`, not like p^(−2/3), and the edge begins to feel it
/// below x = 1: with the bulk's margin, noise was counted in up to 16 % of cases (x = 1.2). Fitted to the 99 % points
/// of 800 to 4,000 draws of `G − x(ugᵀ + guᵀ)` for p = 10, 40, 150 and x = 0.5 to 9; as x grows it is 2.33
/// standard deviations and 3 % more.
pub(super) fn mean_margin(x: f64, p: usize) -> f64 {
    2.95 * x.min(x * x) / (p as f64).sqrt()
}

/// `m_v²/a²` of component `j`; 0 without private centring.
pub(super) fn excess(measured: &Measured<'_>, j: usize) -> f64 {
    measured
        .mean
        .map_or(0.0, |mean| mean.excess_along(measured.vectors.column(j)))
}

/// A warning for components that lie along m̂ and barely above the noise.
pub(super) fn not_evidence(
    measured: &Measured<'_>,
    floor: &Floor,
    judgements: &[Judgement],
) -> Option<String> {
    let limit = floor.threshold + (floor.threshold - floor.edge);
    let doubtful: Vec<String> = (0..judgements.len())
        .filter(|&j| {
            let value = measured.values[j];
            value > floor.edge && value <= limit && excess(measured, j) >= EXCESS_TO_WARN_OF
        })
        .map(|j| (j + 1).to_string())
        .collect();
    let (which, is) = match doubtful.len() {
        0 => return None,
        1 => ("Component", "lies"),
        _ => ("Components", "lie"),
    };
    Some(format!(
        "{which} {} {is} towards the estimated mean and only just above the noise: removing an estimated mean adds noise in that direction, so this is not evidence of a component.",
        doubtful.join(", ")
    ))
}
