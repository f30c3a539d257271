//! The sensitivity of one step, and the published noise.

use eigenveil_shared::privacy::Budget;

use crate::Neighbours;

/// L2 (Frobenius) sensitivity of `Σ clip_β(x(xᵀW))` over rows of the unit ball, W orthonormal `d × k`.
///
/// * Zero-out: `min(β, 1)`, for `‖x(xᵀW)‖_F = ‖x‖·‖Wᵀx‖ ≤ 1`.
/// * Replace: `min(2β, √2)`, or `min(2β, 1)` for k = 1. Without clipping `(xxᵀ−yyᵀ)W` has at most the Frobenius norm of
///   `xxᵀ−yyᵀ`, √2, and for one column its spectral norm, 1; clipping projects onto a ball, which is non-expansive. The
///   textbook bound is 2.
/// * Entry: no bound, because a row's gradient is not a function of single entries of A.
pub fn gradient_sensitivity(neighbours: Neighbours, clip: f64, k: usize) -> f64 {
    match neighbours {
        Neighbours::ZeroOut => clip.min(1.0),
        Neighbours::Replace if k == 1 => (2.0 * clip).min(1.0),
        Neighbours::Replace => (2.0 * clip).min(std::f64::consts::SQRT_2),
        Neighbours::Entry => f64::INFINITY,
    }
}

/// Algorithm 2's noise, `2αβ` with `α = ln(n/δ)/(ε√n)` (its constant taken as 1).
pub(super) fn published_one_row_sd(budget: Budget, n: u64, clip: f64) -> f64 {
    let n = n as f64;
    2.0 * clip * (n / budget.delta()).ln() / (budget.epsilon() * n.sqrt())
}

/// Lemma 3.1 requires `ε = O(√(ln(n/δ)/n))`: this bound, with constant 1.
pub(super) fn max_shuffled_epsilon(delta: f64, n: u64) -> f64 {
    ((n as f64 / delta).ln() / n as f64).sqrt()
}

/// Equation 7's noise on the sum of a batch. Its scale follows from the paper's Gaussian mechanism (Lemma 2.4) with
/// sensitivity 2β and T-fold serial composition, `ε₀ = ε/(2√(2T·ln(2/δ)))`, `δ₀ = δ/2T`; the appendix that states it is
/// not in our copy.
pub(super) fn published_batch_sd(budget: Budget, steps: usize, clip: f64) -> f64 {
    let steps = steps as f64;
    let (epsilon, delta) = (budget.epsilon(), budget.delta());
    let each = epsilon / (2.0 * (2.0 * steps * (2.0 / delta).ln()).sqrt());
    2.0 * clip * (2.0 * (1.25 * 2.0 * steps / delta).ln()).sqrt() / each
}

#[cfg(test)]
mod tests {
    use nalgebra::{DMatrix, DVector, dmatrix};
    use proptest::prelude::*;

    use super::*;
    use crate::GradientSum;
    use eigenveil_estimation::linalg::orthonormalize;

    fn clipped(x: &[f64], w: &DMatrix<f64>, clip: f64) -> DMatrix<f64> {
        let mut sum = GradientSum::new(w.clone(), Some(clip), 1);
        sum.add(x);
        sum.finish().1
    }

    fn in_ball(values: &[f64]) -> Vec<f64> {
        let norm = DVector::from_column_slice(values).norm().max(1.0);
        values.iter().map(|x| x / norm).collect()
    }

    proptest! {
        #[test]
        fn no_neighbour_exceeds_the_gradient_sensitivity(
            frame in proptest::collection::vec(-1.0..1.0_f64, 12),
            k in 1_usize..=3,
            x in proptest::collection::vec(-1.5..1.5_f64, 4),
            y in proptest::collection::vec(-1.5..1.5_f64, 4),
            clip in 0.01..1.5_f64,
        ) {
            let Ok(w) = orthonormalize(DMatrix::from_column_slice(4, k, &frame[..4 * k])) else {
                return Ok(());
            };
            let (x, y) = (clipped(&in_ball(&x), &w, clip), clipped(&in_ball(&y), &w, clip));
            let bound = |neighbours| gradient_sensitivity(neighbours, clip, k) * (1.0 + 1e-12);
            prop_assert!(x.norm() <= bound(Neighbours::ZeroOut));
            prop_assert!((x - y).norm() <= bound(Neighbours::Replace));
        }
    }

    /// Without clipping each bound is attained.
    #[test]
    fn the_bounds_are_attained() {
        let (one, two) = (dmatrix![1.0; 0.0], dmatrix![1.0, 0.0; 0.0, 1.0]);
        for w in [&one, &two] {
            let (first, second) = (clipped(&[1.0, 0.0], w, 1.0), clipped(&[0.0, 1.0], w, 1.0));
            let bound = |neighbours| gradient_sensitivity(neighbours, 1.0, w.ncols());
            assert_eq!(first.norm(), bound(Neighbours::ZeroOut));
            assert!(((first - second).norm() - bound(Neighbours::Replace)).abs() < 1e-15);
        }
    }
}
