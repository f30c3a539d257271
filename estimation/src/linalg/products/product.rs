use faer::{
    Accum, MatMut, MatRef, Par,
    linalg::matmul::{
        matmul,
        triangular::{BlockStructure, matmul as triangular_matmul},
    },
};
use nalgebra::DMatrix;

use crate::linalg::{
    kernels::kernels, parallel::chunks_of_rows, parallel_for_each, view, view_mut,
};

/// `A·B`.
pub fn product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    product_of_views(view(a), view(b))
}

/// `Aᵀ·B`.
pub fn cross_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    product_of_views(view(a).transpose(), view(b))
}

fn product_of_views(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.nrows(), b.ncols());
    kernels(|| matmul(view_mut(&mut out), Accum::Replace, a, b, 1.0, Par::Seq));
    out
}

/// `V·diag(weights)·Vᵀ` for `V` of shape `p × r`: exactly symmetric.
pub fn outer_scaled(vectors: &DMatrix<f64>, weights: &[f64]) -> DMatrix<f64> {
    assert_eq!(vectors.ncols(), weights.len(), "one weight a column");
    let p = vectors.nrows();
    let mut out = DMatrix::zeros(p, p);
    // Only the lower triangle is computed (half the work), then mirrored: no asymmetry to average away.
    add_outer_lower(&mut out, vectors, weights);
    out.fill_upper_triangle_with_lower_triangle();
    out
}

/// Columns of one chunk of a lower triangle.
const CHUNK: usize = 512;
/// Inner dimension and rows of one product within a chunk: each column of a large matrix lies on other pages, and the
/// TLB holds few.
const INNER: usize = 512;
const HEIGHT: usize = 1024;

/// Adds `V·diag(weights)·Vᵀ` to the lower triangle of `out`; the upper one is left alone. On
/// [`Threads::current`](crate::linalg::Threads::current) threads.
pub fn add_outer_lower(out: &mut DMatrix<f64>, vectors: &DMatrix<f64>, weights: &[f64]) {
    assert_eq!(vectors.ncols(), weights.len(), "one weight a column");
    let mut scaled = vectors.clone();
    for (mut column, &weight) in scaled.column_iter_mut().zip(weights) {
        column *= weight;
    }
    add_product_lower(out, &scaled, vectors, 1.0);
}

/// Adds `factor·(ABᵀ + BAᵀ)` to the lower triangle of `out`; the upper one is left alone. On
/// [`Threads::current`](crate::linalg::Threads::current) threads.
pub fn add_symmetrised_outer_lower(
    out: &mut DMatrix<f64>,
    a: &DMatrix<f64>,
    b: &DMatrix<f64>,
    factor: f64,
) {
    add_product_lower(out, a, b, factor);
    add_product_lower(out, b, a, factor);
}

/// Adds the lower triangle of `factor·ABᵀ`, in chunks of a fixed size.
fn add_product_lower(out: &mut DMatrix<f64>, a: &DMatrix<f64>, b: &DMatrix<f64>, factor: f64) {
    let p = out.nrows();
    assert!(
        out.ncols() == p && a.nrows() == p && a.shape() == b.shape(),
        "a p × p sum of p × r factors"
    );
    let (a, b) = (view(a), view(b).transpose());
    let columns = chunks_of_rows(view_mut(out).transpose_mut(), CHUNK);
    let add = |(from, piece): (usize, MatMut<'_, f64>)| {
        let piece = piece.transpose_mut().subrows_mut(from, p - from);
        let width = piece.ncols();
        let (mut corner, mut below) = piece.split_at_row_mut(width);
        for inner in (0..a.ncols()).step_by(INNER) {
            let length = INNER.min(a.ncols() - inner);
            let left = a.subcols(inner, length);
            let right = b.submatrix(inner, from, length, width);
            triangular_matmul(
                corner.as_mut(),
                BlockStructure::TriangularLower,
                Accum::Add,
                left.subrows(from, width),
                BlockStructure::Rectangular,
                right,
                BlockStructure::Rectangular,
                factor,
                Par::Seq,
            );
            for row in (0..below.nrows()).step_by(HEIGHT) {
                let height = HEIGHT.min(below.nrows() - row);
                let rows = left.subrows(from + width + row, height);
                let out = below.as_mut().subrows_mut(row, height);
                matmul(out, Accum::Add, rows, right, factor, Par::Seq);
            }
        }
    };
    parallel_for_each(columns, |piece| kernels(|| add(piece)));
}

/// Columns `from..from + width` of `scaled·Vᵀ`, rows `from..` only, into the upper left of `out`.
pub(crate) fn outer_columns_lower(
    scaled: &DMatrix<f64>,
    vectors: &DMatrix<f64>,
    from: usize,
    width: usize,
    out: &mut DMatrix<f64>,
) {
    let rows = vectors.nrows() - from;
    let (left, right) = (
        view(scaled).subrows(from, rows),
        view(vectors).subrows(from, width),
    );
    let out = view_mut(out).submatrix_mut(0, 0, rows, width);
    kernels(|| matmul(out, Accum::Replace, left, right.transpose(), 1.0, Par::Seq));
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
        let (mut lower, b) = (DMatrix::from_element(700, 700, 1.0), pattern(700, 3));
        let c = b.map(|x| 2.0 * x + 1.0);
        add_symmetrised_outer_lower(&mut lower, &b, &c, 0.5);
        let expected = (&b * c.transpose() + &c * b.transpose()) * 0.5;
        for j in 0..700 {
            for i in 0..700 {
                let added = if i >= j { expected[(i, j)] } else { 0.0 };
                assert_eq!(lower[(i, j)], 1.0 + added);
            }
        }
        assert_eq!(
            outer_scaled(&DMatrix::zeros(3, 0), &[]),
            DMatrix::zeros(3, 3)
        );
    }
}
