//! OwedSender what a device owes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use eigenveil_shared::{
    api::{ReportOutcome, ReportResponse},
    report::ReportId,
};
use tokio::{task::JoinSet, time::Instant};

use super::{
    HttpSettings, StudyClient, UploadSummary, study::ReportRequest, transport::Counters,
    upload::is_refusal_of_a_report,
};
use crate::{
    error::{Error, Result},
    ledger::{Entry, Ledger},
    outbox::StudyRef,
};

/// Requests under way at a time.
const CONNECTIONS: usize = 4;

/// Why a report is still owed.
#[derive(Debug)]
pub struct SendFailure {
    /// The server and the study.
    pub study_ref: StudyRef,
    /// Why. It may work later if [`Error::is_retryable`]. `study-not-open` and the like stay until the
    /// study changes; [`Ledger::record_refused`] gives such a report up.
    pub error: Error,
}

/// One request that has ended, with all its attempts.
struct CompletedRequest {
    study_ref: StudyRef,
    id: ReportId,
    outcome: Result<ReportResponse>,
}

/// Sends everything the ledger owes, each report to its own server and study, as often as the retry
/// policy of `settings` says, and records what became of it.
///
/// Each report goes out with the bytes it has in the ledger. A response that was lost makes a duplicate
/// of the next attempt, which the server counts once. An unreachable server does not hold up reports for other
/// servers. Dropping the future stops the sending: what was not recorded stays owed.
///
/// Returns what was sent and why reports are still owed. For a server that could not be reached only the first
/// failures are listed: its other studies were not tried. [`blocking`](crate::blocking) has an example.
///
/// # Errors
/// The ledger could not be read or written. Whatever a server responds is not an error.
pub async fn send_owed(
    ledger: &mut Ledger,
    settings: &HttpSettings,
) -> Result<(UploadSummary, Vec<SendFailure>)> {
    let started = Instant::now();
    let mut sending = OwedSender {
        settings,
        counters: Arc::new(Counters::default()),
        clients: BTreeMap::new(),
        unreachable: BTreeSet::new(),
        sent: UploadSummary::default(),
        failures: Vec::new(),
    };
    let mut waiting = ledger.owed_entries()?.into_iter();
    let mut flight = JoinSet::new();
    let mut broken = None;
    loop {
        while broken.is_none() && flight.len() < CONNECTIONS {
            let Some(entry) = waiting.next() else { break };
            match sending.request(ledger, entry) {
                Ok(Some(request)) => drop(flight.spawn(request)),
                Ok(None) => {}
                Err(error) => broken = Some(error),
            }
        }
        let Some(ended) = flight.join_next().await else {
            break;
        };
        let recorded = match ended {
            Ok(ended) => sending.ended(ledger, ended),
            Err(error) => Err(Error::usage(format!("a request was cut off: {error}"))),
        };
        // What is under way may still be recorded.
        broken = broken.or(recorded.err());
    }
    if let Some(error) = broken {
        return Err(error);
    }
    let sent = UploadSummary {
        pending: ledger.owed_entries()?.len() as u64,
        bytes: sending.counters.bytes.load(Ordering::Relaxed),
        retries: sending.counters.retries.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
        ..sending.sent
    };
    Ok((sent, sending.failures))
}

/// What is known while it goes on.
struct OwedSender<'a> {
    settings: &'a HttpSettings,
    counters: Arc<Counters>,
    clients: BTreeMap<String, StudyClient>,
    unreachable: BTreeSet<String>,
    sent: UploadSummary,
    failures: Vec<SendFailure>,
}

impl OwedSender<'_> {
    /// The request with this report, all its attempts included; none where it cannot be made.
    fn request(
        &mut self,
        ledger: &Ledger,
        entry: Entry,
    ) -> Result<Option<impl Future<Output = CompletedRequest> + Send + use<>>> {
        if self.unreachable.contains(entry.study_ref.server()) {
            return Ok(None);
        }
        let client = match self.client(entry.study_ref.server()) {
            Ok(client) => client,
            Err(error) => {
                self.failed(entry.study_ref, error);
                return Ok(None);
            }
        };
        let owed = ledger.report_of(entry)?;
        let request = ReportRequest::one(owed.study_ref.study(), &owed.report, owed.token.as_ref());
        let (study_ref, id) = (owed.study_ref, owed.report.id);
        let policy = self.settings.retry;
        let counters = Arc::clone(&self.counters);
        Ok(Some(async move {
            CompletedRequest {
                outcome: client.send(&request, Some(&policy), &counters).await,
                study_ref,
                id,
            }
        }))
    }

    fn client(&mut self, server: &str) -> Result<StudyClient> {
        if let Some(client) = self.clients.get(server) {
            return Ok(client.clone());
        }
        let client = StudyClient::with_settings(server, self.settings)?;
        self.clients.insert(server.to_owned(), client.clone());
        Ok(client)
    }

    fn ended(&mut self, ledger: &mut Ledger, ended: CompletedRequest) -> Result<()> {
        let CompletedRequest {
            study_ref,
            id,
            outcome,
        } = ended;
        match outcome {
            Ok(response) => {
                ledger.record_acknowledged(id)?;
                match response.outcome {
                    ReportOutcome::Accepted => self.sent.accepted += 1,
                    ReportOutcome::Duplicate => self.sent.duplicates += 1,
                }
            }
            Err(error) => match error.code_text() {
                Some(code) if is_refusal_of_a_report(&error) => {
                    ledger.record_refused(id, code, error.detail())?;
                    self.sent.refused += 1;
                }
                _ => self.failed(study_ref, error),
            },
        }
        Ok(())
    }

    fn failed(&mut self, study_ref: StudyRef, error: Error) {
        if error.is_retryable() {
            self.unreachable.insert(study_ref.server().to_owned());
        }
        self.failures.push(SendFailure { study_ref, error });
    }
}
