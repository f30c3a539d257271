//! Linear algebra for large instances of REAPER.

mod exponential;
mod projection;

pub(super) use exponential::symmetric_exponential;
pub(super) use projection::{FantopeFactor, project_onto_fantope_partially};
