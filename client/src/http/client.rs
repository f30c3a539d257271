//! The device's HTTP client.

use std::sync::Arc;

use eigenveil_shared::{
    api::{SiteToken, StudySummary},
    enrolment::ParticipantToken,
    study::Fingerprint,
};

use super::{
    settings::HttpSettings,
    transport::{Counters, Transport},
};
use crate::{
    error::Result,
    exchange::{Answer, Request, Response, Server},
    site_study::SiteStudy,
    study::Study,
    study_info::StudyInfo,
    study_name::resolve_study_id,
};

/// A device's side of the HTTP interface. Cheap to clone; clones share connections.
///
/// ```no_run
/// use eigenveil_client::{Ledger, http::{HttpSettings, StudyClient, send_pending}};
/// use eigenveil_shared::preprocess::Row;
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = StudyClient::new("http://localhost:8080")?;
/// // Shipped with the device: without a pinned fingerprint, special constants could identify it.
/// let pinned = "5e7a3c0f9b1d48e62a7c5f0e8d3b1a964c2e7f508b6d1a3f9e0c5b7d2a4f8e61".parse()?;
/// let study = client.fetch_study_pinned("0123456789abcdef0123456789abcdef", pinned).await?;
/// let mut ledger = Ledger::open("device.ledger")?;
/// ledger.participate(&study, &Row::new(vec![0.5; study.params().dimension()]))?;
/// let sent = send_pending(&mut ledger, &HttpSettings::default()).await?;
/// println!("{} accepted, {} still pending", sent.accepted, sent.pending);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StudyClient {
    transport: Arc<Transport>,
}

impl StudyClient {
    /// A client of the server at this address, such as `https://study.example`.
    pub fn new(server: &str) -> Result<Self> {
        Self::with_settings(server, &HttpSettings::default())
    }

    /// Connects like [`StudyClient::new`], with these settings.
    pub fn with_settings(server: &str, settings: &HttpSettings) -> Result<Self> {
        Self::for_server(&server.parse()?, settings)
    }

    pub(super) fn for_server(server: &Server, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            transport: Arc::new(Transport::new(server, settings, None)?),
        })
    }

    /// The server's address.
    pub fn server(&self) -> &Server {
        self.transport.server()
    }

    /// All studies that are not drafts, oldest first.
    ///
    /// # Errors
    /// Network failures.
    pub async fn list(&self) -> Result<Vec<StudySummary>> {
        self.transport.studies().await
    }

    /// Fetches a study and checks it as [`Study::read`] does; see there on pinned fingerprints.
    ///
    /// # Errors
    /// Those of [`Study::read`]; network failures.
    pub async fn fetch_study(&self, id: &str) -> Result<Study> {
        self.study(id, None).await?.try_into()
    }

    /// Fetches like [`StudyClient::fetch_study`], for a device that pins the parameters it agreed to.
    ///
    /// # Errors
    /// Those of [`StudyClient::fetch_study`]; `wrong-fingerprint` if the study has other parameters.
    pub async fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        self.study(id, Some(expected)).await?.try_into()
    }

    /// Fetches and checks a study like [`StudyClient::fetch_study`], given an identifier, the first four digits or more
    /// of one, or a name. The study [remembers](Study::called) how it was called.
    ///
    /// # Errors
    /// As [`StudyClient::fetch_study_pinned`]; `study-not-found` if no study is called so, `usage` with the identifiers
    /// if several are.
    pub async fn find_study(&self, called: &str, pinned: Option<Fingerprint>) -> Result<Study> {
        self.find(called, pinned).await?.try_into()
    }

    /// Finds a study like [`StudyClient::find_study`], of either unit: [`Study`] and [`SiteStudy`] are made of it.
    ///
    /// # Errors
    /// As [`StudyClient::find_study`].
    pub async fn find(&self, called: &str, pinned: Option<Fingerprint>) -> Result<StudyInfo> {
        let id = resolve_study_id(self.list(), called).await?;
        Ok(self.study(&id, pinned).await?.called(called))
    }

    async fn study(&self, id: &str, pinned: Option<Fingerprint>) -> Result<StudyInfo> {
        let request = Study::request(self.server(), id);
        let read = |response: &Response<'_>| StudyInfo::read(self.server(), id, response, pinned);
        self.transport
            .respond(&request, &Counters::default(), read)
            .await
    }

    /// The site and the largest table of a one-time token, before it is used. Nothing is spent.
    ///
    /// # Errors
    /// `participant-token-unknown`; network failures.
    pub async fn look_up_token(
        &self,
        study: &SiteStudy,
        token: &ParticipantToken,
    ) -> Result<SiteToken> {
        let request = study.token_request(token)?;
        self.transport
            .respond(&request, &Counters::default(), |response| {
                study.read_token(response)
            })
            .await
    }

    /// Sends a request, with retries by the retry policy, and reads the response.
    pub async fn call(&self, request: &Request) -> Answer {
        self.transport.call(request, &Counters::default()).await
    }

    #[cfg(feature = "sqlite")]
    pub(super) async fn call_with_counters(
        &self,
        request: &Request,
        counters: &Counters,
    ) -> Answer {
        self.transport.call(request, counters).await
    }
}
