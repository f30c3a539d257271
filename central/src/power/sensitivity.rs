//! The sensitivity of one step `X ↦ AX`, A = Σxxᵀ.

use nalgebra::DMatrix;

use crate::{Neighbours, oja::gradient_sensitivity};

/// L2 (Frobenius) sensitivity of `AX` for an orthonormal X (`d × m`).
///
/// * Zero-out: `‖xxᵀX‖_F = ‖x‖·‖Xᵀx‖ ≤ 1` for any m. The paper charges every column separately, hence √m.
/// * Replace: `‖(xxᵀ−yyᵀ)X‖_F ≤ ‖xxᵀ−yyᵀ‖_F ≤ √2`; for one column `≤ ‖xxᵀ−yyᵀ‖₂ ≤ 1`.
/// * Entry: `A_ij` and `A_ji` move by at most 1, so rows i and j of AX move by `X_j` and `X_i`: the two largest rows of
///   X determine it, `√(‖X_i‖²+‖X_j‖²) ≤ √(2m)·max|Xᵢⱼ|`.
///
/// Each bound is attained. X is public at that point (an earlier release, or drawn without the data).
pub fn product_sensitivity(neighbours: Neighbours, x: &DMatrix<f64>) -> f64 {
    match neighbours {
        Neighbours::ZeroOut | Neighbours::Replace => {
            gradient_sensitivity(neighbours, 1.0, x.ncols())
        }
        Neighbours::Entry => {
            let (first, second) =
                two_largest(x.row_iter().map(|row| row.iter().map(|x| x * x).sum()));
            (first + second).sqrt()
        }
    }
}

/// L1 sensitivity (sum of absolute entries) of `AX` for an orthonormal X (`d × m`): for rows √(dm) times the L2 one
/// (Cauchy–Schwarz; `‖xxᵀX‖₁ = ‖x‖₁·‖Xᵀx‖₁ ≤ √d·√m`), for an entry the two largest row sums of `|X|`.
pub fn product_sensitivity_l1(neighbours: Neighbours, x: &DMatrix<f64>) -> f64 {
    match neighbours {
        Neighbours::ZeroOut | Neighbours::Replace => {
            product_sensitivity(neighbours, x) * (x.len() as f64).sqrt()
        }
        Neighbours::Entry => {
            let (first, second) =
                two_largest(x.row_iter().map(|row| row.iter().map(|x| x.abs()).sum()));
            first + second
        }
    }
}

/// `√(2m)`: the maximum ratio of the L2 sensitivity for entry neighbours to `max|Xᵢⱼ|`, by which the paper scales its
/// noise.
pub fn entry_sensitivity_factor(columns: usize) -> f64 {
    (2.0 * columns as f64).sqrt()
}

fn two_largest(sizes: impl Iterator<Item = f64>) -> (f64, f64) {
    sizes.fold((0.0, 0.0), |(first, second), size| {
        if size > first {
            (size, first)
        } else {
            (first, f64::max(second, size))
        }
    })
}

#[cfg(test)]
mod tests {
    use nalgebra::{DVector, dmatrix};
    use proptest::prelude::*;

    use super::*;
    use eigenveil_estimation::linalg::orthonormalize;

    fn l1(matrix: &DMatrix<f64>) -> f64 {
        matrix.iter().map(|x| x.abs()).sum()
    }

    /// Maps any numbers to a vector of the unit ball, often on its surface.
    fn in_ball(values: &[f64]) -> DVector<f64> {
        let x = DVector::from_column_slice(values);
        let norm = x.norm();
        if norm > 1.0 { x / norm } else { x }
    }

    proptest! {
        /// No pair of neighbouring data sets moves the product by more than the sensitivity.
        #[test]
        fn no_neighbour_exceeds_the_product_sensitivity(
            frame in proptest::collection::vec(-1.0..1.0_f64, 15),
            m in 1_usize..=3,
            x in proptest::collection::vec(-1.5..1.5_f64, 5),
            y in proptest::collection::vec(-1.5..1.5_f64, 5),
            (i, j) in (0_usize..5, 0_usize..5),
            change in -1.0..1.0_f64,
        ) {
            let frame = DMatrix::from_column_slice(5, m, &frame[..5 * m]);
            let Ok(frame) = orthonormalize(frame) else { return Ok(()) };
            let (x, y) = (in_ball(&x), in_ball(&y));
            let mut entry = DMatrix::zeros(5, 5);
            entry[(i, j)] = change;
            entry[(j, i)] = change;
            let outer = &x * x.transpose();
            for (neighbours, difference) in [
                (Neighbours::ZeroOut, outer.clone()),
                (Neighbours::Replace, outer - &y * y.transpose()),
                (Neighbours::Entry, entry),
            ] {
                let moved = difference * &frame;
                prop_assert!(moved.norm() <= product_sensitivity(neighbours, &frame) * (1.0 + 1e-12));
                prop_assert!(l1(&moved) <= product_sensitivity_l1(neighbours, &frame) * (1.0 + 1e-12));
                let published = entry_sensitivity_factor(m) * frame.amax();
                prop_assert!(neighbours != Neighbours::Entry || moved.norm() <= published * (1.0 + 1e-12));
            }
        }
    }

    /// Bounds that are not a gradient's are attained, so none is loose.
    #[test]
    fn the_bounds_are_attained() {
        let (one, two) = (
            dmatrix![1.0; 0.0; 0.0],
            dmatrix![1.0, 0.0; 0.0, 1.0; 0.0, 0.0],
        );
        for x in [&one, &two] {
            let mut pair = DMatrix::zeros(3, 3);
            pair[(0, 1)] = 1.0;
            pair[(1, 0)] = 1.0;
            let moved = (pair * x).norm();
            assert!((moved - product_sensitivity(Neighbours::Entry, x)).abs() < 1e-15);
        }
        // L1: a flat row and a flat frame, d = 4, m = 1: ‖x‖₁·|xᵀv| = 2 = √(dm).
        let flat = DMatrix::from_element(4, 1, 0.5);
        let moved = &flat * (flat.transpose() * &flat);
        assert!((l1(&moved) - product_sensitivity_l1(Neighbours::ZeroOut, &flat)).abs() < 1e-15);
    }
}
