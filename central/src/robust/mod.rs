//! Robust PCA of Maunu, Yu & Lerman: the subspace most rows lie near, however the others lie.
//!
//! * [`Glad`]: gradient descent on `(1/N)Σ‖(I − VVᵀ)x‖` over the Grassmannian: `ggd`, `nggd`, `sggd`, `nsggd`,
//!   `dp-ggd`, `dp-sggd`.
//! * [`Reaper`]: its convex relaxation `(1/N)Σ‖(I − P)x‖` over the Fantope: `dp-gd-reap`, `dp-sgd-reap`,
//!   `dp-md-reap`, `dp-smd-reap`.
//! * [`glad_objective`], [`reaper_objective`], [`polar`], [`project_entropy`]: the parts.
//!
//! Rows are spherised: each is divided by its length, and a zero row stays zero. That is a map of one row at a time, so
//! neighbours stay neighbours.

mod calibration;
mod glad;
mod reaper;
mod sampling;
mod start;
mod table;

pub use crate::polar::polar;
pub use calibration::Calibrated;
pub use glad::{Glad, GladForm};
pub use reaper::{AverageIterate, Reaper, ReaperForm, project_entropy};
pub use start::Start;

pub(crate) use {
    glad::{DP_GGD, DP_SGGD, GGD, NGGD, NSGGD, SGGD},
    reaper::{GD, MD, SGD, SMD},
};

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::Rows;

/// `(1/N)Σ‖(I − VVᵀ)x‖` over the spherised rows, V orthonormal `p × k`.
///
/// ```
/// use eigenveil_central::{Rows, robust::glad_objective};
/// use eigenveil_shared::preprocess::{Norm, Preprocessing, Row};
/// use nalgebra::dmatrix;
/// let preprocessing = Preprocessing { dimension: 2, features: None, norm: Norm::Normalize, centring: None };
/// let preprocessor = preprocessing.preprocessor()?;
/// let rows = Rows::collect([[3.0, 0.0], [0.0, 1.0]].map(|x| preprocessor.prepare_features(&Row::new(x.to_vec()))))?;
/// assert_eq!(glad_objective(&rows, &dmatrix![1.0; 0.0]), 0.5);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Panics
/// If V has another number of rows than p.
pub fn glad_objective(rows: &Rows, subspace: &DMatrix<f64>) -> f64 {
    glad::objective(&table::Table::spherised(rows), subspace)
}

/// `(1/N)Σ‖(I − P)x‖` over the spherised rows, P `p × p`.
///
/// # Errors
/// `invalid-request` unless P is symmetric of the rows' dimension.
pub fn reaper_objective(rows: &Rows, p: &DMatrix<f64>) -> Result<f64> {
    reaper::checked_objective(&table::Table::spherised(rows), p)
}
