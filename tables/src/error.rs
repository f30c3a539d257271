//! Errors of reading a table.

use std::fmt;

use eigenveil_shared::ErrorCode;

/// Result of reading a table.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a table cannot be read: its bytes, its columns, or settings that do not fit them. It is always a
/// mistake in the input. Never contains a value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    detail: String,
    code: Option<ErrorCode>,
}

impl Error {
    pub(crate) fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            code: None,
        }
    }

    /// The error for a number of columns that differs from that of the features.
    pub(crate) fn wrong_dimension(detail: String) -> Self {
        Self {
            code: Some(ErrorCode::WrongDimension),
            detail,
        }
    }

    /// Prefixes the message with context.
    pub(crate) fn context(mut self, prefix: impl fmt::Display) -> Self {
        self.detail = format!("{prefix}: {}", self.detail);
        self
    }

    /// The message, without the code.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The stable code, if the error has one: `wrong-dimension`.
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        match self.code {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
