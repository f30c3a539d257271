//! Cells of a text table: numbers, missing values, and everything else.

use super::problems::UnreadableReason;

/// Whether it is a number, a bound as laboratories write it (`<0.5`, `> 100`, `~3`), or a mark for a missing value.
pub(super) fn is_value(cell: &str) -> bool {
    let bound = cell.trim_start_matches(['<', '>', '=', '~', '≤', '≥', '≈', ' ']);
    is_missing(cell) || number(bound, b';').is_ok()
}

/// Whether it is a value and a word too, such as `NA`, `inf` or `True`: it may be a column's name as well (`Na` is sodium).
pub(super) fn is_word(cell: &str) -> bool {
    is_value(cell) && cell.starts_with(char::is_alphabetic)
}

/// Whether it is a day, alone or with a time of day: 2024-03-01, 1.3.2024, 03/01/24, 2024-03-01T12:00:00Z.
pub(super) fn is_date(cell: &str) -> bool {
    let day = cell.split([' ', 'T']).next().unwrap_or_default();
    ['-', '.', '/'].into_iter().any(|separator| {
        let parts: Vec<&str> = day.split(separator).collect();
        let number =
            |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() == 3 && parts.iter().all(number)
    })
}

/// How people and programs mark a missing value.
pub(super) fn is_missing(cell: &str) -> bool {
    const MISSING: [&str; 15] = [
        "", "-", "?", ".", "na", "n/a", "<na>", "#n/a", "#na", "nan", "-nan", "null", "none",
        "nil", "missing",
    ];
    MISSING.contains(&cell.to_ascii_lowercase().as_str())
}

/// Parses the number in a field. If columns are not separated by commas, a decimal comma is accepted. Minus signs and
/// groups of digits as typesetting writes them are read, because only negative and large values have them: rows must
/// not get lost by their values.
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
    if let Some(bare) = cell.strip_suffix(['%', '‰', '٪', '％'])
        && number(bare.trim_end(), b';').is_ok()
    {
        return Err(UnreadableReason::Percent);
    }
    let plain = plain_digits(cell);
    if let Ok(number) = plain.parse::<f64>() {
        return Ok(number);
    }
    let cell = plain.as_str();
    let Some((before, after)) = cell.split_once(',') else {
        return Err(UnreadableReason::NotANumber);
    };
    let whole = |text: &str| {
        text.trim_start_matches(['-', '+'])
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    // 1,234,567.5 and 1.234.567,5 can only be read in one way; so can 0,125 and 1,5, also between commas.
    if let Some(number) = grouped(cell, ',', '.').or_else(|| grouped(cell, '.', ',')) {
        return Ok(number);
    }
    let decimal = delimiter != b',' || !may_be_thousands(before, after);
    match format!("{before}.{after}").parse::<f64>() {
        Ok(number) if whole(before) && decimal => Ok(number),
        Ok(_) if whole(before) => Err(UnreadableReason::DecimalComma),
        _ => Err(UnreadableReason::NotANumber),
    }
}

/// A number whose groups of three digits are separated by `by`, before the `point` of its decimals.
fn grouped(cell: &str, by: char, point: char) -> Option<f64> {
    let (whole, decimals) = cell
        .split_once(point)
        .filter(|(whole, _)| whole.contains(by))?;
    let mut groups = whole.trim_start_matches(['-', '+']).split(by);
    let first = groups.next()?;
    let digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
    let fits = (1..=3).contains(&first.len()) && digits(first);
    let others = groups.all(|group| group.len() == 3 && digits(group));
    let plain = || format!("{}.{decimals}", whole.replace(by, ""));
    (fits && others).then(|| plain().parse().ok())?
}

/// Whether a comma between these may separate thousands, as in 12,500.
fn may_be_thousands(before: &str, after: &str) -> bool {
    let before = before.trim_start_matches(['-', '+']);
    after.len() == 3 && (1..=3).contains(&before.len()) && !before.starts_with('0')
}

/// A number with an ASCII minus sign and without separators between its groups of three digits: 1234.5 for 1 234.5 with
/// a no-break, thin or figure space, or with an apostrophe.
fn plain_digits(cell: &str) -> String {
    const SEPARATORS: [char; 7] = [
        '\u{a0}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{202f}', '\'', '’',
    ];
    let cell = cell.trim_matches(|c: char| c.is_whitespace() || SEPARATORS[..5].contains(&c));
    let mut plain = String::with_capacity(cell.len());
    let (mut digits, mut grouped) = (0, false);
    for (at, c) in cell.char_indices() {
        match c {
            '−' | '‐' | '‑' | '–' | '﹣' | '－' => plain.push('-'),
            _ if SEPARATORS.contains(&c) => {
                let rest = &cell[at + c.len_utf8()..];
                let next = rest.bytes().take_while(u8::is_ascii_digit).count();
                // Between groups of three, and nothing else.
                if next != 3 || digits == 0 || digits > 3 || (grouped && digits != 3) {
                    return cell.to_owned();
                }
                (digits, grouped) = (0, true);
            }
            _ => {
                digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
                plain.push(c);
            }
        }
    }
    plain
}

/// The commas and points in a column's numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks {
    /// A comma that could separate thousands: 12,500.
    thousands: usize,
    /// Certainly a decimal comma: 0,125 and 1,5.
    decimals: usize,
    /// A decimal point, by the looks of it: 1.234.
    points: usize,
}

impl Marks {
    pub(super) fn record(&mut self, cell: &str) {
        let count = match (cell.split_once(','), cell.rfind('.')) {
            (None, None) => return,
            (Some((before, after)), None) if may_be_thousands(before, after) => &mut self.thousands,
            (Some((before, _)), Some(point)) if before.len() < point => &mut self.points,
            (Some(_), _) => &mut self.decimals,
            (None, Some(_)) => &mut self.points,
        };
        *count += 1;
    }

    pub(super) fn are_ambiguous(self) -> bool {
        self.thousands > 0 && self.decimals + self.points == 0
    }

    /// Both notations: 1.234 beside 1,5.
    pub(super) fn are_mixed(self) -> bool {
        self.points > 0 && self.thousands + self.decimals > 0
    }
}
