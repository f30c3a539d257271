//! The exponential of a large symmetric matrix by matrix products, which use several threads, unlike an
//! eigendecomposition.

use eigenveil_estimation::linalg::commuting_product;
use nalgebra::DMatrix;

/// Terms of the polynomial, in four groups of four.
const TERMS: usize = 16;
/// Points at which the exponential is interpolated.
const NODES: usize = 64;

/// `exp(A − tI)` for the symmetric `p × p` matrix A, by its lower triangle, with eigenvalues in `[bottom, top]`, t =
/// `top`: eigenvalues in (0, 1], to `accuracy` (1e-12 at the least) of 1. Eigenvalues a few per cent outside the
/// interval do little harm.
///
/// Scaling and squaring (Higham 2005) with the Chebyshev polynomial of degree 15, evaluated in six products (Paterson &
/// Stockmeyer 1973): for a spectrum of width 40 and an accuracy of 1e-6 eight products of `p³` operations, where an
/// eigendecomposition takes `9p³`, half of them bound by memory bandwidth. Six matrices are in memory. On
/// [`Threads::current`](eigenveil_estimation::linalg::Threads::current) threads.
pub(super) fn symmetric_exponential(
    matrix: &DMatrix<f64>,
    bottom: f64,
    top: f64,
    accuracy: f64,
) -> DMatrix<f64> {
    let allowed = accuracy.max(1e-12);
    // Not zero, because its inverse scales the spectrum to [−1, 1].
    let mut half = (0.5 * (top - bottom)).max(1e-3);
    let mut squarings = 0;
    while f64::from(1 << squarings) * chebyshev_error(half) > allowed {
        half *= 0.5;
        squarings += 1;
    }
    let mut base = matrix.clone();
    base.fill_upper_triangle_with_lower_triangle();
    let middle = top - half * f64::from(1 << squarings);
    for i in 0..base.nrows() {
        base[(i, i)] -= middle;
    }
    base /= half * f64::from(1 << squarings);
    let mut result = polynomial(&base, &chebyshev(half));
    drop(base);
    for _ in 0..squarings {
        result = commuting_product(&result, &result);
    }
    result
}

/// Bound on the error of [`chebyshev`]: the coefficients `2e⁻ʰI_n(h)` left out are below `2(h/2)ⁿ/n!` each.
fn chebyshev_error(half: f64) -> f64 {
    let mut term = 2.0;
    let mut sum = 0.0;
    for n in 1..4 * TERMS {
        term *= 0.5 * half / n as f64;
        if n >= TERMS {
            sum += term;
        }
    }
    // I_n(h)e⁻ʰ ≤ (h/2)ⁿ/n!·e^(h²/4(n+1) − h), by the series of I_n.
    sum * (half * half / (4.0 * (TERMS + 1) as f64) - half).exp()
}

/// Coefficients in powers of y of the polynomial of degree 15 near `exp(h(y − 1))` on [−1, 1].
fn chebyshev(half: f64) -> [f64; TERMS] {
    let angle = |i: usize| std::f64::consts::PI * (i as f64 + 0.5) / NODES as f64;
    let coefficient = |n: usize| {
        let sum: f64 = (0..NODES)
            .map(|i| (half * (angle(i).cos() - 1.0)).exp() * (n as f64 * angle(i)).cos())
            .sum();
        sum * if n == 0 { 1.0 } else { 2.0 } / NODES as f64
    };
    // T₀ and T₁ in powers of y; T_{n+1} = 2yT_n − T_{n−1}.
    let (mut before, mut current) = ([0.0; TERMS], [0.0; TERMS]);
    (before[0], current[1]) = (1.0, 1.0);
    let mut powers = [0.0; TERMS];
    for n in 0..TERMS {
        let a = coefficient(n);
        for (power, t) in powers.iter_mut().zip(&before) {
            *power += a * t;
        }
        let mut next = before.map(|t| -t);
        for j in 1..TERMS {
            next[j] += 2.0 * current[j - 1];
        }
        (before, current) = (current, next);
    }
    powers
}

/// `Σ powers[j]·Mʲ`.
fn polynomial(first: &DMatrix<f64>, powers: &[f64; TERMS]) -> DMatrix<f64> {
    let second = commuting_product(first, first);
    let third = commuting_product(first, &second);
    let fourth = commuting_product(&second, &second);
    // ((g₃M⁴ + g₂)M⁴ + g₁)M⁴ + g₀, each g of degree 3.
    let mut sum: Option<DMatrix<f64>> = None;
    for group in powers.chunks(4).rev() {
        let mut next = match sum.take() {
            Some(sum) => commuting_product(&sum, &fourth),
            None => DMatrix::zeros(first.nrows(), first.ncols()),
        };
        let powers = first.iter().zip(second.iter()).zip(third.iter());
        for (entry, ((a, b), c)) in next.iter_mut().zip(powers) {
            *entry += group[1] * a + group[2] * b + group[3] * c;
        }
        for i in 0..next.nrows() {
            next[(i, i)] += group[0];
        }
        sum = Some(next);
    }
    sum.unwrap_or_else(|| DMatrix::zeros(first.nrows(), first.ncols()))
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::linalg::{StartVectors, Threads, orthonormalize, outer_scaled};
    use nalgebra::dmatrix;

    use super::*;

    #[test]
    fn two_dimensional_exponential_is_known() {
        // Eigenvalues 0 and −2.
        let e = symmetric_exponential(&dmatrix![-1.0, 0.0; 1.0, -1.0], -2.0, 0.0, 1e-10);
        assert!((e[(0, 0)] - (1.0 + (-2.0_f64).exp()) / 2.0).abs() < 1e-10);
        assert!((e[(0, 1)] - (1.0 - (-2.0_f64).exp()) / 2.0).abs() < 1e-10);
    }

    #[test]
    fn exponential_agrees_with_the_eigendecomposition() {
        for p in [1, 7, 600] {
            let frame = orthonormalize(StartVectors::default().block(p, p)).unwrap();
            for (width, accuracy) in [
                (0.0, 1e-10),
                (1e-3, 1e-10),
                (2.0, 1e-6),
                (20.0, 1e-10),
                (20.0, 1e-6),
                (60.0, 1e-10),
                (60.0, 1e-6),
                (300.0, 1e-8),
            ] {
                let value = |i: usize| 3.0 - width * i as f64 / (p - 1).max(1) as f64;
                let values: Vec<f64> = (0..p).map(value).collect();
                let exponentials: Vec<f64> = values.iter().map(|v| (v - 3.0).exp()).collect();
                let expected = outer_scaled(&frame, &exponentials);
                let mut lower = outer_scaled(&frame, &values);
                lower.fill_upper_triangle(f64::MAX, 1);
                let exponential_above =
                    |bottom| symmetric_exponential(&lower, bottom, 3.0, accuracy);
                let exponential = exponential_above(3.0 - width);
                let distance = (&exponential - &expected).amax();
                assert!(distance < accuracy, "{p} {width}: {distance}");
                assert_eq!(exponential, exponential.transpose());
                // An interval that is a little too small.
                let exponential = exponential_above(3.0 - 0.98 * width);
                let distance = (&exponential - &expected).amax();
                assert!(distance < 10.0 * accuracy, "{p} {width}: {distance}");
                let again = Threads::new(2)
                    .unwrap()
                    .run(|| exponential_above(3.0 - 0.98 * width));
                assert_eq!(exponential, again);
            }
        }
    }
}
