//! Eigenveil's device SDK and the operator's API client.
//!
//! ```text
//! Study ─▶ Ledger::participate ──────────────────────▶ http::send_pending ─▶ server
//! Row      (limits, prepare, perturb, charge, durable)  (retries send the same bytes)
//! ```
//!
//! * [`Study`] turns one raw row into one perturbed report. It takes no random generator: the
//!   noise always comes from the operating system. In a [`SiteStudy`] the report is of a site's whole table.
//! * [`Book`](book::Book) has the rules: a device takes part in a study once, within limits that its owner sets, and
//!   has a [`Receipt`] that a person can read. It is a value without I/O, for any store.
//! * [`Request`] goes out by any HTTP client and reads its own [`Response`].
#![cfg_attr(
    feature = "sqlite",
    doc = "* [`Ledger`] is the device's file: a book in SQLite, for years.
* [`RowLedger`] is the file of a program that reports the rows of many: what each has spent in which study, and the
  reports still to be sent. A row that has a report is never given a second one, whatever crashed in between: perturbing
  a row twice and sending both would spend its privacy budget twice. It is a site's file, too: `upload_site_table`."
)]
#![cfg_attr(
    feature = "http",
    doc = "* [`http::StudyClient`] fetches a study and checks it against its fingerprint; [`http`] also sends the pending
  reports of ledgers (with the feature `sqlite`); [`http::OperatorClient`] creates studies and asks for estimates."
)]
#![cfg_attr(
    feature = "sqlite",
    doc = r##"
# One device, start to end

```
use eigenveil_client::{Ledger, Limits, Study};
use eigenveil_shared::{
    mechanism::MechanismKind, preprocess::Row, privacy::Budget,
    study::{StudyDesign, StudyParams},
};
# fn main() -> Result<(), Box<dyn std::error::Error>> {
# let folder = tempfile::tempdir()?;
# let path = folder.path().join("device.ledger");
let params = StudyParams::freeze(StudyDesign::new(MechanismKind::DiscreteGaussian, 3, Budget::approximate(1.0, 1e-6)?))?;
let server = "http://localhost:8080".parse()?;
let study = Study::new(&server, "0123456789abcdef0123456789abcdef", params);

let mut ledger = Ledger::open(&path)?;
// The owner's choice, once; there are defaults.
ledger.set_limits(Limits::new(2.0, 8.0, 1e-5)?)?;
// Charged and durable when this returns; a second call gives the same report.
let row = Row::new(vec![3.0, 0.0, 4.0]);
ledger.participate(&study, &row)?;
for entry in ledger.pending()? {
    // Leave all of this to `http::send_pending`, or send the request by an HTTP client of your own:
    let request = ledger.request(&entry)?;
#   let headers = [("content-type", "application/json")];
#   let response = eigenveil_client::Response { status: 201, headers: &headers, body: br#"{"outcome":"accepted"}"#, now: None };
    // ... and record the response.
    ledger.settle(&request, &response)?;
}
assert!(ledger.receipt()?.to_string().contains("charged epsilon 1, delta 1e-6"));
# Ok(())
# }
```
"##
)]
//!
//! # Features
//!
//! | feature | default | gives |
//! |---|---|---|
//! | `sqlite` | yes | `Ledger` and `RowLedger` |
//! | `http` | yes | `http`: reqwest with rustls, tokio |
//! | both | yes | `blocking`, `http::send_pending`, `http::send_rows`, `upload_table`, `upload_site_table` |
//!
//! Without both, nothing here does I/O but the operating system's random generator: a browser or a phone keeps a
//! [`Book`](book::Book) in its own store and sends a [`Request`] by its own HTTP client.
//!
//! # Errors
//!
//! [`Error`] is one type, with a stable [`name`](Error::name). Every method that uses a file can fail to read or write
//! it, and every method that calls a server can fail with the server's error ([`Error::code`]) or without a response.
//! The `# Errors` of a method list only other errors.
//!
//! # Limitations
//!
//! No encryption of ledgers: they hold charges, perturbed reports and one-time tokens, never a row, and are readable by
//! their owner only. No memory that survives the deletion of the file.

pub mod book;
pub mod error;
pub mod exchange;
#[cfg(feature = "sqlite")]
mod given_up;
#[cfg(feature = "http")]
pub mod http;
mod rules;
mod site_study;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod study;
mod study_info;
mod study_name;

#[cfg(all(feature = "http", feature = "sqlite"))]
pub mod blocking;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod site_upload;
#[cfg(all(feature = "http", feature = "sqlite"))]
mod upload;

pub use book::{EntryState, Receipt, ReceiptEntry, StudyRecord};
pub use eigenveil_shared::clock::{Clock, SystemClock};
pub use error::{Error, Hint, Result};
pub use exchange::{Answer, ReportResult, Request, Response, Server};
#[cfg(feature = "sqlite")]
pub use given_up::GivenUp;
pub use rules::{Limits, PrivacyCost, StudyTerms};
pub use site_study::SiteStudy;
#[cfg(all(feature = "http", feature = "sqlite"))]
pub use site_upload::{SiteUploadAnswer, upload_site_table};
#[cfg(feature = "sqlite")]
pub use sqlite::{
    AdmittedRows, AdmittedTable, Ledger, Participation, PendingReport, Prepared, RefusedRow,
    RowCounts, RowFile, RowLedger, RowReceipt, RowStudy, SitePersons, SiteRecord, SiteReportRecord,
    SiteTable, SiteUploadRequest, TableCounts, UploadRequest,
};
pub use study::{PreparedReport, Study};
pub use study_info::StudyInfo;
#[cfg(all(feature = "http", feature = "sqlite"))]
pub use upload::{Holders, Participants, RowCharges, UploadAnswer, UploadProgress, upload_table};
