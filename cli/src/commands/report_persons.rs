//! The participants of a file: its rows, or its persons, each with several rows.

use std::collections::HashMap;

use eigenveil_client::{PreparedReport, Reporter};
use sha2::{Digest, Sha256};

use crate::{
    error::{CliError, Result},
    rows::RowTable,
};

/// The rows of each participant, from 0.
pub(super) struct Persons {
    rows: Vec<Vec<usize>>,
    labelled: bool,
    /// Of each row, in a study with weights.
    weights: Option<Vec<f64>>,
}

impl Persons {
    /// Each row is a participant.
    pub(super) fn rows(table: &RowTable) -> Self {
        Self {
            rows: (0..table.len()).map(|row| vec![row]).collect(),
            labelled: false,
            weights: None,
        }
    }

    /// Rows with the same label are one person's. Persons are numbered by their first row.
    ///
    /// # Errors
    /// Wrong usage for a row without a label.
    pub(super) fn labelled(table: &RowTable) -> Result<Self> {
        let labels = table.labels();
        let mut persons: Vec<Vec<usize>> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for (row, label) in labels.iter().enumerate() {
            if label.is_empty() {
                return Err(CliError::usage(format!(
                    "row {} does not say whose it is; fill in its cell of the --person column, or leave the row out",
                    row + 1
                )));
            }
            let number = *numbers.entry(label).or_insert_with(|| {
                persons.push(Vec::new());
                persons.len() - 1
            });
            persons[number].push(row);
        }
        Ok(Self {
            rows: persons,
            labelled: true,
            weights: None,
        })
    }

    /// The same, each of whose rows counts by a weight.
    pub(super) fn weighted(self, weights: Vec<f64>) -> Self {
        Self {
            weights: Some(weights),
            ..self
        }
    }

    /// The report of a participant.
    pub(super) fn report(
        &self,
        person: usize,
        table: &RowTable,
        reporter: &Reporter,
    ) -> eigenveil_client::Result<PreparedReport> {
        match (self.rows[person].as_slice(), &self.weights) {
            ([row], Some(weights)) => reporter.report_weighted(&table.row(*row), weights[*row]),
            ([row], None) => reporter.report(&table.row(*row)),
            (rows, _) => {
                let rows = rows.iter().map(|row| table.row(*row));
                reporter.report_one_of(&rows.collect::<Vec<_>>())
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a participant may have several rows.
    pub(super) fn are_labelled(&self) -> bool {
        self.labelled
    }

    /// What identifies this grouping and weighting of the rows.
    pub(super) fn hash_into(&self, hash: &mut Sha256) {
        for own in self.rows.iter().filter(|_| self.labelled) {
            hash.update((own.len() as u64).to_le_bytes());
            for row in own {
                hash.update((*row as u64).to_le_bytes());
            }
        }
        for weight in self.weights.iter().flatten() {
            hash.update(weight.to_le_bytes());
        }
    }
}
