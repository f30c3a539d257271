//! GLAD: least absolute deviations over the Grassmannian.

mod descent;
mod form;

pub(super) use descent::objective;
pub use form::{Glad, GladForm};
