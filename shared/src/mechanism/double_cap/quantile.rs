//! The quantile Φ⁻¹ of the normal law: one sequence of operations for every argument, the same bits on every
//! machine.

#![allow(clippy::excessive_precision, reason = "the coefficients as computed")]

/// Arguments handled side by side.
pub(super) const LANES: usize = 8;

type Lanes = [f64; LANES];

/// Numerator and denominator of x/q as a function of w, lowest power first: see [`quantile`]. All are
/// positive, so that nothing cancels. Computed by `shared/tests/vectors/normal_quantile.py`, where the error is 3.7e-15.
const NUMERATOR: [f64; 13] = [
    2.506_628_274_631_007,
    0.949_814_876_682_736_7,
    0.261_328_685_554_109_65,
    0.051_310_107_306_107_58,
    0.007_701_411_863_504_14,
    0.000_913_380_062_403_080_4,
    8.585_782_700_869_62e-5,
    6.385_063_063_854_971e-6,
    3.771_796_125_501_404_5e-7,
    1.773_711_433_434_359_3e-8,
    5.933_343_165_323_706e-10,
    1.181_736_703_847_142_4e-11,
    4.148_433_745_209_16e-14,
];
const DENOMINATOR: [f64; 13] = [
    1.0,
    0.117_121_925_064_050_49,
    0.060_560_576_518_324_964,
    0.005_723_592_154_614_022_5,
    0.001_237_841_822_272_189_3,
    8.962_603_663_539_663e-5,
    1.004_816_905_416_017_3e-5,
    5.275_247_629_213_896e-7,
    3.327_106_701_313_17e-8,
    1.155_862_952_514_486_7e-9,
    3.516_309_153_246_223_4e-11,
    3.264_768_493_133_798e-13,
    2.899_243_441_157_940_5e-16,
];

/// ln((1 + r)/(1 − r))/r in powers of r², for |r| ≤ 3 − 2√2; off by less than 2e-16 (the same program).
const LOGARITHM: [f64; 7] = [
    2.000_000_000_000_000_4,
    0.666_666_666_665_521_9,
    0.400_000_000_620_425_3,
    0.285_714_159_766_656_26,
    0.222_234_375_005_832_65,
    0.181_218_440_534_003_35,
    0.168_386_974_359_040_1,
];

/// The bits of √½, 1 and 2⁵²: what separates exponent and mantissa, and turns whole numbers into floating ones.
const ROOT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
const ONE_BITS: u64 = 0x3ff0_0000_0000_0000;
const TWO_TO_52_BITS: u64 = 0x4330_0000_0000_0000;
const MANTISSA: u64 = 0x000f_ffff_ffff_ffff;

/// Room for what passes between the steps. Three short loops over it overlap in the processor, where one
/// long chain of operations would leave it waiting.
pub(super) struct Steps<const N: usize> {
    exponent: [Lanes; N],
    ratio: [Lanes; N],
}

impl<const N: usize> Steps<N> {
    pub(super) const fn new() -> Self {
        Self {
            exponent: [[0.0; LANES]; N],
            ratio: [[0.0; LANES]; N],
        }
    }

    pub(super) fn zeroize(&mut self) {
        use zeroize::Zeroize;
        self.exponent.as_flattened_mut().zeroize();
        self.ratio.as_flattened_mut().zeroize();
    }
}

/// Turns the first `count` groups of 64-bit words into standard normals x = Φ⁻¹(u), u = (⌊word/2¹²⌋ + ½)·2⁻⁵².
///
/// With q = u − ½ and w = −ln 4u(1 − u), x/q is a smooth function of w over its whole range, 0 to 51 ln 2:
/// one rational function does for centre and tails, where AS 241 (Wichura 1988) has three and a branch. The
/// relative error is below 1e-14. Nothing but +, −, ×, ÷ of IEEE 754 in this order, whole-number operations
/// and no fused ones: compilers may not reorder or fuse them, so every machine and register width has the same bits.
#[inline(always)]
pub(super) fn quantiles<const N: usize>(
    words: &[[u64; LANES]; N],
    count: usize,
    steps: &mut Steps<N>,
    normals: &mut [Lanes; N],
) {
    for at in 0..count {
        for lane in 0..LANES {
            let q = centred_uniform(words[at][lane]);
            // Both factors are exact. 2ᵏm, m between √½ and √2.
            let product = (0.5 - q) * (0.5 + q);
            let bits = product.to_bits().wrapping_add(ONE_BITS - ROOT_HALF_BITS);
            let mantissa = f64::from_bits((bits & MANTISSA) + ROOT_HALF_BITS);
            normals[at][lane] = q;
            // −(k + 2): the biased exponent as the low digits of a number beyond 2⁵², which is taken off again.
            steps.exponent[at][lane] = (TWO_TO_52 + 1_021.0) - f64::from_bits((bits >> 52) | TWO_TO_52_BITS);
            steps.ratio[at][lane] = (1.0 - mantissa) / (1.0 + mantissa);
        }
    }
    for at in 0..count {
        steps.exponent[at] = negative_logarithm(&steps.exponent[at], &steps.ratio[at]);
    }
    for at in 0..count {
        let w = &steps.exponent[at];
        let w2 = product(w, w);
        let w4 = product(&w2, &w2);
        let w8 = product(&w4, &w4);
        let numerator = polynomial(&NUMERATOR, w, &w2, &w4, &w8);
        let denominator = polynomial(&DENOMINATOR, w, &w2, &w4, &w8);
        for lane in 0..LANES {
            normals[at][lane] *= numerator[lane] / denominator[lane];
        }
    }
}

const TWO_TO_52: f64 = (1_u64 << 52) as f64;

/// The uniform number minus ½: exact, symmetric about 0, never 0 or ±½.
#[inline(always)]
fn centred_uniform(word: u64) -> f64 {
    // 1 + ⌊word/2¹²⌋·2⁻⁵², put together from its bits.
    (f64::from_bits((word >> 12) | ONE_BITS) - 1.5) + 0.5 / TWO_TO_52
}

/// exponent·ln 2 + ln((1 + ratio)/(1 − ratio)).
#[inline(always)]
fn negative_logarithm(exponent: &Lanes, ratio: &Lanes) -> Lanes {
    let c = &LOGARITHM;
    let mut sum = *exponent;
    for lane in 0..LANES {
        let r = ratio[lane];
        let r2 = r * r;
        let r4 = r2 * r2;
        let low = (c[0] + c[1] * r2) + (c[2] + c[3] * r2) * r4;
        let high = (c[4] + c[5] * r2) + c[6] * r4;
        sum[lane] = exponent[lane] * std::f64::consts::LN_2 + r * (low + high * (r4 * r4));
    }
    sum
}

/// Estrin's scheme: few steps wait for one another.
#[inline(always)]
fn polynomial(c: &[f64; 13], w: &Lanes, w2: &Lanes, w4: &Lanes, w8: &Lanes) -> Lanes {
    let low = sum(&four(c, 0, w, w2), &four(c, 4, w, w2), w4);
    let high = sum(&four(c, 8, w, w2), &[c[12]; LANES], w4);
    sum(&low, &high, w8)
}

/// The cubic polynomial that begins with coefficient `at`.
#[inline(always)]
fn four(c: &[f64; 13], at: usize, w: &Lanes, w2: &Lanes) -> Lanes {
    let low = sum(&[c[at]; LANES], &[c[at + 1]; LANES], w);
    let high = sum(&[c[at + 2]; LANES], &[c[at + 3]; LANES], w);
    sum(&low, &high, w2)
}

/// a + b·x.
#[inline(always)]
fn sum(a: &Lanes, b: &Lanes, x: &Lanes) -> Lanes {
    let mut out = *a;
    for lane in 0..LANES {
        out[lane] = a[lane] + b[lane] * x[lane];
    }
    out
}

#[inline(always)]
fn product(a: &Lanes, b: &Lanes) -> Lanes {
    let mut out = *a;
    for lane in 0..LANES {
        out[lane] = a[lane] * b[lane];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Φ⁻¹ at the middle of the cell that the word stands for.
    fn normal(word: u64) -> f64 {
        let mut normals = [[0.0; LANES]];
        quantiles(&[[word; LANES]], 1, &mut Steps::new(), &mut normals);
        normals[0][0]
    }

    #[test]
    fn quantiles_are_those_of_the_normal_law() {
        // mpmath, 40 digits: √2·erfinv(2q), q = (⌊word/2¹²⌋ + ½)·2⁻⁵² − ½.
        for (cell, wanted) in [
            (0, -8.20953615160138686),
            (1, -8.07657100413012465),
            (2, -8.01401594877554565),
            (1000, -7.24132834781036494),
            (1000000, -6.23768652701108971),
            (10000000000, -4.58960328830998399),
            (10000000000000, -2.8450179459701885),
            (4503599627370, -3.09023230616781328),
            (45035996273705, -2.3263478740408366),
            (135107988821115, -1.88079360815124892),
            (315251973915935, -1.47579102817916945),
            (337319612090050, -1.44023826752796307),
            (338220332015524, -1.43882539275253959),
            (450359962737050, -1.28155156554459933),
            (900719925474099, -0.841621233572913967),
            (1351079888211149, -0.524400512708040337),
            (1801439850948198, -0.253347103135799741),
            (2026619832316723, -0.125661346855073866),
            (2206763817411543, -0.0250689082587107797),
            (2251349453722511, -0.000250662830087729201),
            (2251799809181648, -2.50662820373871144e-9),
            (2251799813685247, -2.78291642467176692e-16),
        ] {
            let found = normal(cell << 12);
            assert!((found / wanted - 1.0_f64).abs() < 5e-15, "{cell}: {found:e} {wanted:e}");
            assert_eq!(normal(!(cell << 12)), -found);
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
}
