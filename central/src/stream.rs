//! A stream of rows of an announced number and dimension.

use eigenveil_shared::{Error, Result, preprocess::FeatureRow};

use rand::seq::SliceRandom;

use crate::{Generator, RowStream, Rows, rows::check_dimension};

/// Rows one after another, each checked; running dry is an error.
pub(crate) struct Feed<'a, 'b> {
    rows: &'a mut RowStream<'b>,
    dimension: usize,
    announced: u64,
    seen: u64,
}

impl<'a, 'b> Feed<'a, 'b> {
    /// The stream of `announced` rows of dimension `dimension`.
    pub(crate) fn new(rows: &'a mut RowStream<'b>, dimension: usize, announced: u64) -> Self {
        Self {
            rows,
            dimension,
            announced,
            seen: 0,
        }
    }

    /// The next row.
    pub(crate) fn next_row(&mut self) -> Result<FeatureRow> {
        let Some(row) = self.rows.next() else {
            return Err(Error::invalid_request(format!(
                "the stream ended after {} rows; n = {} was announced: give the number there are",
                self.seen, self.announced
            )));
        };
        let row = row?;
        check_dimension(self.seen, &row, self.dimension)?;
        self.seen += 1;
        Ok(row)
    }
}

/// The table's rows in random order: a table may be sorted, and a method that sees each row once forgets.
pub(crate) fn shuffled<'a>(
    rows: &'a Rows,
    rng: &mut Generator,
) -> impl Iterator<Item = Result<FeatureRow>> + use<'a> {
    let mut order: Vec<&FeatureRow> = rows.iter().collect();
    order.shuffle(rng);
    order.into_iter().cloned().map(Ok)
}

/// The error of a number of steps beside a number of rows a step.
pub(crate) fn conflicting_steps_error() -> Error {
    Error::invalid_request(
        "iterations and batch are both set; each follows from n and the other: leave one out",
    )
}

/// `batch` rows a step of `n` in all: the number of whole steps.
pub(crate) fn whole_steps(n: u64, batch: usize) -> Result<usize> {
    let steps = n.checked_div(batch as u64).unwrap_or(0);
    if steps == 0 {
        return Err(Error::invalid_request(format!(
            "a batch of {batch} rows and n = {n} rows make no step; use between 1 and n rows a batch"
        )));
    }
    usize::try_from(steps).map_err(|_| {
        Error::invalid_request(format!(
            "{steps} steps are more than this machine counts; use a larger batch"
        ))
    })
}
