//! GLAD: least absolute deviations over the Grassmannian.

mod descent;
mod form;

pub use form::{Glad, GladVariant};

pub(crate) use form::{DP_GGD, DP_SGGD, GGD, NGGD, NSGGD, SGGD};
