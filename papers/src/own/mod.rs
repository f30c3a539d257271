//! Our own experiments, which the papers do not have and our claims rest on.

mod central_vs_local;
mod floor;
mod kappa;

pub(crate) use central_vs_local::CENTRAL_VS_LOCAL;
pub(crate) use floor::{FLOOR, FLOOR_DIGITS, PURE_NOISE};
pub(crate) use kappa::KAPPA_GRID;
