//! Products with tall matrices in chunks of a fixed size, on as many threads as the caller may use: the result does not
//! depend on their number.

use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};
use nalgebra::DMatrix;

use crate::linalg::{
    kernels::kernels, parallel::chunks_of_rows, parallel_for_each, view, view_mut,
};

/// Rows, or columns, of one chunk.
const CHUNK: usize = 256;
/// Multiplications below which a thread is not worth starting.
const MAX_SEQUENTIAL_WORK: usize = 1 << 22;

/// `A·B` for A with many rows, on [`Threads::current`](crate::linalg::Threads::current) threads.
pub fn tall_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.nrows(), b.ncols());
    add_tall_product(view_mut(&mut out), view(a), view(b), 1.0);
    out
}

/// `Aᵀ·B` for A with many columns, on [`Threads::current`](crate::linalg::Threads::current) threads.
pub fn tall_cross_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    tall_cross(view(a), view(b))
}

/// `out += factor·A·B`; otherwise as [`tall_product`].
pub(in crate::linalg) fn add_tall_product(
    out: MatMut<'_, f64>,
    a: MatRef<'_, f64>,
    b: MatRef<'_, f64>,
    factor: f64,
) {
    // Four times as high: one product streams over the rows of a chunk.
    by_rows(out, 4 * CHUNK, a.ncols(), |from, piece| {
        let rows = a.subrows(from, piece.nrows());
        kernels(|| matmul(piece, Accum::Add, rows, b, factor, Par::Seq));
    });
}

/// `Aᵀ·B`; otherwise as [`tall_cross_product`].
pub(in crate::linalg) fn tall_cross(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> DMatrix<f64> {
    let mut out = DMatrix::zeros(a.ncols(), b.ncols());
    by_rows(view_mut(&mut out), CHUNK, a.nrows(), |from, piece| {
        let columns = a.subcols(from, piece.nrows());
        kernels(|| matmul(piece, Accum::Replace, columns.transpose(), b, 1.0, Par::Seq));
    });
    out
}

fn by_rows(
    out: MatMut<'_, f64>,
    height: usize,
    inner: usize,
    work: impl Fn(usize, MatMut<'_, f64>) + Sync,
) {
    let small = out.nrows() * out.ncols() * inner < MAX_SEQUENTIAL_WORK;
    let pieces = chunks_of_rows(out, height);
    if small {
        pieces.for_each(|(from, piece)| work(from, piece));
    } else {
        parallel_for_each(pieces, |(from, piece)| work(from, piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{Threads, cross_product, product};

    #[test]
    fn products_are_the_same_on_any_number_of_threads() {
        for (rows, inner, columns) in [(2100, 130, 17), (300, 5, 3), (1, 1, 1), (700, 0, 2)] {
            let a = DMatrix::from_fn(rows, inner, |i, j| ((i * 7 + j * 3) % 11) as f64 - 5.0);
            let b = DMatrix::from_fn(inner, columns, |i, j| ((i * 5 + j) % 7) as f64 - 3.0);
            let c = DMatrix::from_fn(rows, columns, |i, j| ((i + j * 5) % 13) as f64 - 6.0);
            let one = (tall_product(&a, &b), tall_cross_product(&a, &c));
            // Whole numbers: no rounding.
            assert_eq!(one, (product(&a, &b), cross_product(&a, &c)));
            let three = Threads::new(3)
                .unwrap()
                .run(|| (tall_product(&a, &b), tall_cross_product(&a, &c)));
            assert_eq!(one, three);
        }
    }
}
