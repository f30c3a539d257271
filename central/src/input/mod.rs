//! Rows, where they come from, and randomness.

pub(crate) mod generator;
pub(crate) mod population;
pub(crate) mod rows;
pub(crate) mod stream;
