//! The error type shared by all crates, with the stable codes that both ends of HTTP share.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $title:literal;)*) => {
        /// Stable code of an error: the `code` and the end of the `type` URI of a problem document
        /// (RFC 9457), a metric label, and what scripts may rely on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode { $(#[doc = $title] $(#[$doc])* $variant,)* }

        impl ErrorCode {
            /// Every code, for tables and tests.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The code as written on the wire, in kebab case.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
            }

            /// The HTTP status of a response with this code.
            pub const fn status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            /// Short title, the same for every occurrence of the code.
            pub const fn title(self) -> &'static str {
                match self { $(ErrorCode::$variant => $title,)* }
            }

            /// The code with this name, if there is one.
            pub fn parse(code: &str) -> Option<Self> {
                match code { $($code => Some(ErrorCode::$variant),)* _ => None }
            }
        }
    };
}

error_codes! {
    InvalidDimension = "invalid-dimension", 422, "The dimension is out of range";
    InvalidBudget = "invalid-budget", 422, "The privacy budget is out of range";
    InvalidMechanism = "invalid-mechanism", 422, "The mechanism's parameters are not valid";
    InvalidPreprocessing = "invalid-preprocessing", 422, "The preprocessing is not usable";
    InvalidName = "invalid-name", 422, "The name is not usable";
    InvalidNotice = "invalid-about", 422, "The description for participants is not usable";
    WrongDimension = "wrong-dimension", 422, "The row does not have the study's dimension";
    RowNotFinite = "row-not-finite", 422, "The row has a value that is not a finite number";
    RowOutsideBall = "row-outside-ball", 422, "The row lies outside the ball the study requires";
    MalformedReport = "malformed-report", 400, "The bytes are not a report";
    MalformedParams = "malformed-params", 400, "The bytes are not the parameters of a study";
    /// A request whose head names no host, or several.
    MalformedRequest = "malformed-request", 400, "The head of the request is malformed";
    IncompleteBody = "incomplete-body", 400, "The body is incomplete";
    UnsupportedVersion = "unsupported-version", 400, "The wire version is not supported";
    WrongFingerprint = "wrong-fingerprint", 422, "The report was made for other study parameters";
    WrongPayloadLength = "wrong-payload-length", 422, "The payload does not have the mechanism's length";
    PayloadNotFinite = "payload-not-finite", 422, "The payload has a value that is not a finite number";
    PayloadOutOfRange = "payload-out-of-range", 422, "The payload has a number that no device of this study sends";
    ImplausibleReport = "implausible-report", 422, "The report is larger than any honest device's";
    BodyTooLarge = "body-too-large", 413, "The body is larger than the study allows";
    UnsupportedMediaType = "unsupported-media-type", 415, "The media type is not accepted here";
    MalformedJson = "malformed-json", 400, "The JSON body is not what this endpoint takes";
    StudyNotFound = "study-not-found", 404, "There is no such study";
    StudyNotOpen = "study-not-open", 409, "The study does not take reports now";
    StudyEnded = "study-ended", 409, "The study's last day is over";
    InvalidTransition = "invalid-transition", 409, "The study's state does not allow this";
    EstimateNotFound = "estimate-not-found", 404, "There is no such estimate";
    EstimateNotReady = "estimate-not-ready", 409, "The estimate is not finished";
    EstimateFailed = "estimate-failed", 422, "The estimate could not be made";
    /// An estimate request with a k, λ, ρ … out of range.
    InvalidRequest = "invalid-request", 422, "The request is out of range";
    InvalidConfig = "invalid-config", 422, "The configuration is not usable";
    CannotListen = "cannot-listen", 503, "The server cannot listen on the address";
    Unauthorized = "unauthorized", 401, "Credentials are needed";
    Forbidden = "forbidden", 403, "The credentials do not allow this";
    TokenRequired = "token-required", 403, "The study requires a one-time token";
    ParticipantTokenUnknown = "participant-token-unknown", 403, "The study has no such token";
    TokenSpent = "token-spent", 409, "The token was used for another report";
    AnalystTokenNotFound = "analyst-token-not-found", 404, "There is no such token";
    /// A queue is full; try again after `Retry-After`.
    TooManyRequests = "too-many-requests", 429, "Too many requests";
    RequestTimeout = "request-timeout", 408, "The request took too long to arrive";
    NotFound = "not-found", 404, "There is nothing at this address";
    MethodNotAllowed = "method-not-allowed", 405, "The method is not allowed here";
    StoreUnavailable = "store-unavailable", 503, "The store is not available";
    StoreFull = "store-full", 507, "The store is full";
    MalformedExport = "malformed-export", 400, "The file is not a complete export of a study";
    AlreadyCounted = "already-counted", 409, "Some of the reports have been counted already";
    /// A fault of the server itself; what was not acknowledged was not counted.
    Internal = "internal", 500, "Internal server error";
    ShuttingDown = "shutting-down", 503, "The server is stopping";
    RandomnessUnavailable = "randomness-unavailable", 503, "The operating system's random generator failed";
    BudgetExceeded = "budget-exceeded", 422, "The device's own privacy limit would be exceeded";
    AlreadyParticipated = "already-participated", 409, "The device has taken part in this study before";
}

/// An [`Error`] of this code, with a formatted message.
#[doc(hidden)]
#[macro_export]
macro_rules! error {
    ($code:ident, $($text:tt)+) => {
        $crate::error::Error::new($crate::error::ErrorCode::$code, format!($($text)+))
    };
}
pub(crate) use error;

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = String::deserialize(deserializer)?;
        Self::parse(&code).ok_or_else(|| serde::de::Error::custom(format!("unknown code {code:?}")))
    }
}

/// An error: a stable [`ErrorCode`] and one sentence that names the value, the limit and the way out. Never holds a
/// value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    detail: String,
    field: Option<&'static str>,
    hint: Option<Hint>,
}

/// A way out of an error that each user interface words for itself: a flag, a command, an argument.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Name the directory of the server's data.
    DataDirectory,
    /// Bring the database's schema to this program's version.
    MigrateStore,
    /// Allow plain HTTP to another machine.
    PlainHttp,
    /// Trust this root certificate, too.
    RootCertificate,
    /// Consent to the study's move: the reports were made for this address.
    Move(String),
    /// Consent to the purpose or responsible party that the study states now.
    NewPurpose,
    /// Give one one-time token per participant; holds the numbers of tokens and of participants.
    Tokens(usize, u64),
    /// Give different one-time tokens: those at these two positions, counted from 0, are equal.
    DuplicateTokens {
        /// Position of the first of them.
        first: usize,
        /// Position of the second one.
        second: usize,
    },
}

impl Error {
    /// An error of this code; `detail` says what to do and must not hold row values.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            field: None,
            hint: None,
        }
    }

    /// Adds a way out.
    pub fn with_hint(self, hint: Hint) -> Self {
        let hint = Some(hint);
        Self { hint, ..self }
    }

    /// The way out, if a user interface has its own words for it.
    pub fn hint(&self) -> Option<&Hint> {
        self.hint.as_ref()
    }

    /// Sets the request field that caused the error.
    pub fn with_field(self, field: &'static str) -> Self {
        let field = Some(field);
        Self { field, ..self }
    }

    /// `invalid-request`.
    pub fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, detail)
    }

    /// Refuses the first given field, because it has no effect (`invalid-request`).
    pub fn reject_if_given(fields: &[(&'static str, bool)], why: &str) -> Result<()> {
        let Some(&(field, _)) = fields.iter().find(|(_, given)| *given) else {
            return Ok(());
        };
        let detail = format!("`{field}` has no effect: {why}; leave it out");
        Err(Self::invalid_request(detail).with_field(field))
    }

    /// `invalid-config`.
    pub fn invalid_config(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidConfig, detail)
    }

    /// `estimate-failed`.
    pub fn estimate_failed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::EstimateFailed, detail)
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The request field that caused the error; a form shows the error beside it.
    pub fn field(&self) -> Option<&'static str> {
        let default_field = match self.code {
            ErrorCode::InvalidName => Some("name"),
            ErrorCode::InvalidNotice => Some("last_day"),
            ErrorCode::InvalidDimension => Some("dimension"),
            ErrorCode::InvalidBudget => Some("epsilon"),
            ErrorCode::InvalidMechanism => Some("mechanism"),
            ErrorCode::InvalidPreprocessing => Some("features"),
            _ => None,
        };
        self.field.or(default_field)
    }

    /// The message, without the code.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.detail, self.code)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_kebab_case_and_parse_back() {
        let mut seen = std::collections::HashSet::new();
        for &code in ErrorCode::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            let kebab = |b: u8| b.is_ascii_lowercase() || b == b'-';
            assert!(text.bytes().all(kebab), "{text}");
            assert_eq!(ErrorCode::parse(text), Some(code));
            assert!((400..600).contains(&code.status()), "{text}");
        }
        assert_eq!(ErrorCode::parse("no-such-code"), None);
    }
}
