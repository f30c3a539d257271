//! A device's receipt: its studies, their terms, and the remaining budget.

use std::{fmt, ops::Deref};

use eigenveil_shared::{
    privacy::{Budget, format_delta},
    wording::counted,
};
use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryState};
use crate::{
    error::printable,
    exchange::Server,
    rules::{Limits, PrivacyCost, StudyTerms},
};

/// The studies that a device, or the rows of a file, took part in, and their privacy cost. `Display` is a short text
/// for a person; serde gives JSON with exact numbers. It holds no report and nothing of any row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt<S = ReceiptEntry> {
    /// The device's limits, or those of each row.
    pub limits: Limits,
    /// Total of all reports of the device, or of the row that spent most, rounded up.
    pub spent: PrivacyCost,
    /// The rest of the totals, rounded down.
    pub remaining: PrivacyCost,
    /// The studies, in the order of the first reports.
    pub studies: Vec<S>,
}

/// One study of a [`Receipt`], as it was at the first report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRecord {
    /// Address of the server.
    pub server: String,
    /// Later addresses of the study, newest last; reports are sent to the newest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_to: Vec<String>,
    /// Identifier of the study.
    pub study: String,
    /// Fingerprint of the study's parameters, in hexadecimal.
    pub fingerprint: String,
    /// The day of the first charge, UTC, such as `2026-03-14`.
    pub day: String,
    /// The local randomizer.
    pub mechanism: String,
    /// Dimension p of a row.
    pub dimension: u64,
    /// The pairs of inputs that a report must not distinguish.
    pub neighbours: String,
    /// The information that a report could give the server, in a sentence.
    pub sentence: String,
    /// The charge of a report: the true budget, at least the claimed one.
    pub charged: Budget,
    /// The terms of the study.
    pub terms: StudyTerms,
}

/// A study that a device took part in, with the state of its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiptEntry {
    /// The study.
    #[serde(flatten)]
    pub record: StudyRecord,
    /// Identifier of the report, in hexadecimal.
    pub report: String,
    /// The state of the report.
    pub state: EntryState,
}

impl Deref for ReceiptEntry {
    type Target = StudyRecord;

    fn deref(&self) -> &StudyRecord {
        &self.record
    }
}

impl ReceiptEntry {
    pub(super) fn new(entry: &Entry) -> Self {
        Self {
            record: StudyRecord {
                server: String::new(),
                moved_to: Vec::new(),
                study: entry.study.clone(),
                fingerprint: entry.fingerprint.to_string(),
                day: entry.day.to_string(),
                mechanism: entry.mechanism.clone(),
                dimension: entry.dimension,
                neighbours: entry.neighbours.clone(),
                sentence: entry.sentence.clone(),
                charged: entry.charge,
                terms: entry.terms.clone(),
            }
            .with_servers(&entry.servers),
            report: entry.report.to_string(),
            state: entry.state.clone(),
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.studies.len() as u64 {
            0 => writeln!(f, "This device took part in no study.")?,
            count => writeln!(f, "This device took part in {}.", counted(count, "study"))?,
        }
        writeln!(f)?;
        self.write_totals(f)?;
        for (number, study) in (1..).zip(&self.studies) {
            write!(f, "\n{number}. {study}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReceiptEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = printable(&self.report);
        let report = format!("   report {report}: {}\n", self.state.in_words());
        self.record.write(f, "one row", &report)
    }
}

impl StudyRecord {
    /// Sets the addresses of the server, oldest first.
    pub(crate) fn with_servers(mut self, servers: &[Server]) -> Self {
        let mut servers = servers.iter().map(ToString::to_string);
        self.server = servers.next().unwrap_or_default();
        self.moved_to = servers.collect();
        self
    }

    /// Writes the study: `who` took part, and `state_lines` on the state of the reports.
    pub(crate) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        who: &str,
        state_lines: &str,
    ) -> fmt::Result {
        let moved = self.moved_to.iter().map(|to| format!(", moved to {to}"));
        let moved: String = moved.collect();
        let Self {
            day, study, server, ..
        } = self;
        let heading = format!("{day}  study {study} at {server}{moved}");
        writeln!(f, "{}", printable(&heading))?;
        writeln!(
            f,
            "   {who} of {} numbers, perturbed by {}",
            self.dimension,
            printable(&self.mechanism)
        )?;
        writeln!(
            f,
            "   charged epsilon {}, delta {} ({})",
            rounded_up(self.charged.epsilon()),
            format_delta(rounded_up(self.charged.delta())),
            printable(&self.neighbours)
        )?;
        write!(f, "   {}\n{state_lines}", printable(&self.sentence))?;
        for line in self.terms.to_string().lines() {
            writeln!(f, "   {line}")?;
        }
        if let Some(parameters) = &self.terms.parameters {
            let claimed = parameters.budget();
            let delta = format_delta(claimed.delta());
            writeln!(
                f,
                "   claimed      epsilon {}, delta {delta}",
                claimed.epsilon()
            )?;
        }
        writeln!(
            f,
            "   {:<13}{}",
            "fingerprint",
            printable(&self.fingerprint)
        )
    }
}

impl<S> Receipt<S> {
    /// Writes the spending, and the rest under the limits.
    pub(crate) fn write_totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limits,
            spent,
            remaining,
            ..
        } = self;
        writeln!(
            f,
            "            {:>12} {:>12} {:>12}",
            "spent", "remaining", "limit"
        )?;
        writeln!(
            f,
            "  epsilon   {:>12} {:>12} {:>12}",
            rounded_up(spent.epsilon),
            rounded_down(remaining.epsilon),
            limits.epsilon_total()
        )?;
        writeln!(
            f,
            "  delta     {:>12} {:>12} {:>12}",
            format_delta(rounded_up(spent.delta)),
            format_delta(rounded_down(remaining.delta)),
            format_delta(limits.delta_total())
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "One study may cost epsilon {} at most. Costs add up, whoever runs the studies.",
            limits.epsilon_per_study()
        )
    }
}

/// Rounds up to seven digits: enough to show the slack added to ε (4.000001); ignores rounding errors of decimal sums.
fn rounded_up(value: f64) -> f64 {
    seven_digits(value, |rounded| rounded < value * (1.0 - 1e-12), 1.0)
}

/// Rounds down to seven digits; ignores the same rounding errors.
fn rounded_down(value: f64) -> f64 {
    seven_digits(value, |rounded| rounded > value * (1.0 + 1e-12), -1.0)
}

fn seven_digits(value: f64, exceeds: impl Fn(f64) -> bool, direction: f64) -> f64 {
    let round = |value: f64| format!("{value:.6e}").parse().unwrap_or(value);
    let rounded = round(value);
    if exceeds(rounded) {
        // One unit of the seventh digit.
        round(rounded + direction * 10.0_f64.powf(value.log10().floor() - 6.0))
    } else {
        rounded
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
            assert_eq!(
                (rounded_up(value), rounded_down(value)),
                (shown_up, shown_down),
                "{value}"
            );
        }
        assert_eq!(format_delta(0.0), "0");
        assert_eq!(format_delta(1e-6), "1e-6");
    }
}
