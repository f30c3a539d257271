//! Stochastic gradient ascent on `tr(WᵀAW)` over orthonormal W: the core of all variants of Oja's algorithm.

use eigenveil_estimation::linalg::orthonormalize;
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::StepSize;
use crate::{Generator, GradientSum, noise::EntryNoise, stream::Feed, trace::is_recorded};

/// Linear steps between two orthonormalisations: the span is the same as with one after each step (QR factors
/// multiply), at less cost.
const STEPS_PER_QR: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ascent {
    /// Rows B of a step.
    pub(super) batch: usize,
    pub(super) steps: usize,
    /// Threshold β on the Frobenius norm of one row's `x(xᵀW)`.
    pub(super) clip: Option<f64>,
    /// Standard deviation of the noise on every entry of the batch's sum; 0: none.
    pub(super) noise_sd: f64,
    pub(super) schedule: StepSize,
}

impl Ascent {
    /// `W ← QR(W + η_t/B·(Σ clip_β(x(xᵀW)) + noise))` over the stream, from the orthonormal `w` (`d × k`). The divisor
    /// is the planned B. `watch` is called with the step and the orthonormal iterate.
    pub(super) fn run(
        &self,
        mut w: DMatrix<f64>,
        feed: &mut Feed<'_, '_>,
        rng: &mut Generator,
        mut watch: impl FnMut(usize, &DMatrix<f64>) -> Result<()>,
    ) -> Result<DMatrix<f64>> {
        let noise = EntryNoise::Gaussian { sd: self.noise_sd };
        // Clipping and noise refer to an orthonormal W, so it is orthonormalised at every step.
        let linear = self.noise_sd == 0.0 && self.clip.is_none();
        for t in 1..=self.steps {
            let mut sum = GradientSum::new(w, self.clip, self.batch);
            for _ in 0..self.batch {
                sum.add(feed.next_row()?.as_slice());
            }
            let (previous, mut gradient) = sum.finish();
            if self.noise_sd > 0.0 {
                noise.add_to(&mut gradient, rng);
            }
            w = previous + gradient * (self.schedule.at(t) / self.batch as f64);
            if !linear || t % STEPS_PER_QR == 0 || t == self.steps || is_recorded(t, self.steps) {
                w = orthonormalize(w)?;
            }
            if is_recorded(t, self.steps) {
                watch(t, &w)?;
            }
        }
        Ok(w)
    }
}
