//! The largest correlations of an estimate that has the mean report.

use eigenveil_estimation::{
    format::with_thousands,
    statistics::{Correlation, MomentRequest, Refusal, correlation_of, moment, norm_caveat},
};
use eigenveil_shared::estimate::Estimate;

use crate::{CorrelationMap, DataTable, figure::titled};

/// Maximum number of features of a map.
const MAX_MAPPED: usize = 24;

/// The `top` largest correlations with their 95 % intervals; `None` if the estimate has no mean report.
pub fn largest_correlations(estimate: &Estimate, top: usize) -> Option<DataTable> {
    let request = MomentRequest {
        top,
        ..MomentRequest::default()
    };
    let (found, _) = moment(&request, estimate).ok()?;
    let norm = estimate.params.preprocessing().ok()?.norm;
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
    let correlation_header = correlation_of(norm).replacen('c', "C", 1);
    let headers = ["Features", correlation_header.as_str(), "95 % interval"];
    Some(DataTable::new(&caption, headers, rows))
}

/// The map of these correlations, those of an estimate's pairs of features; of many features those that have the largest
/// ones that are surely not 0.
pub fn correlation_map(
    estimate: &Estimate,
    correlations: &[(usize, usize, Result<Correlation, Refusal>)],
) -> CorrelationMap {
    let names = estimate.feature_names();
    let mut largest = vec![0.0_f64; names.len()];
    for (first, second, found) in correlations {
        let sure = found.ok().filter(|c| c.low > 0.0 || c.high < 0.0);
        for feature in [*first, *second] {
            largest[feature] = largest[feature].max(sure.map_or(0.0, |c| c.value.abs()));
        }
    }
    let mut features: Vec<usize> = (0..names.len()).collect();
    features.sort_by(|&a, &b| largest[b].total_cmp(&largest[a]));
    features.truncate(MAX_MAPPED);
    features.sort_unstable();
    let index_of = |feature: &usize| features.binary_search(feature).ok();
    let constants = estimate.params.preprocessing();
    let pairs = correlations.iter().filter_map(|(first, second, found)| {
        let numbers = found.ok().map(|c| [c.value, c.low, c.high]);
        Some((index_of(first)?, index_of(second)?, numbers))
    });
    CorrelationMap {
        title: titled("Correlations", estimate),
        subtitle: constants.ok().map(|constants| norm_caveat(constants.norm)),
        pairs: pairs.collect(),
        left_out: names.len() - features.len(),
        features: features
            .iter()
            .map(|&feature| names[feature].clone())
            .collect(),
    }
}

/// The map of an estimate's correlations; `None` if it has no mean report.
pub(crate) fn map_of(estimate: &Estimate) -> Option<CorrelationMap> {
    let (_, tables) = moment(&MomentRequest::default(), estimate).ok()?;
    Some(correlation_map(estimate, &tables.correlations))
}
