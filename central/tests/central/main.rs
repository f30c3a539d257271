//! The integration tests of this crate in one program, linked once.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../../../estimation/tests/common/mod.rs"]
mod common;
#[path = "../tables/mod.rs"]
mod tables;

mod accountant;
mod dp_pca;
mod input_perturbation;
mod oja;
mod parameters;
mod power;
mod promises;
mod robust;
mod stochastic;
mod stream;
