//! The spherised rows as one matrix.

use eigenveil_estimation::linalg::{Symmetric, tall_cross_product, tall_product};
use nalgebra::DMatrix;

use crate::{Generator, Rows, parts::poisson};

/// The rows `x/‖x‖` as columns; zero rows stay zero.
pub(super) struct Table {
    columns: DMatrix<f64>,
}

impl Table {
    pub(super) fn spherised(rows: &Rows) -> Self {
        let (p, n) = (rows.dimension(), rows.n());
        let values = rows.iter().flat_map(|row| row.as_slice().iter().copied());
        let mut columns = DMatrix::from_iterator(p, n, values);
        for mut column in columns.column_iter_mut() {
            let norm = column.norm();
            if norm > 0.0 {
                column /= norm;
            }
        }
        Self { columns }
    }

    pub(super) fn dimension(&self) -> usize {
        self.columns.nrows()
    }

    pub(super) fn n(&self) -> usize {
        self.columns.ncols()
    }

    pub(super) fn columns(&self) -> &DMatrix<f64> {
        &self.columns
    }

    /// Each row with probability `rate`, independently.
    pub(super) fn poisson_sample(&self, rate: f64, rng: &mut Generator) -> DMatrix<f64> {
        let mut chosen = Vec::new();
        poisson::poisson_sample(self.n(), rate, rng, |index| chosen.push(index));
        self.columns.select_columns(&chosen)
    }
}

/// `Σxxᵀ`, given by its products.
impl Symmetric for Table {
    fn dimension(&self) -> usize {
        self.columns().nrows()
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        tall_product(self.columns(), &tall_cross_product(self.columns(), block))
    }
}
