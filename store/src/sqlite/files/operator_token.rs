//! The operator token: in a file for its owner, and as a hash in the database.
//!
//! A new token is staged in a second file, its hash is committed, and then the file is renamed. After a crash in
//! between, the hash tells the next start which of the two tokens is valid.

use std::path::{Path, PathBuf};

use eigenveil_shared::Result;
use rusqlite::{Connection, params};

use super::{
    database_files::{self, DatabaseFiles, OPERATOR_HASH, setting},
    directory::{DataDirectory, database_path},
    schema,
};
use crate::{
    contract::{
        failure::{Failure, unavailable},
        token::{TokenHash, generate, token_replaced},
        token_files::TokenFiles,
    },
    environment::{Entropy, Environment},
};

/// The hash of the operator token. The first start generates the token and writes it to its file.
pub(crate) fn ensure(
    connection: &Connection,
    files: &TokenFiles,
    entropy: &dyn Entropy,
) -> Result<TokenHash> {
    let stored = setting(connection, OPERATOR_HASH).map_err(Failure::into_error)?;
    match stored.map(TryInto::try_into) {
        Some(Ok(hash)) => {
            let hash = TokenHash::stored(hash);
            // A rotation was interrupted: before its commit, or after it.
            files.settle(&hash)?;
            Ok(hash)
        }
        Some(Err(_)) => {
            Err(Failure::damaged("the operator token's hash is not 32 bytes").into_error())
        }
        None => rotate(connection, files, entropy),
    }
}

fn rotate(connection: &Connection, files: &TokenFiles, entropy: &dyn Entropy) -> Result<TokenHash> {
    let token = generate(entropy)?;
    files.stage(&token)?;
    let hash = TokenHash::new(&token);
    save_hash(connection, &hash).map_err(Failure::into_error)?;
    files.adopt()?;
    Ok(hash)
}

pub(crate) fn save_hash(connection: &Connection, hash: &TokenHash) -> Result<(), Failure> {
    connection.execute(
        "INSERT INTO settings (key, value) VALUES (?, ?)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![OPERATOR_HASH, hash.bytes().as_slice()],
    )?;
    Ok(())
}

/// Only the hash that the request came with: of several rotations with one token, one succeeds.
pub(crate) fn replace_hash(
    connection: &Connection,
    old: &TokenHash,
    new: &TokenHash,
) -> Result<(), Failure> {
    let rows = connection.execute(
        "UPDATE settings SET value = ? WHERE key = ? AND value = ?",
        params![
            new.bytes().as_slice(),
            OPERATOR_HASH,
            old.bytes().as_slice()
        ],
    )?;
    match rows {
        0 => Err(token_replaced().into()),
        _ => Ok(()),
    }
}

/// Rotates the operator token of a store that no server uses, and returns the path of its file. The old token stops
/// working.
pub fn rotate_operator_token(data_dir: &Path, environment: &Environment) -> Result<PathBuf> {
    if !database_path(data_dir).is_file() {
        return Err(unavailable(format!(
            "{} is not a server's data directory: it has no database; give the directory that a server uses",
            data_dir.display()
        )));
    }
    let directory = DataDirectory::open(data_dir)?;
    let (looked_at, entropy) = (database_files::look(&directory)?, &*environment.entropy);
    let mut connection =
        schema::open_for_writing(&directory.database()).map_err(Failure::into_error)?;
    let mut database = DatabaseFiles::take(&mut connection, &directory, &looked_at)
        .map_err(Failure::into_error)?;
    let files = directory.token_files();
    ensure(&connection, &files, entropy)?;
    rotate(&connection, &files, entropy)?;
    if let Err(failure) = database.release(&connection) {
        tracing::warn!(%failure, "the token is rotated; the next start completes the database");
    }
    Ok(files.path())
}
