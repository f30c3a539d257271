//! A stream of rows with an announced number and dimension.

use eigenveil_shared::{Error, Result, preprocess::FeatureRow};

use rand::seq::SliceRandom;

use crate::{
    Generator, Options, Rows,
    input::rows::check_dimension,
    parameter::{BATCH, ITERATIONS},
};

/// A stream of prepared rows.
pub type RowStream<'a> = dyn Iterator<Item = Result<FeatureRow>> + 'a;

/// Reads and checks rows one at a time; a stream that ends early is an error.
pub(crate) struct CheckedRows<'a, 'b> {
    rows: &'a mut RowStream<'b>,
    dimension: usize,
    announced: u64,
    read: u64,
}

impl<'a, 'b> CheckedRows<'a, 'b> {
    pub(crate) fn new(rows: &'a mut RowStream<'b>, dimension: usize, announced: u64) -> Self {
        Self {
            rows,
            dimension,
            announced,
            read: 0,
        }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    /// The announced number of rows.
    pub(crate) fn n(&self) -> u64 {
        self.announced
    }

    pub(crate) fn next_row(&mut self) -> Result<FeatureRow> {
        let Some(row) = self.rows.next() else {
            return Err(Error::invalid_request(format!(
                "the stream ended after {} rows; n = {} was announced: give the actual number",
                self.read, self.announced
            )));
        };
        let row = row?;
        check_dimension(self.read, &row, self.dimension)?;
        self.read += 1;
        Ok(row)
    }
}

/// The table's rows in random order: a table may be sorted, and single-pass methods favour late rows.
pub(crate) fn shuffled<'a>(
    rows: &'a Rows,
    rng: &mut Generator,
) -> impl Iterator<Item = Result<FeatureRow>> + use<'a> {
    let mut order: Vec<&FeatureRow> = rows.iter().collect();
    order.shuffle(rng);
    order.into_iter().cloned().map(Ok)
}

/// The number of steps and the batch size for n rows, from whichever option is set; by default `default` steps. A step
/// has no rows if there are more steps than rows.
pub(crate) fn steps_and_batch(n: u64, options: &Options, default: usize) -> Result<(usize, usize)> {
    if let Some(batch) = options.count(BATCH) {
        return Ok((whole_steps(n, batch)?, batch));
    }
    let steps = options.count(ITERATIONS).unwrap_or(default);
    Ok((steps, (n / steps as u64) as usize))
}

/// The number of complete steps of `batch` rows in `n` rows.
pub(crate) fn whole_steps(n: u64, batch: usize) -> Result<usize> {
    let steps = n / batch as u64;
    if steps == 0 {
        return Err(Error::invalid_request(format!(
            "the batch has {batch} rows but n is {n}; use 1 to n"
        )));
    }
    usize::try_from(steps).map_err(|_| {
        Error::invalid_request(format!(
            "{steps} steps exceed what this machine can count; use a larger batch"
        ))
    })
}
