//! Plain principal components of a symmetric matrix (Algorithm 1 of Wang & Xu after the sum).

use eigenveil_shared::{Error, Result};
use nalgebra::{DMatrix, DVector};

use crate::linalg::{
    GramSum, MIN_RELATIVE_EIGENVALUE, RowFactor, SymmetricEigen, packed_to_dense, product,
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

/// Rows less their mean, if they are centred: it is removed before anything is multiplied.
struct AroundMean<'r, I> {
    rows: &'r I,
    mean: Vec<f64>,
    n: usize,
}

impl<'a, 'r, I: Iterator<Item = &'a [f64]> + Clone> AroundMean<'r, I> {
    fn new(rows: &'r I, p: usize, centred: bool) -> Result<Self> {
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
        Ok(Self { rows, mean, n })
    }

    fn each(&self, mut add: impl FnMut(&[f64])) {
        let mut difference = vec![0.0; self.mean.len()];
        for row in self.rows.clone() {
            for ((entry, x), mean) in difference.iter_mut().zip(row).zip(&self.mean) {
                *entry = x - mean;
            }
            add(&difference);
        }
    }

    /// `Σxxᵀ`.
    fn sum(&self) -> DMatrix<f64> {
        let mut sum = GramSum::<f64>::new(self.mean.len());
        self.each(|row| sum.add(row, 1.0));
        packed_to_dense(&sum.finish())
    }
}

/// `(1/n)Σxxᵀ` of rows of dimension `p`, or their covariance if they are `centred`.
pub fn moment_of_rows<'a>(
    rows: &(impl Iterator<Item = &'a [f64]> + Clone),
    p: usize,
    centred: bool,
) -> Result<DMatrix<f64>> {
    let rows = AroundMean::new(rows, p, centred)?;
    Ok(rows.sum() / rows.n as f64)
}

/// The `k` leading eigenpairs of [`moment_of_rows`]. Where the sum has lost the k-th pair beside the first, the pairs
/// come from the rows themselves ([`RowFactor`]).
pub fn pca_of_rows<'a>(
    rows: &(impl Iterator<Item = &'a [f64]> + Clone),
    p: usize,
    centred: bool,
    k: usize,
) -> Result<SymmetricEigen> {
    let rows = AroundMean::new(rows, p, centred)?;
    let mut leading = top_k(&rows.sum(), k)?;
    if leading.values[k - 1] < MIN_RELATIVE_EIGENVALUE * leading.values[0] {
        let mut factor = RowFactor::new(p);
        rows.each(|row| factor.add(row));
        leading = factor.top_k(k)?;
    }
    leading.values /= rows.n as f64;
    Ok(leading)
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
        let covariance = moment_of_rows(&rows, 4, true).unwrap();
        assert!((covariance[(0, 1)] + 4.0).abs() < 1e-12, "{covariance}");
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
