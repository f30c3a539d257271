//! The integration tests of this crate in one program, linked once.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../common/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/html.rs"]
mod html;

mod about;
mod availability;
mod connections;
mod drain;
mod enrolment;
mod estimates;
mod faults;
mod large_sparse;
mod limits;
mod metrics;
mod openapi;
mod pages;
mod preparations;
mod readiness;
mod repeated_seeds;
mod reports;
mod running;
mod seeds;
mod sites;
mod socket;
mod store;
mod store_files;
mod studies;
mod tls;
mod tokens;
mod transfers;
