//! `eigenveil backup`: the store of a running server as one file.

use std::path::PathBuf;

use clap::Args;

use crate::commands::print_written;
use crate::{args::OperatorArgs, error::Result, files};

/// Fetch a backup of a running server's store
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil backup --out eigenveil-backup.db\n\nTo restore it, put it into an empty directory as eigenveil.db and run eigenveil serve --data on that directory.\nThe operator's token stays the same; reports acknowledged after the backup are not in it."
)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    /// File to write; an existing one is refused
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) async fn run(args: &BackupArgs, json: bool) -> Result<()> {
    let client = args.operator.client()?;
    let mut file = files::NewFile::create(&args.out)?;
    let bytes = client.backup(file.writer()).await?;
    file.persist()?;
    print_written(json, bytes, &args.out)
}
