//! The participants of a file: its rows, or its persons, each with several rows.

use std::borrow::Cow;

use eigenveil_client::{Holders, Participants};
use eigenveil_shared::preprocess::Row;
use eigenveil_tables::RowTable;
use sha2::{Digest, Sha256};

/// A file's rows, by participant.
pub(super) struct Persons {
    pub(super) table: RowTable,
    /// The bytes of the file, kept while they are needed to identify the participants: the digest must be that of the
    /// bytes whose rows are perturbed.
    pub(super) bytes: Vec<u8>,
    pub(super) holders: Holders,
}

impl Persons {
    /// Number of weights that count as 1 because they are larger, and of weights that make zero rows; `None` if there
    /// are no weights.
    pub(super) fn clipped_and_zero_weights(&self) -> Option<(usize, usize)> {
        let Holders::Weighted(weights) = &self.holders else {
            return None;
        };
        let larger = weights.iter().filter(|weight| **weight > 1.0).count();
        let usable = weights.iter().filter(|weight| **weight > 0.0).count();
        Some((larger, weights.len() - usable))
    }

    /// For each row, the probability that it is the row of its participant's report, and how much it then counts.
    pub(super) fn chances_and_weights(&self) -> Vec<(f64, f64)> {
        let mut rows = vec![(1.0, 1.0); self.table.len()];
        match &self.holders {
            Holders::Rows(_) => {}
            Holders::Persons(persons) => {
                for person in persons {
                    let chance = 1.0 / person.len() as f64;
                    person.iter().for_each(|&row| rows[row].0 = chance);
                }
            }
            Holders::Weighted(weights) => {
                for (row, weight) in rows.iter_mut().zip(weights) {
                    row.1 = match *weight > 0.0 {
                        true => weight.min(1.0),
                        false => 0.0,
                    };
                }
            }
        }
        rows
    }

    pub(super) fn are_labelled(&self) -> bool {
        matches!(self.holders, Holders::Persons(_))
    }
}

impl Participants for Persons {
    fn row(&self, number: usize) -> Row {
        self.table.row(number)
    }

    fn holders(&self) -> &Holders {
        &self.holders
    }

    /// The bytes that identify the file: the same file with another column of persons counts as another file.
    fn identity(&self) -> Cow<'_, [u8]> {
        if !self.are_labelled() {
            return Cow::Borrowed(&self.bytes);
        }
        let persons = Sha256::digest(self.holders.to_bytes());
        Cow::Owned([&Sha256::digest(&self.bytes)[..], &persons[..]].concat())
    }

    /// The digest of the number of rows, the selected columns, and the holders and weights of the rows.
    fn settings_digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update((self.table.len() as u64).to_le_bytes());
        for &column in self.table.file_columns() {
            hash.update((column as u64).to_le_bytes());
        }
        hash.update(self.holders.to_bytes());
        hash.finalize().to_vec()
    }
}
