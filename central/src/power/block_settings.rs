//! Iterations and block size of the power method.

use eigenveil_shared::{Error, Result};

use crate::parameter::{BLOCK_SIZE, Options};

/// L of a run with noise or over a stream, if not set. The paper's L is `O(σ_k/(σ_k−σ_{k+1})·log d)`, of which only d is
/// public.
pub(super) fn default_iterations(dimension: usize) -> usize {
    (2.0 * (dimension.max(2) as f64).ln()).ceil() as usize
}

/// Columns of the iterate (the paper's p), from k to the dimension: the setting, or `min(2k, d)`, the paper's `k + Ω(k)`;
/// 1 for k = 1, because a second column would raise the sensitivity for replace neighbours.
pub(super) fn block_size(options: &Options, k: usize, dimension: usize) -> Result<usize> {
    let default = if k == 1 { 1 } else { (2 * k).min(dimension) };
    let block_size = options.count(BLOCK_SIZE).unwrap_or(default);
    if block_size < k || block_size > dimension {
        return Err(Error::invalid_request(format!(
            "block-size is {block_size}; k = {k} components in dimension {dimension} need between {k} and {dimension}"
        )));
    }
    Ok(block_size)
}
