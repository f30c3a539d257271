use faer::{
    Par,
    dyn_stack::{MemBuffer, MemStack},
    linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch},
};
use nalgebra::DMatrix;

use super::view_mut;

/// Whether a Cholesky factorisation of the symmetric `matrix` succeeds (only the lower triangle is
/// read): a proof, up to rounding of about `p · 1e-16 · ‖matrix‖`, that it is positive definite.
///
/// Consumes the matrix, which is factorised in place. A matrix with an entry that is not finite is
/// not positive definite.
pub fn cholesky_is_positive_definite(mut matrix: DMatrix<f64>) -> bool {
    let p = matrix.nrows();
    if p != matrix.ncols() || !matrix.iter().all(|entry| entry.is_finite()) {
        return false;
    }
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(
        p,
        Par::Seq,
        Default::default(),
    ));
    let factorised = cholesky_in_place(
        view_mut(&mut matrix),
        Default::default(),
        Par::Seq,
        MemStack::new(&mut memory),
        Default::default(),
    )
    .is_ok();
    factorised
        && matrix
            .diagonal()
            .iter()
            .all(|&pivot| pivot.is_finite() && pivot > 0.0)
}

#[cfg(test)]
mod tests {
    use nalgebra::dmatrix;

    use super::*;

    #[test]
    fn tells_definite_from_indefinite() {
        assert!(cholesky_is_positive_definite(dmatrix![2.0, 1.0; 1.0, 2.0]));
        assert!(!cholesky_is_positive_definite(dmatrix![1.0, 2.0; 2.0, 1.0]));
        assert!(!cholesky_is_positive_definite(DMatrix::zeros(3, 3)));
        assert!(!cholesky_is_positive_definite(dmatrix![f64::NAN]));
        let p = 150;
        let mut matrix = DMatrix::from_element(p, p, 1.0);
        assert!(!cholesky_is_positive_definite(
            &matrix - DMatrix::identity(p, p) * 1e-6
        ));
        for i in 0..p {
            matrix[(i, i)] += 1e-6;
        }
        assert!(cholesky_is_positive_definite(matrix));
    }
}
