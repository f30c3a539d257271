//! `double-cap`: pure ε-LDP in a 16-byte payload.
//!
//! The matrix `xxᵀ` is rank one, and its natural query is `(gᵀx)²`. A seed of 128 bits expands to a
//! point g(s) of the unit sphere; the device releases a seed with density proportional to e^ε inside
//! the double cap C(u) = {g : (gᵀu)² > τ} of its direction u, and 1 outside. The server expands the
//! seed again: `D = c(ggᵀ − I/p)` has mean `xxᵀ − (r²/p)I`, everything but the trace, which no
//! eigenvector depends on.

mod beta_tail;
mod expansion;
mod key_stream;
#[cfg(target_arch = "x86_64")]
mod key_stream_avx2;
mod parameters;
mod quantile;
mod randomizer;

pub use beta_tail::{beta_tails, uniform_tail};
pub use expansion::{SEED_LEN, Seed, expand};
pub use parameters::{DoubleCapMoments, DoubleCapParameters, MAX_DIMENSION};
pub use randomizer::{DoubleCap, GENERATOR_SLACK};

/// Words of 64 bits in a block of the key stream.
const BLOCK_WORDS: usize = 8;
