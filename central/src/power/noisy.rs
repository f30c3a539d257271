//! The meta-algorithm: `X ← QR(AX + G)`.

use std::ops::ControlFlow;

use eigenveil_estimation::linalg::{
    cross_product, fix_signs, orthonormalize, product, symmetric_eigen,
};
use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

/// The last iterates of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerRun {
    /// `X_L`: `d × p`, orthonormal.
    pub basis: DMatrix<f64>,
    /// `Y_L = A·X_{L−1} + G_L`, of which `X_L` is the Q factor: `d × p`.
    pub image: DMatrix<f64>,
    /// Steps made.
    pub steps: usize,
}

impl PowerRun {
    /// The leading `k ≤ p` left singular vectors of `Y_L` (`d × k`), largest first, and its singular values: the best
    /// k-dimensional part of the last release. It is post-processing of the iterates, so it costs no privacy.
    pub fn leading(&self, k: usize) -> Result<(DMatrix<f64>, Vec<f64>)> {
        // Y = X·R: the left singular vectors of the small R, multiplied by X.
        let r = cross_product(&self.basis, &self.image);
        let eigen = symmetric_eigen(&(&r * r.transpose()))?;
        let mut vectors = product(&self.basis, &eigen.vectors.columns(0, k).into_owned());
        fix_signs(&mut vectors);
        let values = eigen.values.iter().map(|square| square.max(0.0).sqrt());
        Ok((vectors, values.collect()))
    }
}

/// The noisy power method (Hardt & Price 2014, Figure 1): from the orthonormal `start` (`d × p`) makes `iterations`
/// steps `Y ← AX + G`, `X ← QR(Y)`. **No privacy of its own**: its guarantee is that of the closure's releases.
///
/// `image(ℓ, X_{ℓ−1})` returns `A·X_{ℓ−1} + G_ℓ`, for ℓ = 1 … L; G may be any perturbation: noise, a sample instead of
/// A, rounding. `watch` is called after every step and may stop the run.
///
/// # Errors
/// Those of `image` and `watch`; `invalid-request` for no iterations; `estimate-failed` if an image has fewer than p
/// independent columns.
///
/// ```
/// use eigenveil_central::power::noisy_power;
/// use nalgebra::dmatrix;
/// use std::ops::ControlFlow;
/// let a = dmatrix![2.0, 0.0; 0.0, 1.0];
/// let g = 1e-3;
/// let run = noisy_power(
///     dmatrix![0.6; 0.8],
///     50,
///     |_, x| Ok((&a * x).add_scalar(g)),
///     |_| Ok(ControlFlow::Continue(())),
/// )?;
/// assert!((run.basis[1] / run.basis[0] - 1e-3).abs() < 1e-5);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn noisy_power(
    start: DMatrix<f64>,
    iterations: usize,
    mut image: impl FnMut(usize, &DMatrix<f64>) -> Result<DMatrix<f64>>,
    mut watch: impl FnMut(&PowerRun) -> Result<ControlFlow<()>>,
) -> Result<PowerRun> {
    let mut run = PowerRun {
        image: DMatrix::zeros(start.nrows(), start.ncols()),
        basis: start,
        steps: 0,
    };
    if iterations == 0 {
        return Err(Error::invalid_request(
            "iterations is 0; the power method needs at least 1",
        ));
    }
    while run.steps < iterations {
        run.steps += 1;
        run.image = image(run.steps, &run.basis)?;
        run.basis = orthonormalize(run.image.clone())?;
        if watch(&run)?.is_break() {
            break;
        }
    }
    Ok(run)
}
