//! Prometheus metrics of the server. No label names a study, a client or a token: labels are routes, methods, statuses
//! and error codes, so their number is bounded.

use std::{fmt, sync::Arc, time::Duration};

use axum::http::{Method, StatusCode};
use eigenveil_shared::{
    ErrorCode, Result,
    api::{ReportOutcome, StudyState},
    names,
};
use eigenveil_store::{Store, StoreCounters, signed};
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
    pub(crate) connections: Gauge,
    pub(crate) connections_evicted: Counter,
    pub(crate) connections_refused: Counter,
    estimate_duration: Family<Label, Histogram, fn() -> Histogram>,
    // The rest is measured when the metrics are read.
    studies: Family<Label, Gauge>,
    /// Bodies being read or waiting for a commit.
    ingest_bytes: Gauge,
    resident_bytes: Gauge,
}

impl Metrics {
    /// New metrics, with those of a store with or without a disk of its own, for a write queue of this capacity. They are
    /// shown in the order in which they are registered here.
    pub(crate) fn new(
        store: &StoreCounters,
        max_queued_requests: usize,
        has_disk: bool,
    ) -> Arc<Self> {
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

        registry.register_with_unit(
            "commit_duration",
            "Time from the start of a group commit until it is on disk",
            Unit::Seconds,
            store.commit_seconds.clone(),
        );
        let help = "Reports in a commit";
        registry.register("commit_reports", help, store.commit_reports.clone());

        let help = "Commits that failed; nothing of them was counted";
        registry.register("commit_failures", help, store.commit_failures.clone());

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

        let mut gauge =
            |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        let help = "Requests waiting for the writer";
        gauge("queue_depth", help, &store.queue_depth);
        let queue_capacity: Gauge = Gauge::default();
        queue_capacity.set(signed(max_queued_requests as u64));
        let help = "Maximum number of requests waiting for the writer";
        gauge("queue_capacity", help, &queue_capacity);
        let connections = Gauge::default();
        gauge("connections", "Connections being served", &connections);
        let help = "Estimates waiting or being computed";
        gauge("estimates_waiting", help, &store.estimates_waiting);
        let help = "1 while the last commit succeeded and no damage was found, else 0";
        gauge("store_healthy", help, &store.store_healthy);

        let mut bytes = |name: &str, help: &str, gauge: &Gauge| {
            registry.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        };
        let help = "Size of the database, an embedded one's write-ahead log included";
        bytes("store", help, &store.store_bytes);
        let help = "Free space on the disk of the data directory";
        // A 0 would be an alert.
        if has_disk {
            bytes("disk_free", help, &store.disk_free_bytes);
        }
        let ingest_bytes = Gauge::default();
        let help = "Bodies being read or waiting for a commit";
        bytes("ingest", help, &ingest_bytes);
        let resident_bytes = Gauge::default();
        let help = "Physical memory of the process";
        bytes("resident_memory", help, &resident_bytes);

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
            connections,
            connections_evicted,
            connections_refused,
            estimate_duration,
            studies,
            ingest_bytes,
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

    pub(crate) fn estimate_ended(&self, end: EstimateEnd, took: Duration) {
        let histogram = self.estimate_duration.get_or_create(&end.label());
        histogram.observe(took.as_secs_f64());
    }

    /// Measures what is not counted continuously. Blocks while reading.
    pub(crate) fn measure(&self, store: &Store) -> Result<()> {
        self.ingest_bytes
            .set(signed(store.ingest_memory().used() as u64));
        let studies = store.studies();
        for state in [StudyState::Draft, StudyState::Open, StudyState::Closed] {
            let of_it = studies.iter().filter(|study| study.state() == state);
            self.studies
                .get_or_create(&[("state", state.as_str())])
                .set(signed(of_it.count() as u64));
        }
        store.measure()
    }

    pub(crate) fn render(&self) -> std::result::Result<String, fmt::Error> {
        self.resident_bytes.set(resident_memory());
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
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
        let metrics = Metrics::new(&StoreCounters::default(), 7, true);
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
            let text = Metrics::new(&StoreCounters::default(), 7, has_disk)
                .render()
                .unwrap();
            assert_eq!(text.contains("disk_free"), has_disk);
        }
    }
}
