//! Eigenveil's vocabulary: what a device compiles.
//!
//! One row's journey, in types that make the wrong call impossible:
//!
//! ```text
//! Row ──Preprocessor::prepare──▶ BoundedRow ──Mechanism::perturb──▶ Payload ──▶ Report ──codec──▶ wire
//! (raw f64s)                     (proof that ‖x‖₂ ≤ 1)                  ε-LDP        (id, study, payload)
//! ```
//!
//! * [`preprocess`]: [`Row`](preprocess::Row), [`Preprocessing`](preprocess::Preprocessing),
//!   [`BoundedRow`](preprocess::BoundedRow) (private constructor).
//! * [`privacy`]: [`Budget`](privacy::Budget), the analytic and the as-published calibration of the
//!   Gaussian mechanism, and the [`PrivacyStatement`](privacy::PrivacyStatement) shown with every result.
//! * [`mechanism`]: the closed set of local randomizers and their [`NoiseModel`](mechanism::NoiseModel).
//! * [`study`]: [`StudyParams`](study::StudyParams), frozen and fingerprinted; [`site_study`]: the same where each
//!   report is a site's table; [`preparation`]: the same where each report is an answer about one column;
//!   [`parameters`]: any of them.
//! * [`report`], [`codec`]: reports, and the one module in which their byte layout is defined.
//! * [`enrolment`]: who may take part, and one-time tokens.
//! * [`about`]: the notice to the people whom a study invites.
//! * [`api`], [`estimate`], [`site_estimate`], [`mod@error`]: the JSON documents that client and server exchange over
//!   HTTP.
//! * [`wording`]: parts of sentences for people.
//!
//! # A report, start to end
//!
//! ```
//! use eigenveil_shared::{
//!     mechanism::MechanismKind,
//!     preprocess::Row,
//!     privacy::Budget,
//!     study::{StudyDesign, StudyParams},
//! };
//! # fn main() -> Result<(), eigenveil_shared::Error> {
//! let params = StudyParams::freeze(StudyDesign::new(MechanismKind::DoubleCap, 3, Budget::pure(4.0)?))?;
//! let row = params.preprocessor().prepare(&Row::new(vec![3.0, 0.0, 4.0]))?;
//! let payload = params.mechanism().perturb(&row)?;
//! assert_eq!(payload.len(), params.payload_len()); // a seed of 16 bytes
//! # Ok(())
//! # }
//! ```
//!
//! # What is not here
//!
//! No I/O, no clock, no async, no linear algebra; threads where a table is summed, and nowhere else. What floating
//! point adds to the ε of the Gaussian mechanisms is bounded and stated (`docs/derivations/gaussian.md`, "Floating
//! point").

#[macro_use]
mod names;

pub mod about;
pub mod clock;
pub mod codec;
mod dot;
pub mod error;
mod fingerprint;
pub mod mechanism;
mod messages;
pub mod packed;
pub mod parameters;
pub mod preparation;
pub mod preprocess;
pub mod privacy;
#[cfg(feature = "openapi")]
mod schemas;
pub mod site_study;
pub mod sparse;
pub mod study;
pub mod wording;

pub use error::{Error, ErrorCode, Hint, Result};
pub use messages::{api, enrolment, estimate, report, site_estimate};
pub use names::{optional_word, word};
