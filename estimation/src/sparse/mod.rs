//! Row-sparse components: Fantope on the moment, or on seeds that are read twice where the moment is large.

mod components;
pub mod fantope;
pub mod from_seeds;

pub use components::sparse_components;
