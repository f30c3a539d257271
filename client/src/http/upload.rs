//! Sending an outbox.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    api::{BatchResponse, ReportOutcome, ReportResponse},
    enrolment::ParticipantToken,
};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, timeout_at},
};

use super::{
    RetryPolicy, Study, StudyClient,
    study::{ReportRequest, is_study_level, is_transient},
    transport::Counters,
};
use crate::{
    error::{Error, Result},
    outbox::{Outbox, PendingReport, Refusal},
};

/// Size a batch aims at: large enough for few requests, small enough to repeat.
const BATCH_BYTES: usize = 1 << 20;
/// A small upload is split into up to this many requests. All reports of one commit go to one of 32 buckets, and
/// estimates get their error bars from the differences between buckets; four connections may share a commit.
const TARGET_BATCHES: u64 = 128;
/// Acknowledgements of single reports are recorded this many at a time, or this often.
const RECORD_EVERY: usize = 256;
const RECORD_INTERVAL: Duration = Duration::from_millis(250);
/// How long to wait for responses to requests in flight once the upload has to stop.
const GRACE: Duration = Duration::from_secs(2);

/// How reports are put into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadMode {
    /// One report a request.
    Single,
    /// Several reports a request; `None` lets their size and number decide: about a megabyte, or the 128th part of a small
    /// upload, so that the server has groups of reports to compare. Never more than the study allows.
    Batch {
        /// Most reports in one request.
        reports: Option<usize>,
    },
}

/// How an outbox is sent.
#[derive(Clone, Copy, Debug)]
pub struct UploadSettings {
    /// Requests under way at a time, each on its own connection; 0 counts as 1.
    pub connections: usize,
    /// Single reports or batches.
    pub mode: UploadMode,
    /// When a request is sent again.
    pub retry: RetryPolicy,
    /// Longest time for all of it (and two seconds for responses under way); what is left stays
    /// pending. `None`: as long as requests succeed.
    pub deadline: Option<Duration>,
}

impl Default for UploadSettings {
    /// Batches over four connections, patient.
    fn default() -> Self {
        Self {
            connections: 4,
            mode: UploadMode::Batch { reports: None },
            retry: RetryPolicy::patient(),
            deadline: None,
        }
    }
}

/// The outcome of the reports sent, final or so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UploadSummary {
    /// Reports the server stored and counted now.
    pub accepted: u64,
    /// Reports the server had before: an earlier response was lost.
    pub duplicates: u64,
    /// Reports the server refused for good; [`Outbox::refused`] and the [receipt](crate::Receipt) say why.
    pub refused: u64,
    /// Reports still to be sent.
    pub pending: u64,
    /// Bytes of reports sent, repeated ones included.
    pub bytes: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// An upload that stopped early: why, and what was done before. What was not acknowledged is still
/// pending.
#[derive(Debug)]
pub struct UploadFailure {
    /// Why it stopped.
    pub error: Error,
    /// What was done before.
    pub summary: UploadSummary,
}

impl fmt::Display for UploadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UploadSummary {
            accepted,
            duplicates,
            pending,
            ..
        } = self.summary;
        write!(
            f,
            "{}; {} reports were acknowledged in this upload and {pending} are still to be sent",
            self.error,
            accepted + duplicates
        )
    }
}

impl std::error::Error for UploadFailure {}

impl From<UploadFailure> for Error {
    fn from(failure: UploadFailure) -> Self {
        failure.error
    }
}

/// Sends an outbox to its study; see [`StudyClient`] for an example.
///
/// Each report goes out with the bytes it has in the outbox, as often as needed. A response that was
/// lost makes a duplicate of the next attempt, which the server counts once.
#[derive(Clone, Debug)]
pub struct Uploader {
    client: StudyClient,
    study: Study,
    settings: UploadSettings,
}

/// One request that has ended.
struct CompletedRequest {
    participants: Vec<u64>,
    outcome: Result<BatchResponse>,
    single: bool,
}

impl Uploader {
    /// An uploader to this study with these settings.
    pub fn new(client: &StudyClient, study: &Study, settings: UploadSettings) -> Self {
        Self {
            client: client.clone(),
            study: study.clone(),
            settings,
        }
    }

    /// Sends everything that is pending, once; `progress` is called after each request.
    ///
    /// Acknowledgements are written to the outbox on the calling thread, a few milliseconds each.
    /// Dropping the future stops the upload: what was not recorded stays pending, and is a duplicate
    /// if the server has it.
    ///
    /// # Errors
    /// Refusals that concern the study (`study-not-open`, `wrong-fingerprint`, …), a server that is
    /// still not there after the last retry, the deadline, an outbox of another study or one that
    /// cannot be written. A refusal of one report is no error: it is recorded in the outbox.
    pub async fn drain(
        &self,
        outbox: &mut Outbox,
        mut progress: impl FnMut(UploadSummary),
    ) -> Result<UploadSummary, UploadFailure> {
        let started = Instant::now();
        let mut upload = Upload {
            uploader: self,
            counters: Arc::new(Counters::default()),
            started,
            recorded: started,
            next: Some(0),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            total: 0,
            sent: UploadSummary::default(),
            stop: None,
        };
        let ended = upload.all(outbox, &mut progress).await;
        // Whatever happened: what is known to be stored is recorded.
        let recorded = upload.record(outbox);
        let counts = outbox.counts();
        let summary = UploadSummary {
            pending: counts.as_ref().map_or(0, |counts| counts.pending),
            ..upload.now()
        };
        match ended.and(recorded).and(counts) {
            Ok(_) => Ok(summary),
            Err(error) => Err(UploadFailure { error, summary }),
        }
    }

    /// The tokens of these reports, where the study wants any.
    fn tokens_of<'a>(
        &self,
        reports: &'a [PendingReport],
    ) -> Result<Option<Vec<&'a ParticipantToken>>> {
        if !self.study.needs_tokens() {
            return Ok(None);
        }
        let tokens = reports.iter().map(|report| {
            report.token.as_ref().ok_or_else(|| {
                SharedError::new(
                    ErrorCode::TokenRequired,
                    format!(
                        "study {} takes reports with a one-time token, and participant {} has none; give it one first",
                        self.study.id(),
                        report.participant
                    ),
                )
                .into()
            })
        });
        tokens.collect::<Result<_>>().map(Some)
    }

    /// Most reports in a request of an upload of `total`.
    fn batch_size(&self, total: u64) -> usize {
        match self.settings.mode {
            UploadMode::Single => 1,
            UploadMode::Batch { reports } => {
                let by_size = BATCH_BYTES / (16 + self.study.report_format().payload_len());
                let by_number = usize::try_from(total.div_ceil(TARGET_BATCHES));
                let usual = by_size.min(by_number.unwrap_or(usize::MAX));
                reports.unwrap_or(usual).clamp(1, self.study.max_batch())
            }
        }
    }
}

/// What is known of an upload while it goes on.
struct Upload<'a> {
    uploader: &'a Uploader,
    counters: Arc<Counters>,
    started: Instant,
    recorded: Instant,
    /// First participant not yet looked at; `None` at the end.
    next: Option<u64>,
    acknowledged: Vec<u64>,
    refused: Vec<(u64, String, String)>,
    /// Reports to send when it began.
    total: u64,
    sent: UploadSummary,
    stop: Option<(Error, Instant)>,
}

impl Upload<'_> {
    async fn all(
        &mut self,
        outbox: &mut Outbox,
        progress: &mut impl FnMut(UploadSummary),
    ) -> Result<()> {
        let settings = self.uploader.settings;
        if outbox.study_ref() != self.uploader.study.study_ref() {
            return Err(Error::study_mismatch(
                outbox.path(),
                "it does not belong to the study of this upload",
            ));
        }
        self.total = outbox.counts()?.pending;
        let deadline = settings.deadline.map(|limit| self.started + limit);
        let mut flight = JoinSet::new();
        loop {
            while self.stop.is_none() && flight.len() < settings.connections.max(1) {
                let reports = match self.next_reports(outbox) {
                    Ok(reports) if reports.is_empty() => break,
                    Ok(reports) => reports,
                    Err(error) => {
                        self.stop_for(error);
                        break;
                    }
                };
                match self.request(reports) {
                    Ok(request) => drop(flight.spawn(request)),
                    Err(error) => self.stop_for(error),
                }
            }
            let until = match (&self.stop, deadline) {
                (Some((_, until)), _) => Some(*until),
                (None, deadline) => deadline,
            };
            let ended = match until {
                Some(until) => timeout_at(until, flight.join_next()).await,
                None => Ok(flight.join_next().await),
            };
            match ended {
                Ok(Some(sent)) => self.ended(sent),
                Ok(None) => break,
                // The grace has run out.
                Err(_) if self.stop.is_some() => break,
                Err(_) => self.stop_for(Error::timed_out(format!(
                    "the upload did not finish within the {} s that it was given",
                    settings.deadline.unwrap_or_default().as_secs_f64()
                ))),
            }
            while let Some(sent) = flight.try_join_next() {
                self.ended(sent);
            }
            let waiting = self.acknowledged.len() + self.refused.len();
            if waiting >= RECORD_EVERY || self.recorded.elapsed() >= RECORD_INTERVAL {
                // An outbox that cannot be written stops the upload.
                if let Err(error) = self.record(outbox) {
                    self.stop_for(error);
                }
            }
            progress(self.now());
        }
        match self.stop.take() {
            Some((error, _)) => Err(error),
            None => Ok(()),
        }
    }

    /// The next reports to send; none at the end.
    fn next_reports(&mut self, outbox: &Outbox) -> Result<Vec<PendingReport>> {
        let Some(from) = self.next else {
            return Ok(Vec::new());
        };
        let most = self.uploader.batch_size(self.total);
        let reports = outbox.pending_from(from, most)?;
        self.next = reports.last().map(|report| report.participant + 1);
        Ok(reports)
    }

    /// The request with these reports, all its attempts included.
    fn request(
        &self,
        reports: Vec<PendingReport>,
    ) -> Result<impl Future<Output = CompletedRequest> + Send + use<>> {
        let uploader = self.uploader;
        let single = uploader.settings.mode == UploadMode::Single;
        let tokens = uploader.tokens_of(&reports)?;
        let request = match (&reports[..], single) {
            ([report], true) => {
                let token = tokens.as_ref().and_then(|tokens| tokens.first().copied());
                ReportRequest::one(uploader.study.id(), &report.report, token)
            }
            _ => ReportRequest::batch(
                &uploader.study,
                reports.iter().map(|r| &r.report),
                tokens.as_deref(),
            )?,
        };
        let participants = reports.iter().map(|report| report.participant).collect();
        drop(reports);
        let client = uploader.client.clone();
        let policy = uploader.settings.retry;
        let counters = Arc::clone(&self.counters);
        Ok(async move {
            let outcome = if single {
                let receipt: Result<ReportResponse> =
                    client.send(&request, Some(&policy), &counters).await;
                receipt.map(|receipt| BatchResponse {
                    accepted: u64::from(receipt.outcome == ReportOutcome::Accepted),
                    duplicates: u64::from(receipt.outcome == ReportOutcome::Duplicate),
                    refused: Vec::new(),
                })
            } else {
                client.send_batch(&request, Some(&policy), &counters).await
            };
            CompletedRequest {
                participants,
                outcome,
                single,
            }
        })
    }

    /// Takes in what became of one request.
    fn ended(&mut self, ended: Result<CompletedRequest, JoinError>) {
        let CompletedRequest {
            participants,
            outcome,
            single,
        } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                return self.stop_for(Error::usage(format!("a request was cut off: {error}")));
            }
        };
        match outcome {
            Ok(receipt) => self.receipt(&participants, receipt),
            Err(error) => match error.code_text() {
                Some(code) if single && is_refusal_of_a_report(&error) => {
                    self.record_refused(participants[0], code, error.detail());
                }
                _ => self.stop_for(error),
            },
        }
    }

    fn receipt(&mut self, participants: &[u64], receipt: BatchResponse) {
        self.sent.accepted += receipt.accepted;
        self.sent.duplicates += receipt.duplicates;
        let mut stored = vec![true; participants.len()];
        for refused in receipt.refused {
            // `check_receipt` saw to it that the index is one.
            let index = refused.index as usize;
            stored[index] = false;
            if is_study_level(refused.code) {
                self.stop_for(SharedError::new(refused.code, refused.detail).into());
            } else if !is_transient(refused.code) {
                self.record_refused(participants[index], refused.code.as_str(), &refused.detail);
            }
        }
        self.acknowledged.extend(
            participants
                .iter()
                .zip(stored)
                .filter_map(|(participant, stored)| stored.then_some(*participant)),
        );
    }

    fn record_refused(&mut self, participant: u64, code: &str, detail: &str) {
        self.sent.refused += 1;
        self.refused
            .push((participant, code.to_owned(), detail.to_owned()));
    }

    fn stop_for(&mut self, error: Error) {
        if self.stop.is_none() {
            self.stop = Some((error, Instant::now() + GRACE));
        }
    }

    /// Writes what is known to the outbox.
    fn record(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.acknowledged.is_empty() && self.refused.is_empty() {
            return Ok(());
        }
        let refusals: Vec<Refusal<'_>> = self
            .refused
            .iter()
            .map(|(participant, code, detail)| Refusal {
                participant: *participant,
                code,
                detail,
            })
            .collect();
        outbox.settle(&self.acknowledged, &refusals)?;
        self.acknowledged.clear();
        self.refused.clear();
        self.recorded = Instant::now();
        Ok(())
    }

    fn now(&self) -> UploadSummary {
        let done = self.sent.accepted + self.sent.duplicates + self.sent.refused;
        UploadSummary {
            pending: self.total.saturating_sub(done),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            retries: self.counters.retries.load(Ordering::Relaxed),
            seconds: self.started.elapsed().as_secs_f64(),
            ..self.sent
        }
    }
}

/// Whether the server refused one report, for good and for a reason of its own.
pub(super) fn is_refusal_of_a_report(error: &Error) -> bool {
    !error.is_retryable()
        && error
            .status()
            .is_some_and(|status| (400..500).contains(&status))
        && !error.code().is_some_and(is_study_level)
}
