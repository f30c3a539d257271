//! Scores of local rows.

use eigenveil_shared::estimate::Estimate;

use crate::{error::Result, rows::RowTable};

/// Scores of every row on every component, around the estimated mean if there is one.
/// Errors of preparing a row: they name the row, never a value.
pub(crate) fn from_rows(estimate: &Estimate, table: &RowTable) -> Result<Vec<Vec<f64>>> {
    let preprocessor = estimate.params.preprocessor();
    let of_row = |index: usize| {
        let row = preprocessor.prepare_features_nth(index, &table.row(index))?;
        let mut centred = row.as_slice().to_vec();
        for (x, mean) in centred.iter_mut().zip(estimate.mean.iter().flatten()) {
            *x -= mean;
        }
        let score = |loadings: &[f64]| loadings.iter().zip(&centred).map(|(v, x)| v * x).sum();
        let components = estimate.components.iter();
        Ok(components
            .map(|component| score(&component.loadings))
            .collect())
    };
    (0..table.len()).map(of_row).collect()
}
