//! The opaque error of the whole crate, and its properties.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::{fmt, time::Duration};

pub use eigenveil_shared::Hint;
use eigenveil_shared::{ErrorCode, about::is_shown};

/// Result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: one sentence that names the value, the limit and the way out.
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
#[derive(Debug)]
pub struct Error(Box<Inner>);

/// 2026-01-01 UTC, in milliseconds since 1970.
#[cfg(feature = "sqlite")]
const EARLIEST_NOW: u64 = 1_767_225_600_000;

#[derive(Debug)]
struct Inner {
    kind: Kind,
    detail: String,
    hint: Option<Hint>,
}

#[derive(Debug)]
enum Kind {
    /// A failed check of the shared crate.
    Check(ErrorCode),
    /// A local failure without a code, but with this name.
    Named(&'static str),
    Http(HttpFailure),
}

/// Names of failures with a method of their own.
#[cfg(feature = "sqlite")]
const LOCKED: &str = "locked";
const CHANGED: &str = "changed";
#[cfg(feature = "sqlite")]
const OTHER_ROWS: &str = "other-rows";

/// Everything known about a failed exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpFailure {
    pub(crate) status: Option<u16>,
    /// The code of a problem document, as the server wrote it.
    pub(crate) code: Option<String>,
    pub(crate) retryable: bool,
    /// The server certainly did not act on the request.
    #[cfg_attr(not(feature = "http"), expect(dead_code))]
    pub(crate) not_processed: bool,
    pub(crate) timeout: bool,
    pub(crate) retry_after: Option<Duration>,
}

impl Error {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            detail: detail.into(),
            hint: None,
        }))
    }

    pub(crate) fn with_hint(mut self, hint: Hint) -> Self {
        self.0.hint = Some(hint);
        self
    }

    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(Kind::Named("usage"), detail)
    }

    /// The error for a file; `name` is its kind, such as a ledger.
    #[cfg(feature = "sqlite")]
    pub(crate) fn file(name: &str, path: &Path, detail: impl fmt::Display) -> Self {
        Self::new(
            Kind::Named("file"),
            format!("{name} {}: {detail}", path.display()),
        )
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn locked(name: &str, path: &Path) -> Self {
        Self::new(
            Kind::Named(LOCKED),
            format!(
                "{name} {}: another process has it open; wait until that process ends",
                path.display()
            ),
        )
    }

    /// Returns the time unless the clock is certainly wrong: a device that has lost the time could take part after a
    /// study's last day.
    #[cfg(feature = "sqlite")]
    pub(crate) fn check_clock(now: u64) -> Result<u64> {
        if now >= EARLIEST_NOW {
            return Ok(now);
        }
        Err(Self::new(
            Kind::Named("clock-unavailable"),
            "the clock of this device is before 2026-01-01; nothing was perturbed or charged: set it and try again",
        ))
    }

    pub(crate) fn changed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Named(CHANGED), detail)
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn row_file_mismatch(path: &Path) -> Self {
        Self::new(
            Kind::Named(OTHER_ROWS),
            format!(
                "ledger {}: these rows differ from those it was used with, or were then in a study of the other kind (of single rows, or of sites), for which a file has another digest. The ledger identifies participants by row number: confirm it if row i is still the same participant, or use another ledger if these are other people",
                path.display()
            ),
        )
    }

    /// The digests are not shown: guesses at a short file could be compared with them.
    #[cfg(feature = "sqlite")]
    pub(crate) fn rows_changed(path: &Path) -> Self {
        Self::new(
            Kind::Named("rows-changed"),
            format!(
                "ledger {}: the rows have changed since their reports for this study were made, or are read with another header, other columns, other persons or other weights; each report is made only once: give the rows as they were, read as they were, or use another ledger for other participants",
                path.display()
            ),
        )
    }

    pub(crate) fn malformed_study(detail: impl Into<String>) -> Self {
        Self::new(Kind::Named("malformed-study"), detail)
    }

    pub(crate) fn http(failure: HttpFailure, detail: impl Into<String>) -> Self {
        Self::new(Kind::Http(failure), detail)
    }

    pub(crate) fn no_response(detail: impl Into<String>) -> Self {
        Self::http(
            HttpFailure {
                retryable: true,
                ..HttpFailure::default()
            },
            detail,
        )
    }

    #[cfg(feature = "http")]
    pub(crate) fn timed_out(detail: impl Into<String>) -> Self {
        Self::http(
            HttpFailure {
                timeout: true,
                ..HttpFailure::default()
            },
            detail,
        )
    }

    /// The message, without the code.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The way out, if a user interface has its own words for it.
    pub fn hint(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
    }

    /// The stable code: of the server's problem document, or of the local check that failed. `None` for failures
    /// without a code (network, file) and for codes that this program does not know.
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

    /// The HTTP status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        self.failure().and_then(|failure| failure.status)
    }

    /// Whether the same request may succeed later: network failures, 408, 429, 5xx, `incomplete-body`, and a response
    /// whose JSON cannot be read.
    pub fn is_retryable(&self) -> bool {
        self.failure().is_some_and(|failure| failure.retryable)
    }

    /// The delay for which the server asked.
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure().and_then(|failure| failure.retry_after)
    }

    /// Whether a time limit of the client ran out.
    pub fn is_timeout(&self) -> bool {
        self.failure().is_some_and(|failure| failure.timeout)
    }

    /// A stable name, by which programs distinguish errors: the code, or one of `file`, `locked`, `changed`,
    /// `other-rows`, `rows-changed`, `clock-unavailable`, `malformed-study`, `no-answer` and `usage`.
    pub fn name(&self) -> &str {
        match &self.0.kind {
            Kind::Check(code) => code.as_str(),
            Kind::Http(failure) => failure.code.as_deref().unwrap_or("no-answer"),
            Kind::Named(name) => name,
        }
    }

    /// Whether another process has the ledger open.
    #[cfg(feature = "sqlite")]
    pub fn is_locked(&self) -> bool {
        matches!(self.0.kind, Kind::Named(LOCKED))
    }

    /// Whether the store was changed by somebody else since it was read: read it, and try again.
    pub fn is_changed(&self) -> bool {
        matches!(self.0.kind, Kind::Named(CHANGED))
    }

    /// Whether a ledger of rows was used with a file that it does not know.
    #[cfg(feature = "sqlite")]
    pub fn is_row_file_mismatch(&self) -> bool {
        matches!(self.0.kind, Kind::Named(OTHER_ROWS))
    }

    pub(crate) fn failure(&self) -> Option<&HttpFailure> {
        match &self.0.kind {
            Kind::Http(failure) => Some(failure),
            _ => None,
        }
    }

    /// Adds a remark.
    #[cfg(feature = "http")]
    pub(crate) fn with_remark(mut self, remark: impl fmt::Display) -> Self {
        self.0.detail = format!("{} ({remark})", self.0.detail);
        self
    }
}

impl From<eigenveil_shared::Error> for Error {
    fn from(error: eigenveil_shared::Error) -> Self {
        let hint = error.hint().cloned();
        let mut error = Self::new(Kind::Check(error.code()), error.detail());
        error.0.hint = hint;
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)?;
        match self.code_text() {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Replaces control characters of foreign text, and those that change the writing direction.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_shown(c) { c } else { ' ' })
        .collect()
}
