//! The `eigenveil` command; everything is in the library, so that whole-system tests run it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    eigenveil::main()
}
