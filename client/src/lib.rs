//! Eigenveil's device SDK and the operator's API client.
//!
//! ```text
//! Row ─▶ Ledger::participate ─────────────────────────▶ http::send_owed ─▶ server
//!        (limits, prepare, perturb, charge, durable)  (retries send the same bytes)
//! ```
//!
//! * [`Ledger`] is the device's file: one participant, many studies, for years. It takes part in a
//!   study once, within limits that the device's owner sets, and gives a [`Receipt`] that a person can
//!   read.
//! * [`Reporter`] turns one raw row into one perturbed report. It takes no random generator: the
//!   noise always comes from the operating system.
//! * [`Outbox`] is the other way round, one study and many participants: for a program that reports
//!   the rows of many. A participant that is in the outbox is never given a second report, whatever
//!   crashed in between: perturbing a row twice and sending both would spend its privacy budget twice.
//!   A [`RowLedger`] beside it keeps what each of them has spent, in whatever outbox and study.
#![cfg_attr(
    feature = "http",
    doc = "* [`http::StudyClient`] fetches a study and checks it against its fingerprint;
  [`http::send_owed`] sends what a ledger owes, [`http::Uploader`] an outbox; [`http::OperatorClient`] creates studies and asks for
  estimates. [`blocking`] has what devices need without `async`."
)]
//!
//! # One device, start to end
//!
//! ```
//! use eigenveil_client::{Ledger, Limits, Reporter, StudyRef};
//! use eigenveil_shared::{
//!     mechanism::MechanismKind, preprocess::Row, privacy::Budget,
//!     study::{StudyDesign, StudyParams},
//! };
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("device.ledger");
//! let params = StudyParams::freeze(StudyDesign::new(MechanismKind::DiscreteGaussian, 3, Budget::approximate(1.0, 1e-6)?))?;
//! let study_ref = StudyRef::new("http://localhost:8080", "0123456789abcdef0123456789abcdef", &params);
//! let reporter = Reporter::new(params);
//!
//! let mut ledger = Ledger::open(&path)?;
//! // The owner's choice, once; there are defaults.
//! ledger.set_limits(Limits::new(2.0, 8.0, 1e-5)?)?;
//! // Charged and durable when this returns; called again, it gives the same report.
//! let row = Row::new(vec![3.0, 0.0, 4.0]);
//! ledger.participate(&reporter, &study_ref, &row)?;
//! for owed in ledger.owed()? {
//!     // Send `owed.report` to `owed.study_ref` (or leave all of this to `http::send_owed`), then:
//!     ledger.record_acknowledged(owed.report.id)?;
//! }
//! assert!(ledger.receipt()?.to_string().contains("charged epsilon 1, delta 1e-6"));
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
//! [`eigenveil_shared::codec::encode_report`] of what [`Ledger::owed`] gives and calls
//! [`Ledger::record_acknowledged`] (or the same of [`Outbox`]).
//!
//! # Errors
//!
//! [`Error`] is one type. Every method that uses a file can fail to read or write it, and every method that calls a
//! server can fail with the server's error ([`Error::code`]) or without a response. The `# Errors` of a method list
//! only the others.
//!
//! # What is not here
//!
//! No encryption of the ledger and the outbox: they hold perturbed reports only, and are readable by
//! their owner only. No memory that survives the deletion of the file.

pub mod error;
mod file;
mod file_lock;
#[cfg(feature = "http")]
pub mod http;
pub mod ledger;
pub mod outbox;
pub mod reporter;

#[cfg(feature = "http")]
pub mod blocking;

pub use eigenveil_shared::clock::{Clock, SystemClock};
pub use error::{Error, Result};
pub use ledger::{
    EntryState, Ledger, LedgerReport, Limits, Participation, PrivacyCost, Receipt, ReceiptEntry,
    RowFileDigest, RowLedger, RowReceipt, RowStudy, StudyTerms,
};
pub use outbox::{Outbox, OutboxCounts, PendingReport, RefusedEntry, StudyRef};
pub use reporter::{PreparedReport, Reporter};
