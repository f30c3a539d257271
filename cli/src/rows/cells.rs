//! Cells of a text table: numbers, missing values, and everything else.

use super::table::UnreadableReason;

/// Whether it is a number, a bound as laboratories write it (`<0.5`, `> 100`, `~3`), or a mark for a missing value.
pub(super) fn is_value(cell: &str) -> bool {
    let bound = cell.trim_start_matches(['<', '>', '=', '~', '≤', '≥', '≈', ' ']);
    is_missing(cell) || number(bound, b';').is_ok()
}

/// How people and programs mark a missing value.
fn is_missing(cell: &str) -> bool {
    const MISSING: [&str; 15] = [
        "", "-", "?", ".", "na", "n/a", "<na>", "#n/a", "#na", "nan", "-nan", "null", "none",
        "nil", "missing",
    ];
    MISSING.contains(&cell.to_ascii_lowercase().as_str())
}

/// Parses the number in a field. If columns are not separated by commas, a decimal comma is accepted.
pub(super) fn number(cell: &str, delimiter: u8) -> Result<f64, UnreadableReason> {
    if is_missing(cell) {
        return Err(UnreadableReason::Missing);
    }
    if let Ok(number) = cell.parse::<f64>() {
        return Ok(number);
    }
    match cell {
        "True" | "TRUE" | "true" => return Ok(1.0),
        "False" | "FALSE" | "false" => return Ok(0.0),
        _ => {}
    }
    let Some((before, after)) = cell.split_once(',') else {
        return Err(UnreadableReason::NotANumber);
    };
    let whole = |text: &str| {
        text.trim_start_matches(['-', '+'])
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    match format!("{before}.{after}").parse::<f64>() {
        Ok(number) if whole(before) && delimiter != b',' => Ok(number),
        Ok(_) if whole(before) => Err(UnreadableReason::DecimalComma),
        _ => Err(UnreadableReason::NotANumber),
    }
}

/// The commas in a column's numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Commas {
    /// Could separate thousands: 12,500.
    thousands: usize,
    /// Certainly decimal commas: 0,125 and 1,5.
    decimals: usize,
}

impl Commas {
    pub(super) fn record(&mut self, cell: &str) {
        let Some((before, after)) = cell.split_once(',') else {
            return;
        };
        let before = before.trim_start_matches(['-', '+']);
        let thousands =
            after.len() == 3 && (1..=3).contains(&before.len()) && !before.starts_with('0');
        if thousands {
            self.thousands += 1;
        } else {
            self.decimals += 1;
        }
    }

    pub(super) fn is_ambiguous(self) -> bool {
        self.thousands > 0 && self.decimals == 0
    }
}
