//! Whole-system tests: the real program as processes, over real sockets, on real disks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod audit;
mod bad_input;
mod centring;
mod command_line;
mod crash_matrix;
mod documentation;
mod enrolment;
mod files;
mod full_disk;
#[path = "../../../server/tests/common/identifiable.rs"]
mod identifiable;
mod killed_client;
mod killed_server;
mod noise_off;
mod plan;
mod program;
mod proxy;
mod secrets;
