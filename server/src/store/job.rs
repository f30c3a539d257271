//! Estimate jobs as an engine hands them out.

use eigenveil_estimation as estimation;
use eigenveil_shared::api::{EstimateJob, EstimateRequest, EstimateState, Problem};

use super::{
    failure::Failure,
    study::{Study, StudyId, StudyKey},
};
use crate::config::ServerConfig;

#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its position in the queue.
    pub(crate) id: i64,
    pub(crate) study: StudyKey,
    pub(crate) request: EstimateRequest,
    /// How often it was started before.
    pub(crate) attempts: u32,
}

/// What is computed for a request, and within which limits.
pub(crate) fn settings<'a>(
    study: &'a Study,
    request: &'a EstimateRequest,
    config: &ServerConfig,
) -> estimation::Request<'a> {
    estimation::Request {
        name: study.name(),
        k: request.k.unwrap_or(study.default_k()),
        sparse: request.sparse.as_ref(),
        moment: request.moment,
        memory_bytes: config.sum_cache_bytes,
        stream_from: config.tuning.sparse_streaming_min_dimension,
    }
}

/// A job whose result is still JSON text.
pub(crate) struct StoredEstimate {
    pub(crate) document: EstimateJob,
    pub(crate) text: Option<String>,
}

/// The columns that [`document`] is made of.
pub(super) const COLUMNS: &str = "number, state, request, problem, created_at_ms";

/// Without its result.
pub(super) fn document(
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
pub(super) struct Ended {
    pub(super) state: EstimateState,
    pub(super) estimate: Option<String>,
    pub(super) problem: Option<String>,
}

impl Ended {
    pub(super) fn with(result: Result<String, Problem>) -> Result<Self, Failure> {
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
pub(super) fn state_from(text: &str) -> Result<EstimateState, Failure> {
    EstimateState::ALL
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| Failure::damaged("an estimate has an unknown state"))
}

impl StoredEstimate {
    pub(super) fn parse(self) -> Result<EstimateJob, Failure> {
        let estimate = self.text.map(|text| serde_json::from_str(&text));
        Ok(EstimateJob {
            estimate: estimate.transpose().map_err(Failure::damaged)?,
            ..self.document
        })
    }
}
