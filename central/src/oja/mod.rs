//! Oja's algorithm and its private variants (Liu, Kong, Jain & Oh 2022).
//!
//! All make one pass, so each row is used in only one step: the steps compose in parallel, and the whole run is as
//! private as one step. The paper composes them sequentially, or shuffles.

mod calibration;
mod run;
mod step_size;
mod variants;

pub use calibration::gradient_sensitivity;
pub use step_size::{DEFAULT_NUMERATOR, StepSize};

pub(crate) use variants::{MINIBATCH, PLAIN, PRIVATE};
