//! Estimate jobs as an engine hands them out.

use eigenveil_shared::api::{EstimateJob, EstimateRequest};

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

impl StoredEstimate {
    pub(super) fn parse(self) -> Result<EstimateJob, Failure> {
        let estimate = self.text.map(|text| serde_json::from_str(&text));
        Ok(EstimateJob {
            estimate: estimate.transpose().map_err(Failure::damaged)?,
            ..self.document
        })
    }
}
