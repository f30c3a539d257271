//! Oja's algorithm and its private variants (Liu, Kong, Jain & Oh 2022).
//!
//! All of them make one pass, so each row is used in only one step: the steps compose in parallel, and the whole run is
//! as private as one step. The paper uses sequential composition or shuffling.

mod calibration;
mod run;
mod step_size;
mod variants;

pub use calibration::gradient_sensitivity;
pub use step_size::{DEFAULT_NUMERATOR, StepSize};

use self::{
    run::ascend,
    variants::{DEFAULT_CLIP, OjaVariant},
};
use crate::{
    AlgorithmInfo,
    baseline::Run,
    parameter::{BATCH, EIGENGAP, GRADIENT_CLIP, ITERATIONS, Parameter, STEP_SIZE},
};

const CLIP: Parameter = GRADIENT_CLIP.with_default(DEFAULT_CLIP);
const STEP: Parameter = STEP_SIZE.with_default(DEFAULT_NUMERATOR);

pub(crate) static PLAIN: AlgorithmInfo = AlgorithmInfo {
    name: "oja",
    source: "Liu et al. 2022, Algorithm 1",
    description: "stochastic gradient ascent, one row per step; one pass, O(pk) memory",
    guarantee: "none of its own: use private-oja or minibatch-oja for privacy",
    parameters: &[STEP, EIGENGAP],
    ..AlgorithmInfo::nonprivate(Run::OnePass(|options, feed, table, request, rng| {
        ascend(OjaVariant::Plain, options, feed, table, request, rng)
    }))
};

pub(crate) static PRIVATE: AlgorithmInfo = AlgorithmInfo {
    name: "private-oja",
    source: "Liu et al. 2022, Algorithm 2",
    description: "Oja with every row's gradient clipped and perturbed; one pass, O(pk) memory",
    guarantee: "accounted: (eps,delta) by parallel composition, no shuffling needed; the published noise requires shuffling and a tiny eps",
    parameters: &[STEP, EIGENGAP, CLIP],
    ..AlgorithmInfo::private(Run::OnePass(|options, feed, table, request, rng| {
        ascend(OjaVariant::Private, options, feed, table, request, rng)
    }))
};

pub(crate) static MINIBATCH: AlgorithmInfo = AlgorithmInfo {
    name: "minibatch-oja",
    source: "Liu et al. 2022, equation 7",
    description: "Oja with noise on the sum of a batch's clipped gradients; one pass, O(pk) memory",
    guarantee: "accounted: (eps,delta) by parallel composition; the published noise charges every step, far more than needed",
    parameters: &[ITERATIONS, BATCH, STEP, EIGENGAP, CLIP],
    ..AlgorithmInfo::private(Run::OnePass(|options, feed, table, request, rng| {
        ascend(OjaVariant::Minibatch, options, feed, table, request, rng)
    }))
};
