//! The largest correlations of an estimate that has the mean report.

use eigenveil_estimation::{
    format::with_thousands,
    statistics::{Correlation, MomentRequest, moment},
};
use eigenveil_shared::{estimate::Estimate, preprocess::Norm};

use crate::DataTable;

/// Explains what the second moment of rows bounded this way describes; a sentence without the final stop.
pub fn norm_caveat(norm: Norm) -> String {
    match norm {
        Norm::Normalize => "normalize: these numbers describe directions only; every participant counts equally and row lengths are discarded".to_owned(),
        Norm::Clip { radius } => format!("clip: rows longer than {radius} count with that length"),
        Norm::Require { radius } => format!("require: rows longer than {radius} count as zero rows"),
    }
}

/// The `top` largest correlations with their 95 % intervals; `None` if the estimate has no mean report.
pub fn largest_correlations(estimate: &Estimate, top: usize) -> Option<DataTable> {
    let request = MomentRequest {
        top,
        ..MomentRequest::default()
    };
    let (found, _) = moment(&request, estimate).ok()?;
    let caption = format!(
        "Largest correlations, {} of {}, {} refused, at no further ε ({})",
        found.correlations.len(),
        with_thousands(found.pairs as u64),
        with_thousands(found.refused as u64),
        norm_caveat(estimate.params.preprocessing().norm)
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
    let headers = ["Features", "Correlation", "95 % interval"];
    Some(DataTable::new(&caption, headers, rows))
}
