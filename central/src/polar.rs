//! The nearest orthonormal frame.

use eigenveil_estimation::linalg::{cross_product, orthonormalize, product, symmetric_eigen};
use eigenveil_shared::{Error, ErrorCode, Result};
use nalgebra::DMatrix;

/// `P_{O(D,r)}(A) = A(AᵀA)^{−1/2}`: the orthonormal frame nearest to A (`D × r`), its polar factor (Fan & Hoffman 1955).
///
/// By the `r × r` Gram matrix, twice: the second pass works on a frame that is orthonormal up to the rounding of the first.
///
/// ```
/// use nalgebra::dmatrix;
/// let frame = eigenveil_central::robust::polar(&dmatrix![2.0, 0.0; 0.0, 3.0; 0.0, 0.0])?;
/// assert!((frame - dmatrix![1.0, 0.0; 0.0, 1.0; 0.0, 0.0]).amax() < 1e-15);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Errors
/// `estimate-failed` where the columns are dependent to 1e-10 or not finite.
pub fn polar(a: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    // QR first, which no conditioning spoils: A = QR has the polar factor Q·polar(R).
    let q = orthonormalize(a.clone())?;
    let r = cross_product(&q, a);
    let turned = inverse_root_of_gram(&r)?;
    Ok(product(&q, &turned))
}

/// `R(RᵀR)^{−1/2}`, twice.
fn inverse_root_of_gram(r: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let mut frame = r.clone();
    for _ in 0..2 {
        let eigen = symmetric_eigen(&cross_product(&frame, &frame))?;
        let (largest, smallest) = (eigen.values.max(), eigen.values.min());
        if smallest <= 1e-20 * largest {
            return Err(Error::new(
                ErrorCode::EstimateFailed,
                "the columns of a frame are dependent: the noise swamps it, or the step is too long; take a larger budget, a smaller --step or a smaller k",
            ));
        }
        let mut scaled = eigen.vectors.clone();
        for (mut column, value) in scaled.column_iter_mut().zip(eigen.values.iter()) {
            column /= value.sqrt();
        }
        frame *= scaled * eigen.vectors.transpose();
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{linalg::orthonormality_defect, models::uniform_frame};

    use super::*;
    use crate::{generator, noise::EntryNoise};

    /// A = V·S with S symmetric and positive has the polar factor V, for condition numbers up to 1e4.
    #[test]
    fn it_finds_the_factor_a_matrix_was_made_of() {
        let mut rng = generator(Some(3)).unwrap();
        for (d, r) in [(5, 1), (20, 2), (200, 10)] {
            let frame = uniform_frame(&mut rng, d, r).unwrap();
            let turn = uniform_frame(&mut rng, r, r).unwrap();
            for condition in [1.0, 100.0, 1e4] {
                let scales = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(r, |i, _| {
                    0.3 * f64::powf(condition, i as f64 / (r as f64 - 1.0).max(1.0))
                }));
                let a = &frame * (&turn * scales * turn.transpose());
                let found = polar(&a).unwrap();
                assert!(orthonormality_defect(&found) < 1e-14);
                assert!(
                    (found - &frame).amax() < 1e-12 * condition,
                    "{d} {r} {condition}"
                );
            }
        }
        assert!(polar(&DMatrix::from_element(4, 2, 1.0)).is_err());
    }

    #[test]
    fn it_is_a_frame_also_where_columns_are_nearly_dependent() {
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

    /// `V = Q·S` with S positive definite gives back Q.
    #[test]
    fn a_stretched_frame_comes_back() {
        let mut rng = generator(Some(2)).unwrap();
        let q = uniform_frame(&mut rng, 12, 3).unwrap();
        let s = DMatrix::from_row_slice(3, 3, &[3.0, 1.0, 0.5, 1.0, 2.0, 0.2, 0.5, 0.2, 1.0]);
        assert!((polar(&(&q * s)).unwrap() - q).amax() < 1e-13);
    }
}
