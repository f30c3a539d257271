//! What an operator may set.

mod file;
mod network;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use eigenveil_estimation::{large::SMALLEST_LARGE, linalg::Threads};
use eigenveil_shared::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

pub use self::network::{Network, ProxyHeader};

/// Settings of a server. Every field but the data directory has a default; unknown keys are refused.
///
/// ```
/// use eigenveil_server::ServerConfig;
/// let config = ServerConfig { max_connections: 64, ..ServerConfig::new("/var/lib/eigenveil") };
/// assert!(config.check().is_ok());
/// assert!(ServerConfig { queue_requests: 0, ..config }.check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Directory of the store; made when it is missing. Nothing else may live in it. Has no default.
    pub data_dir: PathBuf,
    /// Address to listen on; port 0 lets the system choose. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Bytes of bucket sums kept in memory, over all studies. Also decides, when a study is created,
    /// how many of the 32 buckets it gets. Default 1 GiB.
    pub memory_bytes: u64,
    /// Dimension from which row-sparse estimates of `double-cap` studies (without private centring, λ neither `cv` nor
    /// `path`) read the seeds twice and keep half a triangle of p² in memory, not a sum a bucket: about 6p²
    /// bytes of `memory_bytes`. They then have the leading eigenvalues only. Default 1,500.
    pub stream_sparse_from: usize,
    /// Bytes of report bodies that may be in memory at once, being read or waiting for a commit;
    /// beyond it requests are answered 429. Default 256 MiB.
    pub ingest_bytes: usize,
    /// Bytes of answers that may be in memory at once until clients take them; beyond it requests are answered 429.
    /// Default 64 MiB.
    pub answer_bytes: usize,
    /// Requests that may wait for the writer; beyond it requests are answered 429. Default 4,096.
    pub queue_requests: usize,
    /// Reports after which a commit takes no further request. Default 8,192.
    pub commit_reports: usize,
    /// Payload bytes after which a commit takes no further request. Default 64 MiB.
    pub commit_bytes: usize,
    /// Microseconds a commit that already has company waits for more; a lone request never waits.
    /// Default 0: while one commit is synced the next one gathers by itself, and waiting longer
    /// measured no better.
    pub commit_delay_us: u64,
    /// Connections served at once; further ones wait to be accepted. The process needs 64 open files more: with fewer
    /// it serves as many as fit. Default 4,096.
    pub max_connections: usize,
    /// Milliseconds a client may take to send the head of a request; also how long an idle
    /// connection stays open. Default 30,000.
    pub header_timeout_ms: u64,
    /// Milliseconds a client may take to send a body. Default 60,000.
    pub body_timeout_ms: u64,
    /// Milliseconds that requests being served are given to finish when the server stops. Default 10,000.
    pub shutdown_timeout_ms: u64,
    /// Threads that one estimate may take. Default 1: the machine is the reports'. What is computed does not depend on it.
    pub estimate_threads: usize,
    /// Whether `/metrics` is read without a token, by everybody who reaches the server. Default `false`.
    pub metrics_without_token: bool,
    /// Bytes per second below which a client that sends a large body is cut off: a body may take
    /// `body_timeout_ms` and its limit at this rate. Default 65,536.
    pub min_bytes_per_second: u64,
    /// Bytes the database may have; beyond it reports are answered 507 until studies are deleted. Absent: as many
    /// as the disk takes.
    pub store_bytes: Option<u64>,
    /// Finished estimates kept of each study; older ones are deleted. Default 1,000.
    pub retain_estimates: u32,
    /// Days for which the identifiers of a closed study are kept. Without them a device that never learnt that
    /// its report was counted is told that the study is closed, and the study cannot be exported. Absent: for ever.
    pub retain_ids_days: Option<u32>,
    /// Estimates that may wait, over all studies; beyond it requests are answered 429. Default 100.
    pub waiting_estimates: u32,
    /// Largest JSON body in bytes. Default 4 MiB, which holds 4,096 features with long names.
    pub json_bytes: usize,
    /// PEM file with the server's certificate, then those of its issuers. With `tls_key` the server speaks HTTPS
    /// only. Absent: plain HTTP.
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's key, without a password.
    pub tls_key: Option<PathBuf>,
    /// Seconds after which the certificate's files are read again; a pair that cannot be used is told of in the log and
    /// the one before goes on. 0: only when asked (SIGHUP to `eigenveil serve`). Default 60.
    pub tls_reload_seconds: u64,
    /// Milliseconds a client may take for the TLS handshake. Default 10,000.
    pub handshake_timeout_ms: u64,
    /// Allows plain HTTP on an address that other machines reach: for a TLS proxy on another machine. Default false.
    pub insecure_http: bool,
    /// Proxies whose `proxy_header` is believed, such as `10.0.0.0/8`. Default none: the address of a client is that
    /// of the connection. Used for limits only.
    pub trusted_proxies: Vec<Network>,
    /// The header in which these proxies write whom they speak for, to the right of what was there. Default
    /// `x-forwarded-for`.
    pub proxy_header: ProxyHeader,
    /// Requests a minute that one address (of IPv6: one /64) may make; beyond it they are answered 429. Absent: no limit,
    /// since many participants may share an address, and reports have limits of their own.
    pub address_requests_per_minute: Option<u32>,
    /// Requests a minute that may be made with one token, its sessions and logins included; beyond it they are answered
    /// 429. Absent: no limit.
    pub token_requests_per_minute: Option<u32>,
    /// Refused tokens a minute that one address (of IPv6: one /64) may try; beyond it further wrong ones are answered
    /// 429, and never the right one. Default 60.
    pub wrong_tokens_per_minute: u32,
}

impl Default for ServerConfig {
    /// The documented defaults, without a directory.
    fn default() -> Self {
        Self {
            data_dir: PathBuf::new(),
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            memory_bytes: 1 << 30,
            stream_sparse_from: SMALLEST_LARGE,
            ingest_bytes: 256 << 20,
            answer_bytes: 64 << 20,
            queue_requests: 4_096,
            commit_reports: 8_192,
            commit_bytes: 64 << 20,
            commit_delay_us: 0,
            max_connections: 4_096,
            header_timeout_ms: 30_000,
            body_timeout_ms: 60_000,
            shutdown_timeout_ms: 10_000,
            estimate_threads: 1,
            min_bytes_per_second: 65_536,
            store_bytes: None,
            retain_estimates: 1_000,
            retain_ids_days: None,
            waiting_estimates: 100,
            json_bytes: 4 << 20,
            tls_cert: None,
            tls_key: None,
            tls_reload_seconds: 60,
            handshake_timeout_ms: 10_000,
            insecure_http: false,
            metrics_without_token: false,
            trusted_proxies: Vec::new(),
            proxy_header: ProxyHeader::default(),
            address_requests_per_minute: None,
            token_requests_per_minute: None,
            wrong_tokens_per_minute: 60,
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

    /// Refuses settings with which nothing could ever be served.
    ///
    /// # Errors
    /// `invalid-request`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let refuse = |setting: &str, value: String, limit: &str| {
            Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("{setting} is {value}; it must be {limit}"),
            ))
        };
        if self.data_dir.as_os_str().is_empty() {
            return refuse(
                "data_dir",
                "empty".into(),
                "a directory (data_dir or --data)",
            );
        }
        for (setting, value) in [
            ("ingest_bytes", self.ingest_bytes),
            ("answer_bytes", self.answer_bytes),
            ("queue_requests", self.queue_requests),
            ("commit_reports", self.commit_reports),
            ("commit_bytes", self.commit_bytes),
            ("max_connections", self.max_connections),
            ("json_bytes", self.json_bytes),
            ("estimate_threads", self.estimate_threads),
        ] {
            if value == 0 {
                return refuse(setting, value.to_string(), "at least 1");
            }
        }
        for (setting, value) in [
            ("min_bytes_per_second", self.min_bytes_per_second),
            ("retain_estimates", u64::from(self.retain_estimates)),
            ("waiting_estimates", u64::from(self.waiting_estimates)),
            (
                "wrong_tokens_per_minute",
                u64::from(self.wrong_tokens_per_minute),
            ),
            (
                "address_requests_per_minute",
                u64::from(self.address_requests_per_minute.unwrap_or(1)),
            ),
            (
                "token_requests_per_minute",
                u64::from(self.token_requests_per_minute.unwrap_or(1)),
            ),
        ] {
            if value == 0 {
                return refuse(setting, value.to_string(), "at least 1");
            }
        }
        if let Some(bytes) = self.store_bytes
            && bytes < 1 << 20
        {
            return refuse("store_bytes", bytes.to_string(), "at least 1048576 (1 MiB)");
        }
        for (setting, value) in [
            ("header_timeout_ms", self.header_timeout_ms),
            ("body_timeout_ms", self.body_timeout_ms),
            ("handshake_timeout_ms", self.handshake_timeout_ms),
        ] {
            if value == 0 {
                return refuse(setting, value.to_string(), "at least 1 ms");
            }
        }
        if self.tls_reload_seconds > 31_536_000 {
            return refuse(
                "tls_reload_seconds",
                self.tls_reload_seconds.to_string(),
                "at most 31536000 (a year); 0 means only when asked",
            );
        }
        if self.commit_delay_us > 1_000_000 {
            return refuse(
                "commit_delay_us",
                self.commit_delay_us.to_string(),
                "at most 1000000 (one second)",
            );
        }
        if self.estimate_threads > 1_024 {
            return refuse(
                "estimate_threads",
                self.estimate_threads.to_string(),
                "at most 1024",
            );
        }
        // tokio's semaphore holds no more permits than this.
        if self.max_connections > 1 << 20 || self.queue_requests > 1 << 20 {
            return refuse(
                "max_connections or queue_requests",
                self.max_connections.max(self.queue_requests).to_string(),
                "at most 1048576",
            );
        }
        for (one, other, has) in [
            ("tls_cert", "tls_key", (&self.tls_cert, &self.tls_key)),
            ("tls_key", "tls_cert", (&self.tls_key, &self.tls_cert)),
        ] {
            if let (Some(file), None) = has {
                return refuse(
                    one,
                    file.display().to_string(),
                    &format!("given together with {other}, or neither"),
                );
            }
        }
        if self.tls_cert.is_none() && !self.insecure_http && !is_loopback(self.listen) {
            return refuse(
                "listen",
                self.listen.to_string(),
                "an address of this machine only (such as 127.0.0.1:8080), because over plain HTTP everybody on the way can read tokens; \
                 either give a certificate (tls_cert and tls_key, --tls-cert and --tls-key), or allow it (insecure_http = true, \
                 --insecure-http) where a TLS proxy stands before the server",
            );
        }
        Ok(())
    }

    /// The two files of TLS, where the server speaks it.
    pub(crate) fn tls_files(&self) -> Option<(&Path, &Path)> {
        Some((self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }

    pub(crate) fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.handshake_timeout_ms)
    }

    pub(crate) fn tls_reload(&self) -> Option<Duration> {
        (self.tls_reload_seconds > 0).then(|| Duration::from_secs(self.tls_reload_seconds))
    }

    pub(crate) fn estimate_threads(&self) -> Threads {
        Threads::new(self.estimate_threads).unwrap_or(Threads::current())
    }

    pub(crate) fn commit_delay(&self) -> Duration {
        Duration::from_micros(self.commit_delay_us)
    }

    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    /// For a body of a few bytes, or one piece of a large one.
    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    /// For a body of at most this many bytes.
    pub(crate) fn body_timeout_for(&self, bytes: usize) -> Duration {
        let seconds = bytes as u64 / self.min_bytes_per_second.max(1);
        self.body_timeout() + Duration::from_secs(seconds)
    }

    pub(crate) fn shutdown_timeout(&self) -> Duration {
        Duration::from_millis(self.shutdown_timeout_ms)
    }
}

/// Whether only this machine reaches an address.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
