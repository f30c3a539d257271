//! The three variants of the algorithm.

use eigenveil_shared::{Error, Result, privacy::Budget};

use super::{
    calibration::{max_shuffled_epsilon, published_batch_sd, published_one_row_sd},
    step_size::DEFAULT_NUMERATOR,
};
use crate::{
    AlgorithmInfo,
    parameter::{BATCH, EIGENGAP, GRADIENT_CLIP, ITERATIONS, Options, Parameter, STEP_SIZE},
    stream::{conflicting_steps_error, whole_steps},
};

/// Default β: at 1 no row of the unit ball is clipped.
const DEFAULT_CLIP: f64 = 1.0;
const CLIP: Parameter = GRADIENT_CLIP.with_default(DEFAULT_CLIP);
const STEP: Parameter = STEP_SIZE.with_default(DEFAULT_NUMERATOR);

pub(crate) static PLAIN: AlgorithmInfo = AlgorithmInfo {
    name: "oja",
    source: "Liu et al. 2022, Algorithm 1",
    description: "stochastic gradient ascent, one row a step; one pass, O(pk) memory",
    guarantee: "none of its own: use private-oja or minibatch-oja for privacy",
    parameters: &[STEP, EIGENGAP],
    ..AlgorithmInfo::nonprivate(|options| {
        Ok(Box::new(Oja {
            numerator: numerator(options)?,
            variant: OjaVariant::Plain,
        }))
    })
};

pub(crate) static PRIVATE: AlgorithmInfo = AlgorithmInfo {
    name: "private-oja",
    source: "Liu et al. 2022, Algorithm 2",
    description: "Oja with every row's gradient clipped and perturbed; one pass, O(pk) memory",
    guarantee: "accounted: (eps,delta) by parallel composition, no shuffling needed; the published noise requires shuffling and a tiny eps",
    parameters: &[STEP, EIGENGAP, CLIP],
    ..AlgorithmInfo::private(|options| {
        let clip = options.number(GRADIENT_CLIP).unwrap_or(DEFAULT_CLIP);
        Ok(Box::new(Oja {
            numerator: numerator(options)?,
            variant: OjaVariant::Private { clip },
        }))
    })
};

pub(crate) static MINIBATCH: AlgorithmInfo = AlgorithmInfo {
    name: "minibatch-oja",
    source: "Liu et al. 2022, equation 7",
    description: "Oja with noise on the sum of a batch's clipped gradients; one pass, O(pk) memory",
    guarantee: "accounted: (eps,delta) by parallel composition; the published noise charges every step, far more than needed",
    parameters: &[ITERATIONS, BATCH, STEP, EIGENGAP, CLIP],
    ..AlgorithmInfo::private(|options| {
        let batching = match (options.count(ITERATIONS), options.count(BATCH)) {
            (Some(_), Some(_)) => return Err(conflicting_steps_error()),
            (Some(steps), None) => Some(Batching::Count(steps)),
            (None, batch) => batch.map(Batching::Batch),
        };
        let clip = options.number(GRADIENT_CLIP).unwrap_or(DEFAULT_CLIP);
        Ok(Box::new(Oja {
            numerator: numerator(options)?,
            variant: OjaVariant::Minibatch { clip, batching },
        }))
    })
};

/// c: the step size if set, or for a known eigengap λ_k − λ_{k+1} that of the paper's `α/((λ₁−λ₂)(ξ+t))` (Theorem 2.2,
/// which asks for α > 1/2) with α = 1.
fn numerator(options: &Options) -> Result<Option<f64>> {
    match (options.number(STEP_SIZE), options.number(EIGENGAP)) {
        (Some(_), Some(_)) => Err(Error::invalid_request(
            "step-size and eigengap are both set; an eigengap sets the step's constant to 1/eigengap: leave one out",
        )),
        (step, gap) => Ok(step.or(gap.map(f64::recip))),
    }
}

/// The variants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OjaVariant {
    /// `oja`: one row a step, no clipping, no noise.
    Plain,
    /// `private-oja`: one row a step, its gradient clipped to Frobenius norm `clip`, and noise on it.
    Private {
        /// β, in (0, 1]; at 1 no row of the unit ball is clipped.
        clip: f64,
    },
    /// `minibatch-oja`: T steps of `⌊n/T⌋` rows, each gradient clipped, and noise on their sum. Rows after the last
    /// complete batch are not used.
    Minibatch {
        /// β, in (0, 1]; at 1 no row of the unit ball is clipped.
        clip: f64,
        /// T or B; `None`: `T = ⌈ln² n⌉`, the paper's `O(log² n)`.
        batching: Option<Batching>,
    },
}

/// How the rows are divided into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// This many steps T; the batch is `⌊n/T⌋`.
    Count(usize),
    /// This many rows B a batch; the steps are `⌊n/B⌋`.
    Batch(usize),
}

/// Oja's algorithm, plain or private, with k components orthonormalised by QR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Oja {
    /// The variant.
    pub variant: OjaVariant,
    /// c of the step sizes `c/(o + t)`; `None`: [`DEFAULT_NUMERATOR`](super::DEFAULT_NUMERATOR); for a known eigengap
    /// its inverse. The offset follows from the batch and the noise
    /// ([`StepSize::for_variance`](super::StepSize::for_variance)).
    pub numerator: Option<f64>,
}

impl Oja {
    /// `oja`.
    pub const PLAIN: Self = Self {
        variant: OjaVariant::Plain,
        numerator: None,
    };
    /// `private-oja` without clipping in the unit ball.
    pub const PRIVATE: Self = Self {
        variant: OjaVariant::Private { clip: DEFAULT_CLIP },
        numerator: None,
    };
    /// `minibatch-oja` without clipping in the unit ball, `T = ⌈ln² n⌉`.
    pub const MINIBATCH: Self = Self {
        variant: OjaVariant::Minibatch {
            clip: DEFAULT_CLIP,
            batching: None,
        },
        numerator: None,
    };
}

impl OjaVariant {
    pub(super) fn info(&self) -> &'static AlgorithmInfo {
        match self {
            Self::Plain => &PLAIN,
            Self::Private { .. } => &PRIVATE,
            Self::Minibatch { .. } => &MINIBATCH,
        }
    }

    pub(super) fn clip(&self) -> Result<Option<f64>> {
        match *self {
            Self::Plain => Ok(None),
            Self::Private { clip } | Self::Minibatch { clip, .. } => {
                CLIP.check(clip)?;
                Ok(Some(clip))
            }
        }
    }

    pub(super) fn steps(&self, n: u64) -> Result<(usize, usize)> {
        let Self::Minibatch { batching, .. } = *self else {
            return Ok((whole_steps(n, 1)?, 1));
        };
        let default = || Batching::Count(((n as f64).ln().powi(2).ceil() as usize).max(1));
        match batching.unwrap_or_else(default) {
            Batching::Batch(batch) => Ok((whole_steps(n, batch)?, batch)),
            Batching::Count(steps) => {
                let batch = n.checked_div(steps as u64).unwrap_or(0);
                if batch == 0 {
                    return Err(Error::invalid_request(format!(
                        "{steps} steps over n = {n} rows; a step needs a row: use between 1 and n steps"
                    )));
                }
                Ok((steps, batch as usize))
            }
        }
    }

    /// The paper's noise on a step's sum of gradients, and a note about it.
    pub(super) fn published(
        &self,
        budget: Budget,
        n: u64,
        steps: usize,
        clip: f64,
    ) -> (f64, Option<String>) {
        if let Self::Minibatch { .. } = self {
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
