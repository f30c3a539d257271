//! What a device needs, without `async`: a small runtime that is waited for.
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
//! ledger.participate(&study.reporter(), study.study_ref(), &row)?;
//! let (sent, _failures) = blocking::send_owed(&mut ledger, &HttpSettings::default())?;
//! println!("{} accepted, {} still owed", sent.accepted, sent.pending);
//! # Ok(())
//! # }
//! ```
//!
//! Not for use inside a runtime: the constructors refuse there, with an error.

use std::{future::Future, sync::Arc};

use eigenveil_shared::{
    api::{BatchResponse, ReportResponse},
    enrolment::ParticipantToken,
    report::Report,
    study::Fingerprint,
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    error::{Error, Result},
    http::{
        self, HttpSettings, SendFailure, Study, UploadFailure, UploadSettings, UploadSummary,
        Uploader,
    },
    ledger::Ledger,
    outbox::Outbox,
};

/// The runtime that does the waiting.
#[derive(Clone, Debug)]
struct BlockingRuntime(Arc<Runtime>);

impl BlockingRuntime {
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
pub fn send_owed(
    ledger: &mut Ledger,
    settings: &HttpSettings,
) -> Result<(UploadSummary, Vec<SendFailure>)> {
    BlockingRuntime::new()?.wait(http::send_owed(ledger, settings))
}

/// [`http::StudyClient`] without `async`.
#[derive(Clone, Debug)]
pub struct StudyClient {
    client: http::StudyClient,
    runtime: BlockingRuntime,
}

impl StudyClient {
    /// As [`http::StudyClient::new`].
    pub fn new(server: &str) -> Result<Self> {
        Self::with_settings(server, &HttpSettings::default())
    }

    /// As [`http::StudyClient::with_settings`].
    pub fn with_settings(server: &str, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            runtime: BlockingRuntime::new()?,
            client: http::StudyClient::with_settings(server, settings)?,
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// As [`http::StudyClient::fetch_study`].
    pub fn fetch_study(&self, id: &str) -> Result<Study> {
        self.runtime.wait(self.client.fetch_study(id))
    }

    /// As [`http::StudyClient::fetch_study_pinned`].
    pub fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        self.runtime
            .wait(self.client.fetch_study_pinned(id, expected))
    }

    /// As [`http::StudyClient::upload_one`].
    pub fn upload_one(&self, study: &Study, report: &Report) -> Result<ReportResponse> {
        self.runtime.wait(self.client.upload_one(study, report))
    }

    /// As [`http::StudyClient::upload_one_with_token`].
    pub fn upload_one_with_token(
        &self,
        study: &Study,
        report: &Report,
        token: &ParticipantToken,
    ) -> Result<ReportResponse> {
        self.runtime
            .wait(self.client.upload_one_with_token(study, report, token))
    }

    /// As [`http::StudyClient::upload_batch`].
    pub fn upload_batch(&self, study: &Study, reports: &[Report]) -> Result<BatchResponse> {
        self.runtime.wait(self.client.upload_batch(study, reports))
    }

    /// Sends an outbox: as [`Uploader::drain`].
    pub fn upload(
        &self,
        study: &Study,
        outbox: &mut Outbox,
        settings: UploadSettings,
        progress: impl FnMut(UploadSummary),
    ) -> Result<UploadSummary, UploadFailure> {
        let uploader = Uploader::new(&self.client, study, settings);
        self.runtime.wait(uploader.drain(outbox, progress))
    }
}
