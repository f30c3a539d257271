//! Which rows a step sees.

use nalgebra::DMatrix;

use super::table::Table;
use crate::Generator;

/// Number of steps, and the rows of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    /// T.
    pub(super) count: usize,
    /// Poisson sampling rate q; `None`: all rows.
    pub(super) rate: Option<f64>,
}

impl Steps {
    /// Adds up `gradient` over the rows of one step.
    pub(super) fn sum(
        &self,
        table: &Table,
        rng: &mut Generator,
        gradient: impl Fn(&DMatrix<f64>) -> DMatrix<f64>,
    ) -> DMatrix<f64> {
        if let Some(rate) = self.rate {
            return gradient(&table.poisson_sample(rate, rng));
        }
        let mut sum: Option<DMatrix<f64>> = None;
        table.for_each_block(|block| {
            let part = gradient(block);
            match &mut sum {
                Some(sum) => *sum += part,
                None => sum = Some(part),
            }
        });
        sum.unwrap_or_else(|| gradient(table.columns()))
    }

    /// The public number a sum is divided by: n, or the *expected* size of a batch, never the size it has.
    pub(super) fn denominator(&self, n: usize) -> f64 {
        n as f64 * self.rate.unwrap_or(1.0)
    }
}
