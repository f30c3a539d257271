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
mod central;
mod centring;
#[path = "../../../server/tests/common/certificates.rs"]
mod certificates;
mod command_line;
// Not by the store's feature `testing`: `cargo test -p eigenveil-tests` tests the store that is shipped.
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "../../../store/src/testing/cluster.rs"]
mod cluster;
mod data_directory;
mod documentation;
mod enrolment;
mod export_backup;
mod flags;
mod fleet;
mod full_disk;
mod harness;
#[path = "../../../server/tests/common/html.rs"]
mod html;
mod http_proxy;
mod messages;
mod moment;
mod no_personal_data;
mod noiseless_oracle;
mod output_files;
mod participants;
mod plan;
mod prepare;
mod public_path;
mod readme_numbers;
mod report_rows;
mod reproduce;
mod row_ledger;
mod sites;
mod stderr_broken;
mod tables;
mod tls_and_config;
#[path = "../../../server/tests/common/waiting.rs"]
mod waiting;
