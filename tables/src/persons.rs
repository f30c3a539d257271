//! Whose the rows of a table are: a column of identifiers.

use std::{borrow::Cow, collections::HashMap};

use crate::{
    cells::{is_missing, normal},
    encoding::LOST,
    error::{Error, Result},
};

/// The identifiers of the rows, as text in the form in which they are compared. Those that do not say, exactly, whose
/// their row is are refused; a column of identifiers is not protected as rows are, so the error has the row's number. It
/// never has an identifier.
///
/// # Errors
/// A blank cell or a word for a missing value; bytes that are no character of the text's encoding; a number that a
/// program has rounded; one identifier with decimals and without.
pub fn identifiers(labels: &[String]) -> Result<Vec<Cow<'_, str>>> {
    let labels: Vec<Cow<'_, str>> = labels.iter().map(|label| normal(label)).collect();
    check(&labels)?;
    Ok(labels)
}

fn check(identifiers: &[Cow<'_, str>]) -> Result<()> {
    // Hexadecimal ones may look like 1e5 among others.
    let all_numbers = identifiers.iter().all(|own| own.parse::<f64>().is_ok());
    let mut spelled: HashMap<&str, (&str, usize)> = HashMap::new();
    for (row, identifier) in (1..).zip(identifiers) {
        let identifier: &str = identifier;
        let refuse = |why: &str| Err(Error::new(format!("row {row} {why}")));
        if is_missing(identifier) {
            return refuse(
                "does not say whose it is: its identifier is blank or a word for a missing value; fill it in, or leave the row out",
            );
        }
        if identifier.contains(LOST) {
            return refuse(
                "has an identifier with bytes that its encoding has not; name the encoding with `encoding`",
            );
        }
        let is_number = identifier.parse::<f64>().is_ok();
        let has_exponent = is_number && identifier.contains(['e', 'E']);
        if has_exponent && (all_numbers || identifier.contains(['+', '-', '.'])) {
            return refuse(
                "has an identifier with an exponent, which a program has rounded, so that several persons would be one; read and write identifiers as text",
            );
        }
        let whole = match identifier.split_once('.') {
            Some((whole, zeros)) if is_number && zeros.bytes().all(|b| b == b'0') => whole,
            _ => identifier,
        };
        let (first, its_row) = *spelled.entry(whole).or_insert((identifier, row));
        if first != identifier {
            return refuse(&format!(
                "has the identifier of row {its_row} with other decimals, as 12 and 12.0: write both alike"
            ));
        }
    }
    Ok(())
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
            let mut number = |own: &Cow<'_, str>| {
                let known = persons.iter().position(|other| other == own);
                known.unwrap_or_else(|| {
                    persons.push(Cow::Owned(own.to_string()));
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
