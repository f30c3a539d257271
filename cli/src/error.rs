//! Error messages of commands, and their exit codes.

use std::fmt;

use eigenveil_shared::{ErrorCode, Hint};

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

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
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

/// A sentence about a request, whose fields have backticks there, with the flags of their names.
pub(crate) fn in_flags(sentence: &str) -> String {
    let is_field =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let parts = sentence.split('`').enumerate();
    let parts = parts.map(|(at, part)| match at % 2 == 1 {
        true if is_field(part) => format!("--{}", part.replace('_', "-")),
        true => format!("`{part}`"),
        false => part.to_owned(),
    });
    parts.collect()
}

impl From<eigenveil_shared::Error> for CliError {
    fn from(error: eigenveil_shared::Error) -> Self {
        Self {
            message: with_way_out(&in_flags(error.detail()), Some(error.code()), error.hint()),
            code: Some(error.code()),
            usage: matches!(
                error.code(),
                ErrorCode::InvalidDimension
                    | ErrorCode::InvalidBudget
                    | ErrorCode::InvalidMechanism
                    | ErrorCode::InvalidPreprocessing
                    | ErrorCode::InvalidName
                    | ErrorCode::InvalidNotice
                    | ErrorCode::InvalidRequest
                    | ErrorCode::InvalidConfig
                    | ErrorCode::WrongDimension
                    | ErrorCode::RowNotFinite
                    | ErrorCode::RowOutsideBall
            ),
        }
    }
}

impl From<eigenveil_tables::Error> for CliError {
    fn from(error: eigenveil_tables::Error) -> Self {
        Self {
            message: in_flags(error.detail()),
            code: error.code(),
            usage: true,
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
            None => Self::failed(with_way_out(
                &in_flags(&error.to_string()),
                None,
                error.hint(),
            )),
        }
    }
}

/// The sentence, with the flag or the command that helps.
fn with_way_out(detail: &str, code: Option<ErrorCode>, hint: Option<&Hint>) -> String {
    let way_out = match (hint, code) {
        (Some(Hint::DataDirectory), _) => "--data DIR, or data_dir in the configuration",
        (Some(Hint::MigrateStore), _) => "eigenveil store migrate",
        (Some(Hint::PlainHttp), _) => "--insecure-http",
        (Some(Hint::RootCertificate), _) => "--ca-cert FILE",
        (_, Some(ErrorCode::StudyNotFound)) => "eigenveil study list",
        (_, Some(ErrorCode::AnalystTokenNotFound)) => "eigenveil token list",
        _ => return detail.to_owned(),
    };
    format!("{detail} ({way_out})")
}

/// Asserts that a message contains all of `words` and none of `hidden`, such as values of a row.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_says(message: &impl fmt::Display, words: &[&str], hidden: &[&str]) {
    let text = message.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    for word in hidden {
        assert!(!text.contains(word), "{word:?} is in: {text}");
    }
}
