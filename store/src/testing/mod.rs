//! What tests of the store and of its users share.

pub mod cluster;
#[cfg(test)]
pub(crate) mod conformance;
pub mod fixtures;
#[cfg(test)]
mod folds;
#[cfg(test)]
pub(crate) mod insider;

#[cfg(feature = "postgres")]
pub use crate::postgres::testing as fleet;
