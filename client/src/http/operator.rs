//! The operator's client: studies, estimates, tokens.

use std::{io::Write, sync::Arc, time::Duration};

use bytes::Bytes;

use eigenveil_shared::{
    ErrorCode,
    api::{
        AnalystTokenInfo, AnalystTokenList, CreateAnalystTokenRequest, CreateAnalystTokenResponse,
        CreateStudyRequest, EstimateJob, EstimateRequest, EstimateState, ImportResponse,
        IssueTokensRequest, IssueTokensResponse, NewSiteToken, PreparationAnswers,
        RotateOperatorTokenResponse, STUDY_EXPORT_MEDIA_TYPE, StudyDocument, StudySummary,
        TokenCounts,
    },
    enrolment::ParticipantToken,
    names,
};
use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use super::{
    retry::RetrySafety,
    settings::{BearerToken, HttpSettings},
    transport::{ApiRequest, Transport},
};
use crate::{
    error::{Error, HttpFailure, Result},
    study_name::resolve_study_id,
};

const FIRST_POLL: Duration = Duration::from_millis(50);
const MAX_POLL: Duration = Duration::from_secs(2);
/// Longest time for the transfer of an export or a backup.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(6 * 3_600);

/// A file format of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EstimateFormat {
    /// The whole estimate as JSON.
    Json,
    /// The components as CSV.
    Csv,
    /// The components as a NumPy array.
    Npy,
}

names! {
    pub EstimateFormat { Json = "json", Csv = "csv", Npy = "npy" };
}

/// The operator's side of the HTTP interface. Cheap to clone; clones share connections.
///
/// ```no_run
/// use std::time::Duration;
/// use eigenveil_client::http::{OperatorClient, BearerToken};
/// use eigenveil_shared::{
///     api::{EstimateRequest, SparseSettings}, estimate::ComponentCount,
/// };
/// # async fn run() -> eigenveil_client::Result<()> {
/// let client = OperatorClient::new("http://localhost:8080", &BearerToken::from_file("operator.token")?)?;
/// let study = "0123456789abcdef0123456789abcdef";
/// let request = EstimateRequest {
///     k: Some(ComponentCount::Fixed(3)),
///     sparse: Some(SparseSettings::default()),
///     ..EstimateRequest::default()
/// };
/// let job = client.request_estimate(study, &request).await?;
/// let done = client.wait_for_estimate(study, job.number, Duration::from_secs(600)).await?;
/// println!("{} reports", done.estimate.map_or(0, |estimate| estimate.n));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OperatorClient {
    transport: Arc<Transport>,
}

impl OperatorClient {
    /// A client of the server at this address with this token.
    pub fn new(server: &str, token: &BearerToken) -> Result<Self> {
        Self::with_settings(server, token, &HttpSettings::default())
    }

    /// Connects like [`OperatorClient::new`], with these settings.
    pub fn with_settings(
        server: &str,
        token: &BearerToken,
        settings: &HttpSettings,
    ) -> Result<Self> {
        Ok(Self {
            transport: Arc::new(Transport::new(&server.parse()?, settings, Some(token))?),
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.transport.server().as_str()
    }

    /// Creates a study.
    ///
    /// # Errors
    /// The server's refusal (`invalid-budget`, `unauthorized`, …). After a network failure the study may or may not
    /// exist: see [`OperatorClient::list`].
    pub async fn create_study(&self, study: &CreateStudyRequest) -> Result<StudyDocument> {
        self.post(&["v1", "studies"], study).await
    }

    /// Opens a study for reports.
    pub async fn open(&self, study: &str) -> Result<StudyDocument> {
        self.act(Method::POST, &["v1", "studies", study, "open"])
            .await
    }

    /// Closes a study: it takes no more reports.
    pub async fn close(&self, study: &str) -> Result<StudyDocument> {
        self.act(Method::POST, &["v1", "studies", study, "close"])
            .await
    }

    /// Permanently deletes a study that is not open, with its reports and estimates.
    ///
    /// # Errors
    /// `invalid-transition` for one that is open, `study-not-found`, `unauthorized`; network failures.
    pub async fn delete(&self, study: &str) -> Result<()> {
        self.remove(&["v1", "studies", study]).await
    }

    /// Writes an export of a study: parameters, identifiers, and the current sums or seeds, not the estimates. Returns
    /// the number of bytes. After an error the written part is useless.
    ///
    /// # Errors
    /// `study-not-found`, `unauthorized`, `invalid-transition` if the identifiers were deleted; network failures, and
    /// those of writing.
    pub async fn export(&self, study: &str, out: &mut (dyn Write + Send)) -> Result<u64> {
        self.fetch_file(&["v1", "studies", study, "export"], out)
            .await
    }

    /// Writes a backup of the whole store, a database in its current state. Returns the number of bytes. After an error
    /// the written part is useless.
    ///
    /// # Errors
    /// `unauthorized`; network failures, and those of writing.
    pub async fn backup(&self, out: &mut (dyn Write + Send)) -> Result<u64> {
        self.fetch_file(&["v1", "backup"], out).await
    }

    async fn fetch_file(&self, path: &[&str], out: &mut (dyn Write + Send)) -> Result<u64> {
        let request = ApiRequest {
            accept: "*/*",
            timeout: Some(TRANSFER_TIMEOUT),
            ..ApiRequest::get(path)
        };
        self.transport.download(&request, out).await
    }

    /// Adds the reports of an export to the study `into`, which must have the same parameters; `None`: to the study
    /// with the export's identifier, which is created if it is missing. An export that is sent repeatedly is added
    /// once.
    ///
    /// # Errors
    /// `already-counted` if one of its reports is already in the study, `wrong-fingerprint`, `malformed-export`,
    /// `study-not-found`, `unauthorized`; network failures.
    pub async fn import(&self, export: Bytes, into: Option<&str>) -> Result<ImportResponse> {
        let merge = into.map(|study| ["v1", "studies", study, "import"]);
        let path: &[&str] = match &merge {
            Some(path) => path,
            None => &["v1", "imports"],
        };
        let request = ApiRequest {
            content: Some((STUDY_EXPORT_MEDIA_TYPE, export)),
            retry_safety: RetrySafety::Always,
            timeout: Some(TRANSFER_TIMEOUT),
            ..ApiRequest::non_idempotent(Method::POST, path)
        };
        self.transport.json(&request).await
    }

    /// Makes one-time tokens for the participants of a study whose enrolment is `token`, at most
    /// [`MAX_TOKENS_PER_REQUEST`](eigenveil_shared::enrolment::MAX_TOKENS_PER_REQUEST). They cannot be retrieved again.
    ///
    /// # Errors
    /// `invalid-request`, `invalid-transition`, `study-not-found`, `unauthorized`; network failures, after which the
    /// server may have made tokens that nobody received.
    pub async fn issue_tokens(&self, study: &str, count: usize) -> Result<Vec<ParticipantToken>> {
        let request = IssueTokensRequest {
            count: Some(count),
            sites: Vec::new(),
        };
        self.new_tokens(study, &request).await
    }

    /// Makes a one-time token for each of these sites of a study of sites, at most
    /// [`MAX_SITE_TOKENS_PER_REQUEST`](eigenveil_shared::enrolment::MAX_SITE_TOKENS_PER_REQUEST), in this order. They
    /// cannot be retrieved again.
    ///
    /// # Errors
    /// As [`issue_tokens`](Self::issue_tokens); `invalid-name`.
    pub async fn issue_site_tokens(
        &self,
        study: &str,
        sites: Vec<NewSiteToken>,
    ) -> Result<Vec<ParticipantToken>> {
        let request = IssueTokensRequest { count: None, sites };
        self.new_tokens(study, &request).await
    }

    async fn new_tokens(
        &self,
        study: &str,
        request: &IssueTokensRequest,
    ) -> Result<Vec<ParticipantToken>> {
        let path = ["v1", "studies", study, "tokens"];
        let issued: IssueTokensResponse = self.post(&path, request).await?;
        let tokens = issued
            .tokens
            .iter()
            .map(|text| Ok(ParticipantToken::parse(text)?));
        tokens.collect()
    }

    /// The numbers of a study's participant tokens, and in a study of sites the site of each.
    pub async fn token_counts(&self, study: &str) -> Result<TokenCounts> {
        self.get(&["v1", "studies", study, "tokens"]).await
    }

    /// Makes a token that only allows reading estimates. Its text cannot be retrieved again.
    ///
    /// # Errors
    /// `invalid-name`, `study-not-found`, `unauthorized`; network failures, after which there may be a token that
    /// nobody received: see [`OperatorClient::list_tokens`].
    pub async fn create_token(
        &self,
        request: &CreateAnalystTokenRequest,
    ) -> Result<CreateAnalystTokenResponse> {
        self.post(&["v1", "tokens"], request).await
    }

    /// The analysts' tokens, oldest first, without their text.
    pub async fn list_tokens(&self) -> Result<Vec<AnalystTokenInfo>> {
        let list: AnalystTokenList = self.get(&["v1", "tokens"]).await?;
        Ok(list.tokens)
    }

    /// Revokes the analyst's token with this identifier.
    pub async fn revoke_token(&self, id: &str) -> Result<()> {
        self.remove(&["v1", "tokens", id]).await
    }

    /// Replaces the operator token of the server; that of this client stops working.
    ///
    /// # Errors
    /// `unauthorized`; network failures, after which the file in the server's data directory has the valid token.
    pub async fn rotate_token(&self) -> Result<BearerToken> {
        let path = ["v1", "operator-token"];
        let rotated: RotateOperatorTokenResponse = self.act(Method::POST, &path).await?;
        BearerToken::new(&rotated.token)
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.transport.json(&ApiRequest::get(path)).await
    }

    /// Sends a request without content that must not be acted on twice.
    async fn act<T: DeserializeOwned>(&self, method: Method, path: &[&str]) -> Result<T> {
        let request = ApiRequest::non_idempotent(method, path);
        self.transport.json(&request).await
    }

    /// Sends this content, which must not be acted on twice.
    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        content: &impl Serialize,
    ) -> Result<T> {
        let request = ApiRequest::non_idempotent(Method::POST, path).json(content)?;
        self.transport.json(&request).await
    }

    /// Deletes an object; the response has no content.
    async fn remove(&self, path: &[&str]) -> Result<()> {
        let request = ApiRequest {
            accept: "*/*",
            ..ApiRequest::non_idempotent(Method::DELETE, path)
        };
        self.transport.bytes(&request).await.map(drop)
    }

    /// One study.
    pub async fn study(&self, study: &str) -> Result<StudyDocument> {
        self.get(&["v1", "studies", study]).await
    }

    /// All studies, oldest first.
    pub async fn list(&self) -> Result<Vec<StudySummary>> {
        self.transport.studies().await
    }

    /// The identifier of the one study that a person calls so: by its identifier, which is returned as it is, the first
    /// four digits or more of it, or its name. The other methods take identifiers only.
    ///
    /// # Errors
    /// `study-not-found` if no study is called so, `usage` with the identifiers if several are; network failures.
    pub async fn find_study(&self, called: &str) -> Result<String> {
        resolve_study_id(self.list(), called).await
    }

    /// How often each answer to a preparation was given; of a second round those of the first one, too.
    ///
    /// # Errors
    /// `invalid-request` for a study that is no preparation, or whose first round the server does not have;
    /// `study-not-found`, `unauthorized`; network failures.
    pub async fn answers(&self, study: &str) -> Result<PreparationAnswers> {
        self.get(&["v1", "studies", study, "answers"]).await
    }

    /// Asks for an estimate: plain or, with `sparse` settings, by the Fantope ADMM. It is computed as
    /// a job; [`OperatorClient::wait_for_estimate`] waits for it.
    ///
    /// # Errors
    /// `invalid-request`, `study-not-found`, `unauthorized`, `too-many-requests`; network failures.
    pub async fn request_estimate(
        &self,
        study: &str,
        request: &EstimateRequest,
    ) -> Result<EstimateJob> {
        self.post(&["v1", "studies", study, "estimates"], request)
            .await
    }

    /// The estimate with this number, in any state.
    pub async fn fetch_estimate(&self, study: &str, number: u64) -> Result<EstimateJob> {
        let number = number.to_string();
        self.get(&["v1", "studies", study, "estimates", &number])
            .await
    }

    /// Waits until the estimate with this number is done, polling at growing intervals.
    ///
    /// # Errors
    /// [`Error::is_timeout`] if it is still running after `timeout`; the estimate's own problem if it failed; an error
    /// if it was cancelled; those of [`OperatorClient::fetch_estimate`].
    pub async fn wait_for_estimate(
        &self,
        study: &str,
        number: u64,
        timeout: Duration,
    ) -> Result<EstimateJob> {
        let started = Instant::now();
        let mut pause = FIRST_POLL;
        loop {
            let job = self.fetch_estimate(study, number).await?;
            match job.state {
                EstimateState::Done => return Ok(job),
                EstimateState::Failed => return Err(job_error(number, &job)),
                EstimateState::Cancelled => {
                    return Err(Error::http(
                        HttpFailure::default(),
                        format!("estimate {number} was cancelled; ask for a new one"),
                    ));
                }
                EstimateState::Running => {}
            }
            let remaining = timeout.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                return Err(Error::timed_out(format!(
                    "estimate {number} is still running after {} s; it continues: ask for it later",
                    timeout.as_secs_f64()
                )));
            }
            sleep(pause.min(remaining)).await;
            pause = (pause * 3 / 2).min(MAX_POLL);
        }
    }

    /// Cancels an estimate that is running.
    pub async fn cancel_estimate(&self, study: &str, number: u64) -> Result<EstimateJob> {
        let number = number.to_string();
        let path = ["v1", "studies", study, "estimates", &number];
        self.act(Method::DELETE, &path).await
    }

    /// A finished estimate as a file.
    ///
    /// # Errors
    /// `estimate-not-ready`, `estimate-not-found`, `unauthorized`; network failures.
    pub async fn fetch_estimate_file(
        &self,
        study: &str,
        number: u64,
        format: EstimateFormat,
    ) -> Result<Vec<u8>> {
        let number = number.to_string();
        let path = ["v1", "studies", study, "estimates", &number];
        let request = ApiRequest {
            query: Some(("format", format.as_str())),
            accept: "*/*",
            ..ApiRequest::get(&path)
        };
        self.transport.bytes(&request).await
    }
}

fn job_error(number: u64, job: &EstimateJob) -> Error {
    let (code, why) = match &job.problem {
        Some(problem) => (problem.code, problem.detail.clone()),
        None => (
            ErrorCode::EstimateFailed,
            "the server gives no reason".into(),
        ),
    };
    Error::http(
        HttpFailure {
            code: Some(code.as_str().to_owned()),
            ..HttpFailure::default()
        },
        format!("estimate {number} failed: {why}"),
    )
}
