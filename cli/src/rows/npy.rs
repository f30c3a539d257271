//! NumPy `.npy` files.

use eigenveil_estimation::npy;

use super::{columns::Layout, table::RowTable};
use crate::error::{CliError, Result};

/// Parses an n × p array, rows = participants; `layout` says which of the p columns are taken.
pub(super) fn parse(
    bytes: &[u8],
    layout: impl FnOnce(usize) -> Result<Layout>,
) -> Result<RowTable> {
    let array = npy::read(bytes).map_err(|error| CliError::usage(error.detail()))?;
    let layout = layout(array.columns)?;
    Ok(RowTable::new(array.columns, array.values, None)?.rearranged(layout))
}
