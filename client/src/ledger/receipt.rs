//! What a person can keep: which study was told what, and what is left.

use std::fmt;

use eigenveil_shared::{
    about::Day,
    privacy::{Budget, delta_text},
};
use serde::{Deserialize, Serialize};

use super::{
    EntryState,
    limits::{Limits, Spent},
    schema::Entry,
    told::{Told, printable},
};

/// What a device has told whom. `Display` is a short text for a person; serde gives JSON with exact
/// numbers. It holds no report and nothing of any row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The device's limits.
    pub limits: Limits,
    /// What all reports come to together, rounded up.
    pub spent: Spent,
    /// What is left of the totals, rounded down.
    pub left: Spent,
    /// The studies, in the order in which the device took part.
    pub studies: Vec<ReceiptEntry>,
}

/// One study of a [`Receipt`], as it was when the device took part, and what became of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptEntry {
    /// Address of the server.
    pub server: String,
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
    pub told: Told,
}

impl ReceiptEntry {
    pub(super) fn new(entry: Entry, told: Told) -> Self {
        Self {
            server: entry.binding.server,
            study: entry.binding.study,
            fingerprint: entry.binding.fingerprint.to_string(),
            day: Day(entry.day).to_string(),
            mechanism: entry.mechanism,
            dimension: entry.dimension,
            neighbours: entry.neighbours,
            charged: entry.charge,
            sentence: entry.sentence,
            report: entry.report.to_string(),
            state: entry.state,
            told,
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limits, spent, left) = (&self.limits, self.spent, self.left);
        match self.studies.len() {
            0 => writeln!(f, "This device took part in no study.")?,
            1 => writeln!(f, "This device took part in 1 study.")?,
            count => writeln!(f, "This device took part in {count} studies.")?,
        }
        writeln!(f)?;
        totals(f, limits, spent, left)?;
        for (number, study) in (1..).zip(&self.studies) {
            write!(f, "\n{number}. {study}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReceiptEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", heading(&self.day, &self.study, &self.server))?;
        writeln!(
            f,
            "   one row of {} numbers, perturbed by {}",
            self.dimension,
            printable(&self.mechanism)
        )?;
        cost(f, self.charged, &self.neighbours, &self.sentence)?;
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
        told(f, &self.told, &self.fingerprint)
    }
}

/// Which study it was, and when.
pub(super) fn heading(day: &str, study: &str, server: &str) -> String {
    printable(&format!("{day}  study {study} at {server}"))
}

/// What the study said when this side took part.
pub(super) fn told(f: &mut fmt::Formatter<'_>, told: &Told, fingerprint: &str) -> fmt::Result {
    for line in told.to_string().lines() {
        writeln!(f, "   {line}")?;
    }
    if let Some(parameters) = &told.parameters {
        let claimed = parameters.budget();
        let delta = delta_text(claimed.delta());
        writeln!(
            f,
            "   claimed      epsilon {}, delta {delta}",
            claimed.epsilon()
        )?;
    }
    writeln!(f, "   {:<13}{}", "fingerprint", printable(fingerprint))
}

/// What is spent and left under the limits.
pub(super) fn totals(
    f: &mut fmt::Formatter<'_>,
    limits: &Limits,
    spent: Spent,
    left: Spent,
) -> fmt::Result {
    writeln!(
        f,
        "            {:>12} {:>12} {:>12}",
        "spent", "left", "limit"
    )?;
    writeln!(
        f,
        "  epsilon   {:>12} {:>12} {:>12}",
        up(spent.epsilon),
        down(left.epsilon),
        limits.epsilon_total()
    )?;
    writeln!(
        f,
        "  delta     {:>12} {:>12} {:>12}",
        delta_text(up(spent.delta)),
        delta_text(down(left.delta)),
        delta_text(limits.delta_total())
    )?;
    writeln!(f)?;
    writeln!(
        f,
        "One study may cost epsilon {} at most. Costs add up, whoever runs the studies.",
        limits.epsilon_per_study()
    )
}

/// What one report of a study cost, and what it could tell.
pub(super) fn cost(
    f: &mut fmt::Formatter<'_>,
    charged: Budget,
    neighbours: &str,
    sentence: &str,
) -> fmt::Result {
    writeln!(
        f,
        "   charged epsilon {}, delta {} ({})",
        up(charged.epsilon()),
        delta_text(up(charged.delta())),
        printable(neighbours)
    )?;
    writeln!(f, "   {}", printable(sentence))
}

/// To five digits, not below the value, but for what is lost in any sum of decimals.
fn up(value: f64) -> f64 {
    five_digits(value, |shown| shown < value * (1.0 - 1e-12), 1.0)
}

/// To five digits, not above the value, but for the same.
fn down(value: f64) -> f64 {
    five_digits(value, |shown| shown > value * (1.0 + 1e-12), -1.0)
}

fn five_digits(value: f64, wrong: impl Fn(f64) -> bool, side: f64) -> f64 {
    let round = |value: f64| format!("{value:.4e}").parse().unwrap_or(value);
    let near = round(value);
    if wrong(near) {
        // One unit of the fifth digit.
        round(near + side * 10.0_f64.powf(value.log10().floor() - 4.0))
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
            (5.264_999, 5.265, 5.2649),
            (5.265_01, 5.2651, 5.265),
            (9.999_99, 10.0, 9.9999),
            (10.000_01, 10.001, 10.0),
            (3e-6, 3e-6, 3e-6),
            (1.000_001e-6, 1.0001e-6, 1e-6),
        ] {
            assert_eq!((up(value), down(value)), (shown_up, shown_down), "{value}");
        }
        assert_eq!(delta_text(0.0), "0");
        assert_eq!(delta_text(1e-6), "1e-6");
    }
}
