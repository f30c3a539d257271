//! The `eigenveil` program, built together with the tests that run it.

use std::process::ExitCode;

fn main() -> ExitCode {
    eigenveil::main()
}
