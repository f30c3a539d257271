//! From zero-concentrated differential privacy to (ε, δ).

/// δ(ε) of ρ-zCDP, rounded up: Canonne, Kamath & Steinke (2020), Corollary 13,
///
/// ```text
/// δ = inf over α > 1 of  exp((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α .
/// ```
///
/// Every α gives a valid δ, so the search below need not be exact to be sound. For ε < 0 the hockey-stick
/// divergence of the exchanged pair is used (zCDP is symmetric): `1 − e^ε + e^ε δ(−ε)`.
pub(super) fn delta(rho: f64, epsilon: f64) -> f64 {
    if rho == 0.0 && epsilon >= 0.0 {
        return 0.0;
    }
    if epsilon < 0.0 {
        return exchanged(epsilon, |positive| delta(rho, positive));
    }
    // The logarithm has the derivative (2α−1)ρ − ε + ln(1−1/α), which rises in α, is negative near 1
    // (unless ε is small: then the lower end serves) and positive at the upper end.
    let (mut low, mut high) = (1.0001_f64, 0.5 * (epsilon + 1.0) / rho + 2.0);
    for _ in 0..60 {
        let alpha = 0.5 * (low + high);
        if (2.0 * alpha - 1.0) * rho - epsilon + (-1.0 / alpha).ln_1p() < 0.0 {
            low = alpha;
        } else {
            high = alpha;
        }
        if high - low < 1e-9 * low {
            break;
        }
    }
    let alpha = high;
    let terms = [
        (alpha - 1.0) * alpha * rho,
        -(alpha - 1.0) * epsilon,
        -(alpha - 1.0).ln(),
        alpha * (-1.0 / alpha).ln_1p(),
    ];
    let lost = 8.0 * f64::EPSILON * terms.iter().map(|term| term.abs()).sum::<f64>();
    let delta = (terms.iter().sum::<f64>() + lost).exp();
    // Zero only by underflow; NaN only from numbers no mechanism has.
    if delta.is_nan() {
        1.0
    } else {
        delta.clamp(f64::MIN_POSITIVE, 1.0)
    }
}

/// The hockey-stick divergence at a negative ε, from that of the exchanged pair at −ε:
/// `D(P‖Q; e^ε) = 1 − e^ε + e^ε D(Q‖P; e^−ε)`.
pub(super) fn exchanged(epsilon: f64, delta: impl Fn(f64) -> f64) -> f64 {
    (-epsilon.exp_m1() + epsilon.exp() * delta(-epsilon)).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::privacy::search::smallest_epsilon;

    #[test]
    fn agrees_with_fifty_digit_minimisation() {
        // mpmath, 50 digits: bisection of the derivative of Corollary 13's exponent in α−1.
        for (rho, epsilon, expected) in REFERENCE {
            let ours = delta(rho, epsilon);
            assert!(
                ours >= expected * (1.0 - 1e-14) && ours <= expected * (1.0 + 1e-9),
                "ρ={rho} ε={epsilon}: {ours:e} against {expected:e}"
            );
        }
    }

    const REFERENCE: [(f64, f64, f64); 5] = [
        (0.5, 3.0, 0.005143184063862149),
        (0.01, 1.0, 1.6641139773879955e-13),
        (2.0, 10.0, 4.872630732922504e-05),
        (0.0002, 0.1, 5.654808778246872e-09),
        (0.125, 4.0, 2.069696696857313e-15),
    ];

    proptest! {
        #[test]
        fn better_than_the_classical_conversion(ln_rho in -10.0_f64..3.0, ln_delta in -40.0_f64..-1.0) {
            // Bun & Steinke (2016), Proposition 1.3: ε = ρ + 2√(ρ ln(1/δ)).
            let (rho, target) = (ln_rho.exp(), ln_delta.exp());
            let classical = rho + 2.0 * (-rho * ln_delta).sqrt();
            prop_assert!(delta(rho, classical) <= target);
            let ours = smallest_epsilon(|epsilon| delta(rho, epsilon), target, 1e-12).unwrap();
            prop_assert!(ours < classical);
            // And never better than the truth for a mechanism that has exactly this ρ.
            let mu = (2.0 * rho).sqrt();
            let truth = crate::privacy::gaussian::true_epsilon(1.0, mu, target).unwrap();
            prop_assert!(ours >= truth * (1.0 - 1e-9));
        }

        #[test]
        fn falls_in_epsilon_and_rises_in_rho(ln_rho in -8.0_f64..2.0, epsilon in -3.0_f64..20.0) {
            let rho = ln_rho.exp();
            prop_assert!(delta(rho, epsilon + 0.01) <= delta(rho, epsilon) * (1.0 + 1e-9));
            prop_assert!(delta(rho * 1.01, epsilon) >= delta(rho, epsilon) * (1.0 - 1e-9));
        }
    }
}
