//! From 16 bytes to a direction: part of the wire protocol, pinned in `docs/protocol.md`.
//!
//! A device rejects the seeds outside its row's cap: time that depended on a seed would tell of the row. All
//! here is straight lines and loops over p, with the widest registers that the processor has.

use pulp::{Arch, Simd, WithSimd};
use zeroize::{Zeroize, optimization_barrier};

use super::{
    BLOCK_WORDS,
    key_stream::{BLOCKS, KeyStream, NO_ROWS, Rows},
    quantile::{Arithmetic, Scratch, quantiles},
};

/// Bytes of a seed, which is the whole payload.
pub const SEED_LEN: usize = 16;

/// The seed that a device releases.
pub type Seed = [u8; SEED_LEN];

/// Second half of the ChaCha key: keeps these streams apart from every other use of a 16-byte seed.
const DOMAIN: [u8; 16] = *b"eigenveil-dcap-1";

pub(super) use super::quantile::NORMAL_LANES;

/// Coordinates expanded at a time, and groups of [`NORMAL_LANES`] of them.
const WORDS: usize = BLOCKS * BLOCK_WORDS;
const GROUPS: usize = WORDS / NORMAL_LANES;

/// Expands a seed into `z.len()` independent standard normals and gives ‖z‖₂². The direction the seed
/// stands for is g = z/‖z‖₂, uniform on the unit sphere for a uniformly random seed.
///
/// ChaCha12 with key `seed ‖ "eigenveil-dcap-1"`, nonce 0, counter from 0; each coordinate takes one
/// 64-bit little-endian word w and is Φ⁻¹((⌊w/2¹²⌋ + ½)·2⁻⁵²), to 1e-14, with the same bits on every machine.
/// The time taken does not depend on the seed.
///
/// ```
/// use eigenveil_shared::mechanism::double_cap::expand;
/// let mut z = [0.0; 3];
/// let length = expand(&[0; 16], &mut z).sqrt();
/// assert!(((z[0] / length).hypot(z[1] / length).hypot(z[2] / length) - 1.0).abs() < 1e-15);
/// ```
pub fn expand(seed: &Seed, z: &mut [f64]) -> f64 {
    expand_in(seed, z, &mut Workspace::new())
}

/// Expands a seed in a workspace that the caller wipes.
pub(super) fn expand_in(seed: &Seed, z: &mut [f64], workspace: &mut Workspace) -> f64 {
    Arch::new().dispatch(Expand { seed, z, workspace })
}

/// ‖z‖₂² and zᵀu of the seed's normals, which are not kept. `u` has p numbers, then zeros up to a whole group.
///
/// For a device's own test, which nobody repeats: with fused products where the processor has them, so that the last
/// bits differ from those of [`expand`]. Of which seeds are in a cap that moves a share of about 1e-12, far less than
/// the 2⁻²⁰ of ε that are charged.
pub(super) fn project(
    seed: &Seed,
    u: &[[f64; NORMAL_LANES]],
    p: usize,
    workspace: &mut Workspace,
) -> [f64; 2] {
    Arch::new().dispatch(Project {
        seed,
        u,
        p,
        workspace,
    })
}

/// Everything an expansion writes to on its way: kept from try to try, and wiped once. Each part begins with a line of
/// the cache: a register that lies across two takes twice the time.
#[repr(align(64))]
pub(super) struct Workspace {
    rows: Rows,
    words: [[u64; BLOCK_WORDS]; BLOCKS],
    scratch: Scratch<GROUPS>,
    normals: [[f64; NORMAL_LANES]; GROUPS],
}

impl Workspace {
    pub(super) const fn new() -> Self {
        Self {
            rows: NO_ROWS,
            words: [[0; BLOCK_WORDS]; BLOCKS],
            scratch: Scratch::new(),
            normals: [[0.0; NORMAL_LANES]; GROUPS],
        }
    }

    /// The next `count` ≤ [`WORDS`] normals of the stream, `at` times as many having been made; zeros up to a whole group.
    #[inline(always)]
    fn fill<S: Simd, const FUSED: bool>(
        &mut self,
        arithmetic: Arithmetic<S, FUSED>,
        stream: &KeyStream,
        at: usize,
        count: usize,
    ) -> &[[f64; NORMAL_LANES]] {
        let groups = count.div_ceil(NORMAL_LANES);
        stream.words(
            arithmetic.0,
            at * BLOCKS,
            groups,
            &mut self.rows,
            &mut self.words,
        );
        quantiles(
            arithmetic,
            &self.words,
            groups,
            &mut self.scratch,
            &mut self.normals,
        );
        // `count` is public: it follows from p.
        self.normals.as_flattened_mut()[count..groups * NORMAL_LANES].fill(0.0);
        &self.normals[..groups]
    }
}

impl Zeroize for Workspace {
    /// In whole registers: number by number it takes four times as long, a fiftieth of a report of 40 features.
    fn zeroize(&mut self) {
        *self = Self::new();
        optimization_barrier(self);
    }
}

fn key_stream(seed: &Seed) -> KeyStream {
    let mut key = [0; 32];
    key[..SEED_LEN].copy_from_slice(seed);
    key[SEED_LEN..].copy_from_slice(&DOMAIN);
    KeyStream::new(&key)
}

struct Expand<'a> {
    seed: &'a Seed,
    z: &'a mut [f64],
    workspace: &'a mut Workspace,
}

impl WithSimd for Expand<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let arithmetic = Arithmetic::<_, false>(simd);
        let stream = key_stream(self.seed);
        let mut squares = [0.0; NORMAL_LANES];
        for (at, z) in self.z.chunks_mut(WORDS).enumerate() {
            let normals = self.workspace.fill(arithmetic, &stream, at, z.len());
            for group in normals {
                for (square, z) in squares.iter_mut().zip(group) {
                    *square += z * z;
                }
            }
            z.copy_from_slice(&normals.as_flattened()[..z.len()]);
        }
        squares.iter().sum()
    }
}

struct Project<'a> {
    seed: &'a Seed,
    u: &'a [[f64; NORMAL_LANES]],
    p: usize,
    workspace: &'a mut Workspace,
}

impl WithSimd for Project<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f64; 2] {
        let arithmetic = Arithmetic::<_, true>(simd);
        let stream = key_stream(self.seed);
        let mut squares = simd.splat_f64s(0.0);
        let mut products = squares;
        for (at, u) in self.u.chunks(GROUPS).enumerate() {
            let count = (self.p - at * WORDS).min(WORDS);
            let normals = self.workspace.fill(arithmetic, &stream, at, count);
            let (z, _) = S::as_simd_f64s(normals.as_flattened());
            let (u, _) = S::as_simd_f64s(u.as_flattened());
            for (z, u) in z.iter().zip(u) {
                squares = simd.mul_add_e_f64s(*z, *z, squares);
                products = simd.mul_add_e_f64s(*z, *u, products);
            }
        }
        [squares, products].map(|sums| simd.reduce_sum_f64s(sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_expansion_begins_with_the_shorter() {
        let seed = [7; SEED_LEN];
        let mut long = [0.0; 145];
        expand(&seed, &mut long);
        for p in [2, 3, 8, 13, 40, 64, 65, 144] {
            let mut short = vec![0.0; p];
            let squared = expand(&seed, &mut short);
            assert_eq!(short, long[..p]);
            let plain: f64 = short.iter().map(|z| z * z).sum();
            assert!((squared / plain - 1.0).abs() < 1e-14);
        }
    }

    /// Seeds whose first coordinates are central, in the tail and far in the tail take the same path: a
    /// coordinate's bits depend on its word alone, neither on its neighbours nor on the registers.
    #[test]
    fn every_register_width_gives_the_same_bits() {
        for p in [2, 7, 8, 63, 64, 65, 400] {
            for byte in 0..40 {
                let seed = &[byte; SEED_LEN];
                let (mut wide, mut narrow) = (vec![0.0; p], vec![0.0; p]);
                let workspace = &mut Workspace::new();
                let squared = expand(seed, &mut wide);
                let z = &mut narrow;
                let narrowly = Expand { seed, z, workspace }.with_simd(pulp::Scalar);
                assert_eq!(squared.to_bits(), narrowly.to_bits());
                let bits = |z: &[f64]| z.iter().map(|z| z.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&wide), bits(&narrow));
                let mut u = vec![0.0; p.next_multiple_of(NORMAL_LANES)];
                u[..p].copy_from_slice(&wide);
                for found in project(seed, u.as_chunks().0, p, workspace) {
                    assert!((found / squared - 1.0).abs() < 1e-13);
                }
            }
        }
    }

    /// The bits themselves, so that no compiler or machine changes them unseen: FNV-1a over all of them.
    #[test]
    fn the_bits_are_pinned() {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut z = [0.0; 1_000];
        for byte in 0..100 {
            let squared = expand(&[byte; SEED_LEN], &mut z);
            for value in z.iter().chain([&squared]) {
                for byte in value.to_bits().to_le_bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        assert_eq!(hash, PINNED, "{hash:#x}");
    }

    const PINNED: u64 = 0xf800_2946_e984_fe7e;
}
