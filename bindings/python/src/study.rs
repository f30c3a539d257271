//! A checked study, for participants.

use eigenveil_client::{Response, Server, SiteStudy, Study, StudyInfo, http::StudyClient};
use eigenveil_shared::{
    about::StudyNotice,
    api::StudyDocument,
    clock::{Clock as _, SystemClock},
    codec::report_len,
    estimate::ComponentCount,
    parameters::StudyUnit,
    preprocess::Preprocessing,
    site_study::{SiteStudyParams, SiteTerms},
    study::{Fingerprint, to_hex},
};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::json;

use crate::{
    connection::Connection,
    error::{Failure, Result},
    wait::{run_detached, run_interruptible},
};

#[pyclass(frozen, module = "eigenveil._core", name = "Study")]
pub(crate) struct PyStudy(Checked);

/// A study of either unit.
enum Checked {
    Rows(Study),
    Sites(SiteStudy),
}

impl PyStudy {
    fn new(info: StudyInfo) -> Result<Self> {
        Ok(Self(match info.parameters().unit() {
            StudyUnit::Row => Checked::Rows(info.try_into()?),
            StudyUnit::Site => Checked::Sites(info.try_into()?),
        }))
    }

    fn info(&self) -> &StudyInfo {
        match &self.0 {
            Checked::Rows(study) => study,
            Checked::Sites(study) => study,
        }
    }

    /// The study of single rows; `InputError` for a study of sites.
    pub(crate) fn rows(&self) -> Result<Study> {
        match &self.0 {
            Checked::Rows(study) => Ok(study.clone()),
            Checked::Sites(study) => Ok(StudyInfo::clone(study).try_into()?),
        }
    }

    /// The study of sites; `InputError` for a study of single rows.
    pub(crate) fn sites(&self) -> Result<SiteStudy> {
        match &self.0 {
            Checked::Sites(study) => Ok(study.clone()),
            Checked::Rows(study) => Ok(StudyInfo::clone(study).try_into()?),
        }
    }
}

/// The fields of a study that never change.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    plain: serde_json::Value,
    sites: Option<&'a SiteTerms>,
    /// In its own order, because a `Value` would sort the keys.
    about: &'a StudyNotice,
}

fn pinned(fingerprint: Option<&str>) -> Result<Option<Fingerprint>> {
    Ok(fingerprint
        .map(|text| text.to_ascii_lowercase().parse())
        .transpose()?)
}

#[pymethods]
impl PyStudy {
    #[staticmethod]
    #[pyo3(signature = (url, id, fingerprint=None, connection=None))]
    fn fetch(
        py: Python<'_>,
        url: String,
        id: String,
        fingerprint: Option<String>,
        connection: Option<Connection>,
    ) -> PyResult<Self> {
        run_interruptible(py, None, move |control| {
            let pinned = pinned(fingerprint.as_deref())?;
            let settings = Connection::settings(connection.as_ref())?;
            let client = StudyClient::with_settings(&url, &settings)?;
            let study = control.run_requests(client.find(&id, pinned))?;
            Self::new(study?)
        })
    }

    #[staticmethod]
    #[pyo3(signature = (document, url, fingerprint=None))]
    fn from_document(
        py: Python<'_>,
        document: &[u8],
        url: &str,
        fingerprint: Option<&str>,
    ) -> PyResult<Self> {
        run_detached(py, || {
            let server: Server = url.parse()?;
            let read: serde_json::Value = serde_json::from_slice(document)?;
            // Other problems are reported by the client.
            let id = read["id"].as_str().unwrap_or_default();
            let response = Response {
                status: 200,
                headers: &[("content-type", "application/json")],
                body: document,
                now: None,
            };
            Self::new(StudyInfo::read(
                &server,
                id,
                &response,
                pinned(fingerprint)?,
            )?)
        })
    }

    /// The study as a document, for pickling. Fields that a device ignores have default values.
    fn to_document(&self, py: Python<'_>) -> PyResult<String> {
        run_detached(py, || {
            let study = self.info();
            let params = study.parameters();
            Ok(serde_json::to_string(&StudyDocument {
                id: study.id().to_owned(),
                name: study.name().unwrap_or_default().to_owned(),
                state: study.state(),
                fingerprint: study.fingerprint().to_string(),
                canonical_params: to_hex(&params.canonical_bytes()),
                params: params.clone(),
                reports_accepted: 0,
                default_k: ComponentCount::default(),
                report_bytes: report_len(study.payload_len()),
                max_batch_reports: study.max_batch(),
                created_at_ms: 0,
                privacy: study.privacy(),
                enrolment: study.enrolment(),
                about: study.about().clone(),
            })?)
        })
    }

    /// JSON of the fields that never change.
    fn described(&self, py: Python<'_>) -> PyResult<String> {
        run_detached(py, || {
            let (study, params) = (self.info(), self.info().parameters());
            let plain = json!({
                "id": study.id(),
                "name": study.name(),
                "url": study.server().as_str(),
                "fingerprint": study.fingerprint().to_string(),
                "dimension": params.dimension(),
                "feature_names": params.feature_names(),
                "epsilon": params.budget().epsilon(),
                "delta": params.budget().delta(),
                "mechanism": params.mechanism_name().as_str(),
                "enrolment": study.enrolment().as_str(),
            });
            Ok(serde_json::to_string(&Described {
                plain,
                sites: params.sites().ok().map(SiteStudyParams::terms),
                about: study.about(),
            })?)
        })
    }

    #[getter]
    fn has_weights(&self) -> bool {
        let constants = self.info().parameters().preprocessing();
        constants.is_ok_and(|constants| constants.weights.is_some())
    }

    #[getter]
    fn allows_missing_cells(&self) -> bool {
        let constants = self.info().parameters().preprocessing();
        constants.is_ok_and(Preprocessing::allows_missing_cells)
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.info().check_open(SystemClock.unix_ms()).is_ok()
    }

    /// JSON of the guarantee of one report.
    fn privacy(&self, py: Python<'_>) -> PyResult<String> {
        run_detached(py, || Ok(serde_json::to_string(&self.info().privacy())?))
    }
}

/// Refuses a row whose length is not the study's dimension.
pub(crate) fn check_len(study: &StudyInfo, len: usize) -> Result<()> {
    let p = study.parameters().dimension();
    if len == p {
        return Ok(());
    }
    Err(Failure::from(eigenveil_shared::Error::new(
        eigenveil_shared::ErrorCode::WrongDimension,
        format!("the row has {len} values; study {} takes {p}", study.id()),
    )))
}
