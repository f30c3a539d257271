//! The common interface of figures.

use eigenveil_shared::estimate::Estimate;

use crate::table::DataTable;

/// Width of a figure in pixels, unless another is asked for.
pub(crate) const WIDTH: f64 = 720.0;

/// The title of a figure of an estimate: with its name, if it has one.
pub(crate) fn titled(what: &str, estimate: &Estimate) -> String {
    match estimate.name.as_str() {
        "" => what.to_owned(),
        name => format!("{what}, {name}"),
    }
}

/// A figure with underlying numbers.
pub trait Figure {
    /// The figure as SVG, about this many pixels wide: at least 320, and more where long numbers need it.
    #[must_use]
    fn to_svg_of_width(&self, width: f64) -> String;

    /// The figure as SVG, 720 pixels wide.
    #[must_use]
    fn to_svg(&self) -> String {
        self.to_svg_of_width(WIDTH)
    }

    /// Its numbers as a table.
    #[must_use]
    fn to_table(&self) -> DataTable;
}
