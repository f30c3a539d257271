//! REAPER: least absolute deviations over the Fantope, with the kernels that nothing else needs.

mod average;
mod descent;
mod iterate;
mod kernels;
mod mirror;
mod simplex;
mod span;
mod variants;

pub use average::AverageIterate;
pub use variants::{Reaper, ReaperVariant};

pub(crate) use variants::{GD, MD, SGD, SMD};

/// From this dimension what is wanted of a spectrum is found without the rest of it.
const MIN_PARTIAL_DIMENSION: usize = 500;
/// A space of more than p over this costs as much as the full decomposition.
const MAX_SPACE_DIVISOR: usize = 2;
