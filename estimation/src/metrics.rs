//! How far an estimated subspace is from the true one, and how well a support was found.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use crate::linalg::{cross_product, orthonormality_defect, product, symmetric_eigenvalues};

/// Columns further than this from orthonormal are not a basis of a subspace.
const ORTHONORMAL_TOLERANCE: f64 = 1e-6;

/// `‖V̂V̂ᵀ − VVᵀ‖_F`, the error of the source papers: 0 for the same subspace, `√(2k)` for orthogonal ones.
///
/// Computed from the residuals `(I − V̂V̂ᵀ)V` and `(I − VVᵀ)V̂`, whose squared norms add up to it;
/// `2k − 2‖V̂ᵀV‖_F²` is the same number but loses everything below 1e-8.
///
/// # Errors
/// `invalid-request` unless both are orthonormal bases (`p × k`, to 1e-6) of the same shape: a
/// collapsed estimate would otherwise score `√k`, *better* than an orthogonal one.
pub fn projector_distance(estimated: &DMatrix<f64>, truth: &DMatrix<f64>) -> Result<f64> {
    require_comparable(estimated, truth)?;
    let squared =
        residual(estimated, truth).norm_squared() + residual(truth, estimated).norm_squared();
    Ok(squared.sqrt())
}

/// The largest principal angle in radians, between 0 and π/2; accurate for tiny angles too.
pub fn largest_principal_angle(estimated: &DMatrix<f64>, truth: &DMatrix<f64>) -> Result<f64> {
    require_comparable(estimated, truth)?;
    let rest = residual(estimated, truth);
    let sine = symmetric_eigenvalues(&cross_product(&rest, &rest))?[0]
        .max(0.0)
        .sqrt();
    let overlap = cross_product(estimated, truth);
    let cosines = symmetric_eigenvalues(&cross_product(&overlap, &overlap))?;
    let cosine = cosines[cosines.len() - 1].max(0.0).sqrt();
    // Each of sine and cosine is accurate where the other is flat.
    Ok(sine.atan2(cosine))
}

/// `tr(V̂ᵀCV̂) / tr C`: the share of the variance `C` (`p × p`) that the estimated subspace holds.
pub fn captured_variance(estimated: &DMatrix<f64>, covariance: &DMatrix<f64>) -> Result<f64> {
    require_basis(estimated, "the estimate")?;
    if covariance.shape() != (estimated.nrows(), estimated.nrows()) {
        return Err(Error::invalid_request(format!(
            "the covariance is {:?}; a basis of dimension {p} needs {p} × {p}",
            covariance.shape(),
            p = estimated.nrows()
        )));
    }
    captured_share(
        estimated,
        &product(covariance, estimated),
        covariance.trace(),
    )
}

/// [`captured_variance`] where C itself is not at hand: from `image` = CV̂ (`p × k`) and `total` = tr C.
pub fn captured_share(estimated: &DMatrix<f64>, image: &DMatrix<f64>, total: f64) -> Result<f64> {
    require_basis(estimated, "the estimate")?;
    if image.shape() != estimated.shape() {
        return Err(Error::invalid_request(format!(
            "the image is {:?} and the estimate {:?}; they must have one shape",
            image.shape(),
            estimated.shape()
        )));
    }
    if total == 0.0 {
        return Err(Error::invalid_request(
            "the rows do not vary: the trace of their covariance is 0, and no direction has a share of it",
        ));
    }
    if !(total.is_finite() && total > 0.0) {
        return Err(Error::invalid_request(format!(
            "the covariance has trace {total}; it must be positive"
        )));
    }
    Ok(image.dot(estimated) / total)
}

/// How well a set of selected rows matches the true one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SupportScore {
    /// Share of the selected rows that are true; 1 when nothing was selected.
    pub precision: f64,
    /// Share of the true rows that were selected; 1 when there is none.
    pub recall: f64,
    /// Harmonic mean of the two.
    pub f1: f64,
}

/// Precision, recall and F1 of `selected` rows against the `true_rows` (indices, in any order).
///
/// ```
/// use eigenveil_estimation::metrics::support_score;
/// let score = support_score(&[1, 2, 3, 9], &[1, 2, 3, 4, 5, 6]);
/// assert_eq!((score.precision, score.recall), (0.75, 0.5));
/// assert!((score.f1 - 0.6).abs() < 1e-15);
/// ```
pub fn support_score(selected: &[usize], true_rows: &[usize]) -> SupportScore {
    use std::collections::BTreeSet;
    let selected: BTreeSet<usize> = selected.iter().copied().collect();
    let true_rows: BTreeSet<usize> = true_rows.iter().copied().collect();
    let hits = selected.intersection(&true_rows).count() as f64;
    let share = |of: usize| if of == 0 { 1.0 } else { hits / of as f64 };
    let (precision, recall) = (share(selected.len()), share(true_rows.len()));
    let f1 = if precision + recall > 0.0 {
        2.0 * precision * recall / (precision + recall)
    } else {
        0.0
    };
    SupportScore {
        precision,
        recall,
        f1,
    }
}

/// `(I − BBᵀ)A`.
fn residual(basis: &DMatrix<f64>, of: &DMatrix<f64>) -> DMatrix<f64> {
    let once = of - product(basis, &cross_product(basis, of));
    // A second pass removes what rounding of the first left along the basis.
    &once - product(basis, &cross_product(basis, &once))
}

fn require_comparable(estimated: &DMatrix<f64>, truth: &DMatrix<f64>) -> Result<()> {
    if estimated.shape() != truth.shape() {
        return Err(Error::invalid_request(format!(
            "the estimate has the shape {:?} and the truth {:?}; a distance is defined only between subspaces of the same dimension and rank",
            estimated.shape(),
            truth.shape()
        )));
    }
    require_basis(estimated, "the estimate")?;
    require_basis(truth, "the truth")
}

fn require_basis(basis: &DMatrix<f64>, name: &str) -> Result<()> {
    if basis.ncols() == 0 || basis.ncols() > basis.nrows() {
        return Err(Error::invalid_request(format!(
            "{name} has shape {:?}; a basis is p × k with 1 ≤ k ≤ p",
            basis.shape()
        )));
    }
    let defect = orthonormality_defect(basis);
    if defect.is_nan() || defect > ORTHONORMAL_TOLERANCE {
        return Err(Error::invalid_request(format!(
            "{name} is not an orthonormal basis of rank {} (off by {defect:.1e}; 1e-6 is allowed)",
            basis.ncols()
        )));
    }
    Ok(())
}

/// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F where V̂ is drawn at random: √(2k(1 − k/p)).
pub fn random_error(p: usize, k: usize) -> f64 {
    (2.0 * k as f64 * (1.0 - k as f64 / p as f64)).sqrt()
}

/// The largest ‖V̂V̂ᵀ−VVᵀ‖_F there is: √(2·min(k, p−k)).
pub fn max_error(p: usize, k: usize) -> f64 {
    (2.0 * k.min(p.saturating_sub(k)) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use nalgebra::dmatrix;

    use eigenveil_shared::ErrorCode;

    use super::*;

    /// Two frames of rank 2 in 5 dimensions whose principal angles are `a` and `b`.
    fn frames(a: f64, b: f64) -> (DMatrix<f64>, DMatrix<f64>) {
        let truth = DMatrix::from_fn(5, 2, |i, j| f64::from(i == j));
        let mut estimate = DMatrix::zeros(5, 2);
        (estimate[(0, 0)], estimate[(2, 0)]) = (a.cos(), a.sin());
        (estimate[(1, 1)], estimate[(3, 1)]) = (b.cos(), b.sin());
        // A rotation inside the subspace must not matter.
        let turn = dmatrix![0.6, -0.8; 0.8, 0.6];
        (estimate * turn, truth)
    }

    #[test]
    fn distances_follow_from_the_principal_angles() {
        for (a, b) in [
            (0.3, 1.1),
            (1e-9, 2e-9),
            (1e-13, 0.0),
            (0.0, 0.0),
            (1.5, 1e-10),
        ] {
            let (estimate, truth) = frames(a, b);
            let sine = (a.sin().powi(2) + b.sin().powi(2)).sqrt();
            let tolerance = 1e-6 * sine + 4e-16;
            let distance = projector_distance(&estimate, &truth).unwrap();
            assert!(
                (distance - 2.0_f64.sqrt() * sine).abs() < 2.0_f64.sqrt() * tolerance,
                "{a} {b}"
            );
            let angle = largest_principal_angle(&estimate, &truth).unwrap();
            assert!(
                (angle - a.max(b)).abs() < 1e-6 * a.max(b) + 4e-16,
                "{angle} {a} {b}"
            );
        }
    }

    #[test]
    fn a_collapsed_estimate_is_an_error_not_a_score() {
        let truth = DMatrix::<f64>::identity(12, 10);
        let collapsed = DMatrix::<f64>::zeros(12, 10);
        // Better than the √20 of an orthogonal estimate.
        let plain = (&collapsed * collapsed.transpose() - &truth * truth.transpose()).norm();
        assert!((plain - 10.0_f64.sqrt()).abs() < 1e-12);
        for wrong in [
            collapsed,
            DMatrix::identity(12, 9),
            DMatrix::from_element(12, 10, f64::NAN),
        ] {
            let error = projector_distance(&wrong, &truth).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn captured_variance_is_a_share() {
        let covariance = DMatrix::from_diagonal(&nalgebra::dvector![3.0, 2.0, 1.0]);
        let leading = DMatrix::from_fn(3, 2, |i, j| f64::from(i == j));
        assert!((captured_variance(&leading, &covariance).unwrap() - 5.0 / 6.0).abs() < 1e-15);
        assert!(captured_variance(&leading, &DMatrix::zeros(3, 3)).is_err());
        assert!(captured_variance(&leading, &DMatrix::zeros(2, 2)).is_err());
    }

    #[test]
    fn empty_supports_have_scores() {
        let nothing = support_score(&[], &[1]);
        assert_eq!(
            (nothing.precision, nothing.recall, nothing.f1),
            (1.0, 0.0, 0.0)
        );
        let wrong = support_score(&[2], &[1]);
        assert_eq!((wrong.precision, wrong.recall, wrong.f1), (0.0, 0.0, 0.0));
        assert_eq!(support_score(&[1, 1], &[1]).f1, 1.0);
    }
}
