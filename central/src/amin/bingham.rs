//! Exact draws from the Bingham distribution on the unit sphere.

use eigenveil_estimation::{linalg::symmetric_eigen, search::bisect};
use eigenveil_shared::{Error, Result};
use nalgebra::{DMatrix, DVector};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

use crate::input::generator::Generator;

/// More proposals than this indicate an error: the acceptance rate is above 1/50 up to d in the thousands.
const MAX_PROPOSALS: usize = 1_000_000;

/// A unit vector u of density `∝ exp(uᵀBu)`, B symmetric `d × d`: rejection from an angular central Gaussian (Kent,
/// Ganeiban & Mardia 2013).
///
/// With A = λ_max I − B ≽ 0 and Ω = I + 2A/b the envelope has density ∝ (uᵀΩu)^{−d/2}, so that a proposal is accepted
/// with probability `e^{−uᵀAu}·(uᵀΩu)^{d/2}/M`, `M = e^{−(d−b)/2}(d/b)^{d/2}`. The power is **+d/2**: with −d/2, as in
/// two published libraries, the distribution is a different one and ε does not hold (`docs/central.md`).
pub(super) fn draw(b_matrix: &DMatrix<f64>, rng: &mut Generator) -> Result<DVector<f64>> {
    let eigen = symmetric_eigen(b_matrix)?;
    let largest = eigen.values.max();
    let a: Vec<f64> = eigen.values.iter().map(|value| largest - value).collect();
    let in_eigenbasis = draw_diagonal(&a, rng)?;
    let u = &eigen.vectors * DVector::from_vec(in_eigenbasis);
    let length = u.norm();
    Ok(u.unscale(length))
}

/// A unit vector of density `∝ exp(−Σ aᵢuᵢ²)`, all `aᵢ ≥ 0`, one of them 0.
fn draw_diagonal(a: &[f64], rng: &mut Generator) -> Result<Vec<f64>> {
    let d = a.len() as f64;
    let b = envelope(a);
    let omega: Vec<f64> = a.iter().map(|a| 1.0 + 2.0 * a / b).collect();
    let ln_bound = -0.5 * (d - b) + 0.5 * d * (d / b).ln();
    for _ in 0..MAX_PROPOSALS {
        let mut u: Vec<f64> = omega
            .iter()
            .map(|omega| {
                let z: f64 = StandardNormal.sample(rng);
                z / omega.sqrt()
            })
            .collect();
        let squared: f64 = u.iter().map(|u| u * u).sum();
        let length = squared.sqrt();
        for u in &mut u {
            *u /= length;
        }
        let form = |weights: &[f64]| -> f64 {
            weights
                .iter()
                .zip(&u)
                .map(|(weight, u)| weight * u * u)
                .sum()
        };
        let ln_acceptance = -form(a) + 0.5 * d * form(&omega).ln() - ln_bound;
        if rng.random::<f64>().ln() < ln_acceptance {
            return Ok(u);
        }
    }
    Err(Error::estimate_failed(format!(
        "no proposal of {MAX_PROPOSALS} was accepted; use a smaller epsilon or fewer rows"
    )))
}

/// The b in (0, d] with `Σ 1/(b + 2aᵢ) = 1`, which minimises the bound M.
fn envelope(a: &[f64]) -> f64 {
    let sum = |b: f64| -> f64 { a.iter().map(|a| 1.0 / (b + 2.0 * a)).sum() };
    bisect(0.0, a.len() as f64, 200, |b| sum(b) > 1.0).1
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use nalgebra::Complex;

    use super::*;
    use crate::generator;

    const DRAWS: u32 = 40_000;

    /// Compares the means of u₁² … over the draws with the exact ones: within five standard errors (false alarm 6e-7
    /// each).
    fn compare(a: &[f64], exact: &[f64], seed: u64) {
        let mut rng = generator(Some(seed)).unwrap();
        let (mut sums, mut squares) = (vec![0.0; a.len()], vec![0.0; a.len()]);
        for _ in 0..DRAWS {
            let u = draw_diagonal(a, &mut rng).unwrap();
            for ((sum, square), u) in sums.iter_mut().zip(&mut squares).zip(u) {
                *sum += u * u;
                *square += u.powi(4);
            }
        }
        let n = f64::from(DRAWS);
        for ((sum, square), exact) in sums.iter().zip(&squares).zip(exact) {
            let mean = sum / n;
            let error = ((square / n - mean * mean) / n).sqrt();
            assert!(
                (mean - exact).abs() < 5.0 * error,
                "{a:?}: {mean} ± {error} against {exact}"
            );
        }
    }

    #[test]
    fn two_dimensions_against_integration_over_the_circle() {
        for (seed, a) in [(1, [0.0, 3.0]), (2, [0.5, 0.0]), (3, [0.0, 40.0])] {
            let points = 100_000;
            let (mut mass, mut moments) = (0.0, [0.0; 2]);
            for point in 0..points {
                let angle = TAU * f64::from(point) / f64::from(points);
                let squared = [angle.cos().powi(2), angle.sin().powi(2)];
                let weight = (-a[0] * squared[0] - a[1] * squared[1]).exp();
                mass += weight;
                moments[0] += weight * squared[0];
                moments[1] += weight * squared[1];
            }
            let exact = moments.map(|moment| moment / mass);
            if a == [0.0, 3.0] {
                // Where two libraries give 0.063, not this.
                assert!((exact[1] - 0.2019).abs() < 1e-4, "{exact:?}");
            }
            compare(&a, &exact, seed);
        }
    }

    /// The normalising constant up to a factor: with yᵢ ~ N(0, 1/2(aᵢ+s)) it is `Π(aᵢ+s)^{−1/2}·e^s` times the density
    /// of Σyᵢ² at 1, by inversion of its characteristic function (the trapezoidal rule; s shifts all aᵢ above 0).
    fn ln_constant(a: &[f64]) -> f64 {
        let shifted: Vec<f64> = a.iter().map(|a| a + 2.0).collect();
        let step = 0.1;
        let density: f64 = (-20_000..=20_000)
            .map(|index| {
                let t = step * f64::from(index);
                let ln: Complex<f64> = shifted
                    .iter()
                    .map(|a| -0.5 * Complex::new(1.0, -t / a).ln())
                    .sum();
                (ln + Complex::new(0.0, -t)).exp().re
            })
            .sum::<f64>()
            * step
            / TAU;
        density.ln() - 0.5 * shifted.iter().map(|a| a.ln()).sum::<f64>()
    }

    #[test]
    fn ten_dimensions_against_inversion_of_the_characteristic_function() {
        for (seed, a) in [
            (6, [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]),
            (7, [0.0, 0.0, 0.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0]),
        ] {
            // E uᵢ² = −∂ ln c/∂aᵢ, by central differences.
            let exact: Vec<f64> = (0..10)
                .map(|i| {
                    let at = |shift: f64| {
                        let mut moved = a;
                        moved[i] += shift;
                        ln_constant(&moved)
                    };
                    (at(-1e-3) - at(1e-3)) / 2e-3
                })
                .collect();
            let total: f64 = exact.iter().sum();
            assert!((total - 1.0).abs() < 1e-5, "{total}");
            compare(&a, &exact, seed);
        }
    }

    #[test]
    fn concentrated_distributions_are_drawn_too() {
        // n = 10⁵ rows at ε = 2, p = 40: exponents in the tens of thousands.
        let mut a = vec![0.0; 40];
        for (index, a) in a.iter_mut().enumerate().skip(1) {
            *a = 20_000.0 + 100.0 * index as f64;
        }
        let u = draw_diagonal(&a, &mut generator(Some(8)).unwrap()).unwrap();
        assert!(u[0].abs() > 0.99);
    }
}
