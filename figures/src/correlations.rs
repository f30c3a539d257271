//! The largest correlations of an estimate that has the mean report.

use eigenveil_estimation::{
    format::with_thousands,
    statistics::{Correlation, MomentRequest, correlation_of, moment, norm_caveat},
};
use eigenveil_shared::estimate::Estimate;

use crate::DataTable;

/// The `top` largest correlations with their 95 % intervals; `None` if the estimate has no mean report.
pub fn largest_correlations(estimate: &Estimate, top: usize) -> Option<DataTable> {
    let request = MomentRequest {
        top,
        ..MomentRequest::default()
    };
    let (found, _) = moment(&request, estimate).ok()?;
    let norm = estimate.params.preprocessing().norm;
    let caption = format!(
        "Largest correlations, {} of {}, {} refused, at no further ε ({})",
        found.correlations.len(),
        with_thousands(found.pairs as u64),
        with_thousands(found.refused as u64),
        norm_caveat(norm)
    );
    let rows = found.correlations.iter().map(|pair| {
        let Correlation {
            value, low, high, ..
        } = pair.correlation;
        vec![
            format!("{} ~ {}", pair.feature, pair.with),
            format!("{value:.3}"),
            format!("{low:.3} to {high:.3}"),
        ]
    });
    let of = correlation_of(norm).replacen('c', "C", 1);
    let headers = ["Features", of.as_str(), "95 % interval"];
    Some(DataTable::new(&caption, headers, rows))
}
