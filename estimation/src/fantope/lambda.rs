//! The penalty λ.

use eigenveil_shared::{Error, ErrorCode, Result, api::Lambda, mechanism::NoiseModel};
use nalgebra::DMatrix;

/// κ of the automatic λ. The largest of p(p−1)/2 noise entries is about `s√(2 ln(p(p−1)/2)/n)`;
/// penalising that much (κ = 1) shrinks the signal too. A quarter gave a third of plain PCA's error
/// with the support found exactly at p = 200, k = 3, 15 active rows, n = 1e5, ε = 2. A first value:
/// it comes from one setting.
pub const KAPPA: f64 = 0.25;

/// `λ = κ·s·√(2 ln(p(p−1)/2)/n)`, in units of the moment's entries: the noise level is *known*, because
/// the mechanism is. 0 for p ≤ 2, where there is at most one off-diagonal entry.
///
/// # Errors
/// `InvalidRequest` for n = 0.
pub fn automatic_lambda(noise: &NoiseModel, p: usize, n: u64) -> Result<f64> {
    if n == 0 {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            "n is 0; λ needs n ≥ 1 reports",
        ));
    }
    let pairs = (p * p.saturating_sub(1) / 2).max(1) as f64;
    Ok(KAPPA * noise.off_diagonal_sd() * (2.0 * pairs.ln() / n as f64).sqrt())
}

/// `max_{i≠j} |S̃ᵢⱼ|`: at or above it a diagonal solution is optimal (it may be so earlier).
pub fn largest_useful_lambda(moment: &DMatrix<f64>) -> f64 {
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

/// The number behind a λ setting.
///
/// # Errors
/// `InvalidRequest` for a negative or non-finite number, for `cv` (not available yet), and for n = 0.
pub fn resolve_lambda(lambda: Lambda, noise: &NoiseModel, p: usize, n: u64) -> Result<f64> {
    match lambda {
        Lambda::Auto => automatic_lambda(noise, p, n),
        Lambda::Fixed(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Lambda::Fixed(value) => Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("lambda is {value}; it is a finite number ≥ 0, auto or cv"),
        )),
        Lambda::CrossValidated => Err(Error::new(
            ErrorCode::InvalidRequest,
            "lambda \"cv\" (cross-validation over the buckets) is not available yet; use \"auto\" or a number",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_resolve_or_say_why_not() {
        let noise = NoiseModel::Gaussian {
            off_diagonal_sd: 2.0,
            diagonal_sd: 2.0,
        };
        let auto = resolve_lambda(Lambda::Auto, &noise, 200, 100_000).unwrap();
        let exact = 0.25 * 2.0 * (2.0 * 19_900.0_f64.ln() / 100_000.0).sqrt();
        assert!((auto - exact).abs() < 1e-15);
        assert_eq!(automatic_lambda(&noise, 1, 10).unwrap(), 0.0);
        assert_eq!(automatic_lambda(&noise, 2, 10).unwrap(), 0.0);
        assert!(automatic_lambda(&noise, 2, 0).is_err());
        assert_eq!(
            resolve_lambda(Lambda::Fixed(0.5), &noise, 3, 1).unwrap(),
            0.5
        );
        for bad in [
            Lambda::Fixed(-1.0),
            Lambda::Fixed(f64::NAN),
            Lambda::CrossValidated,
        ] {
            let error = resolve_lambda(bad, &noise, 3, 1).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
        let moment = nalgebra::dmatrix![9.0, -3.0; -3.0, 1.0];
        assert_eq!(largest_useful_lambda(&moment), 3.0);
    }
}
