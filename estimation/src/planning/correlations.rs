//! The correlations that a study of rows like these would show, beside those of the values.
//!
//! `normalize` divides each row by its length, so that correlations are those of directions, and `clip` shortens rows:
//! either may move a correlation by more than the noise does, however many take part.

use eigenveil_shared::{
    Result, mechanism::NoiseModel, packed::PackedSymmetric, study::StudyParams,
};
use nalgebra::DMatrix;
use serde::Serialize;

use super::{
    columns::ColumnStatistics,
    sample::{PublicRows, Sample},
};
use crate::{
    linalg::{GramSum, packed_to_dense},
    statistics::MomentEstimate,
};

/// Largest number of features whose correlations are looked at.
const MAX_FEATURES: usize = 200;

/// Correlations to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CorrelationOutlook {
    /// Pairs of features.
    pub pairs: usize,
    /// Pairs whose correlation the reports would show.
    pub given: usize,
    /// Median standard error of these; `null` if there are none.
    pub standard_error: Option<f64>,
    /// The correlation that is the furthest from that of the values, without noise.
    pub furthest: Option<MovedCorrelation>,
}

/// A correlation of prepared rows beside that of the values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MovedCorrelation {
    /// A feature.
    pub feature: String,
    /// Another one.
    pub with: String,
    /// Their correlation in prepared rows.
    pub value: f64,
    /// Their correlation in the values.
    pub of_values: f64,
}

impl MovedCorrelation {
    /// |`value` − `of_values`|.
    pub fn distance(&self) -> f64 {
        (self.value - self.of_values).abs()
    }
}

/// Correlations of the values, p × p; `None` where cells are missing or features are many.
pub(super) fn of_values(
    rows: &PublicRows<'_>,
    statistics: &[ColumnStatistics],
) -> Option<DMatrix<f64>> {
    let missing = statistics.iter().any(|column| column.observed < 1.0);
    if missing || statistics.len() > MAX_FEATURES {
        return None;
    }
    let mut sum = GramSum::<f64>::new(statistics.len());
    let people = rows.people() as f64;
    for (index, weight) in rows.weights().into_iter().enumerate() {
        let row = (rows.table.row)(index);
        let columns = row.values().iter().zip(statistics);
        let scores = columns.map(|(x, column)| match column.deviation > 0.0 {
            true => (x - column.mean) / column.deviation,
            false => 0.0,
        });
        sum.add(&scores.collect::<Vec<_>>(), weight / people);
    }
    Some(packed_to_dense(&sum.finish()))
}

/// The correlations to expect of `n` such participants in a study, `None` where it has no variances at all.
pub(super) fn outlook(
    sample: &Sample,
    params: &StudyParams,
    of_values: &DMatrix<f64>,
    n: u64,
) -> Result<Option<CorrelationOutlook>> {
    let moment = MomentEstimate::new(&mean_report(sample, params), n, params)?;
    if moment.projected().is_none() {
        return Ok(None);
    }
    let names = params.feature_names().unwrap_or_default();
    let (mut pairs, mut errors) = (0, Vec::new());
    let mut furthest: Option<MovedCorrelation> = None;
    for (i, j, correlation) in moment.correlations() {
        pairs += 1;
        errors.extend(correlation.ok().map(|found| found.standard_error));
        let raw = moment.raw();
        let value = raw[(i, j)] / (raw[(i, i)] * raw[(j, j)]).sqrt();
        let moved = MovedCorrelation {
            feature: names[i].clone(),
            with: names[j].clone(),
            value,
            of_values: of_values[(i, j)],
        };
        // Columns of equal values have no correlation.
        let least = furthest.as_ref().map_or(0.0, MovedCorrelation::distance);
        if moved.distance() > least {
            furthest = Some(moved);
        }
    }
    errors.sort_by(f64::total_cmp);
    Ok(Some(CorrelationOutlook {
        pairs,
        given: errors.len(),
        standard_error: errors.get(errors.len() / 2).copied(),
        furthest,
    }))
}

/// The mean decoded report without noise: `double-cap` lacks the trace.
fn mean_report(sample: &Sample, params: &StudyParams) -> PackedSymmetric {
    let dimension = params.report_dimension();
    let mut sum = GramSum::<f64>::new(dimension);
    let mut squared = 0.0;
    for (row, share) in sample.reported(params) {
        squared += share * row.iter().map(|x| x * x).sum::<f64>();
        sum.add(&row, share);
    }
    let mut report = sum.finish();
    if matches!(params.noise_model(), NoiseModel::DoubleCap { .. }) {
        let mut at = 0;
        for i in 0..dimension {
            report.as_mut_slice()[at] -= squared / dimension as f64;
            at += dimension - i;
        }
    }
    report
}
