//! The quantile Φ⁻¹ of the normal law: one sequence of operations for every argument, the same bits on every
//! machine.

#![allow(clippy::excessive_precision, reason = "the coefficients as computed")]

use pulp::Simd;

/// Arguments of a group: two registers of AVX2, one of AVX-512.
pub(super) const NORMAL_LANES: usize = 8;

type Lanes = [f64; NORMAL_LANES];

/// Numerator and denominator of x/q as a function of w, lowest power first: see [`quantile`]. All are
/// positive, so that nothing cancels. Computed by `shared/tests/vectors/normal_quantile.py`, where the error is 3.7e-15.
const NUMERATOR: [f64; 13] = [
    2.506_628_274_631_007,
    0.949_814_876_682_758_1,
    0.261_328_685_554_114_7,
    0.051_310_107_306_109_014,
    0.007_701_411_863_504_446,
    0.000_913_380_062_403_132_3,
    8.585_782_700_870_331e-5,
    6.385_063_063_855_729e-6,
    3.771_796_125_502_013_3e-7,
    1.773_711_433_434_669e-8,
    5.933_343_165_325_938e-10,
    1.181_736_703_847_361_1e-11,
    4.148_433_745_209_26e-14,
];
const DENOMINATOR: [f64; 13] = [
    1.0,
    0.117_121_925_064_059_05,
    0.060_560_576_518_324_735,
    0.005_723_592_154_614_544,
    0.001_237_841_822_272_200_4,
    8.962_603_663_540_827e-5,
    1.004_816_905_416_070_6e-5,
    5.275_247_629_214_985e-7,
    3.327_106_701_313_535_6e-8,
    1.155_862_952_514_870_3e-9,
    3.516_309_153_247_242_5e-11,
    3.264_768_493_134_108e-13,
    2.899_243_441_157_845_4e-16,
];

/// ln((1 + r)/(1 − r))/r in powers of r², for |r| ≤ 3 − 2√2; off by 2.3e-16 (the same program).
const LOGARITHM: [f64; 7] = [
    2.000_000_000_000_000_4,
    0.666_666_666_665_527_8,
    0.400_000_000_618_991_9,
    0.285_714_159_916_759_1,
    0.222_234_367_543_521_63,
    0.181_218_614_870_974_8,
    0.168_385_444_326_596_5,
];

/// The bits of √½, 1 and 2⁵²: what separates exponent and mantissa, and turns whole numbers into floating ones.
const ROOT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
const ONE_BITS: u64 = 0x3ff0_0000_0000_0000;
const TWO_TO_52_BITS: u64 = 0x4330_0000_0000_0000;
const MANTISSA: u64 = 0x000f_ffff_ffff_ffff;

/// Room for what passes between the loops. Three short loops over it overlap in the processor, where one
/// long chain of operations would leave it waiting.
pub(super) struct Scratch<const N: usize> {
    exponent: [Lanes; N],
    ratio: [Lanes; N],
}

impl<const N: usize> Scratch<N> {
    pub(super) const fn new() -> Self {
        Self {
            exponent: [[0.0; NORMAL_LANES]; N],
            ratio: [[0.0; NORMAL_LANES]; N],
        }
    }
}

/// How a sum of a product is rounded: after each of the two (`FUSED` false: the same bits on every machine), or once,
/// where the processor can, which takes a sixth less time.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic<S, const FUSED: bool>(pub(super) S);

/// Turns the first `count` groups of 64-bit words into standard normals x = Φ⁻¹(u), u = (⌊word/2¹²⌋ + ½)·2⁻⁵².
///
/// With q = u − ½ and w = −ln 4u(1 − u), x/q is a smooth function of w over its whole range, 0 to 51 ln 2:
/// one rational function does for centre and tails, where AS 241 (Wichura 1988) has three and a branch. The
/// relative error is below 1e-14. Nothing but +, −, ×, ÷ of IEEE 754 in this order and whole-number operations;
/// compilers may not reorder or fuse them. So, unless fused, every machine and register width has the same bits.
#[inline(always)]
pub(super) fn quantiles<S: Simd, const FUSED: bool, const N: usize>(
    arithmetic: Arithmetic<S, FUSED>,
    words: &[[u64; NORMAL_LANES]; N],
    count: usize,
    scratch: &mut Scratch<N>,
    normals: &mut [Lanes; N],
) {
    let count = count * NORMAL_LANES;
    let normals = &mut normals.as_flattened_mut()[..count];
    let exponents = &mut scratch.exponent.as_flattened_mut()[..count];
    let ratios = &mut scratch.ratio.as_flattened_mut()[..count];
    for (((word, q), exponent), ratio) in words
        .as_flattened()
        .iter()
        .zip(&mut *normals)
        .zip(&mut *exponents)
        .zip(&mut *ratios)
    {
        *q = centred_uniform(*word);
        // Both factors are exact. Their product is 2ᵏm, m between √½ and √2.
        let product = (0.5 - *q) * (0.5 + *q);
        let bits = product.to_bits().wrapping_add(ONE_BITS - ROOT_HALF_BITS);
        let mantissa = f64::from_bits((bits & MANTISSA) + ROOT_HALF_BITS);
        // −(k + 2): the biased exponent as the low digits of a number beyond 2⁵², which is taken off again.
        *exponent = (TWO_TO_52 + 1_021.0) - f64::from_bits((bits >> 52) | TWO_TO_52_BITS);
        *ratio = (1.0 - mantissa) / (1.0 + mantissa);
    }
    let (w, _) = S::as_mut_simd_f64s(exponents);
    let (ratios, _) = S::as_simd_f64s(ratios);
    for (w, ratio) in w.iter_mut().zip(ratios) {
        *w = arithmetic.negative_logarithm(*w, *ratio);
    }
    let (normals, _) = S::as_mut_simd_f64s(normals);
    // Two registers at a time share the coefficients.
    let (w_pairs, w_last) = w.as_chunks::<2>();
    let (normal_pairs, normal_last) = normals.as_chunks_mut::<2>();
    for (normals, w) in normal_pairs.iter_mut().zip(w_pairs) {
        *normals = arithmetic.times_ratio(*normals, *w);
    }
    for (normal, w) in normal_last.iter_mut().zip(w_last) {
        [*normal] = arithmetic.times_ratio([*normal], [*w]);
    }
}

const TWO_TO_52: f64 = (1_u64 << 52) as f64;

/// The uniform number minus ½: exact, symmetric about 0, never 0 or ±½.
#[inline(always)]
fn centred_uniform(word: u64) -> f64 {
    // 1 + ⌊word/2¹²⌋·2⁻⁵², put together from its bits.
    (f64::from_bits((word >> 12) | ONE_BITS) - 1.5) + 0.5 / TWO_TO_52
}

// Loops, no closures: what is not put in its caller's place loses the wide registers.
impl<S: Simd, const FUSED: bool> Arithmetic<S, FUSED> {
    /// exponent·ln 2 + ln((1 + r)/(1 − r)).
    #[inline(always)]
    fn negative_logarithm(self, exponent: S::f64s, r: S::f64s) -> S::f64s {
        let [c0, c1, c2, c3, c4, c5, c6] = LOGARITHM;
        let [exponent, r] = [[exponent], [r]];
        let r2 = self.product(r, r);
        let r4 = self.product(r2, r2);
        let low = self.cubic([c0, c1, c2, c3], r2, r4);
        let high = self.sum(self.linear(c4, c5, r2), self.constant(c6), r4);
        let logarithm = self.product(r, self.sum(low, high, self.product(r4, r4)));
        let [w] = self.sum(logarithm, exponent, self.constant(std::f64::consts::LN_2));
        w
    }

    /// q·(x/q at w).
    #[inline(always)]
    fn times_ratio<const U: usize>(self, mut q: [S::f64s; U], w: [S::f64s; U]) -> [S::f64s; U] {
        let w2 = self.product(w, w);
        let w4 = self.product(w2, w2);
        let powers = [w, w2, w4, self.product(w4, w4)];
        let numerator = self.polynomial(&NUMERATOR, powers);
        let denominator = self.polynomial(&DENOMINATOR, powers);
        for at in 0..U {
            let ratio = self.0.div_f64s(numerator[at], denominator[at]);
            q[at] = self.0.mul_f64s(q[at], ratio);
        }
        q
    }

    /// By Estrin's scheme, from w, w², w⁴ and w⁸: few steps wait for one another.
    #[inline(always)]
    fn polynomial<const U: usize>(
        self,
        c: &[f64; 13],
        [w, w2, w4, w8]: [[S::f64s; U]; 4],
    ) -> [S::f64s; U] {
        let first = self.cubic([c[0], c[1], c[2], c[3]], w, w2);
        let second = self.cubic([c[4], c[5], c[6], c[7]], w, w2);
        let third = self.cubic([c[8], c[9], c[10], c[11]], w, w2);
        let low = self.sum(first, second, w4);
        let high = self.sum(third, self.constant(c[12]), w4);
        self.sum(low, high, w8)
    }

    #[inline(always)]
    fn cubic<const U: usize>(self, c: [f64; 4], x: [S::f64s; U], x2: [S::f64s; U]) -> [S::f64s; U] {
        let low = self.linear(c[0], c[1], x);
        let high = self.linear(c[2], c[3], x);
        self.sum(low, high, x2)
    }

    #[inline(always)]
    fn linear<const U: usize>(self, a: f64, b: f64, x: [S::f64s; U]) -> [S::f64s; U] {
        self.sum(self.constant(a), self.constant(b), x)
    }

    #[inline(always)]
    fn constant<const U: usize>(self, value: f64) -> [S::f64s; U] {
        [self.0.splat_f64s(value); U]
    }

    /// a + b·x.
    #[inline(always)]
    fn sum<const U: usize>(
        self,
        mut a: [S::f64s; U],
        b: [S::f64s; U],
        x: [S::f64s; U],
    ) -> [S::f64s; U] {
        for at in 0..U {
            a[at] = if FUSED {
                self.0.mul_add_e_f64s(b[at], x[at], a[at])
            } else {
                self.0.add_f64s(a[at], self.0.mul_f64s(b[at], x[at]))
            };
        }
        a
    }

    #[inline(always)]
    fn product<const U: usize>(self, mut a: [S::f64s; U], b: [S::f64s; U]) -> [S::f64s; U] {
        for at in 0..U {
            a[at] = self.0.mul_f64s(a[at], b[at]);
        }
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Φ⁻¹ at the middle of the cell that the word stands for.
    fn normal(word: u64) -> f64 {
        let mut normals = [[0.0; NORMAL_LANES]];
        quantiles(
            Arithmetic::<_, false>(pulp::Scalar),
            &[[word; NORMAL_LANES]],
            1,
            &mut Scratch::new(),
            &mut normals,
        );
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
            let quantile = normal(cell << 12);
            let off: f64 = quantile / wanted - 1.0;
            assert!(off.abs() < 5e-15, "{cell}: {quantile:e} {wanted:e}");
            assert_eq!(normal(!(cell << 12)), -quantile);
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
