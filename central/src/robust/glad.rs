//! Grassmannian least absolute deviations: objective and gradient.

use eigenveil_estimation::linalg::{product, tall_cross_product, tall_product};
use nalgebra::DMatrix;

use super::table::Table;

/// A unit row nearer to the subspace than this lies on it up to rounding, where 0 is a subgradient.
const ON_THE_SUBSPACE: f64 = 1e-14;

/// Below this ‖Qx‖² the difference `‖x‖² − ‖Vᵀx‖²` has lost too many digits, so `x − VVᵀx` is formed.
const NEAR_THRESHOLD: f64 = 1e-3;

/// `(1/N)Σ‖(I − VVᵀ)x‖`.
pub(super) fn objective(table: &Table, v: &DMatrix<f64>) -> f64 {
    let split = Split::new(table.columns(), v);
    let far: f64 = split.squares.iter().map(|square| square.sqrt()).sum();
    let near: f64 = split.residuals.column_iter().map(|r| r.norm()).sum();
    (far + near) / table.n() as f64
}

/// `Σ Qx(xᵀV)/‖Qx‖` over the columns of `rows`, Q = I − VVᵀ (equation 2.1): the *descent* direction. Every summand has
/// Frobenius norm `‖Vᵀx‖ ≤ 1`.
///
/// Rows far from the subspace enter as `X·diag(1/‖Qx‖)·Sᵀ − V·(S·diag(1/‖Qx‖)·Sᵀ)` with S = VᵀX: X is read twice and no
/// `Qx` is formed.
pub(super) fn descent_direction(rows: &DMatrix<f64>, v: &DMatrix<f64>) -> DMatrix<f64> {
    let Split {
        scores,
        squares,
        near,
        residuals,
    } = Split::new(rows, v);
    let mut weighted = scores.transpose();
    for (mut row, square) in weighted.row_iter_mut().zip(squares) {
        row *= if square > 0.0 {
            1.0 / square.sqrt()
        } else {
            0.0
        };
    }
    let mut sum = tall_product(rows, &weighted) - product(v, &product(&scores, &weighted));
    if !near.is_empty() {
        let mut scores = scores.select_columns(&near).transpose();
        for (mut row, residual) in scores.row_iter_mut().zip(residuals.column_iter()) {
            let norm = residual.norm();
            row *= if norm > ON_THE_SUBSPACE {
                1.0 / norm
            } else {
                0.0
            };
        }
        sum += tall_product(&residuals, &scores);
    }
    sum
}

/// The rows, split by their distance to a subspace.
struct Split {
    /// Vᵀx, a column each.
    scores: DMatrix<f64>,
    /// ‖Qx‖² of the far rows; 0 for the near ones.
    squares: Vec<f64>,
    /// Indices of the near rows, and their Qx.
    near: Vec<usize>,
    residuals: DMatrix<f64>,
}

impl Split {
    fn new(rows: &DMatrix<f64>, v: &DMatrix<f64>) -> Self {
        let scores = tall_cross_product(rows, v).transpose();
        // Rows have length 1, or are zero.
        let mut squares: Vec<f64> = scores
            .column_iter()
            .zip(rows.column_iter())
            .map(|(s, x)| x.norm_squared() - s.norm_squared())
            .collect();
        let near: Vec<usize> = (0..squares.len())
            .filter(|&i| squares[i] < NEAR_THRESHOLD)
            .collect();
        let mut residuals = rows.select_columns(&near);
        if !near.is_empty() {
            residuals -= tall_product(v, &scores.select_columns(&near));
            for &i in &near {
                squares[i] = 0.0;
            }
        }
        Self {
            scores,
            squares,
            near,
            residuals,
        }
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{linalg::cross_product, models::uniform_frame};
    use proptest::prelude::*;

    use super::*;
    use crate::{generator, parts::polar::polar, testing::gaussian_rows};

    proptest! {
        /// The gradient of one row has norm at most 1, and is 0 for the zero row.
        #[test]
        fn a_row_moves_the_sum_by_at_most_one(seed in 0_u64..1000, p in 2_usize..12, near in 0_u32..17) {
            let mut rng = generator(Some(seed)).unwrap();
            let v = uniform_frame(&mut rng, p, 1 + p / 3).unwrap();
            // Rows from far away to exactly on the subspace.
            let off = uniform_frame(&mut rng, p, 1).unwrap();
            let x = v.columns(0, 1) + off * 10_f64.powi(-(near as i32));
            let norm = x.norm();
            let gradient = descent_direction(&(x / norm.max(1e-300)), &v);
            prop_assert!(gradient.norm() <= 1.0 + 1e-12);
            let zero = descent_direction(&DMatrix::zeros(p, 1), &v);
            prop_assert!(zero.amax() == 0.0);
        }
    }

    /// The descent direction is minus the derivative of the objective along the retraction.
    #[test]
    fn descent_direction_is_the_negative_derivative() {
        let table = Table::spherised(&gaussian_rows(300, &[0.5, 0.4, 0.3, 0.2, 0.1], 4));
        let mut rng = generator(Some(9)).unwrap();
        let v = uniform_frame(&mut rng, 5, 2).unwrap();
        let descent = descent_direction(table.columns(), &v) / 300.0;
        let h = 1e-5;
        for _ in 0..5 {
            let direction = uniform_frame(&mut rng, 5, 2).unwrap();
            let tangent = &direction - &v * cross_product(&v, &direction);
            let at = |s: f64| objective(&table, &polar(&(&v + &tangent * s)).unwrap());
            let slope = (at(h) - at(-h)) / (2.0 * h);
            assert!((slope + descent.dot(&tangent)).abs() < 1e-7);
        }
    }
}
