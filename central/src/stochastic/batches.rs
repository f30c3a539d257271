//! Poisson samples of the rows.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{
    Generator, GradientSum, Rows,
    parts::poisson::{poisson_sample, sampling_rate},
};

/// Each row with probability B/n, independently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batches<'a> {
    rows: &'a Rows,
    expected: usize,
}

impl<'a> Batches<'a> {
    /// Samples of `expected` = B rows on average.
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

    /// `√((1 − B/n)/B)`: an upper bound on the sampling error of `Σ x(xᵀX)/B` for ‖X‖ ≤ 1 (root mean square,
    /// Frobenius).
    pub(super) fn sampling_deviation(&self) -> f64 {
        ((1.0 - self.rate()) / self.expected()).sqrt()
    }

    /// `Σ x(xᵀX)` over a new sample for `factor` = X, each summand clipped to norm `clip`; returns X too.
    pub(super) fn sum(
        &self,
        factor: DMatrix<f64>,
        clip: f64,
        rng: &mut Generator,
    ) -> (DMatrix<f64>, DMatrix<f64>) {
        let mut sum = GradientSum::new(factor, Some(clip), self.expected);
        poisson_sample(self.rows.n(), self.rate(), rng, |index| {
            sum.add(self.rows.row(index));
        });
        sum.finish()
    }
}
