//! Estimate jobs as an engine hands them out.

use eigenveil_estimation as estimation;
use eigenveil_shared::api::{EstimateJob, EstimateRequest, EstimateState};

use super::{
    failure::Failure,
    study::{Study, StudyKey},
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

/// The state with this name in the database.
pub(super) fn state_from(text: &str) -> Result<EstimateState, Failure> {
    [
        EstimateState::Running,
        EstimateState::Done,
        EstimateState::Failed,
        EstimateState::Cancelled,
    ]
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
