//! GLAD: least absolute deviations over the Grassmannian.

mod descent;
mod variants;

pub use variants::{Glad, GladVariant};

pub(crate) use variants::{DP_GGD, DP_SGGD, GGD, NGGD, NSGGD, SGGD};
