//! Sends the pending reports of ledgers: one loop for a device's [`Ledger`] and for a [`RowLedger`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    enrolment::{Admission, Enrolment},
    report::{Report, ReportId},
};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{client::StudyClient, settings::HttpSettings, transport::Counters};
use crate::{
    book::Entry,
    error::{Error, Result},
    exchange::{Answer, ReportResult, Request, Server},
    site_study::SiteStudy,
    sqlite::{Ledger, RowLedger},
    study::Study,
    study_info::StudyInfo,
};

/// Number of results of rows, and interval, after which they are written.
const RECORD_EVERY: usize = 256;
const RECORD_INTERVAL: Duration = Duration::from_millis(250);
/// Time for responses to the requests in flight once nothing more is sent.
const GRACE: Duration = Duration::from_secs(2);

/// Number of reports per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadMode {
    /// One report per request.
    Single,
    /// Several reports per request; `None`: [`Study::usual_batch`]. Never more than the study allows.
    Batch {
        /// Maximum number of reports in one request.
        reports: Option<usize>,
    },
}

/// Settings for sending the reports of a file of rows.
#[derive(Clone, Copy, Debug)]
pub struct UploadSettings {
    /// Simultaneous requests, each on its own connection; 0 counts as 1.
    pub connections: usize,
    /// Single reports or batches.
    pub mode: UploadMode,
    /// Longest time for the whole upload (plus two seconds for responses in flight); the other reports stay pending.
    /// `None`: as long as requests succeed.
    pub deadline: Option<Duration>,
}

impl Default for UploadSettings {
    /// Batches over four connections.
    fn default() -> Self {
        Self {
            connections: 4,
            mode: UploadMode::Batch { reports: None },
            deadline: None,
        }
    }
}

/// The outcome of the reports sent, final or so far.
#[derive(Debug, Default, Serialize)]
pub struct SendSummary {
    /// Reports the server stored and counted now.
    pub accepted: u64,
    /// Reports the server had before: an earlier response was lost.
    pub duplicates: u64,
    /// Reports that the server refused permanently; the ledger has the reasons.
    pub refused: u64,
    /// Reports still to be sent.
    pub pending: u64,
    /// Bytes of requests sent, repeated ones included.
    pub bytes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// The failure after which a request is sent again only after some seconds, while it waits.
    #[serde(skip)]
    pub waiting: Option<String>,
    /// Reasons why reports are still to be sent. For an unreachable server only the first failures are listed: its
    /// other reports were not tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<SendFailure>,
}

/// The reason why reports of a study are still to be sent.
#[derive(Debug)]
pub struct SendFailure {
    /// The server.
    pub server: Server,
    /// The study.
    pub study: String,
    /// The error. Sending may work later if [`Error::is_retryable`]; errors such as `study-not-open` persist until the
    /// study changes.
    pub error: Error,
}

impl Serialize for SendFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut failure = serializer.serialize_struct("SendFailure", 5)?;
        failure.serialize_field("url", self.server.as_str())?;
        failure.serialize_field("study", &self.study)?;
        failure.serialize_field("code", self.error.name())?;
        failure.serialize_field("detail", self.error.detail())?;
        failure.serialize_field("retryable", &self.error.is_retryable())?;
        failure.end()
    }
}

/// Sends every pending report of the ledger, each to its own server and study, with retries by the policy of
/// `settings`, and records the outcomes.
///
/// Each report goes out with the bytes it has in the ledger. After a lost response the next attempt is a duplicate,
/// which the server counts once. An unreachable server does not delay reports for other servers. Dropping the future
/// stops the sending: reports without a recorded outcome stay pending.
///
/// # Errors
/// The ledger could not be read or written. Failures of servers are in [`SendSummary::failures`].
pub async fn send_pending(ledger: &mut Ledger, settings: &HttpSettings) -> Result<SendSummary> {
    let entries = VecDeque::from(ledger.pending()?);
    let (total, sending) = (entries.len() as u64, UploadSettings::default());
    let source = PendingEntries { ledger, entries };
    send(source, total, settings, &sending, |_| {
        ControlFlow::Continue(())
    })
    .await
}

/// Sends the reports of a file of rows that are pending, once, to their study; `progress` is called after each request,
/// several times a second, and may break.
///
/// Each report goes out with the bytes it has in the ledger, as often as needed. After a lost response the next attempt
/// is a duplicate, which the server counts once. Dropping the future stops the sending: reports without a recorded
/// outcome stay pending.
///
/// # Errors
/// The ledger could not be read or written. Refusals that concern the study (`study-not-open`, `wrong-fingerprint`, …),
/// a server that is still unreachable after the last retry, and the deadline are in [`SendSummary::failures`]. A
/// refusal of one report is recorded in the ledger.
pub async fn send_rows(
    ledger: &mut RowLedger,
    study: &Study,
    settings: &HttpSettings,
    sending: &UploadSettings,
    progress: impl FnMut(&SendSummary) -> ControlFlow<()>,
) -> Result<SendSummary> {
    let total = ledger.counts(study)?.pending;
    let per_request = match sending.mode {
        UploadMode::Single => 1,
        UploadMode::Batch { reports } => reports
            .unwrap_or_else(|| study.usual_batch(total))
            .clamp(1, study.max_batch()),
    };
    let encode = |reports: &[(Report, Admission)]| match (reports, sending.mode) {
        ([(report, admission)], UploadMode::Single) => study.upload_one(report, admission),
        _ => {
            let reports = reports
                .iter()
                .map(|(report, admission)| (report, admission));
            study.upload_batch(&reports.collect::<Vec<_>>())
        }
    };
    let source = PendingRows::new(ledger, study, per_request, &encode);
    send(source, total, settings, sending, progress).await
}

/// Sends the pending report of a site, as [`send_rows`] does.
///
/// # Errors
/// Those of [`send_rows`].
pub async fn send_site(
    ledger: &mut RowLedger,
    study: &SiteStudy,
    settings: &HttpSettings,
    progress: impl FnMut(&SendSummary) -> ControlFlow<()>,
) -> Result<SendSummary> {
    let total = ledger.counts(study)?.pending;
    let encode = |reports: &[(Report, Admission)]| match reports {
        [(report, admission)] => study.upload_one(report, admission),
        _ => Err(Error::usage("a site's reports are sent one by one")),
    };
    let source = PendingRows::new(ledger, study, 1, &encode);
    let sending = UploadSettings::default();
    send(source, total, settings, &sending, progress).await
}

/// The ledger from which the loop sends.
trait Source {
    /// The next request to a server and study that are not stopped; or the reason why it cannot be made.
    fn next(&mut self, stopped: &Stopped) -> Result<Option<Result<Request, SendFailure>>>;
    /// Takes in the outcomes of its reports.
    fn record(&mut self, request: &Request, results: Vec<ReportResult>) -> Result<()>;
    /// Writes the outcomes taken in so far.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    /// Reports that are not settled.
    fn pending(&self) -> Result<u64>;
}

/// Servers that do not respond, and studies that refuse: nothing more is sent to them.
#[derive(Default)]
struct Stopped {
    servers: BTreeSet<Server>,
    studies: BTreeSet<(Server, String)>,
}

impl Stopped {
    fn has(&self, server: &Server, study: &str) -> bool {
        self.servers.contains(server) || self.studies.contains(&(server.clone(), study.to_owned()))
    }
}

/// The state of a run of the loop.
struct Sending<'a> {
    settings: &'a HttpSettings,
    clients: BTreeMap<Server, StudyClient>,
    counters: Arc<Counters>,
    stopped: Stopped,
    summary: SendSummary,
    started: Instant,
    /// Reports to send when it began.
    total: u64,
}

async fn send<S: Source>(
    mut source: S,
    total: u64,
    settings: &HttpSettings,
    sending: &UploadSettings,
    mut progress: impl FnMut(&SendSummary) -> ControlFlow<()>,
) -> Result<SendSummary> {
    let mut state = Sending {
        settings,
        clients: BTreeMap::new(),
        counters: Arc::new(Counters::default()),
        stopped: Stopped::default(),
        summary: SendSummary::default(),
        started: Instant::now(),
        total,
    };
    let deadline = sending.deadline.map(|limit| state.started + limit);
    let mut tasks = JoinSet::new();
    let mut in_flight: Vec<(Server, String)> = Vec::new();
    // If set, nothing more is sent, and responses are awaited until then.
    let mut stop_at: Option<Instant> = None;
    let mut ledger_error = None;
    loop {
        while stop_at.is_none() && in_flight.len() < sending.connections.max(1) {
            let request = match source.next(&state.stopped) {
                Ok(Some(Ok(request))) => request,
                Ok(Some(Err(failure))) => {
                    state.stop_target((failure.server, failure.study), failure.error);
                    continue;
                }
                Ok(None) => break,
                Err(error) => {
                    ledger_error = Some(error);
                    stop_at = Some(Instant::now() + GRACE);
                    break;
                }
            };
            let target = (request.server.clone(), request.study.clone());
            match state.client(&request.server) {
                Ok(client) => {
                    in_flight.push(target);
                    let counters = Arc::clone(&state.counters);
                    tasks.spawn(async move {
                        let answer = client.call_with_counters(&request, &counters).await;
                        (request, answer)
                    });
                }
                Err(error) => state.stop_target(target, error),
            }
        }
        if stop_at.is_none()
            && !in_flight.is_empty()
            && in_flight
                .iter()
                .all(|(server, study)| state.stopped.has(server, study))
        {
            stop_at = Some(Instant::now() + GRACE);
        }
        let next_flush = Instant::now() + RECORD_INTERVAL;
        let wake = [stop_at, deadline.filter(|_| stop_at.is_none())];
        let wake = wake.into_iter().flatten().fold(next_flush, Instant::min);
        let mut next_done = match timeout_at(wake, tasks.join_next()).await {
            Ok(None) => break,
            Ok(next_done) => next_done,
            Err(_) => {
                if let Err(error) = source.flush() {
                    ledger_error.get_or_insert(error);
                    stop_at.get_or_insert(Instant::now() + GRACE);
                }
                None
            }
        };
        while let Some(done) = next_done {
            let recorded = match done {
                Ok((request, answer)) => {
                    let target = (request.server.clone(), request.study.clone());
                    if let Some(index) = in_flight.iter().position(|in_flight| *in_flight == target)
                    {
                        in_flight.swap_remove(index);
                    }
                    source.record(&request, state.answered(target, answer))
                }
                Err(error) => Err(Error::usage(format!("a request was cut off: {error}"))),
            };
            if let Err(error) = recorded {
                ledger_error.get_or_insert(error);
                stop_at.get_or_insert(Instant::now() + GRACE);
            }
            next_done = tasks.try_join_next();
        }
        if stop_at.is_some_and(|stop_at| Instant::now() >= stop_at) {
            break;
        }
        if stop_at.is_none() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            stop_at = Some(Instant::now() + GRACE);
            let error = Error::timed_out(format!(
                "the upload did not finish within its limit of {} s",
                sending.deadline.unwrap_or_default().as_secs_f64()
            ));
            // Without a request in flight there is nothing left to send.
            if let Some(target) = in_flight.first() {
                state.stop_target(target.clone(), error);
            }
        }
        if progress(state.update_summary()).is_break() {
            stop_at.get_or_insert(Instant::now() + GRACE);
        }
    }
    // In any case record the outcomes that are known.
    let flushed = source.flush();
    if let Some(error) = ledger_error.or(flushed.err()) {
        return Err(error);
    }
    let pending = source.pending()?;
    state.update_summary();
    Ok(SendSummary {
        pending,
        ..state.summary
    })
}

impl Sending<'_> {
    fn client(&mut self, server: &Server) -> Result<StudyClient> {
        if let Some(client) = self.clients.get(server) {
            return Ok(client.clone());
        }
        let client = StudyClient::for_server(server, self.settings)?;
        self.clients.insert(server.clone(), client.clone());
        Ok(client)
    }

    fn answered(&mut self, target: (Server, String), answer: Answer) -> Vec<ReportResult> {
        for result in &answer.results {
            match result {
                ReportResult::Accepted => self.summary.accepted += 1,
                ReportResult::Duplicate => self.summary.duplicates += 1,
                ReportResult::Refused { .. } => self.summary.refused += 1,
                ReportResult::Pending => {}
            }
        }
        let some_settled = answer.results.iter().any(|r| *r != ReportResult::Pending);
        match answer.error {
            // The server still works: the reports that it left out are for another run.
            Some(error) if some_settled && error.is_retryable() => self.add_failure(target, error),
            Some(error) => self.stop_target(target, error),
            None => {}
        }
        answer.results
    }

    fn stop_target(&mut self, target: (Server, String), error: Error) {
        if error.is_retryable() {
            self.stopped.servers.insert(target.0.clone());
        }
        self.stopped.studies.insert(target.clone());
        self.add_failure(target, error);
    }

    /// Records why reports of a study are still to be sent; replaces temporary reasons.
    fn add_failure(&mut self, (server, study): (Server, String), error: Error) {
        let failures = &mut self.summary.failures;
        failures.retain(|known| {
            !(known.server == server && known.study == study && known.error.is_retryable())
        });
        failures.push(SendFailure {
            server,
            study,
            error,
        });
    }

    fn update_summary(&mut self) -> &SendSummary {
        let done = self.summary.accepted + self.summary.duplicates + self.summary.refused;
        self.summary.pending = self.total.saturating_sub(done);
        self.summary.bytes = self.counters.bytes.load(Ordering::Relaxed);
        self.summary.retries = self.counters.attempts.repeated.load(Ordering::Relaxed);
        self.summary.waiting = self.counters.attempts.waiting();
        self.summary.seconds = self.started.elapsed().as_secs_f64();
        &self.summary
    }
}

/// The pending reports of a device, one per study.
struct PendingEntries<'a> {
    ledger: &'a mut Ledger,
    entries: VecDeque<Entry>,
}

impl Source for PendingEntries<'_> {
    fn next(&mut self, stopped: &Stopped) -> Result<Option<Result<Request, SendFailure>>> {
        while let Some(entry) = self.entries.pop_front() {
            if !stopped.has(entry.server(), entry.study()) {
                self.ledger.check_current()?;
                // A damaged report does not hold up the others.
                return Ok(Some(self.ledger.request(&entry).map_err(|error| {
                    SendFailure {
                        server: entry.server().clone(),
                        study: entry.study().to_owned(),
                        error,
                    }
                })));
            }
        }
        Ok(None)
    }

    fn record(&mut self, request: &Request, results: Vec<ReportResult>) -> Result<()> {
        self.ledger.record(request, &results)
    }

    fn pending(&self) -> Result<u64> {
        Ok(self.ledger.pending()?.len() as u64)
    }
}

/// Makes the request of these reports.
type Encode<'a> = &'a (dyn Fn(&[(Report, Admission)]) -> Result<Request> + Sync);

/// The pending reports of one study of a ledger of rows.
struct PendingRows<'a> {
    ledger: &'a mut RowLedger,
    study: &'a StudyInfo,
    per_request: usize,
    encode: Encode<'a>,
    /// First row not yet read; `None` at the end.
    next: Option<u64>,
    /// Rows of the reports in flight.
    rows: HashMap<ReportId, u64>,
    /// Results that are not written yet.
    results: Vec<(u64, ReportResult)>,
    recorded: Instant,
}

impl<'a> PendingRows<'a> {
    fn new(
        ledger: &'a mut RowLedger,
        study: &'a StudyInfo,
        per_request: usize,
        encode: Encode<'a>,
    ) -> Self {
        Self {
            ledger,
            study,
            per_request,
            encode,
            next: Some(0),
            rows: HashMap::new(),
            results: Vec::new(),
            recorded: Instant::now(),
        }
    }

    fn missing_token(&self, row: u64) -> SendFailure {
        let study = self.study.id();
        SendFailure {
            server: self.study.server().clone(),
            study: study.to_owned(),
            error: SharedError::new(
                ErrorCode::TokenRequired,
                format!(
                    "study {study} takes reports with a one-time token, and row {} has none; give it one first",
                    row + 1
                ),
            )
            .into(),
        }
    }
}

impl Source for PendingRows<'_> {
    fn next(&mut self, stopped: &Stopped) -> Result<Option<Result<Request, SendFailure>>> {
        let Some(from) = self.next else {
            return Ok(None);
        };
        if stopped.has(self.study.server(), self.study.id()) {
            return Ok(None);
        }
        let pending = self.ledger.pending(self.study, from, self.per_request)?;
        self.next = pending.last().map(|pending| pending.row + 1);
        if pending.is_empty() {
            return Ok(None);
        }
        let mut reports = Vec::with_capacity(pending.len());
        for pending in pending {
            self.rows.insert(pending.report.id, pending.row);
            let admission = match (self.study.enrolment(), pending.token) {
                (Enrolment::Open, _) => Admission::Open,
                (Enrolment::Token, Some(token)) => Admission::Token(token),
                (Enrolment::Token, None) => return Ok(Some(Err(self.missing_token(pending.row)))),
            };
            reports.push((pending.report, admission));
        }
        Ok(Some(Ok((self.encode)(&reports)?)))
    }

    fn record(&mut self, request: &Request, results: Vec<ReportResult>) -> Result<()> {
        for (id, result) in request.reports().iter().zip(results) {
            if let Some(row) = self.rows.remove(id) {
                self.results.push((row, result));
            }
        }
        if self.results.len() >= RECORD_EVERY || self.recorded.elapsed() >= RECORD_INTERVAL {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.results.is_empty() {
            // Cleared only after they are written: a second attempt is harmless.
            self.ledger
                .record(self.study, self.results.iter().cloned())?;
            self.results.clear();
        }
        self.recorded = Instant::now();
        Ok(())
    }

    fn pending(&self) -> Result<u64> {
        Ok(self.ledger.counts(self.study)?.pending)
    }
}
