//! The common interface of figures.

use crate::table::DataTable;

/// A figure with a width and underlying numbers.
pub trait Figure {
    /// Sets its approximate width in pixels.
    fn set_width(&mut self, width: f64);

    /// The figure as SVG.
    #[must_use]
    fn to_svg(&self) -> String;

    /// Its numbers as a table.
    #[must_use]
    fn to_table(&self) -> DataTable;
}
