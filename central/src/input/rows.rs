//! The curator's table: n prepared rows of one dimension.

use eigenveil_estimation::{
    linalg::{GramSum, Symmetric, cross_product, packed_to_dense, product},
    metrics::captured_share,
};
use eigenveil_shared::{Error, Result, error, preprocess::FeatureRow};
use nalgebra::DMatrix;

/// Rows gathered into one matrix for a product.
const BLOCK: usize = 256;

/// `n ≥ 1` rows of dimension `p`, each of norm at most 1. Its `Debug` output hides the values.
#[derive(Clone, Debug)]
pub struct Rows {
    rows: Vec<FeatureRow>,
    dimension: usize,
}

impl Rows {
    /// Collects prepared rows.
    ///
    /// # Errors
    /// The first error of the rows; `wrong-dimension` for a row whose dimension differs from the first one's;
    /// `invalid-request` without any.
    pub fn collect(rows: impl IntoIterator<Item = Result<FeatureRow>>) -> Result<Self> {
        let rows: Vec<FeatureRow> = rows.into_iter().collect::<Result<_>>()?;
        let dimension = rows.first().ok_or_else(no_rows_error)?.dimension();
        for (index, row) in rows.iter().enumerate() {
            check_dimension(index as u64, row, dimension)?;
        }
        Ok(Self { rows, dimension })
    }

    /// Number of rows n, at least 1.
    pub fn n(&self) -> usize {
        self.rows.len()
    }

    /// Dimension p.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Row `index`, p values.
    pub fn row(&self, index: usize) -> &[f64] {
        self.rows[index].as_slice()
    }

    /// The rows, one after another.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &FeatureRow> + Clone {
        self.rows.iter()
    }

    /// The rows as a stream, for algorithms that take one.
    pub fn stream(&self) -> impl Iterator<Item = Result<FeatureRow>> {
        self.rows.iter().cloned().map(Ok)
    }

    /// `Σxxᵀ`, `p × p`.
    pub fn sum_of_outer_products(&self) -> DMatrix<f64> {
        let mut sum = GramSum::<f64>::new(self.dimension);
        for row in &self.rows {
            sum.add(row.as_slice(), 1.0);
        }
        packed_to_dense(&sum.finish())
    }

    /// `(Σxxᵀ)·X` for `X` of `p × k`, without forming the `p × p` sum.
    pub fn multiply(&self, x: &DMatrix<f64>) -> DMatrix<f64> {
        assert_eq!(x.nrows(), self.dimension, "matrix of another dimension");
        let mut sum = DMatrix::zeros(self.dimension, x.ncols());
        for rows in self.rows.chunks(BLOCK) {
            let block = DMatrix::from_iterator(
                self.dimension,
                rows.len(),
                rows.iter().flat_map(|row| row.as_slice().iter().copied()),
            );
            sum += product(&block, &cross_product(&block, x));
        }
        sum
    }

    /// `‖XV̂‖²/‖X‖²`, X the rows: the share of their second-moment matrix that V̂ (`p × k`, orthonormal) captures, like
    /// [`captured_variance`](eigenveil_estimation::metrics::captured_variance) of that matrix.
    ///
    /// # Errors
    /// `invalid-request` unless V̂ is an orthonormal basis of the rows' dimension and a row is not zero.
    pub fn captured_variance(&self, estimated: &DMatrix<f64>) -> Result<f64> {
        if estimated.nrows() != self.dimension {
            return Err(Error::invalid_request(format!(
                "the estimate has {} rows and the table {} columns; they must be equal",
                estimated.nrows(),
                self.dimension
            )));
        }
        let squares = |row: &FeatureRow| row.as_slice().iter().map(|x| x * x).sum::<f64>();
        let total = self.rows.iter().map(squares).sum();
        captured_share(estimated, &self.multiply(estimated), total)
    }
}

/// `Σxxᵀ`, given by its products.
impl Symmetric for Rows {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        self.multiply(block)
    }
}

pub(crate) fn no_rows_error() -> Error {
    Error::invalid_request("there are no rows; give at least one")
}

/// `wrong-dimension` unless row `index` (from 0) has `dimension` values.
pub(crate) fn check_dimension(index: u64, row: &FeatureRow, dimension: usize) -> Result<()> {
    if row.dimension() == dimension {
        return Ok(());
    }
    Err(error!(
        WrongDimension,
        "row {} has {} values, not {dimension}",
        index + 1,
        row.dimension()
    ))
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{linalg::orthonormalize, metrics::captured_variance};
    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::testing::{bounded, gaussian_rows};

    #[test]
    fn products_agree_with_the_sum() {
        // 600 rows: more than two blocks.
        let rows = gaussian_rows(600, &[0.5, 0.3, 0.2], 1);
        let x = DMatrix::from_row_slice(3, 2, &[0.1, 0.2, -0.3, 0.4, 0.5, -0.6]);
        let sum = rows.sum_of_outer_products();
        assert!((rows.multiply(&x) - &sum * &x).amax() < 1e-12);
        let naive = rows.iter().fold(DMatrix::zeros(3, 3), |sum, row| {
            let row = nalgebra::DVector::from_column_slice(row.as_slice());
            sum + &row * row.transpose()
        });
        assert!((&sum - naive).amax() < 1e-12);
        let v = orthonormalize(x).unwrap();
        let share = captured_variance(&v, &sum).unwrap();
        assert!((rows.captured_variance(&v).unwrap() - share).abs() < 1e-13);
        assert!(rows.captured_variance(&DMatrix::zeros(3, 1)).is_err());
        assert!(rows.captured_variance(&DMatrix::identity(4, 1)).is_err());
        let nothing = Rows::collect([bounded(&[0.0, 0.0])]).unwrap();
        assert!(nothing.captured_variance(&DMatrix::identity(2, 1)).is_err());
    }

    #[test]
    fn rows_of_different_length_and_empty_tables_are_rejected() {
        let error = Rows::collect([bounded(&[1.0, 0.0]), bounded(&[1.0])]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongDimension);
        assert!(error.detail().contains("row 2"));
        let none = Rows::collect([]).unwrap_err();
        assert_eq!(none.code(), ErrorCode::InvalidRequest);
    }
}
