//! The figure of a plan.

use eigenveil_estimation::{floor::Spectrum, plan::max_error};

use crate::{Axis, LineChart, Series};

/// The expected error against the number of participants, for a population with this spectrum.
pub fn expected_error(
    title: &str,
    spectrum: &Spectrum,
    (from, to): (u64, u64),
    lines: Vec<Series>,
) -> LineChart {
    let largest = max_error(spectrum.dimension(), spectrum.rank());
    let mut chart = LineChart::new(
        title,
        Axis::log("participants n").between(from as f64, to as f64),
        // The axis starts at zero, so that differences are not exaggerated.
        Axis::linear("expected error ‖V̂V̂ᵀ − VVᵀ‖F").between(0.0, 1.05 * largest),
    );
    chart.series = lines;
    chart.reference_lines = vec![("nothing in common".to_owned(), largest)];
    chart
}
