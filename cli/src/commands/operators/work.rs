//! `eigenveil work`: estimates for the servers of a shared database, without serving anything.

use clap::Args;
use eigenveil_estimation::linalg::Threads;
use eigenveil_server::{AppState, Environment};

use crate::commands::{
    serve::{set, start_logging, stop_signal},
    store::SettingsArgs,
};
use crate::{
    error::{CliError, Result},
    output,
};

/// Compute the estimates of servers that share a database, until Ctrl-C or SIGTERM
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  EIGENVEIL_STORE=postgres://eigenveil:PASSWORD@db.example/eigenveil eigenveil work --data ./worker\n\nAny number of workers share the queue; the estimate of one that ends goes to another within a minute.\nServers with estimate_threads = 0 leave all estimates to the workers. RUST_LOG=info shows each estimate."
)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Bytes of memory for sums of reports: one takes 4p² bytes, or 12p² while it is computed from double-cap seeds [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    sum_cache_bytes: Option<u64>,
    /// Threads that an estimate may use [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    estimate_threads: Option<u16>,
    /// Write logs as JSON lines
    #[arg(long)]
    log_json: bool,
}

pub(crate) async fn run(args: &WorkArgs, json: bool) -> Result<()> {
    start_logging(args.log_json);
    let mut config = args.settings.settings()?;
    set(&mut config.sum_cache_bytes, args.sum_cache_bytes);
    let all = Threads::available().count();
    config.estimate_threads = args.estimate_threads.map_or(all, usize::from);
    let Some(store) = config.store.as_ref().map(ToString::to_string) else {
        return Err(CliError::usage(
            "work needs the database of the servers: set EIGENVEIL_STORE, or give --store postgres://user@host/database; a server with its own store computes its own estimates",
        ));
    };
    // Installed before anything slow.
    let stop = stop_signal()?;
    let app = AppState::open(config, Environment::system())?;
    output::json_or_text(
        json,
        &serde_json::json!({ "store": store }),
        &format!("computing the estimates of {store}"),
    )?;
    stop.await;
    app.close();
    Ok(())
}
