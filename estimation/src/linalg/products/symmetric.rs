//! The product with a symmetric matrix of which one triangle is read.

use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};
use nalgebra::DMatrix;
use pulp::{Arch, Simd, WithSimd};

use crate::linalg::{kernels::kernels, parallel_for_each, view, view_mut};

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
        *share = match b.ncols() {
            1 => columns_times_vector(lower, b.as_slice(), from, to),
            _ => columns_product(lower, b, from, to),
        };
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
            kernels(|| matmul(out, Accum::Add, left, right, 1.0, Par::Seq));
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

/// [`columns_product`] for one vector: each column is read once, for its share of the rows below and for its mirror
/// image, which is as fast as the memory.
fn columns_times_vector(lower: &DMatrix<f64>, x: &[f64], from: usize, to: usize) -> DMatrix<f64> {
    let p = lower.nrows();
    let mut out = DMatrix::zeros(p - from, 1);
    let y = out.as_mut_slice();
    let processor = Arch::new();
    for at in (from..to).step_by(GROUP) {
        let below = (at + GROUP).min(to);
        for c in at..below {
            y[c - from] += lower[(c, c)] * x[c];
            for r in c + 1..below {
                y[r - from] += lower[(r, c)] * x[c];
                y[c - from] += lower[(r, c)] * x[r];
            }
        }
        // Of a group that is not full the last column stands for those that it lacks, with factor 0.
        let columns = std::array::from_fn(|i| {
            let c = (at + i).min(below - 1);
            &lower.as_slice()[c * p + below..(c + 1) * p]
        });
        let factors = std::array::from_fn(|i| if at + i < below { x[at + i] } else { 0.0 });
        let dots = processor.dispatch(ColumnGroup {
            columns,
            factors,
            x: &x[below..],
            y: &mut y[below - from..],
        });
        for (c, dot) in (at..below).zip(dots) {
            y[c - from] += dot;
        }
    }
    out
}

/// Columns that are read together, so that x and y are read once for all of them.
const GROUP: usize = 4;

/// Adds `Σ factorᵢ·columnᵢ` to y; its result is each `columnᵢᵀx`.
struct ColumnGroup<'a> {
    columns: [&'a [f64]; GROUP],
    factors: [f64; GROUP],
    x: &'a [f64],
    y: &'a mut [f64],
}

impl WithSimd for ColumnGroup<'_> {
    type Output = [f64; GROUP];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f64; GROUP] {
        let [a, b, c, d] = self.columns;
        let (a, a_tail) = S::as_simd_f64s(a);
        let (b, b_tail) = S::as_simd_f64s(b);
        let (c, c_tail) = S::as_simd_f64s(c);
        let (d, d_tail) = S::as_simd_f64s(d);
        let (x, x_tail) = S::as_simd_f64s(self.x);
        let (y, y_tail) = S::as_mut_simd_f64s(self.y);
        let [of_a, of_b, of_c, of_d] = self.factors;
        let (by_a, by_b) = (simd.splat_f64s(of_a), simd.splat_f64s(of_b));
        let (by_c, by_d) = (simd.splat_f64s(of_c), simd.splat_f64s(of_d));
        let zero = simd.splat_f64s(0.0);
        let (mut in_a, mut in_b, mut in_c, mut in_d) = (zero, zero, zero, zero);
        let columns = a.iter().zip(b).zip(c).zip(d);
        for ((y, x), (((a, b), c), d)) in y.iter_mut().zip(x).zip(columns) {
            let mut sum = simd.mul_add_e_f64s(*a, by_a, *y);
            sum = simd.mul_add_e_f64s(*b, by_b, sum);
            sum = simd.mul_add_e_f64s(*c, by_c, sum);
            *y = simd.mul_add_e_f64s(*d, by_d, sum);
            in_a = simd.mul_add_e_f64s(*a, *x, in_a);
            in_b = simd.mul_add_e_f64s(*b, *x, in_b);
            in_c = simd.mul_add_e_f64s(*c, *x, in_c);
            in_d = simd.mul_add_e_f64s(*d, *x, in_d);
        }
        let mut dots = [
            simd.reduce_sum_f64s(in_a),
            simd.reduce_sum_f64s(in_b),
            simd.reduce_sum_f64s(in_c),
            simd.reduce_sum_f64s(in_d),
        ];
        for (i, (y, x)) in y_tail.iter_mut().zip(x_tail).enumerate() {
            let entries = [a_tail[i], b_tail[i], c_tail[i], d_tail[i]];
            for ((entry, factor), dot) in entries.into_iter().zip(self.factors).zip(&mut dots) {
                *y += entry * factor;
                *dot += entry * x;
            }
        }
        dots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Threads;

    #[test]
    fn one_triangle_is_the_whole_matrix() {
        for p in [0, 1, 3, 95, 96, 250, 1023, 1024, 1500] {
            // Whole numbers: exact.
            let full = DMatrix::from_fn(p, p, |i, j| ((i * j + i + j) % 13) as f64 - 6.0);
            let lower = DMatrix::from_fn(p, p, |i, j| if i >= j { full[(i, j)] } else { 1e9 });
            for columns in [5, 1] {
                let b = DMatrix::from_fn(p, columns, |i, j| ((i * 7 + j * 3) % 11) as f64 - 5.0);
                for threads in [1, 3] {
                    let pool = Threads::new(threads).unwrap();
                    let product = pool.run(|| symmetric_product(&lower, &b));
                    assert_eq!(product, &full * &b);
                }
            }
        }
    }
}
