//! Who may take part: anybody, or whoever has a one-time token; and how such a token travels.
//!
//! A token is 256 random bits, shown as 64 hexadecimal digits. A server keeps its SHA-256 and whether it was spent:
//! with that much randomness there is nothing to guess, so that a plain hash is as good as a slow one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, ErrorCode, Result},
    study::{from_hex, to_hex},
};

/// Media type of one report with its token.
pub const ENROLLED_REPORT_MEDIA_TYPE: &str = "application/vnd.eigenveil.enrolled-report";
/// Media type of a framed batch of reports with a token for each.
pub const ENROLLED_BATCH_MEDIA_TYPE: &str = "application/vnd.eigenveil.enrolled-report-batch";
/// Most tokens made by one request.
pub const MAX_TOKENS_PER_REQUEST: usize = 100_000;
/// Bytes of a token.
pub const TOKEN_LEN: usize = 32;
/// The count that precedes the tokens of a batch.
const COUNT_LEN: usize = 8;

/// Who may take part in a study. Not one of its parameters: it says nothing about what a report reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Enrolment {
    /// Whoever knows the study's identifier.
    #[default]
    Open,
    /// Whoever has a one-time token of the study: one report a token.
    Token,
}

impl Enrolment {
    /// The name as written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Enrolment::Open => "open",
            Enrolment::Token => "token",
        }
    }
}

impl std::str::FromStr for Enrolment {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "open" => Ok(Enrolment::Open),
            "token" => Ok(Enrolment::Token),
            _ => Err(Error::invalid_request(format!(
                "enrolment is {text:?}; it must be open or token"
            ))),
        }
    }
}

/// A participant's one-time token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ParticipantToken([u8; TOKEN_LEN]);

impl ParticipantToken {
    /// The token of these bytes, which must be random.
    pub fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The token written as 64 hexadecimal digits; space around them does not count.
    ///
    /// # Errors
    /// `invalid-request`, without the text.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
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

/// An encoded report with its token before it.
pub fn encode_enrolled_report(token: &ParticipantToken, report: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TOKEN_LEN + report.len());
    bytes.extend_from_slice(&token.0);
    bytes.extend_from_slice(report);
    bytes
}

/// The token, and the bytes of the report.
///
/// # Errors
/// `malformed-report`.
pub fn decode_enrolled_report(bytes: &[u8]) -> Result<(ParticipantToken, &[u8])> {
    match bytes.split_first_chunk() {
        Some((token, report)) => Ok((ParticipantToken(*token), report)),
        None => Err(malformed(format!(
            "{} bytes are too few to hold a token of {TOKEN_LEN}",
            bytes.len()
        ))),
    }
}

/// Bytes that the tokens of a batch add to it.
pub const fn tokens_len(count: usize) -> usize {
    COUNT_LEN + TOKEN_LEN * count
}

/// An encoded batch with the tokens of its reports, in their order, before it.
pub fn encode_enrolled_batch(tokens: &[&ParticipantToken], batch: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tokens_len(tokens.len()) + batch.len());
    bytes.extend_from_slice(&(tokens.len() as u64).to_le_bytes());
    for token in tokens {
        bytes.extend_from_slice(&token.0);
    }
    bytes.extend_from_slice(batch);
    bytes
}

/// The tokens, and the bytes of the batch; that there are as many reports is for the caller to see.
///
/// # Errors
/// `malformed-report`. Nothing is allocated, whatever the count says.
pub fn decode_enrolled_batch(
    bytes: &[u8],
) -> Result<(impl ExactSizeIterator<Item = ParticipantToken>, &[u8])> {
    let split = || {
        let (count, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*count))
            .ok()?
            .checked_mul(TOKEN_LEN)?;
        rest.split_at_checked(length)
    };
    let (tokens, batch) = split().ok_or_else(|| {
        malformed(format!(
            "{} bytes are too few to hold the tokens they announce",
            bytes.len()
        ))
    })?;
    let (tokens, _) = tokens.as_chunks();
    Ok((tokens.iter().map(|bytes| ParticipantToken(*bytes)), batch))
}

fn malformed(detail: String) -> Error {
    Error::new(ErrorCode::MalformedReport, detail)
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
