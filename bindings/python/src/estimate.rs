//! An estimate: its document, and what follows from it.

use std::sync::Arc;

use eigenveil_estimation::statistics::{Around, MomentEstimate};
use eigenveil_figures::{biplot, component_rows, estimate_figures};
use eigenveil_shared::{estimate::Estimate, preprocess::Row};
use nalgebra::DMatrix;
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::{
    error::{Failure, Result},
    rows::transposed,
    wait::{briefly, patiently},
};

#[pyclass(frozen, module = "eigenveil._core", name = "Estimate")]
pub(crate) struct PyEstimate(pub(crate) Arc<Estimate>);

impl PyEstimate {
    pub(crate) fn new(estimate: Estimate) -> Self {
        Self(Arc::new(estimate))
    }
}

/// Two features, and why there is no value.
type Refused = (usize, usize, String);

/// p × p: value, standard error, lower and upper end of the interval.
type Intervals<'py> = [Bound<'py, PyArray2<f64>>; 4];

/// A matrix as a numpy array.
pub(crate) fn array<'py>(py: Python<'py>, matrix: &DMatrix<f64>) -> Bound<'py, PyArray2<f64>> {
    let (rows, columns) = matrix.shape();
    let flat: Vec<Vec<f64>> = (0..rows)
        .map(|i| (0..columns).map(|j| matrix[(i, j)]).collect())
        .collect();
    // All rows have one length.
    PyArray2::from_vec2(py, &flat).unwrap_or_else(|_| PyArray2::zeros(py, [rows, columns], false))
}

/// The rows, which are the columns of `table`.
fn rows(table: &DMatrix<f64>) -> impl Iterator<Item = Row> {
    let columns = table.column_iter();
    columns.map(|row| Row::new(row.iter().copied().collect()))
}

/// The rows (columns of `table`) as the study prepares them: p × n.
fn prepared(estimate: &Estimate, table: &DMatrix<f64>) -> Result<DMatrix<f64>> {
    let preprocessor = estimate.params.preprocessor();
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
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        briefly(py, || {
            let estimate: Estimate = serde_json::from_str(text)?;
            match estimate.is_consistent() {
                true => Ok(Self::new(estimate)),
                false => Err(Failure::input(format!(
                    "the estimate contradicts itself: it says p = {} and k = {}, and its parts have other sizes; fetch it again",
                    estimate.p, estimate.k
                ))),
            }
        })
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        briefly(py, || Ok(serde_json::to_string(&*self.0)?))
    }

    /// JSON of what the document's readers work out: names, variances, alignments, and the table for people.
    fn derived(&self, py: Python<'_>) -> PyResult<String> {
        briefly(py, || {
            let estimate = &self.0;
            let of = |value: &dyn Fn(&eigenveil_shared::estimate::Component) -> Option<f64>| {
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
            Ok(json!({
                "names": estimate.feature_names(),
                "named": estimate.params.feature_names().is_some(),
                "variance": of(&|c| estimate.variance(c)),
                "alignment": of(&|c| Some(c.alignment())),
                "alignment_se": of(&|c| c.alignment_se()),
                "group": (0..estimate.k).map(group).collect::<Vec<_>>(),
                "table": table.collect::<Vec<_>>(),
            })
            .to_string())
        })
    }

    /// n × k.
    fn transform<'py>(
        &self,
        py: Python<'py>,
        table: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let table = transposed(&table);
        let estimate = Arc::clone(&self.0);
        let k = estimate.k;
        let scores = patiently(py, None, move |_| Ok(estimate.scores(rows(&table))?))?;
        let scores = DMatrix::from_fn(scores.len(), k, |i, j| scores[i][j]);
        Ok(array(py, &scores))
    }

    /// n × p.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        table: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let table = transposed(&table);
        let estimate = Arc::clone(&self.0);
        let rows = patiently(py, None, move |_| prepared(&estimate, &table))?;
        Ok(array(py, &rows.transpose()))
    }

    /// Covariance (or second moment): the nearest one that a population can have, the unbiased one, standard errors
    /// (p × p), and whether it is around the mean.
    fn covariance<'py>(&self, py: Python<'py>) -> PyResult<([Bound<'py, PyArray2<f64>>; 3], bool)> {
        let estimate = Arc::clone(&self.0);
        let (projected, raw, errors, around) = patiently(py, None, move |_| {
            let moment = MomentEstimate::of_document(&estimate)?;
            let raw = moment.raw().clone();
            let projected = moment.projected().unwrap_or(&raw).clone();
            let around = moment.around() == Around::EstimatedMean;
            Ok((projected, raw, moment.standard_errors(), around))
        })?;
        Ok(([&projected, &raw, &errors].map(|m| array(py, m)), around))
    }

    /// All correlations with their 95 % intervals, NaN where one is refused, and the reasons.
    fn correlations<'py>(&self, py: Python<'py>) -> PyResult<(Intervals<'py>, Vec<Refused>)> {
        let estimate = Arc::clone(&self.0);
        let (numbers, refused) = patiently(py, None, move |_| {
            let moment = MomentEstimate::of_document(&estimate)?;
            let (p, names) = (moment.dimension(), estimate.feature_names());
            let mut numbers =
                std::array::from_fn::<_, 4, _>(|_| DMatrix::from_element(p, p, f64::NAN));
            let mut refused = Vec::new();
            for (part, own) in numbers.iter_mut().zip([1.0, 0.0, 1.0, 1.0]) {
                part.fill_diagonal(own);
            }
            for (i, j, found) in moment.correlations() {
                match found {
                    Ok(c) => {
                        let found = [c.value, c.standard_error, c.low, c.high];
                        for (part, value) in numbers.iter_mut().zip(found) {
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

    /// Coefficients with standard errors and 95 % intervals, one row a predictor, in units of the prepared rows.
    fn regress(
        &self,
        py: Python<'_>,
        y: usize,
        on: Vec<usize>,
    ) -> PyResult<Vec<(f64, f64, f64, f64)>> {
        briefly(py, || {
            let moment = MomentEstimate::of_document(&self.0)?;
            if on.is_empty()
                || on.contains(&y)
                || y >= moment.dimension()
                || on.iter().any(|x| *x >= moment.dimension())
            {
                return Err(Failure::input("regress one feature on one or more others"));
            }
            let found = moment.regression(y, &on).map_err(|refusal| {
                let names = self.0.feature_names();
                eigenveil_shared::Error::estimate_failed(refusal.in_words(&names))
            })?;
            let each = found.coefficients.iter();
            Ok(each
                .map(|c| (c.value, c.standard_error, c.low, c.high))
                .collect())
        })
    }

    /// The figures: file name, alternative text, SVG.
    fn figures(&self, py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
        briefly(py, || {
            let figures = estimate_figures(&self.0, None);
            let each = figures.iter();
            Ok(each
                .map(|own| {
                    (
                        own.file.to_owned(),
                        own.what.to_owned(),
                        own.figure.to_svg(),
                    )
                })
                .collect())
        })
    }

    /// The biplot of these scores (n × k) over two components, from 0.
    fn biplot(
        &self,
        py: Python<'_>,
        scores: PyReadonlyArray2<'_, f64>,
        axes: (usize, usize),
        labels: Option<Vec<String>>,
    ) -> PyResult<String> {
        let scores: Vec<Vec<f64>> = scores
            .as_array()
            .rows()
            .into_iter()
            .map(|row| row.to_vec())
            .collect();
        briefly(py, || {
            if labels
                .as_ref()
                .is_some_and(|labels| labels.len() != scores.len())
            {
                return Err(Failure::input("give one label for each row"));
            }
            let drawn = biplot(&self.0, axes, &scores, labels.as_deref());
            Ok(drawn.map_err(Failure::input)?.to_svg())
        })
    }
}
