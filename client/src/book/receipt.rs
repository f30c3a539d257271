//! What a person can keep: which studies the device took part in, what they were told, and what remains.

use std::fmt;

use eigenveil_shared::privacy::{Budget, format_delta};
use serde::{Deserialize, Serialize};

use super::{
    entry::{Entry, EntryState},
    limits::{Limits, PrivacyCost},
    terms::StudyTerms,
};
use crate::error::printable;

/// Which studies a device took part in, and what it cost. `Display` is a short text for a person; serde gives JSON with exact
/// numbers. It holds no report and nothing of any row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The device's limits.
    pub limits: Limits,
    /// What all reports come to together, rounded up.
    pub spent: PrivacyCost,
    /// What remains of the totals, rounded down.
    pub remaining: PrivacyCost,
    /// The studies, in the order in which the device took part.
    pub studies: Vec<ReceiptEntry>,
}

/// One study of a [`Receipt`], as it was when the device took part, and what became of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEntry {
    /// Address of the server.
    pub server: String,
    /// Addresses that the study moved to since, the latest last: the report is sent there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_to: Vec<String>,
    /// Identifier of the study.
    pub study: String,
    /// Fingerprint of the study's parameters, in hexadecimal.
    pub fingerprint: String,
    /// The day the report was prepared on, UTC, such as `2026-03-14`.
    pub day: String,
    /// The local randomizer.
    pub mechanism: String,
    /// Dimension p of the row.
    pub dimension: u64,
    /// Which two inputs the report must not tell apart.
    pub neighbours: String,
    /// What was charged: the ε that holds, at least the one that was claimed.
    pub charged: Budget,
    /// What the report could tell the server, in a sentence.
    pub sentence: String,
    /// Identifier of the report, in hexadecimal.
    pub report: String,
    /// What became of it.
    pub state: EntryState,
    /// What the device was told of the study.
    pub terms: StudyTerms,
}

impl ReceiptEntry {
    pub(super) fn new(entry: &Entry) -> Self {
        let mut servers = entry.servers.iter().map(ToString::to_string);
        Self {
            server: servers.next().unwrap_or_default(),
            moved_to: servers.collect(),
            study: entry.study.clone(),
            fingerprint: entry.fingerprint.to_string(),
            day: entry.day.to_string(),
            mechanism: entry.mechanism.clone(),
            dimension: entry.dimension,
            neighbours: entry.neighbours.clone(),
            charged: entry.charge,
            sentence: entry.sentence.clone(),
            report: entry.report.to_string(),
            state: entry.state.clone(),
            terms: entry.terms.clone(),
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, spent) = (&self.limits, self.spent);
        match self.studies.len() {
            0 => writeln!(f, "This device took part in no study.")?,
            1 => writeln!(f, "This device took part in 1 study.")?,
            count => writeln!(f, "This device took part in {count} studies.")?,
        }
        writeln!(f)?;
        write_totals(f, limits, spent, self.remaining)?;
        for (number, study) in (1..).zip(&self.studies) {
            write!(f, "\n{number}. {study}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReceiptEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}",
            heading(&self.day, &self.study, &self.server, &self.moved_to)
        )?;
        writeln!(
            f,
            "   one row of {} numbers, perturbed by {}",
            self.dimension,
            printable(&self.mechanism)
        )?;
        write_cost(f, self.charged, &self.neighbours, &self.sentence)?;
        write!(f, "   report {}: ", printable(&self.report))?;
        match &self.state {
            EntryState::Owed => writeln!(f, "not yet known to have arrived"),
            EntryState::Acknowledged => writeln!(f, "the server has it"),
            EntryState::Refused { code, detail } => writeln!(
                f,
                "refused by the server ({}: {}); charged all the same, since it may have been seen",
                printable(code),
                printable(detail)
            ),
        }?;
        write_terms(f, &self.terms, &self.fingerprint)
    }
}

/// Which study it was, and when.
pub(crate) fn heading(day: &str, study: &str, server: &str, moved_to: &[String]) -> String {
    let moved: String = moved_to
        .iter()
        .map(|to| format!(", moved to {to}"))
        .collect();
    printable(&format!("{day}  study {study} at {server}{moved}"))
}

/// What the study said when this side took part.
pub(crate) fn write_terms(
    f: &mut fmt::Formatter<'_>,
    terms: &StudyTerms,
    fingerprint: &str,
) -> fmt::Result {
    for line in terms.to_string().lines() {
        writeln!(f, "   {line}")?;
    }
    if let Some(parameters) = &terms.parameters {
        let claimed = parameters.budget();
        let delta = format_delta(claimed.delta());
        writeln!(
            f,
            "   claimed      epsilon {}, delta {delta}",
            claimed.epsilon()
        )?;
    }
    writeln!(f, "   {:<13}{}", "fingerprint", printable(fingerprint))
}

/// What is spent and what remains under the limits.
pub(crate) fn write_totals(
    f: &mut fmt::Formatter<'_>,
    limits: &Limits,
    spent: PrivacyCost,
    remaining: PrivacyCost,
) -> fmt::Result {
    writeln!(
        f,
        "            {:>12} {:>12} {:>12}",
        "spent", "remaining", "limit"
    )?;
    writeln!(
        f,
        "  epsilon   {:>12} {:>12} {:>12}",
        up(spent.epsilon),
        down(remaining.epsilon),
        limits.epsilon_total()
    )?;
    writeln!(
        f,
        "  delta     {:>12} {:>12} {:>12}",
        format_delta(up(spent.delta)),
        format_delta(down(remaining.delta)),
        format_delta(limits.delta_total())
    )?;
    writeln!(f)?;
    writeln!(
        f,
        "One study may cost epsilon {} at most. Costs add up, whoever runs the studies.",
        limits.epsilon_per_study()
    )
}

/// What one report of a study cost, and what it could tell.
pub(crate) fn write_cost(
    f: &mut fmt::Formatter<'_>,
    charged: Budget,
    neighbours: &str,
    sentence: &str,
) -> fmt::Result {
    writeln!(
        f,
        "   charged epsilon {}, delta {} ({})",
        up(charged.epsilon()),
        format_delta(up(charged.delta())),
        printable(neighbours)
    )?;
    writeln!(f, "   {}", printable(sentence))
}

/// Rounds up to seven digits, which show what floating point adds to an ε (4.000001), apart from the rounding error of a sum of decimals.
fn up(value: f64) -> f64 {
    seven_digits(value, |shown| shown < value * (1.0 - 1e-12), 1.0)
}

/// Rounds down to seven digits, with the same exception.
fn down(value: f64) -> f64 {
    seven_digits(value, |shown| shown > value * (1.0 + 1e-12), -1.0)
}

fn seven_digits(value: f64, wrong: impl Fn(f64) -> bool, side: f64) -> f64 {
    let round = |value: f64| format!("{value:.6e}").parse().unwrap_or(value);
    let near = round(value);
    if wrong(near) {
        // One unit of the seventh digit.
        round(near + side * 10.0_f64.powf(value.log10().floor() - 6.0))
    } else {
        near
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_on_the_safe_side() {
        for (value, shown_up, shown_down) in [
            (0.0, 0.0, 0.0),
            (1.0, 1.0, 1.0),
            (0.1 + 0.2, 0.3, 0.3),
            (5.264_999_9, 5.265, 5.264_999),
            (5.265_000_1, 5.265_001, 5.265),
            (9.999_999_9, 10.0, 9.999_999),
            (10.000_000_1, 10.000_01, 10.0),
            (4.0 + 2.0_f64.powi(-20), 4.000_001, 4.0),
            (3e-6, 3e-6, 3e-6),
            (1.000_000_1e-6, 1.000_001e-6, 1e-6),
        ] {
            assert_eq!((up(value), down(value)), (shown_up, shown_down), "{value}");
        }
        assert_eq!(format_delta(0.0), "0");
        assert_eq!(format_delta(1e-6), "1e-6");
    }
}
