//! Inverts δ(ε) to ε(δ), and validates privacy parameters.

use crate::error::{Result, error};

/// Largest ε tried: beyond it a guarantee is meaningless.
const MAX_EPSILON_TRIED: f64 = 1e12;

/// An ε ≥ 0 with `delta_at(ε) ≤ delta`, within a relative error `precision` of the smallest such ε; `None` when there
/// is none below 1e12. Whatever `delta_at` is, the ε returned was tried and holds.
pub fn smallest_epsilon(delta_at: impl Fn(f64) -> f64, delta: f64, precision: f64) -> Option<f64> {
    let enough = |epsilon: f64| delta_at(epsilon) <= delta;
    if enough(0.0) {
        return Some(0.0);
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while !enough(high) {
        low = high;
        high *= 2.0;
        if high > MAX_EPSILON_TRIED {
            return None;
        }
    }
    // The second condition stops once ε is too small to distinguish from zero.
    while high - low > precision * high && high > 1e-15 {
        let middle = 0.5 * (low + high);
        match enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// Whether δ is valid for a guarantee: strictly between 0 and 1.
pub(crate) fn is_valid_delta(delta: f64) -> bool {
    delta > 0.0 && delta < 1.0
}

pub(crate) fn positive(name: &str, value: f64) -> Result<f64> {
    if value.is_normal() && value > 0.0 {
        return Ok(value);
    }
    Err(error!(
        InvalidBudget,
        "{name} is {value}; it must be a positive finite number"
    ))
}
