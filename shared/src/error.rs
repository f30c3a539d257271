//! One error type for the whole vocabulary, with the stable codes that both ends of HTTP share.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $title:literal;)*) => {
        /// Stable code of an error: the `code` and the end of the `type` URI of a problem document
        /// (RFC 9457), a metric label, and what scripts may rely on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* $variant,)* }

        impl ErrorCode {
            /// Every code, for tables and tests.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The code as written on the wire, in kebab case.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
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
    /// A dimension of zero, one, or beyond the mechanism's limit.
    InvalidDimension = "invalid-dimension", "The dimension is out of range";
    /// ε or δ outside the accepted range.
    InvalidBudget = "invalid-budget", "The privacy budget is out of range";
    /// A calibration or a derived constant that does not fit the mechanism.
    InvalidMechanism = "invalid-mechanism", "The mechanism's parameters are not valid";
    /// A norm, radius, centre or scale that cannot be used.
    InvalidPreprocessing = "invalid-preprocessing", "The preprocessing is not usable";
    /// A name that is empty, too long, or has characters that cannot be shown.
    InvalidName = "invalid-name", "The name is not usable";
    /// A purpose, responsible party, contact or last day that cannot be shown, or is none.
    InvalidAbout = "invalid-about", "The description for participants is not usable";
    /// A row, or a row file, of another dimension than the study's.
    WrongDimension = "wrong-dimension", "The row does not have the study's dimension";
    /// A row with a value that is not finite.
    RowNotFinite = "row-not-finite", "The row has a value that is not a finite number";
    /// A row outside the ball under `require`.
    RowOutsideBall = "row-outside-ball", "The row lies outside the ball the study requires";
    /// Bytes that are not a report at all.
    MalformedReport = "malformed-report", "The bytes are not a report";
    /// Bytes that are not the canonical parameters of a study.
    MalformedParams = "malformed-params", "The bytes are not the parameters of a study";
    /// A request whose head names no host, or several.
    MalformedRequest = "malformed-request", "The head of the request is malformed";
    /// A body of which only a part arrived.
    IncompleteBody = "incomplete-body", "The body is incomplete";
    /// A report of a newer or older wire version.
    UnsupportedVersion = "unsupported-version", "The wire version is not supported";
    /// A report made for other study parameters.
    WrongFingerprint = "wrong-fingerprint", "The report was made for other study parameters";
    /// A report whose payload has another length than the mechanism's.
    WrongPayloadLength = "wrong-payload-length", "The payload does not have the mechanism's length";
    /// A payload with NaN or an infinity.
    PayloadNotFinite = "payload-not-finite", "The payload has a value that is not a finite number";
    /// A payload with a number that no device of the study sends.
    PayloadOutOfRange = "payload-out-of-range", "The payload has a number that no device of this study sends";
    /// A payload longer, as a vector, than any honest device's ever is.
    ImplausibleReport = "implausible-report", "The report is larger than any honest device's";
    /// A body over the limit derived from the study.
    BodyTooLarge = "body-too-large", "The body is larger than the study allows";
    /// A body of a media type the endpoint does not take.
    UnsupportedMediaType = "unsupported-media-type", "The media type is not accepted here";
    /// JSON that does not parse, or has unknown or missing keys.
    MalformedJson = "malformed-json", "The JSON body is not what this endpoint takes";
    /// No study of that id.
    StudyNotFound = "study-not-found", "There is no such study";
    /// Reports arrive for a study that is not open.
    StudyNotOpen = "study-not-open", "The study does not take reports now";
    /// Reports arrive, or would be made, after the study's last day.
    StudyEnded = "study-ended", "The study's last day is over";
    /// A state change that the study's state does not allow.
    InvalidTransition = "invalid-transition", "The study's state does not allow this";
    /// No estimate of that number.
    EstimateNotFound = "estimate-not-found", "There is no such estimate";
    /// An estimate that is not finished yet, asked for as a file.
    EstimateNotReady = "estimate-not-ready", "The estimate is not finished";
    /// An estimate that cannot be made from what there is.
    EstimateFailed = "estimate-failed", "The estimate could not be made";
    /// An estimate request with a k, λ, ρ … out of range.
    InvalidRequest = "invalid-request", "The request is out of range";
    /// A configuration, or a certificate, that cannot be used.
    InvalidConfig = "invalid-config", "The configuration is not usable";
    /// An address that the server cannot listen on.
    CannotListen = "cannot-listen", "The server cannot listen on the address";
    /// Missing credentials.
    Unauthorized = "unauthorized", "Credentials are needed";
    /// Credentials that do not allow this.
    Forbidden = "forbidden", "The credentials do not allow this";
    /// A report without a one-time token for a study that wants one.
    TokenRequired = "token-required", "The study requires a one-time token";
    /// A one-time token that the study never had.
    ParticipantTokenUnknown = "participant-token-unknown", "The study has no such token";
    /// A one-time token with which another report was counted.
    TokenSpent = "token-spent", "The token was used for another report";
    /// No analyst's token of that identifier.
    AnalystTokenNotFound = "analyst-token-not-found", "There is no such token";
    /// A queue is full; try again after `Retry-After`.
    TooManyRequests = "too-many-requests", "Too many requests";
    /// A body that did not arrive in time.
    RequestTimeout = "request-timeout", "The request took too long to arrive";
    /// No route of that name.
    NotFound = "not-found", "There is nothing at this address";
    /// A route, but not with this method.
    MethodNotAllowed = "method-not-allowed", "The method is not allowed here";
    /// The store could not be read or written.
    StoreUnavailable = "store-unavailable", "The store is not available";
    /// The store has no room: the disk is full, or its limit is reached.
    StoreFull = "store-full", "The store is full";
    /// A file that is not the export of a study, or a damaged one.
    MalformedExport = "malformed-export", "The file is not a complete export of a study";
    /// Reports that are to be merged are counted in the study already.
    AlreadyCounted = "already-counted", "Some of the reports have been counted already";
    /// A fault of the server itself; what was not acknowledged was not counted.
    Internal = "internal", "Internal server error";
    /// The server is stopping.
    ShuttingDown = "shutting-down", "The server is stopping";
    /// The operating system's random generator failed.
    RandomnessUnavailable = "randomness-unavailable", "The operating system's random generator failed";
    /// Taking part would cost more than the device's own limits leave.
    BudgetExceeded = "budget-exceeded", "The device's own privacy limit would be exceeded";
    /// The device has a report for this study, fixed for ever.
    AlreadyParticipated = "already-participated", "The device has taken part in this study before";
}

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

/// What went wrong: a stable [`ErrorCode`] and one sentence that names the value, the limit and the
/// way out. Never holds a value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    detail: String,
}

impl Error {
    /// An error of this code; `detail` says what to do and must not hold row values.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// `invalid-request`.
    pub fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, detail)
    }

    /// `estimate-failed`.
    pub fn estimate_failed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::EstimateFailed, detail)
    }

    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The sentence.
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
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{text}"
            );
            assert_eq!(ErrorCode::parse(text), Some(code));
        }
        assert_eq!(ErrorCode::parse("no-such-code"), None);
    }
}
