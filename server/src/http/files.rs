//! Components as files: CSV for people and spreadsheets, `.npy` for NumPy.

use eigenveil_shared::{
    Result, error,
    estimate::{Estimate, may_be_formula},
};

/// One line per feature: its name, its loading on each component, and its mean if the study estimates it. Column names
/// include the component's verdict, or that of its group if it cannot be distinguished from other components.
pub(crate) fn csv(estimate: &Estimate) -> Result<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| {
        error!(
            StoreUnavailable,
            "the components could not be written as CSV ({error}); fetch them as JSON"
        )
    };
    let names = estimate.feature_names();
    let quotes = match names.iter().any(|name| may_be_formula(name)) {
        true => csv::QuoteStyle::NonNumeric,
        false => csv::QuoteStyle::Necessary,
    };
    let mut writer = csv::WriterBuilder::new()
        .quote_style(quotes)
        .from_writer(Vec::new());
    let header = estimate.components.iter().enumerate();
    let header = header.map(|(j, component)| {
        let verdict = match estimate.group_of(j) {
            Some(group) => format!("{} together {}", group.range(), group.verdict.as_str()),
            None => component.verdict.as_str().to_owned(),
        };
        format!("component_{} ({verdict})", j + 1)
    });
    let header = header.chain(estimate.mean.is_some().then(|| "mean".to_owned()));
    writer
        .write_record(std::iter::once("feature".to_owned()).chain(header))
        .map_err(|e| failed(&e))?;
    for (i, name) in names.iter().enumerate() {
        let columns = estimate.components.iter().map(|c| &c.loadings);
        let numbers = columns.chain(&estimate.mean);
        let numbers = numbers.map(|of| of.get(i).copied().unwrap_or_default().to_string());
        writer
            .write_record(std::iter::once(name.clone()).chain(numbers))
            .map_err(|e| failed(&e))?;
    }
    writer.into_inner().map_err(|e| failed(&e))
}

/// A k × p array of f64, one component a row as scikit-learn's `components_`.
pub(crate) fn npy(estimate: &Estimate) -> Vec<u8> {
    let (p, k) = (estimate.p, estimate.components.len());
    let components = estimate.components.iter();
    let loadings = components
        .flat_map(|c| (0..p).map(move |i| c.loadings.get(i).copied().unwrap_or_default()));
    eigenveil_tables::npy::write(k, p, loadings)
}
