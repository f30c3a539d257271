//! `eigenveil serve`: the aggregation server.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use eigenveil_server::{Environment, Server, ServerConfig};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::{
    error::{CliError, Result},
    output,
};

/// Run the aggregation server until Ctrl-C or SIGTERM
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil serve --data ./data --listen 127.0.0.1:8080\n\nThe operator's token is written once to DATA/operator.token (readable by its owner only).\nLogs go to standard error; RUST_LOG=debug shows more. No address, token or payload is ever logged."
)]
pub(crate) struct ServeArgs {
    /// Directory of the store; made when missing
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Bytes of memory for sums of reports: one takes 4p², while it is made of double-cap seeds 12p²
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    memory_bytes: u64,
    /// Threads that one estimate may take
    #[arg(long, value_name = "N", default_value_t = 1)]
    estimate_threads: usize,
    /// Bytes the database may have; beyond it reports are refused until studies are deleted
    #[arg(long, value_name = "BYTES")]
    store_bytes: Option<u64>,
    /// Finished estimates kept of each study
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    retain_estimates: u32,
    /// Days for which the identifiers of a closed study are kept; for ever when absent
    #[arg(long, value_name = "DAYS")]
    retain_ids_days: Option<u32>,
    /// Write logs as JSON lines
    #[arg(long)]
    log_json: bool,
}

#[derive(Serialize)]
struct Listening {
    listening: String,
    token_file: String,
}

pub(crate) async fn run(args: &ServeArgs, json: bool) -> Result<()> {
    start_logging(args.log_json);
    let config = ServerConfig {
        listen: args.listen,
        memory_bytes: args.memory_bytes,
        estimate_threads: args.estimate_threads,
        store_bytes: args.store_bytes,
        retain_estimates: args.retain_estimates,
        retain_ids_days: args.retain_ids_days,
        ..ServerConfig::new(&args.data)
    };
    let server = Server::bind(config, Environment::system()).await?;
    let listening = Listening {
        listening: format!("http://{}", server.local_addr()),
        token_file: server.app().store().token_path().display().to_string(),
    };
    if !args.listen.ip().is_loopback() {
        eprintln!(
            "warning: {} is reachable from other machines and this server speaks plain HTTP; put a TLS proxy before it",
            args.listen
        );
    }
    if json {
        output::json(&listening)?;
    } else {
        output::text(&format!(
            "listening on {}\noperator token: {}",
            listening.listening, listening.token_file
        ))?;
    }
    let stop = stop_signal()?;
    server.run(stop).await;
    Ok(())
}

/// Logs to standard error: `RUST_LOG` decides how much, warnings by default.
fn start_logging(as_json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second start in one process keeps the first: there is one standard error.
    let _ = if as_json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
}

/// Done when the process is asked to stop.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed =
        |error: std::io::Error| CliError::failed(format!("signals cannot be caught: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
