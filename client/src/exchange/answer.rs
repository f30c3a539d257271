//! Reads the outcome of each report from a response.

use std::time::Duration;

use eigenveil_shared::{
    ErrorCode,
    api::{PROBLEM_MEDIA_TYPE, ReportOutcome, ReportResponse},
    wording::counted,
};
use http_names::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    request::{JSON, Request},
    retry::retry_after,
};
use crate::error::{Error, HttpFailure, Result, printable};

/// Maximum number of characters of a server's text in a message or a ledger.
const MAX_SERVER_TEXT_CHARS: usize = 1_000;

/// A response, as the HTTP client gives it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status.
    pub status: u16,
    /// Names, in any case, and values. Values that are not text may be omitted.
    pub headers: &'a [(&'a str, &'a str)],
    /// The whole body.
    pub body: &'a [u8],
    /// Milliseconds since 1970-01-01 UTC by the local clock, if there is one; needed if `Retry-After` is a date.
    pub now: Option<u64>,
}

/// The outcome of a [`Request`] for its reports.
#[derive(Debug)]
pub struct Answer {
    /// The outcome of each report, in the order of the request.
    pub results: Vec<ReportResult>,
    /// The first reason why a report is still [`ReportResult::Pending`].
    pub error: Option<Error>,
}

impl Answer {
    /// The results, if the server has all reports.
    ///
    /// # Errors
    /// The reason why a report was not counted.
    pub fn into_result(self) -> Result<Vec<ReportResult>> {
        let refused = self.results.iter().find_map(|result| match result {
            ReportResult::Refused { code, detail } => Some((code.clone(), detail.clone())),
            _ => None,
        });
        match (self.error, refused) {
            (Some(error), _) => Err(error),
            (None, Some((code, detail))) => {
                let failure = HttpFailure {
                    code: Some(code),
                    ..HttpFailure::default()
                };
                Err(Error::http(failure, detail))
            }
            (None, None) => Ok(self.results),
        }
    }
}

/// The outcome of a batch ([`BatchResponse`](eigenveil_shared::api::BatchResponse)); codes are texts, because a later
/// server may have new ones.
#[derive(Deserialize)]
struct BatchOutcome {
    accepted: u64,
    duplicates: u64,
    refused: Vec<RefusedReport>,
}

#[derive(Deserialize)]
struct RefusedReport {
    index: u32,
    code: String,
    detail: String,
}

/// The outcome of one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportResult {
    /// The server counted it now.
    Accepted,
    /// The server had counted it before: an earlier response was lost.
    Duplicate,
    /// The server refused it permanently.
    Refused {
        /// Stable code.
        code: String,
        /// The server's message.
        detail: String,
    },
    /// Unknown: it is still to be sent.
    Pending,
}

impl ReportResult {
    /// The state to store: `None` if unknown, `Some(None)` if counted, `Some(Some((code, detail)))` if refused.
    pub(crate) fn into_ledger_state(self) -> Option<Option<(String, String)>> {
        let shortened = |text: String| text.chars().take(MAX_SERVER_TEXT_CHARS).collect();
        match self {
            Self::Accepted | Self::Duplicate => Some(None),
            Self::Refused { code, detail } => Some(Some((shortened(code), shortened(detail)))),
            Self::Pending => None,
        }
    }
}

impl Request {
    /// Reads the response to this request; every report gets a result, whatever the response is.
    pub fn answer(&self, response: &Response<'_>) -> Answer {
        match self.read(response) {
            Ok(answer) => answer,
            Err(error) => self.answer_for_failure(error),
        }
    }

    /// The answer if there was no response.
    pub fn no_response(&self, why: impl std::fmt::Display) -> Answer {
        self.answer_for_failure(Error::no_response(format!(
            "no response from {}: {why}",
            self.server
        )))
    }

    /// The answer for a request that failed as a whole.
    pub(crate) fn answer_for_failure(&self, error: Error) -> Answer {
        if let (1, false, Some(code)) = (self.reports.len(), self.batched, error.code_text())
            && is_refusal_of_a_report(&error)
        {
            return Answer {
                results: vec![ReportResult::Refused {
                    code: code.to_owned(),
                    detail: error.detail().to_owned(),
                }],
                error: None,
            };
        }
        Answer {
            results: vec![ReportResult::Pending; self.reports.len()],
            error: Some(error),
        }
    }

    fn read(&self, response: &Response<'_>) -> Result<Answer> {
        let server = self.server.as_str();
        if self.batched {
            let batch: BatchOutcome = response.json(server)?;
            check_batch(&batch, self.reports.len())?;
            return Ok(self.answer_from_batch(batch));
        }
        let results = match &self.reports[..] {
            [] => {
                response.require_success(server)?;
                Vec::new()
            }
            _ => {
                let receipt: ReportResponse = response.json(server)?;
                vec![match receipt.outcome {
                    ReportOutcome::Accepted => ReportResult::Accepted,
                    ReportOutcome::Duplicate => ReportResult::Duplicate,
                }]
            }
        };
        Ok(Answer {
            results,
            error: None,
        })
    }

    /// Builds the answer from the outcome of a batch, which lists the refused reports and counts the duplicates.
    fn answer_from_batch(&self, batch: BatchOutcome) -> Answer {
        let mut results = vec![ReportResult::Accepted; self.reports.len()];
        let (mut study_error, mut transient_error) = (None, None);
        for refused in batch.refused {
            let (code, detail) = (
                printable_prefix(&refused.code),
                printable_prefix(&refused.detail),
            );
            let known = ErrorCode::parse(&code);
            let retryable = known.is_some_and(is_transient);
            let error_slot = if known.is_some_and(is_study_level) {
                &mut study_error
            } else if retryable {
                &mut transient_error
            } else {
                results[refused.index as usize] = ReportResult::Refused { code, detail };
                continue;
            };
            results[refused.index as usize] = ReportResult::Pending;
            let failure = HttpFailure {
                code: Some(code),
                retryable,
                not_processed: retryable,
                ..HttpFailure::default()
            };
            error_slot.get_or_insert_with(|| Error::http(failure, detail));
        }
        // The response does not say which ones are duplicates; all are counted.
        let mut duplicates = batch.duplicates;
        for result in &mut results {
            if duplicates > 0 && *result == ReportResult::Accepted {
                *result = ReportResult::Duplicate;
                duplicates -= 1;
            }
        }
        Answer {
            results,
            error: study_error.or(transient_error),
        }
    }
}

impl Response<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The media type without its parameters, in lower case; empty if there is none.
    fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or_default();
        let without_parameters = value.split(';').next().unwrap_or_default();
        printable_prefix(without_parameters.trim()).to_ascii_lowercase()
    }

    /// Refuses a status other than 2xx.
    pub(crate) fn require_success(&self, server: &str) -> Result<()> {
        match self.status {
            200..=299 => Ok(()),
            _ => Err(self.refusal(server)),
        }
    }

    /// Parses the JSON body of a successful response.
    pub(crate) fn json<T: DeserializeOwned>(&self, server: &str) -> Result<T> {
        self.require_success(server)?;
        let failure = |retryable| HttpFailure {
            status: Some(self.status),
            retryable,
            ..HttpFailure::default()
        };
        let media_type = self.media_type();
        if media_type != JSON {
            return Err(Error::http(
                failure(false),
                format!(
                    "{server} answered {} with {} instead of {JSON}; is it an Eigenveil server?",
                    status_text(self.status),
                    media_type_text(&media_type)
                ),
            ));
        }
        serde_json::from_slice(self.body).map_err(|error| {
            Error::http(
                // It may have been truncated or altered on the way.
                failure(true),
                format!(
                    "{server} answered {} with JSON of an unexpected form: {}",
                    status_text(self.status),
                    printable_prefix(&error.to_string())
                ),
            )
        })
    }

    /// The error for an unsuccessful response.
    fn refusal(&self, server: &str) -> Error {
        #[derive(Deserialize)]
        struct ProblemBody {
            code: String,
            detail: String,
        }
        let busy = matches!(self.status, 429 | 503);
        let mut failure = HttpFailure {
            status: Some(self.status),
            retryable: busy || self.status == 408 || (500..600).contains(&self.status),
            not_processed: busy,
            retry_after: self.retry_after(),
            ..HttpFailure::default()
        };
        let media_type = self.media_type();
        let problem = (media_type == PROBLEM_MEDIA_TYPE)
            .then(|| serde_json::from_slice::<ProblemBody>(self.body).ok())
            .flatten();
        if let Some(problem) = problem {
            failure.retryable |= ErrorCode::parse(&problem.code).is_some_and(is_transient);
            failure.code = Some(printable_prefix(&problem.code));
            return Error::http(failure, printable_prefix(&problem.detail));
        }
        let status = status_text(self.status);
        let sentence = match self.header("location") {
            Some(location) if (300..400).contains(&self.status) => format!(
                "{server} answered {status} and redirects to {}; give that address if it is the right one",
                printable_prefix(location)
            ),
            _ => format!(
                "{server} answered {status} with {} instead of a problem document; a proxy or another program sent this response{}",
                media_type_text(&media_type),
                match self.status {
                    400 if server.starts_with("http://") =>
                        "; this happens if the port expects HTTPS: try https://",
                    _ => "",
                }
            ),
        };
        Error::http(failure, sentence)
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after(self.header("retry-after")?, self.header("date"), self.now)
    }
}

/// Refuses a response that does not account for every report: it acknowledges none of them.
fn check_batch(batch: &BatchOutcome, count: usize) -> Result<()> {
    let mut indices: Vec<u32> = batch.refused.iter().map(|refused| refused.index).collect();
    indices.sort_unstable();
    indices.dedup();
    let indices_are_valid = indices.len() == batch.refused.len()
        && indices.last().is_none_or(|last| (*last as usize) < count);
    let total = batch
        .accepted
        .checked_add(batch.duplicates)
        .and_then(|stored| stored.checked_add(batch.refused.len() as u64));
    if indices_are_valid && total == Some(count as u64) {
        return Ok(());
    }
    Err(Error::http(
        HttpFailure::default(),
        format!(
            "the response to {} counts {} accepted, {} duplicates and {} refused, which does not add up; no report was recorded as acknowledged",
            counted(count as u64, "report"),
            batch.accepted,
            batch.duplicates,
            batch.refused.len()
        ),
    ))
}

/// Whether a refusal concerns the study or the client rather than one report.
fn is_study_level(code: ErrorCode) -> bool {
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

/// Whether a refusal is temporary.
fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TooManyRequests
            | ErrorCode::StoreUnavailable
            | ErrorCode::ShuttingDown
            | ErrorCode::IncompleteBody
            | ErrorCode::Internal
    )
}

/// Whether the server refused one report, permanently, for a reason specific to that report.
fn is_refusal_of_a_report(error: &Error) -> bool {
    !error.is_retryable()
        && error
            .status()
            .is_some_and(|status| (400..500).contains(&status))
        && !error.code().is_some_and(is_study_level)
}

/// The status with its name, if it has one.
fn status_text(status: u16) -> String {
    let name = StatusCode::from_u16(status).ok();
    match name.and_then(|status| status.canonical_reason()) {
        Some(name) => format!("{status} {name}"),
        None => status.to_string(),
    }
}

fn media_type_text(media_type: &str) -> &str {
    match media_type {
        "" => "no content type",
        other => other,
    }
}

/// A server's text made printable and shortened.
fn printable_prefix(text: &str) -> String {
    printable(text)
        .chars()
        .take(MAX_SERVER_TEXT_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_text_cannot_steer_the_terminal() {
        assert_eq!(printable_prefix("a\u{1b}[2J\n\u{202e}b"), "a [2J  b");
        assert_eq!(
            printable_prefix(&"é".repeat(5_000)).chars().count(),
            MAX_SERVER_TEXT_CHARS
        );
    }
}
