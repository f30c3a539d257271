//! The integration tests of this crate in one program, linked once.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod codec_vectors;
mod mechanism_law;
mod preparation_vectors;
mod reference_vectors;
mod site_vectors;
