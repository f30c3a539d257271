//! The client of a device without `async`: each call waits for a small runtime.
//!
//! Not for use inside a runtime: there the constructors return an error.

use std::{future::Future, ops::ControlFlow, sync::Arc};

use eigenveil_shared::study::Fingerprint;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    error::{Error, Result},
    exchange::{Answer, Request, Server},
    http::{self, HttpSettings, SendSummary, UploadSettings},
    sqlite::{Ledger, RowLedger},
    study::Study,
};

/// The runtime that runs the requests.
#[derive(Clone, Debug)]
struct BlockingRuntime(Arc<Runtime>);

impl BlockingRuntime {
    fn new() -> Result<Self> {
        refuse_inside_a_runtime()?;
        // One thread for the network beside the caller's, which writes the ledger.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("eigenveil-client")
            .enable_all()
            .build()
            .map_err(|error| Error::usage(format!("no runtime could be started: {error}")))?;
        Ok(Self(Arc::new(runtime)))
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        refuse_inside_a_runtime()?;
        Ok(self.0.block_on(work))
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

/// Sends every pending report of the ledger, as [`http::send_pending`] does.
pub fn send_pending(ledger: &mut Ledger, settings: &HttpSettings) -> Result<SendSummary> {
    BlockingRuntime::new()?.wait(http::send_pending(ledger, settings))?
}

/// Sends the reports of a file of rows, as [`http::send_rows`] does.
pub fn send_rows(
    ledger: &mut RowLedger,
    study: &Study,
    settings: &HttpSettings,
    sending: &UploadSettings,
    progress: impl FnMut(&SendSummary) -> ControlFlow<()>,
) -> Result<SendSummary> {
    BlockingRuntime::new()?.wait(http::send_rows(ledger, study, settings, sending, progress))?
}

/// [`http::StudyClient`] without `async`.
#[derive(Clone, Debug)]
pub struct StudyClient {
    client: http::StudyClient,
    runtime: BlockingRuntime,
}

impl StudyClient {
    /// Connects as [`http::StudyClient::new`] does.
    pub fn new(server: &str) -> Result<Self> {
        Self::with_settings(server, &HttpSettings::default())
    }

    /// Connects as [`http::StudyClient::with_settings`] does.
    pub fn with_settings(server: &str, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            runtime: BlockingRuntime::new()?,
            client: http::StudyClient::with_settings(server, settings)?,
        })
    }

    /// The server's address.
    pub fn server(&self) -> &Server {
        self.client.server()
    }

    /// Fetches as [`http::StudyClient::fetch_study`] does.
    pub fn fetch_study(&self, id: &str) -> Result<Study> {
        self.runtime.wait(self.client.fetch_study(id))?
    }

    /// Fetches as [`http::StudyClient::fetch_study_pinned`] does.
    pub fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        self.runtime
            .wait(self.client.fetch_study_pinned(id, expected))?
    }

    /// Calls as [`http::StudyClient::call`] does.
    pub fn call(&self, request: &Request) -> Result<Answer> {
        self.runtime.wait(self.client.call(request))
    }
}
