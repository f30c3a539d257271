//! Bearer tokens, of which only a hash is stored.
//!
//! Every token has 256 random bits, so it cannot be guessed, and a plain SHA-256 is safe; no slow hash is needed.

use eigenveil_shared::{Error, Result, error, study::to_hex};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::environment::Entropy;

/// SHA-256 of a token. Reveals nothing about the token.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of this token.
    pub fn new(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    pub(crate) fn stored(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Its 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in time that does not depend on where the hashes differ.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// The error for a request whose token was replaced after the request began.
pub fn token_replaced() -> Error {
    error!(
        Forbidden,
        "this token was replaced while the request was on its way, and nothing was done; the operator token is in operator.token in the data directory"
    )
}

pub(crate) fn generate(entropy: &dyn Entropy) -> Result<String> {
    let mut random = [0; 32];
    entropy.fill(&mut random)?;
    Ok(to_hex(&random))
}
