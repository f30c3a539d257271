//! The name of the mechanism of a study of any kind.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::MechanismKind;

/// Name of the mechanism of a study of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum MechanismName {
    /// Mechanism of a study whose reports show second moments.
    Moment(MechanismKind),
    /// Mechanism of a preparation.
    Answer(AnswerMechanism),
}

/// Name of the mechanism of a preparation, of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AnswerMechanism {
    /// Pure ε-LDP: one column, one answer of a few.
    RandomisedResponse,
}

impl MechanismName {
    /// The mechanism of a preparation.
    pub const RANDOMISED_RESPONSE: Self = Self::Answer(AnswerMechanism::RandomisedResponse);

    /// The name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Moment(kind) => kind.as_str(),
            Self::Answer(AnswerMechanism::RandomisedResponse) => "randomised-response",
        }
    }
}

impl From<MechanismKind> for MechanismName {
    fn from(kind: MechanismKind) -> Self {
        Self::Moment(kind)
    }
}

impl fmt::Display for MechanismName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
