//! One opaque error for the whole crate, with a few questions it answers.

use std::{fmt, path::Path, time::Duration};

use eigenveil_shared::ErrorCode;

/// Result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one sentence that names the value, the limit and the way out.
///
/// No error of this crate holds a value of a row, a payload or a token.
///
/// ```
/// use eigenveil_client::Error;
/// use eigenveil_shared::ErrorCode;
/// let error = Error::from(eigenveil_shared::Error::new(ErrorCode::StudyNotOpen, "the study is closed"));
/// assert_eq!(error.code(), Some(ErrorCode::StudyNotOpen));
/// assert!(!error.is_retryable());
/// assert_eq!(error.to_string(), "the study is closed [study-not-open]");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    sentence: String,
}

#[derive(Debug)]
enum Kind {
    /// A check of the shared vocabulary, on this side.
    Check(ErrorCode),
    /// An outbox or ledger could not be read or written.
    File,
    Locked,
    StudyMismatch,
    RowFileMismatch,
    /// The caller asked for something that cannot be.
    Usage,
    #[cfg_attr(not(feature = "http"), expect(dead_code))]
    Http(HttpFailure),
}

/// Everything known about a failed exchange.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "http"), expect(dead_code))]
pub(crate) struct HttpFailure {
    pub(crate) status: Option<u16>,
    /// The code of a problem document, as it was written.
    pub(crate) code: Option<String>,
    pub(crate) retryable: bool,
    /// The server certainly did not act on the request.
    pub(crate) not_processed: bool,
    pub(crate) timeout: bool,
    pub(crate) retry_after: Option<Duration>,
}

impl Error {
    fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            sentence: sentence.into(),
        }))
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Kind::Usage, sentence)
    }

    /// `name` is what the file is: an outbox, a ledger.
    pub(crate) fn file(name: &str, path: &Path, what: impl fmt::Display) -> Self {
        Self::new(Kind::File, format!("{name} {}: {what}", path.display()))
    }

    pub(crate) fn locked(name: &str, path: &Path) -> Self {
        Self::new(
            Kind::Locked,
            format!(
                "{name} {}: another process has it open; wait until that one ends",
                path.display()
            ),
        )
    }

    pub(crate) fn study_mismatch(path: &Path, what: impl fmt::Display) -> Self {
        Self::new(
            Kind::StudyMismatch,
            format!(
                "outbox {}: {what}; use one outbox for each study",
                path.display()
            ),
        )
    }

    pub(crate) fn row_file_mismatch(path: &Path) -> Self {
        Self::new(
            Kind::RowFileMismatch,
            format!(
                "ledger {}: this file differs from the ones it was used with. The ledger identifies participants by row number: if row i is still the same participant, say so; if these are other people, use another ledger",
                path.display()
            ),
        )
    }

    #[cfg(feature = "http")]
    pub(crate) fn http(failure: HttpFailure, sentence: impl Into<String>) -> Self {
        Self::new(Kind::Http(failure), sentence)
    }

    #[cfg(feature = "http")]
    pub(crate) fn timed_out(sentence: impl Into<String>) -> Self {
        Self::http(
            HttpFailure {
                timeout: true,
                ..HttpFailure::default()
            },
            sentence,
        )
    }

    /// The sentence.
    pub fn detail(&self) -> &str {
        &self.0.sentence
    }

    /// The stable code: of the server's problem document, or of the check that failed here. `None`
    /// for failures that have none (network, file) and for codes this program does not know.
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.0.kind {
            Kind::Check(code) => Some(*code),
            Kind::Http(failure) => failure.code.as_deref().and_then(ErrorCode::parse),
            _ => None,
        }
    }

    /// The code as the server wrote it, also one that this program does not know.
    pub fn code_text(&self) -> Option<&str> {
        match &self.0.kind {
            Kind::Check(code) => Some(code.as_str()),
            Kind::Http(failure) => failure.code.as_deref(),
            _ => None,
        }
    }

    /// The HTTP status, where there was a response.
    pub fn status(&self) -> Option<u16> {
        self.failure().and_then(|failure| failure.status)
    }

    /// Whether the same request may succeed later: network failures, 408, 429 and 5xx.
    pub fn is_retryable(&self) -> bool {
        self.failure().is_some_and(|failure| failure.retryable)
    }

    /// How long the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure().and_then(|failure| failure.retry_after)
    }

    /// Whether a time limit of this side ran out.
    pub fn is_timeout(&self) -> bool {
        self.failure().is_some_and(|failure| failure.timeout)
    }

    /// Whether another process has the outbox or ledger open.
    pub fn is_locked(&self) -> bool {
        matches!(self.0.kind, Kind::Locked)
    }

    /// Whether the outbox belongs to another study or server.
    pub fn is_study_mismatch(&self) -> bool {
        matches!(self.0.kind, Kind::StudyMismatch)
    }

    /// Whether a ledger of rows was used with a file that it does not know.
    pub fn is_row_file_mismatch(&self) -> bool {
        matches!(self.0.kind, Kind::RowFileMismatch)
    }

    pub(crate) fn failure(&self) -> Option<&HttpFailure> {
        match &self.0.kind {
            Kind::Http(failure) => Some(failure),
            _ => None,
        }
    }

    /// The same failure, with more said about it.
    #[cfg(feature = "http")]
    pub(crate) fn with_remark(mut self, remark: impl fmt::Display) -> Self {
        self.0.sentence = format!("{} ({remark})", self.0.sentence);
        self
    }
}

impl From<eigenveil_shared::Error> for Error {
    fn from(error: eigenveil_shared::Error) -> Self {
        Self::new(Kind::Check(error.code()), error.detail())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.sentence)?;
        match self.code_text() {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("sentence", &self.0.sentence)
            .finish()
    }
}

impl std::error::Error for Error {}
