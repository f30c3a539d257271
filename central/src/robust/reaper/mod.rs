//! REAPER: least absolute deviations over the Fantope.

mod average;
mod descent;
mod iterate;
mod lazy_noise;
mod mirror;
mod projection;
mod simplex;
mod span;

pub use average::AverageIterate;

pub(super) use descent::{Descent, Geometry, objective};

const MIN_PARTIAL_DIMENSION: usize = 500;
/// A Krylov space larger than p over this costs as much as a full decomposition.
const MAX_SPACE_DIVISOR: usize = 2;
