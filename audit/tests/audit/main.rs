//! The integration tests of this crate in one program, linked once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../planted/mod.rs"]
mod planted;

mod broken;
mod mechanisms;
mod preparations;
mod tables;
