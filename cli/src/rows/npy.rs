//! NumPy `.npy` files.

use eigenveil_estimation::npy;

use super::{columns::ColumnMapping, table::RowTable};
use crate::error::{CliError, Result};

/// Parses an n × p array, rows = participants; `mapping` says which of the p columns are taken.
pub(super) fn parse(
    bytes: &[u8],
    mapping: impl FnOnce(usize) -> Result<ColumnMapping>,
) -> Result<RowTable> {
    let array = npy::read(bytes).map_err(|error| CliError::usage(error.detail()))?;
    let mapping = mapping(array.columns)?;
    Ok(RowTable::new(array.columns, array.values, None)?.with_columns_selected(mapping))
}
