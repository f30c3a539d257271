//! Gaussian noise in floating point, released on a coarse grid, and what the arithmetic costs in privacy.
//!
//! A number released as it was computed gives the row away now and then: a sum near zero keeps the low bits of
//! its larger part, so that its last digits tell a product that was there from one that was not (Mironov 2012). So each
//! sum P + s·z is rounded to a grid of h = 2ᵉ, at most s/64, e from the standard deviations alone. That is
//! post-processing of a sum, and raises the noise by less than 1.1e-5 of s.
//!
//! What is left (`docs/derivations/gaussian.md`, "Floating point"): for |z| ≤ 20 + 1/s, whatever the row, the ratio of what
//! is computed to the law of real numbers is, for each cell of the grid, within 1 ± κ, κ = 2⁻⁴⁴(1 + 1/16s)/L, L = h/s. d
//! independent entries multiply: with K = dκ an (ε, δ) of real numbers is (ε + 2K, e^K·δ + 1e-80) here. No event
//! separates two rows any more.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::packed::packed_len;

/// Grid steps per standard deviation, at least: 2⁶.
const STEPS_PER_SD: f64 = 64.0;
/// Where the tail begins that rand_distr draws from uniform numbers of 52 bits, too coarse far out.
const TAIL_START: f64 = 3.654_152_885_361_009;

/// `N(0, sd²)` added to a number, on a grid.
#[derive(Clone, Copy, Debug)]
pub(in crate::mechanism) struct RoundedGaussian {
    diagonal_sd: f64,
    off_diagonal_sd: f64,
    grid: f64,
    /// 1.5·2⁵²h: beside it there is no number between two of the grid.
    rounding_offset: f64,
}

impl RoundedGaussian {
    /// Noise of these standard deviations, on the grid of the smaller one.
    pub(in crate::mechanism) fn new(diagonal_sd: f64, off_diagonal_sd: f64) -> Self {
        let smaller = diagonal_sd.min(off_diagonal_sd);
        // The power of two at or below it.
        let power = f64::from_bits(smaller.to_bits() & (0x7ff << 52));
        Self {
            diagonal_sd,
            off_diagonal_sd,
            grid: power / STEPS_PER_SD,
            rounding_offset: 1.5 * (1_u64 << 52) as f64 * power / STEPS_PER_SD,
        }
    }

    /// On the diagonal and off it.
    pub(super) fn standard_deviations(&self) -> [f64; 2] {
        [self.diagonal_sd, self.off_diagonal_sd]
    }

    /// h, a power of two: every released number is a multiple of it.
    pub(in crate::mechanism) fn grid(&self) -> f64 {
        self.grid
    }

    /// `value + N(0, sd²)` in steps of the grid, to the nearest one, with the standard deviation of the diagonal or of
    /// what is off it. For a value of at most half a step, f64 costs no more than
    /// [`arithmetic_slack`](Self::arithmetic_slack) says.
    pub(in crate::mechanism) fn steps<R: Rng + ?Sized>(
        &self,
        value: f64,
        diagonal: bool,
        rng: &mut R,
    ) -> i64 {
        let sd = if diagonal {
            self.diagonal_sd
        } else {
            self.off_diagonal_sd
        };
        // Division by a power of two is exact.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "some forty standard deviations of 128 steps"
        )]
        {
            ((value + sd * standard_normal(rng)) / self.grid).round_ties_even() as i64
        }
    }

    /// h/2s: half a step in units of the smaller standard deviation.
    pub(super) fn half_cell(&self) -> f64 {
        0.5 * self.grid / self.diagonal_sd.min(self.off_diagonal_sd)
    }

    // Called for each entry: a call, where the compiler chose one, costs a fifth of a report.
    /// `value + N(0, diagonal_sd²)` on the grid.
    #[inline(always)]
    pub(super) fn on_diagonal<R: Rng + ?Sized>(&self, value: f64, rng: &mut R) -> f32 {
        self.round(value + self.diagonal_sd * standard_normal(rng))
    }

    /// `value + N(0, off_diagonal_sd²)` on the grid.
    #[inline(always)]
    pub(super) fn off_diagonal<R: Rng + ?Sized>(&self, value: f64, rng: &mut R) -> f32 {
        self.round(value + self.off_diagonal_sd * standard_normal(rng))
    }

    /// To the nearest grid number without a branch. Zero comes out without a sign, and below 2²⁴h the f32 is exact.
    #[inline]
    fn round(&self, sum: f64) -> f32 {
        #[allow(clippy::cast_possible_truncation)]
        {
            ((sum + self.rounding_offset) - self.rounding_offset) as f32
        }
    }

    /// 2K: what computing in f64 adds at most to ε of a report of dimension p (and relatively to δ, half of it).
    pub(super) fn arithmetic_slack(&self, dimension: usize) -> f64 {
        let larger = self.diagonal_sd.max(self.off_diagonal_sd);
        let smaller = self.diagonal_sd.min(self.off_diagonal_sd);
        let shortest = self.grid / larger;
        let kappa = (1.0 + 1.0 / (16.0 * smaller)) / ((1_u64 << 44) as f64 * shortest);
        2.0 * packed_len(dimension) as f64 * kappa
    }
}

/// A standard normal number. Marsaglia's tail (1964) in place of the library's.
#[inline(always)]
fn standard_normal<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    let z: f64 = StandardNormal.sample(rng);
    if z.abs() > TAIL_START {
        return tail(rng).copysign(z);
    }
    z
}

/// A normal number given that it is above [`TAIL_START`]: once in 3,900 draws.
#[cold]
fn tail<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    loop {
        let beyond = -libm::log(open_uniform(rng)) / TAIL_START;
        if -2.0 * libm::log(open_uniform(rng)) > beyond * beyond {
            return TAIL_START + beyond;
        }
    }
}

/// Uniform in (0, 1) with 53 significant bits, however small.
fn open_uniform<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    let mut exponent = -1;
    loop {
        let word = rng.next_u64();
        exponent -= word.leading_zeros().cast_signed();
        // More than 10 words of zeros: probability 2⁻⁶⁴⁰.
        if word != 0 || exponent < -640 {
            break;
        }
    }
    let significand = 1.0 + (rng.next_u64() >> 12) as f64 * (1.0 / (1_u64 << 52) as f64);
    libm::ldexp(significand, exponent)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::{
        mechanism::{Calibration, Mechanism, MechanismKind, script::Script},
        preprocess::{BoundedRow, Norm, bounded},
        privacy::gaussian,
    };

    const GAUSSIAN: [MechanismKind; 2] = [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
    ];

    fn mechanism(kind: MechanismKind, p: usize, epsilon: f64, delta: f64) -> Mechanism {
        let budget = kind.budget(epsilon, Some(delta)).unwrap();
        Mechanism::derive(kind, Calibration::Analytic, p, budget).unwrap()
    }

    fn prepared(values: Vec<f64>) -> BoundedRow {
        bounded(values, Norm::Clip { radius: 1.0 })
    }

    fn decode(payload: &[u8]) -> Vec<f32> {
        let (numbers, _) = payload.as_chunks::<4>();
        numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// A generator given that the ziggurat draws from layer 200 a point within 2⁻³⁰ of a target, in units of 2⁻⁵¹ of the
    /// layer's width: rare events of the real one, with their own relative probabilities.
    fn near(target: i64, seed: u64) -> Script<impl FnMut() -> u64> {
        let mut inner = ChaCha20Rng::seed_from_u64(seed);
        Script(move || {
            let near = inner.next_u64() >> 43;
            // u = k·2⁻⁵¹ − 1 for the upper 52 bits k.
            let k = (1_i64 << 51) + target + near.cast_signed() - (1 << 20);
            k.cast_unsigned() << 12 | 200
        })
    }

    /// x₂₀₀ of the ziggurat: what u = ½ gives there, doubled.
    fn layer_width() -> f64 {
        let z: f64 = StandardNormal.sample(&mut near(1 << 50, 0));
        2.0 * z
    }

    /// Released values near zero, with a product of ¼ and with none: with ac0c3a1 the sums of the one are
    /// multiples of 2⁻⁵⁴ and those of the other are not, which tells the rows apart from one value.
    #[test]
    fn low_bits_near_zero_tell_nothing() {
        for kind in GAUSSIAN {
            let mechanism = mechanism(kind, 2, 16.0, 1e-3);
            let (rows, products) = (
                [prepared(vec![0.5, 0.5]), prepared(vec![0.5, 0.0])],
                [0.25, 0.0],
            );
            let sd = mechanism.noise_model().off_diagonal_sd();
            let width = layer_width();
            let seen = [0, 1].map(|side| {
                // The noise that brings the off-diagonal sum to zero, within 2⁻³⁰.
                let target = (-products[side] / (sd * width) * (1_u64 << 51) as f64).round();
                let mut rng = near(target as i64, 9);
                let mut fine = 0;
                let mut values = BTreeSet::new();
                for _ in 0..1_000 {
                    let value = decode(&mechanism.perturb_with(&rows[side], &mut rng))[1];
                    assert!(value.abs() < 1e-8, "not near zero: {value}");
                    fine += u32::from((f64::from(value) * (1_u64 << 54) as f64).fract() != 0.0);
                    values.insert(value.to_bits());
                }
                (fine, values)
            });
            assert_eq!(seen[0], seen[1], "{kind}: a value of one row only");
            assert!(seen[0].1.iter().eq(&[0]), "{kind}: {:?}", seen[0].1);
        }
    }

    #[test]
    fn every_released_value_is_on_the_grid() {
        for kind in GAUSSIAN {
            for (epsilon, delta) in [(0.01, 1e-12), (1.0, 1e-6), (16.0, 0.9)] {
                let mechanism = mechanism(kind, 20, epsilon, delta);
                let sigma = mechanism.gaussian_noise().unwrap().sigma();
                let smaller = match kind {
                    MechanismKind::IsotropicGaussian => sigma * std::f64::consts::FRAC_1_SQRT_2,
                    _ => sigma,
                };
                let grid = smaller.log2().floor().exp2() / 64.0;
                let mut rng = ChaCha20Rng::seed_from_u64(4);
                let row = prepared((1..=20).map(|i| 0.05 * f64::from(i).sin()).collect());
                for value in (0..20).flat_map(|_| decode(&mechanism.perturb_with(&row, &mut rng))) {
                    assert!((f64::from(value) / grid).fract() == 0.0, "{kind} {value}");
                    assert!(value != 0.0 || value.is_sign_positive());
                }
            }
        }
    }

    /// P(N(0, 1) > x).
    fn upper(x: f64) -> f64 {
        0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2)
    }

    /// Shares of 4 million draws beyond eight points, in the tail too; 20 comparisons with 5.5 standard
    /// deviations: a correct sampler fails for one seed in a million.
    #[test]
    fn the_tail_has_its_law() {
        const DRAWS: u32 = 4_000_000;
        let mut rng = ChaCha20Rng::seed_from_u64(17);
        let points = [0.5, 1.0, 2.0, 3.0, 3.65, 3.7, 4.0, 4.5];
        let mut beyond = [[0_u32; 8]; 2];
        for _ in 0..DRAWS {
            let z = standard_normal(&mut rng);
            for (count, point) in beyond[usize::from(z < 0.0)].iter_mut().zip(points) {
                *count += u32::from(z.abs() > point);
            }
        }
        for side in beyond {
            for (count, point) in side.into_iter().zip(points) {
                let share = upper(point);
                let expected = f64::from(DRAWS) * share;
                let z = (f64::from(count) - expected) / (expected * (1.0 - share)).sqrt();
                assert!(z.abs() < 5.5, "{point}: {count}, not {expected}");
            }
        }
        // Conditional on the tail: P(Z > 5 | Z > start).
        let draws = 400_000;
        let count = (0..draws).filter(|_| tail(&mut rng) > 5.0).count();
        let share = upper(5.0) / upper(TAIL_START);
        let expected = f64::from(draws) * share;
        let off = (count as f64 - expected).abs();
        assert!(off < 5.5 * expected.sqrt(), "{count}, not {expected}");
    }

    /// The odds that a released number moves, summed over the grid: rows that differ in one entry off the diagonal, by the
    /// whole sensitivity. What is stated covers them; the continuous law does not, by up to 3.4 %.
    #[test]
    fn the_stated_probability_covers_the_grid() {
        // Of a cell, from the side where nothing cancels.
        let cell = |low: f64, high: f64| match low + high > 0.0 {
            true => upper(low) - upper(high),
            false => upper(-high) - upper(-low),
        };
        for (epsilon, delta) in [(1.0, 1e-6), (8.4, 1e-6), (2.0, 1e-7), (5.0, 1e-7)] {
            let mechanism = mechanism(MechanismKind::IsotropicGaussian, 2, epsilon, delta);
            let sigma = mechanism.gaussian_noise().unwrap().sigma();
            let sd = sigma * std::f64::consts::FRAC_1_SQRT_2;
            let step = sd.log2().floor().exp2() / 64.0 / sd;
            // Products of ½ and −½, in standard deviations: whole steps.
            let half = 0.5 / sd;
            let reach = ((12.0 + half) / step) as i32;
            let mut covered = 0.0;
            for k in -reach..=reach {
                let at = f64::from(k) * step;
                let (low, high) = (at - 0.5 * step, at + 0.5 * step);
                let (own, other) = (cell(low - half, high - half), cell(low + half, high + half));
                if own > 0.0 && other > 0.0 && (own / other).ln().abs() > epsilon {
                    covered += own;
                }
            }
            let stated = mechanism.privacy_loss_tail(epsilon);
            let continuous = gaussian::privacy_loss_tail(sigma, gaussian::SENSITIVITY, epsilon);
            assert!(
                covered <= stated,
                "{epsilon} {delta}: {covered:e}, {stated:e}"
            );
            assert!(covered > continuous && stated < 1.05 * continuous);
        }
    }

    #[test]
    fn small_uniform_numbers_keep_their_bits() {
        // 130 zero bits, then a word that is odd.
        let mut words = [0, 0, 1 << 61].into_iter();
        let mut rng = Script(|| words.next().unwrap_or(u64::MAX));
        let expected = (2.0 - f64::EPSILON) * (-131.0_f64).exp2();
        assert_eq!(open_uniform(&mut rng), expected);
    }
}
