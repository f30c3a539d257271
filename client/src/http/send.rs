//! Sending the pending reports of ledgers: one loop for a device's [`Ledger`] and for a [`RowLedger`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    enrolment::{Admission, Enrolment},
    report::ReportId,
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
    sqlite::{Ledger, RowLedger},
    study::Study,
};

/// Results of rows are written this many at a time, or this often.
const RECORD_EVERY: usize = 256;
const RECORD_INTERVAL: Duration = Duration::from_millis(250);
/// How long to wait for responses to requests in flight once nothing more is sent.
const GRACE: Duration = Duration::from_secs(2);

/// How reports are put into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadMode {
    /// One report a request.
    Single,
    /// Several reports a request; `None`: [`Study::usual_batch`]. Never more than the study allows.
    Batch {
        /// Most reports in one request.
        reports: Option<usize>,
    },
}

/// How the reports of a file of rows are sent.
#[derive(Clone, Copy, Debug)]
pub struct UploadSettings {
    /// Requests under way at a time, each on its own connection; 0 counts as 1.
    pub connections: usize,
    /// Single reports or batches.
    pub mode: UploadMode,
    /// Longest time for all of it (and two seconds for responses under way); what is left stays
    /// pending. `None`: as long as requests succeed.
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
    /// Reports the server refused for good; the ledger says why.
    pub refused: u64,
    /// Reports still to be sent.
    pub pending: u64,
    /// Bytes of requests sent, repeated ones included.
    pub bytes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Why reports are still to be sent. For a server that could not be reached only the first failures are listed: its
    /// other reports were not tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<SendFailure>,
}

/// Why reports of a study are still to be sent.
#[derive(Debug)]
pub struct SendFailure {
    /// The server.
    pub server: Server,
    /// The study.
    pub study: String,
    /// Why. It may work later if [`Error::is_retryable`]. `study-not-open` and the like stay until the study changes.
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

/// Sends every pending report of the ledger, each to its own server and study, as often as the retry
/// policy of `settings` says, and records what became of it.
///
/// Each report goes out with the bytes it has in the ledger. A response that was lost makes a duplicate
/// of the next attempt, which the server counts once. An unreachable server does not hold up reports for other
/// servers. Dropping the future stops the sending: what was not recorded stays pending.
///
/// # Errors
/// The ledger could not be read or written. Whatever a server responds is not an error, but in
/// [`SendSummary::failures`].
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
/// Each report goes out with the bytes it has in the ledger, as often as needed. A response that was lost makes a
/// duplicate of the next attempt, which the server counts once. Dropping the future stops the sending: what was not
/// recorded stays pending.
///
/// # Errors
/// The ledger could not be read or written. Refusals that concern the study (`study-not-open`, `wrong-fingerprint`, …),
/// a server that is still not there after the last retry, and the deadline are in [`SendSummary::failures`]. A refusal
/// of one report is recorded in the ledger.
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
    let source = PendingRows {
        ledger,
        study,
        single: sending.mode == UploadMode::Single,
        per_request,
        next: Some(0),
        rows: HashMap::new(),
        results: Vec::new(),
        recorded: Instant::now(),
    };
    send(source, total, settings, sending, progress).await
}

/// The ledger from which the loop sends.
trait Source {
    /// The next request that was not given yet, of those that are not stopped; or why there is none.
    fn next(&mut self, stopped: &Stopped) -> Result<Option<Result<Request, SendFailure>>>;
    /// Takes in what has become of its reports.
    fn record(&mut self, request: &Request, results: Vec<ReportResult>) -> Result<()>;
    /// Writes what was taken in.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    /// Reports that are not settled.
    fn pending(&self) -> Result<u64>;
}

/// Where nothing more is sent: servers that do not respond, and studies that refuse.
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

/// The state of a sending while it goes on.
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
    let mut flight = JoinSet::new();
    let mut flying: Vec<(Server, String)> = Vec::new();
    // Nothing more is sent; responses are waited for until then.
    let mut until: Option<Instant> = None;
    let mut broken = None;
    loop {
        while until.is_none() && flying.len() < sending.connections.max(1) {
            let request = match source.next(&state.stopped) {
                Ok(Some(Ok(request))) => request,
                Ok(Some(Err(failure))) => {
                    state.failed((failure.server, failure.study), failure.error);
                    continue;
                }
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    until = Some(Instant::now() + GRACE);
                    break;
                }
            };
            let target = (request.server.clone(), request.study.clone());
            match state.client(&request.server) {
                Ok(client) => {
                    flying.push(target);
                    let counters = Arc::clone(&state.counters);
                    flight.spawn(async move {
                        let answer = client.call_with_counters(&request, &counters).await;
                        (request, answer)
                    });
                }
                Err(error) => state.failed(target, error),
            }
        }
        if until.is_none()
            && !flying.is_empty()
            && flying
                .iter()
                .all(|(server, study)| state.stopped.has(server, study))
        {
            until = Some(Instant::now() + GRACE);
        }
        let tick = Instant::now() + RECORD_INTERVAL;
        let wake = [until, deadline.filter(|_| until.is_none())];
        let wake = wake.into_iter().flatten().fold(tick, Instant::min);
        let mut ended = match timeout_at(wake, flight.join_next()).await {
            Ok(None) => break,
            Ok(ended) => ended,
            Err(_) => {
                if let Err(error) = source.flush() {
                    broken.get_or_insert(error);
                    until.get_or_insert(Instant::now() + GRACE);
                }
                None
            }
        };
        while let Some(done) = ended {
            let recorded = match done {
                Ok((request, answer)) => {
                    let place = (request.server.clone(), request.study.clone());
                    if let Some(at) = flying.iter().position(|flying| *flying == place) {
                        flying.swap_remove(at);
                    }
                    source.record(&request, state.answered(place, answer))
                }
                Err(error) => Err(Error::usage(format!("a request was cut off: {error}"))),
            };
            if let Err(error) = recorded {
                broken.get_or_insert(error);
                until.get_or_insert(Instant::now() + GRACE);
            }
            ended = flight.try_join_next();
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        if until.is_none() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            until = Some(Instant::now() + GRACE);
            let error = Error::timed_out(format!(
                "the upload did not finish within the {} s that it was given",
                sending.deadline.unwrap_or_default().as_secs_f64()
            ));
            // Without a request under way there is nothing left to send.
            if let Some(place) = flying.first() {
                state.failed(place.clone(), error);
            }
        }
        if progress(state.now()).is_break() {
            until.get_or_insert(Instant::now() + GRACE);
        }
    }
    // Whatever happened: what is known to be stored is recorded.
    let flushed = source.flush();
    if let Some(error) = broken.or(flushed.err()) {
        return Err(error);
    }
    let pending = source.pending()?;
    state.now();
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
        let client = StudyClient::of(server, self.settings)?;
        self.clients.insert(server.clone(), client.clone());
        Ok(client)
    }

    fn answered(&mut self, place: (Server, String), answer: Answer) -> Vec<ReportResult> {
        for result in &answer.results {
            match result {
                ReportResult::Accepted => self.summary.accepted += 1,
                ReportResult::Duplicate => self.summary.duplicates += 1,
                ReportResult::Refused { .. } => self.summary.refused += 1,
                ReportResult::Pending => {}
            }
        }
        let partly = answer.results.iter().any(|r| *r != ReportResult::Pending);
        match answer.error {
            // The server goes on: what it left out is for another run.
            Some(error) if partly && error.is_retryable() => self.explain(place, error),
            Some(error) => self.failed(place, error),
            None => {}
        }
        answer.results
    }

    fn failed(&mut self, place: (Server, String), error: Error) {
        if error.is_retryable() {
            self.stopped.servers.insert(place.0.clone());
        }
        self.stopped.studies.insert(place.clone());
        self.explain(place, error);
    }

    /// Says why reports of a study are still to be sent: in the place of what may pass.
    fn explain(&mut self, (server, study): (Server, String), error: Error) {
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

    fn now(&mut self) -> &SendSummary {
        let done = self.summary.accepted + self.summary.duplicates + self.summary.refused;
        self.summary.pending = self.total.saturating_sub(done);
        self.summary.bytes = self.counters.bytes.load(Ordering::Relaxed);
        self.summary.retries = self.counters.retries.load(Ordering::Relaxed);
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
                // One that is damaged does not hold up the others.
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

/// The pending reports of one study of a ledger of rows.
struct PendingRows<'a> {
    ledger: &'a mut RowLedger,
    study: &'a Study,
    single: bool,
    per_request: usize,
    /// First row not yet looked at; `None` at the end.
    next: Option<u64>,
    /// Whose reports are under way.
    rows: HashMap<ReportId, u64>,
    /// Results that are not written yet.
    results: Vec<(u64, ReportResult)>,
    recorded: Instant,
}

impl PendingRows<'_> {
    fn without_token(&self, row: u64) -> SendFailure {
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
                (Enrolment::Token, None) => return Ok(Some(Err(self.without_token(pending.row)))),
            };
            reports.push((pending.report, admission));
        }
        let request = match (&reports[..], self.single) {
            ([(report, admission)], true) => self.study.upload_one(report, admission)?,
            (reports, _) => {
                let reports: Vec<_> = reports
                    .iter()
                    .map(|(r, admission)| (r, admission))
                    .collect();
                self.study.upload_batch(&reports)?
            }
        };
        Ok(Some(Ok(request)))
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
            // Kept when they cannot be written: a second attempt is harmless.
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
