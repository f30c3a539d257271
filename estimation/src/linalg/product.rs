use faer::{
    Accum, MatMut, MatRef, Par,
    linalg::matmul::{
        matmul,
        triangular::{BlockStructure, matmul as triangular_matmul},
    },
};
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
    let p = vectors.nrows();
    let mut out = DMatrix::zeros(p, p);
    // Only the lower triangle is computed (half the work), then mirrored: no asymmetry to average away.
    add_outer_lower(&mut out, vectors, weights);
    out.fill_upper_triangle_with_lower_triangle();
    out
}

/// Adds `V·diag(weights)·Vᵀ` to the lower triangle of `out`; the upper one is left alone.
pub(crate) fn add_outer_lower(out: &mut DMatrix<f64>, vectors: &DMatrix<f64>, weights: &[f64]) {
    let mut scaled = vectors.clone();
    for (mut column, &weight) in scaled.column_iter_mut().zip(weights) {
        column *= weight;
    }
    triangular_matmul(
        view_mut(out),
        BlockStructure::TriangularLower,
        Accum::Add,
        view(&scaled),
        BlockStructure::Rectangular,
        view(vectors).transpose(),
        BlockStructure::Rectangular,
        1.0,
        Par::Seq,
    );
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
    matmul(
        view_mut(out).submatrix_mut(0, 0, rows, width),
        Accum::Replace,
        view(scaled).subrows(from, rows),
        view(vectors).subrows(from, width).transpose(),
        1.0,
        Par::Seq,
    );
}

/// Columns of the lower triangle that one step of [`symmetric_product`] reads, twice each while cached.
const PANEL: usize = 96;

/// `A·B` for the symmetric A whose lower triangle `lower` holds: half the memory traffic of a product.
pub(crate) fn symmetric_product(lower: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let p = lower.nrows();
    let columns = b.ncols();
    let mut out = DMatrix::zeros(p, columns);
    let (a, b) = (view(lower), view(b));
    let mut from = 0;
    while from < p {
        let width = PANEL.min(p - from);
        let mut corner = lower.view((from, from), (width, width)).into_owned();
        corner.fill_upper_triangle_with_lower_triangle();
        let mine = b.subrows(from, width);
        let (mut top, mut bottom) = view_mut(&mut out)
            .subrows_mut(from, p - from)
            .split_at_row_mut(width);
        let add = |out: MatMut<'_, f64>, left: MatRef<'_, f64>, right: MatRef<'_, f64>| {
            matmul(out, Accum::Add, left, right, 1.0, Par::Seq);
        };
        add(top.as_mut(), view(&corner), mine);
        let below = p - from - width;
        if below > 0 {
            let panel = a.submatrix(from + width, from, below, width);
            add(bottom.as_mut(), panel, mine);
            add(top, panel.transpose(), b.subrows(from + width, below));
        }
        from += width;
    }
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
        for p in [1, 95, 96, 250] {
            let full = DMatrix::from_fn(p, p, |i, j| ((i * j + i + j) % 13) as f64 - 6.0);
            let lower = DMatrix::from_fn(p, p, |i, j| if i >= j { full[(i, j)] } else { 1e9 });
            let b = pattern(p, 5);
            assert!((symmetric_product(&lower, &b) - &full * &b).amax() < 1e-9);
        }
        assert_eq!(
            outer_scaled(&DMatrix::zeros(3, 0), &[]),
            DMatrix::zeros(3, 3)
        );
    }
}
