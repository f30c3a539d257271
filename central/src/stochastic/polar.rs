//! The nearest orthonormal frame.

use eigenveil_estimation::linalg::{cross_product, symmetric_eigen};
use eigenveil_shared::{Error, ErrorCode, Result};
use nalgebra::DMatrix;

/// Ratio of the eigenvalues of `VᵀV` from which one pass leaves more than rounding.
const ILL_CONDITIONED: f64 = 1e4;

/// `V(VᵀV)^{-1/2}` for V of `p × k`: of all frames the nearest, so a frame that moves little is not turned, and differences
/// of frames mean something.
///
/// # Errors
/// `estimate-failed` where the columns are dependent or not finite.
pub(super) fn polar_factor(v: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let (once, condition) = pass(v)?;
    if condition > ILL_CONDITIONED {
        return Ok(pass(&once)?.0);
    }
    Ok(once)
}

fn pass(v: &DMatrix<f64>) -> Result<(DMatrix<f64>, f64)> {
    let eigen = symmetric_eigen(&cross_product(v, v))?;
    let (largest, smallest) = (eigen.values[0], eigen.values[v.ncols() - 1]);
    // Below, V's rank is lost to rounding. (Nothing here is NaN: the eigenvalues' errors say so first.)
    if smallest <= 1e-14 * largest {
        return Err(Error::new(
            ErrorCode::EstimateFailed,
            format!(
                "a step left dependent columns among {}; take a smaller --step or k",
                v.ncols()
            ),
        ));
    }
    let mut scaled = eigen.vectors.clone();
    for (mut column, value) in scaled.column_iter_mut().zip(&eigen.values) {
        column /= value.sqrt();
    }
    Ok((v * (scaled * eigen.vectors.transpose()), largest / smallest))
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{linalg::orthonormality_defect, models::uniform_frame};

    use super::*;
    use crate::{generator, noise::EntryNoise};

    #[test]
    fn it_is_a_frame_also_where_columns_are_nearly_dependent() {
        let mut rng = generator(Some(1)).unwrap();
        for spread in [1.0, 1e-3, 1e-5] {
            let mut v = DMatrix::from_element(30, 4, 1.0);
            EntryNoise::Gaussian { sd: spread }.add_to(&mut v, &mut rng);
            let defect = orthonormality_defect(&polar_factor(&v).unwrap());
            assert!(defect < 1e-12, "{spread}: {defect}");
        }
        assert!(polar_factor(&DMatrix::from_element(5, 2, 1.0)).is_err());
        assert!(polar_factor(&DMatrix::from_element(5, 2, f64::NAN)).is_err());
    }

    /// `V = Q·S` with S positive definite gives back Q.
    #[test]
    fn a_stretched_frame_comes_back() {
        let mut rng = generator(Some(2)).unwrap();
        let q = uniform_frame(&mut rng, 12, 3).unwrap();
        let s = DMatrix::from_row_slice(3, 3, &[3.0, 1.0, 0.5, 1.0, 2.0, 0.2, 0.5, 0.2, 1.0]);
        assert!((polar_factor(&(&q * s)).unwrap() - q).amax() < 1e-13);
    }
}
