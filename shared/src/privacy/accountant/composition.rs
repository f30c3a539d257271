//! The reports of one participant to several studies.

use super::{
    guarantee::{Guarantee, Pure, Zcdp},
    loss::RandomizedResponses,
    zcdp,
};
use crate::privacy::gaussian;
use crate::privacy::search::{is_open_unit, smallest_epsilon};

/// Precision of a composed ε, as a part of itself.
const PRECISION: f64 = 1e-10;

/// What the reports of one participant to different studies satisfy together.
///
/// **Their number and their guarantees are fixed in advance**; only what a later study asks may depend on
/// earlier reports. If a guarantee, or whether there is another report, is chosen from outcomes, then
/// [`epsilon`](Self::epsilon) and [`delta`](Self::delta) of the reports that came about do **not** hold: stopping
/// among 100 studies of ε = 1 when it pays has five times the δ that is asked for
/// (`shared/tests/shared/chosen_from_outcomes.rs`). [`filter_epsilon`](Self::filter_epsilon) holds then.
///
/// Each report's guarantee is replaced by a pair of laws that dominates it; dominating pairs compose by
/// taking products (Zhu, Dong & Wang 2022, Theorem 10):
/// * pure ε: binary randomized response; (ε, δ): the same, lost altogether with probability δ (Kairouz,
///   Oh & Viswanath 2015), so that the δ are added and the ε are composed as pure ones;
/// * Gaussian: N(0, 1) against N(μ, 1). Products of these are Gaussian again: **μ² adds**, exactly (Dong,
///   Roth & Su 2022, Corollary 3.3);
/// * zCDP: **ρ adds** (Bun & Steinke 2016, Lemma 1.7). Together with Gaussians ρ = Σρ + μ²/2, converted once.
///
/// The smallest of three bounds is given: the product, `E δ_rest(ε − L)` over the loss L of the randomized
/// responses (exact where no zCDP takes part); the same with L = Σε (basic composition); and one ρ for
/// everything, pure ε as ε²/2 (Proposition 1.4 there). Advanced composition (Dwork, Rothblum & Vadhan 2010)
/// is a weaker bound on the same product and is not offered.
///
/// Not to be added: two reports to one study (a retry resends the same bytes, which costs nothing; anything
/// else is one more report), and [`Shuffled`](super::Shuffled) guarantees.
#[derive(Clone, Debug, Default)]
pub struct Composition {
    pure: Vec<f64>,
    mu_squared: f64,
    rho: f64,
    lost: f64,
    releases: usize,
}

impl Composition {
    /// No report yet: ε = 0, δ = 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more report, to another study.
    pub fn add(&mut self, guarantee: impl Into<Guarantee>) {
        match guarantee.into() {
            Guarantee::Pure(pure) => self.pure.push(pure.epsilon()),
            Guarantee::Approximate(approximate) => {
                self.pure.push(approximate.epsilon());
                self.lost = add_up(self.lost, approximate.delta());
            }
            Guarantee::Gaussian(gaussian) => {
                let squared = (gaussian.mu() * gaussian.mu()).next_up();
                self.mu_squared = add_up(self.mu_squared, squared);
            }
            Guarantee::Zcdp(zcdp) => self.rho = add_up(self.rho, zcdp.rho()),
        }
        self.releases += 1;
    }

    /// How many reports.
    pub fn len(&self) -> usize {
        self.releases
    }

    /// Whether there is no report.
    pub fn is_empty(&self) -> bool {
        self.releases == 0
    }

    /// A δ such that all reports together are (`epsilon`, δ)-differentially private, rounded up; 1 for an ε
    /// that is negative or not a number.
    pub fn delta(&self, epsilon: f64) -> f64 {
        self.prepared().delta(epsilon)
    }

    /// An ε such that all reports together are (ε, `delta`)-differentially private, rounded up. `None` when
    /// no ε holds (the δ of [`Approximate`](super::Approximate) reports alone exceed it, or δ = 0 and
    /// not all reports are pure), and unless 0 ≤ δ < 1.
    pub fn epsilon(&self, delta: f64) -> Option<f64> {
        if delta == 0.0 {
            return self.pure_epsilon();
        }
        if !is_open_unit(delta) || delta <= self.lost {
            return None;
        }
        let prepared = self.prepared();
        let found = smallest_epsilon(|epsilon| prepared.delta(epsilon), delta, PRECISION);
        // The search ends a little above the smallest ε, and the sum may be exactly it.
        match (found, self.pure_epsilon()) {
            (Some(found), Some(sum)) => Some(found.min(sum)),
            (found, sum) => found.or(sum),
        }
    }

    /// An ε at `delta` for reports whose number and guarantees **may be chosen from outcomes**, as long as they
    /// never pass the totals of these ones: a privacy filter. The totals are Σε and Σδ (pure and approximate
    /// reports), Σμ² (Gaussian ones) and Σρ (all, Gaussian ones with μ²/2, pure ones with ε²/2); fix them
    /// before the first report and refuse what would pass one.
    ///
    /// The smallest of three bounds: Σε at δ ≥ Σδ, where all are pure or approximate (Rogers, Roth, Ullman &
    /// Vadhan 2016); √Σμ² as one Gaussian, where all are (Smith & Thakurta 2022); Σρ as one zCDP, Σδ added
    /// (Feldman & Zrnic 2021; Whitehouse, Ramdas, Rogers & Wu 2023). `None` as [`epsilon`](Self::epsilon).
    pub fn filter_epsilon(&self, delta: f64) -> Option<f64> {
        if delta == 0.0 {
            return self.pure_epsilon();
        }
        if !is_open_unit(delta) || delta <= self.lost {
            return None;
        }
        let only_gaussian = self.pure.is_empty() && self.rho == 0.0;
        let rest = if only_gaussian {
            self.prepared().rest
        } else {
            Rest::Zcdp(self.total_rho())
        };
        let found = smallest_epsilon(
            |epsilon| add_up(self.lost, rest.delta(epsilon)),
            delta,
            PRECISION,
        );
        let basic = (self.mu_squared == 0.0 && self.rho == 0.0).then(|| self.pure_sum());
        match (found, basic) {
            (Some(found), Some(sum)) => Some(found.min(sum)),
            (found, sum) => found.or(sum),
        }
    }

    /// Σε where every report is pure: the guarantee with δ = 0 (basic composition), rounded up. `None` where
    /// one is not.
    pub fn pure_epsilon(&self) -> Option<f64> {
        (self.pure.len() == self.releases && self.lost == 0.0).then(|| self.pure_sum())
    }

    fn pure_sum(&self) -> f64 {
        self.pure.iter().copied().fold(0.0, add_up)
    }

    /// Σρ, pure and Gaussian reports converted, rounded up; `None` when there is no report or one is only
    /// [`Approximate`](super::Approximate).
    pub fn zcdp(&self) -> Option<Zcdp> {
        if self.lost > 0.0 {
            return None;
        }
        Zcdp::new(self.total_rho()).ok()
    }

    fn total_rho(&self) -> f64 {
        self.pure
            .iter()
            .filter_map(|&epsilon| Pure::new(epsilon).ok())
            .map(|pure| Zcdp::from(pure).rho())
            .fold(self.rest_rho(), add_up)
    }

    /// ρ of all but the randomized responses.
    fn rest_rho(&self) -> f64 {
        if self.mu_squared == 0.0 {
            return self.rho;
        }
        add_up(self.rho, (0.5 * self.mu_squared).next_up())
    }

    fn prepared(&self) -> Prepared {
        let rest = if self.rho > 0.0 {
            Rest::Zcdp(self.rest_rho())
        } else if self.mu_squared > 0.0 {
            Rest::Gaussian(self.mu_squared.sqrt().next_up())
        } else {
            Rest::Nothing
        };
        Prepared {
            responses: RandomizedResponses::new(&self.pure),
            sum: self.pure_sum(),
            rest,
            total_rho: self.total_rho(),
            lost: self.lost,
        }
    }
}

/// The composed pair of laws, ready for many ε.
struct Prepared {
    responses: RandomizedResponses,
    /// Σε of the randomized responses: their loss is never above it.
    sum: f64,
    rest: Rest,
    total_rho: f64,
    lost: f64,
}

/// What is not randomized response.
enum Rest {
    Nothing,
    Gaussian(f64),
    Zcdp(f64),
}

impl Rest {
    /// δ(ε) at any real ε.
    fn delta(&self, epsilon: f64) -> f64 {
        match *self {
            Rest::Nothing => (-epsilon.exp_m1()).max(0.0),
            Rest::Gaussian(mu) if epsilon >= 0.0 => gaussian::true_delta(1.0, mu, epsilon),
            Rest::Gaussian(mu) => {
                zcdp::exchanged(epsilon, |positive| gaussian::true_delta(1.0, mu, positive))
            }
            Rest::Zcdp(rho) => zcdp::delta(rho, epsilon),
        }
    }
}

impl Prepared {
    fn delta(&self, epsilon: f64) -> f64 {
        if epsilon.is_nan() || epsilon < 0.0 {
            return 1.0;
        }
        let product = self.responses.delta(epsilon, |rest| self.rest.delta(rest));
        let concentrated = zcdp::delta(self.total_rho, epsilon);
        // Where the sum is exceeded, without what rounding the atoms up has added to the product.
        let basic = if epsilon >= self.sum {
            self.rest.delta((epsilon - self.sum).next_down().max(0.0))
        } else {
            1.0
        };
        let kept = product.min(concentrated).min(basic);
        if kept == 0.0 {
            return self.lost.min(1.0);
        }
        add_up(self.lost, kept).min(1.0)
    }
}

impl<G: Into<Guarantee>> From<G> for Composition {
    fn from(guarantee: G) -> Self {
        let mut composition = Self::new();
        composition.add(guarantee);
        composition
    }
}

impl<G: Into<Guarantee>> FromIterator<G> for Composition {
    fn from_iter<I: IntoIterator<Item = G>>(guarantees: I) -> Self {
        let mut composition = Self::new();
        composition.extend(guarantees);
        composition
    }
}

impl<G: Into<Guarantee>> Extend<G> for Composition {
    fn extend<I: IntoIterator<Item = G>>(&mut self, guarantees: I) {
        for guarantee in guarantees {
            self.add(guarantee);
        }
    }
}

/// a + b, rounded up; exact where one of them is zero.
fn add_up(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 {
        a + b
    } else {
        (a + b).next_up()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Approximate, Gaussian};
    use super::*;

    fn pure(epsilon: f64) -> Guarantee {
        Pure::new(epsilon).unwrap().into()
    }

    fn gaussian(mu: f64) -> Guarantee {
        Gaussian::new(mu).unwrap().into()
    }

    fn close(ours: f64, expected: f64) {
        assert!(
            ours >= expected * (1.0 - 1e-13) && ours <= expected * (1.0 + 1e-8),
            "{ours} against {expected}"
        );
    }

    #[test]
    fn agrees_with_fifty_digit_composition() {
        // mpmath, 50 digits: the sum over the 2^k sign patterns of k randomized responses of the Gaussian
        // profile at what is left of ε; ε by bisection at δ = 1e-6.
        let cases: [(Vec<Guarantee>, f64, [f64; 3]); 4] = [
            (
                vec![pure(1.0), gaussian(0.3), gaussian(0.4), pure(2.0)],
                5.20632449233752,
                [0.691833452021656, 0.603535251467923, 0.410267069239725],
            ),
            (
                vec![pure(0.5), pure(0.25), pure(0.5), gaussian(1.0)],
                5.82345171555452,
                [0.338399449007984, 0.220942905318994, 0.0654711008516331],
            ),
            (
                vec![pure(1.0); 5],
                4.99999521105167,
                [0.670254010426167, 0.537101719760969, 0.441211438279549],
            ),
            (
                [0.1, 0.2, 0.3, 0.4].map(pure).to_vec(),
                0.999989926471293,
                [0.0700750274008748, 0.0, 0.0],
            ),
        ];
        for (guarantees, epsilon, deltas) in cases {
            let composition: Composition = guarantees.into_iter().collect();
            close(composition.epsilon(1e-6).unwrap(), epsilon);
            for (at, expected) in [0.5, 1.0, 2.0].into_iter().zip(deltas) {
                let ours = composition.delta(at);
                assert!(
                    ours >= expected * (1.0 - 1e-13) && ours <= expected * (1.0 + 1e-8) + 1e-14
                );
            }
        }
        // Five reports of the analytic mechanism at (1, 1e-6): μ = 0.236704380663436·√5.
        let five: Composition = [Gaussian::calibrated(1.0, 1e-6).unwrap(); 5]
            .into_iter()
            .collect();
        close(five.epsilon(1e-6).unwrap(), 2.3997123491779);
    }

    #[test]
    fn one_report_is_itself() {
        let one = Composition::from(pure(1.0));
        assert_eq!(one.epsilon(0.0), Some(1.0));
        let randomized_response = (1.0_f64.exp() - 1e-6 * (1.0 + 1.0_f64.exp())).ln();
        close(one.epsilon(1e-6).unwrap(), randomized_response);
        close(one.delta(0.3), Pure::new(1.0).unwrap().delta(0.3));
        let mu = Gaussian::new(0.7).unwrap();
        close(
            Composition::from(mu).epsilon(1e-5).unwrap(),
            mu.epsilon(1e-5).unwrap(),
        );
        let rho = Zcdp::new(0.2).unwrap();
        close(
            Composition::from(rho).epsilon(1e-5).unwrap(),
            rho.epsilon(1e-5).unwrap(),
        );
        let approximate = Composition::from(Approximate::new(1.0, 1e-6).unwrap());
        close(approximate.delta(1.0), 1e-6);
        close(approximate.epsilon(1e-6 * (1.0 + 1e-12)).unwrap(), 1.0);
        assert_eq!(approximate.epsilon(1e-7), None);
        assert_eq!(approximate.zcdp(), None);
    }

    #[test]
    fn nothing_costs_nothing_and_nonsense_has_no_guarantee() {
        let none = Composition::new();
        assert!(none.is_empty());
        assert_eq!(
            (none.delta(0.0), none.epsilon(0.0), none.epsilon(1e-6)),
            (0.0, Some(0.0), Some(0.0))
        );
        let some = Composition::from(gaussian(1.0));
        assert_eq!(some.epsilon(0.0), None);
        for delta in [-1.0, 1.0, f64::NAN] {
            assert_eq!(some.epsilon(delta), None);
        }
        assert_eq!((some.delta(-1.0), some.delta(f64::NAN)), (1.0, 1.0));
    }

    #[test]
    fn pure_reports_add_up_and_many_small_ones_do_better() {
        let sum: Composition = [0.1, 0.2, 0.4].map(pure).into_iter().collect();
        let epsilon = sum.pure_epsilon().unwrap();
        assert!((0.7..0.7 + 1e-15).contains(&epsilon));
        assert_eq!(sum.epsilon(0.0), Some(epsilon));
        assert_eq!(sum.delta(epsilon), 0.0);
        let many: Composition = (0..400).map(|_| pure(0.05)).collect();
        assert!(many.epsilon(1e-6).unwrap() < 6.0 && many.pure_epsilon().unwrap() >= 20.0);
        // All different: atoms are moved up to a grid, which costs little.
        let different: Composition = (0..100).map(|i| pure(0.05 + 1e-4 * f64::from(i))).collect();
        let alike: Composition = (0..100).map(|_| pure(0.054_95)).collect();
        let (different, alike) = (
            different.epsilon(1e-6).unwrap(),
            alike.epsilon(1e-6).unwrap(),
        );
        assert!(different < alike * 1.2, "{different} {alike}");
        assert!(
            different
                < Composition::from(Zcdp::new(100.0 * 0.5 * 0.056 * 0.056).unwrap())
                    .epsilon(1e-6)
                    .unwrap()
        );
    }

    fn any_guarantee() -> impl Strategy<Value = Guarantee> {
        prop_oneof![
            (0.05_f64..3.0).prop_map(pure),
            (0.05_f64..2.0).prop_map(gaussian),
            (0.001_f64..1.0).prop_map(|rho| Zcdp::new(rho).unwrap().into()),
            (0.05_f64..2.0, 1e-12_f64..1e-8).prop_map(|(epsilon, delta)| Approximate::new(
                epsilon, delta
            )
            .unwrap()
            .into()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn never_below_a_part_and_never_above_basic_composition(
            guarantees in proptest::collection::vec(any_guarantee(), 1..6),
            ln_delta in -16.0_f64..-3.0,
        ) {
            let delta = ln_delta.exp();
            let all: Composition = guarantees.iter().copied().collect();
            let epsilon = all.epsilon(delta).unwrap();
            prop_assert!(all.delta(epsilon) <= delta);
            let share = delta / guarantees.len() as f64;
            let mut basic = 0.0;
            for &guarantee in &guarantees {
                prop_assert!(epsilon >= guarantee.epsilon(delta).unwrap() * (1.0 - 1e-9));
                prop_assert!(all.delta(1.0) >= guarantee.delta(1.0) * (1.0 - 1e-9));
                basic += guarantee.epsilon(share).unwrap();
            }
            // Basic composition with δ split evenly, but for the price of mixing Gaussian and zCDP.
            prop_assert!(epsilon <= basic * 1.15, "{epsilon} {basic}");
            let mut more = all.clone();
            more.add(guarantees[0]);
            prop_assert!(more.epsilon(delta).unwrap() >= epsilon * (1.0 - 1e-9));
            prop_assert!(all.delta(epsilon * 0.99) >= all.delta(epsilon));
        }
    }
}
