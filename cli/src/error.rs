//! Error messages of commands, and their exit codes.

use std::fmt;

use eigenveil_shared::ErrorCode;

/// Result of a command.
pub type Result<T, E = CliError> = std::result::Result<T, E>;

/// An error that a person reads on standard error. Never contains a value of a row.
#[derive(Debug)]
pub struct CliError {
    message: String,
    code: Option<ErrorCode>,
    usage: bool,
}

impl CliError {
    /// The command was understood but could not be done: exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            usage: false,
        }
    }

    /// The command line or an input file is wrong: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            usage: true,
            ..Self::failed(message)
        }
    }

    /// Prefixes the message with context.
    #[must_use]
    pub fn context(mut self, before: impl fmt::Display) -> Self {
        self.message = format!("{before}: {}", self.message);
        self
    }

    /// The same error with another message.
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// The sentence, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The stable code, if the error has one.
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }

    /// 2 for wrong usage, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        if self.usage { 2 } else { 1 }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.code {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CliError {}

impl From<eigenveil_shared::Error> for CliError {
    fn from(error: eigenveil_shared::Error) -> Self {
        Self {
            message: error.detail().to_owned(),
            code: Some(error.code()),
            usage: matches!(
                error.code(),
                ErrorCode::InvalidDimension
                    | ErrorCode::InvalidBudget
                    | ErrorCode::InvalidMechanism
                    | ErrorCode::InvalidPreprocessing
                    | ErrorCode::InvalidName
                    | ErrorCode::InvalidAbout
                    | ErrorCode::InvalidRequest
                    | ErrorCode::InvalidConfig
                    | ErrorCode::WrongDimension
                    | ErrorCode::RowNotFinite
                    | ErrorCode::RowOutsideBall
            ),
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<eigenveil_client::Error> for CliError {
    fn from(error: eigenveil_client::Error) -> Self {
        match error.code() {
            Some(code) => eigenveil_shared::Error::new(code, error.detail()).into(),
            None => Self::failed(error.to_string()),
        }
    }
}

/// A message has all of these words, and none of those, such as values of a row.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_says(said: &impl fmt::Display, words: &[&str], hidden: &[&str]) {
    let said = said.to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    for word in hidden {
        assert!(!said.contains(word), "{word:?} is in: {said}");
    }
}
