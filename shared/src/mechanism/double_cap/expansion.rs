//! From 16 bytes to a direction: part of the wire protocol, pinned in `docs/protocol.md`.

#![allow(clippy::excessive_precision, reason = "the coefficients as published")]

use rand::{Rng, SeedableRng, rngs::ChaCha12Rng};

/// Bytes of a seed, which is the whole payload.
pub const SEED_LEN: usize = 16;

/// What a device releases.
pub type Seed = [u8; SEED_LEN];

/// Second half of the ChaCha key: keeps these streams apart from every other use of a 16-byte seed.
const DOMAIN: [u8; 16] = *b"eigenveil-dcap-1";

/// Half the width of the central region of AS 241.
const CENTRAL: f64 = 0.425;

/// Expands a seed into `z.len()` independent standard normals and gives ‖z‖₂². The direction the seed
/// stands for is g = z/‖z‖₂, uniform on the unit sphere for a uniformly random seed.
///
/// ChaCha12 with key `seed ‖ "eigenveil-dcap-1"`, nonce 0, counter from 0; each coordinate takes one
/// 64-bit little-endian word w and is Φ⁻¹((⌊w/2¹²⌋ + ½)·2⁻⁵²) by AS 241 (Wichura 1988, PPND16).
///
/// ```
/// use eigenveil_shared::mechanism::double_cap::expand;
/// let mut z = [0.0; 3];
/// let length = expand(&[0; 16], &mut z).sqrt();
/// assert!(((z[0] / length).hypot(z[1] / length).hypot(z[2] / length) - 1.0).abs() < 1e-15);
/// ```
pub fn expand(seed: &Seed, z: &mut [f64]) -> f64 {
    let mut key = [0; 32];
    key[..SEED_LEN].copy_from_slice(seed);
    key[SEED_LEN..].copy_from_slice(&DOMAIN);
    let mut generator = ChaCha12Rng::from_seed(key);
    let mut chunks = z.chunks_exact_mut(LANES);
    let mut squares = [0.0; LANES];
    for chunk in &mut chunks {
        let mut q = [0.0; LANES];
        for q in &mut q {
            *q = centred_uniform(generator.next_u64());
        }
        // All lanes take the central branch, which vectorises; the rare tails are put right after it.
        let mut normals = q.map(central);
        for (normal, q) in normals.iter_mut().zip(q) {
            if q.abs() > CENTRAL {
                *normal = tail(q);
            }
        }
        for ((square, z), normal) in squares.iter_mut().zip(chunk).zip(normals) {
            *z = normal;
            *square += normal * normal;
        }
    }
    for (square, z) in squares.iter_mut().zip(chunks.into_remainder()) {
        *z = standard_normal(centred_uniform(generator.next_u64()));
        *square += *z * *z;
    }
    squares.iter().sum()
}

const LANES: usize = 8;

/// The uniform number minus ½: exact, symmetric about 0, never 0 or ±½.
fn centred_uniform(word: u64) -> f64 {
    ((word >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64) - 0.5
}

/// Φ⁻¹(½ + q), |q| < ½.
fn standard_normal(q: f64) -> f64 {
    if q.abs() > CENTRAL {
        tail(q)
    } else {
        central(q)
    }
}

#[rustfmt::skip]
fn central(q: f64) -> f64 {
    let r = 0.180_625 - q * q;
    let numerator = ((((((2.509_080_928_730_122_672_7e3 * r + 3.343_057_558_358_812_810_5e4) * r
        + 6.726_577_092_700_870_085_3e4) * r + 4.592_195_393_154_987_145_7e4) * r
        + 1.373_169_376_550_946_112_5e4) * r + 1.971_590_950_306_551_442_7e3) * r
        + 1.331_416_678_917_843_774_5e2) * r + 3.387_132_872_796_366_608;
    let denominator = ((((((5.226_495_278_852_854_561e3 * r + 2.872_908_573_572_194_267_4e4) * r
        + 3.930_789_580_009_271_061e4) * r + 2.121_379_430_158_659_586_7e4) * r
        + 5.394_196_021_424_751_107_7e3) * r + 6.871_870_074_920_579_083e2) * r
        + 4.231_333_070_160_091_125_2e1) * r + 1.0;
    q * numerator / denominator
}

#[rustfmt::skip]
fn tail(q: f64) -> f64 {
    // `libm`, not the platform's logarithm: every machine must find the same number.
    let r = libm::sqrt(-libm::log(0.5 - q.abs()));
    let magnitude = if r <= 5.0 {
        let r = r - 1.6;
        let numerator = ((((((7.745_450_142_783_414_076_4e-4 * r + 2.272_384_498_926_918_458_33e-2) * r
            + 2.417_807_251_774_506_117_7e-1) * r + 1.270_458_252_452_368_382_58) * r
            + 3.647_848_324_763_204_605_04) * r + 5.769_497_221_460_691_405_5) * r
            + 4.630_337_846_156_545_295_9) * r + 1.423_437_110_749_683_577_34;
        let denominator = ((((((1.050_750_071_644_416_843_24e-9 * r + 5.475_938_084_995_344_946e-4) * r
            + 1.519_866_656_361_645_719_66e-2) * r + 1.481_039_764_274_800_745_9e-1) * r
            + 6.897_673_349_851_000_045_5e-1) * r + 1.676_384_830_183_803_849_4) * r
            + 2.053_191_626_637_758_821_87) * r + 1.0;
        numerator / denominator
    } else {
        let r = r - 5.0;
        let numerator = ((((((2.010_334_399_292_288_132_65e-7 * r + 2.711_555_568_743_487_578_15e-5) * r
            + 1.242_660_947_388_078_438_6e-3) * r + 2.653_218_952_657_612_309_3e-2) * r
            + 2.965_605_718_285_048_912_3e-1) * r + 1.784_826_539_917_291_335_8) * r
            + 5.463_784_911_164_114_369_9) * r + 6.657_904_643_501_103_777_2;
        let denominator = ((((((2.044_263_103_389_939_785_64e-15 * r + 1.421_511_758_316_445_888_7e-7) * r
            + 1.846_318_317_510_054_681_8e-5) * r + 7.868_691_311_456_132_591e-4) * r
            + 1.487_536_129_085_061_485_25e-2) * r + 1.369_298_809_227_358_053_1e-1) * r
            + 5.998_322_065_558_879_376_9e-1) * r + 1.0;
        numerator / denominator
    };
    magnitude.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_normal_law() {
        // mpmath, 40 digits: √2·erfinv(2q).
        for (q, wanted) in [
            (0.1, 0.253_347_103_135_799_8),
            (0.425, 1.439_531_470_938_455_8),
            (0.425_1, 1.440_238_267_527_963_5),
            (0.49, 2.326_347_874_040_841),
            (0.499_999, 4.753_424_308_828_306),
            (0.499_999_999_999, 7.034_486_910_047_835),
            (0.5 - 1.0 / (1_u64 << 53) as f64, 8.209_536_151_601_387),
        ] {
            assert!((standard_normal(q) / wanted - 1.0_f64).abs() < 2e-15, "{q}");
            assert_eq!(standard_normal(-q), -standard_normal(q));
        }
    }

    #[test]
    fn uniforms_are_exact_midpoints() {
        assert_eq!(centred_uniform(0), 0.5_f64.powi(53) - 0.5);
        assert_eq!(centred_uniform(u64::MAX), 0.5 - 0.5_f64.powi(53));
        for word in [1, 0xdead_beef_dead_beef, 1 << 63, u64::MAX >> 1] {
            assert_eq!(centred_uniform(word), -centred_uniform(!word));
        }
    }

    #[test]
    fn a_longer_expansion_begins_with_the_shorter() {
        let seed = [7; SEED_LEN];
        let mut long = [0.0; 45];
        expand(&seed, &mut long);
        for p in [2, 3, 8, 13, 40] {
            let mut short = vec![0.0; p];
            let squared = expand(&seed, &mut short);
            assert_eq!(short, long[..p]);
            let plain: f64 = short.iter().map(|z| z * z).sum();
            assert!((squared / plain - 1.0).abs() < 1e-14);
        }
    }
}
