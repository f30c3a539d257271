//! The operator's settings.

mod file;
mod network;
mod public_url;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use eigenveil_estimation::linalg::Threads;
use eigenveil_shared::{Error, Result, serialized_as_text};
use eigenveil_store::{Durability, StoreConfig, StoreUrl};
use serde::{Deserialize, Serialize};

pub(crate) use self::public_url::is_shell_safe_host;
pub use self::{network::Network, public_url::PublicUrl};

/// Minimum transfer rate of request bodies and of responses: a body may take `body_timeout_ms` plus its limit at this
/// rate, and a client that reads a response more slowly is cut off.
pub(crate) const MIN_TRANSFER_BYTES_PER_SECOND: u64 = 65_536;

/// The longest that a client or a stop may be waited for.
const DAY_MS: u64 = 24 * 3_600_000;

/// Settings of a server. Every field but the data directory has a default; unknown keys are rejected.
///
/// ```
/// use eigenveil_server::ServerConfig;
/// let config = ServerConfig { max_connections: 64, ..ServerConfig::new("/var/lib/eigenveil") };
/// assert!(config.check().is_ok());
/// assert!(ServerConfig { max_ingest_bytes: 0, ..config }.check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Directory of the store; created if missing. Must not contain anything else. Has no default.
    pub data_dir: PathBuf,
    /// Database that several servers share, instead of a file in `data_dir`, which then has temporary files and the
    /// operator token. Needs the feature `postgres`. Absent: the file.
    pub store: Option<StoreUrl>,
    /// How commits survive the loss of that database's machine. Default: a standby.
    pub durability: Durability,
    /// Address to listen on; port 0 lets the system choose. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Address by which browsers and participants reach the server, perhaps with a path: links, cookies and printed
    /// commands have it; the proxy removes the path. Absent: the host of each request, and no path.
    pub public_url: Option<PublicUrl>,
    /// Bytes of bucket sums cached in memory, over all studies. Also decides, when a study is created, how many of the 32
    /// buckets it gets. Default 1 GiB.
    pub sum_cache_bytes: u64,
    /// Bytes of request bodies that may be in memory at once, being read or waiting for a commit; beyond it requests get
    /// 429. Default 256 MiB.
    pub max_ingest_bytes: usize,
    /// Connections served at once. Beyond it the ones that have waited longest for a request are closed; if all are busy,
    /// further ones wait to be accepted. The process needs 64 more open files than that: with fewer it serves as many
    /// connections as fit. Default 4,096.
    pub max_connections: usize,
    /// Connections from one address (one /64 of IPv6) at once, trusted proxies excepted. Beyond it its waiting connections
    /// are closed; if all are busy, further ones get 429. Absent: a quarter of all.
    pub max_connections_per_address: Option<usize>,
    /// Milliseconds a client may take to send the head of a request; also how long an idle
    /// connection stays open. Default 30,000.
    pub header_timeout_ms: u64,
    /// Milliseconds a client may take to send a body, and may pause while reading a response. Large bodies and responses
    /// get more time, at 64 KiB/s. Default 60,000.
    pub body_timeout_ms: u64,
    /// Milliseconds for which a server that is told to stop still accepts connections and answers, while `/readyz` says 503:
    /// until its balancer has noticed. Default 0.
    pub shutdown_delay_ms: u64,
    /// Milliseconds that requests in progress have to finish when the server stops. Default 10,000.
    pub shutdown_timeout_ms: u64,
    /// Threads that one estimate may use. Results do not depend on it. 0, with `store`: estimates are left to the other
    /// servers and workers of the database. Default 1: the other cores are for reports.
    pub estimate_threads: usize,
    /// Whether everybody who reaches the server may read `/metrics`, without a token. Default `false`.
    pub metrics_without_token: bool,
    /// Bytes of the reports that one study of sites keeps, 8 a number: on disk, and in memory while an estimate is
    /// computed; beyond it reports get 507. Default 1 GiB.
    pub max_site_bytes: u64,
    /// Bytes of the sums of seeds that are kept of one `double-cap` study, at most: 4p² for each of 32 buckets, 8 a
    /// report, and 1 MB. Beyond it each estimate adds up the later seeds. Default 1 GiB: p = 2,780 with 10⁷ reports.
    pub max_fold_bytes: u64,
    /// Maximum size of the database in bytes; beyond it reports get 507 until studies are deleted. Absent: limited by the
    /// disk only.
    pub max_store_bytes: Option<u64>,
    /// Finished estimates stored for each study; older ones are deleted. Default 1,000.
    pub retain_estimates: u32,
    /// Days for which report identifiers are stored after a study was closed. Without them a device that missed its
    /// acknowledgement is told that the study is closed, and the study cannot be exported. Absent: for ever.
    pub retain_ids_days: Option<u32>,
    /// PEM file with the server's certificate, followed by its issuers'. With it and `tls_key` the server speaks HTTPS only.
    /// Absent: plain HTTP.
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key, without a password.
    pub tls_key: Option<PathBuf>,
    /// Seconds between checks whether the certificate was renewed; an unusable pair is logged and the previous one stays in
    /// use. 0: only on SIGHUP (to `eigenveil serve`). Default 60.
    pub tls_reload_seconds: u64,
    /// Allows plain HTTP on an address that other machines can reach: for a TLS proxy on another machine. Default false.
    pub insecure_http: bool,
    /// Proxies whose `X-Forwarded-For` is trusted, such as `10.0.0.0/8`. Default none: the client's address is that of the
    /// connection. Used for rate limits and shares only.
    pub trusted_proxies: Vec<Network>,
    /// Requests a minute from one address (one /64 of IPv6); beyond it they get 429. Absent: no limit, since many
    /// participants may share an address, and reports have their own limits.
    pub address_requests_per_minute: Option<u32>,
    /// Requests a minute with one bearer token, including its sessions and logins; beyond it they get 429. Absent: no limit.
    pub token_requests_per_minute: Option<u32>,
    /// Failed authentications a minute from one address (one /64 of IPv6); beyond it further wrong tokens get 429. The
    /// correct token is never delayed. Default 60.
    pub failed_auth_per_minute: u32,
    /// Not a key of the file.
    #[serde(skip)]
    pub tuning: Tuning,
}

/// Limits that operators need not choose; tests make them small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Requests that may wait for the writer; beyond it they get 429. Default 4,096.
    pub max_queued_requests: usize,
    /// Reports after which no further request joins a commit. Default 8,192.
    pub max_commit_reports: usize,
    /// Bytes of responses that may be in memory at once until clients have read them; beyond it requests get 429. Default
    /// 64 MiB.
    pub max_response_bytes: usize,
    /// Estimates that may wait, over all studies; beyond it requests get 429. Default 100.
    pub max_waiting_estimates: u32,
    /// Dimension from which row-sparse estimates of `double-cap` studies (without private centring, λ neither `cv` nor
    /// `path`) are computed in two passes over the seeds, with half a triangle of p² in memory instead of a sum for each
    /// bucket: about 6p² bytes of `sum_cache_bytes`. They then have the leading eigenvalues only. Default 1,500.
    pub sparse_streaming_min_dimension: usize,
    /// Connections that commit reports to a shared database. Default 4.
    pub store_connections: usize,
    /// New seeds of a bucket for which its sum is kept, at least. Default 4,096.
    pub min_folded_seeds: usize,
    /// Time a client may take for the TLS handshake. Default 10 s.
    pub handshake_timeout: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        let store = StoreConfig::default();
        Self {
            max_queued_requests: store.max_queued_requests,
            max_commit_reports: store.max_commit_reports,
            max_response_bytes: 64 << 20,
            max_waiting_estimates: store.max_waiting_estimates,
            sparse_streaming_min_dimension: store.sparse_streaming_min_dimension,
            store_connections: store.store_connections,
            min_folded_seeds: store.min_folded_seeds,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Default for ServerConfig {
    /// The documented defaults, without a directory.
    fn default() -> Self {
        let store = StoreConfig::default();
        Self {
            data_dir: store.data_dir,
            store: store.database,
            durability: store.durability,
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            public_url: None,
            sum_cache_bytes: store.sum_cache_bytes,
            max_ingest_bytes: store.max_ingest_bytes,
            max_connections: 4_096,
            max_connections_per_address: None,
            header_timeout_ms: 30_000,
            body_timeout_ms: 60_000,
            shutdown_delay_ms: 0,
            shutdown_timeout_ms: 10_000,
            estimate_threads: 1,
            max_site_bytes: store.max_site_bytes,
            max_fold_bytes: store.max_fold_bytes,
            max_store_bytes: store.max_store_bytes,
            retain_estimates: store.retain_estimates,
            retain_ids_days: store.retain_ids_days,
            tls_cert: None,
            tls_key: None,
            tls_reload_seconds: 60,
            insecure_http: false,
            metrics_without_token: false,
            trusted_proxies: Vec::new(),
            address_requests_per_minute: None,
            token_requests_per_minute: None,
            failed_auth_per_minute: 60,
            tuning: Tuning::default(),
        }
    }
}

impl ServerConfig {
    /// The defaults, with the store in this directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            ..Self::default()
        }
    }

    /// Rejects settings with which the server cannot work.
    pub fn check(&self) -> Result<()> {
        let reject = |setting: &str, value: String, limit: &str| {
            Err(Error::invalid_config(format!(
                "{setting} is {value}; it must be {limit}"
            )))
        };
        self.of_store().check()?;
        let at_least_one = [
            (
                "max_connections_per_address",
                self.max_connections_per_address.unwrap_or(1) as u64,
            ),
            ("failed_auth_per_minute", self.failed_auth_per_minute.into()),
            (
                "address_requests_per_minute",
                self.address_requests_per_minute.unwrap_or(1).into(),
            ),
            (
                "token_requests_per_minute",
                self.token_requests_per_minute.unwrap_or(1).into(),
            ),
        ];
        let between = [
            ("max_connections", self.max_connections as u64, 1, 1 << 20),
            (
                "estimate_threads",
                self.estimate_threads as u64,
                u64::from(self.store.is_none()),
                1_024,
            ),
            ("tls_reload_seconds", self.tls_reload_seconds, 0, 31_536_000),
            ("header_timeout_ms", self.header_timeout_ms, 1, DAY_MS),
            // The kernel is told it, too, and takes no more than 31 bits.
            ("body_timeout_ms", self.body_timeout_ms, 1, DAY_MS),
            ("shutdown_delay_ms", self.shutdown_delay_ms, 0, 3_600_000),
            ("shutdown_timeout_ms", self.shutdown_timeout_ms, 0, DAY_MS),
        ];
        let at_least_one = at_least_one.map(|(setting, value)| (setting, value, 1, u64::MAX));
        for (setting, value, min, max) in at_least_one.into_iter().chain(between) {
            if value < min {
                return reject(setting, value.to_string(), &format!("at least {min}"));
            }
            if value > max {
                return reject(setting, value.to_string(), &format!("at most {max}"));
            }
        }
        for (one, other, has) in [
            ("tls_cert", "tls_key", (&self.tls_cert, &self.tls_key)),
            ("tls_key", "tls_cert", (&self.tls_key, &self.tls_cert)),
        ] {
            if let (Some(file), None) = has {
                return reject(
                    one,
                    file.display().to_string(),
                    &format!("given together with {other}, or neither"),
                );
            }
        }
        if self.tls_cert.is_none() && !self.insecure_http && !is_loopback(self.listen) {
            return reject(
                "listen",
                self.listen.to_string(),
                "an address of this machine only (such as 127.0.0.1:8080), because over plain HTTP everybody on the path can read tokens; \
                 either give a certificate (tls_cert and tls_key, --tls-cert and --tls-key), or allow it (insecure_http = true, \
                 --insecure-http) if a TLS proxy stands in front of the server",
            );
        }
        Ok(())
    }

    /// The settings of the store.
    pub fn of_store(&self) -> StoreConfig {
        StoreConfig {
            data_dir: self.data_dir.clone(),
            database: self.store.clone(),
            durability: self.durability,
            sum_cache_bytes: self.sum_cache_bytes,
            max_ingest_bytes: self.max_ingest_bytes,
            max_site_bytes: self.max_site_bytes,
            max_fold_bytes: self.max_fold_bytes,
            max_store_bytes: self.max_store_bytes,
            retain_estimates: self.retain_estimates,
            retain_ids_days: self.retain_ids_days,
            computes_estimates: self.estimate_threads > 0,
            shutdown_timeout: self.shutdown_timeout(),
            max_queued_requests: self.tuning.max_queued_requests,
            max_commit_reports: self.tuning.max_commit_reports,
            max_waiting_estimates: self.tuning.max_waiting_estimates,
            sparse_streaming_min_dimension: self.tuning.sparse_streaming_min_dimension,
            store_connections: self.tuning.store_connections,
            min_folded_seeds: self.tuning.min_folded_seeds,
        }
    }

    pub(crate) fn tls_files(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }

    pub(crate) fn tls_reload(&self) -> Option<Duration> {
        (self.tls_reload_seconds > 0).then(|| Duration::from_secs(self.tls_reload_seconds))
    }

    pub(crate) fn estimate_threads(&self) -> Threads {
        Threads::new(self.estimate_threads).unwrap_or(Threads::current())
    }

    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    /// For a small body, or one chunk of a large one.
    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    /// For a body of at most this many bytes.
    pub(crate) fn body_timeout_for(&self, bytes: usize) -> Duration {
        let seconds = bytes as u64 / MIN_TRANSFER_BYTES_PER_SECOND;
        self.body_timeout() + Duration::from_secs(seconds)
    }

    pub(crate) fn shutdown_delay(&self) -> Duration {
        Duration::from_millis(self.shutdown_delay_ms)
    }

    pub(crate) fn shutdown_timeout(&self) -> Duration {
        Duration::from_millis(self.shutdown_timeout_ms)
    }
}

serialized_as_text!(Network, PublicUrl);

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
