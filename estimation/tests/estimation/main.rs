//! The integration tests of this crate in one program, linked once.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod centring;
mod component_count;
mod component_groups;
mod fantope;
mod feasibility;
mod jackknife;
mod lambda_path;
mod median_of_means;
mod missing_cells;
mod noise_floor;
mod plan;
mod poison;
mod selection;
mod simulate;
mod sites;
mod sites_at_length;
mod statistics;
mod warnings;
