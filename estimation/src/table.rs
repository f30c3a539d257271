//! Rows that a caller holds.

use eigenveil_shared::{Error, Result, preprocess::Row};

/// Largest p of work that holds p × p matrices: at this size one takes 3.2 GB, and some hold several.
const MAX_QUADRATIC: usize = 20_000;
/// Largest p of other work: as many columns as a file may have.
const MAX_DIMENSION: usize = 1 << 17;

/// The rows of a table.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// Number of rows.
    pub len: usize,
    /// Number of columns.
    pub columns: usize,
    /// The row of an index below that number.
    pub row: &'a dyn Fn(usize) -> Row,
}

/// Checks that rows have no more columns than this work has memory for.
///
/// # Errors
/// `invalid-request` for more.
pub fn check_columns(work: &str, quadratic_memory: bool, columns: usize) -> Result<()> {
    let (most, because) = if quadratic_memory {
        (MAX_QUADRATIC, "holds matrices of p × p")
    } else {
        (MAX_DIMENSION, "holds frames of p × k")
    };
    if columns <= most {
        return Ok(());
    }
    Err(Error::invalid_request(format!(
        "the rows have {columns} columns; {work} {because}, for at most {most} columns: take some of them with `keep`"
    ))
    .with_field("keep"))
}
