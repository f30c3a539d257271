//! What a file of rows would answer to a preparation, told to its owner only.

use eigenveil_shared::{
    preparation::{ColumnKind, NumberRange, PreparationParams},
    wording::percent,
};

use super::report_persons::Persons;
use crate::{error::in_flags, output};

/// Share of a column's cells outside its stated range from which its unit may be another.
const MANY_OUTSIDE: f64 = 0.15;

/// Tells the file's owner, whatever else the command prints: how many rows there are, what cannot be read, and which
/// columns lie outside their ranges.
pub(super) fn tell(persons: &Persons, params: &PreparationParams) {
    let table = &persons.table;
    let mut lines = vec![format!("rows: {}", table.len())];
    let unreadable = table.unreadable(true);
    lines.extend(unreadable.map(|why| {
        format!(
            "what cannot be read, and is answered for at random: {}",
            in_flags(&why)
        )
    }));
    lines.extend(outside(persons, params));
    for line in lines {
        output::print_error_line(&format!("shown only to you: {line}"));
    }
}

fn outside(persons: &Persons, params: &PreparationParams) -> Vec<String> {
    let table = &persons.table;
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
