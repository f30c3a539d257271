//! Estimate jobs as an engine hands them out.

use eigenveil_estimation as estimation;
use eigenveil_shared::api::{EstimateJob, EstimateRequest, EstimateState, Problem};

use super::{
    failure::Failure,
    study::{Study, StudyId, StudyKey},
};
use crate::config::StoreConfig;

/// An estimate to be computed.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its position in the queue.
    pub id: i64,
    /// Whose reports it is of.
    pub study: StudyKey,
    /// The request.
    pub request: EstimateRequest,
    /// How often it was started before.
    pub attempts: u32,
}

/// The settings and limits of the computation for a request.
pub fn estimate_settings<'a>(
    study: &'a Study,
    request: &'a EstimateRequest,
    config: &StoreConfig,
) -> estimation::Request<'a> {
    estimation::Request {
        name: study.name(),
        k: request.k.unwrap_or(study.default_k()),
        sparse: request.sparse.as_ref(),
        moment: request.moment,
        memory_bytes: config.sum_cache_bytes,
        stream_from: config.sparse_streaming_min_dimension,
    }
}

/// A job whose result is still JSON text.
pub struct StoredEstimate {
    /// Without its result.
    pub document: EstimateJob,
    /// The result.
    pub text: Option<String>,
}

/// The columns that [`document`] is made of.
pub(crate) const COLUMNS: &str = "number, state, request, problem, created_at_ms";

/// Without its result.
pub(crate) fn document(
    study: StudyId,
    number: u64,
    state: EstimateState,
    request: EstimateRequest,
    problem: Option<Problem>,
    created_at_ms: u64,
) -> EstimateJob {
    EstimateJob {
        number,
        study: study.to_string(),
        state,
        request,
        estimate: None,
        problem,
        created_at_ms,
    }
}

/// How a job has ended, as it is stored.
pub(crate) struct Ended {
    pub(crate) state: EstimateState,
    pub(crate) estimate: Option<String>,
    pub(crate) problem: Option<String>,
}

impl Ended {
    pub(crate) fn with(result: Result<String, Problem>) -> Result<Self, Failure> {
        let (state, estimate, problem) = match result {
            Ok(estimate) => (EstimateState::Done, Some(estimate), None),
            Err(problem) => (EstimateState::Failed, None, Some(problem)),
        };
        let problem = problem.map(|problem| serde_json::to_string(&problem));
        Ok(Self {
            state,
            estimate,
            problem: problem.transpose().map_err(Failure::damaged)?,
        })
    }
}

/// The state with this name in the database.
pub(crate) fn state_from(text: &str) -> Result<EstimateState, Failure> {
    EstimateState::ALL
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| Failure::damaged("an estimate has an unknown state"))
}

impl StoredEstimate {
    pub(crate) fn parse(self) -> Result<EstimateJob, Failure> {
        let estimate = self.text.map(|text| serde_json::from_str(&text));
        Ok(EstimateJob {
            estimate: estimate.transpose().map_err(Failure::damaged)?,
            ..self.document
        })
    }
}
