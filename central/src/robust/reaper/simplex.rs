//! The Bregman projection of mirror descent.

use eigenveil_estimation::linalg::require_rank;
use eigenveil_shared::{Error, Result};

/// log c, where `gᵢ = min(1, c·exp(logᵢ))` with sum k is the projection of positive eigenvalues onto `{0 ≤ g ≤ 1, Σg =
/// k}` in relative entropy. The eigenvalues are given as logarithms, in any order.
///
/// The paper divides by the trace instead, which leaves eigenvalues above 1, outside the constraint set.
pub(super) fn log_scale(logarithms: &[f64], k: usize) -> Result<f64> {
    require_rank(k, logarithms.len())?;
    if logarithms.iter().any(|value| !value.is_finite()) {
        return Err(Error::estimate_failed(
            "an eigenvalue is not a finite number; use a smaller step",
        ));
    }
    let mut sorted = logarithms.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    // From the smallest upwards.
    let rest = sorted[k..].iter().rev().fold(f64::NEG_INFINITY, log_sum);
    let mut tails = vec![rest; k + 1];
    for i in (0..k).rev() {
        tails[i] = log_sum(tails[i + 1], &sorted[i]);
    }
    // With the `capped` largest at 1 the others share k − capped; the first such count for which no other exceeds 1 is
    // correct.
    let scale = (0..k)
        .map(|capped| (capped, ((k - capped) as f64).ln() - tails[capped]))
        .find(|&(capped, log_c)| log_c + sorted[capped] <= 0.0);
    Ok(scale.map_or(-sorted[k - 1], |(_, log_c)| log_c))
}

/// `ln(eᵃ + eᵇ)` without overflow, b finite.
fn log_sum(a: f64, b: &f64) -> f64 {
    let (high, low) = (a.max(*b), a.min(*b));
    high + (low - high).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn projected(logarithms: &[f64], k: usize) -> Result<Vec<f64>> {
        let log_c = log_scale(logarithms, k)?;
        Ok(logarithms
            .iter()
            .map(|l| (l + log_c).min(0.0).exp())
            .collect())
    }

    /// `Σ g log(g/λ) − g`.
    fn divergence(g: &[f64], logarithms: &[f64]) -> f64 {
        g.iter()
            .zip(logarithms)
            .map(|(&g, &l)| if g > 0.0 { g * (g.ln() - l) - g } else { 0.0 })
            .sum()
    }

    proptest! {
        /// Feasible, and no exchange of mass between two eigenvalues reduces the divergence.
        #[test]
        fn projection_is_the_nearest_point(
            logarithms in prop::collection::vec(-6.0_f64..6.0, 2..9),
            share in 0.0_f64..1.0,
        ) {
            let p = logarithms.len();
            let k = 1 + (share * (p - 1) as f64) as usize;
            let g = projected(&logarithms, k).unwrap();
            prop_assert!((g.iter().sum::<f64>() - k as f64).abs() < 1e-9);
            prop_assert!(g.iter().all(|&x| (0.0..=1.0).contains(&x)));
            let best = divergence(&g, &logarithms);
            for i in 0..p {
                for j in 0..p {
                    let amount = 1e-4 * g[i].min(1.0 - g[j]);
                    let mut other = g.clone();
                    if i != j {
                        other[i] -= amount;
                        other[j] += amount;
                    }
                    prop_assert!(divergence(&other, &logarithms) >= best - 1e-12);
                }
            }
        }
    }

    #[test]
    fn far_apart_eigenvalues_neither_overflow_nor_vanish() {
        let g = projected(&[2000.0, 1990.0, -3000.0, -3000.0], 3).unwrap();
        assert_eq!(&g[..2], [1.0, 1.0]);
        assert!((g[2] - 0.5).abs() < 1e-12 && (g[3] - 0.5).abs() < 1e-12);
        assert!(projected(&[0.0], 2).is_err());
    }
}
