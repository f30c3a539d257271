//! Exact sums of products of whole numbers.
//!
//! Every product and partial sum is a whole number of at most 2⁵³ in magnitude, hence exact in f64, fused or not, in
//! any order; blocks are added up in i64. So the result has the same bits for any registers, threads and block size.

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

use crate::packed::packed_index;

/// Columns that are multiplied together.
const LANES: usize = 8;
/// Most rows of a block: 2¹³ rows of length 2²⁰.
pub(super) const MAX_BLOCK_ROWS: usize = 1 << 13;

/// Rows of whole numbers. They are overwritten when it is dropped.
pub(super) struct Block {
    dimension: usize,
    capacity: usize,
    rows: usize,
    /// Panels of [`LANES`] columns, each of them row by row; columns beyond the dimension are 0.
    numbers: Vec<[f64; LANES]>,
}

impl Block {
    /// An empty block for so many rows, at most [`MAX_BLOCK_ROWS`].
    pub(super) fn new(dimension: usize, capacity: usize) -> Self {
        let capacity = capacity.clamp(1, MAX_BLOCK_ROWS);
        Self {
            dimension,
            capacity,
            rows: 0,
            numbers: vec![[0.0; LANES]; dimension.div_ceil(LANES) * capacity],
        }
    }

    /// Adds a row of whole numbers, of length at most 2²⁰, to a block that is not full.
    pub(super) fn push(&mut self, row: impl Iterator<Item = f64>) {
        for (column, number) in row.enumerate() {
            let panel = column / LANES * self.capacity;
            self.numbers[panel + self.rows][column % LANES] = number;
        }
        self.rows += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows == self.capacity
    }

    /// Adds Σuuᵀ of the rows to a packed upper triangle, and empties the block.
    pub(super) fn add_to(&mut self, sums: &mut [i64]) {
        Arch::new().dispatch(AddProducts { block: self, sums });
        self.rows = 0;
    }

    fn panel(&self, number: usize) -> &[[f64; LANES]] {
        let start = number * self.capacity;
        &self.numbers[start..start + self.rows]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.numbers.zeroize();
    }
}

struct AddProducts<'a> {
    block: &'a Block,
    sums: &'a mut [i64],
}

impl WithSimd for AddProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { block, sums } = self;
        // Eight registers of sums, where there are wide ones: as many as hide the latency of a fused product.
        match S::F64_LANES {
            8 => add_products::<S, 8, 1>(simd, block, sums),
            4 => add_products::<S, 4, 2>(simd, block, sums),
            2 => add_products::<S, 4, 4>(simd, block, sums),
            _ => add_products::<S, 2, 8>(simd, block, sums),
        }
    }
}

/// Adds Σuuᵀ, `LEFT` rows and [`LANES`] columns at a time; a panel's row fills `VECTORS` registers.
#[inline(always)]
fn add_products<S: Simd, const LEFT: usize, const VECTORS: usize>(
    simd: S,
    block: &Block,
    sums: &mut [i64],
) {
    let p = block.dimension;
    let panels = p.div_ceil(LANES);
    for left in 0..panels {
        for right in left..panels {
            for first in (0..LANES).step_by(LEFT) {
                let products: [[f64; LANES]; LEFT] =
                    tile::<S, LEFT, VECTORS>(simd, block.panel(left), first, block.panel(right));
                for (i, line) in (left * LANES + first..p).zip(&products) {
                    for (j, product) in (right * LANES..p).zip(line) {
                        if i <= j {
                            sums[packed_index(p, i, j)] += *product as i64;
                        }
                    }
                }
            }
        }
    }
}

/// Sums over the rows: `LEFT` columns of the left panel, from `first` on, times all of the right one.
#[inline(always)]
fn tile<S: Simd, const LEFT: usize, const VECTORS: usize>(
    simd: S,
    left: &[[f64; LANES]],
    first: usize,
    right: &[[f64; LANES]],
) -> [[f64; LANES]; LEFT] {
    let (right, _) = S::as_simd_f64s(right.as_flattened());
    let (right, _) = right.as_chunks::<VECTORS>();
    let mut sums = [[simd.splat_f64s(0.0); VECTORS]; LEFT];
    for (left, right) in left.iter().zip(right) {
        for (line, factor) in sums.iter_mut().zip(&left[first..first + LEFT]) {
            let factor = simd.splat_f64s(*factor);
            for (sum, column) in line.iter_mut().zip(right) {
                *sum = simd.mul_add_e_f64s(factor, *column, *sum);
            }
        }
    }
    let mut products = [[0.0; LANES]; LEFT];
    for (line, sums) in products.iter_mut().zip(&sums) {
        let (registers, _) = S::as_mut_simd_f64s(line);
        registers.copy_from_slice(sums);
    }
    products
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::packed::packed_len;

    /// Σuuᵀ by the definition.
    fn plain(rows: &[Vec<i64>], p: usize) -> Vec<i64> {
        let mut sums = vec![0; packed_len(p)];
        for u in rows {
            for i in 0..p {
                for j in i..p {
                    sums[packed_index(p, i, j)] += u[i] * u[j];
                }
            }
        }
        sums
    }

    fn filled(rows: &[Vec<i64>], p: usize) -> Block {
        let mut block = Block::new(p, rows.len());
        for row in rows {
            block.push(row.iter().map(|u| *u as f64));
        }
        block
    }

    #[test]
    fn sums_are_exact_in_every_register_width() {
        let mut rng = ChaCha20Rng::seed_from_u64(41);
        for p in [1, 2, 7, 8, 9, 16, 23, 40] {
            let mut block = Block::new(p, 37);
            let mut sums = vec![0; packed_len(p)];
            let mut all = Vec::new();
            // A full block, then one with fewer rows: what the first left behind must not count.
            for count in [37, 5] {
                let rows: Vec<Vec<i64>> = (0..count)
                    .map(|_| (0..p).map(|_| rng.random_range(-1000..1000)).collect())
                    .collect();
                for row in &rows {
                    block.push(row.iter().map(|u| *u as f64));
                }
                assert_eq!(block.is_full(), count == 37);
                let mut narrow = vec![0; packed_len(p)];
                AddProducts {
                    block: &block,
                    sums: &mut narrow,
                }
                .with_simd(pulp::Scalar);
                assert_eq!(narrow, plain(&rows, p));
                block.add_to(&mut sums);
                all.extend(rows);
            }
            assert_eq!(sums, plain(&all, p));
        }
    }

    /// The longest rows, as many as a block takes: the sums reach 2⁵³, beyond which f64 loses ones.
    #[test]
    fn the_largest_block_is_exact() {
        let long = 1_i64 << 20;
        let leg = 741_455; // ⌊2²⁰/√2⌋
        let axis = vec![vec![long, 0]; MAX_BLOCK_ROWS];
        let mut odd = vec![vec![leg, -leg]; MAX_BLOCK_ROWS];
        odd[7] = vec![leg, 1 - leg];
        for rows in [axis, odd] {
            let mut sums = vec![0; 3];
            filled(&rows, 2).add_to(&mut sums);
            assert_eq!(sums, plain(&rows, 2));
        }
        assert_eq!(long * long * MAX_BLOCK_ROWS as i64, 1 << 53);
    }
}
