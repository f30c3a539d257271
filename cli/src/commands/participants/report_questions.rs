//! What a file of rows would answer to a preparation, told to its owner only.

use eigenveil_shared::{
    preparation::{ColumnKind, NumberRange, PreparationParams},
    wording::percent,
};
use eigenveil_tables::RowTable;

use super::report_persons::Persons;
use crate::{error::in_flags, output};

/// Share of a column's cells outside its stated range from which its unit may be another.
const MANY_OUTSIDE: f64 = 0.15;

/// Tells the file's owner, whatever else the command prints: how many rows there are, what cannot be read, which
/// columns have cells without an answer of their own or other categories, and which lie outside their ranges.
pub(super) fn tell(persons: &Persons, params: &PreparationParams) {
    for line in lines(&persons.table, params) {
        output::print_error_line(&format!("shown only to you: {line}"));
    }
}

fn lines(table: &RowTable, params: &PreparationParams) -> Vec<String> {
    let mut lines = vec![format!("rows: {}", table.len())];
    let unreadable = table.unreadable(true);
    lines.extend(unreadable.map(|why| format!("what cannot be read: {}", in_flags(&why))));
    lines.extend(params.answered_at_random(table.values()));
    lines.extend(others(table, params));
    lines.extend(outside(table, params));
    lines
}

/// Columns of categories with cells that are none of those that are listed.
fn others(table: &RowTable, params: &PreparationParams) -> Vec<String> {
    let questions = params.columns().iter().zip(params.mechanism().questions());
    let others = questions.filter_map(|(column, question)| {
        let ColumnKind::Categories(_) = column.kind else {
            return None;
        };
        let rows = table.values().chunks_exact(table.dimension());
        let is_other = |row: &&[f64]| row[question.values.clone()].iter().all(|cell| *cell == 0.0);
        let count = rows.filter(is_other).count();
        (count > 0).then(|| {
            format!(
                "{:?}: {count} of {} rows have none of the study's categories, and count as another one: are the others written as in the study?",
                column.name,
                table.len()
            )
        })
    });
    others.collect()
}

fn outside(table: &RowTable, params: &PreparationParams) -> Vec<String> {
    let questions = params.columns().iter().zip(params.mechanism().questions());
    let mut columns: Vec<_> = questions
        .filter_map(|(column, question)| match column.kind {
            ColumnKind::Number(range) => Some((&column.name, range, question.values.start, 0, 0)),
            ColumnKind::YesNo | ColumnKind::Categories(_) => None,
        })
        .collect();
    for index in 0..table.len() {
        let row = table.row(index);
        for (_, NumberRange { lo, hi, .. }, at, there, outside) in &mut columns {
            let x = row.values()[*at];
            *there += usize::from(!x.is_nan());
            *outside += usize::from(x < *lo || x > *hi);
        }
    }
    let far = columns.into_iter().filter_map(|(name, range, _, there, outside)| {
        let share = outside as f64 / f64::max(there as f64, 1.0);
        let NumberRange { lo, hi, .. } = range;
        (share > MANY_OUTSIDE).then(|| {
            format!(
                "{name:?}: {} of its cells lie outside {lo} to {hi}, and count as at its ends: is the unit the study's?",
                percent(share)
            )
        })
    });
    far.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use eigenveil_shared::preparation::PreparationColumn;
    use eigenveil_tables::{ExpectedColumns, Settings, parse};

    use super::*;

    #[test]
    fn cells_that_spoil_the_constants_are_counted() {
        let columns = vec![
            PreparationColumn::new("age", ColumnKind::number(0.0, 100.0)),
            PreparationColumn::new("town", ColumnKind::categories(["Rome", "Milan"])),
        ];
        let params = PreparationParams::freeze(columns, 1.0, None).unwrap();
        let expected = ExpectedColumns {
            other_categories: true,
            ..ExpectedColumns::study(params.dimension(), Some(params.feature_names()))
        };
        let text = b"age,town\n40,Rome\n50,Turin\n600,Milan\n60,NA\n70,Turin\n";
        let settings = Settings::default();
        let table = parse(Path::new("a.csv"), text, &settings, Some(&expected)).unwrap();
        assert_eq!(table.unreadable(true), None);
        let lines = lines(&table, &params);
        let begins = [
            "rows: 5",
            "\"town\": 1 of 5 rows have no usable value",
            "\"town\": 2 of 5 rows have none",
            "\"age\": 20.0 %",
        ];
        assert_eq!(lines.len(), begins.len(), "{lines:?}");
        for (line, begin) in lines.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
    }
}
