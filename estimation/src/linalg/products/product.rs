use faer::{
    Accum, MatMut, MatRef, Par,
    linalg::matmul::{
        matmul,
        triangular::{BlockStructure, matmul as triangular_matmul},
    },
};
use nalgebra::DMatrix;

use crate::linalg::{parallel::chunks_of_rows, parallel_for_each, view, view_mut};

/// `A·B`.
pub fn product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    product_of_views(view(a), view(b))
}

/// `Aᵀ·B`.
pub fn cross_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    product_of_views(view(a).transpose(), view(b))
}

pub(in crate::linalg) fn product_of_views(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.nrows(), b.ncols());
    matmul(view_mut(&mut out), Accum::Replace, a, b, 1.0, Par::Seq);
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
    parallel_for_each(columns, |(from, piece)| {
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
    });
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

/// Columns of the lower triangle that one step of [`symmetric_product`] uses, twice while they are in the cache.
const PANEL: usize = 96;
/// Number of shares of about equal area into which a large triangle is divided.
const SHARES: usize = 8;
/// Dimension below which a triangle is one share.
const MIN_PARALLEL_DIMENSION: usize = 1024;

/// `A·B` for the symmetric A whose lower triangle `lower` holds: half the memory traffic of a product. On
/// [`Threads::current`](crate::linalg::Threads::current) threads; the shares are the same, and added in the same order,
/// on any number of them.
pub(crate) fn symmetric_product(lower: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let p = lower.nrows();
    let starts = share_starts(p);
    let mut shares = vec![DMatrix::zeros(0, 0); starts.len()];
    let ends = starts.iter().skip(1).chain([&p]);
    let work = starts.iter().zip(ends).zip(&mut shares);
    parallel_for_each(work, |((&from, &to), share)| {
        *share = columns_product(lower, b, from, to);
    });
    let mut sum = DMatrix::zeros(p, b.ncols());
    for (share, from) in shares.iter().zip(starts) {
        let mut part = sum.rows_mut(from, share.nrows());
        part += share;
    }
    sum
}

/// First columns of the shares: `(1 − from/p)²` is the area from there on.
fn share_starts(p: usize) -> Vec<usize> {
    let count = if p < MIN_PARALLEL_DIMENSION {
        1
    } else {
        SHARES
    };
    let mut starts: Vec<usize> = (0..count)
        .map(|i| {
            let before = 1.0 - (1.0 - i as f64 / count as f64).sqrt();
            (before * p as f64) as usize / PANEL * PANEL
        })
        .collect();
    starts.dedup();
    starts
}

/// The contribution of columns `from..to` of the lower triangle, and of their mirror image, to the product, from row
/// `from` down.
fn columns_product(lower: &DMatrix<f64>, b: &DMatrix<f64>, from: usize, to: usize) -> DMatrix<f64> {
    let p = lower.nrows();
    let mut out = DMatrix::zeros(p - from, b.ncols());
    let (a, b) = (view(lower), view(b));
    for at in (from..to).step_by(PANEL) {
        let width = PANEL.min(to - at);
        let mut corner = lower.view((at, at), (width, width)).into_owned();
        corner.fill_upper_triangle_with_lower_triangle();
        let panel_rhs = b.subrows(at, width);
        let (mut top, mut bottom) = view_mut(&mut out)
            .subrows_mut(at - from, p - at)
            .split_at_row_mut(width);
        let add = |out: MatMut<'_, f64>, left: MatRef<'_, f64>, right: MatRef<'_, f64>| {
            matmul(out, Accum::Add, left, right, 1.0, Par::Seq);
        };
        add(top.as_mut(), view(&corner), panel_rhs);
        let below = p - at - width;
        if below > 0 {
            let panel = a.submatrix(at + width, at, below, width);
            add(bottom.as_mut(), panel, panel_rhs);
            add(top, panel.transpose(), b.subrows(at + width, below));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Threads;

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
        for p in [0, 1, 95, 96, 250, 1023, 1024, 1500] {
            // Whole numbers: exact.
            let full = DMatrix::from_fn(p, p, |i, j| ((i * j + i + j) % 13) as f64 - 6.0);
            let lower = DMatrix::from_fn(p, p, |i, j| if i >= j { full[(i, j)] } else { 1e9 });
            let b = pattern(p, 5);
            for threads in [1, 3] {
                let found = Threads::new(threads).unwrap();
                let found = found.run(|| symmetric_product(&lower, &b));
                assert_eq!(found, &full * &b);
            }
        }
        assert_eq!(
            outer_scaled(&DMatrix::zeros(3, 0), &[]),
            DMatrix::zeros(3, 3)
        );
    }
}
