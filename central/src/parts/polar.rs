//! The nearest orthonormal frame.

use eigenveil_estimation::linalg::{
    SymmetricEigen, cross_product, orthonormalize, product, symmetric_eigen,
};
use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

/// A Gram matrix with a larger ratio of smallest to largest eigenvalue needs no QR factorisation first.
const WELL_CONDITIONED: f64 = 1e-4;

/// `P_{O(D,r)}(A) = A(AᵀA)^{−1/2}`: the orthonormal frame nearest to A (`D × r`), its polar factor (Fan & Hoffman
/// 1955).
///
/// Computed from the `r × r` Gram matrix if A is well conditioned (such as a frame after a short step); otherwise after
/// a QR factorisation, because a Gram matrix squares the condition number.
pub(crate) fn polar(a: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let gram = symmetric_eigen(&cross_product(a, a))?;
    let (largest, smallest) = (gram.values.max(), gram.values.min());
    // Written so that NaN fails.
    if smallest > WELL_CONDITIONED * largest && largest.is_finite() {
        let mut frame = product(a, &inverse_root(&gram));
        // One Newton–Schulz step squares the rounding error, up to 1e-12.
        let gram = cross_product(&frame, &frame);
        let r = gram.ncols();
        let correction = DMatrix::identity(r, r) * 1.5 - gram * 0.5;
        frame = product(&frame, &correction);
        return Ok(frame);
    }
    // A = QR has the polar factor Q·polar(R).
    let q = orthonormalize(a.clone())?;
    let mut r = cross_product(&q, a);
    for _ in 0..2 {
        let gram = symmetric_eigen(&cross_product(&r, &r))?;
        if gram.values.min() <= 1e-20 * gram.values.max() {
            return Err(Error::estimate_failed(
                "the columns of a frame are linearly dependent: the noise swamps it, or the step is too long; use a larger budget, a smaller step-size or a smaller k",
            ));
        }
        r *= inverse_root(&gram);
    }
    Ok(product(&q, &r))
}

/// `G^(−1/2)` of a Gram matrix.
fn inverse_root(gram: &SymmetricEigen) -> DMatrix<f64> {
    let mut scaled = gram.vectors.clone();
    for (mut column, value) in scaled.column_iter_mut().zip(gram.values.iter()) {
        column /= value.sqrt();
    }
    scaled * gram.vectors.transpose()
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{linalg::orthonormality_defect, models::uniform_frame};

    use super::*;
    use crate::{generator, parts::noise::EntryNoise};

    /// A = V·S with S symmetric and positive has the polar factor V, for condition numbers up to 1e4.
    #[test]
    fn polar_factor_is_recovered() {
        let mut rng = generator(Some(3)).unwrap();
        for (d, r) in [(5, 1), (20, 2), (200, 10)] {
            let frame = uniform_frame(&mut rng, d, r).unwrap();
            let turn = uniform_frame(&mut rng, r, r).unwrap();
            for condition in [1.0, 100.0, 1e4] {
                let scales = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(r, |i, _| {
                    0.3 * f64::powf(condition, i as f64 / (r as f64 - 1.0).max(1.0))
                }));
                let a = &frame * (&turn * scales * turn.transpose());
                let factor = polar(&a).unwrap();
                assert!(orthonormality_defect(&factor) < 1e-14);
                assert!(
                    (factor - &frame).amax() < 1e-12 * condition,
                    "{d} {r} {condition}"
                );
            }
        }
    }

    #[test]
    fn nearly_dependent_columns_give_a_frame() {
        let mut rng = generator(Some(1)).unwrap();
        for spread in [1.0, 1e-3, 1e-5] {
            let mut v = DMatrix::from_element(30, 4, 1.0);
            EntryNoise::Gaussian { sd: spread }.add_to(&mut v, &mut rng);
            let defect = orthonormality_defect(&polar(&v).unwrap());
            assert!(defect < 1e-12, "{spread}: {defect}");
        }
        assert!(polar(&DMatrix::from_element(5, 2, 1.0)).is_err());
        assert!(polar(&DMatrix::from_element(5, 2, f64::NAN)).is_err());
    }
}
