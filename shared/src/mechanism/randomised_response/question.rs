//! The question about a column, and the true answer to it.

use std::{hint::black_box, ops::Range};

use super::Ladder;

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QuestionKind {
    /// Is the number below both rungs of a comb (0), between them (1), at or above both (2)?
    Number(Ladder),
    /// Is the value 0 (0) or 1 (1)?
    YesNo,
    /// Which of so many categories is it (0 …), or is it another one (the last answer)?
    Categories(u8),
}

/// The question about a column of a preparation.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its kind.
    pub kind: QuestionKind,
    /// Whether "missing" is an answer, the last one.
    pub may_be_missing: bool,
    /// The places of its values in a row: one, or one of 0 and 1 for each category.
    pub values: Range<usize>,
    /// The place of its first count among those of all questions.
    pub first_count: usize,
}

/// All ones for true, without a branch: a compiler that saw where the number comes from would make it a jump.
pub(super) fn mask(is: bool) -> u64 {
    black_box(u64::from(is)).wrapping_neg()
}

impl Question {
    /// Number of combs, from which one is drawn: 1 for a question without rungs.
    pub fn combs(&self) -> u8 {
        match self.kind {
            QuestionKind::Number(ladder) => ladder.combs(),
            QuestionKind::YesNo | QuestionKind::Categories(_) => 1,
        }
    }

    /// Number of answers B, "missing" included.
    pub fn answers(&self) -> u8 {
        let answers = match self.kind {
            QuestionKind::Number(_) => 3,
            QuestionKind::YesNo => 2,
            QuestionKind::Categories(categories) => categories + 1,
        };
        answers + u8::from(self.may_be_missing)
    }

    /// Number of counts: one for each comb and answer.
    pub fn counts(&self) -> usize {
        usize::from(self.combs()) * usize::from(self.answers())
    }

    /// The place of the count of this comb and answer among those of all questions.
    pub fn count(&self, comb: u8, answer: u8) -> usize {
        self.first_count + usize::from(comb) * usize::from(self.answers()) + usize::from(answer)
    }

    /// The true answer of a row of the study's dimension: that of its cells, "missing", or `stand_in` where a cell
    /// cannot be used and "missing" is no answer. Without a branch on a cell.
    pub(super) fn truth(&self, row: &[f64], comb: u8, stand_in: u8) -> u8 {
        let cells = &row[self.values.clone()];
        let (answer, unusable) = match self.kind {
            QuestionKind::Number(ladder) => {
                let (x, [low, high]) = (cells[0], ladder.comb(comb));
                let answer = u64::from(x >= low) + u64::from(x >= high);
                (answer, mask(x.is_nan()))
            }
            QuestionKind::YesNo => {
                let [no, yes] = [0.0, 1.0].map(|value| cells[0] == value);
                (u64::from(yes), mask(!(no | yes)))
            }
            QuestionKind::Categories(_) => {
                let (mut answer, mut ones, mut zeros) = (0, 0, 0);
                for (number, cell) in (0_u64..).zip(cells) {
                    let one = mask(*cell == 1.0);
                    answer += number & one;
                    ones += one & 1;
                    zeros += mask(*cell == 0.0) & 1;
                }
                let all = cells.len() as u64;
                answer += all & mask(ones == 0);
                (answer, mask((ones + zeros != all) | (ones > 1)))
            }
        };
        let instead = match self.may_be_missing {
            true => self.answers() - 1,
            false => stand_in,
        };
        // Below 255.
        ((answer & !unusable) | (u64::from(instead) & unusable)) as u8
    }
}
