//! What the rows of a file told, and what it cost them.

use std::fmt;

use eigenveil_shared::privacy::Budget;
use serde::{Deserialize, Serialize};

use crate::{
    book::{Limits, PrivacyCost, StudyTerms, heading, write_cost, write_terms, write_totals},
    error::printable,
};

/// Which studies the rows of a file took part in, and what it cost them. `Display` is a short text; serde gives JSON with exact numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowReceipt {
    /// What each row may spend.
    pub limits: Limits,
    /// What the row that spent most has spent, rounded up (the largest ε and the largest δ).
    pub spent: PrivacyCost,
    /// What remains to that row, rounded down.
    pub remaining: PrivacyCost,
    /// The studies, in the order in which rows took part.
    pub studies: Vec<RowStudy>,
}

/// One study of a [`RowReceipt`], as it was when the first rows took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowStudy {
    /// Address of the server.
    pub server: String,
    /// Addresses that the study moved to since, the latest last.
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
    /// Which two inputs a report must not tell apart.
    pub neighbours: String,
    /// What one report could tell the server, in a sentence.
    pub sentence: String,
    /// What each row was charged: the ε that holds, at least the one that was claimed.
    pub charged: Budget,
    /// How many rows took part.
    pub rows: u64,
    /// What was said of the study when the first rows took part.
    pub terms: StudyTerms,
}

impl fmt::Display for RowReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Rows took part in {} studies. The row that spent most:\n",
            self.studies.len()
        )?;
        write_totals(f, &self.limits, self.spent, self.remaining)?;
        for (number, study) in (1..).zip(&self.studies) {
            let heading = heading(&study.day, &study.study, &study.server, &study.moved_to);
            writeln!(f, "\n{number}. {heading}")?;
            writeln!(
                f,
                "   {} rows of {} numbers, perturbed by {}",
                study.rows,
                study.dimension,
                printable(&study.mechanism)
            )?;
            write_cost(f, study.charged, &study.neighbours, &study.sentence)?;
            write_terms(f, &study.terms, &study.fingerprint)?;
        }
        Ok(())
    }
}
