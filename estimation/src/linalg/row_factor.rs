//! Principal components of a table computed from its rows, when the second moment has lost them to rounding.

use eigenveil_shared::{Error, Result};
use nalgebra::{DMatrix, DVector};

use super::{HouseholderQr, SymmetricEigen, fix_signs, leading_columns, require_rank, view};

/// Eigenvalues of a second moment below this share of the largest are lost in its rounding, or nearly: a direction is
/// known to about 2⁻⁵³ times the ratio. [`RowFactor`] keeps them down to the square of that.
pub const MIN_RELATIVE_EIGENVALUE: f64 = 1e-8;
/// Rows that are added at a time, at least.
const MIN_BLOCK: usize = 64;

/// R of the QR factorisation of a table whose rows come one after another: `RᵀR = Σxxᵀ`, `p × p`.
///
/// An f64 near 1 has 16 digits, so the square of 1e-8 vanishes next to 1. R holds the numbers themselves, so that rows
/// far from 0 (an offset 10⁸ times their spread) still show in which directions they spread. About 4 times the work of
/// the sum (Golub & Van Loan, Matrix Computations, 4th ed., 5.3.8 and 8.6.3).
#[derive(Clone, Debug)]
pub struct RowFactor {
    /// R, and the rows below it that are not in it yet.
    stack: DMatrix<f64>,
    /// Number of these rows.
    waiting: usize,
}

impl RowFactor {
    /// An empty table.
    pub fn new(p: usize) -> Self {
        Self {
            stack: DMatrix::zeros(p + p.max(MIN_BLOCK), p),
            waiting: 0,
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[f64]) {
        let p = self.stack.ncols();
        assert_eq!(row.len(), p, "row of another dimension");
        if p + self.waiting == self.stack.nrows() {
            self.reduce();
        }
        for (entry, x) in self.stack.row_mut(p + self.waiting).iter_mut().zip(row) {
            *entry = *x;
        }
        self.waiting += 1;
    }

    fn reduce(&mut self) {
        let r = HouseholderQr::new(&self.stack).r();
        self.stack.fill(0.0);
        self.stack.rows_mut(0, r.nrows()).copy_from(&r);
        self.waiting = 0;
    }

    /// The `k` largest eigenvalues of `Σxxᵀ`, descending, and their eigenvectors, `p × k`, signs as [`fix_signs`] fixes
    /// them.
    pub fn top_k(mut self, k: usize) -> Result<SymmetricEigen> {
        let p = self.stack.ncols();
        require_rank(k, p)?;
        self.reduce();
        let r = self.stack.rows(0, p).into_owned();
        let svd = view(&r)
            .svd()
            .ok()
            .filter(|_| r.iter().all(|x| x.is_finite()))
            .ok_or_else(|| Error::estimate_failed("the rows' factor has no singular values"))?;
        let (values, right) = (svd.S().column_vector(), svd.V());
        let mut vectors = leading_columns(&DMatrix::from_fn(p, p, |i, j| right[(i, j)]), k);
        fix_signs(&mut vectors);
        Ok(SymmetricEigen {
            values: DVector::from_fn(k, |j, _| values[j] * values[j]),
            vectors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::top_k;

    /// Rows at 1 that spread by 10⁻⁸ along known directions, in several blocks; the sum has lost the directions.
    #[test]
    fn directions_that_the_sum_has_lost() {
        let mut factor = RowFactor::new(4);
        let mut sum = DMatrix::<f64>::zeros(4, 4);
        for i in 0..280 {
            let (t, u) = (f64::from(i % 7 - 3), f64::from(i % 5 - 2));
            let x = [
                1.0 + 2e-8 * t,
                1.0 - 2e-8 * t,
                1.0 + 1e-8 * u,
                1.0 - 1e-8 * u,
            ];
            factor.add(&x);
            let x = DVector::from_column_slice(&x);
            sum += &x * x.transpose();
        }
        let half = 0.5_f64.sqrt();
        let of_sum = top_k(&sum, 3).unwrap();
        assert!((of_sum.vectors[(0, 1)].abs() - half).abs() > 1e-3);
        let leading = factor.top_k(3).unwrap();
        let expected = [[0.5; 4], [half, -half, 0.0, 0.0], [0.0, 0.0, half, -half]];
        for (j, expected) in expected.iter().enumerate() {
            let column = leading.vectors.column(j);
            let along: f64 = column.iter().zip(expected).map(|(a, b)| a * b).sum();
            assert!(
                (along.abs() - 1.0).abs() < 1e-10,
                "{j}: {}",
                leading.vectors
            );
        }
        assert!((leading.values[0] - 1120.0).abs() < 1e-6);
        // 8e-16·Σt² and 2e-16·Σu², the means of t² and u² being 4 and 2.
        assert!((leading.values[1] / leading.values[2] - 8.0).abs() < 1e-6);
    }

    #[test]
    fn wrong_k_and_numbers_are_errors() {
        assert!(RowFactor::new(2).top_k(0).is_err() && RowFactor::new(2).top_k(3).is_err());
        let mut bad = RowFactor::new(2);
        bad.add(&[f64::NAN, 1.0]);
        assert!(bad.top_k(1).is_err());
    }
}
