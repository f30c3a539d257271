use faer::{
    Par,
    dyn_stack::{MemBuffer, MemStack},
    linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch},
};
use nalgebra::DMatrix;

use crate::linalg::{add_outer_lower, kernels::kernels, view_mut};

/// Whether the symmetric `matrix` (lower triangle) minus `V·diag(weights)·Vᵀ` has all its eigenvalues
/// below `threshold`. `scratch` is overwritten.
///
/// The proof is for `threshold` less an allowance for the rounding of the factorisation.
pub(crate) fn spectrum_is_below(
    threshold: f64,
    matrix: &DMatrix<f64>,
    vectors: &DMatrix<f64>,
    weights: &[f64],
    scratch: &mut DMatrix<f64>,
) -> bool {
    let p = matrix.nrows();
    let mut largest = threshold.abs();
    for j in 0..p {
        let source = &matrix.as_slice()[j * p + j..(j + 1) * p];
        let target = &mut scratch.as_mut_slice()[j * p + j..(j + 1) * p];
        for (out, entry) in target.iter_mut().zip(source) {
            *out = -entry;
        }
        largest = largest.max(source[0].abs());
    }
    let heaviest = weights.iter().fold(0.0_f64, |m, w| m.max(w.abs()));
    let allowance = 4.0 * f64::EPSILON * p as f64 * (largest + heaviest);
    for i in 0..p {
        scratch[(i, i)] += threshold - allowance;
    }
    add_outer_lower(scratch, vectors, weights);
    factorises(scratch)
}

/// Whether a Cholesky factorisation of the symmetric `matrix`, in place, succeeds (only the lower triangle is read): a
/// proof, up to rounding of about `p · 1e-16 · ‖matrix‖`, that it is positive definite. An entry that is not finite shows
/// in a pivot.
pub(crate) fn factorises(matrix: &mut DMatrix<f64>) -> bool {
    let p = matrix.nrows();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(
        p,
        Par::Seq,
        Default::default(),
    ));
    let factorised = kernels(|| {
        cholesky_in_place(
            view_mut(matrix),
            Default::default(),
            Par::Seq,
            MemStack::new(&mut memory),
            Default::default(),
        )
        .is_ok()
    });
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
    fn definite_and_indefinite_are_distinguished() {
        assert!(factorises(&mut dmatrix![2.0, 1.0; 1.0, 2.0]));
        assert!(!factorises(&mut dmatrix![1.0, 2.0; 2.0, 1.0]));
        assert!(!factorises(&mut DMatrix::zeros(3, 3)));
        assert!(!factorises(&mut dmatrix![f64::NAN]));
        let p = 150;
        let mut matrix = DMatrix::from_element(p, p, 1.0);
        assert!(!factorises(&mut (&matrix - DMatrix::identity(p, p) * 1e-6)));
        for i in 0..p {
            matrix[(i, i)] += 1e-6;
        }
        assert!(factorises(&mut matrix));
        // Eigenvalues 1 and 3, the larger one deflated or not; the upper triangle is not read.
        let (lower, mut scratch) = (dmatrix![2.0, 9.0; 1.0, 2.0], DMatrix::zeros(2, 2));
        let top = dmatrix![0.5_f64.sqrt(); 0.5_f64.sqrt()];
        let mut below = |t, w: f64| spectrum_is_below(t, &lower, &top, &[w], &mut scratch);
        assert!(below(3.001, 0.0) && !below(2.999, 0.0));
        assert!(below(1.001, 2.5) && !below(0.999, 2.5));
        assert!(!below(f64::NAN, 0.0));
    }
}
