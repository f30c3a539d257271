//! The three variants of the algorithm, and how they differ.

use eigenveil_shared::{Error, Result, privacy::Budget};

use super::{
    calibration::{max_shuffled_epsilon, published_batch_sd, published_one_row_sd},
    step_size::DEFAULT_NUMERATOR,
};
use crate::{
    input::stream::{steps_and_batch, whole_steps},
    parameter::{EIGENGAP, GRADIENT_CLIP, Options, STEP_SIZE},
};

/// Default β: at 1 no row of the unit ball is clipped.
pub(super) const DEFAULT_CLIP: f64 = 1.0;

/// c of the step sizes `c/(o + t)`: the step size if set, or for a known eigengap λ_k − λ_{k+1} that of the paper's
/// `α/((λ₁−λ₂)(ξ+t))` (Theorem 2.2, which asks for α > 1/2) with α = 1.
pub(super) fn numerator(options: &Options) -> f64 {
    let gap = options.number(EIGENGAP);
    let set = options.number(STEP_SIZE).or(gap.map(f64::recip));
    set.unwrap_or(DEFAULT_NUMERATOR)
}

/// The variants, each with k components orthonormalised by QR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OjaVariant {
    /// One row per step, without clipping and noise.
    Plain,
    /// One row per step; its gradient is clipped, and noise is added.
    Private,
    /// T steps of B = `⌊n/T⌋` rows; each gradient is clipped, and noise is added to their sum. `T = ⌈ln² n⌉`, the
    /// paper's `O(log² n)`, unless T or B is set. Rows after the last complete batch are not used.
    Minibatch,
}

impl OjaVariant {
    /// β, the Frobenius norm that a row's gradient is clipped to.
    pub(super) fn clip(self, options: &Options) -> Option<f64> {
        let clips = self != Self::Plain;
        clips.then(|| options.number(GRADIENT_CLIP).unwrap_or(DEFAULT_CLIP))
    }

    /// T and B.
    pub(super) fn steps(self, options: &Options, n: u64) -> Result<(usize, usize)> {
        if self != Self::Minibatch {
            return Ok((whole_steps(n, 1)?, 1));
        }
        let default = ((n as f64).ln().powi(2).ceil() as usize).max(1);
        let (steps, batch) = steps_and_batch(n, options, default)?;
        if batch == 0 {
            return Err(Error::invalid_request(format!(
                "{steps} steps over n = {n} rows; a step needs a row: use between 1 and n steps"
            )));
        }
        Ok((steps, batch))
    }

    /// The paper's noise on a step's sum of gradients, and a note about it.
    pub(super) fn published(
        self,
        budget: Budget,
        n: u64,
        steps: usize,
        clip: f64,
    ) -> (f64, Option<String>) {
        if self == Self::Minibatch {
            let note = "the published noise composes the steps sequentially, but each row is used in only one step";
            return (
                published_batch_sd(budget, steps, clip),
                Some(note.to_owned()),
            );
        }
        let limit = max_shuffled_epsilon(budget.delta(), n);
        let note = if budget.epsilon() <= limit {
            format!(
                "the true epsilon is without shuffling; the paper's amplification, up to constants, covers epsilon <= {limit:.3e} at this n"
            )
        } else {
            format!(
                "the published noise relies on shuffling, whose amplification needs epsilon <= {limit:.3e} at this n"
            )
        };
        (published_one_row_sd(budget, n, clip), Some(note))
    }
}
