//! Errors of the crates as exceptions of `eigenveil.errors`, by kind.

use eigenveil_shared::{ErrorCode, Hint};
use pyo3::{prelude::*, types::PyDict};

/// An error that becomes an exception once the interpreter's lock is held.
#[derive(Debug)]
pub(crate) struct Failure {
    exception_class: &'static str,
    code: String,
    detail: String,
    /// Values for programs, in addition to the code.
    values: Vec<(&'static str, Value)>,
}

#[derive(Clone, Copy, Debug, IntoPyObject)]
pub(crate) enum Value {
    Number(f64),
    Text(&'static str),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The error for an unusable argument.
    pub(crate) fn input(detail: impl Into<String>) -> Self {
        Self::new("InputError", "usage", detail)
    }

    /// The result of interrupted work; the caller raises KeyboardInterrupt instead.
    pub(crate) fn interrupted() -> Self {
        Self::input("interrupted")
    }

    /// The error for a ledger that the parent process opened.
    pub(crate) fn forked() -> Self {
        Self::new(
            "LedgerError",
            "file",
            "the parent process opened the ledger before the fork; nothing was written: open it after forking, in one process",
        )
    }

    /// The error for a bug in this package.
    pub(crate) fn internal() -> Self {
        Self::new(
            "InternalError",
            "internal",
            "Internal error in Eigenveil; nothing that was not confirmed has been counted. Please report it with the output on standard error",
        )
    }

    /// The error for an unusable table, with this code.
    pub(crate) fn from_table_error(error: &eigenveil_tables::Error, code: &str) -> Self {
        Self::new("InputError", code, error.detail())
    }

    fn new(exception_class: &'static str, code: &str, detail: impl Into<String>) -> Self {
        Self {
            exception_class,
            code: code.to_owned(),
            detail: detail.into(),
            values: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: Value) -> Self {
        self.values.push((name, value));
        self
    }

    /// Adds a remark.
    pub(crate) fn remark(mut self, remark: &str) -> Self {
        self.detail = format!("{}; {remark}", self.detail);
        self
    }

    /// Makes the exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let exception = || -> PyResult<PyErr> {
            let values = PyDict::new(py);
            for (name, value) in self.values {
                values.set_item(name, value)?;
            }
            let class = py
                .import("eigenveil.errors")?
                .getattr(self.exception_class)?;
            let exception = class.call1((self.detail, self.code, values))?;
            Ok(PyErr::from_value(exception))
        };
        exception().unwrap_or_else(|error| error)
    }
}

/// The class of the exception for an error with this code.
fn exception_class(code: ErrorCode) -> &'static str {
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
        | E::InvalidNotice => "StudyError",
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
        let failure = Self::new(
            exception_class(error.code()),
            error.code().as_str(),
            error.detail(),
        );
        match error.field() {
            Some(field) => failure.with("field", Value::Text(field)),
            None => failure,
        }
    }
}

impl From<eigenveil_client::Error> for Failure {
    fn from(error: eigenveil_client::Error) -> Self {
        let exception_class = match (error.code(), error.name()) {
            (Some(code), _) => exception_class(code),
            (
                None,
                "file" | "locked" | "changed" | "other-rows" | "rows-changed" | "clock-unavailable",
            ) => "LedgerError",
            (None, "malformed-study") => "StudyError",
            (None, "usage") => "InputError",
            (None, _) => "ServerError",
        };
        let mut failure = Self::new(exception_class, error.name(), error.detail());
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
            Some(code) => Self::new(exception_class(code), code.as_str(), error.detail()),
            None => Self::input(error.detail()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        // serde's message may quote the input.
        Self::new(
            "InputError",
            "malformed-json",
            format!(
                "not the JSON that was expected (line {}, column {}): {}",
                error.line(),
                error.column(),
                match error.classify() {
                    serde_json::error::Category::Data =>
                        "a field is missing, unknown or of another type",
                    _ => "it ends early or is not JSON",
                }
            ),
        )
    }
}
