//! The actions of a study's page, and the files of its estimates.

use axum::{
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    Error,
    api::{EstimateRequest, SparseSettings, StudyState},
    error,
    estimate::ComponentCount,
};
use eigenveil_store::Study;

use super::{
    images, layout,
    state::Pages,
    study::hide_drafts,
    visitor::{Fields, OperatorForm, Visitor},
};
use crate::http::{
    ApiError,
    estimates::{Format, check_moment, estimate_file},
    extract::{NumberInPath, StudyInPath},
    run_blocking,
};

pub(super) async fn open(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    posted: OperatorForm,
) -> Result<Response, ApiError> {
    app.store().set_state(&study, StudyState::Open).await?;
    Ok(redirect_to_study(&posted.visitor, &study))
}

pub(super) async fn close(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    posted: OperatorForm,
) -> Result<Response, ApiError> {
    app.store().set_state(&study, StudyState::Closed).await?;
    Ok(redirect_to_study(&posted.visitor, &study))
}

pub(super) async fn request_estimate(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    OperatorForm { visitor, fields }: OperatorForm,
) -> Result<Response, ApiError> {
    let k = match fields.get("k") {
        "" => None,
        "auto" => Some(ComponentCount::Auto),
        text => Some(ComponentCount::Fixed(text.parse().map_err(|_| {
            Error::invalid_request(format!(
                "k is {text:?}; it must be a whole number such as 5, or auto, or empty"
            ))
        })?)),
    };
    let sparse = match fields.has("sparse") {
        true => Some(SparseSettings {
            lambda: fields.get("lambda").parse()?,
            refit: fields.has("refit"),
            ..SparseSettings::default()
        }),
        false => None,
    };
    let moment = fields.has("moment");
    if moment {
        check_moment(study.params())?;
    }
    let request = EstimateRequest { k, sparse, moment };
    app.jobs().add(&study, request).await?;
    Ok(redirect_to_study(&visitor, &study))
}

/// Continues from the `estimate.json` beside it, in Python.
const NOTEBOOK: &str = include_str!("assets/estimate.ipynb");

/// A file of an estimate: its document, its components, the notebook or a figure.
pub(super) async fn file(
    StudyInPath(study): StudyInPath,
    NumberInPath(number): NumberInPath,
    Path((_, _, name)): Path<(String, String, String)>,
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    visitor.require_reader(&study)?;
    let narrow = fields.has("narrow");
    let response = run_blocking(move || {
        let format = match name.as_str() {
            "estimate.json" => Some(Format::Json),
            "components.csv" => Some(Format::Csv),
            "components.npy" => Some(Format::Npy),
            "estimate.ipynb" => None,
            _ => {
                let view = app.state.views.get(app.store(), &study, number)?;
                let figure = view.figure(&name).ok_or_else(|| no_such_file(number))?;
                let image = if narrow { &figure.narrow } else { &figure.wide };
                return Ok(images::svg(image.clone()));
            }
        };
        let headers = [
            (header::CACHE_CONTROL, "no-store".to_owned()),
            // The name is one of the four fixed ones.
            (
                header::CONTENT_DISPOSITION,
                format!("attachment; filename=\"{name}\""),
            ),
        ];
        Ok(match format {
            Some(format) => (headers, estimate_file(&app, &study, number, format)?).into_response(),
            None => {
                let media_type = [(header::CONTENT_TYPE, "application/x-ipynb+json")];
                (headers, media_type, NOTEBOOK).into_response()
            }
        })
    });
    Ok(response.await?)
}

fn no_such_file(number: u64) -> Error {
    error!(
        NotFound,
        "estimate {number} has no such file; its page lists its files"
    )
}

fn redirect_to_study(visitor: &Visitor, study: &Study) -> Response {
    layout::see_other(visitor, &format!("/studies/{}", study.id()))
}
