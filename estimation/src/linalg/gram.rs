//! Sums of outer products in blocks.

use eigenveil_shared::packed::PackedSymmetric;
use faer::{
    Accum, Par,
    linalg::matmul::triangular::{BlockStructure, matmul as triangular_matmul},
};
use nalgebra::DMatrix;

use super::{view, view_mut};

/// Rows a block gathers before one rank-B update: large enough for the kernel, small enough for the
/// second-level cache at p in the hundreds.
const BLOCK: usize = 256;

/// `Σ w·xxᵀ` over rows of dimension p, accumulated in blocks of rank-256 updates: the work of one row
/// is p(p+1) flops at matrix-product speed, and memory is `p² + 256·p` numbers.
///
/// ```
/// use eigenveil_estimation::linalg::GramSum;
/// let mut sum = GramSum::new(2);
/// sum.add(&[1.0, 2.0], 1.0);
/// sum.add(&[0.0, 1.0], 3.0);
/// assert_eq!(sum.finish().as_slice(), &[1.0, 2.0, 7.0]);
/// ```
pub struct GramSum {
    lower: DMatrix<f64>,
    /// p × BLOCK; column-major, so a row of data is contiguous.
    block: DMatrix<f64>,
    filled: usize,
}

impl GramSum {
    /// The empty sum in dimension p.
    pub fn new(p: usize) -> Self {
        Self {
            lower: DMatrix::zeros(p, p),
            block: DMatrix::zeros(p, BLOCK),
            filled: 0,
        }
    }

    /// Adds `weight · x xᵀ`, `weight ≥ 0`.
    ///
    /// # Panics
    /// If `x` has another length than p.
    pub fn add(&mut self, x: &[f64], weight: f64) {
        let root = weight.sqrt();
        let mut column = self.block.column_mut(self.filled);
        assert_eq!(x.len(), column.len(), "row of another dimension");
        for (entry, value) in column.iter_mut().zip(x) {
            *entry = root * value;
        }
        self.filled += 1;
        if self.filled == BLOCK {
            self.flush();
        }
    }

    /// The sum as its packed upper triangle.
    pub fn finish(mut self) -> PackedSymmetric {
        self.flush();
        let p = self.lower.nrows();
        let mut packed = PackedSymmetric::zeros(p);
        let mut rest = packed.as_mut_slice();
        for i in 0..p {
            let (line, tail) = rest.split_at_mut(p - i);
            // Column i of the lower triangle is row i of the upper one.
            line.copy_from_slice(&self.lower.column(i).as_slice()[i..]);
            rest = tail;
        }
        packed
    }

    fn flush(&mut self) {
        if self.filled == 0 {
            return;
        }
        let block = view(&self.block).subcols(0, self.filled);
        triangular_matmul(
            view_mut(&mut self.lower),
            BlockStructure::TriangularLower,
            Accum::Add,
            block,
            BlockStructure::Rectangular,
            block.transpose(),
            BlockStructure::Rectangular,
            1.0,
            Par::Seq,
        );
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_one_by_one() {
        for (p, rows) in [(1, 3), (7, 255), (7, 256), (13, 700)] {
            let mut blocked = GramSum::new(p);
            let mut plain = PackedSymmetric::zeros(p);
            for row in 0..rows {
                let x: Vec<f64> = (0..p)
                    .map(|j| ((row * 31 + j * 17) % 23) as f64 - 11.0)
                    .collect();
                let weight = (row % 4) as f64;
                blocked.add(&x, weight);
                plain.add_outer(&x, weight);
            }
            for (a, b) in blocked.finish().as_slice().iter().zip(plain.as_slice()) {
                assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{p}: {a} {b}");
            }
        }
        assert_eq!(GramSum::new(2).finish(), PackedSymmetric::zeros(2));
    }
}
