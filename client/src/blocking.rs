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
//! ledger.participate(&study, &row)?;
//! let sent = blocking::send_owed(&mut ledger, &HttpSettings::default())?;
//! println!("{} accepted, {} still owed", sent.accepted, sent.pending);
//! # Ok(())
//! # }
//! ```
//!
//! Not for use inside a runtime: the constructors refuse there, with an error.

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

/// The runtime that does the waiting.
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

/// Sends everything the ledger owes: as [`http::send_owed`].
pub fn send_owed(ledger: &mut Ledger, settings: &HttpSettings) -> Result<SendSummary> {
    BlockingRuntime::new()?.wait(http::send_owed(ledger, settings))?
}

/// Sends the reports of a file of rows: as [`http::send_rows`].
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
    pub fn server(&self) -> &Server {
        self.client.server()
    }

    /// As [`http::StudyClient::fetch_study`].
    pub fn fetch_study(&self, id: &str) -> Result<Study> {
        self.runtime.wait(self.client.fetch_study(id))?
    }

    /// As [`http::StudyClient::fetch_study_pinned`].
    pub fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        self.runtime
            .wait(self.client.fetch_study_pinned(id, expected))?
    }

    /// As [`http::StudyClient::call`].
    pub fn call(&self, request: &Request) -> Result<Answer> {
        self.runtime.wait(self.client.call(request))
    }
}
