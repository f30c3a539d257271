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
    use super::*;
    use crate::testing::{assert_says, strings};

    #[test]
    fn identifiers_are_exact_text() {
        for fine in [
            &["07", "7", "0e123x", "a b"][..],
            &["1382016600011617669", "1382016600011617670"],
            &["12.0", "13.0", "12.0"],
            // A hash in hexadecimal notation.
            &["1e5", "3f9", "12345e67"],
            &["9.5", "9", "1.2.3"],
        ] {
            identifiers(&strings(fine)).unwrap();
        }
        for (rows, row, words) in [
            (&["a", ""][..], 2, "does not say whose it is"),
            (&["a", "NaN", "b"], 2, "does not say whose it is"),
            (&["NULL"], 1, "does not say whose it is"),
            (&["a", "b", "-"], 3, "does not say whose it is"),
            (&["?", "b"], 1, "does not say whose it is"),
            (&["a", "1.38202E+18"], 2, "rounded"),
            (&["a", "1.382016600011618e18"], 2, "rounded"),
            (&["5", "1E18"], 2, "rounded"),
            (&["12", "13", "12.0"], 3, "row 1"),
            (&["12.00", "12.0"], 2, "12.0"),
            (&["a", "M\u{fffd}ller"], 2, "`encoding`"),
        ] {
            let error = identifiers(&strings(rows)).unwrap_err();
            assert_says(&error, &[&format!("row {row} "), words], &["1.38", "ller"]);
        }
    }
}
