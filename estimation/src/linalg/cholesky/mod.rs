//! Cholesky factorisations: proofs that no eigenvalue lies above a bound.

mod blocked;
mod factor;
mod panels;

pub(crate) use blocked::{Definiteness, blocked_cholesky, rounding_of_cholesky};
pub(crate) use factor::spectrum_is_below;
pub(crate) use panels::{PANEL_WIDTH, Panels, add_outer_to_panel};
