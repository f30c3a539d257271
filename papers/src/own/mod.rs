//! Our own experiments, which are not in the papers and support our own claims.

mod central_vs_local;
mod floor;
mod kappa;

pub(crate) use central_vs_local::CENTRAL_VS_LOCAL;
pub(crate) use floor::{FLOOR, FLOOR_DIGITS, PURE_NOISE};
pub(crate) use kappa::KAPPA_GRID;
