//! Taking reports: one, or a framed batch.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    Error, ErrorCode,
    api::{
        BatchReceipt, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, RefusedReport, ReportOutcome,
        ReportReceipt,
    },
    codec,
};
use smallvec::{SmallVec, smallvec};

use super::{body, extract::StudyInPath, problem::ApiError};
use crate::{
    app::AppState,
    store::{NewReport, Stored, Study},
};

pub(super) async fn submit(
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let answer = take(&app, study, request).await;
    if let Err(ApiError(error)) = &answer {
        app.store().metrics().report_refused(error.code());
    }
    answer
}

async fn take(app: &AppState, study: Arc<Study>, request: Request) -> Result<Response, ApiError> {
    let (parts, content) = request.into_parts();
    let media_type = body::media_type(&parts.headers);
    if media_type.eq_ignore_ascii_case(REPORT_MEDIA_TYPE) {
        let limit = codec::report_len(study.shape().payload_len);
        let (bytes, reservation) = body::read(app, &parts.headers, content, limit).await?;
        let report = NewReport::decode(&bytes, study.shape())?;
        // Both lie in the buffer that the connection's next request may use.
        drop((bytes, parts));
        let stored = app
            .store()
            .submit_reserved(&study, smallvec![report], reservation)
            .await?;
        let (status, outcome) = match stored.first() {
            Some(Stored::Accepted) => (StatusCode::CREATED, ReportOutcome::Accepted),
            Some(Stored::Duplicate) => (StatusCode::OK, ReportOutcome::Duplicate),
            Some(Stored::Gone) => return Err(gone(&study).into()),
            Some(Stored::NotOpen) | None => return Err(not_open(&study).into()),
        };
        let accepted = u64::from(outcome == ReportOutcome::Accepted);
        app.store()
            .metrics()
            .reports_counted(accepted, 1 - accepted);
        Ok((status, Json(ReportReceipt { outcome })).into_response())
    } else if media_type.eq_ignore_ascii_case(REPORT_BATCH_MEDIA_TYPE) {
        let payload_len = study.shape().payload_len;
        let limit = codec::batch_len(payload_len, codec::max_batch(payload_len));
        let (bytes, reservation) = body::read(app, &parts.headers, content, limit).await?;
        let decoded = NewReport::decode_batch(&bytes, study.shape())?;
        drop(bytes);
        let mut batch = Batch::sort(decoded);
        let reports = std::mem::take(&mut batch.reports);
        let stored = if reports.is_empty() {
            SmallVec::new()
        } else {
            app.store()
                .submit_reserved(&study, reports.into(), reservation)
                .await?
        };
        let receipt = batch.receipt(&study, &stored)?;
        let metrics = app.store().metrics();
        metrics.reports_counted(receipt.accepted, receipt.duplicates);
        for report in &receipt.refused {
            metrics.report_refused(report.code);
        }
        Ok(Json(receipt).into_response())
    } else {
        Err(body::unsupported_media_type(
            media_type,
            &format!("{REPORT_MEDIA_TYPE} or {REPORT_BATCH_MEDIA_TYPE}"),
        )
        .into())
    }
}

/// A batch with its well-formed reports apart from the refused ones.
struct Batch {
    reports: Vec<NewReport>,
    /// Where in the batch each of `reports` was.
    positions: Vec<u32>,
    refused: Vec<RefusedReport>,
}

impl Batch {
    fn sort(decoded: Vec<eigenveil_shared::Result<NewReport>>) -> Self {
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
                Err(error) => batch.refused.push(refused(index, &error)),
            }
        }
        batch
    }

    /// What to answer. A study that is not open refuses the batch as a whole, unless some of it was
    /// counted before: then each report is told what became of it.
    fn receipt(mut self, study: &Study, stored: &[Stored]) -> Result<BatchReceipt, ApiError> {
        let count = |wanted| stored.iter().filter(|s| **s == wanted).count() as u64;
        if count(Stored::Gone) > 0 {
            return Err(gone(study).into());
        }
        let (accepted, duplicates) = (count(Stored::Accepted), count(Stored::Duplicate));
        if count(Stored::NotOpen) > 0 {
            let error = not_open(study);
            if accepted + duplicates == 0 {
                return Err(error.into());
            }
            for (&index, stored) in self.positions.iter().zip(stored) {
                if *stored == Stored::NotOpen {
                    self.refused.push(refused(index, &error));
                }
            }
            self.refused.sort_by_key(|report| report.index);
        }
        Ok(BatchReceipt {
            accepted,
            duplicates,
            refused: self.refused,
        })
    }
}

fn refused(index: u32, error: &Error) -> RefusedReport {
    RefusedReport {
        index,
        code: error.code(),
        detail: error.detail().to_owned(),
    }
}

fn gone(study: &Study) -> Error {
    Error::new(
        ErrorCode::StudyNotFound,
        format!("study {} was deleted; nothing was counted", study.id()),
    )
}

fn not_open(study: &Study) -> Error {
    Error::new(
        ErrorCode::StudyNotOpen,
        format!(
            "study {} is {} and takes no reports; this one was not counted",
            study.id(),
            study.state().as_str()
        ),
    )
}
