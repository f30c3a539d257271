//! Iterations and block size of the power method.

use eigenveil_shared::{Error, Result};

use crate::parameter::{BLOCK_SIZE, ITERATIONS, Options};

/// Iterations L and block size; by default both follow from the dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSettings {
    /// L; `None`: [`BlockSettings::iterations`].
    pub iterations: Option<usize>,
    /// Columns of the iterate (the paper's p), from k to the dimension; `None`: [`BlockSettings::block_size`].
    pub block_size: Option<usize>,
}

pub(super) const MAX_SETTLING_STEPS: usize = 5_000;

impl BlockSettings {
    pub(super) fn from_options(options: &Options) -> Self {
        Self {
            iterations: options.count(ITERATIONS),
            block_size: options.count(BLOCK_SIZE),
        }
    }

    /// L of a run with noise or over a stream: the setting, or `⌈2 ln d⌉`. The paper's L is
    /// `O(σ_k/(σ_k−σ_{k+1})·log d)`, of which only d is public.
    pub fn iterations(&self, dimension: usize) -> usize {
        let default = (2.0 * (dimension.max(2) as f64).ln()).ceil() as usize;
        self.iterations.unwrap_or(default)
    }

    /// Block size: the setting, or `min(2k, d)`, the paper's `k + Ω(k)`; 1 for k = 1, because a second column would
    /// raise the sensitivity for replace neighbours.
    pub fn block_size(&self, k: usize, dimension: usize) -> Result<usize> {
        let default = if k == 1 { 1 } else { (2 * k).min(dimension) };
        let block_size = self.block_size.unwrap_or(default);
        if block_size < k || block_size > dimension {
            return Err(Error::invalid_request(format!(
                "block-size is {block_size}; k = {k} components in dimension {dimension} need between {k} and {dimension}"
            )));
        }
        Ok(block_size)
    }
}
