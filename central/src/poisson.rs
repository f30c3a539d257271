//! Poisson samples: each row by itself, so that their size is random and only its mean is public.

use eigenveil_shared::{Error, ErrorCode, Result};

/// A batch of `batch` rows in the mean, as a sampling rate.
///
/// # Errors
/// `invalid-request` unless it is between 1 and n.
pub(crate) fn sampling_rate(batch: usize, n: usize) -> Result<f64> {
    if batch == 0 || batch > n {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("a batch of {batch} rows of n = {n}; take between 1 and n"),
        ));
    }
    Ok(batch as f64 / n as f64)
}
