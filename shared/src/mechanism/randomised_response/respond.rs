//! The device's side: everything is drawn first, then one column's cells are looked at.

use std::sync::Arc;

use rand::Rng;

use super::{ANSWER_LEN, Answer, Question, question::mask};
use crate::{
    error::{Result, error},
    mechanism::{SamplingCost, sampling_cost::CountingRng, spec::release_generator},
    preprocess::Row,
};

/// Randomised response to one of a study's questions; see the [module](super).
#[derive(Clone, Debug, PartialEq)]
pub struct RandomisedResponse {
    epsilon: f64,
    dimension: usize,
    questions: Arc<[Question]>,
}

/// All that is random in a report, drawn before a cell is looked at.
struct Draws {
    column: u16,
    comb: u8,
    /// The true answer of a cell that cannot be used.
    stand_in: u8,
    /// Added to the true answer, modulo B.
    shift: u8,
}

impl RandomisedResponse {
    /// The mechanism for these questions about rows of this dimension: 1 to 65,535 of them, of 2 to 255 answers each.
    pub(crate) fn new(epsilon: f64, dimension: usize, questions: Vec<Question>) -> Self {
        Self {
            epsilon,
            dimension,
            questions: questions.into(),
        }
    }

    /// The questions, one for each column.
    pub fn questions(&self) -> &[Question] {
        &self.questions
    }

    pub(crate) fn shared_questions(&self) -> Arc<[Question]> {
        Arc::clone(&self.questions)
    }

    /// Number of counts of all questions.
    pub fn counts(&self) -> usize {
        let last = self.questions.last();
        last.map_or(0, |last| last.first_count + last.counts())
    }

    /// Probabilities of the true answer, and of each other one, among `answers`: e^ε/(e^ε + B − 1) and 1/(e^ε + B − 1).
    pub fn probabilities(&self, answers: u8) -> [f64; 2] {
        let odds = libm::exp(self.epsilon);
        let total = odds + f64::from(answers) - 1.0;
        [odds / total, 1.0 / total]
    }

    /// The answer of one row. Column and comb are drawn with the operating system's randomness before the row is looked
    /// at; a cell that cannot be used is answered for by a uniform answer, or as missing where that is an answer.
    ///
    /// # Errors
    /// `wrong-dimension`, whatever is drawn; `randomness-unavailable`.
    pub fn perturb(&self, row: &Row) -> Result<Vec<u8>> {
        Ok(self.perturb_measured(row)?.0)
    }

    /// Like [`perturb`](Self::perturb), and also returns what someone timing the device could see. **For the audit
    /// only**: it must never leave a device.
    pub fn perturb_measured(&self, row: &Row) -> Result<(Vec<u8>, SamplingCost)> {
        let mut rng = release_generator()?;
        let mut counting = CountingRng::new(&mut rng);
        let bytes = self.perturb_with(row, &mut counting)?;
        let words = counting.words();
        Ok((bytes.to_vec(), SamplingCost { attempts: 1, words }))
    }

    /// Answers with the caller's generator, **for simulation only**: reproducible noise protects nobody.
    ///
    /// # Errors
    /// `wrong-dimension`.
    pub fn perturb_with<R: Rng + ?Sized>(
        &self,
        row: &Row,
        rng: &mut R,
    ) -> Result<[u8; ANSWER_LEN]> {
        let cells = row.values();
        if cells.len() != self.dimension {
            return Err(error!(
                WrongDimension,
                "the row has {} values but the study's rows have {}",
                cells.len(),
                self.dimension
            ));
        }
        let draws = self.draw(rng);
        let question = &self.questions[usize::from(draws.column)];
        let truth = question.truth(cells, draws.comb, draws.stand_in);
        let answer = add_modulo(truth, draws.shift, question.answers());
        Ok(Answer::bytes_of(draws.column, draws.comb, answer))
    }

    fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> Draws {
        let column = below(self.questions.len() as u64, rng) as u16;
        let question = &self.questions[usize::from(column)];
        let answers = question.answers();
        let comb = small(question.combs(), rng);
        let stand_in = small(answers, rng);
        let other = 1 + small(answers - 1, rng);
        let is_true = u128::from(rng.next_u64()) < truth_limit(self.epsilon, answers);
        Draws {
            column,
            comb,
            stand_in,
            // Nobody who times the device learns whether the answer is true.
            shift: (u64::from(other) & mask(!is_true)) as u8,
        }
    }
}

/// `truth + shift` modulo `answers`, both below it, without a branch or a division.
pub(super) fn add_modulo(truth: u8, shift: u8, answers: u8) -> u8 {
    let sum = u64::from(truth) + u64::from(shift);
    // All ones if the sum is `answers` or more.
    let beyond = u64::from(answers)
        .wrapping_sub(1)
        .wrapping_sub(sum)
        .wrapping_shr(63)
        .wrapping_neg();
    (sum - (u64::from(answers) & beyond)) as u8
}

/// At most e^ε/(e^ε + B − 1)·2⁶⁴: rounded down past the error of the exponential, so that the truth is never told too
/// often.
pub(super) fn truth_limit(epsilon: f64, answers: u8) -> u128 {
    const TWO_TO_64: f64 = (1_u128 << 64) as f64;
    // 1/(1 + (B − 1)e^−ε), each step rounded upwards in the denominator.
    let tail = libm::exp(-epsilon).next_up().next_up() * (f64::from(answers) - 1.0);
    let share = (1.0 / (1.0 + tail.next_up()).next_up()).next_down();
    (share * TWO_TO_64).floor() as u128
}

fn small<R: Rng + ?Sized>(bound: u8, rng: &mut R) -> u8 {
    below(u64::from(bound), rng) as u8
}

/// A uniform whole number below `bound` > 0, exactly: what would make it biased is drawn again (Lemire 2019). How often
/// does not depend on a row.
pub(super) fn below<R: Rng + ?Sized>(bound: u64, rng: &mut R) -> u64 {
    // 2⁶⁴ modulo the bound.
    let biased = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= biased {
            return (product >> 64) as u64;
        }
    }
}
