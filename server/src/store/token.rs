//! The operator's token: written to a file once, kept as a hash.

use eigenveil_shared::{Result, study::to_hex};
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Failure, directory::DataDirectory};
use crate::environment::Entropy;

/// SHA-256 of the operator's token. Says nothing about the token.
#[derive(Clone, Copy)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Whether this is the token, in time that does not depend on where it differs.
    pub(crate) fn admits(&self, token: &str) -> bool {
        Self::of(token).0.ct_eq(&self.0).into()
    }
}

/// The hash of the token; at the first start a token is made and written to its file.
pub(super) fn ensure(
    connection: &Connection,
    directory: &DataDirectory,
    entropy: &dyn Entropy,
) -> Result<TokenHash> {
    let stored: Option<Vec<u8>> = connection
        .query_row(
            "SELECT value FROM settings WHERE key = 'operator-token-sha256'",
            [],
            |row| row.get(0),
        )
        .optional()
        .map_err(|error| Failure::from(error).into_error())?;
    if let Some(hash) = stored {
        return match hash.try_into() {
            Ok(hash) => Ok(TokenHash(hash)),
            Err(_) => {
                Err(Failure::damaged("the operator token's hash is not 32 bytes").into_error())
            }
        };
    }
    let mut random = [0; 32];
    entropy.fill(&mut random)?;
    let token = to_hex(&random);
    // The file first: a crash in between leaves a file that the next start replaces.
    directory.write_token(&token)?;
    let hash = TokenHash::of(&token);
    connection
        .execute(
            "INSERT INTO settings (key, value) VALUES ('operator-token-sha256', ?)",
            [hash.0.as_slice()],
        )
        .map_err(|error| Failure::from(error).into_error())?;
    Ok(hash)
}
