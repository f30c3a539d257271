//! The same without `async`: each type owns (or shares) a small runtime and waits for it.
//!
//! ```no_run
//! use eigenveil_client::{Ledger, blocking::{self, StudyClient}, http::HttpSettings};
//! use eigenveil_shared::preprocess::Row;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = StudyClient::new("http://localhost:8080")?;
//! // Shipped with the device: constants that nobody pinned could mark it.
//! let pinned = "5e7a3c0f9b1d48e62a7c5f0e8d3b1a964c2e7f508b6d1a3f9e0c5b7d2a4f8e61".parse()?;
//! let study = client.fetch_study_pinned("0123456789abcdef0123456789abcdef", pinned)?;
//! let mut ledger = Ledger::open("device.ledger")?;
//! let row = Row::new(vec![0.5; study.params().dimension()]);
//! ledger.take_part(&study.participant(), study.binding(), &row)?;
//! let summary = blocking::send_owed(&mut ledger, &HttpSettings::default())?;
//! println!("{} accepted, {} still owed", summary.accepted, summary.owed);
//! # Ok(())
//! # }
//! ```
//!
//! Not for use inside a runtime: the constructors refuse there, with an error.

use std::{future::Future, io::Write, sync::Arc, time::Duration};

use bytes::Bytes;

use eigenveil_shared::{
    api::{
        AnalystDocument, BatchReceipt, CreateAnalyst, CreateStudy, CreatedAnalyst,
        EstimateDocument, EstimateRequest, ImportReceipt, ReportReceipt, StudyDocument,
        StudySummary, TokenCounts,
    },
    enrolment::ParticipantToken,
    report::Report,
    study::Fingerprint,
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    error::{Error, Result},
    http::{
        self, EstimateFormat, HttpSettings, OwedSummary, Study, Token, UploadFailure,
        UploadProgress, UploadSettings, UploadSummary, Uploader,
    },
    ledger::Ledger,
    outbox::Outbox,
};

/// The runtime that does the waiting.
#[derive(Clone, Debug)]
struct Waiter(Arc<Runtime>);

impl Waiter {
    fn new() -> Result<Self> {
        refuse_inside_a_runtime()?;
        // One thread for the network beside the caller's, which writes the outbox.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("eigenveil-client")
            .enable_all()
            .build()
            .map_err(|error| Error::usage(format!("no runtime could be started: {error}")))?;
        Ok(Self(Arc::new(runtime)))
    }

    fn wait<T, E: From<Error>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        refuse_inside_a_runtime()?;
        self.0.block_on(work)
    }
}

fn refuse_inside_a_runtime() -> Result<()> {
    match Handle::try_current() {
        Ok(_) => Err(Error::usage(
            "the blocking client was called inside an async runtime, which it would stall; use eigenveil_client::http there",
        )),
        Err(_) => Ok(()),
    }
}

impl From<Error> for UploadFailure {
    fn from(error: Error) -> Self {
        Self {
            error,
            summary: UploadSummary::default(),
        }
    }
}

/// Sends everything the ledger owes: as [`http::send_owed`].
///
/// # Errors
/// As there; inside an async runtime.
pub fn send_owed(ledger: &mut Ledger, settings: &HttpSettings) -> Result<OwedSummary> {
    Waiter::new()?.wait(http::send_owed(ledger, settings))
}

/// [`http::StudyClient`] without `async`.
#[derive(Clone, Debug)]
pub struct StudyClient {
    client: http::StudyClient,
    waiter: Waiter,
}

impl StudyClient {
    /// As [`http::StudyClient::new`].
    ///
    /// # Errors
    /// As there; inside an async runtime.
    pub fn new(server: &str) -> Result<Self> {
        Self::with_settings(server, &HttpSettings::default())
    }

    /// As [`http::StudyClient::with_settings`].
    ///
    /// # Errors
    /// As there; inside an async runtime.
    pub fn with_settings(server: &str, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            waiter: Waiter::new()?,
            client: http::StudyClient::with_settings(server, settings)?,
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// As [`http::StudyClient::fetch_study`].
    ///
    /// # Errors
    /// As there.
    pub fn fetch_study(&self, id: &str) -> Result<Study> {
        self.waiter.wait(self.client.fetch_study(id))
    }

    /// As [`http::StudyClient::fetch_study_pinned`].
    ///
    /// # Errors
    /// As there.
    pub fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        self.waiter
            .wait(self.client.fetch_study_pinned(id, expected))
    }

    /// As [`http::StudyClient::upload_one`].
    ///
    /// # Errors
    /// As there.
    pub fn upload_one(&self, study: &Study, report: &Report) -> Result<ReportReceipt> {
        self.waiter.wait(self.client.upload_one(study, report))
    }

    /// As [`http::StudyClient::upload_one_with_token`].
    ///
    /// # Errors
    /// As there.
    pub fn upload_one_with_token(
        &self,
        study: &Study,
        report: &Report,
        token: &ParticipantToken,
    ) -> Result<ReportReceipt> {
        self.waiter
            .wait(self.client.upload_one_with_token(study, report, token))
    }

    /// As [`http::StudyClient::upload_batch`].
    ///
    /// # Errors
    /// As there.
    pub fn upload_batch(&self, study: &Study, reports: &[Report]) -> Result<BatchReceipt> {
        self.waiter.wait(self.client.upload_batch(study, reports))
    }

    /// Sends an outbox: as [`Uploader::drain`].
    ///
    /// # Errors
    /// As there.
    pub fn upload(
        &self,
        study: &Study,
        outbox: &mut Outbox,
        settings: UploadSettings,
        progress: impl FnMut(UploadProgress),
    ) -> Result<UploadSummary, UploadFailure> {
        let uploader = Uploader::new(&self.client, study, settings);
        self.waiter.wait(uploader.drain(outbox, progress))
    }
}

/// [`http::AnalystClient`] without `async`.
#[derive(Clone, Debug)]
pub struct AnalystClient {
    client: http::AnalystClient,
    waiter: Waiter,
}

impl AnalystClient {
    /// As [`http::AnalystClient::new`].
    ///
    /// # Errors
    /// As there; inside an async runtime.
    pub fn new(server: &str, token: &Token) -> Result<Self> {
        Self::with_settings(server, token, &HttpSettings::default())
    }

    /// As [`http::AnalystClient::with_settings`].
    ///
    /// # Errors
    /// As there; inside an async runtime.
    pub fn with_settings(server: &str, token: &Token, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            waiter: Waiter::new()?,
            client: http::AnalystClient::with_settings(server, token, settings)?,
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// As [`http::AnalystClient::create_study`].
    ///
    /// # Errors
    /// As there.
    pub fn create_study(&self, study: &CreateStudy) -> Result<StudyDocument> {
        self.waiter.wait(self.client.create_study(study))
    }

    /// As [`http::AnalystClient::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, study: &str) -> Result<StudyDocument> {
        self.waiter.wait(self.client.open(study))
    }

    /// As [`http::AnalystClient::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self, study: &str) -> Result<StudyDocument> {
        self.waiter.wait(self.client.close(study))
    }

    /// As [`http::AnalystClient::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, study: &str) -> Result<()> {
        self.waiter.wait(self.client.delete(study))
    }

    /// As [`http::AnalystClient::export`].
    ///
    /// # Errors
    /// As there.
    pub fn export(&self, study: &str, out: &mut (dyn Write + Send)) -> Result<u64> {
        self.waiter.wait(self.client.export(study, out))
    }

    /// As [`http::AnalystClient::backup`].
    ///
    /// # Errors
    /// As there.
    pub fn backup(&self, out: &mut (dyn Write + Send)) -> Result<u64> {
        self.waiter.wait(self.client.backup(out))
    }

    /// As [`http::AnalystClient::import`].
    ///
    /// # Errors
    /// As there.
    pub fn import(&self, export: Bytes, into: Option<&str>) -> Result<ImportReceipt> {
        self.waiter.wait(self.client.import(export, into))
    }

    /// As [`http::AnalystClient::issue_tokens`].
    ///
    /// # Errors
    /// As there.
    pub fn issue_tokens(&self, study: &str, count: usize) -> Result<Vec<ParticipantToken>> {
        self.waiter.wait(self.client.issue_tokens(study, count))
    }

    /// As [`http::AnalystClient::token_counts`].
    ///
    /// # Errors
    /// As there.
    pub fn token_counts(&self, study: &str) -> Result<TokenCounts> {
        self.waiter.wait(self.client.token_counts(study))
    }

    /// As [`http::AnalystClient::create_token`].
    ///
    /// # Errors
    /// As there.
    pub fn create_token(&self, wanted: &CreateAnalyst) -> Result<CreatedAnalyst> {
        self.waiter.wait(self.client.create_token(wanted))
    }

    /// As [`http::AnalystClient::list_tokens`].
    ///
    /// # Errors
    /// As there.
    pub fn list_tokens(&self) -> Result<Vec<AnalystDocument>> {
        self.waiter.wait(self.client.list_tokens())
    }

    /// As [`http::AnalystClient::revoke_token`].
    ///
    /// # Errors
    /// As there.
    pub fn revoke_token(&self, id: &str) -> Result<()> {
        self.waiter.wait(self.client.revoke_token(id))
    }

    /// As [`http::AnalystClient::rotate_token`].
    ///
    /// # Errors
    /// As there.
    pub fn rotate_token(&self) -> Result<Token> {
        self.waiter.wait(self.client.rotate_token())
    }

    /// As [`http::AnalystClient::study`].
    ///
    /// # Errors
    /// As there.
    pub fn study(&self, study: &str) -> Result<StudyDocument> {
        self.waiter.wait(self.client.study(study))
    }

    /// As [`http::AnalystClient::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self) -> Result<Vec<StudySummary>> {
        self.waiter.wait(self.client.list())
    }

    /// As [`http::AnalystClient::request_estimate`].
    ///
    /// # Errors
    /// As there.
    pub fn request_estimate(
        &self,
        study: &str,
        request: &EstimateRequest,
    ) -> Result<EstimateDocument> {
        self.waiter
            .wait(self.client.request_estimate(study, request))
    }

    /// As [`http::AnalystClient::fetch_estimate`].
    ///
    /// # Errors
    /// As there.
    pub fn fetch_estimate(&self, study: &str, number: u64) -> Result<EstimateDocument> {
        self.waiter.wait(self.client.fetch_estimate(study, number))
    }

    /// As [`http::AnalystClient::wait_for_estimate`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_for_estimate(
        &self,
        study: &str,
        number: u64,
        timeout: Duration,
    ) -> Result<EstimateDocument> {
        self.waiter
            .wait(self.client.wait_for_estimate(study, number, timeout))
    }

    /// As [`http::AnalystClient::cancel_estimate`].
    ///
    /// # Errors
    /// As there.
    pub fn cancel_estimate(&self, study: &str, number: u64) -> Result<EstimateDocument> {
        self.waiter.wait(self.client.cancel_estimate(study, number))
    }

    /// As [`http::AnalystClient::fetch_estimate_file`].
    ///
    /// # Errors
    /// As there.
    pub fn fetch_estimate_file(
        &self,
        study: &str,
        number: u64,
        format: EstimateFormat,
    ) -> Result<Vec<u8>> {
        self.waiter
            .wait(self.client.fetch_estimate_file(study, number, format))
    }
}
