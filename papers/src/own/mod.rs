//! Our own grids: what the papers do not ask and our claims rest on.

mod central_vs_local;
mod floor;
mod kappa;

pub(crate) use central_vs_local::CENTRAL_VS_LOCAL;
pub(crate) use floor::{FLOOR, FLOOR_DIGITS, PURE_NOISE};
pub(crate) use kappa::KAPPA_GRID;

use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
    preprocess::Norm,
    study::{StudyDesign, StudyParams},
};

/// Unit rows, analytic calibration, no centring; the mechanism's own δ where none is given.
fn params(
    p: usize,
    mechanism: MechanismKind,
    calibration: Calibration,
    epsilon: f64,
    delta: Option<f64>,
) -> Result<StudyParams> {
    StudyParams::freeze(StudyDesign {
        dimension: p,
        features: None,
        norm: Norm::Normalize,
        centring: None,
        mechanism,
        calibration,
        budget: mechanism.budget(epsilon, delta)?,
    })
}
