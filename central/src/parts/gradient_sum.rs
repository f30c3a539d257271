//! `Σ x·(xᵀX)` over rows without ever forming `Σ xxᵀ`.

use eigenveil_estimation::linalg::{cross_product, product};
use nalgebra::{DMatrix, DMatrixView};

/// Rows gathered before they are multiplied: enough for the kernel's full speed.
const BLOCK: usize = 128;

/// Adds up `x·(xᵀX)` for a fixed `d × m` matrix X, a row at a time: `2·d·m` numbers and a block of rows.
///
/// With a clipping threshold β every summand is first clipped to Frobenius norm β.
///
/// ```
/// use eigenveil_central::GradientSum;
/// use nalgebra::dmatrix;
/// let mut sum = GradientSum::new(dmatrix![1.0; 2.0], None, 2);
/// sum.add(&[3.0, 0.0]);
/// sum.add(&[0.0, 1.0]);
/// assert_eq!(sum.finish().1, dmatrix![9.0; 2.0]);
/// ```
pub struct GradientSum {
    factor: DMatrix<f64>,
    sum: DMatrix<f64>,
    block: DMatrix<f64>,
    filled: usize,
    clip: Option<f64>,
}

impl GradientSum {
    /// The empty sum for `factor` = X; `clip` is β > 0; `rows` is the expected number, which bounds the block.
    pub fn new(factor: DMatrix<f64>, clip: Option<f64>, rows: usize) -> Self {
        let (d, m) = factor.shape();
        Self {
            sum: DMatrix::zeros(d, m),
            block: DMatrix::zeros(d, rows.clamp(1, BLOCK)),
            factor,
            filled: 0,
            clip,
        }
    }

    /// Adds one row's summand.
    pub fn add(&mut self, row: &[f64]) {
        self.block
            .column_mut(self.filled)
            .as_mut_slice()
            .copy_from_slice(row);
        self.filled += 1;
        if self.filled == self.block.ncols() {
            self.flush();
        }
    }

    /// X and the sum, both `d × m`.
    pub fn finish(mut self) -> (DMatrix<f64>, DMatrix<f64>) {
        self.flush();
        (self.factor, self.sum)
    }

    fn flush(&mut self) {
        if self.filled == self.block.ncols() {
            self.sum += clipped_sum(&self.block, &self.factor, self.clip);
        } else if self.filled > 0 {
            let rows = self.block.columns(0, self.filled).into_owned();
            self.sum += clipped_sum(&rows, &self.factor, self.clip);
        }
        self.filled = 0;
    }
}

/// `Σ clip_β(x·(xᵀX))` over the columns x of `rows` (`d × n`).
fn clipped_sum(rows: &DMatrix<f64>, factor: &DMatrix<f64>, clip: Option<f64>) -> DMatrix<f64> {
    let mut scores = cross_product(rows, factor);
    if let Some(threshold) = clip {
        clip_summands(&mut scores, rows.as_view(), threshold);
    }
    product(rows, &scores)
}

/// Scales row i of `scores` so that ‖xᵢ‖·‖scoresᵢ‖, the Frobenius norm of the summand, is at most `threshold`.
fn clip_summands(scores: &mut DMatrix<f64>, rows: DMatrixView<'_, f64>, threshold: f64) {
    for (x, mut score) in rows.column_iter().zip(scores.row_iter_mut()) {
        let norm = x.norm() * score.norm();
        if norm > threshold {
            score *= threshold / norm;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(d: usize, n: usize) -> DMatrix<f64> {
        DMatrix::from_fn(d, n, |i, j| ((i * 7 + j * 5) % 13) as f64 / 13.0 - 0.4)
    }

    #[test]
    fn blocks_of_every_length_equal_the_matrix_product() {
        let factor = rows(6, 3);
        for n in [0, 1, 127, 128, 129, 300] {
            let data = rows(6, n);
            let mut sum = GradientSum::new(factor.clone(), None, n);
            for x in data.column_iter() {
                sum.add(x.as_slice());
            }
            let direct = &data * data.transpose() * &factor;
            assert!((sum.finish().1 - direct).amax() < 1e-11, "{n} rows");
        }
    }

    #[test]
    fn every_summand_is_clipped_separately() {
        let (data, factor, threshold) = (rows(5, 40), rows(5, 2), 0.3);
        let mut direct = DMatrix::zeros(5, 2);
        let mut shortened = 0;
        for x in data.column_iter() {
            let summand = x * (x.transpose() * &factor);
            let scale = (threshold / summand.norm()).min(1.0);
            shortened += usize::from(scale < 1.0);
            direct += summand * scale;
        }
        assert!((1..40).contains(&shortened), "{shortened}");
        assert!((clipped_sum(&data, &factor, Some(threshold)) - direct).amax() < 1e-12);
    }
}
