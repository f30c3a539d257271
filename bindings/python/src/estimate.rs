//! An estimate: its document, and results derived from it.

use std::sync::Arc;

use eigenveil_estimation::{
    planning::error_in_words,
    sample, sites_in_sentences,
    statistics::{MomentEstimate, regress},
};
use eigenveil_figures::{DataTable, component_rows, estimate_figures, interval_table, site_table};
use eigenveil_shared::{estimate::Estimate, preprocess::Row};
use nalgebra::DMatrix;
use numpy::{PyArray2, PyReadonlyArray2, ndarray::Array2};
use pyo3::prelude::*;
use serde_json::json;

use crate::{
    error::{Failure, Result},
    rows::transposed,
    wait::{run_detached, run_interruptible},
};

#[pyclass(frozen, module = "eigenveil._core", name = "Estimate")]
pub(crate) struct PyEstimate(pub(crate) Arc<Estimate>);

impl PyEstimate {
    pub(crate) fn new(estimate: Estimate) -> Self {
        Self(Arc::new(estimate))
    }
}

/// Two features, and the reason why there is no value.
type Refused = (usize, usize, String);

/// Value, standard error, lower and upper end of the interval, each p × p.
type Intervals<'py> = [Bound<'py, PyArray2<f64>>; 4];

/// A matrix as a numpy array.
pub(crate) fn array<'py>(py: Python<'py>, matrix: &DMatrix<f64>) -> Bound<'py, PyArray2<f64>> {
    let element = |index| matrix[index];
    PyArray2::from_owned_array(py, Array2::from_shape_fn(matrix.shape(), element))
}

/// The rows, which are the columns of `table`.
fn rows(table: &DMatrix<f64>) -> impl Iterator<Item = Row> {
    let columns = table.column_iter();
    columns.map(|row| Row::new(row.iter().copied().collect()))
}

/// The rows (columns of `table`) as the study prepares them: p × n.
fn prepared(estimate: &Estimate, table: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let preprocessor = estimate.params.preprocessor()?;
    let mut out = DMatrix::zeros(estimate.p, table.ncols());
    for (index, row) in rows(table).enumerate() {
        let row = preprocessor.prepare_features_nth(index, &row)?;
        out.column_mut(index).copy_from_slice(row.as_slice());
    }
    Ok(out)
}

#[pymethods]
impl PyEstimate {
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &[u8]) -> PyResult<Self> {
        run_detached(py, || {
            let estimate: Estimate = serde_json::from_slice(text)?;
            match estimate.is_consistent() {
                true => Ok(Self::new(estimate)),
                false => Err(Failure::input(format!(
                    "the estimate is inconsistent: it states p = {} and k = {}, but its parts have other sizes; fetch it again",
                    estimate.p, estimate.k
                ))),
            }
        })
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        run_detached(py, || Ok(serde_json::to_string(&*self.0)?))
    }

    /// JSON of values derived from the document: names, variances, alignments, and the table for display.
    fn derived(&self, py: Python<'_>) -> PyResult<String> {
        run_detached(py, || {
            let estimate = &self.0;
            let column = |value: &dyn Fn(&eigenveil_shared::estimate::Component) -> Option<f64>| {
                estimate.components.iter().map(value).collect::<Vec<_>>()
            };
            let table = component_rows(estimate).map(|row| {
                [
                    row.component,
                    row.variance,
                    row.explained,
                    row.alignment,
                    row.direction,
                    row.verdict,
                ]
            });
            let group = |j| estimate.group_of(j).map(|group| (group.first, group.last));
            let site_tables = [interval_table(estimate), site_table(estimate)];
            let site_tables = site_tables.iter().flatten().map(DataTable::to_html);
            Ok(json!({
                "names": estimate.feature_names(),
                "named": estimate.params.feature_names().is_some(),
                "variance": column(&|c| Some(c.variance)),
                "variance_se": column(&|c| estimate.variance_error(c)),
                "variances_are_lower_bounds": estimate.variances_are_lower_bounds(),
                "alignment": column(&|c| c.alignment),
                "alignment_se": column(&|c| c.alignment_se),
                "group": (0..estimate.k).map(group).collect::<Vec<_>>(),
                "count": estimate.count_in_sentences(),
                "error": match error_in_words(estimate, |x| format!("{x:.3}")) {
                    Ok(error) => format!("expected error {error}"),
                    Err(why) => format!("error not known: {why}"),
                },
                "table": table.collect::<Vec<_>>(),
                "sample": sample(estimate),
                "sites": sites_in_sentences(estimate),
                "site_tables": site_tables.collect::<Vec<_>>(),
            })
            .to_string())
        })
    }

    /// Scores of the rows, n × k.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        table: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let table = transposed(&table);
        let estimate = Arc::clone(&self.0);
        let k = estimate.k;
        let scores = run_interruptible(py, None, move |_| Ok(estimate.scores(rows(&table))?))?;
        let scores = DMatrix::from_fn(scores.len(), k, |i, j| scores[i][j]);
        Ok(array(py, &scores))
    }

    /// The prepared rows, n × p.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        table: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let table = transposed(&table);
        let estimate = Arc::clone(&self.0);
        let rows = run_interruptible(py, None, move |_| prepared(&estimate, &table))?;
        Ok(array(py, &rows.transpose()))
    }

    /// Covariance (or second moment): the projected estimate, the unbiased estimate and the standard errors, each p ×
    /// p.
    fn covariance<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyArray2<f64>>; 3]> {
        let estimate = Arc::clone(&self.0);
        let matrices = run_interruptible(py, None, move |_| {
            let moment = MomentEstimate::of_document(&estimate)?;
            let raw = moment.raw().clone();
            let projected = moment.projected().unwrap_or(&raw).clone();
            Ok([projected, raw, moment.standard_errors()])
        })?;
        Ok(matrices.each_ref().map(|part| array(py, part)))
    }

    /// All correlations with their 95 % intervals, NaN where one is refused, and the reasons for refusals.
    fn correlations<'py>(&self, py: Python<'py>) -> PyResult<(Intervals<'py>, Vec<Refused>)> {
        let estimate = Arc::clone(&self.0);
        let (numbers, refused) = run_interruptible(py, None, move |_| {
            let moment = MomentEstimate::of_document(&estimate)?;
            let (p, names) = (moment.dimension(), estimate.feature_names());
            let mut numbers =
                std::array::from_fn::<_, 4, _>(|_| DMatrix::from_element(p, p, f64::NAN));
            let mut refused = Vec::new();
            for (part, diagonal) in numbers.iter_mut().zip([1.0, 0.0, 1.0, 1.0]) {
                part.fill_diagonal(diagonal);
            }
            for (i, j, result) in moment.correlations() {
                match result {
                    Ok(c) => {
                        let values = [c.value, c.standard_error, c.low, c.high];
                        for (part, value) in numbers.iter_mut().zip(values) {
                            part[(i, j)] = value;
                            part[(j, i)] = value;
                        }
                    }
                    Err(refusal) => refused.push((i, j, refusal.in_words(&names))),
                }
            }
            Ok((numbers, refused))
        })?;
        Ok((numbers.each_ref().map(|part| array(py, part)), refused))
    }

    /// Coefficients with standard errors and 95 % intervals, one row per predictor, in units of the prepared rows.
    fn regress(
        &self,
        py: Python<'_>,
        y: String,
        predictors: Vec<String>,
    ) -> PyResult<Vec<(f64, f64, f64, f64)>> {
        run_detached(py, || {
            let regression = regress(&self.0, &y, &predictors)?;
            let coefficients = regression.coefficients.iter();
            Ok(coefficients
                .map(|c| (c.value, c.standard_error, c.low, c.high))
                .collect())
        })
    }

    /// The figures: file name, SVG.
    fn figures(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, String)>> {
        run_detached(py, || {
            let figures = estimate_figures(&self.0, None);
            let figures = figures.iter();
            Ok(figures
                .map(|figure| (figure.file, figure.figure.to_svg()))
                .collect())
        })
    }
}
