//! How estimates, plans and experiments are shown: the table of an estimate's components ([`component_rows`]), its
//! figures ([`estimate_figures`]), that of a plan ([`expected_error`]), [numbers](number), and the charts they are made
//! of.
//!
//! Every chart is a plain struct that is filled in and turned into a string (most are a [`Figure`]):
//!
//! * [`LineChart`]: one or more series over a linear or logarithmic axis, with error bars;
//! * [`Scree`]: the variances of an estimate's components against its noise floor;
//! * [`AlignmentChart`]: the expected alignment of each component with the true one;
//! * [`LoadingTable`]: features by components, for sparse subspaces;
//! * [`ImageGrid`] of [`LoadingImage`]s: components of pictures, drawn as pictures;
//! * [`BarChart`]: the largest loadings of a component, by name;
//! * [`Biplot`]: rows in the plane of two components, with the loadings as arrows;
//! * [`DataTable`]: the same numbers as an HTML table, for readers who want those.
//!
//! The strings hold no script, no font and no link, so they can be written to a file, served as an
//! image or pasted into an HTML page, several to a page: they use no `id`, and all of them carry the
//! same [`STYLESHEET`], which touches nothing outside `svg.ev-plot` (a page with a strict content
//! security policy can allow it by its hash). Colours follow the reader's light or dark preference.
//! The palette is safe for colour-blind readers, and no difference is shown by colour alone: series
//! also differ by marker and dash, verdicts by shape, signs by direction.
//!
//! Long texts break into lines; a no-break space (U+00A0, as in "ε = 2") keeps words together.
//!
//! The same input gives the same bytes. Numbers that are not finite are left out, never written.
//!
//! Why no plotting library: `plotters` (0.3.7) writes colours into every element, so a figure cannot follow a dark
//! page, and measures text with the fonts of the machine it runs on, so the output differs between machines. Here the
//! colours are classes, and text is given room for a wide typeface.

mod alignment;
mod bars;
mod biplot;
mod chart;
mod components;
mod estimate;
mod figure;
mod frame;
mod image;
mod label;
mod loadings;
mod marker;
pub mod number;
mod plan;
mod scale;
mod scree;
mod style;
mod svg;
mod table;
mod text;
mod verdict;

pub use alignment::AlignmentChart;
pub use bars::BarChart;
pub use biplot::{Biplot, biplot};
pub use chart::{LineChart, Series};
pub use components::{ComponentRow, component_rows};
pub use estimate::{EstimateFigure, estimate_figures, loading_bars};
pub use figure::Figure;
pub use image::{ColourScale, ImageGrid, LoadingImage};
pub use loadings::LoadingTable;
pub use marker::{LineStyle, Marker};
pub use plan::expected_error;
pub use scale::{Axis, ScaleKind};
pub use scree::Scree;
pub use style::STYLESHEET;
pub use table::DataTable;
pub use verdict::ScreeComponent;
