//! What large instances of REAPER need of linear algebra: the part of a spectrum that matters.

mod band;
mod block_lanczos;
mod exponential;
mod projection;

pub(super) use block_lanczos::{UnseenNoise, leading_pairs, spectrum_edges};
pub(super) use exponential::symmetric_exponential;
pub(super) use projection::{FantopeFactor, project_onto_fantope_partially};
