//! Steps and columns of a run of the power method.

use eigenveil_shared::{Error, Result};

use crate::parameter::{BLOCK_SIZE, ITERATIONS, Options};

/// Iterations L and columns of the iterate, where they are not chosen for the data's dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSettings {
    /// L; `None`: [`BlockSettings::iterations`].
    pub iterations: Option<usize>,
    /// Columns of the iterate, the paper's p, from k to the dimension; `None`: [`BlockSettings::columns`].
    pub columns: Option<usize>,
}

/// Steps after which a run without noise gives up waiting for the iterate to settle.
pub(super) const MAX_SETTLING_STEPS: usize = 5_000;

impl BlockSettings {
    /// As set.
    pub(super) fn from_options(options: &Options) -> Self {
        Self {
            iterations: options.count(ITERATIONS),
            columns: options.count(BLOCK_SIZE),
        }
    }

    /// L of a run with noise or over a stream: as set, or `⌈2 ln d⌉`. The paper's L is `O(σ_k/(σ_k−σ_{k+1})·log d)`,
    /// of which only d is public.
    pub fn iterations(&self, dimension: usize) -> usize {
        let usual = (2.0 * (dimension.max(2) as f64).ln()).ceil() as usize;
        self.iterations.unwrap_or(usual)
    }

    /// Columns: as set, or `min(2k, d)`, the paper's `k + Ω(k)`; 1 for k = 1, where a second column would
    /// raise the sensitivity between replace neighbours.
    ///
    /// # Errors
    /// `invalid-request` for a number outside `k..=d`.
    pub fn columns(&self, k: usize, dimension: usize) -> Result<usize> {
        let usual = if k == 1 { 1 } else { (2 * k).min(dimension) };
        let columns = self.columns.unwrap_or(usual);
        if columns < k || columns > dimension {
            return Err(Error::invalid_request(format!(
                "{columns} columns are inputs for; k = {k} components in dimension {dimension} need between {k} and {dimension}"
            )));
        }
        Ok(columns)
    }
}
