//! The regression of one feature on others, from their covariance.

use nalgebra::{Cholesky, DMatrix, DVector};
use serde::Serialize;

use super::{
    MIN_EIGENVALUE_IN_STANDARD_ERRORS, MomentEstimate, Refusal, Z_95,
    estimate::{ALONG, BETWEEN},
};
use crate::linalg::{submatrix, symmetric_eigen};

/// A coefficient, in units of the prepared rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coefficient {
    /// The predictor.
    #[serde(skip)]
    pub feature: usize,
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The best linear prediction of one feature by others.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// One coefficient for each predictor, in the order asked for.
    pub coefficients: Vec<Coefficient>,
    /// Least eigenvalue of the predictors' covariance, before the projection.
    pub least_eigenvalue: f64,
    /// Its standard error.
    pub least_eigenvalue_standard_error: f64,
}

impl MomentEstimate {
    /// The regression of feature `y` on the features `on`, β = C_XX⁻¹C_Xy: from the projected moment, with the
    /// unprojected one's standard errors.
    ///
    /// # Errors
    /// [`Refusal::NoVariances`] or [`Refusal::Dependent`], also for a predictor that is there twice.
    ///
    /// # Panics
    /// If an index is not below p, or `on` is empty or holds `y`.
    pub fn regression(&self, y: usize, on: &[usize]) -> Result<Regression, Refusal> {
        let projected = self.projected().ok_or(Refusal::NoVariances)?;
        self.regression_in(projected, y, on)
    }

    /// The [`regression`](Self::regression) by the unprojected moment.
    pub fn raw_regression(&self, y: usize, on: &[usize]) -> Result<Regression, Refusal> {
        self.regression_in(self.raw(), y, on)
    }

    fn regression_in(
        &self,
        moment: &DMatrix<f64>,
        y: usize,
        on: &[usize],
    ) -> Result<Regression, Refusal> {
        assert!(!on.is_empty() && !on.contains(&y), "y on other features");
        if self.projected().is_none() {
            return Err(Refusal::NoVariances);
        }
        let among = |values: &DVector<f64>| -> Vec<(usize, f64)> {
            on.iter().copied().zip(values.iter().copied()).collect()
        };
        let Ok(eigen) = symmetric_eigen(&submatrix(self.raw(), on)) else {
            return Err(Refusal::Dependent {
                eigenvalue: f64::NAN,
                standard_error: f64::NAN,
            });
        };
        let last = on.len() - 1;
        let eigenvalue = eigen.values[last];
        let direction = among(&eigen.vectors.column(last).into_owned());
        let standard_error = self.plane(&direction, &[]).standard_error(ALONG);
        let dependent = Refusal::Dependent {
            eigenvalue,
            standard_error,
        };
        if eigenvalue < MIN_EIGENVALUE_IN_STANDARD_ERRORS * standard_error {
            return Err(dependent);
        }
        let predictors = Cholesky::new(submatrix(moment, on)).ok_or(dependent)?;
        let with_y = DVector::from_iterator(on.len(), on.iter().map(|&x| moment[(x, y)]));
        let beta = predictors.solve(&with_y);
        let inverse = predictors.inverse();
        // dβ = C_XX⁻¹(dC_Xy − dC_XX·β): between a row of the inverse and the residual's weights.
        let mut residual = among(&-&beta);
        residual.push((y, 1.0));
        let coefficients = on.iter().enumerate().map(|(k, &feature)| {
            let row = among(&inverse.column(k).into_owned());
            let standard_error = self.plane(&row, &residual).standard_error(BETWEEN);
            let value = beta[k];
            Coefficient {
                feature,
                value,
                standard_error,
                low: value - Z_95 * standard_error,
                high: value + Z_95 * standard_error,
            }
        });
        Ok(Regression {
            coefficients: coefficients.collect(),
            least_eigenvalue: eigenvalue,
            least_eigenvalue_standard_error: standard_error,
        })
    }
}
