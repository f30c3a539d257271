//! Cells without an answer of their own, told to whoever holds them.

use super::{ColumnKind, MAY_BE_MISSING, PreparationParams};

impl PreparationParams {
    /// A sentence for each column with cells that are answered for at random, or count as missing though they are not.
    /// `rows` has the numbers of all rows, one row after the other. **For whoever holds the rows only.**
    pub fn answered_at_random(&self, rows: &[f64]) -> Vec<String> {
        let asked = || self.columns.iter().zip(self.mechanism.questions());
        let rows = rows.chunks_exact(self.dimension());
        let all = rows.len();
        let mut counts = vec![(0_usize, 0_usize); self.columns.len()];
        for row in rows {
            for ((column, question), (unusable, wrong)) in asked().zip(&mut counts) {
                let x = row[question.values.start];
                let is_number = !(x.is_nan() || x == 0.0 || x == 1.0);
                let is_wrong = is_number && column.kind == ColumnKind::YesNo;
                *wrong += usize::from(is_wrong);
                *unusable += usize::from(is_wrong || question.is_answered_at_random(row));
            }
        }
        let affected = asked().zip(counts).filter(|(_, counts)| counts.0 > 0);
        let sentences = affected.map(|((column, question), (unusable, wrong))| {
            let answer = match question.may_be_missing {
                true => "count as missing",
                false => "are answered for at random",
            };
            let (have, way_out) = match wrong {
                0 => (
                    "no usable value",
                    format!("ask whoever runs the preparation to declare the column {MAY_BE_MISSING}"),
                ),
                _ => ("neither 0 nor 1", "write no as 0 and yes as 1".to_owned()),
            };
            format!(
                "{:?}: {unusable} of {all} rows have {have} and {answer}, which makes the constants wrong: {way_out}",
                column.name
            )
        });
        sentences.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::preparation::{ColumnKind, PreparationColumn, PreparationParams};

    #[test]
    fn cells_without_an_answer_are_told_where_none_was_declared() {
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
        let sentences = params.answered_at_random(rows.as_flattened());
        let begins = [
            "\"a\": 1 of 3 rows have no usable value and are answered for at random",
            "\"b\": 2 of 3 rows have neither 0 nor 1 and are answered for at random",
            "\"c\": 1 of 3 rows have neither 0 nor 1 and count as missing",
            "\"town\": 1 of 3 rows have no usable value and are answered for at random",
        ];
        assert_eq!(sentences.len(), begins.len(), "{sentences:?}");
        for (sentence, begin) in sentences.iter().zip(begins) {
            assert!(sentence.starts_with(begin), "{sentence}");
        }
        assert!(sentences[0].ends_with("may-be-missing") && sentences[1].ends_with("yes as 1"));
    }
}
