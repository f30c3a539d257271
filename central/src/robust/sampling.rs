//! Sampling of the rows of each step.

use std::borrow::Cow;

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::table::Table;
use crate::{
    Generator, Options, Privacy,
    parameter::{BATCH, ITERATIONS},
    parts::poisson::sampling_rate,
};

/// Default steps of the private variants; each step needs noise.
const DEFAULT_FULL_BATCH_STEPS: usize = 100;
const DEFAULT_SAMPLED_STEPS: usize = 500;
const DEFAULT_NONPRIVATE_BATCH: usize = 20;

/// Number of steps, and the sampling of their rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Schedule {
    /// T.
    pub(super) count: usize,
    /// Poisson sampling rate q; `None`: all rows.
    pub(super) rate: Option<f64>,
}

impl Schedule {
    /// Steps over all n rows, or over batches, with these parameters. Defaults. Without privacy: `plain` steps, batches
    /// of 20 rows. With privacy: 100 steps (500 when sampling), batches of the paper's size.
    pub(super) fn new(
        options: &Options,
        plain: usize,
        sampled: bool,
        n: usize,
        privacy: &Privacy,
    ) -> Result<Self> {
        let count = options.count(ITERATIONS).unwrap_or(match privacy {
            Privacy::None => plain,
            Privacy::Private(_) if sampled => DEFAULT_SAMPLED_STEPS,
            Privacy::Private(_) => DEFAULT_FULL_BATCH_STEPS,
        });
        let batch = options.count(BATCH).unwrap_or(match privacy {
            Privacy::None => DEFAULT_NONPRIVATE_BATCH.min(n),
            Privacy::Private(target) => default_batch(n, target.budget.epsilon(), count),
        });
        let rate = sampled.then(|| sampling_rate(batch, n)).transpose()?;
        Ok(Self { count, rate })
    }

    pub(super) fn rows<'a>(&self, table: &'a Table, rng: &mut Generator) -> Cow<'a, DMatrix<f64>> {
        match self.rate {
            Some(rate) => Cow::Owned(table.poisson_sample(rate, rng)),
            None => Cow::Borrowed(table.columns()),
        }
    }

    /// The public divisor of a sum: n, or the *expected* size of a batch, never its actual size.
    pub(super) fn denominator(&self, n: usize) -> f64 {
        n as f64 * self.rate.unwrap_or(1.0)
    }
}

/// The batch of the papers' experiments, `max(N√(ε/4T), 1)` (after Bassily et al. 2019).
fn default_batch(n: usize, epsilon: f64, steps: usize) -> usize {
    let batch = n as f64 * (epsilon / (4.0 * steps as f64)).sqrt();
    (batch as usize).clamp(1, n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_of_the_first_experiment() {
        assert_eq!(default_batch(2000, 0.8, 2000), 20);
        assert_eq!(default_batch(100, 0.8, 1_000_000), 1);
        assert_eq!(default_batch(100, 800.0, 10), 100);
    }
}
