//! The common interface of figures.

use crate::table::DataTable;

/// A figure that has a width and numbers behind it.
pub trait Figure {
    /// Sets its approximate width in pixels.
    fn set_width(&mut self, width: f64);

    /// The figure as SVG.
    #[must_use]
    fn to_svg(&self) -> String;

    /// Its numbers, for readers who want those.
    #[must_use]
    fn to_table(&self) -> DataTable;
}
