//! Sums of outer products in blocks.

use eigenveil_shared::packed::PackedSymmetric;
use faer::{
    Accum, Par,
    linalg::matmul::triangular::{BlockStructure, matmul as triangular_matmul},
};
use nalgebra::DMatrix;

use crate::linalg::{kernels::kernels, view, view_mut};

/// The type in which a [`GramSum`] computes products: `f64`, or `f32`, which is twice as fast and adds rounding errors
/// of either sign: for random directions about 1e-5 of the standard deviation of their sum. The sum itself is in f64.
pub trait Precision: nalgebra::RealField + faer::traits::RealField + Copy + Into<f64> {
    /// Rows a block gathers before one update: large enough for the kernel, small enough for the second-level
    /// cache at p in the hundreds.
    const BLOCK: usize;
    /// Whether a block's products are added to the sum immediately; those in f64 can wait until the end.
    const FOLD_EACH_BLOCK: bool;

    /// The nearest number.
    fn nearest(value: f64) -> Self;
}

impl Precision for f64 {
    const BLOCK: usize = 256;
    const FOLD_EACH_BLOCK: bool = false;

    fn nearest(value: f64) -> Self {
        value
    }
}

impl Precision for f32 {
    const BLOCK: usize = 512;
    const FOLD_EACH_BLOCK: bool = true;

    fn nearest(value: f64) -> Self {
        value as f32
    }
}

/// `Σ w·xxᵀ` over rows of dimension p, accumulated in blocks of some hundred rows: the work of one row
/// is p(p+1) flops at matrix-product speed, and memory is `1.5·p² + 256·p` numbers of f64, or less.
pub struct GramSum<T: Precision> {
    sum: PackedSymmetric,
    /// The products not yet added to the sum (lower triangle).
    products: DMatrix<T>,
    any: bool,
    /// p × BLOCK; column-major, so a row of data is contiguous.
    block: DMatrix<T>,
    filled: usize,
}

impl<T: Precision> GramSum<T> {
    /// The empty sum in dimension p.
    pub fn new(p: usize) -> Self {
        Self {
            sum: PackedSymmetric::zeros(p),
            products: DMatrix::zeros(p, p),
            any: false,
            block: DMatrix::zeros(p, T::BLOCK),
            filled: 0,
        }
    }

    /// Adds `weight · x xᵀ`, `weight ≥ 0`.
    pub fn add(&mut self, x: &[f64], weight: f64) {
        let root = weight.sqrt();
        let mut column = self.block.column_mut(self.filled);
        assert_eq!(x.len(), column.len(), "row of another dimension");
        for (entry, value) in column.iter_mut().zip(x) {
            *entry = T::nearest(root * value);
        }
        self.filled += 1;
        if self.filled == T::BLOCK {
            self.multiply();
        }
    }

    /// The sum as its packed upper triangle.
    pub fn finish(mut self) -> PackedSymmetric {
        self.multiply();
        self.fold();
        self.sum
    }

    fn multiply(&mut self) {
        if self.filled == 0 {
            return;
        }
        let block = view(&self.block).subcols(0, self.filled);
        let accum = if self.any { Accum::Add } else { Accum::Replace };
        kernels(|| {
            triangular_matmul(
                view_mut(&mut self.products),
                BlockStructure::TriangularLower,
                accum,
                block,
                BlockStructure::Rectangular,
                block.transpose(),
                BlockStructure::Rectangular,
                T::nearest(1.0),
                Par::Seq,
            );
        });
        self.filled = 0;
        self.any = true;
        if T::FOLD_EACH_BLOCK {
            self.fold();
        }
    }

    fn fold(&mut self) {
        if !self.any {
            return;
        }
        let mut rest = self.sum.as_mut_slice();
        for (i, column) in self.products.column_iter().enumerate() {
            // Column i of the lower triangle is row i of the upper one.
            let (line, tail) = rest.split_at_mut(column.len() - i);
            for (sum, product) in line.iter_mut().zip(&column.as_slice()[i..]) {
                *sum += (*product).into();
            }
            rest = tail;
        }
        self.any = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_one_by_one() {
        blocks_equal::<f64>(1e-12);
        // Whole numbers up to 11² · 700 are exact.
        blocks_equal::<f32>(1e-12);
    }

    fn blocks_equal<T: Precision>(tolerance: f64) {
        for (p, rows) in [(1, 3), (7, 255), (7, 256), (7, 512), (13, 1_400)] {
            let mut blocked = GramSum::<T>::new(p);
            let mut plain = PackedSymmetric::zeros(p);
            for row in 0..rows {
                let x: Vec<f64> = (0..p)
                    .map(|j| ((row * 31 + j * 17) % 23) as f64 - 11.0)
                    .collect();
                let weight = f64::from([0_u8, 1, 4, 9][row % 4]);
                blocked.add(&x, weight);
                plain.add_outer(&x, weight);
            }
            for (a, b) in blocked.finish().as_slice().iter().zip(plain.as_slice()) {
                assert!(
                    (a - b).abs() <= tolerance * b.abs().max(1.0),
                    "{p}: {a} {b}"
                );
            }
        }
        assert_eq!(GramSum::<T>::new(2).finish(), PackedSymmetric::zeros(2));
    }
}
