//! The owners of the rows of a table: a column of identifiers.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use crate::{
    cells::{DecimalMark, is_missing, normalized, ungrouped},
    encoding::REPLACEMENT,
    error::{Error, Result},
};

/// The identifiers of the rows, normalized. Identifiers that do not exactly identify the owner of their row are
/// refused; unlike rows, a column of identifiers is not protected, so the error contains the row's number, but never an
/// identifier.
///
/// # Errors
/// A blank cell or a word for a missing value; bytes that are invalid in the text's encoding; a number that a program
/// has rounded; one number in two spellings, with and without decimals, a plus sign or a separator between thousands.
pub fn identifiers(labels: &[String]) -> Result<Vec<Cow<'_, str>>> {
    let mut column = IdentifierColumn::default();
    let labels = labels.iter().map(|label| column.read(label));
    let labels = labels.collect::<Result<_>>()?;
    column.finish()?;
    Ok(labels)
}

/// A column of identifiers, of which one cell is read after the other and none is kept.
#[derive(Default)]
pub struct IdentifierColumn {
    rows: usize,
    hasher: RandomState,
    /// Hashes of the spelling of each number, and the first row that has it.
    first_spelling: HashMap<u64, (u64, usize)>,
    /// Whether some identifier is no number.
    has_text: bool,
    /// The first row whose number has an exponent without a sign or a mark. Hexadecimal identifiers may include one
    /// like 1e5.
    with_exponent: Option<usize>,
}

impl IdentifierColumn {
    /// The identifier of the next row, normalized.
    ///
    /// # Errors
    /// As [`identifiers`].
    pub fn read<'a>(&mut self, label: &'a str) -> Result<Cow<'a, str>> {
        let label = normalized(label);
        self.check(&label)?;
        Ok(label)
    }

    /// Checks what only the whole column says.
    ///
    /// # Errors
    /// A number that a program has rounded.
    pub fn finish(&self) -> Result<()> {
        match self.with_exponent {
            Some(row) if !self.has_text => Err(rounded(row)),
            _ => Ok(()),
        }
    }

    fn check(&mut self, identifier: &str) -> Result<()> {
        self.rows += 1;
        let row = self.rows;
        let refuse = |why: &str| Err(Error::new(format!("row {row} {why}")));
        if is_missing(identifier) || is_missing_elsewhere(identifier) {
            return refuse(
                "does not say whose it is: its identifier is blank or a word for a missing value; fill it in, or leave the row out",
            );
        }
        if identifier.contains(REPLACEMENT) {
            return refuse(
                "has an identifier with bytes that are invalid in its encoding; name the encoding with `encoding`",
            );
        }
        let ascii = with_ascii_digits(identifier);
        let numbers = plain_numbers(&ascii);
        self.has_text |= numbers.is_empty();
        if !numbers.is_empty() && ascii.contains(['e', 'E']) {
            if ascii.contains(['+', '-', '.', ',']) {
                return Err(rounded(row));
            }
            self.with_exponent.get_or_insert(row);
        }
        let spelling = self.hasher.hash_one(identifier);
        for number in numbers {
            let number = self.hasher.hash_one(number);
            let (first, first_row) = *self.first_spelling.entry(number).or_insert((spelling, row));
            if first != spelling {
                return refuse(&format!(
                    "has the number of row {first_row} in another spelling, as 12 and 12.0, or 1234 and 1.234: write both in the same way"
                ));
            }
        }
        Ok(())
    }
}

fn rounded(row: usize) -> Error {
    Error::new(format!(
        "row {row} has an identifier with an exponent, which a program has rounded, so that several persons would be one; read and write identifiers as text"
    ))
}

/// Whether other programs write this text for a missing value or an error; as a cell it is only unreadable, but rows
/// with it are not one person's.
fn is_missing_elsewhere(identifier: &str) -> bool {
    const WORDS: [&str; 11] = [
        "nat",
        "n.a.",
        "#n/a n/a",
        "1.#ind",
        "-1.#ind",
        "1.#qnan",
        "-1.#qnan",
        "(null)",
        "<null>",
        "undefined",
        "--",
    ];
    let is_error = identifier.starts_with('#') && identifier.ends_with(['!', '?']);
    is_error || WORDS.contains(&identifier.to_ascii_lowercase().as_str())
}

/// The numbers that an identifier can mean with either decimal mark, as text in one spelling. Two identifiers that
/// share one are one number in two spellings. A column may tell 07 and 7, or 12.1 and 12.10, apart; a program that
/// reads numbers does not, so that of two tables nobody knows whether these are two persons: they share a number, too.
pub fn numbers_of(identifier: &str) -> Vec<String> {
    let plain = plain_numbers(&with_ascii_digits(identifier));
    let mut numbers: Vec<String> = plain
        .iter()
        .map(|plain| without_outer_zeros(plain))
        .collect();
    numbers.dedup();
    numbers
}

/// The numbers that an identifier can mean with either decimal mark, as [`plainly`] writes them.
fn plain_numbers(identifier: &str) -> Vec<String> {
    let marks = [DecimalMark::Point, DecimalMark::Comma].into_iter();
    let ungrouped = marks.filter_map(|mark| ungrouped(identifier, mark));
    let numbers = ungrouped.filter(|number| number.parse::<f64>().is_ok());
    let mut numbers: Vec<String> = numbers.map(|number| plainly(&number)).collect();
    numbers.dedup();
    numbers
}

/// The text with ASCII signs, marks and digits in place of full-width ones and of U+2212, the minus sign.
fn with_ascii_digits(text: &str) -> String {
    let ascii = |c: char| match c {
        '\u{2212}' => '-',
        '\u{ff0b}'..='\u{ff19}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    };
    text.chars().map(ascii).collect()
}

/// A number with a decimal point, without a plus sign, decimals if they are zeros, and the sign of zero. An exponent
/// stays: beside identifiers that are no numbers it is a hexadecimal digit, and without them the column is refused.
fn plainly(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = if whole.is_empty() { "0" } else { whole };
    let plain = match decimals.bytes().all(|b| b == b'0') {
        true => whole.to_owned(),
        false => format!("{whole}.{decimals}"),
    };
    match plain.bytes().all(|b| b == b'0') {
        true => plain,
        false => format!("{sign}{plain}"),
    }
}

/// A plain number without zeros in front and at the end of its decimals.
fn without_outer_zeros(plain: &str) -> String {
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return plain.to_owned();
    }
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0'),
        false => digits,
    };
    let digits = digits.trim_start_matches('0');
    let zero = if digits.is_empty() || digits.starts_with('.') {
        "0"
    } else {
        ""
    };
    format!("{sign}{zero}{digits}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::testing::{assert_says, strings};

    /// A case of `bindings/conformance/persons.json`, which is for bindings, too.
    #[derive(Deserialize)]
    struct Case {
        labels: Vec<Value>,
        persons: Option<Vec<usize>>,
        refused: Option<usize>,
    }

    #[test]
    fn identifiers_are_exact_text() {
        let cases = include_str!("../../bindings/conformance/persons.json");
        for case in serde_json::from_str::<Vec<Case>>(cases).unwrap() {
            let labels = case.labels.iter().map(|label| match label {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            });
            let labels: Vec<String> = labels.collect();
            let mut persons: Vec<Cow<'_, str>> = Vec::new();
            let mut number = |label: &Cow<'_, str>| {
                let known = persons.iter().position(|other| other == label);
                known.unwrap_or_else(|| {
                    persons.push(Cow::Owned(label.to_string()));
                    persons.len() - 1
                })
            };
            match identifiers(&labels) {
                Ok(read) => {
                    let read: Vec<usize> = read.iter().map(&mut number).collect();
                    assert_eq!(Some(read), case.persons, "{labels:?}");
                }
                Err(error) => {
                    let row = format!("row {} ", case.refused.unwrap_or_default());
                    assert_says(&error, &[&row], &["1.38", "ller"]);
                }
            }
        }
    }

    #[test]
    fn an_identifier_means_these_numbers() {
        for (identifier, numbers) in [
            ("7", &["7"][..]),
            ("7.0", &["7"]),
            ("7,00", &["7"]),
            ("+7", &["7"]),
            ("07", &["7"]),
            ("1.234", &["1.234", "1234"]),
            ("1.50", &["1.5"]),
            (",5", &["0.5"]),
            ("-0", &["0"]),
            ("00.0", &["0"]),
            ("\u{2212}5", &["-5"]),
            ("\u{ff0d}\u{ff11}\u{ff0e}\u{ff15}", &["-1.5"]),
            ("1e3", &["1e3"]),
            ("1e999", &["1e999"]),
            ("100", &["100"]),
            ("n7", &[]),
            ("7\u{b2}", &[]),
        ] {
            assert_eq!(numbers_of(identifier), numbers, "{identifier}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        for (rows, words) in [
            (&["a", ""][..], "does not say whose it is"),
            (&["5", "1E18"], "rounded"),
            (&["12", "13", "12.0"], "of row 1 "),
            (&["a", "M\u{fffd}ller"], "`encoding`"),
        ] {
            let error = identifiers(&strings(rows)).unwrap_err();
            assert_says(&error, &[words], &[]);
        }
    }
}
