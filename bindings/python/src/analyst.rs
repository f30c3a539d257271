//! The operator's and the analyst's side of the HTTP interface, with JSON documents as arguments and results.

use std::{future::Future, time::Duration};

use eigenveil_client::http::{BearerToken, OperatorClient};
use eigenveil_estimation::{
    Cancel,
    preparation::{estimate_answers, second_round_of},
};
use eigenveil_shared::{
    about::{FeatureNotice, StudyNotice},
    api::{CreateStudyRequest, NewSiteToken, PreparationRequest},
    enrolment::{Enrolment, ParticipantToken},
    optional_word,
    preparation::PreparationColumn,
    preprocess::Feature,
};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    connection::Connection,
    design::design,
    error::{Failure, Result},
    estimate::PyEstimate,
    use_case::request,
    wait::{Control, run_interruptible},
};

/// Arguments of a preparation, beside its columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreparationArguments {
    name: String,
    /// `None` for a second round, which has that of the first one.
    epsilon: Option<f64>,
    #[serde(default, deserialize_with = "optional_word")]
    enrolment: Option<Enrolment>,
    #[serde(default)]
    draft: bool,
    about: StudyNotice,
}

impl PreparationArguments {
    /// The request `usual`, with what the arguments say in the place of what it says.
    fn instead_of(self, usual: CreateStudyRequest) -> CreateStudyRequest {
        CreateStudyRequest {
            enrolment: self.enrolment.unwrap_or(usual.enrolment),
            draft: self.draft,
            about: self.about.or(usual.about),
            ..usual
        }
    }
}

/// A feature that a preparation has found, with what it means to participants.
#[derive(Serialize)]
struct FoundFeature<'a> {
    #[serde(flatten)]
    constants: &'a Feature,
    #[serde(flatten)]
    notice: FeatureNotice,
}

#[pyclass(frozen, module = "eigenveil._core", name = "Analyst")]
pub(crate) struct PyAnalyst {
    url: String,
    token: BearerToken,
    settings: eigenveil_client::http::HttpSettings,
}

impl PyAnalyst {
    /// Calls the server, with a new client per call, because a client cannot be shared across a fork.
    fn call<T, F, W>(&self, py: Python<'_>, work: W) -> PyResult<T>
    where
        T: Send + 'static,
        W: FnOnce(OperatorClient) -> F + Send + 'static,
        F: Future<Output = Result<T>>,
    {
        let (url, token, settings) = (self.url.clone(), self.token.clone(), self.settings.clone());
        run_interruptible(py, None, move |control: &Control| {
            let client = OperatorClient::with_settings(&url, &token, &settings)?;
            control.run_requests(work(client))?
        })
    }

    /// Calls the server about the study with this identifier, the beginning of it, or this name.
    fn call_about<T, F, W>(&self, py: Python<'_>, called: String, work: W) -> PyResult<T>
    where
        T: Send + 'static,
        W: FnOnce(OperatorClient, String) -> F + Send + 'static,
        F: Future<Output = Result<T>>,
    {
        self.call(py, async move |client: OperatorClient| {
            let study = client.find_study(&called).await?;
            work(client, study).await
        })
    }
}

fn json(document: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(document)?)
}

#[pymethods]
impl PyAnalyst {
    #[new]
    #[pyo3(signature = (url, token, connection=None))]
    fn new(
        py: Python<'_>,
        url: String,
        token: &str,
        connection: Option<Connection>,
    ) -> PyResult<Self> {
        let build = || {
            let analyst = Self {
                token: BearerToken::new(token)?,
                settings: Connection::settings(connection.as_ref())?,
                url,
            };
            OperatorClient::with_settings(&analyst.url, &analyst.token, &analyst.settings)?;
            Ok(analyst)
        };
        build().map_err(|failure: Failure| failure.raise(py))
    }

    fn create_study(&self, py: Python<'_>, arguments: String) -> PyResult<String> {
        self.call(py, async move |client| {
            let design = design(&arguments)?;
            json(&client.create_study(&design).await?)
        })
    }

    /// Creates a preparation of these columns, by name, each with its kind in words.
    fn create_preparation(
        &self,
        py: Python<'_>,
        columns: Vec<(String, String)>,
        arguments: String,
    ) -> PyResult<String> {
        self.call(py, async move |client| {
            let columns = columns.iter();
            let columns = columns.map(|(name, kind)| PreparationColumn::parse(name, kind));
            let preparation = PreparationRequest {
                columns: columns.collect::<eigenveil_shared::Result<_>>()?,
                after: None,
            };
            let given: PreparationArguments = request(&arguments)?;
            let epsilon = given
                .epsilon
                .ok_or_else(|| Failure::input("epsilon is None; give a number"))?;
            let usual = CreateStudyRequest::of_preparation(&given.name, epsilon, preparation);
            let design = given.instead_of(usual);
            json(&client.create_study(&design).await?)
        })
    }

    /// Creates the second round of a preparation, like the first one but for what the arguments say.
    fn create_second_round(
        &self,
        py: Python<'_>,
        study: String,
        arguments: String,
    ) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            let given: PreparationArguments = request(&arguments)?;
            let (first, answers) = (client.study(&study).await?, client.answers(&study).await?);
            let usual = second_round_of(&first, &answers, &given.name)?;
            let design = given.instead_of(usual);
            json(&client.create_study(&design).await?)
        })
    }

    /// The constants that a preparation has found, as JSON, with what each feature means to participants.
    fn prepare(&self, py: Python<'_>, study: String) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            let answers = client.answers(&study).await?;
            let estimate = estimate_answers(&answers, &mut |_, _| (), Cancel::NEVER)?;
            let about = client.study(&study).await?.about;
            let features = estimate.features.iter();
            let features = features.zip(estimate.notices(&study, &about));
            let features: Vec<_> = features
                .map(|(constants, notice)| FoundFeature { constants, notice })
                .collect();
            let mut document = serde_json::to_value(&estimate)?;
            document["features"] = serde_json::to_value(features)?;
            Ok(document.to_string())
        })
    }

    fn study(&self, py: Python<'_>, study: String) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            json(&client.study(&study).await?)
        })
    }

    fn studies(&self, py: Python<'_>) -> PyResult<String> {
        self.call(py, async move |client| json(&client.list().await?))
    }

    fn open(&self, py: Python<'_>, study: String) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            json(&client.open(&study).await?)
        })
    }

    fn close(&self, py: Python<'_>, study: String) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            json(&client.close(&study).await?)
        })
    }

    fn delete(&self, py: Python<'_>, study: String) -> PyResult<()> {
        self.call_about(py, study, async move |client, study| {
            Ok(client.delete(&study).await?)
        })
    }

    fn tokens(&self, py: Python<'_>, study: String, count: usize) -> PyResult<Vec<String>> {
        self.call_about(py, study, async move |client, study| {
            let mut tokens = Vec::new();
            while tokens.len() < count {
                let batch =
                    (count - tokens.len()).min(eigenveil_shared::enrolment::MAX_TOKENS_PER_REQUEST);
                let issued = client.issue_tokens(&study, batch).await?;
                tokens.extend(issued.iter().map(|token| token.reveal()));
            }
            Ok(tokens)
        })
    }

    /// A token for each of these sites, with the most rows of its table, in this order.
    fn site_tokens(
        &self,
        py: Python<'_>,
        study: String,
        sites: Vec<(String, Option<u64>)>,
    ) -> PyResult<Vec<String>> {
        self.call_about(py, study, async move |client, study| {
            let sites = sites.into_iter();
            let sites = sites.map(|(site, max_rows)| NewSiteToken { site, max_rows });
            let issued = client.issue_site_tokens(&study, sites.collect()).await?;
            Ok(issued.iter().map(ParticipantToken::reveal).collect())
        })
    }

    fn token_counts(&self, py: Python<'_>, study: String) -> PyResult<String> {
        self.call_about(py, study, async move |client, study| {
            json(&client.token_counts(&study).await?)
        })
    }

    /// Requests an estimate; returns the number of the job.
    fn request_estimate(&self, py: Python<'_>, study: String, arguments: String) -> PyResult<u64> {
        self.call(py, async move |client| {
            let request = request(&arguments)?;
            Ok(client.request_estimate(&study, &request).await?.number)
        })
    }

    fn wait_for_estimate(
        &self,
        py: Python<'_>,
        study: String,
        number: u64,
        seconds: f64,
    ) -> PyResult<PyEstimate> {
        self.call(py, async move |client| {
            let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| {
                Failure::input(format!("timeout is {seconds} s; it must be at least 0"))
            })?;
            let job = client.wait_for_estimate(&study, number, timeout).await?;
            let estimate = job.estimate.ok_or_else(|| {
                eigenveil_shared::Error::estimate_failed(format!(
                    "the server gives no estimate {number}"
                ))
            })?;
            Ok(PyEstimate::new(estimate))
        })
    }

    fn cancel_estimate(&self, py: Python<'_>, study: String, number: u64) -> PyResult<()> {
        self.call(py, async move |client| {
            client.cancel_estimate(&study, number).await?;
            Ok(())
        })
    }
}
