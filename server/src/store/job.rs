//! Estimate jobs as an engine hands them out.

use eigenveil_shared::api::{EstimateJob, EstimateRequest, EstimateState};

use super::{failure::Failure, study::StudyKey};

#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its position in the queue.
    pub(crate) id: i64,
    pub(crate) study: StudyKey,
    pub(crate) request: EstimateRequest,
    /// How often it was started before.
    pub(crate) attempts: u32,
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
