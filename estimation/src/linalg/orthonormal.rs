use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::cross_product;

/// An orthonormal basis of the columns of `matrix` (`p × k`): the Q of its QR factorisation with a
/// positive diagonal of R, so that a Gaussian matrix gives a uniformly distributed frame.
///
/// Gram–Schmidt with every projection made twice, which keeps orthogonality to rounding (Parlett's
/// "twice is enough").
///
/// # Errors
/// `estimate-failed` when the columns are dependent to 1e-12 relative or not finite.
pub fn orthonormalize(mut matrix: DMatrix<f64>) -> Result<DMatrix<f64>> {
    let k = matrix.ncols();
    for j in 0..k {
        let original = matrix.column(j).norm();
        for _ in 0..2 {
            for i in 0..j {
                let (done, mut rest) = matrix.columns_range_pair_mut(i, j);
                let overlap = done.dot(&rest);
                rest.axpy(-overlap, &done, 1.0);
            }
        }
        let left = matrix.column(j).norm();
        // Written so that NaN fails.
        if !(left > original * 1e-12 && original.is_finite()) {
            return Err(Error::estimate_failed(format!(
                "column {j} of {k} depends on the columns before it: the rank is below {k}"
            )));
        }
        matrix.column_mut(j).unscale_mut(left);
    }
    Ok(matrix)
}

/// Largest entry of `|VᵀV − I|`: 0 for orthonormal columns, 1 where a column is zero. NaN where an
/// entry is NaN.
pub fn orthonormality_defect(vectors: &DMatrix<f64>) -> f64 {
    let mut gram = cross_product(vectors, vectors);
    for i in 0..gram.nrows() {
        gram[(i, i)] -= 1.0;
    }
    if gram.iter().any(|entry| entry.is_nan()) {
        f64::NAN
    } else {
        gram.amax()
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::dmatrix;

    use super::*;

    #[test]
    fn nearly_dependent_columns_come_out_orthogonal() {
        let basis = orthonormalize(dmatrix![1.0, 1.0; 1e-8, 0.0; 0.0, 1e-8; 0.0, 0.0]).unwrap();
        assert!(orthonormality_defect(&basis) < 1e-15);
        assert!(basis[(0, 0)] > 0.0);
    }

    #[test]
    fn dependent_columns_are_rejected() {
        assert!(orthonormalize(dmatrix![1.0, 2.0; 1.0, 2.0]).is_err());
        assert!(orthonormalize(DMatrix::zeros(3, 1)).is_err());
        assert!(orthonormalize(dmatrix![f64::NAN; 1.0]).is_err());
        assert_eq!(orthonormality_defect(&DMatrix::zeros(3, 1)), 1.0);
    }
}
