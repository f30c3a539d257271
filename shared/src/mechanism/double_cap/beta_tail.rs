//! Upper tails of the squared cosine between a fixed and a uniformly random direction.

use std::f64::consts::PI;

/// Upper tails at τ of Beta(1/2, b), Beta(3/2, b) and Beta(5/2, b), b = (p − 1)/2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tails {
    /// `P(Beta(1/2, b) > τ)`: the probability of the double cap.
    pub(super) half: f64,
    /// `P(Beta(3/2, b) > τ)`.
    pub(super) three_halves: f64,
    /// `P(Beta(5/2, b) > τ)`.
    pub(super) five_halves: f64,
}

/// The three tails for 0 < τ < 1 and b ≥ 1/2, to a relative accuracy near 1e-13.
pub(super) fn upper_tails(tau: f64, b: f64) -> Tails {
    // τ^{1/2}(1−τ)^b / B(1/2, b), with (1−τ)^b in logarithms: b reaches 32,768.
    let density = (0.5 * tau.ln() + b * (-tau).ln_1p() - ln_beta_half(b)).exp();
    let half = if tau > 1.5 / (b + 2.5) {
        density / b * continued_fraction(1.0 - tau, b, 0.5)
    } else {
        1.0 - 2.0 * density * continued_fraction(tau, 0.5, b)
    };
    // I_{1−τ}(b, a+1) = I_{1−τ}(b, a) + τ^a (1−τ)^b / (a B(a, b)): only positive terms.
    let three_halves = half + 2.0 * density;
    let five_halves = three_halves + 2.0 * density * tau * (2.0 * b + 1.0) / 3.0;
    Tails {
        half,
        three_halves: three_halves.min(1.0),
        five_halves: five_halves.min(1.0),
    }
}

/// `P(g₁² + … + g_j² > t)` for the first j = `leading` coordinates of a uniformly random unit vector of `dimension` numbers:
/// the upper tail of Beta(j/2, (p−j)/2), to a relative accuracy near 1e-10. 1 for j ≥ p or t ≤ 0.
///
/// ```
/// use eigenveil_shared::mechanism::double_cap::uniform_tail;
/// // On the sphere in three dimensions a coordinate is uniform (Archimedes).
/// assert!((uniform_tail(1, 3, 0.25) - 0.5).abs() < 1e-12);
/// ```
pub fn uniform_tail(leading: usize, dimension: usize, t: f64) -> f64 {
    if leading >= dimension || t <= 0.0 {
        return 1.0;
    }
    if leading == 0 || t >= 1.0 {
        return 0.0;
    }
    beta_tails(t, 0.5 * leading as f64, 0.5 * (dimension - leading) as f64).1
}

/// `P(B ≤ t)` and `P(B > t)` of a Beta(a, b) variable, 0 < t < 1: the incomplete beta function and its complement, the
/// smaller one to a relative accuracy near 1e-10.
pub fn beta_tails(t: f64, a: f64, b: f64) -> (f64, f64) {
    let ln_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
    let density = (a * t.ln() + b * (-t).ln_1p() - ln_beta).exp();
    if t > (a + 1.0) / (a + b + 2.0) {
        let upper = density / b * continued_fraction(1.0 - t, b, a);
        (1.0 - upper, upper)
    } else {
        let lower = density / a * continued_fraction(t, a, b);
        (lower, 1.0 - lower)
    }
}

/// ln B(1/2, b) = ln(√π Γ(b)/Γ(b+1/2)).
fn ln_beta_half(b: f64) -> f64 {
    let ratio = if b < 20.0 {
        libm::lgamma(b + 0.5) - libm::lgamma(b)
    } else {
        // lgamma loses digits to its own size; the difference has a series of its own.
        let r = 1.0 / b;
        0.5 * b.ln() - r / 8.0 + r.powi(3) / 192.0 - r.powi(5) / 640.0 + 17.0 * r.powi(7) / 14_336.0
    };
    0.5 * PI.ln() - ratio
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method; for
/// `x < (a+1)/(a+b+2)` it converges in O(√max(a, b)) steps.
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..100_000 {
        let m = f64::from(step);
        for numerator in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / away(1.0 + numerator * d);
            c = away(1.0 + numerator / c);
            value *= d * c;
        }
        if (d * c - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_forms_at_p_2_and_3() {
        for tau in [1e-6, 0.01, 0.2, 0.5, 0.7, 0.99, 1.0 - 1e-9] {
            let tails = upper_tails(tau, 0.5);
            // The angle of (√τ, √(1−τ)): well conditioned at both ends, as acos √τ is not.
            let exact = 2.0 / PI * (1.0 - tau).sqrt().atan2(tau.sqrt());
            let half = tails.half;
            assert!((half - exact).abs() < 4e-15, "p=2 τ={tau}: {half} {exact}");
            let tails = upper_tails(tau, 1.0);
            for (ours, exponent) in [
                (tails.half, 0.5),
                (tails.three_halves, 1.5),
                (tails.five_halves, 2.5),
            ] {
                let exact = 1.0 - tau.powf(exponent);
                assert!((ours - exact).abs() < 4e-15, "p=3 τ={tau}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn tails_at_large_dimensions() {
        // mpmath, 40 digits: betainc(a, b, tau, 1, regularized=True).
        for (tau, b, expected) in REFERENCE {
            let tails = upper_tails(tau, b);
            let tails = [tails.half, tails.three_halves, tails.five_halves];
            for (ours, expected) in tails.into_iter().zip(expected) {
                let off = (ours / expected - 1.0).abs();
                assert!(off < 2e-12, "τ={tau} b={b}: {ours} {expected}");
            }
        }
    }

    #[test]
    fn tails_of_several_coordinates() {
        for p in [3, 8, 40, 400] {
            for t in [1e-3, 0.02, 0.1, 0.5, 0.9] {
                let half = upper_tails(t, 0.5 * (p as f64 - 1.0)).half;
                // Beta(1, b) in closed form.
                let exact = (1.0 - t).powf(0.5 * (p as f64 - 2.0));
                for (leading, tail) in [(1, half), (2, exact)] {
                    let off = (uniform_tail(leading, p, t) / tail - 1.0).abs();
                    assert!(off < 1e-9, "{leading} {p} {t}");
                }
                // The remaining coordinates carry the rest of the squared norm.
                let rest = 1.0 - uniform_tail(p - 2, p, 1.0 - t);
                assert!((rest - exact).abs() < 1e-11, "{p} {t}");
            }
        }
        for (count, t, tail) in [(3, 0.5, 1.0), (0, 0.5, 0.0), (1, 0.0, 1.0), (1, 1.0, 0.0)] {
            assert_eq!(uniform_tail(count, 3, t), tail);
        }
    }

    #[rustfmt::skip]
    const REFERENCE: [(f64, f64, [f64; 3]); 10] = [
        (0.1, 19.5, [0.04398378691677219, 0.24462385424887642, 0.5121439440250154]),
        (0.3, 19.5, [0.0002101106390518011, 0.00279630486926651, 0.013141081790125344]),
        (0.003, 199.5, [0.2738623578791042, 0.7529325015017971, 0.9445605589508744]),
        (0.02, 199.5, [0.004548350939746924, 0.04456783577790704, 0.15128646201300067]),
        (0.08, 199.5, [8.196656708409029e-09, 2.7696056274406184e-07, 3.143775560457692e-06]),
        (3e-05, 32767.5, [0.16086621437078222, 0.5794736583069546, 0.8538122327649647]),
        (0.0003, 32767.5, [9.235823812619993e-06, 0.00019928756012262195, 0.0014448106192038507]),
        (0.0006, 32767.5, [3.574418925626996e-10, 1.475342940634161e-08, 2.034445169469445e-07]),
        (0.02, 20.0, [0.37166568666316074, 0.8451357350697121, 0.9745508816341695]),
        (0.02, 19.9, [0.3728790095435814, 0.8461041491584577, 0.974821387133704]),
    ];
}
