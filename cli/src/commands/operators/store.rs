//! `eigenveil store`: the database that several servers share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
#[cfg(feature = "postgres")]
use eigenveil_server::Environment;
use eigenveil_server::{ServerConfig, StoreUrl};
#[cfg(feature = "postgres")]
use eigenveil_store::migrate_store;

use crate::error::{CliError, Result};
#[cfg(feature = "postgres")]
use crate::output;

/// Environment variable for the database URL, which may include a password.
const VARIABLE: &str = "EIGENVEIL_STORE";

/// The settings of a process that opens the store of a server.
#[derive(Debug, Args)]
pub(super) struct SettingsArgs {
    /// TOML file with settings (docs/eigenveil.toml shows all); the flags below override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// PostgreSQL database that several servers share, without a password: postgres://user@host/database [env: EIGENVEIL_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Directory of the store, or with --store of temporary files and operator.token; created if missing
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    data: Option<PathBuf>,
}

impl SettingsArgs {
    /// The file's settings, or the defaults, with the data directory and the database that are named on the command
    /// line.
    pub(super) fn settings(&self) -> Result<ServerConfig> {
        let mut config = match &self.config {
            Some(path) => ServerConfig::from_file(path)?,
            None => ServerConfig::new(""),
        };
        if let Some(data) = &self.data {
            config.data_dir.clone_from(data);
        }
        override_store(&mut config, self.store.as_deref())?;
        Ok(config)
    }
}

/// The database that is named on the command line or in the environment, before that of the configuration file.
fn override_store(config: &mut ServerConfig, flag: Option<&str>) -> Result<()> {
    if let Some(text) = flag {
        let url: StoreUrl = text.parse()?;
        if url.has_password() {
            return Err(CliError::usage(format!(
                "--store has a password, which every user of this machine can read; put the address into {VARIABLE} or the configuration file (store = …)"
            )));
        }
        config.store = Some(url);
    } else if let Some(text) = std::env::var_os(VARIABLE)
        && !text.is_empty()
    {
        config.store = Some(text.to_string_lossy().parse()?);
    }
    Ok(())
}

/// Prepare the database that several servers share
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  EIGENVEIL_STORE=postgres://eigenveil:PASSWORD@db.example/eigenveil eigenveil store migrate --data ./data\n\nThen start any number of servers on it: eigenveil serve --data ./data1, … with the same EIGENVEIL_STORE."
)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Bring the database to this program's tables, and make the operator token if there is none
    #[command(
        after_help = "Example:\n  eigenveil store migrate --store postgres://eigenveil@db.example/eigenveil --data ./data\n\nRun it before the first server of a new version. Migrations only go forward; a concurrent one is waited for."
    )]
    Migrate(SettingsArgs),
}

#[cfg(feature = "postgres")]
pub(crate) fn run(args: &StoreArgs, json: bool) -> Result<()> {
    let StoreCommand::Migrate(settings) = &args.command;
    let config = settings.settings()?;
    config.check()?;
    let migrated = migrate_store(&config.of_store(), &Environment::system())?;
    let token = migrated
        .operator_token
        .as_ref()
        .map(|path| path.display().to_string());
    let line = match &token {
        Some(path) => format!("\noperator token: {path}"),
        None => String::new(),
    };
    output::json_or_text(
        json,
        &serde_json::json!({ "from": migrated.from, "to": migrated.to, "token_file": token }),
        &format!(
            "the schema was at version {} and is at {}{line}",
            migrated.from, migrated.to
        ),
    )
}

#[cfg(not(feature = "postgres"))]
pub(crate) fn run(_: &StoreArgs, _: bool) -> Result<()> {
    Err(CliError::usage(
        "this program was built without PostgreSQL; build it with the feature postgres".to_owned(),
    ))
}
