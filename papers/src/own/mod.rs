//! Our own experiments, which are not in the papers and support our own claims.

mod central_vs_local;
mod expected_error;
mod floor;
mod kappa;
mod moment_coverage;

pub(crate) use central_vs_local::CENTRAL_VS_LOCAL;
pub(crate) use expected_error::{AUTO, EXPECTED_ERROR};
pub(crate) use floor::{FLOOR, FLOOR_DIGITS, PURE_NOISE};
pub(crate) use kappa::KAPPA_GRID;
pub(crate) use moment_coverage::MOMENT_COVERAGE;
