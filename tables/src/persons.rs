//! The owners of the rows of a table: a column of identifiers.

use std::{borrow::Cow, collections::HashMap};

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
/// has rounded; one number in two spellings, with and without decimals or a separator between thousands.
pub fn identifiers(labels: &[String]) -> Result<Vec<Cow<'_, str>>> {
    let labels: Vec<Cow<'_, str>> = labels.iter().map(|label| normalized(label)).collect();
    check(&labels)?;
    Ok(labels)
}

fn check(identifiers: &[Cow<'_, str>]) -> Result<()> {
    // Hexadecimal identifiers may include one like 1e5.
    let all_numbers = identifiers
        .iter()
        .all(|identifier| !as_numbers(identifier).is_empty());
    let mut first_spelling: HashMap<String, (&str, usize)> = HashMap::new();
    for (row, identifier) in (1..).zip(identifiers) {
        let identifier: &str = identifier;
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
        let numbers = as_numbers(identifier);
        let has_exponent = !numbers.is_empty() && identifier.contains(['e', 'E']);
        if has_exponent && (all_numbers || identifier.contains(['+', '-', '.', ','])) {
            return refuse(
                "has an identifier with an exponent, which a program has rounded, so that several persons would be one; read and write identifiers as text",
            );
        }
        for number in numbers {
            let (first, first_row) = *first_spelling.entry(number).or_insert((identifier, row));
            if first != identifier {
                return refuse(&format!(
                    "has the number of row {first_row} in another spelling, as 12 and 12.0, or 1234 and 1.234: write both in the same way"
                ));
            }
        }
    }
    Ok(())
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

/// The numbers that a text can mean with either decimal mark, as text: with a point, without separators between
/// thousands, and without decimals if they are zeros.
fn as_numbers(text: &str) -> Vec<String> {
    let marks = [DecimalMark::Point, DecimalMark::Comma].into_iter();
    let plain = marks.filter_map(|mark| ungrouped(text, mark));
    let numbers = plain.filter(|plain| plain.parse::<f64>().is_ok());
    let whole = numbers.map(|number| match number.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|b| b == b'0') => whole.to_owned(),
        _ => number,
    });
    whole.collect()
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
