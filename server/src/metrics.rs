//! Prometheus metrics of the server. No label names a study, a client or a token: labels are routes, methods, statuses
//! and error codes, so their number is bounded.

use std::{fmt, sync::Arc, time::Duration};

use axum::http::{Method, StatusCode};
use eigenveil_shared::{
    ErrorCode,
    api::{ReportOutcome, StudyState},
    names,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// Prefix of all names. They are documented in `docs/server-reference.md`: changing one breaks somebody's alerts.
const PREFIX: &str = "eigenveil";
/// The route of reports, which gets nearly all requests of a busy server.
pub(crate) const REPORTS_ROUTE: &str = "/v1/studies/{id}/reports";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

type Label = [(&'static str, &'static str); 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EstimateEnd {
    Done,
    Failed,
    Cancelled,
}

names! {
    EstimateEnd { Done = "done", Failed = "failed", Cancelled = "cancelled" };
}

impl EstimateEnd {
    fn label(self) -> Label {
        [("outcome", self.as_str())]
    }
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    /// The busiest counter of `requests`, cached so that no label has to be built for it.
    reports_created: Counter,
    reports: Family<Label, Counter>,
    accepted: Counter,
    duplicate: Counter,
    pub(crate) body_bytes: Counter,
    /// Commands waiting for the writer.
    pub(crate) queue_depth: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) connections_evicted: Counter,
    pub(crate) connections_refused: Counter,
    commit_seconds: Histogram,
    commit_reports: Histogram,
    pub(crate) commit_failures: Counter,
    estimate_duration: Family<Label, Histogram, fn() -> Histogram>,
    // The rest is measured when the metrics are read.
    studies: Family<Label, Gauge>,
    pub(crate) estimates_waiting: Gauge,
    /// Size of the database and its write-ahead log.
    pub(crate) store_bytes: Gauge,
    pub(crate) disk_free_bytes: Gauge,
    /// Bodies being read or waiting for a commit.
    pub(crate) ingest_bytes: Gauge,
    /// 1 while the last commit succeeded and no damage was found.
    pub(crate) store_healthy: Gauge,
    resident_bytes: Gauge,
}

impl Metrics {
    /// New metrics, for a write queue of this capacity and a store with or without a disk of its own. They are shown in
    /// the order in which they are registered here.
    pub(crate) fn new(max_queued_requests: usize, has_disk: bool) -> Arc<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        let requests = Family::<RequestLabels, Counter>::default();
        let help = "HTTP requests, by route, method and status";
        registry.register("http_requests", help, requests.clone());

        let reports = Family::<Label, Counter>::default();
        let help = "Reports received, by outcome; a batch rejected as a whole counts as one";
        registry.register("reports", help, reports.clone());

        let body_bytes = Counter::default();
        let help = "Bytes of request bodies read";
        registry.register_with_unit("request_body", help, Unit::Bytes, body_bytes.clone());

        // 0.1 ms to 6.6 s.
        let commit_seconds = Histogram::new(exponential_buckets(1e-4, 2.0, 17));
        registry.register_with_unit(
            "commit_duration",
            "Time from the start of a group commit until it is on disk",
            Unit::Seconds,
            commit_seconds.clone(),
        );
        // 1 to 16,384 reports.
        let commit_reports = Histogram::new(exponential_buckets(1.0, 4.0, 8));
        let help = "Reports in a commit";
        registry.register("commit_reports", help, commit_reports.clone());

        let commit_failures = Counter::default();
        let help = "Commits that failed; nothing of them was counted";
        registry.register("commit_failures", help, commit_failures.clone());

        let estimate_duration: Family<Label, Histogram, fn() -> Histogram> =
            // 10 ms to 3 hours.
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 4.0, 11)));
        for end in EstimateEnd::ALL {
            drop(estimate_duration.get_or_create(&end.label()));
        }
        registry.register_with_unit(
            "estimate_duration",
            "Time an estimate took, by outcome",
            Unit::Seconds,
            estimate_duration.clone(),
        );
        let studies = Family::default();
        registry.register("studies", "Studies by state", studies.clone());

        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let help =
            "Connections closed while they waited for a request, because connections were short";
        let connections_evicted = counter("connections_evicted", help);
        let help = "Connections refused because their address had its share, all of them busy";
        let connections_refused = counter("connections_refused", help);

        let mut gauge = |name: &str, help: &str| {
            let gauge: Gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let queue_depth = gauge("queue_depth", "Requests waiting for the writer");
        let help = "Maximum number of requests waiting for the writer";
        gauge("queue_capacity", help).set(signed(max_queued_requests as u64));
        let connections = gauge("connections", "Connections being served");
        let help = "Estimates waiting or being computed";
        let estimates_waiting = gauge("estimates_waiting", help);
        let help = "1 while the last commit succeeded and no damage was found, else 0";
        let store_healthy = gauge("store_healthy", help);

        let mut bytes = |name: &str, help: &str| {
            let gauge: Gauge = Gauge::default();
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
            gauge
        };
        let store_bytes = bytes(
            "store",
            "Size of the database, an embedded one's write-ahead log included",
        );
        let help = "Free space on the disk of the data directory";
        // A 0 would be an alert.
        let disk_free_bytes = match has_disk {
            true => bytes("disk_free", help),
            false => Gauge::default(),
        };
        let ingest_bytes = bytes("ingest", "Bodies being read or waiting for a commit");
        let resident_bytes = bytes("resident_memory", "Physical memory of the process");

        let build = Family::<Label, Gauge>::default();
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        build.get_or_create(&version).set(1);
        registry.register("build_info", "Version of the running server", build);

        let of = |outcome| reports.get_or_create_owned(&[("outcome", outcome)]);
        Arc::new(Self {
            registry,
            reports_created: requests.get_or_create_owned(&RequestLabels {
                route: REPORTS_ROUTE.to_owned(),
                method: "POST",
                status: StatusCode::CREATED.as_u16(),
            }),
            accepted: of(ReportOutcome::Accepted.as_str()),
            duplicate: of(ReportOutcome::Duplicate.as_str()),
            requests,
            reports,
            body_bytes,
            queue_depth,
            connections,
            connections_evicted,
            connections_refused,
            commit_seconds,
            commit_reports,
            commit_failures,
            estimate_duration,
            studies,
            estimates_waiting,
            store_bytes,
            disk_free_bytes,
            ingest_bytes,
            store_healthy,
            resident_bytes,
        })
    }

    pub(crate) fn request(&self, route: &str, method: &Method, status: StatusCode) {
        if status == StatusCode::CREATED && route == REPORTS_ROUTE {
            self.reports_created.inc();
            return;
        }
        let labels = RequestLabels {
            route: route.to_owned(),
            method: method_label(method),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn reports_counted(&self, accepted: u64, duplicates: u64) {
        self.accepted.inc_by(accepted);
        if duplicates > 0 {
            self.duplicate.inc_by(duplicates);
        }
    }

    /// A report, or a request with reports, was rejected.
    pub(crate) fn report_rejected(&self, code: ErrorCode) {
        let outcome = [("outcome", code.as_str())];
        self.reports.get_or_create(&outcome).inc();
    }

    pub(crate) fn committed(&self, reports: usize, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_reports.observe(reports as f64);
    }

    pub(crate) fn estimate_ended(&self, end: EstimateEnd, took: Duration) {
        let histogram = self.estimate_duration.get_or_create(&end.label());
        histogram.observe(took.as_secs_f64());
    }

    pub(crate) fn studies_are(&self, state: StudyState, studies: usize) {
        let state = [("state", state.as_str())];
        self.studies
            .get_or_create(&state)
            .set(signed(studies as u64));
    }

    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        self.resident_bytes.set(resident_memory());
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// The value of a gauge; none comes near the limit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The method as a label; clients may make up any number of methods.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Resident memory of this process in bytes; 0 if the system does not report it.
fn resident_memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<i64>().ok());
    kilobytes.map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_labels_is_bounded() {
        let metrics = Metrics::new(7, true);
        for i in 0..1_000 {
            let method = Method::from_bytes(format!("M{i}").as_bytes()).unwrap();
            metrics.request("(none)", &method, StatusCode::NOT_FOUND);
        }
        let text = metrics.render().unwrap();
        let lines = text.matches("eigenveil_http_requests_total{").count();
        // One for `other`, one for reports.
        assert_eq!(lines, 2, "{text}");
        assert!(text.contains("method=\"other\""));
    }

    #[test]
    fn a_store_without_a_disk_shows_no_free_space() {
        for has_disk in [true, false] {
            let text = Metrics::new(7, has_disk).render().unwrap();
            assert_eq!(text.contains("disk_free"), has_disk);
        }
    }
}
