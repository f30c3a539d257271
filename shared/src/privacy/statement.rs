//! What was promised to each participant, in numbers and in plain words.

use serde::{Deserialize, Serialize};

use super::{WARN_EPSILON, gaussian};
use crate::{
    codec,
    mechanism::{Calibration, MechanismKind},
    study::StudyParams,
};

/// The privacy statement of a study, shown on every surface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyStatement {
    /// The local randomizer.
    pub mechanism: MechanismKind,
    /// How its noise was chosen.
    pub calibration: Calibration,
    /// Which two inputs a report must not tell apart.
    pub neighbours: String,
    /// Claimed ε of one report.
    pub epsilon: f64,
    /// Claimed δ of one report.
    pub delta: f64,
    /// The ε that really holds at the claimed δ, rounded up; `null` when none does.
    pub true_epsilon: Option<f64>,
    /// The δ that really holds at the claimed ε, rounded up.
    pub true_delta: f64,
    /// Whether the claim holds: `true_delta ≤ delta`.
    pub claim_holds: bool,
    /// Bytes of the mechanism's payload alone.
    pub payload_bytes: usize,
    /// Bytes of one report with identifier, fingerprint and envelope.
    pub bytes_per_report: usize,
    /// What one report could tell the server, in a sentence or two.
    pub sentence: String,
    /// What a reader must know besides; empty when there is nothing.
    pub cautions: Vec<String>,
}

impl PrivacyStatement {
    /// The statement for frozen parameters.
    pub fn of(params: &StudyParams) -> Self {
        let budget = params.budget();
        let (epsilon, delta) = (budget.epsilon(), budget.delta());
        let mechanism = params.mechanism();
        let sigma = mechanism.sigma();
        let true_delta = gaussian::true_delta(sigma, gaussian::SENSITIVITY, epsilon);
        let true_epsilon = gaussian::true_epsilon(sigma, gaussian::SENSITIVITY, delta);
        let claim_holds = true_delta <= delta;
        let mut cautions = Vec::new();
        if !claim_holds {
            cautions.push(match true_epsilon {
                Some(real) => format!(
                    "The noise is the one the paper prints. It is smaller than this epsilon and delta need: what really holds is ({real:.4}, {delta:.1e}), or ({epsilon}, {true_delta:.1e})."
                ),
                None => format!(
                    "The noise is far smaller than this epsilon and delta need: no epsilon holds at delta {delta:.1e}."
                ),
            });
        }
        if epsilon > WARN_EPSILON {
            cautions.push(format!(
                "Epsilon is {epsilon}: above {WARN_EPSILON} one report may tell two rows apart almost surely."
            ));
        }
        cautions.push(
            "The Gaussian noise is drawn in floating point: its lowest bits are not covered by the proof.".to_owned(),
        );
        let shown_epsilon = if claim_holds {
            epsilon
        } else {
            true_epsilon.unwrap_or(f64::INFINITY)
        };
        Self {
            mechanism: mechanism.kind(),
            calibration: mechanism.calibration(),
            neighbours: "replacement: any two rows the participant might hold".to_owned(),
            epsilon,
            delta,
            true_epsilon,
            true_delta,
            claim_holds,
            payload_bytes: params.payload_len(),
            bytes_per_report: codec::report_len(params.payload_len()),
            sentence: sentence(shown_epsilon, delta),
            cautions,
        }
    }
}

/// ε as odds a person can read.
fn sentence(epsilon: f64, delta: f64) -> String {
    let factor = epsilon.exp();
    let factor = if factor < 10.0 {
        format!("{factor:.1}")
    } else if factor < 1e6 {
        format!("{factor:.0}")
    } else {
        format!("{factor:.0e}")
    };
    format!(
        "Whatever the server believed about two possible rows of a participant, one report changes the odds between them by a factor of at most {factor}, except with probability {delta:.0e}."
    )
}
