//! Privacy amplification by shuffling, for pure ε₀-private reports.

use std::num::NonZeroU64;

use super::{
    binomial::{excess_of_mean_sign, grouped_binomial},
    guarantee::Pure,
};
use crate::privacy::search::{is_open_unit, smallest_epsilon};

/// Larger numbers of participants count as this many: the bound falls with n, so that this is on the safe side.
const MAX_PARTICIPANTS: u64 = 100_000_000;

/// Precision of a shuffled ε, as a part of itself.
const PRECISION: f64 = 1e-7;

/// What the unordered set of n reports satisfies, when each participant's report is ε₀-private for itself:
/// the guarantee against an observer of a study **who sees only the shuffled reports**, not who sent
/// which, when, or under which number. Neighbours: the row of one participant is replaced.
///
/// It does not hold against a server that receives the reports directly, nor against a shuffler that colludes with
/// one; n counts only participants who really randomise. Show it beside the local ε₀, never
/// instead.
///
/// # Why pure reports only
/// The type takes [`Pure`] because the theorems for (ε₀, δ₀) reports add about n·δ₀·(e^ε + 1) to δ (Feldman,
/// McMillan & Talwar 2021, Theorem 3.8): any of n reports may be the one that fails. With δ₀ = 1/n
/// nothing is left, and only δ₀ ≪ 1/n² gains anything. Of the mechanisms only `double-cap` is pure.
///
/// # The numerical bound
/// `docs/derivations/shuffle.md`, "Clones" (Feldman, McMillan & Talwar 2021, the reduction behind Theorem 3.1):
/// `δ(ε) = (1+e^ε)·E (X tanh(ε₀/2) − tanh(ε/2))₊`, X the mean of C + 1 fair signs, C ~ Bin(n−1, e^−ε₀). It falls with C,
/// which is rounded down, in at most 256 groups, tails included. Every sum is rounded up. The refinement with clone
/// probability 2/(e^ε₀+1) (Feldman, McMillan & Talwar 2023) is not used: that derivation does not prove it.
#[derive(Clone, Debug)]
pub struct Shuffled {
    report: Pure,
    participants: NonZeroU64,
    /// C in groups: (smallest number of clones, probability).
    clones: Vec<(u64, f64)>,
}

impl Shuffled {
    /// `participants` reports, each satisfying `report`, shuffled. Computes the law of the number of clones:
    /// a few milliseconds at 10⁷ participants.
    pub fn new(report: Pure, participants: NonZeroU64) -> Self {
        // e^−ε₀/(1 − e^−ε₀), rounded down as fewer clones hide less.
        let odds = (1.0 / report.epsilon().exp_m1()) * (1.0 - 4.0 * f64::EPSILON);
        let others = participants.get().min(MAX_PARTICIPANTS) - 1;
        Self {
            report,
            participants,
            clones: grouped_binomial(others, odds.max(f64::MIN_POSITIVE)),
        }
    }

    /// What each report satisfies for itself, without the shuffler.
    pub fn report(&self) -> Pure {
        self.report
    }

    /// n.
    pub fn participants(&self) -> NonZeroU64 {
        self.participants
    }

    /// A δ such that the shuffled reports are (`epsilon`, δ)-differentially private: the numerical bound,
    /// rounded up; 0 from ε₀ on, 1 for an ε that is negative or not a number.
    pub fn delta(&self, epsilon: f64) -> f64 {
        let local = self.report.epsilon();
        if epsilon.is_nan() || epsilon < 0.0 {
            return 1.0;
        }
        if epsilon >= local {
            return 0.0;
        }
        let kappa = (0.5 * local).tanh().next_up().min(1.0);
        let s = (0.5 * epsilon).tanh().next_down().max(0.0);
        let mean: f64 = self
            .clones
            .iter()
            .map(|&(clones, probability)| probability * excess_of_mean_sign(clones + 1, kappa, s))
            .sum();
        (mean * (1.0 + epsilon.exp()) * (1.0 + 1e-12)).min(1.0)
    }

    /// An ε such that the shuffled reports are (ε, `delta`)-differentially private, rounded up: the smallest of
    /// the numerical bound, the closed form and ε₀ itself. ε₀ unless 0 < δ < 1.
    pub fn epsilon(&self, delta: f64) -> f64 {
        let local = self.report.epsilon();
        if !is_open_unit(delta) {
            return local;
        }
        let numerical = smallest_epsilon(|epsilon| self.delta(epsilon), delta, PRECISION);
        let closed = self.closed_form_epsilon(delta);
        local
            .min(numerical.unwrap_or(local))
            .min(closed.unwrap_or(local))
    }

    /// The closed form, for comparison with what others print (Feldman, McMillan & Talwar 2021, Theorem 3.1):
    ///
    /// ```text
    /// ε = ln(1 + (e^ε₀−1)/(e^ε₀+1) · (8√(e^ε₀ ln(4/δ))/√n + 8e^ε₀/n))   for ε₀ ≤ ln(n/(16 ln(2/δ)))
    /// ```
    ///
    /// rounded up; `None` outside that range and unless 0 < δ < 1. Several times the numerical bound.
    pub fn closed_form_epsilon(&self, delta: f64) -> Option<f64> {
        let local = self.report.epsilon();
        let n = self.participants.get() as f64;
        // The condition is checked with a margin for the logarithms' rounding.
        let largest = (n / (16.0 * (2.0 / delta).ln())).ln() - 1e-12;
        if !is_open_unit(delta) || largest.is_nan() || local > largest {
            return None;
        }
        let spread = 8.0 * (local.exp() * (4.0 / delta).ln() / n).sqrt() + 8.0 * local.exp() / n;
        Some(((0.5 * local).tanh() * spread).ln_1p() * (1.0 + 1e-14))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn shuffled(epsilon: f64, n: u64) -> Shuffled {
        Shuffled::new(Pure::new(epsilon).unwrap(), NonZeroU64::new(n).unwrap())
    }

    /// Law of the shuffled reports of these participants, each given by the law of its report.
    fn histogram_law(reports: &[&[f64]]) -> BTreeMap<Vec<u8>, f64> {
        let mut law = BTreeMap::from([(vec![0; reports[0].len()], 1.0)]);
        for report in reports {
            let mut next = BTreeMap::new();
            for (counts, probability) in &law {
                for (outcome, chance) in report.iter().enumerate() {
                    let mut counts: Vec<u8> = counts.clone();
                    counts[outcome] += 1;
                    *next.entry(counts).or_insert(0.0) += probability * chance;
                }
            }
            law = next;
        }
        law
    }

    /// Hockey-stick divergence at ε of the shuffled reports when the first participant's row is replaced.
    fn truth(first: &[f64], replaced: &[f64], others: &[&[f64]], epsilon: f64) -> f64 {
        let with = |first| {
            let mut reports = vec![first];
            reports.extend_from_slice(others);
            histogram_law(&reports)
        };
        let (p, q) = (with(first), with(replaced));
        p.iter()
            .map(|(counts, probability)| (probability - epsilon.exp() * q[counts]).max(0.0))
            .sum()
    }

    /// Compares every choice of rows of these laws with the bound; the largest part of it that is true.
    fn largest_part(laws: &[Vec<f64>], local: f64, n: u64) -> f64 {
        let bound = shuffled(local, n);
        let mut largest = 0.0_f64;
        let others = (n - 1) as u32;
        for code in 0..laws.len().pow(others) {
            let others: Vec<&[f64]> = (0..others)
                .map(|i| laws[code / laws.len().pow(i) % laws.len()].as_slice())
                .collect();
            for fraction in [0.0, 0.05, 0.2, 0.5, 0.8, 0.97] {
                let epsilon = fraction * local;
                let delta = bound.delta(epsilon);
                let real = truth(&laws[0], &laws[1], &others, epsilon);
                assert!(
                    real <= delta * (1.0 + 1e-12),
                    "ε₀={local} n={n} ε={epsilon}: {real:e} exceeds {delta:e}"
                );
                largest = largest.max(real / delta);
            }
        }
        largest
    }

    #[test]
    fn dominates_shuffled_randomized_response() {
        for local in [0.1_f64, 0.7, 2.0, 4.0, 8.0] {
            for answers in [2_usize, 3, 4] {
                let laws: Vec<Vec<f64>> = (0..answers)
                    .map(|row| {
                        let total = local.exp() + (answers - 1) as f64;
                        (0..answers)
                            .map(|y| if y == row { local.exp() } else { 1.0 } / total)
                            .collect()
                    })
                    .collect();
                for n in 1..=4 {
                    let part = largest_part(&laws, local, n);
                    // With one participant and two answers the bound is the truth.
                    if n == 1 && answers == 2 {
                        assert!(part > 1.0 - 1e-7, "{part}");
                    }
                }
            }
        }
    }

    /// `double-cap` in small: a cap of 2 of 5 seeds; rows are all caps, a short row and the zero row.
    #[test]
    fn dominates_shuffled_caps_with_short_rows() {
        for local in [0.3_f64, 1.0, 3.0, 6.0] {
            let mut laws = Vec::new();
            for cap in [[0, 1], [2, 3], [1, 2], [3, 4]] {
                let normalizer = 3.0 + 2.0 * local.exp();
                let law: Vec<f64> = (0..5)
                    .map(|seed| if cap.contains(&seed) { local.exp() } else { 1.0 } / normalizer)
                    .collect();
                laws.push(law);
            }
            laws.push(laws[0].iter().map(|chance| 0.3 * chance + 0.14).collect());
            laws.push(vec![0.2; 5]);
            for (first, second) in [(0, 1), (0, 2), (0, 5), (5, 0), (4, 1)] {
                let mut ordered = vec![laws[first].clone(), laws[second].clone()];
                ordered.extend(laws.iter().cloned());
                for n in 1..=3 {
                    largest_part(&ordered, local, n);
                }
            }
        }
    }

    #[test]
    fn agrees_with_forty_digit_summation_of_the_pair() {
        // mpmath, 40 digits: the sum over C of the hockey-stick divergence of (A+B, C−A+1−B), without step 4.
        for (n, local, epsilon, expected) in REFERENCE {
            let bound = shuffled(local, n);
            let ours = bound.delta(epsilon);
            // From 1,000 participants on C is taken in groups: up to 3 % of δ, 0.1 % of ε.
            assert!(
                ours >= expected * (1.0 - 1e-14)
                    && ours <= expected * if n < 1_000 { 1.0 + 1e-7 } else { 1.03 },
                "n={n} ε₀={local} ε={epsilon}: {ours:e} against {expected:e}"
            );
            assert!(bound.epsilon(expected) <= epsilon * 1.001);
        }
    }

    const REFERENCE: [(u64, f64, f64, f64); 6] = [
        (2, 1.0, 0.5, 0.234739034823769),
        (10, 2.0, 1.0, 0.296411918512064),
        (100, 1.0, 0.6, 3.12460956804894e-06),
        (1000, 4.0, 2.0, 0.000228355720903326),
        (1000, 1.0, 0.25, 1.21137210301187e-09),
        (5000, 0.5, 0.06, 9.85621218403599e-15),
    ];

    #[test]
    fn one_participant_is_randomized_response() {
        for local in [0.01_f64, 1.0, 4.0, 12.0] {
            for delta in [1e-9_f64, 1e-6, 1e-3] {
                let expected = (local.exp() - delta * (1.0 + local.exp())).ln();
                let ours = shuffled(local, 1).epsilon(delta);
                assert!((ours - expected.max(0.0)).abs() < 1e-6, "{ours} {expected}");
                assert!(ours <= local);
            }
            assert_eq!(shuffled(local, 1).epsilon(0.0), local);
            assert_eq!(shuffled(local, 1_000).epsilon(f64::NAN), local);
        }
    }

    #[test]
    fn the_closed_form_holds_in_its_range_only_and_is_larger() {
        let known = shuffled(4.0, 1_000_000);
        // ln(1 + tanh(2)·(8√(e⁴ ln(4·10⁶)/10⁶) + 8e⁴/10⁶)), mpmath.
        let closed = known.closed_form_epsilon(1e-6).unwrap();
        assert!((closed - 0.200_985_229_523_743_5).abs() < 1e-12, "{closed}");
        assert!(known.epsilon(1e-6) < 0.5 * closed);
        // ε₀ ≤ ln(n/(16 ln(2/δ))): 10⁶ / (16·14.5) = e^8.367.
        for (local, holds) in [(8.36, true), (8.38, false)] {
            let closed = shuffled(local, 1_000_000).closed_form_epsilon(1e-6);
            assert_eq!(closed.is_some(), holds);
        }
        for delta in [0.0, -1.0, 1.0, 2.0, f64::NAN] {
            assert_eq!(known.closed_form_epsilon(delta), None);
        }
        assert_eq!(known.delta(f64::NAN), 1.0);
        assert_eq!(known.delta(-0.1), 1.0);
        assert_eq!(known.delta(4.0), 0.0);
    }

    #[test]
    fn values_that_the_documentation_prints() {
        for (local, n, numerical) in [
            (1.0, 10_000, 0.0530),
            (1.0, 1_000_000, 0.00433),
            (4.0, 100_000, 0.1699),
            (4.0, 1_000_000, 0.0493),
            (8.0, 10_000_000, 0.1276),
        ] {
            let ours = shuffled(local, n).epsilon(1e-6);
            assert!((ours / numerical - 1.0).abs() < 2e-3, "{local} {n}: {ours}");
        }
        // One clone on average: nothing is gained.
        assert_eq!(shuffled(16.0, 10_000_000).epsilon(1e-8), 16.0);
        // More participants than are counted: the closed form, which counts them all, is then smaller.
        let most = shuffled(1.0, u64::MAX);
        assert_eq!(Some(most.epsilon(1e-8)), most.closed_form_epsilon(1e-8));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn below_the_closed_form_and_the_report_and_falling_with_n(
            local in 0.05_f64..9.0, ln_n in 0.0_f64..13.0, ln_delta in -30.0_f64..-2.0
        ) {
            let (n, delta) = (ln_n.exp() as u64 + 1, ln_delta.exp());
            let few = shuffled(local, n);
            let epsilon = few.epsilon(delta);
            prop_assert!(epsilon <= local);
            prop_assert!(epsilon == 0.0 || epsilon == local || few.delta(epsilon) <= delta);
            if let Some(closed) = few.closed_form_epsilon(delta) {
                prop_assert!(few.delta(closed) <= delta, "the numerical bound proves the closed form");
            }
            // The sums stop at 1e-8 of their value, the search at 1e-7.
            prop_assert!(shuffled(local, 2 * n).epsilon(delta) <= epsilon * (1.0 + 1e-5));
            prop_assert!(shuffled(local * 1.05, n).epsilon(delta) >= epsilon * (1.0 - 1e-5));
            prop_assert!(few.epsilon(delta * 2.0) <= epsilon * (1.0 + 1e-6));
        }
    }
}
