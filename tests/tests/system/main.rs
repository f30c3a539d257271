//! Whole-system tests: the real program as processes, over real sockets, on real disks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod account;
mod audit;
mod bad_input;
mod biplot;
mod broken_log;
mod central;
mod centring;
#[path = "../../../server/tests/common/certificates.rs"]
mod certificates;
mod command_line;
mod crash_matrix;
mod documentation;
mod enrolment;
mod files;
mod full_disk;
#[path = "../../../server/tests/common/html.rs"]
mod html;
#[path = "../../../server/tests/common/identifiable.rs"]
mod identifiable;
mod killed_client;
mod messages;
mod noise_off;
mod participants;
#[path = "../../../server/tests/common/patience.rs"]
mod patience;
mod plan;
mod prepare;
mod program;
mod proxy;
mod readme_numbers;
mod reproduce;
mod row_ledger;
mod secured;
mod tables;
mod traces;
