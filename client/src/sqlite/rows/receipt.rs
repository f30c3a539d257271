//! What the rows of a file told, and what it cost them.

use std::{fmt, ops::Deref};

use serde::{Deserialize, Serialize};

use crate::book::{Receipt, StudyRecord};

/// Which studies the rows of a file took part in, and what it cost them.
pub type RowReceipt = Receipt<RowStudy>;

/// A study that rows took part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowStudy {
    /// The study.
    #[serde(flatten)]
    pub record: StudyRecord,
    /// How many rows took part.
    pub rows: u64,
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
            "Rows took part in {} studies. The row that spent most:\n",
            self.studies.len()
        )?;
        self.write_totals(f)?;
        for (number, study) in (1..).zip(&self.studies) {
            write!(f, "\n{number}. ")?;
            study.write(f, &format!("{} rows", study.rows), "")?;
        }
        Ok(())
    }
}
