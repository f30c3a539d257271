//! Plain principal components of a symmetric matrix (Algorithm 1 of Wang & Xu after the sum).

use eigenveil_shared::{Error, Result};
use nalgebra::{DMatrix, DVector};

use crate::linalg::{
    GramSum, MIN_SHARE_OF_SUM, RowFactor, SymmetricEigen, packed_to_dense, product,
    symmetric_eigenvalues, top_k,
};

/// The leading `k` components of a second moment, and its whole spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Pca {
    /// `p × k` orthonormal loadings, leading first; the loading of largest magnitude of each is positive.
    pub vectors: DMatrix<f64>,
    /// The `k` leading eigenvalues, descending.
    pub values: DVector<f64>,
    /// All `p` eigenvalues, descending.
    pub spectrum: DVector<f64>,
}

/// Top-`k` eigenvectors of the symmetric `moment` (`p × p`).
pub fn pca(moment: &DMatrix<f64>, k: usize) -> Result<Pca> {
    let leading = top_k(moment, k)?;
    let spectrum = symmetric_eigenvalues(moment)?;
    Ok(Pca {
        vectors: leading.vectors,
        values: leading.values,
        spectrum,
    })
}

/// The `k` leading eigenpairs of `(1/n)Σxxᵀ` of rows of dimension `p`, or of their covariance if they are `centred`: the
/// mean is then removed before anything is multiplied. Where the sum has lost the k-th pair beside the first, the pairs
/// come from the rows themselves ([`RowFactor`]).
pub fn pca_of_rows<'a>(
    rows: &(impl Iterator<Item = &'a [f64]> + Clone),
    p: usize,
    centred: bool,
    k: usize,
) -> Result<SymmetricEigen> {
    let n = rows.clone().count();
    if n == 0 {
        return Err(Error::invalid_request(
            "there are no rows; give at least one",
        ));
    }
    let mut mean = vec![0.0; p];
    if centred {
        for row in rows.clone() {
            for (mean, x) in mean.iter_mut().zip(row) {
                *mean += x / n as f64;
            }
        }
    }
    let mut centred_row = vec![0.0; p];
    let mut each = |add: &mut dyn FnMut(&[f64])| {
        for row in rows.clone() {
            for ((entry, x), mean) in centred_row.iter_mut().zip(row).zip(&mean) {
                *entry = x - mean;
            }
            add(&centred_row);
        }
    };
    let mut sum = GramSum::<f64>::new(p);
    each(&mut |row| sum.add(row, 1.0));
    let mut found = top_k(&packed_to_dense(&sum.finish()), k)?;
    if found.values[k - 1] < MIN_SHARE_OF_SUM * found.values[0] {
        let mut factor = RowFactor::new(p);
        each(&mut |row| factor.add(row));
        found = factor.top_k(k)?;
    }
    found.values /= n as f64;
    Ok(found)
}

/// `part / whole` clamped to `[0, 1]`; 0 where the whole is not positive.
pub(crate) fn share_of(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole).clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// `vᵀSv` for every column `v` of `vectors`.
pub(crate) fn rayleigh_quotients(matrix: &DMatrix<f64>, vectors: &DMatrix<f64>) -> DVector<f64> {
    let image = product(matrix, vectors);
    DVector::from_fn(vectors.ncols(), |j, _| {
        image.column(j).dot(&vectors.column(j))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows around 10⁸: the covariance's direction, and the same one behind the mean's.
    #[test]
    fn an_offset_does_not_hide_the_spread() {
        let rows: Vec<Vec<f64>> = (0..70)
            .map(|i| {
                let (t, u) = (f64::from(i % 7 - 3), 0.25 * f64::from(i % 5 - 2));
                vec![1e8 + t, 1e8 - t, 1e8 + u, 1e8 - u]
            })
            .collect();
        let rows = rows.iter().map(Vec::as_slice);
        let half = 0.5_f64.sqrt();
        let around = pca_of_rows(&rows, 4, true, 2).unwrap();
        assert!((around.vectors[(0, 0)] - half).abs() < 1e-12, "{around:?}");
        assert!((around.values[0] - 8.0).abs() < 1e-12);
        assert!((around.vectors[(2, 1)] - half).abs() < 1e-12, "{around:?}");
        let raw = pca_of_rows(&rows, 4, false, 2).unwrap();
        assert!((raw.vectors[(3, 0)] - 0.5).abs() < 1e-12);
        assert!((raw.vectors[(0, 1)] - half).abs() < 1e-6, "{raw:?}");
    }

    #[test]
    fn signs_are_fixed_and_shares_bounded() {
        let moment = nalgebra::dmatrix![2.0, -1.0; -1.0, -5.0];
        let result = pca(&moment, 2).unwrap();
        assert!(result.vectors[(0, 0)] > 0.0 && result.vectors[(1, 1)] > 0.0);
        let tiny = pca(&nalgebra::dmatrix![0.0], 1).unwrap();
        assert_eq!(tiny.vectors.as_slice(), &[1.0]);
        assert_eq!(
            [3.0, 5.0, -1.0].map(|part| share_of(part, 4.0)),
            [0.75, 1.0, 0.0]
        );
        // A trace may be negative: there is no share to speak of.
        assert_eq!([0.0, -4.0].map(|whole| share_of(1.0, whole)), [0.0, 0.0]);
    }
}
