//! The answers of one round, and those of two rounds that belong together.

use eigenveil_shared::{
    Error, Result,
    mechanism::randomised_response::Question,
    preparation::{PreparationColumn, PreparationParams},
};

/// The answers of a round: its parameters, and how often each answer was given.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    params: &'a PreparationParams,
    counts: &'a [u64],
    people: u64,
}

impl<'a> Round<'a> {
    /// A round with a count for each answer to each question, in their order.
    ///
    /// # Errors
    /// `estimate-failed` for another number of counts.
    pub fn new(params: &'a PreparationParams, counts: &'a [u64]) -> Result<Self> {
        let expected = params.mechanism().counts();
        match counts.len() == expected {
            true => Ok(Self {
                params,
                counts,
                people: counts.iter().sum(),
            }),
            false => Err(Error::estimate_failed(format!(
                "there are {} counts of answers, but the questions have {expected} answers",
                counts.len()
            ))),
        }
    }

    /// Its parameters.
    pub fn params(self) -> &'a PreparationParams {
        self.params
    }

    /// Number of people who answered.
    pub fn people(self) -> u64 {
        self.people
    }

    /// The counts of a column, by comb and answer.
    pub(super) fn counts_of(self, column: usize) -> impl Iterator<Item = &'a [u64]> {
        let question = &self.params.mechanism().questions()[column];
        let first = question.first_count;
        let counts = &self.counts[first..first + question.counts()];
        counts.chunks_exact(usize::from(question.answers()))
    }

    /// Number of answers about a column.
    pub(super) fn answers_about(self, column: usize) -> u64 {
        self.counts_of(column).flatten().sum()
    }
}

/// A first round, and perhaps its second one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds<'a> {
    pub(super) first: Round<'a>,
    pub(super) second: Option<Round<'a>>,
}

impl<'a> Rounds<'a> {
    /// # Errors
    /// `invalid-request` for a second round without its first one, or of another one.
    pub(super) fn new(first: Round<'a>, second: Option<Round<'a>>) -> Result<Self> {
        if first.params.after().is_some() {
            return Err(Error::invalid_request(
                "this is the second round of a preparation; its answers are fitted together with those of the first round",
            ));
        }
        if let Some(second) = second {
            first.params.check_second(second.params)?;
        }
        Ok(Self { first, second })
    }

    pub(super) fn all(self) -> impl Iterator<Item = Round<'a>> {
        std::iter::once(self.first).chain(self.second)
    }

    pub(super) fn columns(self) -> &'a [PreparationColumn] {
        self.first.params.columns()
    }

    /// The question about a column, as the first round asks it.
    pub(super) fn question(self, column: usize) -> &'a Question {
        &self.first.params.mechanism().questions()[column]
    }

    pub(super) fn epsilon(self) -> f64 {
        self.first.params.budget().epsilon()
    }

    /// Answers of all rounds about a column.
    pub(super) fn answers_about(self, column: usize) -> u64 {
        self.all().map(|round| round.answers_about(column)).sum()
    }

    /// The counts of all rounds of the answers to a question without rungs.
    pub(super) fn totals(self, column: usize) -> Vec<u64> {
        let mut totals = vec![0; usize::from(self.question(column).answers())];
        for counts in self.all().flat_map(|round| round.counts_of(column)) {
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count;
            }
        }
        totals
    }
}
