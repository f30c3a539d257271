//! The `eigenveil` command; everything is in the library, so that whole-system tests run it too.

use std::process::ExitCode;

/// A report needs a handful of small allocations, mostly freed by another thread than the one that made them; with the
/// system's allocator that takes a tenth of the server's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    eigenveil::main()
}
