//! The `eigenveil` command; everything is in the library, so that whole-system tests run it too.

use std::process::ExitCode;

/// A report is a handful of small allocations, most of them freed by another thread than the one that made
/// them, which costs the system's allocator a tenth of the server's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    eigenveil::main()
}
