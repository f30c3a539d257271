//! Short programs to copy; each is run by a test.
//!
//! | program | shows |
//! |---|---|
//! | `examples/embed_sdk.rs` | a device: one row, perturbed, durable, uploaded, in 50 lines |
//! | `examples/own_transport.rs` | a device with its own HTTP client and its own store |
//! | `examples/own_axum_app.rs` | the aggregation server inside your own axum application |
//! | `examples/custom_preprocessing.rs` | domain rules before the study's own preprocessing |
//!
//! Run one with `cargo run -p eigenveil-examples --example own_axum_app`.

/// The snippets of the README, compiled by `cargo test`.
#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;

/// The snippet of the guide for app developers.
#[doc = include_str!("../../docs/embed-the-sdk.md")]
#[cfg(doctest)]
pub struct EmbedTheSdk;
