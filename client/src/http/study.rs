//! What a device asks of a server.

use std::sync::Arc;

use bytes::Bytes;
use eigenveil_shared::{
    ErrorCode,
    about::is_readable,
    api::{
        BatchResponse, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, ReportResponse, StudyDocument,
        StudySummary,
    },
    codec::{self, ReportFormat},
    enrolment::{
        self, ENROLLED_BATCH_MEDIA_TYPE, ENROLLED_REPORT_MEDIA_TYPE, Enrolment, ParticipantToken,
    },
    privacy::PrivacyStatement,
    report::Report,
    study::{Fingerprint, StudyParams, from_hex},
};
use reqwest::Method;

use super::{
    HttpSettings, RetryPolicy, RetrySafety,
    transport::{ApiRequest, Counters, Transport},
};
use crate::{
    error::{Error, HttpFailure, Result},
    outbox::StudyRef,
    reporter::{Reporter, check_fingerprint},
};

/// A study as a server described it and this side checked it: the parameters come from the canonical
/// bytes, the bytes have the fingerprint, the noise is what the budget needs.
#[derive(Clone, Debug)]
pub struct Study {
    document: StudyDocument,
    report_format: ReportFormat,
    study_ref: StudyRef,
}

impl Study {
    /// Checks a document that came from `server` for the study asked for.
    fn checked(server: &str, id: &str, mut document: StudyDocument) -> Result<Self> {
        let wrong = |what: String| Err(Error::http(HttpFailure::default(), what));
        if document.id != id {
            return wrong(format!("the server answered with another study than {id}"));
        }
        let Some(canonical) = from_hex(&document.canonical_params) else {
            return wrong(format!(
                "the canonical parameters of study {id} are not hexadecimal"
            ));
        };
        let params = StudyParams::from_canonical(&canonical)?;
        let report_format = ReportFormat::new(&params);
        if document.fingerprint != report_format.fingerprint().to_string() {
            return wrong(format!(
                "the server gives study {id} a fingerprint that is not that of its parameters ({}); do not take part",
                report_format.fingerprint()
            ));
        }
        let report_len = codec::report_len(report_format.payload_len());
        let max_batch = codec::max_batch(report_format.payload_len());
        if document.report_bytes < report_len
            || !(1..=max_batch).contains(&document.max_batch_reports)
        {
            return wrong(format!(
                "study {id} says that a report may have {} bytes and a batch {} reports, but a report has {report_len} and a batch 1 to {max_batch}",
                document.report_bytes, document.max_batch_reports
            ));
        }
        // These texts are shown to people and stored for the receipt, so they must be valid.
        document.about.check()?;
        if !is_readable(&document.name) {
            return wrong(format!(
                "the server gives study {id} a name that cannot be shown; do not take part"
            ));
        }
        // What the parameters say counts, not what the server says about them.
        document.privacy = PrivacyStatement::new(&params);
        let study_ref = StudyRef::new(server, id, &params);
        document.params = params;
        Ok(Self {
            document,
            report_format,
            study_ref,
        })
    }

    /// Identifier of the study.
    pub fn id(&self) -> &str {
        &self.document.id
    }

    /// The server's document, with parameters and privacy statement worked out on this side from the
    /// canonical bytes.
    pub fn document(&self) -> &StudyDocument {
        &self.document
    }

    /// The checked parameters.
    pub fn params(&self) -> &StudyParams {
        &self.document.params
    }

    /// Fingerprint of the parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.report_format.fingerprint()
    }

    /// A reporter for this study, which perturbs nothing if the study was not open when it was fetched
    /// ([`Reporter::check_open`]).
    pub fn reporter(&self) -> Reporter {
        Reporter::new(self.document.params.clone())
            .with_study_info(&self.document.name, self.document.about.clone())
            .with_state(self.document.state, self.id())
    }

    /// What an outbox for this study is opened with.
    pub fn study_ref(&self) -> &StudyRef {
        &self.study_ref
    }

    /// Whether its reports need one-time tokens.
    pub fn needs_tokens(&self) -> bool {
        self.document.enrolment == Enrolment::Token
    }

    pub(super) fn report_format(&self) -> &ReportFormat {
        &self.report_format
    }

    pub(super) fn max_batch(&self) -> usize {
        self.document.max_batch_reports
    }
}

/// A device's side of the HTTP interface. Cheap to clone; clones share connections.
///
/// ```no_run
/// use eigenveil_client::{Outbox, http::{StudyClient, UploadSettings, Uploader}};
/// use eigenveil_shared::preprocess::Row;
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = StudyClient::new("http://localhost:8080")?;
/// // Shipped with the device: without a pinned fingerprint, constants of its own could identify it.
/// let pinned = "5e7a3c0f9b1d48e62a7c5f0e8d3b1a964c2e7f508b6d1a3f9e0c5b7d2a4f8e61".parse()?;
/// let study = client.fetch_study_pinned("0123456789abcdef0123456789abcdef", pinned).await?;
/// let mut outbox = Outbox::open("my.outbox", study.study_ref())?;
/// if !outbox.has_report(0)? {
///     let row = Row::new(vec![0.5; study.params().dimension()]);
///     outbox.enqueue(0, &study.reporter().report(&row)?)?;
/// }
/// let summary = Uploader::new(&client, &study, UploadSettings::default())
///     .drain(&mut outbox, |_| {})
///     .await?;
/// println!("{} accepted", summary.accepted);
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

    /// As [`StudyClient::new`], with these settings.
    pub fn with_settings(server: &str, settings: &HttpSettings) -> Result<Self> {
        Ok(Self {
            transport: Arc::new(Transport::new(server, settings, None)?),
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.transport.server()
    }

    /// All studies that are not drafts, oldest first.
    ///
    /// # Errors
    /// Network failures.
    pub async fn list(&self) -> Result<Vec<StudySummary>> {
        self.transport.studies().await
    }

    /// Fetches and checks a study. It cannot tell whether other devices got the same parameters: a server could give
    /// one device its own constants and recognise its report by them. [`StudyClient::fetch_study_pinned`] accepts only
    /// the expected fingerprint.
    ///
    /// # Errors
    /// `study-not-found`; network failures; everything that does not check (see [`Study`]).
    pub async fn fetch_study(&self, id: &str) -> Result<Study> {
        let document = self
            .transport
            .json(&ApiRequest::get(&["v1", "studies", id]))
            .await?;
        Study::checked(self.server(), id, document)
    }

    /// As [`StudyClient::fetch_study`], for a device that knows which parameters it agreed to.
    ///
    /// # Errors
    /// As [`StudyClient::fetch_study`]; `wrong-fingerprint` when the study has other parameters.
    pub async fn fetch_study_pinned(&self, id: &str, expected: Fingerprint) -> Result<Study> {
        let study = self.fetch_study(id).await?;
        check_fingerprint(study.fingerprint(), expected)?;
        Ok(study)
    }

    /// Sends one report. Keep it in an [`Outbox`](crate::Outbox) first, or a crash loses it and a
    /// second draw of noise takes its place.
    ///
    /// # Errors
    /// The server's refusal; network failures after the last retry.
    pub async fn upload_one(&self, study: &Study, report: &Report) -> Result<ReportResponse> {
        check_fingerprint(report.fingerprint, study.fingerprint())?;
        let request = ReportRequest::one(study.id(), report, None);
        self.send(&request, None, &Counters::default()).await
    }

    /// As [`StudyClient::upload_one`], to a study whose reports need one-time tokens.
    ///
    /// # Errors
    /// As there; `participant-token-unknown`, `token-spent`.
    pub async fn upload_one_with_token(
        &self,
        study: &Study,
        report: &Report,
        token: &ParticipantToken,
    ) -> Result<ReportResponse> {
        check_fingerprint(report.fingerprint, study.fingerprint())?;
        let request = ReportRequest::one(study.id(), report, Some(token));
        self.send(&request, None, &Counters::default()).await
    }

    /// Sends a batch of at most `max_batch_reports` (of the study's document) reports.
    ///
    /// # Errors
    /// The server's refusal of the whole batch; network failures after the last retry. Refusals of single reports are
    /// in the response.
    pub async fn upload_batch(&self, study: &Study, reports: &[Report]) -> Result<BatchResponse> {
        for report in reports {
            check_fingerprint(report.fingerprint, study.fingerprint())?;
        }
        if reports.is_empty() || reports.len() > study.max_batch() {
            return Err(Error::usage(format!(
                "a batch of {} reports cannot be sent; this study takes 1 to {}",
                reports.len(),
                study.max_batch()
            )));
        }
        let request = ReportRequest::batch(study, reports.iter(), None)?;
        self.send_batch(&request, None, &Counters::default()).await
    }

    pub(super) async fn send_batch(
        &self,
        request: &ReportRequest,
        policy: Option<&RetryPolicy>,
        counters: &Counters,
    ) -> Result<BatchResponse> {
        let response: BatchResponse = self.send(request, policy, counters).await?;
        check_batch_response(&response, request.count)?;
        Ok(response)
    }

    pub(super) async fn send<T: serde::de::DeserializeOwned>(
        &self,
        request: &ReportRequest,
        policy: Option<&RetryPolicy>,
        counters: &Counters,
    ) -> Result<T> {
        let path = ["v1", "studies", &request.study, "reports"];
        let request = ApiRequest {
            method: Method::POST,
            content: Some((request.media_type, request.body.clone())),
            // The identifiers make a second arrival a duplicate.
            retry_safety: RetrySafety::Always,
            ..ApiRequest::get(&path)
        };
        match policy {
            Some(policy) => self.transport.json_with(&request, policy, counters).await,
            None => self.transport.json(&request).await,
        }
    }
}

/// Encoded reports on their way: the bytes of every attempt.
pub(super) struct ReportRequest {
    study: String,
    media_type: &'static str,
    body: Bytes,
    count: usize,
}

impl ReportRequest {
    pub(super) fn one(study: &str, report: &Report, token: Option<&ParticipantToken>) -> Self {
        let bytes = codec::encode_report(report);
        let (media_type, body) = match token {
            None => (REPORT_MEDIA_TYPE, bytes),
            Some(token) => (
                ENROLLED_REPORT_MEDIA_TYPE,
                enrolment::encode_enrolled_report(token, &bytes),
            ),
        };
        Self {
            study: study.to_owned(),
            media_type,
            body: body.into(),
            count: 1,
        }
    }

    pub(super) fn batch<'a>(
        study: &Study,
        reports: impl ExactSizeIterator<Item = &'a Report>,
        tokens: Option<&[&ParticipantToken]>,
    ) -> Result<Self> {
        let count = reports.len();
        let pairs = reports.map(|report| (report.id, &report.payload[..]));
        let bytes = codec::encode_batch(study.report_format(), pairs)?;
        let (media_type, body) = match tokens {
            None => (REPORT_BATCH_MEDIA_TYPE, bytes),
            Some(tokens) => (
                ENROLLED_BATCH_MEDIA_TYPE,
                enrolment::encode_enrolled_batch(tokens, &bytes),
            ),
        };
        Ok(Self {
            study: study.id().to_owned(),
            media_type,
            body: body.into(),
            count,
        })
    }
}

/// A response that does not account for every report acknowledges none of them.
fn check_batch_response(response: &BatchResponse, count: usize) -> Result<()> {
    let mut indices: Vec<u32> = response
        .refused
        .iter()
        .map(|refused| refused.index)
        .collect();
    indices.sort_unstable();
    indices.dedup();
    let named = indices.len() == response.refused.len()
        && indices.last().is_none_or(|last| (*last as usize) < count);
    let total = response
        .accepted
        .checked_add(response.duplicates)
        .and_then(|stored| stored.checked_add(response.refused.len() as u64));
    if named && total == Some(count as u64) {
        return Ok(());
    }
    Err(Error::http(
        HttpFailure::default(),
        format!(
            "the response to {count} reports counts {} accepted, {} duplicates and {} refused, which does not add up; no report was recorded as acknowledged",
            response.accepted,
            response.duplicates,
            response.refused.len()
        ),
    ))
}

/// Whether a refusal concerns the study or this side, and not one report.
pub(super) fn is_study_level(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::StudyNotOpen
            | ErrorCode::StudyEnded
            | ErrorCode::StudyNotFound
            | ErrorCode::WrongFingerprint
            | ErrorCode::UnsupportedVersion
            | ErrorCode::UnsupportedMediaType
            | ErrorCode::Unauthorized
            | ErrorCode::TokenRequired
            | ErrorCode::Forbidden
            | ErrorCode::NotFound
            | ErrorCode::MethodNotAllowed
    )
}

/// Whether a refusal of one report of a batch may pass.
pub(super) fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TooManyRequests | ErrorCode::StoreUnavailable | ErrorCode::ShuttingDown
    )
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::api::RefusedReport;

    use super::*;

    #[test]
    fn receipts_must_add_up() {
        let response = |accepted, duplicates, refused: &[u32]| BatchResponse {
            accepted,
            duplicates,
            refused: refused
                .iter()
                .map(|&index| RefusedReport {
                    index,
                    code: ErrorCode::MalformedReport,
                    detail: String::new(),
                })
                .collect(),
        };
        assert!(check_batch_response(&response(2, 1, &[3, 0]), 5).is_ok());
        for (response, count) in [
            (response(2, 1, &[3, 0]), 6),
            (response(2, 1, &[3, 3]), 5),
            (response(2, 1, &[5, 0]), 5),
            (response(u64::MAX, 1, &[]), 0),
            (response(6, 0, &[]), 5),
        ] {
            let error = check_batch_response(&response, count).unwrap_err();
            assert!(!error.is_retryable());
        }
    }
}
