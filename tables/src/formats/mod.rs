//! The formats that are read, one file each: every one maps its columns, reads the cells of those, and makes a table.

pub(crate) mod frame;
pub(crate) mod libsvm;
pub mod npy;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod text;
mod typed_columns;
