//! The receipt of the rows of a file.

use std::{fmt, ops::Deref};

use eigenveil_shared::wording::counted;
use serde::{Deserialize, Serialize};

use crate::book::{Receipt, StudyRecord};

/// The studies that the rows of a file took part in, and their privacy cost.
pub type RowReceipt = Receipt<RowStudy>;

/// A study that rows took part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowStudy {
    /// The study.
    #[serde(flatten)]
    pub record: StudyRecord,
    /// Number of rows that took part.
    pub rows: u64,
    /// Number of their reports that were given up before the server acknowledged them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Deref for RowStudy {
    type Target = StudyRecord;

    fn deref(&self) -> &StudyRecord {
        &self.record
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
            let given_up = match study.given_up {
                0 => String::new(),
                some => format!(
                    "   given up: {}, never sent again; charged all the same, since the server may have one already\n",
                    counted(some, "report")
                ),
            };
            write!(f, "\n{number}. ")?;
            study.write(f, &counted(study.rows, "row"), &given_up)?;
        }
        Ok(())
    }
}
