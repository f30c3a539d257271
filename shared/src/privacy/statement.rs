//! What was promised to each participant, in numbers and in plain words.

use serde::{Deserialize, Serialize};

use super::{WARN_EPSILON, format_epsilon, format_rounded_up};
use crate::{
    codec,
    mechanism::{
        Calibration, MechanismName, randomised_response::ANSWER_LEN, table::TableMechanism,
    },
    preparation::PreparationParams,
    site_study::SiteStudyParams,
    study::StudyParams,
};

/// The notice that nobody has to take part, shown before anybody does.
pub const REFUSAL: &str =
    "You may refuse, and doing nothing is refusing: then nothing of yours is sent.";

/// How to stop after having taken part: shown beside what a report reveals.
pub const STOPPING: &str = "You may stop later: a report that no server has acknowledged can be given up, and is then \
    never sent. Its epsilon stays charged, since the server may have it already, and no other report of the same data \
    is made for this study. A report that was counted stays.";

/// The privacy statement of a study, shown on every surface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PrivacyStatement {
    /// The local randomizer.
    pub mechanism: MechanismName,
    /// How its noise was chosen, where there is a choice.
    pub calibration: Option<Calibration>,
    /// Which two inputs a report must not tell apart.
    pub neighbours: String,
    /// Claimed ε of one report.
    pub epsilon: f64,
    /// Claimed δ of one report.
    pub delta: f64,
    /// The ε that really holds at the claimed δ, rounded up, arithmetic in floating point included; `null` when
    /// none does.
    pub true_epsilon: Option<f64>,
    /// The δ that really holds at the claimed ε, rounded up; up to what floating point adds to that ε.
    pub true_delta: f64,
    /// Whether the claim holds: `true_delta ≤ delta`, up to what floating point adds to ε (2⁻²⁰ for `double-cap`; at
    /// most a hundredth of ε for the Gaussian mechanisms, far less below p = 1,000; nothing for the discrete one).
    pub claim_holds: bool,
    /// Bytes of the mechanism's payload alone.
    pub payload_bytes: usize,
    /// Bytes of one report with identifier, fingerprint and envelope.
    pub report_bytes: usize,
    /// The information that one report could give the server, in a sentence or two.
    pub sentence: String,
    /// Warnings for the reader; empty if there are none.
    pub warnings: Vec<String>,
}

impl PrivacyStatement {
    /// The statement for frozen parameters.
    pub fn new(params: &StudyParams) -> Self {
        let budget = params.budget();
        let (epsilon, delta) = (budget.epsilon(), budget.delta());
        let mechanism = params.mechanism();
        let true_delta = mechanism.true_delta(epsilon);
        let slack = mechanism.arithmetic_slack(params.report_dimension());
        let true_epsilon = mechanism.epsilon_with_rounding(params.report_dimension(), delta);
        let claim_holds = true_delta <= delta;
        let mut warnings = Vec::new();
        if !claim_holds {
            warnings.push(match true_epsilon {
                Some(real) => format!(
                    "The noise is the one printed in the paper. It is smaller than this epsilon and delta need: what really holds is ({}, {delta:e}), or ({epsilon}, {}).",
                    format_epsilon(real, 4),
                    format_rounded_up(true_delta, 2)
                ),
                None => format!(
                    "The noise is far smaller than this epsilon and delta need: no epsilon holds at delta {delta:e}."
                ),
            });
        }
        warnings.extend(epsilon_warning(epsilon));
        warnings.push(mechanism.assumption(params.report_dimension()));
        // The privacy loss of the real-number mechanism, and what floating point adds to it.
        let loss = match true_epsilon {
            _ if claim_holds => epsilon,
            Some(real) => real,
            None => f64::INFINITY,
        };
        let exceeded = mechanism.privacy_loss_tail(loss) * (1.0 + slack);
        Self {
            mechanism: mechanism.kind().into(),
            calibration: mechanism.calibration(),
            neighbours: "replacement: any two rows the participant might hold".to_owned(),
            epsilon,
            delta,
            true_epsilon,
            true_delta,
            claim_holds,
            payload_bytes: params.payload_len(),
            report_bytes: codec::report_len(params.payload_len()),
            sentence: sentence(loss + slack, exceeded.min(1.0)),
            warnings,
        }
    }

    /// The statement of a study of sites: one report of a table, against everybody but its site.
    pub fn of_site(params: &SiteStudyParams) -> Self {
        let budget = params.budget();
        let (epsilon, delta) = (budget.epsilon(), budget.delta());
        let mechanism = params.mechanism();
        let true_delta = mechanism.true_delta(epsilon);
        let slack = mechanism.arithmetic_slack();
        let exceeded = mechanism.privacy_loss_tail(epsilon) * (1.0 + slack);
        let odds = change_of_odds(epsilon + slack, exceeded.min(1.0));
        let max_rows = params.terms().max_rows;
        let persons = params.terms().rows_per_person.is_some();
        let (neighbours, whom, sentence) = match persons {
            false => (
                "one row of a site's table, added, removed or replaced",
                "rows of the largest table",
                format!(
                    "Each row of the table is protected, against everybody but the site: whatever they believed about one row, or about whether there is one, the report changes the odds by {odds}. Two rows of one person together have {}.",
                    epsilon_of(mechanism, 4, delta)
                ),
            ),
            true => (
                "all rows of one person in a site's table, added, removed or replaced",
                "persons of the largest table",
                format!(
                    "Each person at one site is protected, against everybody but the site: whatever they believed about one person's rows, or about whether there are any, the report changes the odds by {odds}. A person at two sites has {}; so has the question in which of two tables of one site a person is.",
                    epsilon_of(mechanism, 2, delta)
                ),
            ),
        };
        let mut warnings = vec![
            "It is not hidden that a site takes part, when and how often. What a site did to its rows with its own means, scales or imputed values, and not with public constants, is not protected.".to_owned(),
        ];
        warnings.extend(delta_above(delta, max_rows, whom));
        warnings.extend(epsilon_warning(epsilon));
        warnings.push(mechanism.assumption());
        Self {
            mechanism: mechanism.kind().into(),
            calibration: mechanism.calibration(),
            neighbours: neighbours.to_owned(),
            epsilon,
            delta,
            true_epsilon: mechanism.epsilon_with_rounding(delta),
            true_delta,
            claim_holds: true_delta <= delta,
            payload_bytes: mechanism.payload_len(),
            report_bytes: codec::report_len(mechanism.payload_len()),
            sentence,
            warnings,
        }
    }

    /// The statement of a preparation: one answer about one column.
    pub fn of_preparation(params: &PreparationParams) -> Self {
        let epsilon = params.budget().epsilon();
        let columns = params.columns().len();
        let mut warnings = vec![match params.after() {
            None => "The answers make centers and scales for another study. Whoever takes part in both is charged for both.".to_owned(),
            Some(first) => format!("This is the second round of the preparation with fingerprint {first}: whoever took part in that does not take part in this. The answers make centers and scales for another study; whoever takes part in that, too, is charged for both."),
        }];
        warnings.extend(epsilon_warning(epsilon));
        let odds = change_of_odds(epsilon, 0.0);
        Self {
            mechanism: MechanismName::RANDOMISED_RESPONSE,
            calibration: None,
            neighbours:
                "replacement: any two rows the participant might hold, missing values included"
                    .to_owned(),
            epsilon,
            delta: 0.0,
            true_epsilon: Some(epsilon),
            true_delta: 0.0,
            claim_holds: true,
            payload_bytes: ANSWER_LEN,
            report_bytes: codec::report_len(ANSWER_LEN),
            sentence: format!(
                "One of {columns} columns is drawn before the row is looked at, and one question about it is answered, often with an answer that was drawn, too. Whatever the server believed about two possible rows of a participant, the report changes the odds between them by {odds}."
            ),
            warnings,
        }
    }

    /// The statement to a person of whose rows one is reported, drawn at random (`docs/derivations/persons.md`).
    #[must_use]
    pub fn of_person(self) -> Self {
        Self {
            neighbours: "replacement: the rows of one person, all of them and their number"
                .to_owned(),
            ..self
        }
    }
}

/// Warnings about a δ that is large for `n` participants, and about a large ε.
pub fn budget_warnings(epsilon: f64, delta: f64, n: u64) -> Vec<String> {
    let warnings = [delta_warning(delta, n), epsilon_warning(epsilon)];
    warnings.into_iter().flatten().collect()
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
    delta_above(delta, n, "participants")
}

/// The warning of [`delta_warning`] where `n` counts something else, such as the rows of tables.
pub fn delta_above(delta: f64, n: u64, whom: &str) -> Option<String> {
    (delta * n as f64 > 1.0).then(|| {
        format!(
            "Delta is {delta:e}, more than one over the {n} {whom}: such a delta allows revealing somebody's whole row. Choose one well below {:.0e}.",
            1.0 / n as f64
        )
    })
}

/// The ε of inputs whose squared distance is `times` that of neighbours, in words.
fn epsilon_of(mechanism: &TableMechanism, times: u32, delta: f64) -> String {
    match mechanism.epsilon_of(times, delta) {
        Some(epsilon) => format!("an epsilon of {}", format_epsilon(epsilon, 2)),
        None => "no epsilon".to_owned(),
    }
}

fn sentence(epsilon: f64, exceeded: f64) -> String {
    format!(
        "Whatever the server believed about two possible rows of a participant, one report changes the odds between them by {}.",
        change_of_odds(epsilon, exceeded)
    )
}

/// ε as odds a person can read, with the probability that they are exceeded either way (which is not δ). Both are
/// rounded against us.
fn change_of_odds(epsilon: f64, exceeded: f64) -> String {
    // More than what rounding the logarithm can lose.
    let factor = epsilon.exp() * (1.0 + 4.0 * f64::EPSILON);
    let change = if factor < 10.0 {
        format!("a factor of at most {:.2}", (factor * 100.0).ceil() / 100.0)
    } else if factor < 1e6 {
        format!("a factor of at most {:.0}", factor.ceil())
    } else if factor.is_finite() {
        format!("a factor of at most {}", format_rounded_up(factor, 2))
    } else {
        "any factor".to_owned()
    };
    let exception = match exceeded > 0.0 && factor.is_finite() {
        true => format!(
            ", except with probability {}",
            format_rounded_up(exceeded, 2)
        ),
        false => String::new(),
    };
    change + &exception
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mechanism::MechanismKind,
        preparation::{ColumnKind, PreparationColumn},
        privacy::Budget,
        site_study::{SiteStudyDesign, SiteTerms},
        study::{StudyDesign, StudyParams},
    };

    fn statement(calibration: Calibration, epsilon: f64, delta: f64) -> PrivacyStatement {
        let budget = Budget::approximate(epsilon, delta).unwrap();
        let design = StudyDesign {
            calibration,
            ..StudyDesign::new(MechanismKind::SymmetricGaussian, 40, budget)
        };
        PrivacyStatement::new(&StudyParams::freeze(design).unwrap())
    }

    fn statement_of_sites(
        rows_per_person: Option<u16>,
        mechanism: MechanismKind,
    ) -> PrivacyStatement {
        let terms = SiteTerms {
            rows_per_person,
            ..SiteTerms::new(20_000_000)
        };
        let budget = Budget::approximate(1.0, 1e-7).unwrap();
        let params = SiteStudyParams::freeze(SiteStudyDesign {
            mechanism,
            ..SiteStudyDesign::new(40, budget, terms)
        });
        PrivacyStatement::of_site(&params.unwrap())
    }

    fn says(text: &str, words: &str) {
        assert!(text.contains(words), "{text}");
    }

    #[test]
    fn as_published_warns_only_if_the_claim_fails() {
        let short = statement(Calibration::AsPublished, 4.0, 1e-6);
        assert!(!short.claim_holds && short.true_delta > 1.4e-4);
        assert!(short.true_epsilon.unwrap() > 5.26 && short.true_epsilon.unwrap() < 5.27);
        says(&short.warnings[0], "smaller than this epsilon");
        // e^5.265 = 193.4: the sentence speaks of what holds, not of what is claimed.
        says(&short.sentence, "at most 194");
        // The paper's own synthetic setting is on the safe side, and nothing there calls it broken.
        let safe = statement(Calibration::AsPublished, 0.5, 1e-4);
        assert!(safe.claim_holds && safe.true_epsilon.unwrap() < 0.5);
        assert!(!safe.warnings.concat().contains("smaller"));
    }

    /// ε of two rows of one person and of a person at two sites: 2.101 and 1.448 (`docs/derivations/sites.md`).
    #[test]
    fn a_site_is_told_who_is_protected() {
        for mechanism in [
            MechanismKind::DiscreteGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            let rows = statement_of_sites(None, mechanism);
            says(&rows.neighbours, "one row of a site's table");
            says(&rows.sentence, "Each row of the table");
            says(&rows.sentence, "everybody but the site");
            says(&rows.sentence, "at most 2.72, ");
            says(
                &rows.sentence,
                "one person together have an epsilon of 2.11.",
            );
            says(&rows.warnings.concat(), "over the 20000000 rows");
            assert!(rows.claim_holds && rows.true_epsilon.unwrap() < 1.000_01);
            let persons = statement_of_sites(Some(5), mechanism);
            says(&persons.neighbours, "all rows of one person");
            says(&persons.sentence, "Each person at one site");
            says(
                &persons.sentence,
                "A person at two sites has an epsilon of 1.45; so has the question in which of two tables",
            );
            assert_eq!(persons.payload_bytes, 8 * (41 * 42 / 2 + 1));
            assert_eq!(persons.report_bytes, 58 + persons.payload_bytes);
        }
    }

    #[test]
    fn whoever_prepares_is_told_of_both_charges() {
        let columns = vec![PreparationColumn::new("x", ColumnKind::YesNo)];
        let params = PreparationParams::freeze(columns.clone(), 1.0, None).unwrap();
        let statement = PrivacyStatement::of_preparation(&params);
        says(&statement.sentence, "at most 2.72.");
        says(&statement.neighbours, "missing values included");
        says(&statement.warnings[0], "charged for both");
        assert_eq!((statement.payload_bytes, statement.report_bytes), (4, 62));
        assert_eq!(
            (statement.true_epsilon, statement.true_delta),
            (Some(1.0), 0.0)
        );
        let second = PreparationParams::freeze(columns, 9.0, Some(params.fingerprint())).unwrap();
        let statement = PrivacyStatement::of_preparation(&second);
        says(&statement.warnings[0], &params.fingerprint().to_string());
        says(&statement.warnings[1], "above 8");
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
        // p = 40: 820 entries, 2⁻³⁵ or so each.
        let above = analytic.true_epsilon.unwrap() - 1.0;
        assert!(analytic.claim_holds && above > 0.0 && above < 1e-7);
        says(&analytic.sentence, "at most 2.72, ");
        // 2.00e-5 upwards and 7.0e-6 downwards, up.
        says(&analytic.sentence, "probability 2.8e-5");
        says(&analytic.warnings[0], "at most 9.1e-9");
        let large = statement(Calibration::Analytic, 9.0, 1e-6);
        says(&large.warnings[0], "above 8");
        let budget = Budget::pure(1.0).unwrap();
        let design = StudyDesign::new(MechanismKind::DoubleCap, 40, budget);
        let pure = PrivacyStatement::new(&StudyParams::freeze(design).unwrap());
        says(&pure.sentence, "at most 2.72.");
        assert!(pure.claim_holds && pure.true_delta == 0.0 && pure.calibration.is_none());
        let above = pure.true_epsilon.unwrap() - 1.0;
        assert!((0.5_f64.powi(20)..0.6_f64.powi(20)).contains(&above));
        assert_eq!((pure.payload_bytes, pure.report_bytes), (16, 74));
        assert_eq!(analytic.payload_bytes, 4 * 820);
        assert_eq!(analytic.report_bytes, 58 + 4 * 820);
    }

    /// Fails where the nearest number is shown: "at most 1.0" at ε = 0.04.
    #[test]
    fn no_number_is_rounded_in_our_favour() {
        for epsilon in [
            1e-9, 0.001, 0.04, 0.5, 1.0, 2.0, 2.302, 2.303, 4.0, 5.265, 9.0, 13.8, 13.9, 16.0, 40.0,
        ] {
            let text = sentence(epsilon, 0.0);
            let (_, factor) = text.rsplit_once(' ').unwrap();
            let factor: f64 = factor.trim_end_matches('.').parse().unwrap();
            assert!(factor >= epsilon.exp(), "{epsilon}: {factor}");
            let step = if factor < 10.0 { 0.01 } else { factor * 0.1 };
            assert!(factor <= epsilon.exp() + step, "{epsilon}: {factor}");
        }
        assert!(sentence(0.04, 0.0).contains("at most 1.05."));
        assert!(sentence(1000.0, 0.5).ends_with("by any factor."));
    }
}
