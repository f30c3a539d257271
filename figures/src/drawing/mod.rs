//! Parts of a chart: scales, texts, marks and the SVG they make.

pub(crate) mod frame;
pub(crate) mod label;
pub(crate) mod marker;
pub(crate) mod scale;
pub(crate) mod style;
pub(crate) mod svg;
pub(crate) mod text;
