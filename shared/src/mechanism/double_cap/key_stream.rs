//! ChaCha12, eight blocks side by side.
//!
//! The key stream is that of `rand`'s `ChaCha12Rng`, which makes four blocks at a time and copies them out, word
//! by word. A seed is expanded some twenty times a report: this takes a tenth to a fifth less time, and nothing of
//! it is left in a generator to be wiped each time. No step depends on the data, as ever with ChaCha.

/// Words of 64 bits that eight blocks hold.
pub(super) const WORDS: usize = 64;

/// Blocks made at a time: one each lane.
const LANES: usize = 8;

/// A key stream from its beginning: nonce 0, and the counter in words 12 and 13.
pub(super) struct KeyStream {
    state: [u32; 16],
}

impl KeyStream {
    /// The stream of this 32-byte key.
    #[inline(always)]
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let mut state = [0; 16];
        // "expand 32-byte k"
        state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (word, bytes) in state[4..12].iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { state }
    }

    /// The 64 words of blocks `8·at` to `8·at + 7`, `at` below 2²⁹. `rows` is room to work in.
    #[expect(
        clippy::needless_range_loop,
        reason = "lanes are what the compiler puts side by side"
    )]
    #[inline(always)]
    pub(super) fn words(
        &self,
        at: u32,
        rows: &mut [[u32; LANES]; 16],
        words: &mut [[u64; 8]; LANES],
    ) {
        // One block a turn, in straight lines: the compiler does all turns at once, in the lanes of a register.
        for lane in 0..LANES {
            let mut start = self.state;
            start[12] = at * LANES as u32 + lane as u32;
            let mut x = start;
            double_round(&mut x);
            double_round(&mut x);
            double_round(&mut x);
            double_round(&mut x);
            double_round(&mut x);
            double_round(&mut x);
            for row in 0..16 {
                rows[row][lane] = x[row].wrapping_add(start[row]);
            }
        }
        let mut pairs = [[0; LANES]; 8];
        for (pair, [low, high]) in pairs.iter_mut().zip(rows.as_chunks::<2>().0) {
            for lane in 0..LANES {
                pair[lane] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
            }
        }
        for lane in 0..LANES {
            for pair in 0..8 {
                words[lane][pair] = pairs[pair][lane];
            }
        }
    }
}

#[inline(always)]
fn double_round(x: &mut [u32; 16]) {
    quarter_round(x, 0, 4, 8, 12);
    quarter_round(x, 1, 5, 9, 13);
    quarter_round(x, 2, 6, 10, 14);
    quarter_round(x, 3, 7, 11, 15);
    quarter_round(x, 0, 5, 10, 15);
    quarter_round(x, 1, 6, 11, 12);
    quarter_round(x, 2, 7, 8, 13);
    quarter_round(x, 3, 4, 9, 14);
}

#[inline(always)]
fn quarter_round(x: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::ChaCha12Rng};

    use super::*;

    #[test]
    fn the_key_stream_is_that_of_rand() {
        for byte in [0, 1, 0x80, 0xff] {
            let key = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ byte);
            let stream = KeyStream::new(&key);
            let mut generator = ChaCha12Rng::from_seed(key);
            let (mut rows, mut words) = ([[0; LANES]; 16], [[0; 8]; LANES]);
            for at in 0..40 {
                stream.words(at, &mut rows, &mut words);
                for &word in words.as_flattened() {
                    assert_eq!(word, generator.next_u64());
                }
            }
        }
    }
}
