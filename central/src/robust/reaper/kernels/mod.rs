//! What large instances of REAPER need of linear algebra: the part of a spectrum that matters.

mod exponential;
mod projection;

pub(super) use exponential::symmetric_exponential;
pub(super) use projection::{FantopeFactor, project_onto_fantope_partially};
