//! Pure ε by Laplace noise.

use eigenveil_shared::{Result, error};

/// The scale b of Laplace noise on every coordinate, density `e^{−|x|/b}/2b`, so that `releases` releases of L1
/// sensitivity `sensitivity` are together (ε, 0)-private: `b = T·Δ₁/ε` (basic composition, which for a pure ε at
/// δ = 0 is exact).
pub fn scale(epsilon: f64, sensitivity: f64, releases: u64) -> Result<f64> {
    let scale = (releases as f64 * sensitivity / epsilon).next_up();
    let positive = |value: f64| value.is_normal() && value > 0.0;
    if positive(epsilon) && positive(sensitivity) && positive(scale) {
        return Ok(scale);
    }
    Err(error!(
        InvalidBudget,
        "epsilon is {epsilon}, the sensitivity {sensitivity}, the releases {releases}; all must be positive and finite"
    ))
}

/// The ε of `releases` releases with Laplace noise of this scale, rounded up.
pub fn true_epsilon(scale: f64, sensitivity: f64, releases: u64) -> f64 {
    (releases as f64 * sensitivity / scale).next_up()
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn the_scale_and_back() {
        let b = scale(0.5, 2.0, 3).unwrap();
        assert!((b - 12.0).abs() < 1e-12);
        assert!((true_epsilon(b, 2.0, 3) - 0.5).abs() < 1e-12);
        for (epsilon, sensitivity, releases) in [(0.0, 1.0, 1), (f64::NAN, 1.0, 1), (1.0, 1.0, 0)] {
            let error = scale(epsilon, sensitivity, releases).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget);
        }
    }
}
