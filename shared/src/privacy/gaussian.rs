//! Calibration of Gaussian noise and what a given noise really guarantees.
//!
//! * Neighbours: any two rows of one participant (replacement, the local model).
//! * Norm and sensitivity: L2; for rows in the unit ball the released matrix, packed or scaled-packed,
//!   moves by at most **Δ = √2** ([`SENSITIVITY`]; `docs/derivations/gaussian.md`, "Sensitivity").
//! * Guarantee: `N(0, σ²I)` on an L2-sensitivity-Δ query is (ε, δ)-DP iff
//!   `Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) ≤ δ` (Balle & Wang 2018, Theorem 8).
//! * Rounding: every σ, δ and ε below is rounded against us.

use super::{
    Budget,
    normal::{cdf, ln_cdf},
    search::{is_valid_delta, smallest_epsilon},
};
use crate::error::{Error, ErrorCode, Result};

/// L2 sensitivity of `svec(xxᵀ)` and of `tri(xxᵀ)` under replacement of a row of the unit ball.
pub const SENSITIVITY: f64 = std::f64::consts::SQRT_2;

/// Slack for rounding in the row, its outer product and the search itself: the stored row's norm may
/// pass one by a few ulps times p, far below this.
const ROUNDING_SLACK: f64 = 1.0 / (1_u64 << 39) as f64;

/// Smallest σ for which `N(0, σ²)` noise on a query of L2 sensitivity `sensitivity` is (ε, δ)-DP
/// (Balle & Wang 2018, the analytic Gaussian mechanism). Any ε > 0; relative excess below 1e-11.
///
/// ```
/// use eigenveil_shared::privacy::{Budget, gaussian};
/// let sigma = gaussian::analytic_sigma(Budget::approximate(1.0, 1e-6)?, gaussian::SENSITIVITY)?;
/// assert!((sigma - 5.974598181957).abs() < 1e-9);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Errors
/// `invalid-budget` for a pure budget: Gaussian noise never gives δ = 0.
pub fn analytic_sigma(budget: Budget, sensitivity: f64) -> Result<f64> {
    require_delta(budget)?;
    let enough = |mu: f64| delta_of_mu(mu, budget.epsilon()) <= budget.delta();
    // δ rises with μ = Δ/σ: find a bracket, then halve it until it is two neighbouring numbers.
    let (mut low, mut high) = (1.0_f64, 1.0_f64);
    while !enough(low) {
        high = low;
        low *= 0.5;
    }
    while enough(high) {
        low = high;
        high *= 2.0;
    }
    while high - low > 2.0 * f64::EPSILON * low {
        let middle = 0.5 * (low + high);
        // Among numbers too small for their full precision two neighbours may be further apart than that.
        if middle <= low || middle >= high {
            break;
        }
        match enough(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(sensitivity / low * (1.0 + ROUNDING_SLACK))
}

/// The noise Algorithms 1 and 2 of Wang & Xu print: `σ = √(2 ln(1.25/δ))/ε`, the classical formula
/// with sensitivity 1 for every ε. What it really gives is [`true_epsilon`] and [`true_delta`].
///
/// # Errors
/// `invalid-budget` for a pure budget.
pub fn as_published_sigma(budget: Budget) -> Result<f64> {
    require_delta(budget)?;
    Ok((2.0 * (1.25 / budget.delta()).ln()).sqrt() / budget.epsilon())
}

/// The smallest δ for which noise `sigma` on a query of L2 sensitivity `sensitivity` is (`epsilon`, δ)-DP.
///
/// # Panics
/// Never; a `sigma` or `sensitivity` that is not positive and finite gives 1.
pub fn true_delta(sigma: f64, sensitivity: f64, epsilon: f64) -> f64 {
    let mu = sensitivity / sigma;
    if !is_positive_finite(mu) || epsilon.is_nan() || epsilon < 0.0 {
        return 1.0;
    }
    upper_delta(mu, epsilon)
}

/// The smallest ε ≥ 0 for which noise `sigma` on a query of L2 sensitivity `sensitivity` is
/// (ε, `delta`)-DP; `None` when there is none that a number can hold (noise of almost zero).
pub fn true_epsilon(sigma: f64, sensitivity: f64, delta: f64) -> Option<f64> {
    let mu = sensitivity / sigma;
    if !is_positive_finite(mu) || !is_valid_delta(delta) {
        return None;
    }
    smallest_epsilon(
        |epsilon| upper_delta(mu, epsilon),
        delta,
        2.0 * f64::EPSILON,
    )
}

/// Probability that noise `sigma` on a query of L2 sensitivity `sensitivity` changes the odds between the worst pair of
/// rows by more than e^`epsilon`, **one way or the other**, where one of them is the participant's: the
/// log-likelihood ratio is N(μ²/2, μ²), μ = Δ/σ, so `P(|·| > ε) = Φ(μ/2 − ε/μ) + Φ(−μ/2 − ε/μ)`. It rises with μ, so
/// no closer pair has more.
///
/// This is what a person understands by "ε, except with probability …", and it is **larger than δ**: δ counts one
/// direction, and subtracts what the other row would have produced (27 times larger at ε = 1, δ = 1e-6). Nor is it
/// twice the first term: the second is e^(−ε) times the first less δ.
///
/// ```
/// use eigenveil_shared::privacy::{Budget, gaussian};
/// let sigma = gaussian::analytic_sigma(Budget::approximate(1.0, 1e-6)?, gaussian::SENSITIVITY)?;
/// let exceeded = gaussian::privacy_loss_tail(sigma, gaussian::SENSITIVITY, 1.0);
/// assert!(exceeded > 2.7e-5 && exceeded < 2.8e-5);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn privacy_loss_tail(sigma: f64, sensitivity: f64, epsilon: f64) -> f64 {
    let mu = sensitivity / sigma;
    if !is_positive_finite(mu) || epsilon.is_nan() {
        return 1.0;
    }
    let up = cdf(0.5 * mu - epsilon / mu);
    let b = -0.5 * mu - epsilon / mu;
    ((up + cdf(b)) * (1.0 + 1e-13 + lost_in_tail(b))).min(1.0)
}

/// Relative error of Φ(a) and e^ε Φ(b) for |a| ≤ |b|, from a rounding of their arguments by at most 2|b| ulps: Φ
/// changes by the factor 1 + O(b²) times that.
fn lost_in_tail(b: f64) -> f64 {
    16.0 * f64::EPSILON * (1.0 + b * b)
}

/// δ(ε), rounded up also where it is far below 1e-80.
fn upper_delta(mu: f64, epsilon: f64) -> f64 {
    let a = 0.5 * mu - epsilon / mu;
    let b = -0.5 * mu - epsilon / mu;
    let delta = delta_of_mu(mu, epsilon);
    let lost = if is_difference(mu, a) {
        cdf(a) * lost_in_tail(b)
    } else {
        // The last digits of 1 − u R(u) ~ u⁻² cancel.
        delta * lost_in_tail(b) * (1.0 + b * b)
    };
    (delta + lost).min(1.0)
}

/// Whether δ is computed as the difference of its two terms: elsewhere they agree to many digits.
fn is_difference(mu: f64, a: f64) -> bool {
    mu > 0.25 || a > 0.0
}

/// δ(ε) of the Gaussian mechanism with μ = Δ/σ, rounded up by more than the arithmetic can lose above 1e-14. Frozen
/// noise comes from it, with a margin of its own ([`ROUNDING_SLACK`]), so its last bits stay as they are.
fn delta_of_mu(mu: f64, epsilon: f64) -> f64 {
    let a = 0.5 * mu - epsilon / mu;
    let b = -0.5 * mu - epsilon / mu;
    if is_difference(mu, a) {
        let first = cdf(a);
        // In logarithms, so that neither e^ε overflows nor Φ(b) vanishes on its own.
        let ln_second = epsilon + ln_cdf(b);
        let lost = 8.0 * f64::EPSILON * first * (1.0 + ln_cdf(b).abs().min(50.0));
        return (first - ln_second.exp() + lost).clamp(0.0, 1.0);
    }
    // Φ(a) and e^ε Φ(b) agree to many digits here. With R(u) = Φ(−u)/φ(u) their difference is
    // φ(a)·(R(−a) − R(−b)) = φ(a)·∫ (1 − u R(u)) du over [−a, −b], whose integrand is smooth and
    // positive: nothing cancels but the last digits of 1 − u R(u) ~ u⁻².
    let ln_density = -0.5 * a * a - 0.5 * (2.0 * std::f64::consts::PI).ln();
    let integral: f64 = GAUSS_LEGENDRE
        .iter()
        .map(|(node, weight)| {
            let u = -a + 0.5 * mu * (1.0 + node);
            weight * (1.0 - u * mills_ratio(u))
        })
        .sum::<f64>()
        * (0.5 * mu);
    let lost = 1.0 + 64.0 * f64::EPSILON * (1.0 + a * a);
    (ln_density.exp() * integral * lost).clamp(0.0, 1.0)
}

/// Φ(−u)/φ(u) for u ≥ 0.
fn mills_ratio(u: f64) -> f64 {
    (ln_cdf(-u) + 0.5 * u * u + 0.5 * (2.0 * std::f64::consts::PI).ln()).exp()
}

/// Nodes and weights of the six-point Gauss–Legendre rule on [−1, 1].
const GAUSS_LEGENDRE: [(f64, f64); 6] = [
    (-0.932_469_514_203_152, 0.171_324_492_379_170_36),
    (-0.661_209_386_466_264_5, 0.360_761_573_048_138_6),
    (-0.238_619_186_083_196_9, 0.467_913_934_572_691),
    (0.238_619_186_083_196_9, 0.467_913_934_572_691),
    (0.661_209_386_466_264_5, 0.360_761_573_048_138_6),
    (0.932_469_514_203_152, 0.171_324_492_379_170_36),
];

fn is_positive_finite(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn require_delta(budget: Budget) -> Result<()> {
    if budget.is_pure() {
        return Err(Error::new(
            ErrorCode::InvalidBudget,
            "delta is 0 but Gaussian noise never gives pure differential privacy; set delta, such as 1e-6",
        )
        .with_field("delta"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// σ, ε and δ(ε) at sensitivity √2, by 420-digit arithmetic: far tails.
    const TAILS: [(f64, f64, f64); 9] = [
        (1.0, 12.0, 5.522_837_110_802_227e-16),
        (1.0, 30.0, 6.100_986_847_314_981e-95),
        (0.25, 200.0, 3.284_940_667_594_392e-233),
        (5.974_598_181_957, 5.0, 3.271_748_312_413_847e-100),
        (5.974_598_181_957, 8.0, 4.077_247_788_866_999e-251),
        (20.0, 2.5, 2.890_623_720_134_872e-276),
        (0.5, 60.0, 1.890_409_561_875_538e-88),
        (1.0, 52.0, 1.658_288_700_440_079_5e-286),
        (3.0, 17.0, 2.745_776_976_264_346_4e-283),
    ];

    #[test]
    fn far_tails_are_rounded_up() {
        for (sigma, epsilon, delta) in TAILS {
            let ours = true_delta(sigma, SENSITIVITY, epsilon);
            // The references themselves are rounded to 16 digits.
            assert!(ours >= delta * (1.0 - 2e-16), "{sigma} {epsilon}: {ours:e}");
            assert!(ours < delta * (1.0 + 1e-8), "{sigma} {epsilon}: {ours:e}");
            let back = true_epsilon(sigma, SENSITIVITY, delta).unwrap();
            assert!((epsilon * (1.0 - 4e-16)..epsilon * (1.0 + 1e-9)).contains(&back));
        }
    }

    const REFERENCE: [(f64, f64, f64); 11] = [
        (0.25, 0.1, 0.060337166358103385),
        (0.25, 2.0, 5.0921308938635904e-17),
        (0.2500001, 1.0, 2.9242939980901744e-06),
        (0.001, 0.005, 5.359547041057213e-11),
        (0.0001, 0.0004, 7.146687618877681e-10),
        (0.0006, 0.0033, 1.956229151374231e-12),
        (0.1, 2.5, 4.248722292075521e-140),
        (0.01, 0.01, 0.0008373242674773423),
        (0.05, 1e-09, 0.019945035900448608),
        (1.0, 4.0, 4.71224120079312e-05),
        (3.0, 16.0, 2.634792456795343e-05),
    ];

    /// Found by fuzzing: among subnormal numbers the search went on for ever.
    #[test]
    fn the_smallest_budgets_end_the_search() {
        for epsilon in [f64::MIN_POSITIVE, 1e-300, 1e-12, 16.0] {
            for delta in [5e-324, 2.818_356_61e-315, 1e-300] {
                let budget = Budget::approximate(epsilon, delta).unwrap();
                let sigma = analytic_sigma(budget, SENSITIVITY).unwrap();
                assert!(sigma > 1.0, "{epsilon:e} {delta:e}: {sigma:e}");
            }
        }
    }

    #[test]
    fn pure_budgets_are_refused() {
        let pure = Budget::pure(1.0).unwrap();
        for refused in [analytic_sigma(pure, 1.0), as_published_sigma(pure)] {
            assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidBudget);
        }
    }

    #[test]
    fn nonsense_noise_has_no_guarantee() {
        for sigma in [0.0, -1.0, f64::NAN] {
            assert_eq!(true_delta(sigma, SENSITIVITY, 1.0), 1.0);
            assert_eq!(true_epsilon(sigma, SENSITIVITY, 1e-6), None);
        }
        assert_eq!(true_epsilon(1e9, SENSITIVITY, 1e-6), Some(0.0));
        let large = true_epsilon(0.01, SENSITIVITY, 1e-6).unwrap();
        assert!(large > 1e4 && large.is_finite());
        assert!(true_delta(0.01, SENSITIVITY, large) <= 1e-6);
    }

    #[test]
    fn small_mu_agrees_with_forty_digit_arithmetic() {
        // mpmath, 50 digits: ncdf(m/2 - e/m) - exp(e)*ncdf(-m/2 - e/m).
        for (mu, epsilon, expected) in REFERENCE {
            let ours = delta_of_mu(mu, epsilon);
            let range = expected * (1.0 - 1e-15)..=expected * (1.0 + 1e-11);
            assert!(
                range.contains(&ours),
                "{mu} {epsilon}: {ours:e}, {expected:e}"
            );
        }
    }

    proptest! {
        #[test]
        fn calibration_is_sufficient_and_tight(ln_epsilon in -6.0_f64..3.0, ln_delta in -30.0_f64..-2.0) {
            let budget = Budget::approximate(ln_epsilon.exp(), ln_delta.exp()).unwrap();
            let sigma = analytic_sigma(budget, SENSITIVITY).unwrap();
            prop_assert!(true_delta(sigma, SENSITIVITY, budget.epsilon()) <= budget.delta());
            prop_assert!(true_delta(sigma * 0.999_99, SENSITIVITY, budget.epsilon()) > budget.delta());
            let back = true_epsilon(sigma, SENSITIVITY, budget.delta()).unwrap();
            prop_assert!(back <= budget.epsilon() && back > budget.epsilon() * (1.0 - 1e-5));
        }
    }
}
