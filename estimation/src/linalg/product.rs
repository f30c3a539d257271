use faer::{Accum, Par, linalg::matmul::matmul};
use nalgebra::DMatrix;

use super::{view, view_mut};

/// `A·B`.
///
/// # Panics
/// If the inner dimensions differ.
pub fn product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.nrows(), b.ncols());
    matmul(
        view_mut(&mut out),
        Accum::Replace,
        view(a),
        view(b),
        1.0,
        Par::Seq,
    );
    out
}

/// `Aᵀ·B`.
///
/// # Panics
/// If the numbers of rows differ.
pub fn cross_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.ncols(), b.ncols());
    matmul(
        view_mut(&mut out),
        Accum::Replace,
        view(a).transpose(),
        view(b),
        1.0,
        Par::Seq,
    );
    out
}

/// `V·diag(weights)·Vᵀ` for `V` of shape `p × r`: exactly symmetric.
///
/// # Panics
/// If there are not as many weights as columns.
pub fn outer_scaled(vectors: &DMatrix<f64>, weights: &[f64]) -> DMatrix<f64> {
    assert_eq!(vectors.ncols(), weights.len(), "one weight a column");
    use faer::linalg::matmul::triangular::{BlockStructure, matmul as triangular_matmul};
    let mut scaled = vectors.clone();
    for (mut column, &weight) in scaled.column_iter_mut().zip(weights) {
        column *= weight;
    }
    let p = vectors.nrows();
    let mut out = DMatrix::zeros(p, p);
    // Only the lower triangle is computed (half the work), then mirrored: no asymmetry to average away.
    triangular_matmul(
        view_mut(&mut out),
        BlockStructure::TriangularLower,
        Accum::Replace,
        view(&scaled),
        BlockStructure::Rectangular,
        view(vectors).transpose(),
        BlockStructure::Rectangular,
        1.0,
        Par::Seq,
    );
    out.fill_upper_triangle_with_lower_triangle();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(rows: usize, columns: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((i * 7 + j * 3) % 11) as f64 - 5.0)
    }

    #[test]
    fn products_agree_with_nalgebra() {
        let (a, b) = (pattern(9, 4), pattern(4, 6));
        assert!((product(&a, &b) - &a * &b).amax() < 1e-12);
        let c = pattern(9, 3);
        assert!((cross_product(&a, &c) - a.transpose() * &c).amax() < 1e-12);
        let weights = [1.0, -2.0, 0.5, 3.0];
        let direct = &a * DMatrix::from_diagonal(&weights.to_vec().into()) * a.transpose();
        let ours = outer_scaled(&a, &weights);
        assert!((&ours - direct).amax() < 1e-11);
        assert_eq!(ours, ours.transpose());
        assert_eq!(
            outer_scaled(&DMatrix::zeros(3, 0), &[]),
            DMatrix::zeros(3, 3)
        );
    }
}
