//! Parts of sentences for people: mechanisms, shares, numbers of things, and lists that are cut short.

use std::fmt::Display;

use crate::mechanism::Calibration;

/// Largest number of columns or names listed in a message.
pub const MAX_NAMED: usize = 8;

/// The first `most` items, separated by commas, followed by `more` of the number left out, if any.
pub fn first_few(
    all: impl ExactSizeIterator<Item = String>,
    most: usize,
    more: impl Fn(usize) -> String,
) -> String {
    let left = all.len().saturating_sub(most);
    let listed = all.take(most).collect::<Vec<_>>().join(", ");
    match left {
        0 => listed,
        left => listed + &more(left),
    }
}

/// The text without space, line ends and byte-order marks around it, which editors, shells and secrets files leave there.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

/// A mechanism with the calibration of its noise, if it has several.
pub fn mechanism_text(name: impl Display, calibration: Option<Calibration>) -> String {
    match calibration {
        None => name.to_string(),
        Some(calibration) => format!("{name}, calibration {calibration}"),
    }
}

/// The noun as it follows this number: "report", "reports".
pub fn plural(number: u64, noun: &str) -> String {
    match noun {
        _ if number == 1 => noun.to_owned(),
        "study" => "studies".to_owned(),
        _ => format!("{noun}s"),
    }
}

/// A number of things: "1 report", "2 reports".
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {}", plural(number, noun))
}

/// A share as a percentage: "7.7 %".
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_short() {
        let list = |most| {
            let names = ["a", "b", "c"].map(str::to_owned);
            first_few(names.into_iter(), most, |more| format!(" and {more} more"))
        };
        assert_eq!(list(3), "a, b, c");
        assert_eq!(list(2), "a, b and 1 more");
        assert_eq!(percent(0.077), "7.7 %");
        assert_eq!(trimmed("\u{feff} a b\r\n"), "a b");
    }

    #[test]
    fn one_thing_is_not_several() {
        let numbers = [0, 1, 2].map(|number| counted(number, "report"));
        assert_eq!(numbers, ["0 reports", "1 report", "2 reports"]);
        assert_eq!(counted(3, "study"), "3 studies");
        assert_eq!(plural(1, "study"), "study");
    }
}
