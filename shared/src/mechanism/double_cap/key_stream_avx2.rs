//! The key stream in the instructions of AVX2, six blocks at a time.
//!
//! A register holds one row of two blocks, so six blocks take twelve of the sixteen registers and none is put aside
//! in memory on the way, as eight side by side need. The compiler's own form of these takes half as much time more.

use std::arch::x86_64::__m256i;

use pulp::{u32x4, u32x8, x86::V3};

use super::BLOCK_WORDS;

pub(super) const BLOCKS: usize = 6;

/// Rows a, b, c and d of three pairs of blocks.
type Rows = [[__m256i; BLOCKS / 2]; 4];

/// ChaCha12 of six states that differ in the counter, from `first` on.
#[inline(always)]
pub(super) fn blocks(
    simd: V3,
    state: &[u32; 16],
    first: u32,
    words: &mut [[u64; BLOCK_WORDS]; BLOCKS],
) {
    let avx2 = simd.avx2;
    // Hidden from the compiler, which would take the shuffles apart and make two of one.
    let by_16 = std::hint::black_box(byte_rotation(2));
    let by_8 = std::hint::black_box(byte_rotation(1));
    let mut start: Rows = [[pulp::cast(by_16); BLOCKS / 2]; 4];
    for (row, words) in start.iter_mut().zip(state.as_chunks::<4>().0) {
        let [a, b, c, d] = *words;
        *row = [avx2._mm256_broadcastsi128_si256(pulp::cast(u32x4(a, b, c, d))); BLOCKS / 2];
    }
    for (pair, d) in start[3].iter_mut().enumerate() {
        let counter = first + 2 * pair as u32;
        let counters = u32x8(counter, 0, 0, 0, counter + 1, 0, 0, 0);
        *d = avx2._mm256_add_epi32(*d, pulp::cast(counters));
    }
    let mut rows = start;
    for _ in 0..6 {
        column_round(simd, &mut rows, pulp::cast(by_16), pulp::cast(by_8));
        // Row b is the last to be ready: the others move, so that columns hold the diagonals.
        shift_rows::<0x93, 0x39>(simd, &mut rows);
        column_round(simd, &mut rows, pulp::cast(by_16), pulp::cast(by_8));
        shift_rows::<0x39, 0x93>(simd, &mut rows);
    }
    for pair in 0..BLOCKS / 2 {
        for row in 0..4 {
            rows[row][pair] = avx2._mm256_add_epi32(rows[row][pair], start[row][pair]);
        }
        let [a, b, c, d] = [rows[0][pair], rows[1][pair], rows[2][pair], rows[3][pair]];
        words[2 * pair] = pulp::cast([
            avx2._mm256_permute2x128_si256::<0x20>(a, b),
            avx2._mm256_permute2x128_si256::<0x20>(c, d),
        ]);
        words[2 * pair + 1] = pulp::cast([
            avx2._mm256_permute2x128_si256::<0x31>(a, b),
            avx2._mm256_permute2x128_si256::<0x31>(c, d),
        ]);
    }
}

/// Moves the words of rows a and c by one place, in opposite directions, and those of row d by two.
#[inline(always)]
fn shift_rows<const A: i32, const C: i32>(simd: V3, [a, _, c, d]: &mut Rows) {
    for pair in 0..BLOCKS / 2 {
        a[pair] = simd.avx2._mm256_shuffle_epi32::<A>(a[pair]);
        d[pair] = simd.avx2._mm256_shuffle_epi32::<0x4e>(d[pair]);
        c[pair] = simd.avx2._mm256_shuffle_epi32::<C>(c[pair]);
    }
}

/// Where each byte of a rotation of 32-bit words comes from.
const fn byte_rotation(bytes: usize) -> [u8; 32] {
    let mut from = [0; 32];
    let mut at = 0;
    while at < 32 {
        let within_16 = at % 16;
        from[at] = (within_16 / 4 * 4 + (within_16 + 4 - bytes) % 4) as u8;
        at += 1;
    }
    from
}

#[inline(always)]
fn column_round(simd: V3, rows: &mut Rows, by_16: __m256i, by_8: __m256i) {
    let avx2 = simd.avx2;
    let [a, b, c, d] = rows;
    // Step by step, not pair by pair: no step waits for the one before.
    for pair in 0..BLOCKS / 2 {
        a[pair] = avx2._mm256_add_epi32(a[pair], b[pair]);
        d[pair] = avx2._mm256_xor_si256(d[pair], a[pair]);
        d[pair] = avx2._mm256_shuffle_epi8(d[pair], by_16);
    }
    for pair in 0..BLOCKS / 2 {
        c[pair] = avx2._mm256_add_epi32(c[pair], d[pair]);
        b[pair] = rotated::<12, 20>(simd, avx2._mm256_xor_si256(b[pair], c[pair]));
    }
    for pair in 0..BLOCKS / 2 {
        a[pair] = avx2._mm256_add_epi32(a[pair], b[pair]);
        d[pair] = avx2._mm256_xor_si256(d[pair], a[pair]);
        d[pair] = avx2._mm256_shuffle_epi8(d[pair], by_8);
    }
    for pair in 0..BLOCKS / 2 {
        c[pair] = avx2._mm256_add_epi32(c[pair], d[pair]);
        b[pair] = rotated::<7, 25>(simd, avx2._mm256_xor_si256(b[pair], c[pair]));
    }
}

#[inline(always)]
fn rotated<const LEFT: i32, const RIGHT: i32>(simd: V3, x: __m256i) -> __m256i {
    let left = simd.avx2._mm256_slli_epi32::<LEFT>(x);
    let right = simd.avx2._mm256_srli_epi32::<RIGHT>(x);
    simd.avx2._mm256_or_si256(left, right)
}
