//! ChaCha12, several blocks side by side.
//!
//! The key stream is that of `rand`'s `ChaCha12Rng`. Its crate makes four blocks at a time behind a call; with its core,
//! without the generator that copies word by word, a report takes 22 to 43 % longer (`benches/perturb.rs`, p from 40 to
//! 4,096). Nothing is left in a generator to be wiped each time. No step depends on the data, as ever with ChaCha.

use pulp::Simd;

use super::BLOCK_WORDS;

/// Blocks that are room for at a time: a multiple of what each form below makes at a time.
pub(super) const BLOCKS: usize = 12;

/// Blocks made at a time in the plain form: one each lane.
const BLOCK_LANES: usize = 4;

/// Workspace of the portable form.
pub(super) type Rows = [[u32; BLOCK_LANES]; 16];

pub(super) const NO_ROWS: Rows = [[0; BLOCK_LANES]; 16];

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

    /// The first `count` blocks from block `first` on. What is beyond them in `words` is left as it falls.
    #[inline(always)]
    pub(super) fn words<S: Simd>(
        &self,
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))] simd: S,
        first: usize,
        count: usize,
        rows: &mut Rows,
        words: &mut [[u64; BLOCK_WORDS]; BLOCKS],
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = widest(&simd) {
            use super::key_stream_avx2::{BLOCKS, blocks};
            let batches = words.as_chunks_mut().0.iter_mut();
            for (at, words) in batches.take(count.div_ceil(BLOCKS)).enumerate() {
                blocks(avx2, &self.state, (first + at * BLOCKS) as u32, words);
            }
            return;
        }
        let batches = words.as_chunks_mut().0.iter_mut();
        for (at, words) in batches.take(count.div_ceil(BLOCK_LANES)).enumerate() {
            self.blocks((first + at * BLOCK_LANES) as u32, rows, words);
        }
    }

    /// Blocks in a form that any compiler puts into the registers it has.
    #[expect(
        clippy::needless_range_loop,
        reason = "lanes are what the compiler puts side by side"
    )]
    #[inline(always)]
    fn blocks(&self, first: u32, rows: &mut Rows, words: &mut [[u64; BLOCK_WORDS]; BLOCK_LANES]) {
        // One block a turn, in straight lines: the compiler does all turns at once, in the lanes of a register.
        for lane in 0..BLOCK_LANES {
            let mut start = self.state;
            start[12] = first + lane as u32;
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
        let mut pairs = [[0; BLOCK_LANES]; BLOCK_WORDS];
        for (pair, [low, high]) in pairs.iter_mut().zip(rows.as_chunks::<2>().0) {
            for lane in 0..BLOCK_LANES {
                pair[lane] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
            }
        }
        for lane in 0..BLOCK_LANES {
            for pair in 0..BLOCK_WORDS {
                words[lane][pair] = pairs[pair][lane];
            }
        }
    }
}

/// The token of AVX2, where these registers have it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widest<S: Simd>(simd: &S) -> Option<pulp::x86::V3> {
    let simd: &dyn std::any::Any = simd;
    simd.downcast_ref::<pulp::x86::V4>()
        .map(|avx512| **avx512)
        .or_else(|| simd.downcast_ref().copied())
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
    use pulp::{Arch, WithSimd};
    use rand::{Rng, SeedableRng, rngs::ChaCha12Rng};

    use super::*;

    struct Words<'a>(&'a KeyStream, usize);

    impl WithSimd for Words<'_> {
        type Output = [[u64; BLOCK_WORDS]; BLOCKS];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let (mut rows, mut words) = (NO_ROWS, [[0; BLOCK_WORDS]; BLOCKS]);
            self.0.words(simd, self.1, BLOCKS, &mut rows, &mut words);
            words
        }
    }

    #[test]
    fn the_key_stream_is_that_of_rand() {
        for byte in [0, 1, 0x80, 0xff] {
            let key = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ byte);
            let stream = KeyStream::new(&key);
            let mut generator = ChaCha12Rng::from_seed(key);
            for first in (0..400).step_by(BLOCKS) {
                let expected = [(); BLOCKS * BLOCK_WORDS].map(|()| generator.next_u64());
                let plain = Words(&stream, first).with_simd(pulp::Scalar);
                assert_eq!(plain.as_flattened(), expected);
                let widest = Arch::new().dispatch(Words(&stream, first));
                assert_eq!(widest.as_flattened(), expected);
            }
        }
    }
}
