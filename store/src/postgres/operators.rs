//! What an operator does without a server: `eigenveil store migrate`, and the check of settings.

use std::path::PathBuf;

use eigenveil_shared::{Error, Result};

use super::{
    Background,
    connection::{Connection, Target},
    create_directory,
    credentials::{self, OPERATOR, bytes},
    schema, wait,
};
use crate::{
    config::StoreConfig,
    contract::{
        failure::Failure,
        token::{TokenHash, generate},
        token_files::TokenFiles,
    },
    environment::Environment,
    store_url::StoreUrl,
};

/// The outcome of a migration.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// The schema's version before; 0 where there was none.
    pub from: usize,
    /// This program's.
    pub to: usize,
    /// The file with the operator token, if this made it.
    pub operator_token: Option<PathBuf>,
}

/// Brings the database of this configuration to this program's schema, and makes the operator token if there is none.
///
/// # Errors
/// `invalid-config` without the address of a database, or with one that cannot be read; `store-unavailable` if it cannot
/// be reached, is too old, could lose a commit, or has a newer schema.
pub fn migrate_store(config: &StoreConfig, environment: &Environment) -> Result<Migrated> {
    let Some(url) = &config.database else {
        return Err(Error::invalid_config(
            "no database is given: set EIGENVEIL_STORE, or store = \"postgres://…\"",
        ));
    };
    alone(url, async |target| {
        create_directory(config)?;
        let connection = target.connect().await?;
        schema::check_server(target, &connection).await?;
        let from = schema::migrate(&connection).await?;
        let operator_token = make_token(&connection, config, environment).await?;
        Ok(Migrated {
            from,
            to: schema::VERSION,
            operator_token,
        })
    })
}

/// Checks the settings as a start would; changes nothing. Returns warnings.
pub(crate) fn check(config: &StoreConfig, url: &StoreUrl) -> Result<Vec<String>> {
    alone(url, async |target| {
        let connection = target.connect().await?;
        let warnings = schema::check(target, &connection, config.durability).await?;
        credentials::load(&connection).await?.1?;
        Ok(warnings)
    })
}

/// On a runtime of its own.
fn alone<T: Send>(
    url: &StoreUrl,
    work: impl AsyncFnOnce(&Target) -> Result<T, Failure> + Send,
) -> Result<T> {
    let target = Target::new(url)?;
    let background = Background::start()?;
    wait(&background.handle, || work(&target)).map_err(Failure::into_error)
}

/// Staged in a second file, its hash committed, then renamed: after a crash the hash tells which of the two is valid.
async fn make_token(
    connection: &Connection,
    config: &StoreConfig,
    environment: &Environment,
) -> Result<Option<PathBuf>, Failure> {
    let files = TokenFiles::in_directory(&config.data_dir);
    let stored = connection
        .query_opt("SELECT value FROM settings WHERE key = $1", &[&OPERATOR])
        .await?;
    if let Some(row) = stored {
        let hash = TokenHash::stored(bytes(row.try_get(0)?)?);
        return Ok(files.adopt_if_valid(&hash)?.then(|| files.path()));
    }
    let token = generate(&*environment.entropy)?;
    files.stage(&token)?;
    let hash = TokenHash::new(&token);
    let insert = "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let inserted = connection
        .execute(insert, &[&OPERATOR, &hash.bytes().as_slice()])
        .await?;
    if inserted == 0 {
        files.discard()?;
        return Ok(None);
    }
    files.adopt()?;
    Ok(Some(files.path()))
}
