//! What a gap between two eigenvalues says where noise of variance V lies between their directions
//! (`docs/derivations/eigengap.md`).
//!
//! Everything is in units of 2√V: a true gap is ν, the one that shows is R. Restricted to the two directions the noise
//! is a symmetric 2 × 2 matrix with variance V off the diagonal and 2V on it, so that R is the length of a vector of two
//! standard normals around one of length ν: R has the law of Rice, and the angle is half of that vector's.

use std::f64::consts::PI;

use crate::search::bisect;

/// Below this, equal eigenvalues show a gap as large in one study of twenty: √(2 ln 20), in units of 2√V.
pub(crate) const EQUAL_EIGENVALUES_GAP: f64 = 2.447_746_830_680_816;

/// The two ends of a range of 90 % have this probability each.
const TAIL: f64 = 0.05;

/// From this ν on the mean squared sine comes from its asymptotic series, good to 1e-4 of itself.
const LARGE_GAP: f64 = 10.0;

/// From this x on the Bessel functions come from their asymptotic series.
const LARGE_ARGUMENT: f64 = 100.0;

/// Mean squared sine between a direction and its noisy version if noise mixes it with one other, at a true gap `nu`:
/// ½ at 0, 1/(4ν²) = V/gap² far away.
///
/// `h(ν) = ½[1 − √(π/8)·ν·e^(−ν²/4)(I₀(ν²/4) + I₁(ν²/4))]`.
pub(crate) fn mean_squared_sine(nu: f64) -> f64 {
    if nu >= LARGE_GAP {
        let unit = 0.25 / (nu * nu);
        return unit * (1.0 + unit * (3.0 + 30.0 * unit));
    }
    let (i0, i1) = scaled_bessel(0.25 * nu * nu);
    0.5 * (1.0 - (PI / 8.0).sqrt() * nu * (i0 + i1))
}

/// The true gaps at which one as small as `seen` shows in 95 % and in 5 % of studies: the ends of a range that holds
/// the true gap in 90 %. The lower end is 0 below [`EQUAL_EIGENVALUES_GAP`].
pub(crate) fn range_of_gap(seen: f64) -> (f64, f64) {
    (gap_at(seen, 1.0 - TAIL), gap_at(seen, TAIL))
}

/// The ν with P(R ≤ seen | ν) = `probability`; 0 where even ν = 0 leaves less.
fn gap_at(seen: f64, probability: f64) -> f64 {
    let exceeds = |nu: f64| rice_cdf(seen, nu) > probability;
    if !exceeds(0.0) {
        return 0.0;
    }
    let (low, high) = bisect(0.0, seen + 4.0, 60, exceeds);
    0.5 * (low + high)
}

/// P(R ≤ x | ν) of the law of Rice, `∫₀ˣ r·exp(−(r−ν)²/2)·e^(−rν)I₀(rν) dr`, by Simpson's rule.
fn rice_cdf(x: f64, nu: f64) -> f64 {
    const STEPS: usize = 400;
    // Beyond nine standard deviations there is less than 1e-18.
    let from = (nu - 9.0).max(0.0);
    let to = x.min(nu + 9.0);
    if to <= from {
        return 0.0;
    }
    let step = (to - from) / STEPS as f64;
    let density = |r: f64| r * (-0.5 * (r - nu) * (r - nu)).exp() * scaled_bessel(r * nu).0;
    let inner: f64 = (1..STEPS)
        .map(|i| density(from + step * i as f64) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    (step / 3.0 * (density(from) + inner + density(to))).min(1.0)
}

/// `e^(−x)I₀(x)` and `e^(−x)I₁(x)` for x ≥ 0: the products themselves overflow.
fn scaled_bessel(x: f64) -> (f64, f64) {
    if x > LARGE_ARGUMENT {
        // e^(−x)I_m(x)·√(2πx) = 1 − (μ−1)/8x + (μ−1)(μ−9)/(2!(8x)²) − …, μ = 4m².
        let series = |mu: f64| {
            let (mut sum, mut term) = (1.0, 1.0);
            for i in 1..9 {
                let odd = f64::from(2 * i - 1);
                term *= -(mu - odd * odd) / (f64::from(i) * 8.0 * x);
                sum += term;
            }
            sum / (2.0 * PI * x).sqrt()
        };
        return (series(0.0), series(4.0));
    }
    // The trapezoidal rule for (1/π)∫₀^π e^(x(cos t − 1)) cos(mt) dt; on a period of a smooth function its error falls
    // exponentially with the number of points.
    const POINTS: usize = 64;
    let (mut i0, mut i1) = (0.0, 0.0);
    for j in 0..=POINTS {
        let cosine = (PI * j as f64 / POINTS as f64).cos();
        let weight = if j == 0 || j == POINTS { 0.5 } else { 1.0 };
        let value = weight * (x * (cosine - 1.0)).exp();
        i0 += value;
        i1 += value * cosine;
    }
    (i0 / POINTS as f64, i1 / POINTS as f64)
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Abramowitz and Stegun, table 9.8 (x = 1, 5, 10), and the two branches where they meet.
    #[test]
    fn bessel_functions_are_those_of_the_tables() {
        for (x, i0, i1) in [
            (0.0, 1.0, 0.0),
            (1.0, 0.465_759_607_6, 0.207_910_415_3),
            (5.0, 0.183_540_812_6, 0.163_972_266_9),
            (10.0, 0.127_833_337_2, 0.121_262_681_4),
        ] {
            let (a, b) = scaled_bessel(x);
            assert!((a - i0).abs() < 1e-9 && (b - i1).abs() < 1e-9, "{x}");
        }
        let (below, above) = (
            scaled_bessel(LARGE_ARGUMENT),
            scaled_bessel(LARGE_ARGUMENT + 1e-9),
        );
        assert!((below.0 - above.0).abs() < 1e-12 && (below.1 - above.1).abs() < 1e-12);
    }

    /// Against the 2 × 2 matrices themselves. 200,000 draws: a deviation of five standard errors in one of the eight
    /// numbers has a probability below 1e-5.
    #[test]
    fn the_law_is_that_of_two_by_two_matrices() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        const DRAWS: usize = 200_000;
        for nu in [0.0, 0.7, 2.0, 6.0] {
            let x = nu + 0.8;
            let (mut sines, mut below) = (0.0, 0.0);
            for _ in 0..DRAWS {
                // In units of 2√V: half the difference of the diagonal entries, and the entry off it.
                let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
                let (along, across) = (nu + normal(), normal());
                let cosine = along / along.hypot(across);
                sines += 0.5 * (1.0 - cosine);
                below += f64::from(along.hypot(across) <= x);
            }
            let draws = DRAWS as f64;
            let share = rice_cdf(x, nu);
            assert!((sines / draws - mean_squared_sine(nu)).abs() < 5.0 * 0.5 / draws.sqrt());
            assert!((below / draws - share).abs() < 5.0 * 0.5 / draws.sqrt());
        }
        assert!((mean_squared_sine(0.0) - 0.5).abs() < 1e-15);
        let step = 1e-6;
        let (near, far) = (
            mean_squared_sine(LARGE_GAP - step),
            mean_squared_sine(LARGE_GAP),
        );
        assert!((near / far - 1.0).abs() < 1e-4, "{near} {far}");
        assert!((mean_squared_sine(1e4) / 0.25e-8 - 1.0).abs() < 1e-6);
        assert_eq!(mean_squared_sine(f64::INFINITY), 0.0);
    }

    #[test]
    fn the_range_inverts_the_law() {
        assert_eq!(range_of_gap(2.4).0, 0.0);
        assert!(range_of_gap(EQUAL_EIGENVALUES_GAP + 1e-3).0 > 0.0);
        for seen in [2.6, 5.0, 40.0, 1e6] {
            let (low, high) = range_of_gap(seen);
            assert!((rice_cdf(seen, low) - 0.95).abs() < 1e-6, "{seen}");
            assert!((rice_cdf(seen, high) - 0.05).abs() < 1e-6, "{seen}");
        }
        // Far away the law is normal.
        let (low, high) = range_of_gap(1e3);
        assert!((low - (1e3 - 1.645)).abs() < 2e-3 && (high - (1e3 + 1.645)).abs() < 2e-3);
    }
}
