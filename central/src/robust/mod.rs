//! Robust PCA of Maunu, Yu & Lerman: the subspace that most rows lie close to, wherever the outliers are.
//!
//! * GLAD: gradient descent on `(1/N)Σ‖(I − VVᵀ)x‖` over the Grassmannian: `ggd`, `nggd`, `sggd`, `nsggd`, `dp-ggd`,
//!   `dp-sggd`.
//! * REAPER: its convex relaxation `(1/N)Σ‖(I − P)x‖` over the Fantope: `dp-gd-reap`, `dp-sgd-reap`, `dp-md-reap`,
//!   `dp-smd-reap`.
//!
//! Rows are spherised: each is divided by its length, and a zero row stays zero. This maps each row separately, so
//! neighbours stay neighbours.

mod calibration;
mod glad;
mod reaper;
mod sampling;
mod start;
mod table;
mod variants;

pub use calibration::Calibrated;
pub use reaper::AverageIterate;
pub use start::Start;
pub use variants::{Robust, Variant};

pub(crate) use variants::{DP_GGD, DP_SGGD, GD, GGD, MD, NGGD, NSGGD, SGD, SGGD, SMD};
