//! How many people a preparation needs, and what it costs the study to come.

use eigenveil_shared::{
    Error, Result,
    mechanism::randomised_response::Question,
    preparation::{MIN_EPSILON, PreparationColumn, PreparationParams},
    privacy::Budget,
};
use serde::Serialize;

/// Effective answers a column below which there is a warning.
pub const ADVISED_ANSWERS: f64 = 150.0;
/// Effective answers a column below which constants are not worth using.
pub const FEWEST_ANSWERS: f64 = 50.0;
/// Effective answers a column from which more would help little.
const ENOUGH_ANSWERS: f64 = 1_000.0;
/// Share of the people who prepare at most.
const MAX_SHARE: f64 = 0.3;
/// Share of those who prepare that are asked in the first round.
const FIRST_ROUND: f64 = 0.4;
/// Further loss of the top-k variance of the study to come, in percent, on average and for nine of ten tables: from so
/// many effective answers a column (eight real tables; `docs/preparation.md`).
const FURTHER_LOSS: [(f64, f64, f64); 7] = [
    (800.0, 0.7, 1.4),
    (400.0, 1.2, 1.8),
    (200.0, 2.1, 4.1),
    (100.0, 3.3, 5.5),
    (50.0, 6.3, 11.0),
    (20.0, 11.0, 23.0),
    (0.0, 20.0, 32.0),
];

/// Information of one of B answers, J(ε) = ((e^ε − 1)/(e^ε + B − 1))²: of three, as about a number that everybody has,
/// 0.032, 0.133, 0.463 and 0.897 at ε = 0.5, 1, 2 and 4.
pub fn information(epsilon: f64, answers: u8) -> f64 {
    let odds_less_one = libm::expm1(epsilon);
    (odds_less_one / (odds_less_one + f64::from(answers))).powi(2)
}

/// A request for a plan of a preparation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PreparationPlanRequest {
    /// Columns p.
    pub columns: u64,
    /// Answers B to the question that has most of them: 3 for a number that everybody has.
    pub answers: u8,
    /// People n, for preparation and study together.
    pub n: u64,
    /// ε of each report.
    pub epsilon: f64,
}

impl PreparationPlanRequest {
    /// The request for these columns.
    ///
    /// # Errors
    /// Those of [`PreparationParams::freeze`].
    pub fn of_columns(columns: Vec<PreparationColumn>, n: u64, epsilon: f64) -> Result<Self> {
        let params = PreparationParams::freeze(columns, epsilon, None)?;
        let questions = params.mechanism().questions();
        Ok(Self {
            columns: questions.len() as u64,
            // There is a question.
            answers: questions.iter().map(Question::answers).max().unwrap_or(3),
            n,
            epsilon,
        })
    }
}

/// How many people prepare, and what that gives. Scripts rely on the keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PreparationPlan {
    /// Columns p.
    pub columns: u64,
    /// Answers B to the question that has most of them.
    pub answers: u8,
    /// People n.
    pub n: u64,
    /// ε of each report.
    pub epsilon: f64,
    /// People who prepare, n₁ = min(0.3·n, 1000·p/J(ε)).
    pub prepare: u64,
    /// People who are asked in the first round, if there are two.
    pub first_round: u64,
    /// People who are left for the study.
    pub study: u64,
    /// Effective answers about the column of this question, N = n₁·J(ε)/p; about others more.
    pub effective_answers: f64,
    /// A center is within so many standard deviations, in 19 of 20 cases where tails are not heavy.
    pub center_within: f64,
    /// A scale is within this factor, in two of three cases where tails are not heavy.
    pub scale_within: f64,
    /// Further loss of the variance of the study's first components, in percent.
    pub further_loss: f64,
    /// The loss that nine of ten tables stay below, in percent.
    pub further_loss_of_nine_in_ten: f64,
    /// Whether so many answers are worth it: 50 a column at least.
    pub is_recommended: bool,
}

impl PreparationPlan {
    /// Advice in sentences, the most important first.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![
            "Fifty public rows of the same kind of people are worth 300 effective answers a column: look for them first."
                .to_owned(),
        ];
        let effective = self.effective_answers.round();
        if !self.is_recommended {
            sentences.push(format!(
                "With {effective} effective answers a column a preparation is not recommended: make columns fewer, epsilon larger, or find fifty public rows."
            ));
        } else if self.effective_answers < ADVISED_ANSWERS {
            sentences.push(format!(
                "{effective} effective answers a column are few; {ADVISED_ANSWERS} are advised."
            ));
        }
        sentences
    }
}

/// Plans a preparation: each person prepares or takes part in the study, at the full ε.
///
/// # Errors
/// `invalid-request` without columns or people; `invalid-budget`.
pub fn plan_preparation(request: &PreparationPlanRequest) -> Result<PreparationPlan> {
    let PreparationPlanRequest {
        columns,
        answers,
        n,
        epsilon,
    } = *request;
    if columns == 0 || n == 0 {
        return Err(Error::invalid_request(format!(
            "{columns} columns are asked about with {n} people; both must be at least 1"
        )));
    }
    Budget::pure(epsilon)?.check_study_limit()?;
    let information = information(epsilon.max(MIN_EPSILON), answers);
    let enough = ENOUGH_ANSWERS * columns as f64 / information;
    let prepare = (MAX_SHARE * n as f64).min(enough).ceil();
    let effective_answers = prepare * information / columns as f64;
    let loss = FURTHER_LOSS
        .iter()
        .find(|(from, ..)| effective_answers >= *from);
    let (_, further_loss, further_loss_of_nine_in_ten) = *loss.unwrap_or(&FURTHER_LOSS[6]);
    let prepare = (prepare as u64).min(n);
    Ok(PreparationPlan {
        columns,
        answers,
        n,
        epsilon,
        prepare,
        first_round: (FIRST_ROUND * prepare as f64).ceil() as u64,
        study: n - prepare,
        effective_answers,
        center_within: 4.0 / effective_answers.sqrt(),
        scale_within: (2.6 / effective_answers.sqrt()).exp(),
        further_loss,
        further_loss_of_nine_in_ten,
        is_recommended: effective_answers >= FEWEST_ANSWERS,
    })
}
