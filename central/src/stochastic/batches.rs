//! Poisson samples of the rows.

use eigenveil_shared::Result;
use nalgebra::DMatrix;
use rand::RngExt as _;

use crate::{Generator, GradientSum, Rows, poisson::sampling_rate};

/// Each row with probability B/n, independently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batches<'a> {
    rows: &'a Rows,
    expected: usize,
}

impl<'a> Batches<'a> {
    /// Samples of `expected` = B rows on average.
    ///
    /// # Errors
    /// `invalid-request` unless `1 ≤ B ≤ n`.
    pub(super) fn new(rows: &'a Rows, expected: usize) -> Result<Self> {
        sampling_rate(expected, rows.n())?;
        Ok(Self { rows, expected })
    }

    /// B.
    pub(super) fn expected(&self) -> f64 {
        self.expected as f64
    }

    /// B/n.
    pub(super) fn rate(&self) -> f64 {
        self.expected() / self.rows.n() as f64
    }

    /// `Σ x(xᵀX)` over a new sample for `factor` = X, each summand shortened to norm `clip`; and X again.
    pub(super) fn sum(
        &self,
        factor: DMatrix<f64>,
        clip: f64,
        rng: &mut Generator,
    ) -> (DMatrix<f64>, DMatrix<f64>) {
        let mut sum = GradientSum::new(factor, Some(clip), self.expected);
        self.sample(rng, |index| sum.add(self.rows.row(index)));
        sum.finish()
    }

    /// Gaps between the rows of a sample are geometric, so the work is that of the sample, not of n.
    fn sample(&self, rng: &mut Generator, mut take: impl FnMut(usize)) {
        let n = self.rows.n();
        if self.expected == n {
            (0..n).for_each(take);
            return;
        }
        let ln_out = (-self.rate()).ln_1p();
        let mut next = 0.0;
        loop {
            // In (0, 1]: the logarithm is finite.
            let uniform = 1.0 - rng.random::<f64>();
            next += (uniform.ln() / ln_out).floor();
            if next >= n as f64 {
                return;
            }
            take(next as usize);
            next += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generator, testing::gaussian_rows};

    /// 20,000 samples of 50 rows at rate 0.1: each row is in 2,000 ± 42 of them; within 6 deviations for all 50, false
    /// alarm 1e-7. The sizes have the binomial variance 4.5, whose estimate has a standard error of 1 %.
    #[test]
    fn every_row_is_as_likely_and_sizes_are_binomial() {
        let rows = gaussian_rows(50, &[0.5, 0.5], 1);
        let batches = Batches::new(&rows, 5).unwrap();
        let mut rng = generator(Some(1)).unwrap();
        let (mut taken, mut squares) = ([0_u32; 50], 0.0);
        for _ in 0..20_000 {
            let mut size = 0.0;
            batches.sample(&mut rng, |index| {
                taken[index] += 1;
                size += 1.0;
            });
            squares += (size - 5.0_f64).powi(2) / 20_000.0;
        }
        assert!(
            taken.iter().all(|&t| (1_745..2_255).contains(&t)),
            "{taken:?}"
        );
        assert!((squares - 4.5).abs() < 0.27, "{squares}");
    }

    #[test]
    fn everybody_and_nobody() {
        let rows = gaussian_rows(20, &[0.5, 0.3], 1);
        let mut rng = generator(Some(2)).unwrap();
        let all = Batches::new(&rows, 20).unwrap();
        let factor = DMatrix::identity(2, 2);
        let (_, sum) = all.sum(factor, 1.0, &mut rng);
        assert!((sum - rows.sum_of_outer_products()).amax() < 1e-12);
        assert!(Batches::new(&rows, 0).is_err() && Batches::new(&rows, 21).is_err());
    }
}
