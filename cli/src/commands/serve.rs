//! `eigenveil serve`: the aggregation server.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use eigenveil_server::{Certificates, Environment, Server, ServerConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    error::{CliError, Result},
    output,
};

/// Run the aggregation server until Ctrl-C or SIGTERM
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil serve --data ./data --listen 127.0.0.1:8080\n  eigenveil serve --data ./data --listen 0.0.0.0:443 --tls-cert fullchain.pem --tls-key privkey.pem\n  eigenveil serve --config eigenveil.toml --check-config\n\nThe operator's token is written once to DATA/operator.token (readable by its owner only).\nSIGHUP reads the certificate again and closes no connection. Logs go to standard error; RUST_LOG=debug shows more.\nNo address, token or payload is ever logged."
)]
pub(crate) struct ServeArgs {
    /// TOML file with settings (docs/eigenveil.toml shows all); the flags below override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings, the certificate, the data directory and the address, say what is wrong, and stop; changes nothing
    #[arg(long)]
    check_config: bool,
    /// Directory of the store; made when missing
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    data: Option<PathBuf>,
    /// Address to listen on, such as 0.0.0.0:8080 or localhost:8080; port 0 lets the system choose [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// PEM file with the server's certificate, then those of its issuers: HTTPS instead of HTTP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow plain HTTP on an address that other machines reach, for a TLS proxy in front of the server
    #[arg(long)]
    insecure_http: bool,
    /// Bytes of memory for sums of reports: one takes 4p² bytes, or 12p² while it is computed from double-cap seeds [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    sum_cache_bytes: Option<u64>,
    /// Threads that one estimate may take [default: 1]
    #[arg(long, value_name = "N")]
    estimate_threads: Option<usize>,
    /// Largest size of the database in bytes; beyond it reports are refused until studies are deleted
    #[arg(long, value_name = "BYTES")]
    max_store_bytes: Option<u64>,
    /// Finished estimates kept of each study [default: 1000]
    #[arg(long, value_name = "N")]
    retain_estimates: Option<u32>,
    /// Days for which the identifiers of a closed study are kept; for ever when absent
    #[arg(long, value_name = "DAYS")]
    retain_ids_days: Option<u32>,
    /// Write logs as JSON lines
    #[arg(long)]
    log_json: bool,
}

/// An address, or a name with a port, which is looked up.
fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err("give an address or a name, and a port from 0 to 65535: 127.0.0.1:8080 or localhost:8080".to_owned());
    }
    let unknown =
        |why: String| format!("it has no known address{why}; give another, such as 127.0.0.1:8080");
    let found = text
        .to_socket_addrs()
        .map_err(|error| unknown(format!(" ({error})")))?;
    // IPv4 first, which is what a browser or curl on this machine tries when IPv6 does not answer.
    found
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| unknown(String::new()))
}

impl ServeArgs {
    /// The file's settings, or the defaults, with the flags over them.
    fn settings(&self) -> Result<ServerConfig> {
        let mut config = match &self.config {
            Some(path) => ServerConfig::from_file(path)?,
            None => ServerConfig::new(""),
        };
        set(&mut config.data_dir, self.data.clone());
        set(&mut config.listen, self.listen);
        set(&mut config.sum_cache_bytes, self.sum_cache_bytes);
        set(&mut config.estimate_threads, self.estimate_threads);
        set(&mut config.retain_estimates, self.retain_estimates);
        config.insecure_http |= self.insecure_http;
        config.tls_cert = self.tls_cert.clone().or(config.tls_cert);
        config.tls_key = self.tls_key.clone().or(config.tls_key);
        config.max_store_bytes = self.max_store_bytes.or(config.max_store_bytes);
        config.retain_ids_days = self.retain_ids_days.or(config.retain_ids_days);
        Ok(config)
    }
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

pub(crate) async fn run(args: &ServeArgs, json: bool) -> Result<()> {
    start_logging(args.log_json);
    let config = args.settings()?;
    if args.check_config {
        return check(&config, json);
    }
    let (reachable, plain) = (!config.listen.ip().is_loopback(), config.tls_cert.is_none());
    // Before anything that takes time: until it is caught, a hangup ends the process, and systemd takes that for a wish.
    let hangup = signal(SignalKind::hangup()).map_err(|error| uncatchable(&error))?;
    let server = Server::bind(config, Environment::system()).await?;
    let scheme = if plain { "http" } else { "https" };
    let listening = format!("{scheme}://{}", server.local_addr());
    let token_file = server.app().store().token_path().display().to_string();
    if plain && reachable {
        output::say(&format!(
            "warning: {} is reachable from other machines and this server speaks plain HTTP; let nobody but a TLS proxy reach it",
            server.local_addr()
        ));
    }
    let stop = stop_signal()?;
    let renewing = renew_on_hangup(hangup, server.certificates().cloned());
    let said = output::either(
        json,
        &serde_json::json!({ "listening": listening, "token_file": token_file }),
        &format!("listening on {listening}\noperator token: {token_file}"),
    );
    // On a full disk that has the log too, only a server that runs can delete.
    if let Err(error) = said {
        tracing::warn!(%error, "standard output cannot be written");
    }
    let ended = server.run(stop).await;
    renewing.abort();
    Ok(ended?)
}

/// Looks at the settings only.
fn check(config: &ServerConfig, json: bool) -> Result<()> {
    let warnings = eigenveil_server::check(config)?;
    if json {
        return output::json(&serde_json::json!({ "ok": true, "warnings": warnings }));
    }
    for warning in &warnings {
        output::say(&format!("warning: {warning}"));
    }
    output::text("the configuration is usable")
}

/// Reads the certificate again at every SIGHUP; without one there is nothing to read, and the server goes on.
fn renew_on_hangup(
    mut hangup: Signal,
    certificates: Option<Arc<Certificates>>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match &certificates {
                // It says itself what it came to; where it failed the certificate before goes on.
                Some(certificates) => drop(certificates.reload()),
                None => tracing::info!(
                    "SIGHUP: no certificate to read again; other settings need a restart"
                ),
            }
        }
    })
}

fn uncatchable(error: &std::io::Error) -> CliError {
    CliError::failed(format!("signals cannot be caught: {error}"))
}

/// What `RUST_LOG` asks for, warnings by default. What stands between two commas may be nothing.
fn log_filter(said: &str) -> std::result::Result<Targets, String> {
    let parts = said.split(',').map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    if let Some(part) = parts.iter().find(|part| part.ends_with('=')) {
        return Err(format!("{part} names no level"));
    }
    let filter = match &parts[..] {
        [] => "warn".to_owned(),
        parts => parts.join(","),
    };
    filter
        .parse()
        .map_err(|error: tracing_subscriber::filter::ParseError| error.to_string())
}

/// Logs to standard error: `RUST_LOG` decides how much, warnings by default.
fn start_logging(as_json: bool) {
    let said = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = log_filter(&said).unwrap_or_else(|error| {
        output::warn(&format!(
            "RUST_LOG={said} is not understood ({error}); warnings are logged. Give a level, or levels of targets: \
             warn,eigenveil_server=debug"
        ));
        Targets::new().with_default(LevelFilter::WARN)
    });
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // It would say on standard error that standard error cannot be written, and panic: a full disk or a dead pipe must
        // not end the thread that has something to log.
        .log_internal_errors(false);
    // A second start in one process keeps the first: there is one standard error.
    let subscriber = tracing_subscriber::registry().with(filter);
    let _ = if as_json {
        subscriber.with(layer.json()).try_init()
    } else {
        subscriber.with(layer).try_init()
    };
}

/// Done when the process is asked to stop.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>> {
    let catch = |kind| signal(kind).map_err(|error| uncatchable(&error));
    let mut terminate = catch(SignalKind::terminate())?;
    let mut interrupt = catch(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_rust_log_silences_nothing() {
        for (said, level) in [
            ("", LevelFilter::WARN),
            (",", LevelFilter::WARN),
            ("info,", LevelFilter::INFO),
            ("info,,", LevelFilter::INFO),
            ("info,eigenveil_server=debug", LevelFilter::INFO),
        ] {
            let filter = log_filter(said).ok().and_then(|f| f.default_level());
            assert_eq!(filter, Some(level), "{said:?}");
        }
        for said in [
            "info,,debug=a=b",
            "eigenveil_server=",
            "info,x[{id=1}]=debug",
        ] {
            assert!(log_filter(said).is_err(), "{said:?}");
        }
    }
}
