//! Eigenveil's device SDK and the analyst's API client.
//!
//! ```text
//! Row ─▶ Participant::report ─▶ PreparedReport ─▶ Outbox ─▶ Uploader ─▶ server
//!        (prepare, perturb)     (fixed for ever)  (durable)  (retries send the same bytes)
//! ```
//!
//! * [`Participant`] turns one raw row into one perturbed report. It takes no random generator: the
//!   noise always comes from the operating system.
//! * [`Outbox`] keeps reports until the server has acknowledged them. A participant that is in the
//!   outbox is never given a second report, whatever crashed in between: perturbing a row twice
//!   and sending both would spend its privacy budget twice.
#![cfg_attr(
    feature = "http",
    doc = "* [`http::StudyClient`] fetches a study and checks it against its fingerprint;
  [`http::Uploader`] sends an outbox; [`http::AnalystClient`] creates studies and asks for
  estimates. [`blocking`] has the same without `async`."
)]
//!
//! # One device, start to end
//!
//! ```
//! use eigenveil_client::{Outbox, Participant, StudyBinding};
//! use eigenveil_shared::{
//!     mechanism::{Calibration, MechanismKind}, preprocess::{Norm, Row}, privacy::Budget,
//!     study::{StudyDesign, StudyParams},
//! };
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("reports.outbox");
//! let params = StudyParams::freeze(StudyDesign {
//!     dimension: 3,
//!     features: None,
//!     norm: Norm::Normalize,
//!     centring: None,
//!     mechanism: MechanismKind::IsotropicGaussian,
//!     calibration: Calibration::Analytic,
//!     budget: Budget::approximate(1.0, 1e-6)?,
//! })?;
//! let binding = StudyBinding::new("http://localhost:8080", "0123456789abcdef0123456789abcdef", &params);
//! let participant = Participant::new(params);
//!
//! let mut outbox = Outbox::open(&path, &binding)?;
//! if !outbox.is_known(0)? {
//!     let prepared = participant.report(&Row::new(vec![3.0, 0.0, 4.0]))?;
//!     outbox.enqueue(0, &prepared)?;
//! }
//! assert_eq!(outbox.pending(10)?.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `http` | yes | `http` and `blocking`: reqwest with rustls, tokio |
//!
//! Without `http` no HTTP, TLS or async crate is compiled: a device with its own transport sends
//! [`eigenveil_shared::codec::encode_report`] of what [`Outbox::pending`] gives and calls
//! [`Outbox::acknowledge`].
//!
//! # What is not here
//!
//! No limit on a person's total budget over several studies: one outbox belongs to one study. No
//! encryption of the outbox: it holds perturbed reports only, and is readable by its owner only.

pub mod error;
#[cfg(feature = "http")]
pub mod http;
pub mod outbox;
pub mod participant;

#[cfg(feature = "http")]
pub mod blocking;

pub use error::{Error, Result};
pub use outbox::{Outbox, OutboxCounts, PendingReport, RefusedEntry, StudyBinding};
pub use participant::{Clock, Participant, PreparedReport, SystemClock};
