//! `eigenveil serve`: the aggregation server.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use eigenveil_server::{AppState, Certificates, Environment, PublicUrl, Server, ServerConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::{
    filter::{LevelFilter, ParseError, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::store::SettingsArgs;
use crate::{
    error::{CliError, Result},
    output,
};

/// Run the aggregation server until Ctrl-C or SIGTERM
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil serve --data ./data --listen 127.0.0.1:8080\n  eigenveil serve --data ./data --listen 0.0.0.0:443 --tls-cert fullchain.pem --tls-key privkey.pem\n  eigenveil serve --config eigenveil.toml --check-config\n\nThe operator's token is written once to DATA/operator.token (readable by its owner only).\nSIGHUP reloads the certificate without closing connections. Logs go to standard error; RUST_LOG=debug shows more.\nAddresses, tokens and payloads are never logged."
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Check settings, certificate, data directory and address, report what is wrong, and exit; changes nothing
    #[arg(long)]
    check_config: bool,
    /// Address to listen on, such as 0.0.0.0:8080 or localhost:8080; port 0 lets the system choose [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
    /// PEM file with the server's certificate, then those of its issuers: HTTPS instead of HTTP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow plain HTTP on an address that other machines can reach, for a TLS proxy in front of the server
    #[arg(long)]
    insecure_http: bool,
    /// Bytes of memory for report sums; each takes 4p² (12p² while computed from double-cap seeds) [default: 1073741824]
    #[arg(long, value_name = "BYTES")]
    sum_cache_bytes: Option<u64>,
    /// Threads per estimate; with --store, 0 leaves estimates to the other servers [default: 1]
    #[arg(long, value_name = "N")]
    estimate_threads: Option<usize>,
    /// Largest size of the database in bytes; beyond it reports are refused until studies are deleted
    #[arg(long, value_name = "BYTES")]
    max_store_bytes: Option<u64>,
    /// Finished estimates kept for each study [default: 1000]
    #[arg(long, value_name = "N")]
    retain_estimates: Option<u32>,
    /// Days for which the report identifiers of a closed study are kept [default: for ever]
    #[arg(long, value_name = "DAYS")]
    retain_ids_days: Option<u32>,
    /// Write logs as JSON lines
    #[arg(long)]
    log_json: bool,
}

/// An address, or a host name with a port, which is resolved. IPv4 first: browsers and curl on this machine fall back to
/// it when IPv6 does not answer.
fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().ok();
    resolved
        .and_then(|resolved| resolved.min_by_key(SocketAddr::is_ipv6))
        .ok_or_else(|| {
            "this is no address with a port, nor a name that can be resolved; write it like 127.0.0.1:8080 or localhost:8080".to_owned()
        })
}

impl ServeArgs {
    /// The file's settings, or the defaults, overridden by the flags.
    fn settings(&self) -> Result<ServerConfig> {
        let mut config = self.settings.settings()?;
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

pub(super) fn set<T>(setting: &mut T, flag: Option<T>) {
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
    // Before anything slow: an uncaught SIGHUP ends the process, and systemd takes that for an intended stop.
    let hangup =
        signal(SignalKind::hangup()).map_err(|error| cannot_install_signal_handler(&error))?;
    let server = Server::bind(config, Environment::system()).await?;
    let scheme = if plain { "http" } else { "https" };
    let listening = format!("{scheme}://{}", server.local_addr());
    let (token_file, token) = operator_token(server.app());
    if plain && reachable {
        output::print_warning(&format!(
            "{} is reachable from other machines and this server speaks plain HTTP; only a TLS proxy should reach it",
            server.local_addr()
        ));
    }
    let stop = stop_signal()?;
    let app = server.app().clone();
    let stop = async move {
        stop.await;
        // A second signal stops at once instead of waiting for the load balancer.
        if let Ok(stop_at_once) = stop_signal() {
            tokio::spawn(async move {
                stop_at_once.await;
                app.announce_stop();
            });
        }
    };
    let renewing = renew_on_hangup(hangup, server.certificates().cloned());
    let public_url = server.app().config().public_url.as_ref();
    let printed = output::json_or_text(
        json,
        &serde_json::json!({ "listening": listening, "public_url": public_url, "token_file": token_file }),
        &format!(
            "listening on {listening}\n{}operator token: {token}",
            public_url_line(public_url)
        ),
    );
    // If log and store share a full disk, only a running server can delete studies.
    if let Err(error) = printed {
        tracing::warn!(%error, "standard output cannot be written");
    }
    let ended = server.run(stop).await;
    renewing.abort();
    Ok(ended?)
}

/// The operator token's file, if it exists, and the text to print about it.
fn operator_token(app: &AppState) -> (Option<String>, String) {
    let (config, path) = (app.config(), app.store().token_path());
    let data = config.data_dir.display();
    if !path.exists() {
        // With a shared database the token is where `store migrate` ran.
        let elsewhere = match config.store.is_some() {
            true => "where store migrate has written it".to_owned(),
            false => format!(
                "not in {data}: put your copy of operator.token there, or stop the server and run eigenveil token rotate --data {data}"
            ),
        };
        return (None, elsewhere);
    }
    let path_text = path.display().to_string();
    let is_wrong = |token: String| !app.store().is_operator_token(token.trim());
    // A pipe or a device might never end.
    if path.is_file() && std::fs::read_to_string(&path).is_ok_and(is_wrong) {
        output::print_warning(&format!(
            "{path_text} does not have the operator token of this store (it is of another one, or was rotated since)"
        ));
    }
    (Some(path_text.clone()), path_text)
}

fn check(config: &ServerConfig, json: bool) -> Result<()> {
    let warnings = eigenveil_server::check(config)?;
    let public_url = config.public_url.as_ref();
    if json {
        return output::json(
            &serde_json::json!({ "ok": true, "public_url": public_url, "warnings": warnings }),
        );
    }
    warnings.iter().for_each(|text| output::print_warning(text));
    let public = public_url_line(public_url);
    output::text(&format!("{public}the configuration is usable"))
}

/// The line that shows the setting `public_url`, if it has a value.
fn public_url_line(url: Option<&PublicUrl>) -> String {
    url.map_or(String::new(), |url| format!("public address: {url}\n"))
}

/// Reloads the certificate at every SIGHUP; without a certificate only logs it.
fn renew_on_hangup(
    mut hangup: Signal,
    certificates: Option<Arc<Certificates>>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match &certificates {
                // It logs the result itself; if it fails the previous certificate stays in use.
                Some(certificates) => drop(certificates.reload()),
                None => tracing::info!(
                    "SIGHUP: there is no certificate to reload; other settings need a restart"
                ),
            }
        }
    })
}

fn cannot_install_signal_handler(error: &std::io::Error) -> CliError {
    CliError::failed(format!("signals cannot be caught: {error}"))
}

/// Logs to standard error: `RUST_LOG` decides how much, warnings by default.
pub(super) fn start_logging(as_json: bool) {
    let setting = std::env::var("RUST_LOG").unwrap_or_default();
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let filter = match setting.as_str() {
        "" => warnings,
        wanted => wanted.parse().unwrap_or_else(|error: ParseError| {
            output::print_warning(&format!(
                "RUST_LOG={setting} is not understood ({error}); warnings are logged"
            ));
            warnings
        }),
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // The default writer panics if standard error cannot be written: a full disk or a broken pipe must not end the
        // thread that logs.
        .log_internal_errors(false);
    // A second start in one process keeps the first subscriber.
    let subscriber = tracing_subscriber::registry().with(filter);
    let _ = if as_json {
        subscriber.with(layer.json()).try_init()
    } else {
        subscriber.with(layer).try_init()
    };
}

pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>> {
    let catch = |kind| signal(kind).map_err(|error| cannot_install_signal_handler(&error));
    let mut terminate = catch(SignalKind::terminate())?;
    let mut interrupt = catch(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
