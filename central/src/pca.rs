//! Plain PCA of the prepared rows: not private, the reference of every comparison.

use eigenveil_estimation::{linalg, pca::pca as pca_of_moment};
use eigenveil_shared::{Result, packed::PackedSymmetric, preprocess::FeatureRow};
use nalgebra::{DMatrix, DVector};

use crate::rows::{check_dimension, no_rows_error};

/// Result of non-private PCA.
#[derive(Clone, Debug)]
pub struct Reference {
    /// `p × k` orthonormal loadings, leading first.
    pub subspace: DMatrix<f64>,
    /// All p eigenvalues of the second-moment matrix, descending.
    pub eigenvalues: Vec<f64>,
    /// The second-moment matrix `(1/n)Σxxᵀ`, `p × p`; for [`centred_pca`], the covariance around the mean.
    pub moment: DMatrix<f64>,
    /// Rows used.
    pub n: u64,
}

/// Top-`k` eigenvectors of the second-moment matrix of the rows. **No privacy whatsoever.**
///
/// Rows are consumed one at a time; memory is O(p²).
pub fn pca(
    rows: impl IntoIterator<Item = Result<FeatureRow>>,
    dimension: usize,
    k: usize,
) -> Result<Reference> {
    let (moment, _, n) = add_up(rows, dimension, false)?;
    fit(moment, n, k)
}

/// Like [`pca`], of the covariance `(1/n)Σ(x−m)(x−m)ᵀ` around the rows' mean: the reference of studies with private
/// centring. **No privacy whatsoever.**
pub fn centred_pca(
    rows: impl IntoIterator<Item = Result<FeatureRow>>,
    dimension: usize,
    k: usize,
) -> Result<Reference> {
    let (moment, mean, n) = add_up(rows, dimension, true)?;
    fit(moment - &mean * mean.transpose(), n, k)
}

/// The means of xxᵀ and of x over the rows, and the number of rows. `from_first`: x is the difference from the first row,
/// so that a mean far from 0 is gone before anything is multiplied (in one pass).
fn add_up(
    rows: impl IntoIterator<Item = Result<FeatureRow>>,
    dimension: usize,
    from_first: bool,
) -> Result<(DMatrix<f64>, DVector<f64>, u64)> {
    let mut sum = PackedSymmetric::zeros(dimension);
    let mut mean = DVector::zeros(dimension);
    let mut origin = DVector::zeros(dimension);
    let mut n = 0_u64;
    for row in rows {
        let row = row?;
        check_dimension(n, &row, dimension)?;
        let row = DVector::from_column_slice(row.as_slice());
        if n == 0 && from_first {
            origin.copy_from(&row);
        }
        let row = row - &origin;
        sum.add_outer(row.as_slice(), 1.0);
        mean += row;
        n += 1;
    }
    if n == 0 {
        return Err(no_rows_error());
    }
    sum.scale(1.0 / n as f64);
    Ok((linalg::packed_to_dense(&sum), mean / n as f64, n))
}

fn fit(moment: DMatrix<f64>, n: u64, k: usize) -> Result<Reference> {
    let found = pca_of_moment(&moment, k)?;
    Ok(Reference {
        subspace: found.vectors,
        eigenvalues: found.spectrum.iter().copied().collect(),
        moment,
        n,
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        ErrorCode,
        preprocess::{Norm, Preprocessing, Row},
    };

    use super::*;

    fn prepared(rows: &[Vec<f64>], norm: Norm) -> Vec<Result<FeatureRow>> {
        let preprocessing = Preprocessing::new(rows[0].len(), norm);
        let preprocessor = preprocessing.preprocessor().unwrap();
        rows.iter()
            .map(|row| preprocessor.prepare_features(&Row::new(row.clone())))
            .collect()
    }

    #[test]
    fn finds_the_axis_of_an_ellipse() {
        // Points (cos t, sin t) stretched along (3, 4)/5: the leading direction is known in closed form.
        let rows: Vec<Vec<f64>> = (0..360)
            .map(|degree| {
                let t = f64::from(degree).to_radians();
                let (along, across) = (0.9 * t.cos(), 0.2 * t.sin());
                vec![0.6 * along - 0.8 * across, 0.8 * along + 0.6 * across]
            })
            .collect();
        let fit = pca(prepared(&rows, Norm::Require { radius: 1.0 }), 2, 1).unwrap();
        assert!((fit.subspace[0] - 0.6).abs() < 1e-12 && (fit.subspace[1] - 0.8).abs() < 1e-12);
        assert!(
            (fit.eigenvalues[0] - 0.405).abs() < 1e-12 && (fit.eigenvalues[1] - 0.02).abs() < 1e-12
        );
    }

    /// Points around (0.3, 0.4): the first eigenvector of the second-moment matrix is the mean, that of the covariance
    /// is orthogonal to it.
    #[test]
    fn centring_removes_the_mean() {
        let rows: Vec<Vec<f64>> = [-2.0, -1.0, 0.0, 1.0, 2.0]
            .iter()
            .map(|t| vec![0.3 - 0.08 * t, 0.4 + 0.06 * t])
            .collect();
        let around = |rows| centred_pca(rows, 2, 1).unwrap();
        let fit = around(prepared(&rows, Norm::Require { radius: 1.0 }));
        assert!((fit.subspace[0] - 0.8).abs() < 1e-12 && (fit.subspace[1] + 0.6).abs() < 1e-12);
        assert!((fit.eigenvalues[0] - 0.02).abs() < 1e-12 && fit.eigenvalues[1].abs() < 1e-12);
        let plain = pca(prepared(&rows, Norm::Require { radius: 1.0 }), 2, 1).unwrap();
        assert!((plain.subspace[0] - 0.6).abs() < 1e-12 && (plain.subspace[1] - 0.8).abs() < 1e-12);
    }

    /// A mean 10⁸ times as long as the spread: its square has no digits left for the spread's.
    #[test]
    fn a_mean_far_from_0_leaves_the_covariance() {
        let rows: Vec<Vec<f64>> = (0..100)
            .map(|i| {
                let t = 5e-9 * f64::from(i % 7 - 3);
                vec![0.5 + t, 0.5 - t, 0.5]
            })
            .collect();
        let fit = centred_pca(prepared(&rows, Norm::Require { radius: 1.0 }), 3, 1).unwrap();
        let half = 0.5_f64.sqrt();
        assert!((fit.subspace[0] - half).abs() < 1e-6 && (fit.subspace[1] + half).abs() < 1e-6);
        assert!(
            (fit.eigenvalues[0] / 2.024e-16 - 1.0).abs() < 1e-3,
            "{:?}",
            fit.eigenvalues
        );
    }

    #[test]
    fn wrong_input_is_an_error() {
        let rows = vec![vec![1.0, 0.0]];
        for (dimension, k, code) in [
            (2, 0, ErrorCode::InvalidRequest),
            (2, 3, ErrorCode::InvalidRequest),
            (3, 1, ErrorCode::WrongDimension),
        ] {
            let error = pca(prepared(&rows, Norm::Normalize), dimension, k).unwrap_err();
            assert_eq!(error.code(), code);
        }
        assert!(pca(Vec::new(), 2, 1).is_err());
        let nan = prepared(&[vec![f64::NAN, 0.0]], Norm::Normalize);
        assert_eq!(pca(nan, 2, 1).unwrap_err().code(), ErrorCode::RowNotFinite);
    }
}
