//! The noisy power method of Hardt & Price (2014) and their algorithms based on it.

mod block_settings;
mod noisy;
mod plain;
mod private;
mod sensitivity;
mod streaming;

pub use noisy::{PowerRun, noisy_power};
pub use sensitivity::{entry_sensitivity_factor, product_sensitivity, product_sensitivity_l1};

pub(crate) use {plain::INFO as PLAIN, private::INFO as PRIVATE, streaming::INFO as STREAMING};
