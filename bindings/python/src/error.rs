//! Errors of the crates as exceptions of `eigenveil.errors`, by kind.

use eigenveil_shared::{ErrorCode, Hint};
use pyo3::{prelude::*, types::PyDict};

/// An error on its way to an exception, where no Python may be touched.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: &'static str,
    code: String,
    sentence: String,
    /// Values for programs, beside the code.
    values: Vec<(&'static str, Value)>,
}

#[derive(Clone, Copy, Debug, IntoPyObject)]
pub(crate) enum Value {
    Number(f64),
    Text(&'static str),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An argument that cannot be used.
    pub(crate) fn input(sentence: impl Into<String>) -> Self {
        Self::new("InputError", "usage", sentence)
    }

    /// Whoever waited has raised KeyboardInterrupt, and does not see this.
    pub(crate) fn interrupted() -> Self {
        Self::input("interrupted")
    }

    /// A forked process has the ledger of its parent.
    pub(crate) fn forked() -> Self {
        Self::new(
            "LedgerError",
            "file",
            "the ledger was opened before this process was forked, by the process that forked it; nothing was written: open it after forking, in one process",
        )
    }

    /// A fault of this package.
    pub(crate) fn internal() -> Self {
        Self::new(
            "InternalError",
            "internal",
            "Eigenveil failed on the inside; nothing that was not confirmed has been counted. Please report it with what standard error says",
        )
    }

    /// A table that cannot be used, under a code that its error does not have.
    pub(crate) fn of_table(error: &eigenveil_tables::Error, code: &str) -> Self {
        Self::new("InputError", code, error.detail())
    }

    fn new(kind: &'static str, code: &str, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.to_owned(),
            sentence: sentence.into(),
            values: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: Value) -> Self {
        self.values.push((name, value));
        self
    }

    /// Adds a remark.
    pub(crate) fn remark(mut self, remark: &str) -> Self {
        self.sentence = format!("{}; {remark}", self.sentence);
        self
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let exception = || -> PyResult<PyErr> {
            let values = PyDict::new(py);
            for (name, value) in self.values {
                values.set_item(name, value)?;
            }
            let class = py.import("eigenveil.errors")?.getattr(self.kind)?;
            let exception = class.call1((self.sentence, self.code, values))?;
            Ok(PyErr::from_value(exception))
        };
        exception().unwrap_or_else(|error| error)
    }
}

/// The exception for an error with this code.
fn kind(code: ErrorCode) -> &'static str {
    use ErrorCode as E;
    match code {
        E::Unauthorized
        | E::Forbidden
        | E::TokenRequired
        | E::ParticipantTokenUnknown
        | E::TokenSpent
        | E::AnalystTokenNotFound => "TokenError",
        E::BudgetExceeded | E::AlreadyParticipated | E::RandomnessUnavailable => "LedgerError",
        E::WrongFingerprint
        | E::MalformedParams
        | E::UnsupportedVersion
        | E::StudyNotFound
        | E::StudyNotOpen
        | E::StudyEnded
        | E::InvalidTransition
        | E::InvalidAbout => "StudyError",
        E::EstimateNotFound | E::EstimateNotReady | E::EstimateFailed => "EstimateError",
        E::InvalidDimension
        | E::InvalidBudget
        | E::InvalidMechanism
        | E::InvalidPreprocessing
        | E::InvalidName
        | E::InvalidRequest
        | E::InvalidConfig
        | E::WrongDimension
        | E::RowNotFinite
        | E::RowOutsideBall => "InputError",
        _ => "ServerError",
    }
}

impl From<eigenveil_shared::Error> for Failure {
    fn from(error: eigenveil_shared::Error) -> Self {
        let failure = Self::new(kind(error.code()), error.code().as_str(), error.detail());
        match error.field() {
            Some(field) => failure.with("field", Value::Text(field)),
            None => failure,
        }
    }
}

impl From<eigenveil_client::Error> for Failure {
    fn from(error: eigenveil_client::Error) -> Self {
        let kind = match (error.code(), error.name()) {
            (Some(code), _) => kind(code),
            (
                None,
                "file" | "locked" | "changed" | "other-rows" | "rows-changed" | "clock-unavailable",
            ) => "LedgerError",
            (None, "malformed-study") => "StudyError",
            (None, "usage") => "InputError",
            (None, _) => "ServerError",
        };
        let mut failure = Self::new(kind, error.name(), error.detail());
        if let Some(status) = error.status() {
            failure = failure.with("status", Value::Number(f64::from(status)));
        }
        if let Some(wait) = error.retry_after() {
            failure = failure.with("retry_after", Value::Number(wait.as_secs_f64()));
        }
        if error.is_retryable() {
            failure = failure.with("retryable", Value::Number(1.0));
        }
        match error.hint() {
            Some(Hint::PlainHttp) => failure.remark("the argument is insecure_http=True"),
            Some(Hint::RootCertificate) => failure.remark("the argument is ca_certificate="),
            _ => failure,
        }
    }
}

impl From<eigenveil_tables::Error> for Failure {
    fn from(error: eigenveil_tables::Error) -> Self {
        match error.code() {
            Some(code) => Self::new(kind(code), code.as_str(), error.detail()),
            None => Self::input(error.detail()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        // Its own text may quote what stands there.
        Self::new(
            "InputError",
            "malformed-json",
            format!(
                "not the JSON that was expected (line {}, column {}): {}",
                error.line(),
                error.column(),
                match error.classify() {
                    serde_json::error::Category::Data =>
                        "a field is missing, unknown or of another kind",
                    _ => "it ends early or is no JSON",
                }
            ),
        )
    }
}
