//! Figures and tables of estimates, plans and experiments: the table of an estimate's components ([`component_rows`]),
//! its figures ([`estimate_figures`]), that of a plan ([`plan_chart`]), [numbers](number), and the underlying
//! charts. Every chart is a plain struct that is filled in and rendered to a string (most implement [`Figure`]).
//!
//! The strings contain no script, font or link, so they can be written to a file, served as an image or embedded in an
//! HTML page, also several per page: they use no `id`, and all contain the same [`STYLESHEET`], which affects nothing
//! outside `svg.ev-plot` (a page with a strict content security policy can allow it by its hash). Colours follow the
//! reader's light or dark preference. The palette is safe for colour-blind readers, and no difference is shown by
//! colour alone: series also differ by marker and dash, verdicts by shape, signs by direction.
//!
//! Long texts are wrapped; a no-break space (U+00A0, as in "ε = 2") prevents a break.
//!
//! Output is deterministic. Numbers that are not finite are omitted.
//!
//! Why no plotting library: `plotters` (0.3.7) writes colours into every element, so a figure cannot follow a dark
//! page, and measures text with the fonts of the machine it runs on, so the output differs between machines. Here the
//! colours are classes, and text is given room for a wide typeface.

mod charts;
mod components;
mod correlations;
mod drawing;
mod estimate;
mod figure;
pub mod number;
mod plan;
mod sites;
mod sweep;
mod table;
mod verdict;

pub use charts::alignment::AlignmentChart;
pub use charts::bars::BarChart;
pub use charts::biplot::{Biplot, biplot};
pub use charts::chart::{LineChart, Series};
pub use charts::heatmap::{CorrelatedPair, CorrelationMap};
pub use charts::image::{ColourScale, ImageGrid, LoadingImage};
pub use charts::loadings::LoadingTable;
pub use charts::report::{ReportPicture, ReportedRow};
pub use charts::scree::Scree;
pub use components::{ComponentRow, component_rows};
pub use correlations::{correlation_map, largest_correlations};
pub use drawing::marker::{LineStyle, Marker};
pub use drawing::scale::{Axis, ScaleKind};
pub use drawing::style::STYLESHEET;
pub use estimate::{EstimateFigure, estimate_figures, loading_bars};
pub use figure::Figure;
pub use plan::{expected_error, plan_chart};
pub use sites::{interval_table, site_table};
pub use sweep::sweep_chart;
pub use table::DataTable;
pub use verdict::ScreeComponent;
