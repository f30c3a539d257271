//! From 16 bytes to a direction: part of the wire protocol, pinned in `docs/protocol.md`.
//!
//! A device rejects the seeds outside its row's cap: time that depended on a seed would tell of the row. All
//! here is straight lines and loops over p, with the widest registers that the processor has.

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

use super::{
    key_stream::{KeyStreams, WORDS},
    quantile::{Steps, quantiles},
};

/// Bytes of a seed, which is the whole payload.
pub const SEED_LEN: usize = 16;

/// What a device releases.
pub type Seed = [u8; SEED_LEN];

/// Second half of the ChaCha key: keeps these streams apart from every other use of a 16-byte seed.
const DOMAIN: [u8; 16] = *b"eigenveil-dcap-1";

pub(super) use super::quantile::LANES;

/// Groups of [`LANES`] coordinates expanded at a time.
const GROUPS: usize = WORDS / LANES;

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
    let workspace = &mut Workspace::new();
    Arch::new().dispatch(Expand { seed, z, workspace })
}

/// Seeds that a device tries at a time, each in its share of the lanes. Eight waste more tries than they save
/// elsewhere; one leaves lanes empty at small p.
pub(super) const BATCH: usize = 4;

type Streams = KeyStreams<BATCH>;

/// Coordinates of each seed made at a time.
const STEP: usize = LANES * Streams::BLOCKS;

/// A direction in the order in which [`project`] meets its coordinates.
pub(super) struct Target {
    /// Row `i`, lane `l` of a step belong to word `i` of the block in that lane. Zeros follow the last coordinate.
    steps: Vec<[[f64; LANES]; LANES]>,
    p: usize,
}

impl Target {
    pub(super) fn new(u: &[f64]) -> Self {
        let mut steps = vec![[[0.0; LANES]; LANES]; u.len().div_ceil(STEP)];
        for (step, u) in steps.iter_mut().zip(u.chunks(STEP)) {
            for (block, u) in u.chunks(LANES).enumerate() {
                for (row, u) in step.iter_mut().zip(u) {
                    for key in 0..BATCH {
                        row[key * Streams::BLOCKS + block] = *u;
                    }
                }
            }
        }
        Self { steps, p: u.len() }
    }
}

impl Zeroize for Target {
    fn zeroize(&mut self) {
        self.steps
            .as_mut_slice()
            .as_flattened_mut()
            .as_flattened_mut()
            .zeroize();
    }
}

/// ‖z‖₂² and zᵀu of each seed's normals, which are not kept.
pub(super) fn project(
    seeds: &[Seed; BATCH],
    u: &Target,
    workspace: &mut Workspace,
) -> [[f64; 2]; BATCH] {
    Arch::new().dispatch(Project {
        seeds,
        u,
        workspace,
    })
}

/// Everything an expansion writes to on its way: kept from try to try, and wiped once.
pub(super) struct Workspace {
    rows: [[u32; 8]; 16],
    words: [[u64; LANES]; GROUPS],
    steps: Steps<GROUPS>,
    normals: [[f64; LANES]; GROUPS],
}

impl Workspace {
    pub(super) const fn new() -> Self {
        Self {
            rows: [[0; 8]; 16],
            words: [[0; LANES]; GROUPS],
            steps: Steps::new(),
            normals: [[0.0; LANES]; GROUPS],
        }
    }

    /// The normals of the next eight blocks, `at` times as many having been made, in the order of
    /// [`KeyStreams::words`].
    #[inline(always)]
    fn fill<S: Simd, const KEYS: usize>(
        &mut self,
        simd: S,
        streams: &KeyStreams<KEYS>,
        at: usize,
    ) -> &mut [[f64; LANES]; GROUPS] {
        streams.words(at as u32, &mut self.rows, &mut self.words);
        quantiles(
            simd,
            &self.words,
            GROUPS,
            &mut self.steps,
            &mut self.normals,
        );
        &mut self.normals
    }
}

impl Zeroize for Workspace {
    fn zeroize(&mut self) {
        self.rows.as_flattened_mut().zeroize();
        self.words.as_flattened_mut().zeroize();
        self.steps.zeroize();
        self.normals.as_flattened_mut().zeroize();
    }
}

fn key(seed: &Seed) -> [u8; 32] {
    let mut key = [0; 32];
    key[..SEED_LEN].copy_from_slice(seed);
    key[SEED_LEN..].copy_from_slice(&DOMAIN);
    key
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
        let stream = KeyStreams::new(&[key(self.seed)]);
        let mut squares = [0.0; LANES];
        for (at, z) in self.z.chunks_mut(WORDS).enumerate() {
            let normals = self.workspace.fill(simd, &stream, at);
            // Here a row holds a word of each block, and blocks follow one another in z.
            let mut ordered = [[0.0; LANES]; GROUPS];
            for (block, group) in ordered.iter_mut().enumerate() {
                for (z, row) in group.iter_mut().zip(&*normals) {
                    *z = row[block];
                }
            }
            // Zeros after the last coordinate: which it is follows from p.
            ordered.as_flattened_mut()[z.len()..].fill(0.0);
            for group in &ordered {
                for (square, z) in squares.iter_mut().zip(group) {
                    *square += z * z;
                }
            }
            z.copy_from_slice(&ordered.as_flattened()[..z.len()]);
        }
        squares.iter().sum()
    }
}

struct Project<'a> {
    seeds: &'a [Seed; BATCH],
    u: &'a Target,
    workspace: &'a mut Workspace,
}

impl WithSimd for Project<'_> {
    type Output = [[f64; 2]; BATCH];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let streams = Streams::new(&self.seeds.each_ref().map(key));
        let mut squares = [0.0; LANES];
        let mut products = [0.0; LANES];
        for (at, u) in self.u.steps.iter().enumerate() {
            let normals = self.workspace.fill(simd, &streams, at);
            // Zeros after the last coordinate: which it is follows from p.
            let count = self.u.p - at * STEP;
            if count < STEP {
                for (word, row) in normals.iter_mut().enumerate() {
                    for (lane, z) in row.iter_mut().enumerate() {
                        if lane % Streams::BLOCKS * LANES + word >= count {
                            *z = 0.0;
                        }
                    }
                }
            }
            for (z, u) in normals.iter().zip(u) {
                for lane in 0..LANES {
                    squares[lane] += z[lane] * z[lane];
                    products[lane] += z[lane] * u[lane];
                }
            }
        }
        let (squares, products) = (
            squares.as_chunks::<{ Streams::BLOCKS }>().0,
            products.as_chunks::<{ Streams::BLOCKS }>().0,
        );
        std::array::from_fn(|key| [squares[key].iter().sum(), products[key].iter().sum()])
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
                let narrowly = Expand {
                    seed,
                    z: &mut narrow,
                    workspace,
                }
                .with_simd(pulp::Scalar);
                assert_eq!(squared.to_bits(), narrowly.to_bits());
                assert!(
                    wide.iter()
                        .zip(&narrow)
                        .all(|(a, b)| a.to_bits() == b.to_bits())
                );
                // Each seed of a batch beside others: its own numbers, whatever the registers.
                let target = &Target::new(&wide);
                let seeds = &std::array::from_fn(|at| [byte ^ at as u8; SEED_LEN]);
                let projected = project(seeds, target, workspace);
                let narrowly = Project {
                    seeds,
                    u: target,
                    workspace,
                }
                .with_simd(pulp::Scalar);
                assert_eq!(projected, narrowly);
                for (seed, [squares, product]) in seeds.iter().zip(projected) {
                    let squared = expand(seed, &mut narrow);
                    let plain: f64 = narrow.iter().zip(&wide).map(|(z, u)| z * u).sum();
                    assert!((squares / squared - 1.0).abs() < 1e-14);
                    assert!((product - plain).abs() < 1e-14 * squared.max(p as f64) * 10.0);
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
