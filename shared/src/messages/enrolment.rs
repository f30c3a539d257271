//! Who may take part: anybody, or whoever has a one-time token; and how such a token travels.
//!
//! A token is 256 random bits, shown as 64 hexadecimal digits. A server keeps its SHA-256 and whether it was spent:
//! with that much randomness there is nothing to guess, so that a plain hash is as good as a slow one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    codec,
    error::{Error, Result, error},
    study::{from_hex, to_hex},
    wording::trimmed,
};

/// Media type of one report.
pub const REPORT_MEDIA_TYPE: &str = "application/vnd.eigenveil.report";
/// Media type of a framed batch of reports.
pub const REPORT_BATCH_MEDIA_TYPE: &str = "application/vnd.eigenveil.report-batch";
/// Media type of one report with its token.
pub const ENROLLED_REPORT_MEDIA_TYPE: &str = "application/vnd.eigenveil.enrolled-report";
/// Media type of a framed batch of reports with a token for each.
pub const ENROLLED_BATCH_MEDIA_TYPE: &str = "application/vnd.eigenveil.enrolled-report-batch";
/// Most tokens made by one request.
pub const MAX_TOKENS_PER_REQUEST: usize = 100_000;
/// Most tokens of sites made by one request.
pub const MAX_SITE_TOKENS_PER_REQUEST: usize = 1_000;
/// Bytes of a token.
pub const TOKEN_LEN: usize = 32;
/// The count that precedes the tokens of a batch.
const COUNT_LEN: usize = 8;

/// Who may take part in a study. Not a study parameter, because it does not change what a report reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Enrolment {
    /// Whoever knows the study's identifier.
    #[default]
    Open,
    /// Whoever has a one-time token of the study: one report per token.
    Token,
}

names! {
    pub Enrolment { Open = "open", Token = "token" } else |text, names| Error::invalid_request(format!(
        "enrolment is {text:?}; it must be {}",
        names.join(" or ")
    ));
}

/// A participant's one-time token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ParticipantToken([u8; TOKEN_LEN]);

impl ParticipantToken {
    /// The token of these bytes, which must be random.
    pub fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The token written as 64 hexadecimal digits; white space and byte-order marks around it are ignored.
    ///
    /// # Errors
    /// `invalid-request`, without the text.
    pub fn parse(text: &str) -> Result<Self> {
        let text = trimmed(text);
        from_hex(text)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| {
                Error::invalid_request(format!(
                        "a participant's token has {} characters that are not 64 hexadecimal digits; copy the whole token",
                        text.chars().count()
                    ))
            })
    }

    /// The text: whoever has it can take part.
    pub fn reveal(&self) -> String {
        to_hex(&self.0)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// SHA-256 of the bytes: what a server keeps.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }
}

impl fmt::Debug for ParticipantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParticipantToken(…)")
    }
}

/// The credential sent with a report. Its kind must match the study's [`Enrolment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing.
    Open,
    /// A one-time token.
    Token(ParticipantToken),
}

impl Admission {
    /// The kind.
    pub fn enrolment(&self) -> Enrolment {
        match self {
            Admission::Open => Enrolment::Open,
            Admission::Token(_) => Enrolment::Token,
        }
    }

    /// The key that the server stores of it, if any; unique within a study.
    pub fn key(&self) -> Option<AdmissionKey> {
        match self {
            Admission::Open => None,
            Admission::Token(token) => Some(token.digest()),
        }
    }
}

impl From<Option<ParticipantToken>> for Admission {
    fn from(token: Option<ParticipantToken>) -> Self {
        token.map_or(Admission::Open, Admission::Token)
    }
}

/// The stored key of an [`Admission`]: the SHA-256 of a token.
pub type AdmissionKey = [u8; 32];

/// How the body of an upload is laid out: the admissions of its reports, then the reports as encoded by
/// [`codec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of admission.
    pub enrolment: Enrolment,
    /// Whether the body is a batch rather than a single report.
    pub batched: bool,
}

/// The admissions of a body, in the order of its reports; borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Admissions<'a>(&'a [[u8; TOKEN_LEN]]);

impl Frame {
    /// The frame of reports with admissions of this kind.
    pub const fn new(enrolment: Enrolment, batched: bool) -> Self {
        Self { enrolment, batched }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match (self.enrolment, self.batched) {
            (Enrolment::Open, false) => REPORT_MEDIA_TYPE,
            (Enrolment::Open, true) => REPORT_BATCH_MEDIA_TYPE,
            (Enrolment::Token, false) => ENROLLED_REPORT_MEDIA_TYPE,
            (Enrolment::Token, true) => ENROLLED_BATCH_MEDIA_TYPE,
        }
    }

    /// The frame with this media type, in whatever case.
    pub fn parse(media_type: &str) -> Option<Self> {
        let frames = |enrolment| [false, true].map(|batched| Self::new(enrolment, batched));
        [Enrolment::Open, Enrolment::Token]
            .into_iter()
            .flat_map(frames)
            .find(|frame| media_type.eq_ignore_ascii_case(frame.media_type()))
    }

    /// Maximum size of a body whose payloads have this length.
    pub fn body_limit(self, payload_len: usize) -> usize {
        match self.batched {
            false => self.admissions_len(1) + codec::report_len(payload_len),
            true => {
                let count = codec::max_batch(payload_len);
                self.admissions_len(count) + codec::batch_len(payload_len, count)
            }
        }
    }

    /// Bytes before the reports.
    fn admissions_len(self, count: usize) -> usize {
        match (self.enrolment, self.batched) {
            (Enrolment::Open, _) => 0,
            (Enrolment::Token, false) => TOKEN_LEN,
            (Enrolment::Token, true) => COUNT_LEN + TOKEN_LEN * count,
        }
    }

    /// The body with these encoded reports, each with its admission.
    ///
    /// # Errors
    /// `token-required` if the frame needs tokens and a report has none.
    pub fn write(self, admissions: &[&Admission], reports: Vec<u8>) -> Result<Vec<u8>> {
        if self.enrolment == Enrolment::Open {
            return Ok(reports);
        }
        let mut bytes = Vec::with_capacity(self.admissions_len(admissions.len()) + reports.len());
        if self.batched {
            bytes.extend_from_slice(&(admissions.len() as u64).to_le_bytes());
        }
        for admission in admissions {
            let Admission::Token(token) = admission else {
                return Err(error!(
                    TokenRequired,
                    "the study takes reports with a one-time token, and one has none; give it one first"
                ));
            };
            bytes.extend_from_slice(&token.0);
        }
        bytes.extend_from_slice(&reports);
        Ok(bytes)
    }

    /// The admissions, and the bytes of the reports; the caller must check that the counts agree.
    ///
    /// # Errors
    /// `malformed-report`. Never allocates on the strength of an untrusted count.
    pub fn split(self, body: &[u8]) -> Result<(Admissions<'_>, &[u8])> {
        if self.enrolment == Enrolment::Open {
            return Ok((Admissions(&[]), body));
        }
        let split = || {
            let (count, rest) = match self.batched {
                false => (1, body),
                true => {
                    let (count, rest) = body.split_first_chunk()?;
                    (usize::try_from(u64::from_le_bytes(*count)).ok()?, rest)
                }
            };
            rest.split_at_checked(count.checked_mul(TOKEN_LEN)?)
        };
        let (tokens, reports) = split().ok_or_else(|| {
            error!(
                MalformedReport,
                "{} bytes are too few to hold the tokens they announce",
                body.len()
            )
        })?;
        Ok((Admissions(tokens.as_chunks().0), reports))
    }
}

impl Admissions<'_> {
    /// Number of admissions; 0 in an open study.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The admission of the report at `index`.
    pub fn get(self, index: usize) -> Admission {
        self.0.get(index).map_or(Admission::Open, |bytes| {
            Admission::Token(ParticipantToken(*bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_tokens_are_not_echoed() {
        for bad in ["", "abc", &"ab".repeat(31), &"zz".repeat(32), "s3cret"] {
            let error = ParticipantToken::parse(bad).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
            assert!(bad.len() < 5 || !error.contains(bad), "{error}");
        }
        let spaced = format!(" {}\r\n", "AB".repeat(32));
        let token = ParticipantToken::parse(&spaced).unwrap();
        assert_eq!(token, ParticipantToken([0xab; 32]));
        assert_eq!(token.reveal(), "ab".repeat(32));
        assert_eq!(format!("{token:?}"), "ParticipantToken(…)");
    }
}
