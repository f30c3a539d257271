//! Cells that spoil what a preparation finds, told to whoever holds them.

use super::{ColumnKind, MAY_BE_MISSING, PreparationColumn, PreparationParams};
use crate::{mechanism::randomised_response::Question, wording::percent};

/// Share of a column's cells outside its stated range from which its unit may be another.
const MANY_OUTSIDE: f64 = 0.15;

impl PreparationParams {
    /// Sentences about the columns of these rows: cells that are answered for at random, or count as missing though
    /// they are not; texts that are none of the categories; many numbers outside the range. `rows` has the numbers of
    /// all rows, one row after the other. **For whoever holds the rows only.**
    pub fn cell_notices(&self, rows: &[f64]) -> Vec<String> {
        let asked = || self.columns.iter().zip(self.mechanism.questions());
        let mut counts = vec![Cells::default(); self.columns.len()];
        for row in rows.chunks_exact(self.dimension()) {
            for ((column, question), cells) in asked().zip(&mut counts) {
                cells.add(column, question, row);
            }
        }
        let notices = self.columns.iter().zip(&counts);
        let notices = notices
            .flat_map(|(column, cells)| [cells.unusable(column), cells.unlike_the_study(column)]);
        notices.flatten().collect()
    }
}

/// Numbers of rows, by what their cells of a column are.
#[derive(Clone, Default)]
struct Cells {
    all: usize,
    unusable: usize,
    /// Numbers of a yes-no column that are neither 0 nor 1, among the unusable ones.
    wrong: usize,
    others: usize,
    outside: usize,
    missing: usize,
}

impl Cells {
    fn add(&mut self, column: &PreparationColumn, question: &Question, row: &[f64]) {
        let cells = &row[question.values.clone()];
        let x = cells[0];
        let mut is_wrong = false;
        match &column.kind {
            ColumnKind::Number(range) => {
                self.outside += usize::from(x < range.lo || x > range.hi);
                self.missing += usize::from(x.is_nan());
            }
            ColumnKind::YesNo => is_wrong = !(x.is_nan() || x == 0.0 || x == 1.0),
            ColumnKind::Categories(_) => {
                self.others += usize::from(cells.iter().all(|cell| *cell == 0.0));
            }
        }
        self.all += 1;
        self.wrong += usize::from(is_wrong);
        self.unusable += usize::from(is_wrong || question.is_answered_at_random(row));
    }

    fn unusable(&self, column: &PreparationColumn) -> Option<String> {
        let Self { all, unusable, .. } = self;
        let have = match self.wrong {
            0 => "no usable value",
            _ => "neither 0 nor 1",
        };
        let write = match column.kind {
            ColumnKind::Number(_) => "write a number in each",
            ColumnKind::YesNo => "write no as 0 and yes as 1",
            ColumnKind::Categories(_) => "write one category in each",
        };
        let (answer, or) = match column.may_be_missing {
            true => ("count as missing", String::new()),
            false => (
                "are answered for at random",
                format!(
                    ", or, if the values are missing, ask whoever runs the preparation to declare the column {MAY_BE_MISSING}"
                ),
            ),
        };
        (*unusable > 0).then(|| {
            format!(
                "{:?}: {unusable} of {all} rows have {have} and {answer}, which makes the constants wrong: {write}{or}",
                column.name
            )
        })
    }

    fn unlike_the_study(&self, column: &PreparationColumn) -> Option<String> {
        let name = &column.name;
        match &column.kind {
            ColumnKind::Categories(_) if self.others > 0 => Some(format!(
                "{name:?}: {} of {} rows have none of the study's categories, and count as another one: are the others written as in the study?",
                self.others, self.all
            )),
            ColumnKind::Number(range) => {
                let there = self.all - self.missing;
                let share = self.outside as f64 / f64::max(there as f64, 1.0);
                (share > MANY_OUTSIDE).then(|| {
                    format!(
                        "{name:?}: {} of its cells lie outside {} to {}, and count as at its ends: is the unit the study's?",
                        percent(share),
                        range.lo,
                        range.hi
                    )
                })
            }
            ColumnKind::YesNo | ColumnKind::Categories(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::preparation::{ColumnKind, PreparationColumn, PreparationParams};

    #[test]
    fn cells_that_spoil_the_constants_are_told() {
        let number = |name: &str| PreparationColumn::new(name, ColumnKind::number(0.0, 9.0));
        let yes_no = |name: &str| PreparationColumn::new(name, ColumnKind::YesNo);
        let columns = vec![
            number("a"),
            number("declared").may_be_missing(),
            yes_no("b"),
            yes_no("c").may_be_missing(),
            yes_no("right").may_be_missing(),
            PreparationColumn::new("town", ColumnKind::categories(["Rome", "Milan"])),
        ];
        let params = PreparationParams::freeze(columns, 1.0, None).unwrap();
        let nan = f64::NAN;
        let rows = [
            [nan, nan, 1.0, 2.0, nan, 0.0, 0.0],
            [2.0, nan, 2.0, nan, 0.0, nan, nan],
            [20.0, 3.0, 2.0, 1.0, 1.0, 1.0, 0.0],
        ];
        let notices = params.cell_notices(rows.as_flattened());
        let declare =
            "missing, ask whoever runs the preparation to declare the column may-be-missing";
        let expected = [
            (
                "\"a\": 1 of 3 rows have no usable value and are answered for at random",
                declare,
            ),
            (
                "\"a\": 50.0 % of its cells lie outside 0 to 9",
                "the study's?",
            ),
            (
                "\"b\": 2 of 3 rows have neither 0 nor 1 and are answered for at random",
                declare,
            ),
            (
                "\"c\": 1 of 3 rows have neither 0 nor 1 and count as missing",
                "write no as 0 and yes as 1",
            ),
            (
                "\"town\": 1 of 3 rows have no usable value and are answered for at random",
                declare,
            ),
            (
                "\"town\": 1 of 3 rows have none of the study's categories",
                "as in the study?",
            ),
        ];
        assert_eq!(notices.len(), expected.len(), "{notices:?}");
        for (notice, (begin, end)) in notices.iter().zip(expected) {
            assert!(
                notice.starts_with(begin) && notice.ends_with(end),
                "{notice}"
            );
        }
        // A table in which all is well.
        let well = [4.0, nan, 1.0, nan, 0.0, 0.0, 1.0];
        assert_eq!(params.cell_notices(&well), [""; 0]);
    }
}
