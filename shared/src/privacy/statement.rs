//! What was promised to each participant, in numbers and in plain words.

use serde::{Deserialize, Serialize};

use super::WARN_EPSILON;
use crate::{
    codec,
    mechanism::{Calibration, MechanismKind},
    study::StudyParams,
};

/// The privacy statement of a study, shown on every surface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PrivacyStatement {
    /// The local randomizer.
    pub mechanism: MechanismKind,
    /// How its noise was chosen, where there is a choice.
    pub calibration: Option<Calibration>,
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
    /// Whether the claim holds: `true_delta ≤ delta`; for `double-cap` up to the 2⁻²⁰ by which
    /// `true_epsilon` is above ε.
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
        let true_delta = mechanism.true_delta(epsilon);
        let true_epsilon = mechanism.true_epsilon(delta);
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
        cautions.extend(epsilon_warning(epsilon));
        cautions.push(assumption(mechanism.kind()).to_owned());
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
            sentence: sentence(shown_epsilon, mechanism.loss_exceeds(shown_epsilon)),
            cautions,
        }
    }
}

/// What the proof of a mechanism takes for granted.
fn assumption(mechanism: MechanismKind) -> &'static str {
    match mechanism {
        MechanismKind::DoubleCap => {
            "The proof takes the ChaCha generators for random functions; with them arithmetic in floating point adds less than one millionth to epsilon, which is counted in the epsilon said to hold."
        }
        MechanismKind::SymmetricGaussian | MechanismKind::IsotropicGaussian => {
            "The Gaussian noise is drawn in floating point: its lowest bits are not covered by the proof."
        }
        MechanismKind::DiscreteGaussian => {
            "The noise is exact, in integers. The time one report takes depends on its noise: send it later, not when it is ready."
        }
    }
}

/// The warning due above [`WARN_EPSILON`]; `None` below.
pub fn epsilon_warning(epsilon: f64) -> Option<String> {
    (epsilon > WARN_EPSILON).then(|| {
        format!("Epsilon is {epsilon}: above {WARN_EPSILON} one report may tell two rows apart almost surely.")
    })
}

/// The warning due when δ exceeds 1/n: with that δ a mechanism may publish a whole row now and then and
/// still be (ε, δ)-private. `None` where δ ≤ 1/n.
pub fn delta_warning(delta: f64, n: u64) -> Option<String> {
    (delta * n as f64 > 1.0).then(|| {
        format!(
            "Delta is {delta:e}, more than one over the {n} participants: such a delta allows that somebody's row is given away. Take it well below {:.0e}.",
            1.0 / n as f64
        )
    })
}

/// ε as odds a person can read, with the probability that they are exceeded (which is not δ).
fn sentence(epsilon: f64, exceeded: f64) -> String {
    let factor = epsilon.exp();
    let factor = if factor < 10.0 {
        format!("{factor:.1}")
    } else if factor < 1e6 {
        format!("{factor:.0}")
    } else {
        format!("{factor:.0e}")
    };
    let exception = if exceeded > 0.0 {
        format!(", except with probability {exceeded:.0e}")
    } else {
        String::new()
    };
    format!(
        "Whatever the server believed about two possible rows of a participant, one report changes the odds between them by a factor of at most {factor}{exception}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        preprocess::Norm,
        privacy::Budget,
        study::{StudyDesign, StudyParams},
    };

    fn statement(calibration: Calibration, epsilon: f64, delta: f64) -> PrivacyStatement {
        let params = StudyParams::freeze(StudyDesign {
            dimension: 40,
            features: None,
            norm: Norm::Normalize,
            centring: None,
            mechanism: MechanismKind::SymmetricGaussian,
            calibration,
            budget: Budget::approximate(epsilon, delta).unwrap(),
        })
        .unwrap();
        PrivacyStatement::of(&params)
    }

    #[test]
    fn as_published_is_labelled_with_what_holds_and_not_where_it_holds() {
        let short = statement(Calibration::AsPublished, 4.0, 1e-6);
        assert!(!short.claim_holds && short.true_delta > 1.4e-4);
        assert!(short.true_epsilon.unwrap() > 5.26 && short.true_epsilon.unwrap() < 5.27);
        assert!(
            short.cautions[0].contains("smaller than this epsilon"),
            "{:?}",
            short.cautions
        );
        // e^5.265 = 193: the sentence speaks of what holds, not of what is claimed.
        assert!(short.sentence.contains("at most 193"), "{}", short.sentence);
        // The paper's own synthetic setting is on the safe side, and nothing there calls it broken.
        let safe = statement(Calibration::AsPublished, 0.5, 1e-4);
        assert!(safe.claim_holds && safe.true_epsilon.unwrap() < 0.5);
        assert!(
            !safe
                .cautions
                .iter()
                .any(|caution| caution.contains("smaller"))
        );
    }

    #[test]
    fn delta_above_one_over_n_warns() {
        assert_eq!(delta_warning(1e-6, 1_000_000), None);
        assert!(delta_warning(1e-6, 1_000_001).unwrap().contains("1000001"));
        assert_eq!(delta_warning(1e-6, 0), None);
    }

    #[test]
    fn the_sentence_does_not_pass_delta_off_as_a_probability_of_exceeding() {
        let analytic = statement(Calibration::Analytic, 1.0, 1e-6);
        assert!(analytic.claim_holds && analytic.true_epsilon.unwrap() <= 1.0);
        assert!(
            analytic.sentence.contains("at most 2.7"),
            "{}",
            analytic.sentence
        );
        assert!(
            analytic.sentence.contains("probability 2e-5"),
            "{}",
            analytic.sentence
        );
        assert!(statement(Calibration::Analytic, 9.0, 1e-6).cautions[0].contains("above 8"));
        let pure = PrivacyStatement::of(
            &StudyParams::freeze(StudyDesign {
                dimension: 40,
                features: None,
                norm: Norm::Normalize,
                centring: None,
                mechanism: MechanismKind::DoubleCap,
                calibration: Calibration::Analytic,
                budget: Budget::pure(1.0).unwrap(),
            })
            .unwrap(),
        );
        assert!(pure.sentence.ends_with("at most 2.7."), "{}", pure.sentence);
        assert!(pure.claim_holds && pure.true_delta == 0.0 && pure.calibration.is_none());
        let above = pure.true_epsilon.unwrap() - 1.0;
        assert!((0.5_f64.powi(20)..0.6_f64.powi(20)).contains(&above));
        assert_eq!((pure.payload_bytes, pure.bytes_per_report), (16, 74));
        assert_eq!(analytic.payload_bytes, 4 * 820);
        assert_eq!(analytic.bytes_per_report, 58 + 4 * 820);
    }
}
