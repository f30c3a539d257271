//! Oja's algorithm and its private forms (Liu, Kong, Jain & Oh 2022).
//!
//! * [`Oja`]: the three of them, by their [`Form`]: `oja` (Algorithm 1), `private-oja` (Algorithm 2), `minibatch-oja`
//!   (equation 7).
//! * [`StepSize`]: the schedule `c/(o + t)`.
//! * [`gradient_sensitivity`]: what one row can do to one step.
//!
//! All make one pass, so each row takes part in one step only: the steps compose in parallel, and the whole run is
//! as private as one step. The paper composes them one after another, or shuffles.

mod ascent;
mod calibration;
mod form;
mod run;
mod step_size;

pub use calibration::gradient_sensitivity;
pub use form::{Form, Oja, Steps};
pub use step_size::{DEFAULT_NUMERATOR, StepSize, numerator_for_gap};

pub(crate) use form::{MINIBATCH, PLAIN, PRIVATE};
