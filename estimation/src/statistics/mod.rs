//! The second moment as the result: its entries, correlations and regressions, each with the error that noise and
//! sampling leave in it (the formulas are in the comments of each file).
//!
//! Everything here is computed from the mean decoded report and the number of reports: post-processing, at no further
//! ε. Values are in units of the prepared rows. What the reports cannot hold is refused ([`Refusal`]).

mod correlation;
mod estimate;
mod law;
mod moment;
mod projection;
mod refusal;
mod regression;

pub use correlation::Correlation;
pub(crate) use estimate::NO_MOMENT;
pub use estimate::{Around, MomentEstimate};
pub use moment::{
    MomentAnswer, MomentRequest, MomentTables, NamedCoefficient, NamedCorrelation, NamedRegression,
    correlation_of, moment, norm_caveat, regress,
};
pub use projection::nearest_with_trace;
pub use refusal::Refusal;
pub use regression::{Coefficient, Regression};

/// Half-width of a 95 % interval in standard errors.
pub const Z_95: f64 = 1.959_963_984_540_054;
/// A correlation is refused if one of its variances is below this many of its standard errors.
pub const MIN_VARIANCE_IN_STANDARD_ERRORS: f64 = 2.0;
/// A regression is refused if the least eigenvalue of the covariance of its predictors is below this many of its
/// standard errors.
pub const MIN_EIGENVALUE_IN_STANDARD_ERRORS: f64 = 3.0;

#[cfg(test)]
mod tests;
