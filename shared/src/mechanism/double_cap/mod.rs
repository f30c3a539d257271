//! Constants of `double-cap`, the pure ε-LDP mechanism with a 16-byte payload.
//!
//! So far what a study freezes at creation and what the noise floor needs: threshold, cap probability,
//! scale and exact moments. The randomizer itself is not here yet, and no study can use it.

mod beta_tail;
mod parameters;

pub use parameters::{DoubleCapMoments, DoubleCapParameters, MAX_DIMENSION};
