//! ChaCha12, eight blocks side by side.
//!
//! The key stream is that of `rand`'s `ChaCha12Rng`, which makes four blocks at a time and copies them out, word
//! by word. A seed is expanded some twenty times a report: this takes a tenth to a fifth less time, and nothing of
//! it is left in a generator to be wiped each time. No step depends on the data, as ever with ChaCha.

/// Words of 64 bits that eight blocks hold.
pub(super) const WORDS: usize = 64;

/// Blocks made at a time: one each lane.
pub(super) const LANES: usize = 8;

/// Key streams from their beginning, side by side: nonce 0, and the counter in words 12 and 13.
pub(super) struct KeyStreams<const KEYS: usize> {
    start: [[u32; LANES]; 16],
}

impl<const KEYS: usize> KeyStreams<KEYS> {
    /// Blocks of each stream made at a time.
    pub(super) const BLOCKS: usize = LANES / KEYS;

    /// The streams of these 32-byte keys: 1, 2, 4 or 8. The first takes the first lanes.
    #[inline(always)]
    pub(super) fn new(keys: &[[u8; 32]; KEYS]) -> Self {
        let mut start = [[0; LANES]; 16];
        // "expand 32-byte k"
        for (row, word) in
            start
                .iter_mut()
                .zip([0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574])
        {
            *row = [word; LANES];
        }
        for lane in 0..LANES {
            let key = &keys[lane / Self::BLOCKS];
            for (row, bytes) in start[4..12].iter_mut().zip(key.as_chunks::<4>().0) {
                row[lane] = u32::from_le_bytes(*bytes);
            }
            start[12][lane] = (lane % Self::BLOCKS) as u32;
        }
        Self { start }
    }

    /// Blocks `at·BLOCKS` to `at·BLOCKS + BLOCKS − 1` of every stream, their number below 2³²: word `i` of the block in
    /// lane `l` is `words[i][l]`. `rows` is room to work in.
    #[expect(
        clippy::needless_range_loop,
        reason = "lanes are what the compiler puts side by side"
    )]
    #[inline(always)]
    pub(super) fn words(
        &self,
        at: u32,
        rows: &mut [[u32; LANES]; 16],
        words: &mut [[u64; LANES]; 8],
    ) {
        let first = at * Self::BLOCKS as u32;
        // One block a turn, in straight lines: the compiler does all turns at once, in the lanes of a register.
        for lane in 0..LANES {
            let mut start = [0; 16];
            for row in 0..16 {
                start[row] = self.start[row][lane];
            }
            start[12] += first;
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
        for (words, [low, high]) in words.iter_mut().zip(rows.as_chunks::<2>().0) {
            for lane in 0..LANES {
                words[lane] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
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

    fn streams_are_those_of_rand<const KEYS: usize>() {
        let blocks = KeyStreams::<KEYS>::BLOCKS;
        for byte in [0, 1, 0x80, 0xff] {
            let keys: [[u8; 32]; KEYS] = std::array::from_fn(|key| {
                std::array::from_fn(|at| (at as u8 + key as u8).wrapping_mul(37) ^ byte)
            });
            let streams = KeyStreams::new(&keys);
            let mut generators = keys.map(ChaCha12Rng::from_seed);
            let (mut rows, mut words) = ([[0; LANES]; 16], [[0; LANES]; 8]);
            for at in 0..40 {
                streams.words(at, &mut rows, &mut words);
                for (lane, generator) in (0..LANES).map(|lane| (lane, lane / blocks)) {
                    for row in &words {
                        assert_eq!(row[lane], generators[generator].next_u64());
                    }
                }
            }
        }
    }

    #[test]
    fn the_key_streams_are_those_of_rand() {
        streams_are_those_of_rand::<1>();
        streams_are_those_of_rand::<2>();
        streams_are_those_of_rand::<4>();
        streams_are_those_of_rand::<8>();
    }
}
