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
    /// Number of weights that count as 1 because they are larger, and of weights that make zero rows.
    pub(super) fn clipped_and_zero_weights(&self) -> (usize, usize) {
        let Holders::Weighted(weights) = &self.holders else {
            return (0, 0);
        };
        let larger = weights.iter().filter(|weight| **weight > 1.0).count();
        let usable = weights.iter().filter(|weight| **weight > 0.0).count();
        (larger, weights.len() - usable)
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
