//! The second-moment matrix as `sparse-pca` needs it.

use eigenveil_estimation::linalg::{
    GramSum, Symmetric, cross_product, packed_to_dense, product, tall_cross_product, tall_product,
};
use eigenveil_shared::preprocess::FeatureRow;
use nalgebra::DMatrix;

use crate::Rows;

/// Maximum dimension whose matrix is formed if there are fewer rows: it takes 128 MB.
const MAX_MATRIX_DIMENSION: usize = 4_000;
/// Columns of the matrix computed at a time.
const PANEL_COLUMNS: usize = 256;

/// `(1/n)Σxxᵀ`.
pub(super) enum SecondMoment {
    /// A `p × p` matrix.
    Matrix(DMatrix<f64>),
    /// The rows over √n, one column each (`p × n`), if there are many columns and fewer rows.
    Rows(DMatrix<f64>),
}

impl SecondMoment {
    pub(super) fn new(rows: &Rows) -> Self {
        let (n, p) = (rows.n(), rows.dimension());
        if p <= n || p <= MAX_MATRIX_DIMENSION {
            return Self::Matrix(rows.sum_of_outer_products() / n as f64);
        }
        let scale = (n as f64).sqrt();
        let values = rows.iter().flat_map(FeatureRow::as_slice);
        Self::Rows(DMatrix::from_iterator(p, n, values.map(|x| x / scale)))
    }

    /// The diagonal, and in each row the largest off-diagonal magnitude.
    pub(super) fn diagonal_and_row_maxima(&self) -> (Vec<f64>, Vec<f64>) {
        let p = self.dimension();
        let (mut diagonal, mut largest) = (vec![0.0; p], vec![0.0_f64; p]);
        for from in (0..p).step_by(PANEL_COLUMNS) {
            let width = PANEL_COLUMNS.min(p - from);
            let panel = match self {
                Self::Matrix(matrix) => matrix.columns(from, width).into_owned(),
                Self::Rows(rows) => tall_product(rows, &rows.rows(from, width).transpose()),
            };
            for (place, column) in panel.column_iter().enumerate() {
                let diagonal_index = from + place;
                for (row, entry) in column.iter().enumerate() {
                    if row == diagonal_index {
                        diagonal[diagonal_index] = *entry;
                    } else {
                        largest[diagonal_index] = largest[diagonal_index].max(entry.abs());
                    }
                }
            }
        }
        (diagonal, largest)
    }

    pub(super) fn block(&self, coordinates: &[usize]) -> DMatrix<f64> {
        match self {
            Self::Matrix(matrix) => matrix.select_rows(coordinates).select_columns(coordinates),
            Self::Rows(rows) => {
                let part = rows.select_rows(coordinates);
                let mut sum = GramSum::<f64>::new(coordinates.len());
                for column in part.column_iter() {
                    sum.add(column.as_slice(), 1.0);
                }
                packed_to_dense(&sum.finish())
            }
        }
    }
}

impl Symmetric for SecondMoment {
    fn dimension(&self) -> usize {
        match self {
            Self::Matrix(matrix) | Self::Rows(matrix) => matrix.nrows(),
        }
    }

    /// Zero rows of the block are skipped.
    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let active: Vec<usize> = (0..block.nrows())
            .filter(|&row| block.row(row).iter().any(|x| *x != 0.0))
            .collect();
        let factor = block.select_rows(&active);
        match self {
            Self::Matrix(matrix) => product(&matrix.select_columns(&active), &factor),
            Self::Rows(rows) => {
                let scores = if active.len() < block.nrows() {
                    cross_product(&rows.select_rows(&active), &factor)
                } else {
                    tall_cross_product(rows, block)
                };
                tall_product(rows, &scores)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gaussian_rows;

    #[test]
    fn both_representations_agree() {
        let rows = gaussian_rows(7, &[0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1], 3);
        let exact = rows.sum_of_outer_products() / 7.0;
        let by_rows = DMatrix::from_iterator(
            9,
            7,
            rows.iter()
                .flat_map(FeatureRow::as_slice)
                .map(|x| x / 7.0_f64.sqrt()),
        );
        let mut sparse = DMatrix::from_fn(9, 2, |i, j| (i + 3 * j) as f64 - 4.0);
        let full = sparse.clone();
        sparse.fill_row(2, 0.0);
        sparse.fill_row(7, 0.0);
        let off_diagonal = |i: usize| {
            let off_diagonal = (0..9).filter(|&j| j != i).map(|j| exact[(i, j)].abs());
            off_diagonal.fold(0.0, f64::max)
        };
        for representation in [SecondMoment::new(&rows), SecondMoment::Rows(by_rows)] {
            for block in [&sparse, &full] {
                assert!((representation.times(block) - &exact * block).amax() < 1e-14);
            }
            let part = exact.select_rows(&[1, 4, 8]).select_columns(&[1, 4, 8]);
            assert!((representation.block(&[1, 4, 8]) - part).amax() < 1e-15);
            let (diagonal, largest) = representation.diagonal_and_row_maxima();
            for i in 0..9 {
                assert!((diagonal[i] - exact[(i, i)]).abs() < 1e-15);
                assert!((largest[i] - off_diagonal(i)).abs() < 1e-15);
            }
        }
    }
}
