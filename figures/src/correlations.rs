//! The largest correlations of an estimate that has the mean report.

use eigenveil_estimation::{format::with_thousands, statistics::MomentEstimate};
use eigenveil_shared::{estimate::Estimate, preprocess::Norm};

use crate::DataTable;

/// What second moments of rows that are bounded so are about, in a sentence without its full stop.
pub fn moment_subject(norm: Norm) -> String {
    match norm {
        Norm::Normalize => "normalize: all of this is about directions of rows; each participant counts the same, and lengths are gone".to_owned(),
        Norm::Clip { radius } => format!("clip: rows longer than {radius} count with that length"),
        Norm::Require { radius } => format!("require: rows longer than {radius} count as zero rows"),
    }
}

/// The `top` largest correlations with their 95 % intervals; `None` if the estimate has no mean report.
pub fn largest_correlations(estimate: &Estimate, top: usize) -> Option<DataTable> {
    let moment = MomentEstimate::of_document(estimate).ok()?;
    let names = estimate.feature_names();
    let given = moment.correlations();
    let mut given: Vec<_> = given
        .filter_map(|(i, j, found)| Some((i, j, found.ok()?)))
        .collect();
    given.sort_by(|(.., a), (.., b)| b.value.abs().total_cmp(&a.value.abs()));
    let p = moment.dimension();
    let pairs = (p * p.saturating_sub(1) / 2) as u64;
    let caption = format!(
        "Largest correlations, {} of {}, {} refused, at no further ε ({})",
        top.min(given.len()),
        with_thousands(pairs),
        with_thousands(pairs - given.len() as u64),
        moment_subject(estimate.params.preprocessing().norm)
    );
    let rows = given.iter().take(top).map(|(i, j, found)| {
        let [value, low, high] = [found.value, found.low, found.high].map(|x| format!("{x:.3}"));
        vec![
            format!("{} ~ {}", names[*i], names[*j]),
            value,
            format!("{low} to {high}"),
        ]
    });
    let headers = ["Features", "Correlation", "95 % interval"];
    Some(DataTable::new(&caption, headers, rows))
}
