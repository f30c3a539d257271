//! Uploading reports: one, or a batch.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_shared::{
    Error, ErrorCode, about,
    api::{
        BatchResponse, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, RefusedReport, ReportOutcome,
        ReportResponse, StudyState,
    },
    enrolment::{Enrolment, Frame},
    error,
    wording::counted,
};
use eigenveil_store::{ClientKey, NewReport, Reservation, Store, Study, SubmitOutcome, no_batches};
use smallvec::{SmallVec, smallvec};

use super::{
    body,
    extract::{StudyInPath, hide_draft},
    openapi::{Binary, ErrorResponses},
    problem::ApiError,
    rate_limit_layer::client_key,
    run_blocking,
};
use crate::app::AppState;

/// Send one report, or a batch
///
/// The layouts are in docs/protocol.md. Idempotent: the same bytes sent again are counted once.
#[utoipa::path(
    post, path = "/v1/studies/{id}/reports", tag = "reports",
    params(("id" = String, Path, description = "Identifier of the study")),
    request_body(content(
        (inline(Binary) = "application/vnd.eigenveil.report"),
        (inline(Binary) = "application/vnd.eigenveil.report-batch"),
        (inline(Binary) = "application/vnd.eigenveil.enrolled-report"),
        (inline(Binary) = "application/vnd.eigenveil.enrolled-report-batch"),
    )),
    responses((status = 201, description = "One report, counted now", body = ReportResponse), (status = 200, description = "A report that was counted before; or the outcome of a batch", body = UploadResponse), ErrorResponses),
)]
pub(crate) async fn submit(
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let client = client_key(&app, request.headers(), request.extensions());
    store(&app, study, request, client.as_ref()).await
}

/// Stores the reports of a request whose client is known.
pub(crate) async fn store(
    app: &AppState,
    study: Arc<Study>,
    request: Request,
    client: Option<&ClientKey>,
) -> Result<Response, ApiError> {
    let result = store_reports(app, study, request, client).await;
    if let Err(ApiError { error, .. }) = &result {
        app.metrics().report_rejected(error.code());
    }
    result
}

async fn store_reports(
    app: &AppState,
    study: Arc<Study>,
    request: Request,
    client: Option<&ClientKey>,
) -> Result<Response, ApiError> {
    hide_draft(&study, false)?;
    let (parts, content) = request.into_parts();
    let media_type = body::media_type(&parts.headers);
    let Some(frame) = Frame::parse(media_type) else {
        return Err(body::unsupported_media_type(
            media_type,
            &format!(
                "{REPORT_MEDIA_TYPE} or {REPORT_BATCH_MEDIA_TYPE}, or their enrolled variants"
            ),
        )
        .into());
    };
    if frame.batched && study.has_sites() {
        return Err(no_batches(&study).into());
    }
    let payload_len = study.payload_len();
    // Reports counted before are recognised in any state; a study with no reports has none.
    let over = study.about().is_over(app.store().unix_ms());
    let open = study.state() == StudyState::Open && !over;
    if !open && study.reports_accepted() == 0 {
        return Err(not_accepting_error(&study, over).into());
    }
    let mut reservation = Reservation::for_client(app.store().ingest_memory(), client);
    let needs_token = study.enrolment() == Enrolment::Token;
    if !open || needs_token && frame.enrolment == Enrolment::Open {
        // Bodies that cannot be counted must not take memory from those that can.
        reservation = reservation.low_priority();
    }
    let limit = frame.body_limit(payload_len);
    let (bytes, mut reservation) =
        body::read_into(app, &parts.headers, content, limit, reservation).await?;
    if frame.batched {
        let decoded = decode_batch(&bytes, frame, &study)?;
        drop(bytes);
        let mut batch = Batch::partition(decoded);
        let reports = std::mem::take(&mut batch.reports);
        let stored = if reports.is_empty() {
            SmallVec::new()
        } else {
            app.store()
                .submit_reserved(&study, reports.into(), reservation)
                .await?
        };
        let response = batch.response(app.store(), &study, &stored)?;
        let metrics = app.metrics();
        metrics.reports_counted(response.accepted, response.duplicates);
        for report in &response.refused {
            metrics.report_rejected(report.code);
        }
        return Ok(Json(UploadResponse::Batch(response)).into_response());
    }
    let report = match study.has_sites() {
        false => decode_report(&bytes, frame, &study)?,
        true => {
            // Decoded, and in a full square.
            reservation.grow(3 * payload_len)?;
            read_site_report(app, &study, &bytes, frame).await?
        }
    };
    let failed = report.refusal().cloned();
    // Both are in the buffer that the connection's next request may use.
    drop((bytes, parts));
    let stored = app
        .store()
        .submit_reserved(&study, smallvec![report], reservation)
        .await?;
    let stored = stored.first().copied().unwrap_or(SubmitOutcome::NotOpen);
    if let Some(error) = refusal(app.store(), &study, stored) {
        let reason = failed.filter(|failed| failed.code() == error.code());
        return Err(reason.unwrap_or(error).into());
    }
    let (status, outcome) = match stored {
        SubmitOutcome::Accepted => (StatusCode::CREATED, ReportOutcome::Accepted),
        _ => (StatusCode::OK, ReportOutcome::Duplicate),
    };
    let accepted = u64::from(outcome == ReportOutcome::Accepted);
    let metrics = app.metrics();
    metrics.reports_counted(accepted, 1 - accepted);
    let response = UploadResponse::One(ReportResponse { outcome });
    Ok((status, Json(response)).into_response())
}

fn decode_report(bytes: &Bytes, frame: Frame, study: &Study) -> Result<NewReport, Error> {
    let (admissions, report) = frame.split(bytes)?;
    let report = NewReport::decode(&bytes.slice_ref(report), study)?;
    Ok(report.admitted_by(&admissions.get(0)))
}

/// Decodes and tests a site's report, outside the serving threads.
async fn read_site_report(
    app: &AppState,
    study: &Arc<Study>,
    bytes: &Bytes,
    frame: Frame,
) -> Result<NewReport, Error> {
    let (app, study, bytes) = (app.clone(), Arc::clone(study), bytes.clone());
    let read = move || {
        let (admissions, report) = frame.split(&bytes)?;
        let report = bytes.slice_ref(report);
        app.store()
            .read_site_report(&study, &report, &admissions.get(0))
    };
    run_blocking(read).await
}

fn decode_batch(
    bytes: &Bytes,
    frame: Frame,
    study: &Study,
) -> Result<Vec<Result<NewReport, Error>>, Error> {
    let (admissions, batch) = frame.split(bytes)?;
    let reports = NewReport::decode_batch(&bytes.slice_ref(batch), study)?;
    if frame.enrolment == Enrolment::Open {
        return Ok(reports);
    }
    if admissions.len() != reports.len() {
        return Err(error!(
            MalformedReport,
            "the batch has {} for {}; send one token for each report",
            counted(admissions.len() as u64, "token"),
            counted(reports.len() as u64, "report")
        ));
    }
    let admitted = (0..).zip(reports);
    Ok(admitted
        .map(|(at, report)| report.map(|report| report.admitted_by(&admissions.get(at))))
        .collect())
}

/// The outcome of an upload.
#[derive(serde::Serialize, utoipa::ToSchema)]
#[serde(untagged)]
enum UploadResponse {
    One(ReportResponse),
    Batch(BatchResponse),
}

/// A batch, split into well-formed and rejected reports.
struct Batch {
    reports: Vec<NewReport>,
    /// The position in the batch of each of `reports`.
    positions: Vec<u32>,
    refused: Vec<RefusedReport>,
}

impl Batch {
    fn partition(decoded: Vec<eigenveil_shared::Result<NewReport>>) -> Self {
        let mut batch = Self {
            reports: Vec::with_capacity(decoded.len()),
            positions: Vec::with_capacity(decoded.len()),
            refused: Vec::new(),
        };
        for (index, report) in (0..).zip(decoded) {
            match report {
                Ok(report) => {
                    batch.reports.push(report);
                    batch.positions.push(index);
                }
                Err(error) => batch.refused.push(rejected(index, &error)),
            }
        }
        batch
    }

    /// The response. A study that is not open, or was deleted, rejects the batch as a whole, unless some of its reports
    /// were counted before: then each report gets its own outcome.
    fn response(
        mut self,
        store: &Store,
        study: &Study,
        stored: &[SubmitOutcome],
    ) -> Result<BatchResponse, ApiError> {
        let count = |wanted| stored.iter().filter(|s| **s == wanted).count() as u64;
        let (accepted, duplicates) = (
            count(SubmitOutcome::Accepted),
            count(SubmitOutcome::Duplicate),
        );
        for (&index, &stored) in self.positions.iter().zip(stored) {
            let Some(error) = refusal(store, study, stored) else {
                continue;
            };
            if accepted + duplicates == 0 && !matches!(stored, SubmitOutcome::NotAdmitted(_)) {
                return Err(error.into());
            }
            self.refused.push(rejected(index, &error));
        }
        self.refused.sort_by_key(|report| report.index);
        Ok(BatchResponse {
            accepted,
            duplicates,
            refused: self.refused,
        })
    }
}

fn rejected(index: u32, error: &Error) -> RefusedReport {
    RefusedReport {
        index,
        code: error.code(),
        detail: error.detail().to_owned(),
    }
}

fn refusal(store: &Store, study: &Study, outcome: SubmitOutcome) -> Option<Error> {
    Some(match outcome {
        SubmitOutcome::Accepted | SubmitOutcome::Duplicate => return None,
        SubmitOutcome::NotOpen => not_accepting_error(study, false),
        SubmitOutcome::Ended => not_accepting_error(study, true),
        SubmitOutcome::NotAdmitted(code) => token_error(code),
        SubmitOutcome::NoRoom => store.no_room(study),
        SubmitOutcome::StudyDeleted => error!(
            StudyNotFound,
            "study {} was deleted; nothing was counted",
            study.id()
        ),
    })
}

fn token_error(code: ErrorCode) -> Error {
    let why = match code {
        ErrorCode::TokenRequired => {
            "this study accepts reports only with a one-time token, and this one has none; ask the people who run the study for a token"
        }
        // The test of the report says more.
        ErrorCode::ImplausibleReport => "no site of this study sends such a report",
        ErrorCode::TokenSpent => {
            "another report was counted with this token, which is valid for one; ask the people who run the study for another"
        }
        _ => {
            "the study has no such token; check that it was copied completely and is for this study"
        }
    };
    Error::new(code, why)
}

fn not_accepting_error(study: &Study, over: bool) -> Error {
    if let (true, Some(day)) = (over, study.about().last_day) {
        return about::study_ended_error(&study.id().to_string(), day, "this one was not counted");
    }
    error!(
        StudyNotOpen,
        "study {} is {} and accepts no reports; this one was not counted",
        study.id(),
        study.state().as_str()
    )
}
