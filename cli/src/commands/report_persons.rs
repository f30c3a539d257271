//! The participants of a file: its rows, or its persons, each with several rows.

use std::{borrow::Cow, collections::HashMap};

use eigenveil_client::{PreparedReport, Study};
use sha2::{Digest, Sha256};

use crate::{
    error::{CliError, Result},
    rows::{RowTable, number_in},
};

/// Number of rows from which most of them can decide.
const MIN_ROWS_FOR_MAJORITY: usize = 3;

fn is_weight(weight: f64) -> bool {
    weight > 0.0 && weight <= 1.0
}

/// A file's rows, by participant.
pub(super) struct Persons {
    pub(super) table: RowTable,
    /// The rows of each, from 0.
    rows: Vec<Vec<usize>>,
    labelled: bool,
    /// Of each row, in a study with weights.
    weights: Option<Vec<f64>>,
}

impl Persons {
    pub(super) fn rows(table: RowTable) -> Self {
        Self {
            rows: (0..table.len()).map(|row| vec![row]).collect(),
            table,
            labelled: false,
            weights: None,
        }
    }

    /// Rows with the same label are one person's. Persons are numbered by their first row.
    /// Wrong usage for a row without a label.
    pub(super) fn labelled(table: RowTable) -> Result<Self> {
        let mut persons: Vec<Vec<usize>> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for (row, label) in table.labels().iter().enumerate() {
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
            table,
            rows: persons,
            labelled: true,
            weights: None,
        })
    }

    /// Each row is a participant and counts by the weight in its label. Wrong usage if most of three or more are not
    /// above 0 and at most 1: one row must not decide whether the others are sent.
    pub(super) fn weighted(table: RowTable) -> Result<Self> {
        let weights: Vec<f64> = table.labels().iter().map(|cell| number_in(cell)).collect();
        let wrong = weights.iter().filter(|weight| !is_weight(**weight)).count();
        if weights.len() >= MIN_ROWS_FOR_MAJORITY && 2 * wrong > weights.len() {
            return Err(CliError::usage(
                "most cells of the --weight column are not numbers above 0 and at most 1; scale the largest weight to 1",
            ));
        }
        Ok(Self {
            weights: Some(weights),
            ..Self::rows(table)
        })
    }

    /// Weights that count as 1, being larger, and those that make zero rows.
    pub(super) fn wrong_weights(&self) -> (usize, usize) {
        let count = |wrong: fn(f64) -> bool| {
            let weights = self.weights.iter().flatten();
            weights.filter(|weight| wrong(**weight)).count()
        };
        let larger = count(|weight| weight > 1.0);
        (larger, count(|weight| !is_weight(weight)) - larger)
    }

    /// What identifies the participants of these bytes: another column of persons is another file.
    pub(super) fn identify<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.labelled {
            return Cow::Borrowed(bytes);
        }
        let mut hash = Sha256::new();
        self.hash_into(&mut hash);
        Cow::Owned([&Sha256::digest(bytes)[..], &hash.finalize()[..]].concat())
    }

    /// The digest of the number of rows, the selected columns, whose the rows are and what they count.
    pub(super) fn read_as(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update((self.table.len() as u64).to_le_bytes());
        for &column in self.table.taken() {
            hash.update((column as u64).to_le_bytes());
        }
        self.hash_into(&mut hash);
        hash.finalize().to_vec()
    }

    pub(super) fn report(
        &self,
        person: u64,
        study: &Study,
        now: u64,
    ) -> eigenveil_client::Result<PreparedReport> {
        let table = &self.table;
        let own = usize::try_from(person).ok();
        let own = own.and_then(|person| self.rows.get(person));
        match (own.map_or(&[][..], Vec::as_slice), &self.weights) {
            ([row], Some(weights)) => study.report_weighted(&table.row(*row), weights[*row], now),
            ([row], None) => study.report(&table.row(*row), now),
            (rows, _) => {
                let rows = rows.iter().map(|row| table.row(*row));
                study.report_one_of(&rows.collect::<Vec<_>>(), now)
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn are_labelled(&self) -> bool {
        self.labelled
    }

    /// What identifies this grouping and weighting of the rows.
    fn hash_into(&self, hash: &mut Sha256) {
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
