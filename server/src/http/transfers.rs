//! Exports, imports and backups, for the operator.

use std::{
    fs::File,
    io::{Read, Write},
    time::Duration,
};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_shared::{
    Result,
    api::{BACKUP_MEDIA_TYPE, ImportOutcome, ImportResponse, STUDY_EXPORT_MEDIA_TYPE},
    error,
};
use eigenveil_store::{Study, VerifiedExport, file_failed, unavailable};
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::{sync::mpsc, time::Instant};

use super::{
    body,
    extract::{Operator, StudyInPath},
    openapi::{Binary, ErrorResponses},
    problem::ApiError,
    run_blocking,
};
use crate::{app::AppState, config::MIN_TRANSFER_BYTES_PER_SECOND};

const CHUNK_BYTES: usize = 1 << 16;

/// Export a study
#[utoipa::path(
    get, path = "/v1/studies/{id}/export", tag = "transfers",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study as a file", body = inline(Binary), content_type = STUDY_EXPORT_MEDIA_TYPE), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn export(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Response, ApiError> {
    let store = app.store().clone();
    let file = run_blocking(move || store.export(&study)).await?;
    download(&app, file, STUDY_EXPORT_MEDIA_TYPE)
}

/// Back up the whole store
#[utoipa::path(
    get, path = "/v1/backup", tag = "transfers",
    responses((status = 200, description = "A SQLite database", body = inline(Binary), content_type = BACKUP_MEDIA_TYPE), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn backup(_: Operator, State(app): State<AppState>) -> Result<Response, ApiError> {
    let store = app.store().clone();
    let file = run_blocking(move || store.backup()).await?;
    download(&app, file, BACKUP_MEDIA_TYPE)
}

/// Import a study
#[utoipa::path(
    post, path = "/v1/imports", tag = "transfers",
    request_body(content = inline(Binary), content_type = STUDY_EXPORT_MEDIA_TYPE),
    responses((status = 201, description = "The study was created", body = ImportResponse), (status = 200, description = "Merged, or imported before", body = ImportResponse), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn import(
    operator: Operator,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    import_body(app, &operator, None, request).await
}

/// Merge an export into a study
#[utoipa::path(
    post, path = "/v1/studies/{id}/import", tag = "transfers",
    params(("id" = String, Path, description = "Identifier of the study")),
    request_body(content = inline(Binary), content_type = STUDY_EXPORT_MEDIA_TYPE),
    responses((status = 200, description = "Merged, or imported before", body = ImportResponse), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn merge(
    operator: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    import_body(app, &operator, Some(study), request).await
}

async fn import_body(
    app: AppState,
    operator: &Operator,
    into: Option<std::sync::Arc<Study>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, content) = request.into_parts();
    let media_type = body::media_type(&parts.headers);
    if !media_type.eq_ignore_ascii_case(STUDY_EXPORT_MEDIA_TYPE) {
        return Err(body::unsupported_media_type(media_type, STUDY_EXPORT_MEDIA_TYPE).into());
    }
    body::check_not_encoded(&parts.headers)?;
    let file = spool(&app, content).await?;
    let export = run_blocking(move || VerifiedExport::read(file)).await?;
    operator.check_still_valid(&app)?;
    let imported = app.store().import(export, into).await?;
    tracing::info!(
        study = %imported.study.id(), outcome = imported.outcome.as_str(), reports = imported.reports, "import"
    );
    let status = match imported.outcome {
        ImportOutcome::Created => StatusCode::CREATED,
        ImportOutcome::Merged | ImportOutcome::AlreadyImported => StatusCode::OK,
    };
    let response = ImportResponse {
        outcome: imported.outcome,
        reports: imported.reports,
        study: imported.study.document(),
    };
    Ok((status, Json(response)).into_response())
}

/// Writes a body to an unnamed file: it may be larger than memory.
async fn spool(app: &AppState, mut content: Body) -> Result<File> {
    let store = app.store().clone();
    let mut file = run_blocking(move || store.temporary_file()).await?;
    let pause = app.config().body_timeout();
    let (mut received, mut waited) = (0, Duration::ZERO);
    loop {
        // The client's own time, not that of a busy disk.
        let left = app
            .config()
            .body_timeout_for(received)
            .saturating_sub(waited);
        let asked = Instant::now();
        let frame = match tokio::time::timeout(left.min(pause), content.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(file),
            Ok(Some(Err(_))) => {
                return Err(error!(MalformedExport, "the export broke off; retry"));
            }
            Err(_) => {
                return Err(error!(
                    RequestTimeout,
                    "{received} bytes of the export arrived in {:.0} s, and then nothing; it must not pause for {} s (body_timeout_ms), nor take longer than that in all and a second for each {MIN_TRANSFER_BYTES_PER_SECOND} bytes: retry on a faster connection, or raise body_timeout_ms",
                    (waited + asked.elapsed()).as_secs_f64(),
                    pause.as_secs_f64()
                ));
            }
        };
        waited += asked.elapsed();
        if let Ok(data) = frame.into_data() {
            received += data.len();
            file = run_blocking(move || {
                file.write_all(&data).map_err(file_failed)?;
                Ok(file)
            })
            .await?;
        }
    }
}

/// A file as a response body, streamed as fast as the client reads it; a client that reads nothing for
/// `body_timeout_ms` is cut off.
fn download(app: &AppState, file: File, media_type: &'static str) -> Result<Response, ApiError> {
    let length = file
        .metadata()
        .map_err(|error| unavailable(format!("a temporary file cannot be read ({error}); retry")))?
        .len();
    let (sender, receiver) = mpsc::channel(4);
    let timeout = app.config().body_timeout();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut remaining = length;
        let mut file = file.take(length);
        while remaining > 0 {
            let mut chunk =
                vec![0; CHUNK_BYTES.min(usize::try_from(remaining).unwrap_or(CHUNK_BYTES))];
            let read = file.read_exact(&mut chunk).map(|()| Bytes::from(chunk));
            remaining = remaining.saturating_sub(CHUNK_BYTES as u64);
            let failed = read.is_err();
            let delivered = runtime.block_on(sender.send_timeout(read, timeout));
            if failed || delivered.is_err() {
                return;
            }
        }
    });
    // If the stream ends before its announced length, the connection is closed.
    let chunks = stream::unfold(receiver, |mut receiver| async {
        let chunk = receiver.recv().await?;
        Some((chunk, receiver))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}
