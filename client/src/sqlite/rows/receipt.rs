//! The receipt of the rows of a file.

use std::{fmt, ops::Deref};

use eigenveil_shared::wording::counted;
use serde::{Deserialize, Serialize};

use crate::book::{EntryState, Receipt, StudyRecord};

/// The studies that the rows of a file took part in, and their privacy cost.
pub type RowReceipt = Receipt<RowStudy>;

/// A study that rows took part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowStudy {
    /// The study.
    #[serde(flatten)]
    pub record: StudyRecord,
    /// Number of rows that took part; of persons, in a study of sites that protects persons.
    pub rows: u64,
    /// Number of their reports that were given up before the server acknowledged them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u64,
    /// The site whose table they are, in a study of sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteRecord>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A site, and its reports to one study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRecord {
    /// Name of the site, as its tokens have it.
    pub name: String,
    /// Its reports, oldest first.
    pub reports: Vec<SiteReportRecord>,
}

/// One report of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteReportRecord {
    /// Identifier of the report, in hexadecimal.
    pub report: String,
    /// Rows that were charged for it; persons, where persons are protected.
    pub units: u64,
    /// The day of the charge, UTC, such as `2026-03-14`.
    pub day: String,
    /// The state of the report.
    pub state: EntryState,
}

impl Deref for RowStudy {
    type Target = StudyRecord;

    fn deref(&self) -> &StudyRecord {
        &self.record
    }
}

impl RowStudy {
    /// Who took part.
    fn participants(&self) -> String {
        let parameters = self.terms.parameters.as_ref();
        match (
            &self.site,
            parameters.and_then(|parameters| parameters.sites().ok()),
        ) {
            (Some(site), Some(params)) => format!(
                "site {:?}: a table of {} {}, each",
                site.name,
                self.rows,
                params.terms().unit()
            ),
            _ => counted(self.rows, "row"),
        }
    }

    /// A line for each report of a site; elsewhere one for all that were given up.
    fn reports(&self) -> String {
        match (&self.site, self.given_up) {
            (Some(site), _) => site.reports.iter().map(SiteReportRecord::line).collect(),
            (None, 0) => String::new(),
            (None, given_up) => format!(
                "   given up: {}, never sent again; charged all the same, since the server may have one already\n",
                counted(given_up, "report")
            ),
        }
    }
}

impl SiteReportRecord {
    fn line(&self) -> String {
        let Self {
            report,
            units,
            day,
            state,
        } = self;
        format!(
            "   {day}  report {report} for {units} of them: {}\n",
            state.in_words()
        )
    }
}

impl fmt::Display for RowReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Rows took part in {}. The row that spent most:\n",
            counted(self.studies.len() as u64, "study")
        )?;
        self.write_totals(f)?;
        for (number, study) in (1..).zip(&self.studies) {
            write!(f, "\n{number}. ")?;
            study.write(f, &study.participants(), &study.reports())?;
        }
        Ok(())
    }
}
