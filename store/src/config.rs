//! The settings of a store.

use std::{path::PathBuf, time::Duration};

use eigenveil_estimation::sparse_from_seeds::MIN_STREAMED_DIMENSION;
use eigenveil_shared::{Error, Hint, Result};

use crate::store_url::{Durability, StoreUrl};

/// Settings of a store. Every field but the data directory has a default.
///
/// ```
/// use eigenveil_store::StoreConfig;
/// let config = StoreConfig { retain_estimates: 10, ..StoreConfig::new("/var/lib/eigenveil") };
/// assert!(config.check().is_ok());
/// assert!(StoreConfig { retain_estimates: 0, ..config }.check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Directory of the store; created if missing. Must not contain anything else. Has no default.
    pub data_dir: PathBuf,
    /// Database that several servers share, instead of a file in `data_dir`, which then has temporary files and the
    /// operator token. Needs the feature `postgres`. Absent: the file.
    pub database: Option<StoreUrl>,
    /// How commits survive the loss of that database's machine. Default: a standby.
    pub durability: Durability,
    /// Bytes of bucket sums cached in memory, over all studies. Also decides, when a study is created, how many of the 32
    /// buckets it gets. Default 1 GiB.
    pub sum_cache_bytes: u64,
    /// Bytes of reports that may be in memory at once, being read or waiting for a commit. Default 256 MiB.
    pub max_ingest_bytes: usize,
    /// Bytes of the reports that one study of sites keeps, 8 a number: on disk, and in memory while an estimate is
    /// computed; further ones are refused. Default 1 GiB.
    pub max_site_bytes: u64,
    /// Bytes of the sums of seeds that are kept of one `double-cap` study, at most: 4p² for each of 32 buckets, 8 a
    /// report, and 1 MB. Beyond it each estimate adds up the later seeds; the embedded engine drops what is above a
    /// lowered limit when it is tidied. Default 1 GiB: p = 2,780 with 10⁷ reports.
    pub max_fold_bytes: u64,
    /// Maximum size of the database in bytes; beyond it reports are refused until studies are deleted. Absent: limited by
    /// the disk only.
    pub max_store_bytes: Option<u64>,
    /// Finished estimates stored for each study; older ones are deleted. Default 1,000.
    pub retain_estimates: u32,
    /// Days for which report identifiers are stored after a study was closed. Absent: for ever.
    pub retain_ids_days: Option<u32>,
    /// Whether this process computes estimates, and adds up seeds for those of others. Default true.
    pub computes_estimates: bool,
    /// Time that queued writes have when the store is closed. Default 10 s.
    pub shutdown_timeout: Duration,
    /// Requests that may wait for the writer; further ones are refused. Default 4,096.
    pub max_queued_requests: usize,
    /// Reports after which no further request joins a commit. Default 8,192.
    pub max_commit_reports: usize,
    /// Estimates that may wait, over all studies; further ones are refused. Default 100.
    pub max_waiting_estimates: u32,
    /// Dimension from which row-sparse estimates of `double-cap` studies are computed in two passes over the seeds.
    /// Default 1,500.
    pub sparse_streaming_min_dimension: usize,
    /// Connections that commit reports to a shared database. Default 4.
    pub store_connections: usize,
    /// New seeds of a bucket for which its sum is kept, at least. Default 4,096.
    pub min_folded_seeds: usize,
}

impl Default for StoreConfig {
    /// The documented defaults, without a directory.
    fn default() -> Self {
        Self {
            data_dir: PathBuf::new(),
            database: None,
            durability: Durability::Standby,
            sum_cache_bytes: 1 << 30,
            max_ingest_bytes: 256 << 20,
            max_site_bytes: 1 << 30,
            max_fold_bytes: 1 << 30,
            max_store_bytes: None,
            retain_estimates: 1_000,
            retain_ids_days: None,
            computes_estimates: true,
            shutdown_timeout: Duration::from_secs(10),
            max_queued_requests: 4_096,
            max_commit_reports: 8_192,
            max_waiting_estimates: 100,
            sparse_streaming_min_dimension: MIN_STREAMED_DIMENSION,
            store_connections: 4,
            min_folded_seeds: 4_096,
        }
    }
}

impl StoreConfig {
    /// The defaults, with the store in this directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            ..Self::default()
        }
    }

    /// Rejects settings with which the store cannot work.
    ///
    /// # Errors
    /// `invalid-config`, with the setting.
    pub fn check(&self) -> Result<()> {
        if self.data_dir.as_os_str().is_empty() {
            return Err(
                Error::invalid_config("data_dir is empty; it must be a directory")
                    .with_hint(Hint::DataDirectory),
            );
        }
        if self.database.is_some() && !cfg!(feature = "postgres") {
            return Err(Error::invalid_config(
                "store names a database, which this program was built without; build it with the feature postgres, or remove store",
            ));
        }
        let max_store_bytes = self.max_store_bytes.unwrap_or(u64::MAX);
        for (setting, value, min) in [
            ("max_ingest_bytes", self.max_ingest_bytes as u64, 1),
            ("max_site_bytes", self.max_site_bytes, 1),
            ("retain_estimates", self.retain_estimates.into(), 1),
            ("max_store_bytes", max_store_bytes, 1 << 20),
        ] {
            if value < min {
                return Err(Error::invalid_config(format!(
                    "{setting} is {value}; it must be at least {min}"
                )));
            }
        }
        Ok(())
    }
}
