//! What a simulation found.

use eigenveil_shared::mechanism::{Calibration, MechanismKind};
use serde::{Serialize, Serializer};

use super::NoisePath;

/// One setting: its errors are means over the repeats, of ‖V̂V̂ᵀ−VVᵀ‖_F against the true V. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulateAnswer {
    /// The mechanism.
    pub mechanism: MechanismKind,
    /// Calibration of its noise, if it has several.
    pub calibration: Option<Calibration>,
    /// Claimed ε of one report.
    pub epsilon: f64,
    /// Claimed δ of one report.
    pub delta: f64,
    /// ε that holds at this δ.
    pub true_epsilon: Option<f64>,
    /// Whether the claim holds.
    #[serde(skip)]
    pub claim_holds: bool,
    /// Participants, or rows of all sites.
    pub n: u64,
    /// Dimension of a row.
    pub p: usize,
    /// Components.
    pub k: usize,
    /// Nonzero rows of the true V, if it is sparse.
    pub s: Option<usize>,
    /// Constant of private centring.
    pub centring: Option<f64>,
    /// Sites, each of which reports its table once; absent where each report is of one row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<u64>,
    /// How the noise of the sum was drawn.
    pub noise: NoisePath,
    /// Error of the estimate.
    pub error_mean: f64,
    /// Its standard deviation over several repeats.
    pub error_sd: Option<f64>,
    /// The floor's prediction from the noiseless spectrum; `None` for the sparse estimator and with rows' components on s features.
    pub error_predicted_from_truth: Option<f64>,
    /// Error without noise.
    pub nonprivate_error: f64,
    /// F1 of the selected features.
    pub support_f1: Option<f64>,
    /// Seconds of computation.
    pub seconds: f64,
    /// Repeats.
    pub repeats: usize,
    /// The error that an analyst would expect from the noisy spectrum; `None` without `refit`.
    pub error_predicted_from_data: Option<f64>,
    /// Error of plain PCA on the same reports.
    pub pca_error: f64,
    /// Precision of the selected features.
    pub support_precision: Option<f64>,
    /// Recall of the selected features.
    pub support_recall: Option<f64>,
    /// Components above the floor's threshold.
    pub components_above_floor: f64,
    /// Repeats whose solver met its stopping rule.
    pub converged: usize,
    /// Seed.
    pub seed: u64,
}

/// The answers of every combination of the values that were asked for. As JSON one of them is itself, several are the
/// member `rows` of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// One for each combination, at least one.
    pub rows: Vec<SimulateAnswer>,
}

impl Serialize for Sweep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.rows.as_slice() {
            [one] => one.serialize(serializer),
            rows => serde_json::json!({ "rows": rows }).serialize(serializer),
        }
    }
}
