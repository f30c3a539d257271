//! Charts: each is a plain struct that is filled in and rendered.

pub(crate) mod alignment;
pub(crate) mod bars;
pub(crate) mod biplot;
pub(crate) mod chart;
pub(crate) mod heatmap;
pub(crate) mod image;
pub(crate) mod loadings;
pub(crate) mod report;
pub(crate) mod scree;
