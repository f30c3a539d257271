//! Oja's algorithm and its private forms (Liu, Kong, Jain & Oh 2022).
//!
//! * [`Oja`]: the three of them, by their [`OjaVariant`]: `oja` (Algorithm 1), `private-oja` (Algorithm 2), `minibatch-oja`
//!   (equation 7).
//! * [`StepSize`]: the schedule `c/(o + t)`.
//! * [`gradient_sensitivity`]: what one row can do to one step.
//!
//! All make one pass, so each row takes part in one step only: the steps compose in parallel, and the whole run is
//! as private as one step. The paper composes them one after another, or shuffles.

mod ascent;
mod calibration;
mod variants;
mod run;
mod step_size;

pub use calibration::gradient_sensitivity;
pub use variants::{OjaVariant, Oja, Batching};
pub use step_size::{DEFAULT_NUMERATOR, StepSize, numerator_for_eigengap};

pub(crate) use variants::{MINIBATCH, PLAIN, PRIVATE};
