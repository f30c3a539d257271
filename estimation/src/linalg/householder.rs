//! The orthogonal factor of a QR factorisation, stored as reflections.

use faer::{
    Conj, Mat, Par,
    dyn_stack::{MemBuffer, MemStack},
    linalg::{householder, qr::no_pivoting::factor},
};
use nalgebra::DMatrix;

use super::{kernels::kernels, parallel::chunks_of_rows, parallel_for_each, view, view_mut};

/// Columns of one chunk of a block that Q is applied to.
const CHUNK: usize = 64;

/// `A = Q·[R; 0]` for A of shape `m × n`, n ≤ m. Q is `m × m`, orthogonal whatever the rank of A, and never formed.
#[derive(Clone, Debug)]
pub struct HouseholderQr {
    /// R on the diagonal and above, the reflections below it.
    factors: Mat<f64>,
    coefficients: Mat<f64>,
}

impl HouseholderQr {
    /// Reduces this matrix; on the calling thread.
    pub fn new(matrix: &DMatrix<f64>) -> Self {
        let (m, n) = matrix.shape();
        assert!(n <= m, "R is n × n");
        let mut factors = view(matrix).to_owned();
        let block = factor::recommended_block_size::<f64>(m, n).max(1);
        let mut coefficients = Mat::zeros(block, n);
        if n > 0 {
            let scratch =
                factor::qr_in_place_scratch::<f64>(m, n, block, Par::Seq, Default::default());
            kernels(|| {
                factor::qr_in_place(
                    factors.as_mut(),
                    coefficients.as_mut(),
                    Par::Seq,
                    MemStack::new(&mut MemBuffer::new(scratch)),
                    Default::default(),
                )
            });
        }
        Self {
            factors,
            coefficients,
        }
    }

    /// m.
    pub fn dimension(&self) -> usize {
        self.factors.nrows()
    }

    /// n.
    pub fn width(&self) -> usize {
        self.factors.ncols()
    }

    /// R, `n × n`.
    pub fn r(&self) -> DMatrix<f64> {
        let n = self.factors.ncols();
        DMatrix::from_fn(n, n, |i, j| if i <= j { self.factors[(i, j)] } else { 0.0 })
    }

    /// `Q·block`, on [`Threads::current`](super::Threads::current) threads.
    pub fn times(&self, mut block: DMatrix<f64>) -> DMatrix<f64> {
        let (m, n) = self.factors.shape();
        assert_eq!(block.nrows(), m, "a block of m rows");
        if n == 0 {
            return block;
        }
        let (factors, coefficients) = (self.factors.as_ref(), self.coefficients.as_ref());
        let scratch = householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<
            f64,
        >(m, coefficients.nrows(), CHUNK);
        let columns = view_mut(&mut block).transpose_mut();
        parallel_for_each(chunks_of_rows(columns, CHUNK), |(_, piece)| {
            let piece = piece.transpose_mut();
            let mut memory = MemBuffer::new(scratch);
            let stack = MemStack::new(&mut memory);
            kernels(|| {
                householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
                    factors,
                    coefficients,
                    Conj::No,
                    piece,
                    Par::Seq,
                    stack,
                );
            });
        });
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{StartVectors, Threads, orthonormality_defect};

    #[test]
    fn q_is_orthogonal_and_the_product_is_the_matrix() {
        for (m, n) in [(9, 4), (5, 5), (140, 100), (3, 0), (1, 1)] {
            let mut matrix = StartVectors::default().block(m, n);
            if n > 3 {
                // Q is orthogonal whatever the rank.
                matrix.fill_column(2, 0.0);
                let first = matrix.column(0).into_owned();
                matrix.set_column(3, &first);
            }
            let qr = HouseholderQr::new(&matrix);
            let mut padded = qr.r();
            padded.resize_vertically_mut(m, 0.0);
            assert!((qr.times(padded) - &matrix).norm() < 1e-12);
            let q = qr.times(DMatrix::identity(m, m));
            assert!(orthonormality_defect(&q) < 1e-13);
            let two = Threads::new(2).unwrap();
            assert_eq!(two.run(|| qr.times(DMatrix::identity(m, m))), q);
        }
    }
}
