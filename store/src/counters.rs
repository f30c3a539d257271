//! What a store counts and measures.

use std::time::Duration;

use prometheus_client::metrics::{
    counter::Counter,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};

/// Counters of a store, with the gauges that [`Store::measure`](super::Store::measure) sets. Clones share it; whoever
/// shows it registers its parts.
#[derive(Clone)]
pub struct StoreCounters {
    /// Requests waiting for the writer.
    pub queue_depth: Gauge,
    /// Time from the start of a group commit until it is on disk.
    pub commit_seconds: Histogram,
    /// Reports in a commit.
    pub commit_reports: Histogram,
    /// Commits that failed; nothing of them was counted.
    pub commit_failures: Counter,
    /// Estimates waiting or being computed; measured.
    pub estimates_waiting: Gauge,
    /// Size of the database and its write-ahead log; measured.
    pub store_bytes: Gauge,
    /// Free space on the disk of the data directory, of an engine that has one; measured.
    pub disk_free_bytes: Gauge,
    /// 1 while the last commit succeeded and no damage was found; measured.
    pub store_healthy: Gauge,
}

impl Default for StoreCounters {
    fn default() -> Self {
        Self {
            queue_depth: Gauge::default(),
            // 0.1 ms to 6.6 s.
            commit_seconds: Histogram::new(exponential_buckets(1e-4, 2.0, 17)),
            // 1 to 16,384 reports.
            commit_reports: Histogram::new(exponential_buckets(1.0, 4.0, 8)),
            commit_failures: Counter::default(),
            estimates_waiting: Gauge::default(),
            store_bytes: Gauge::default(),
            disk_free_bytes: Gauge::default(),
            store_healthy: Gauge::default(),
        }
    }
}

impl StoreCounters {
    pub(crate) fn committed(&self, reports: usize, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_reports.observe(reports as f64);
    }
}

/// The value of a gauge; none comes near the limit.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
