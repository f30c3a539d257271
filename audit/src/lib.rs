//! Empirical lower bounds on ε: a test that would catch a mechanism that lies.
//!
//! Black box: outputs under each of two rows through the public perturb path; a threshold event is
//! chosen on one half of them and judged on the other, so that the bound is valid whatever the choice.
//!
//! ```
//! use eigenveil_audit::event_bound;
//! let (a, b) = ([0.1, 0.2, 0.9, 1.0], [0.0, 0.1, 0.2, 0.3]);
//! // Four outputs each prove nothing: the bound is 0.
//! assert_eq!(event_bound(&a, &b, 1e-6, 0.95)?.epsilon_lower_bound, 0.0);
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```
//!
//! So far the event bound of `docs/mechanisms.md`; worst-case pairs, the μ-GDP bound for mechanisms that are
//! Gaussian by construction, and the command line are to come.

mod clopper_pearson;
mod event;

pub use clopper_pearson::{lower_limit, upper_limit};
pub use event::{EventBound, event_bound, likelihood_ratio_statistics};
