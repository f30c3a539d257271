//! What all figures can do.

use crate::table::DataTable;

/// A figure that has a title, a width and numbers behind it.
pub trait Figure {
    /// The same figure, about so many pixels wide.
    #[must_use]
    fn with_width(self, width: f64) -> Self
    where
        Self: Sized;

    /// The figure as SVG.
    #[must_use]
    fn to_svg(&self) -> String;

    /// Its numbers, for readers who want those.
    #[must_use]
    fn to_table(&self) -> DataTable;
}
