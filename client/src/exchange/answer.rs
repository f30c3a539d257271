//! What a response says of each report that was sent.

use std::time::Duration;

use eigenveil_shared::{
    ErrorCode,
    api::{PROBLEM_MEDIA_TYPE, ReportOutcome, ReportResponse},
};
use http_names::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    request::{JSON, Request},
    retry::retry_after,
};
use crate::error::{Error, HttpFailure, Result, printable};

/// Longest text of a server that is repeated in a message or kept, in characters.
const MAX_SHOWN: usize = 1_000;

/// A response, as the HTTP client gives it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status.
    pub status: u16,
    /// Names, in whatever case, and values. Those that are no text may be left out.
    pub headers: &'a [(&'a str, &'a str)],
    /// The whole body.
    pub body: &'a [u8],
    /// Milliseconds since 1970-01-01 UTC, by this side's clock, if it has one: for a `Retry-After` that is a date.
    pub now: Option<u64>,
}

/// The outcome of a [`Request`] for its reports.
#[derive(Debug)]
pub struct Answer {
    /// The outcome of each report, in the order of the request.
    pub results: Vec<ReportResult>,
    /// Why some are [`ReportResult::Pending`]: the first reason, where there are several.
    pub error: Option<Error>,
}

impl Answer {
    /// The results, if the server has all reports.
    ///
    /// # Errors
    /// Why one or all of them were not counted.
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

/// The receipt of a batch ([`BatchResponse`](eigenveil_shared::api::BatchResponse)), with codes that later versions of a
/// server may have.
#[derive(Deserialize)]
struct BatchReceipt {
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
    /// The server refused it for good.
    Refused {
        /// Stable code.
        code: String,
        /// The server's sentence.
        detail: String,
    },
    /// Nothing is known: it is still to be sent.
    Pending,
}

impl ReportResult {
    /// The part that a ledger keeps: `None` where nothing is known, otherwise whether the report was refused, with what
    /// code and sentence.
    pub(crate) fn outcome(self) -> Option<Option<(String, String)>> {
        let cut = |text: String| text.chars().take(MAX_SHOWN).collect();
        match self {
            Self::Accepted | Self::Duplicate => Some(None),
            Self::Refused { code, detail } => Some(Some((cut(code), cut(detail)))),
            Self::Pending => None,
        }
    }
}

impl Request {
    /// Reads the response to this request. Whatever came, each report has a result.
    pub fn answer(&self, response: &Response<'_>) -> Answer {
        match self.read(response) {
            Ok(answer) => answer,
            Err(error) => self.failed(error),
        }
    }

    /// The answer where there was no response.
    pub fn no_response(&self, why: impl std::fmt::Display) -> Answer {
        self.failed(Error::no_response(format!(
            "no response from {}: {why}",
            self.server
        )))
    }

    /// The answer of a request that failed as a whole.
    pub(crate) fn failed(&self, error: Error) -> Answer {
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
            let receipt: BatchReceipt = response.json(server)?;
            check_receipt(&receipt, self.reports.len())?;
            return Ok(self.of_batch(receipt));
        }
        let results = match &self.reports[..] {
            [] => {
                response.success(server)?;
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

    /// The receipt of a batch says which reports were refused, and how many of the others are duplicates.
    fn of_batch(&self, receipt: BatchReceipt) -> Answer {
        let mut results = vec![ReportResult::Accepted; self.reports.len()];
        let (mut of_study, mut for_now) = (None, None);
        for refused in receipt.refused {
            let (code, detail) = (shown(&refused.code), shown(&refused.detail));
            let known = ErrorCode::parse(&code);
            let retryable = known.is_some_and(is_transient);
            let why = if known.is_some_and(is_study_level) {
                &mut of_study
            } else if retryable {
                &mut for_now
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
            why.get_or_insert_with(|| Error::http(failure, detail));
        }
        // The receipt does not say which: all are counted.
        let mut duplicates = receipt.duplicates;
        for result in &mut results {
            if duplicates > 0 && *result == ReportResult::Accepted {
                *result = ReportResult::Duplicate;
                duplicates -= 1;
            }
        }
        Answer {
            results,
            error: of_study.or(for_now),
        }
    }
}

impl Response<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The media type without its parameters, in lower case; empty where there is none.
    fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or_default();
        let bare = value.split(';').next().unwrap_or_default();
        shown(bare.trim()).to_ascii_lowercase()
    }

    /// Refuses a status that is none of success.
    pub(crate) fn success(&self, server: &str) -> Result<()> {
        match self.status {
            200..=299 => Ok(()),
            _ => Err(self.refusal(server)),
        }
    }

    /// The JSON of this type that a response of success holds.
    pub(crate) fn json<T: DeserializeOwned>(&self, server: &str) -> Result<T> {
        self.success(server)?;
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
                    shown_status(self.status),
                    shown_type(&media_type)
                ),
            ));
        }
        serde_json::from_slice(self.body).map_err(|error| {
            Error::http(
                // Cut or mangled on the way, perhaps.
                failure(true),
                format!(
                    "{server} answered {} with JSON of an unexpected form: {}",
                    shown_status(self.status),
                    shown(&error.to_string())
                ),
            )
        })
    }

    /// The error for a response that says no.
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
            failure.code = Some(shown(&problem.code));
            return Error::http(failure, shown(&problem.detail));
        }
        let status = shown_status(self.status);
        let sentence = match self.header("location") {
            Some(location) if (300..400).contains(&self.status) => format!(
                "{server} answered {status} and redirects to {}; give that address if it is the right one",
                shown(location)
            ),
            _ => format!(
                "{server} answered {status} with {} instead of a problem document; something between here and the server, or another program, gave this response{}",
                shown_type(&media_type),
                match self.status {
                    400 if server.starts_with("http://") =>
                        "; a port that speaks HTTPS does so: try https://",
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

/// A response that does not account for every report acknowledges none of them.
fn check_receipt(receipt: &BatchReceipt, count: usize) -> Result<()> {
    let mut indices: Vec<u32> = receipt
        .refused
        .iter()
        .map(|refused| refused.index)
        .collect();
    indices.sort_unstable();
    indices.dedup();
    let named = indices.len() == receipt.refused.len()
        && indices.last().is_none_or(|last| (*last as usize) < count);
    let total = receipt
        .accepted
        .checked_add(receipt.duplicates)
        .and_then(|stored| stored.checked_add(receipt.refused.len() as u64));
    if named && total == Some(count as u64) {
        return Ok(());
    }
    Err(Error::http(
        HttpFailure::default(),
        format!(
            "the response to {count} reports counts {} accepted, {} duplicates and {} refused, which does not add up; no report was recorded as acknowledged",
            receipt.accepted,
            receipt.duplicates,
            receipt.refused.len()
        ),
    ))
}

/// Whether a refusal concerns the study or this side, and not one report.
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

/// Whether a refusal may pass.
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

/// Whether the server refused one report, for good and for a reason of its own.
fn is_refusal_of_a_report(error: &Error) -> bool {
    !error.is_retryable()
        && error
            .status()
            .is_some_and(|status| (400..500).contains(&status))
        && !error.code().is_some_and(is_study_level)
}

/// The status with its name, where it has one.
fn shown_status(status: u16) -> String {
    let name = StatusCode::from_u16(status).ok();
    match name.and_then(|status| status.canonical_reason()) {
        Some(name) => format!("{status} {name}"),
        None => status.to_string(),
    }
}

fn shown_type(media_type: &str) -> &str {
    match media_type {
        "" => "no content type",
        other => other,
    }
}

/// A server's text as it may be shown, not endless.
fn shown(text: &str) -> String {
    printable(text).chars().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_text_cannot_steer_the_terminal() {
        assert_eq!(shown("a\u{1b}[2J\n\u{202e}b"), "a [2J  b");
        assert_eq!(shown(&"é".repeat(5_000)).chars().count(), MAX_SHOWN);
    }
}
