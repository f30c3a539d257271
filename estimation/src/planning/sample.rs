//! Public rows as a sample of people.

use eigenveil_shared::{
    Result,
    preprocess::{Feature, Preprocessing},
    study::StudyParams,
};

use crate::Table;

/// A column of public rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicColumn {
    /// The name of its feature.
    pub name: String,
    /// Number of the column of text of which this is a category; all categories of a column share one scale.
    pub category_of: Option<usize>,
}

/// Public rows.
#[derive(Clone, Copy)]
pub struct PublicRows<'a> {
    /// The rows; NaN is a missing cell.
    pub table: Table<'a>,
    /// Their columns.
    pub columns: &'a [PublicColumn],
    /// The rows of each person, where persons have several; without, each row is one person's. Persons count alike,
    /// however many rows they have, as in a study to which each reports one of them.
    pub persons: Option<&'a [Vec<usize>]>,
}

impl PublicRows<'_> {
    /// Number of people.
    pub(super) fn people(&self) -> usize {
        self.persons.map_or(self.table.len, <[_]>::len)
    }

    /// How much each row counts: the rows of a person add up to 1.
    pub(super) fn weights(&self) -> Vec<f64> {
        let mut weights = vec![1.0; self.table.len];
        for rows in self.persons.into_iter().flatten() {
            for &row in rows {
                weights[row] = 1.0 / rows.len() as f64;
            }
        }
        weights
    }

    /// The rows as a study of these features and this norm prepares them.
    pub(super) fn prepared(&self, preprocessing: &Preprocessing) -> Result<Sample> {
        let preprocessor = preprocessing.preprocessor()?;
        let rows = (0..self.table.len).map(|index| {
            let row = preprocessor.prepare_features_nth(index, &(self.table.row)(index))?;
            Ok(row.as_slice().to_vec())
        });
        let mut people: Vec<usize> = (0..self.table.len).collect();
        for (person, rows) in self.persons.into_iter().flatten().enumerate() {
            rows.iter().for_each(|&row| people[row] = person);
        }
        Ok(Sample {
            rows: rows.collect::<Result<_>>()?,
            weights: self.weights(),
            people,
        })
    }

    /// Lengths of the rows with these constants, ascending, and how much each counts. A row with missing cells has the
    /// length that `clip` gives it back.
    pub(super) fn lengths(&self, features: &[Feature]) -> Vec<(f64, f64)> {
        let length = |index: usize| {
            let row = (self.table.row)(index);
            let entries = row.values().iter().zip(features);
            let observed = entries.filter(|(x, _)| !x.is_nan());
            let squares = observed.map(|(x, f)| ((x - f.center) / f.scale).powi(2));
            let (count, sum) = squares.fold((0.0, 0.0), |(count, sum), x| (count + 1.0, sum + x));
            match count {
                0.0 => 0.0,
                _ => (sum * features.len() as f64 / count).sqrt(),
            }
        };
        let mut lengths: Vec<(f64, f64)> = (0..self.table.len)
            .map(length)
            .zip(self.weights())
            .collect();
        lengths.sort_by(|a, b| a.0.total_cmp(&b.0));
        lengths
    }
}

/// Prepared rows, and how much each counts.
pub(super) struct Sample {
    /// Rows of p features.
    pub(super) rows: Vec<Vec<f64>>,
    weights: Vec<f64>,
    /// The person of each row.
    people: Vec<usize>,
}

impl Sample {
    /// Rows that all count alike.
    #[cfg(test)]
    pub(super) fn of(rows: Vec<Vec<f64>>) -> Self {
        Self {
            weights: vec![1.0; rows.len()],
            people: (0..rows.len()).collect(),
            rows,
        }
    }

    /// The rows with their shares of the sample, which add up to 1.
    pub(super) fn shares(&self) -> impl Iterator<Item = (&Vec<f64>, f64)> + Clone {
        let total: f64 = self.weights.iter().sum();
        let shares = self.weights.iter().map(move |weight| weight / total);
        self.rows.iter().zip(shares)
    }

    /// The rows as they are perturbed, with the constant of private centring, and their shares of the sample.
    pub(super) fn reported(&self, params: &StudyParams) -> impl Iterator<Item = (Vec<f64>, f64)> {
        let constant = params.preprocessing().centring;
        let length = constant.unwrap_or(0.0).hypot(1.0);
        self.shares().map(move |(row, share)| {
            let entries = row.iter().copied().chain(constant);
            (entries.map(|x| x / length).collect(), share)
        })
    }

    /// The rows of all but one person.
    pub(super) fn without(&self, person: usize) -> Self {
        let other_rows = || (0..self.rows.len()).filter(|&row| self.people[row] != person);
        Self {
            rows: other_rows().map(|row| self.rows[row].clone()).collect(),
            weights: other_rows().map(|row| self.weights[row]).collect(),
            people: other_rows().map(|row| self.people[row]).collect(),
        }
    }

    /// Number of people.
    pub(super) fn people(&self) -> usize {
        self.people.iter().max().map_or(0, |last| last + 1)
    }
}
