//! Exact one-sided confidence limits of a binomial probability (Clopper & Pearson 1934).

use statrs::function::beta::inv_beta_reg;

/// Lower limit at one-sided level `confidence` for the probability after `hits` of `trials`.
///
/// ```
/// // 0 hits say nothing from below.
/// assert_eq!(eigenveil_audit::lower_limit(0, 100, 0.975), 0.0);
/// ```
pub fn lower_limit(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits == 0 {
        return 0.0;
    }
    inv_beta_reg(hits as f64, (trials - hits + 1) as f64, 1.0 - confidence)
}

/// Upper limit at one-sided level `confidence` for the probability after `hits` of `trials`.
///
/// ```
/// // The rule of three: 0 of 300 allows about 1 % at 95 %.
/// assert!((eigenveil_audit::upper_limit(0, 300, 0.95) - 0.01).abs() < 1e-4);
/// ```
pub fn upper_limit(hits: u64, trials: u64, confidence: f64) -> f64 {
    if hits >= trials {
        return 1.0;
    }
    inv_beta_reg((hits + 1) as f64, (trials - hits) as f64, confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(Binomial(n, q) ≥ hits), summed term by term.
    fn tail_from(hits: u64, n: u64, q: f64) -> f64 {
        let mut term = (1.0 - q).powi(n as i32);
        let mut sum = 0.0;
        for j in 0..=n {
            if j >= hits {
                sum += term;
            }
            term *= (n - j) as f64 / (j + 1) as f64 * q / (1.0 - q);
        }
        sum
    }

    #[test]
    fn limits_solve_their_defining_equations() {
        for (hits, n) in [(1, 20), (7, 20), (19, 20), (50, 400)] {
            let low = lower_limit(hits, n, 0.975);
            assert!(
                (tail_from(hits, n, low) - 0.025).abs() < 1e-8,
                "{hits} of {n}: {low}"
            );
            let high = upper_limit(hits, n, 0.975);
            assert!(
                (tail_from(hits + 1, n, high) - 0.975).abs() < 1e-8,
                "{hits} of {n}: {high}"
            );
        }
    }
}
