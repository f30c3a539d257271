//! Cells of text: numbers, words for a missing value, and everything else. Texts are compared as they are, and numbers
//! are those that Rust parses: nothing is guessed.

use std::borrow::Cow;

use eigenveil_shared::preprocess::VALUE_RANGE;
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::{encoding::REPLACEMENT, problems::UnreadableReason};

/// The text without surrounding white space, in Unicode form NFC, the form in which cells, names and categories are
/// compared.
pub(crate) fn normalized(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    match text.is_ascii() || is_nfc(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.nfc().collect()),
    }
}

/// The decimal mark of a table's numbers, if stated; the other mark then separates thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalMark {
    /// 1,234.5
    Point,
    /// 1.234,5
    Comma,
}

/// The number in a cell: as Rust parses it, or with the stated mark; U+2212 is accepted as a minus sign. True and False
/// are 1 and 0.
pub(crate) fn number(cell: &str, mark: Option<DecimalMark>) -> Result<f64, UnreadableReason> {
    let parse = |text: &str| text.parse::<f64>().ok();
    let parsed = match mark {
        None => parse(cell).or_else(|| parse(&with_ascii_minus(cell))),
        Some(mark) => ungrouped(&with_ascii_minus(cell), mark).and_then(|plain| parse(&plain)),
    };
    match (parsed, cell) {
        (Some(number), _) => checked_number(number),
        (None, "True" | "TRUE" | "true") => Ok(1.0),
        (None, "False" | "FALSE" | "false") => Ok(0.0),
        (None, _) if is_missing(cell) => Err(UnreadableReason::Missing),
        (None, _) if cell.contains(REPLACEMENT) => Err(UnreadableReason::OtherEncoding),
        (None, _) if is_number_in_other_spelling(cell) => Err(UnreadableReason::OtherSpelling),
        (None, _) => Err(UnreadableReason::NotANumber),
    }
}

/// A number that was parsed, or stored as one: NaN is missing, and one that no row may have is unreadable.
pub(crate) fn checked_number(number: f64) -> Result<f64, UnreadableReason> {
    match number {
        _ if number.is_nan() => Err(UnreadableReason::Missing),
        _ if number.abs() > *VALUE_RANGE.end() => Err(UnreadableReason::TooLarge),
        _ => Ok(number),
    }
}

fn with_ascii_minus(cell: &str) -> Cow<'_, str> {
    match cell.contains('\u{2212}') {
        true => Cow::Owned(cell.replace('\u{2212}', "-")),
        false => Cow::Borrowed(cell),
    }
}

/// The number with a decimal point and without the separators between groups of three digits; `None` if they are
/// misplaced.
pub(crate) fn ungrouped(cell: &str, mark: DecimalMark) -> Option<String> {
    let (point, group_separator) = match mark {
        DecimalMark::Point => ('.', ','),
        DecimalMark::Comma => (',', '.'),
    };
    let (whole, decimals) = match cell.split_once(point) {
        Some((whole, decimals)) => (whole, format!(".{decimals}")),
        None => (cell, String::new()),
    };
    let groups = whole
        .strip_prefix(['-', '+'])
        .unwrap_or(whole)
        .split(group_separator);
    if let [first, rest @ ..] = &groups.collect::<Vec<_>>()[..]
        && !rest.is_empty()
    {
        let is_digits = |group: &str| group.bytes().all(|b| b.is_ascii_digit());
        let first_is_valid =
            (1..=3).contains(&first.len()) && is_digits(first) && !first.starts_with('0');
        if !first_is_valid
            || !rest
                .iter()
                .all(|group| group.len() == 3 && is_digits(group))
        {
            return None;
        }
    }
    Some(whole.replace(group_separator, "") + &decimals)
}

/// Whether the cell is a usual mark of a missing value.
pub(crate) fn is_missing(cell: &str) -> bool {
    const MISSING: [&str; 18] = [
        "", "-", "–", "—", "?", ".", "na", "n/a", "<na>", "#n/a", "#na", "nan", "-nan", "null",
        "none", "nil", "missing", "\\n",
    ];
    MISSING.contains(&cell.to_ascii_lowercase().as_str())
}

/// Whether the cell is a number in an unsupported spelling, or a bound: 1 234,5 and (5) and 12 % and $5 and <0.5.
fn is_number_in_other_spelling(cell: &str) -> bool {
    let digits = match cell.rsplit_once(['e', 'E']) {
        Some((digits, exponent)) if exponent.parse::<i32>().is_ok() => digits,
        _ => cell,
    };
    let digits = digits.trim_matches(|c: char| !c.is_alphanumeric());
    let between = |c: char| c.is_whitespace() || ",.'’_".contains(c);
    digits.contains(char::is_numeric) && digits.chars().all(|c| c.is_numeric() || between(c))
}

/// Whether the cell could be a row's value: a number in any spelling, or a missing value.
pub(crate) fn is_value(cell: &str) -> bool {
    use UnreadableReason::{Missing, OtherSpelling, TooLarge};
    let is_read = matches!(
        number(cell, None),
        Ok(_) | Err(Missing | OtherSpelling | TooLarge)
    );
    is_read && !is_date(cell)
}

/// Whether the cell is a value written as a word, such as `NA`, `inf` or `True`, which may also be a column's name
/// (`Na` is sodium).
pub(crate) fn is_word_value(cell: &str) -> bool {
    is_value(cell) && cell.starts_with(char::is_alphabetic)
}

/// Whether the cell is a date, with or without a time of day: 2024-03-01, 1.3.2024, 03/01/24, 2024-03-01T12:00:00Z.
pub(crate) fn is_date(cell: &str) -> bool {
    let day = cell.split([' ', 'T']).next().unwrap_or_default();
    ['-', '.', '/'].into_iter().any(|separator| {
        let parts: Vec<&str> = day.split(separator).collect();
        let number =
            |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() == 3 && parts.iter().all(number)
    })
}
