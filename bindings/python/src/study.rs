//! A study, checked, as a participant sees it.

use eigenveil_client::{Response, Server, http::StudyClient};
use eigenveil_shared::{
    api::StudyDocument,
    clock::{Clock as _, SystemClock},
    codec::report_len,
    estimate::ComponentCount,
    study::{Fingerprint, to_hex},
};
use pyo3::prelude::*;

use crate::{
    connection::Connection,
    error::{Failure, Result},
    wait::{briefly, patiently},
};

#[pyclass(frozen, module = "eigenveil._core", name = "Study")]
pub(crate) struct PyStudy(pub(crate) eigenveil_client::Study);

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
        patiently(py, None, move |control| {
            let pinned = pinned(fingerprint.as_deref())?;
            let settings = Connection::settings(connection.as_ref())?;
            let client = StudyClient::with_settings(&url, &settings)?;
            let fetched = control.requests(async {
                match pinned {
                    Some(pinned) => client.fetch_study_pinned(&id, pinned).await,
                    None => client.fetch_study(&id).await,
                }
            })?;
            Ok(Self(fetched?))
        })
    }

    #[staticmethod]
    #[pyo3(signature = (document, url, fingerprint=None))]
    fn from_document(
        py: Python<'_>,
        document: &str,
        url: &str,
        fingerprint: Option<&str>,
    ) -> PyResult<Self> {
        briefly(py, || {
            let server: Server = url.parse()?;
            let read: serde_json::Value = serde_json::from_str(document)?;
            // Whatever else is wrong with it, the client says so.
            let id = read["id"].as_str().unwrap_or_default();
            let response = Response {
                status: 200,
                headers: &[("content-type", "application/json")],
                body: document.as_bytes(),
                now: None,
            };
            let study =
                eigenveil_client::Study::read(&server, id, &response, pinned(fingerprint)?)?;
            Ok(Self(study))
        })
    }

    /// The document again: what pickling keeps. What a device does not look at is left at its default.
    fn to_document(&self, py: Python<'_>) -> PyResult<String> {
        briefly(py, || {
            let study = &self.0;
            let params = study.params();
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

    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name()
    }

    #[getter]
    fn url(&self) -> &str {
        self.0.server().as_str()
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    #[getter]
    fn dimension(&self) -> usize {
        self.0.params().dimension()
    }

    #[getter]
    fn feature_names(&self) -> Option<Vec<String>> {
        self.0.params().feature_names()
    }

    #[getter]
    fn epsilon(&self) -> f64 {
        self.0.params().budget().epsilon()
    }

    #[getter]
    fn delta(&self) -> f64 {
        self.0.params().budget().delta()
    }

    #[getter]
    fn mechanism(&self) -> &'static str {
        self.0.params().mechanism().kind().as_str()
    }

    #[getter]
    fn enrolment(&self) -> &'static str {
        self.0.enrolment().as_str()
    }

    #[getter]
    fn has_weights(&self) -> bool {
        self.0.params().preprocessing().weights.is_some()
    }

    #[getter]
    fn allows_missing_cells(&self) -> bool {
        self.0.params().preprocessing().allows_missing_cells()
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.0.check_open(SystemClock.unix_ms()).is_ok()
    }

    /// JSON of what it says of itself.
    fn about(&self, py: Python<'_>) -> PyResult<String> {
        briefly(py, || Ok(serde_json::to_string(self.0.about())?))
    }

    /// JSON of what one report promises.
    fn privacy(&self, py: Python<'_>) -> PyResult<String> {
        briefly(py, || Ok(serde_json::to_string(&self.0.privacy())?))
    }
}

/// A row of numbers that Python holds.
pub(crate) fn check_len(study: &eigenveil_client::Study, found: usize) -> Result<()> {
    let p = study.params().dimension();
    if found == p {
        return Ok(());
    }
    Err(Failure::from(eigenveil_shared::Error::new(
        eigenveil_shared::ErrorCode::WrongDimension,
        format!("the row has {found} values; study {} takes {p}", study.id()),
    )))
}
