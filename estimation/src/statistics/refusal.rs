//! Why a statistic is not given.

use super::{MIN_EIGENVALUE_IN_STANDARD_ERRORS, MIN_VARIANCE_IN_STANDARD_ERRORS};

/// A number that the reports cannot give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// `double-cap` reports show no trace, and the study neither normalises rows nor centres privately.
    NoVariances,
    /// A variance is not clearly above zero.
    SmallVariance {
        /// The feature.
        feature: usize,
        /// Its estimated variance, before the projection.
        variance: f64,
        /// The variance's standard error.
        standard_error: f64,
    },
    /// The interval holds every correlation there is.
    OpenInterval,
    /// Predictors that the reports cannot tell from linearly dependent ones.
    Dependent {
        /// Least eigenvalue of their covariance, before the projection.
        eigenvalue: f64,
        /// Its standard error.
        standard_error: f64,
    },
}

impl Refusal {
    /// The reason and the way out, in one sentence.
    pub fn in_words(&self, features: &[String]) -> String {
        match *self {
            Refusal::NoVariances => {
                "the reports of double-cap show no variances under clip or require without private centring; create a study with normalize, or with centring".to_owned()
            }
            Refusal::SmallVariance {
                feature,
                variance,
                standard_error,
            } => format!(
                "the variance of {} is {variance:.2e} with a standard error of {standard_error:.2e}; a correlation needs {MIN_VARIANCE_IN_STANDARD_ERRORS} standard errors: it takes more participants",
                features.get(feature).map_or("a feature", String::as_str)
            ),
            Refusal::OpenInterval => {
                "the interval holds every correlation from -1 to 1; it takes more participants"
                    .to_owned()
            }
            Refusal::Dependent {
                eigenvalue,
                standard_error,
            } => format!(
                "the least eigenvalue of the predictors' covariance is {eigenvalue:.2e} with a standard error of {standard_error:.2e}; a regression needs {MIN_EIGENVALUE_IN_STANDARD_ERRORS} standard errors: leave out predictors that depend on each other, or find more participants"
            ),
        }
    }
}
