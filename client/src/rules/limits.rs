//! Limits of a device's spending, and the charges of reports.

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    parameters::Parameters,
    privacy::{Budget, MAX_EPSILON, PrivacyStatement, WARN_EPSILON, format_delta},
};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Limits of a device: for all its reports together, and for one of them.
///
/// Defaults, chosen conservatively for ordinary studies:
///
/// | limit | default | why |
/// |---|---|---|
/// | `epsilon_per_study` | 8.001 | Eigenveil warns above ε = 8; the margin covers floating-point slack |
/// | `epsilon_total` | 16.01 | the largest ε of a single study, with a margin for the same reason |
/// | `delta_total` | 1e-5 | ten studies at δ = 1e-6; far below 1/n for any realistic study |
///
/// A charge may equal the limit exactly. Charges include floating-point slack (about 1e-6 for `double-cap`), so leave a
/// margin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Limits {
    epsilon_per_study: f64,
    epsilon_total: f64,
    delta_total: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    epsilon_per_study: f64,
    epsilon_total: f64,
    delta_total: f64,
}

impl TryFrom<Unchecked> for Limits {
    type Error = crate::Error;

    fn try_from(limits: Unchecked) -> Result<Self> {
        Self::new(
            limits.epsilon_per_study,
            limits.epsilon_total,
            limits.delta_total,
        )
    }
}

impl Default for Limits {
    /// ε at most 8.001 per study and 16.01 in total, δ at most 1e-5 in total.
    fn default() -> Self {
        Self {
            epsilon_per_study: WARN_EPSILON + 0.001,
            epsilon_total: MAX_EPSILON + 0.01,
            delta_total: 1e-5,
        }
    }
}

impl Limits {
    /// Creates limits. Zero is allowed: ε = 0 admits no study, δ = 0 only studies with δ = 0.
    ///
    /// # Errors
    /// `invalid-budget` unless both ε are finite and not negative, and 0 ≤ δ < 1.
    pub fn new(epsilon_per_study: f64, epsilon_total: f64, delta_total: f64) -> Result<Self> {
        let default = Self::default();
        for (name, value, default) in [
            (
                "epsilon_per_study",
                epsilon_per_study,
                default.epsilon_per_study,
            ),
            ("epsilon_total", epsilon_total, default.epsilon_total),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(
                    ErrorCode::InvalidBudget,
                    format!(
                        "the limit {name} is {value}; it must be a finite number that is not negative, such as {default}"
                    ),
                );
            }
        }
        if !(0.0..1.0).contains(&delta_total) {
            return refuse(
                ErrorCode::InvalidBudget,
                format!(
                    "the limit delta_total is {delta_total}; it must be at least 0 and below 1, such as {:e}",
                    default.delta_total
                ),
            );
        }
        Ok(Self {
            epsilon_per_study,
            epsilon_total,
            delta_total,
        })
    }

    /// Returns these limits with the given ones replaced.
    ///
    /// # Errors
    /// As [`Limits::new`].
    pub fn changed(
        self,
        epsilon_per_study: Option<f64>,
        epsilon_total: Option<f64>,
        delta_total: Option<f64>,
    ) -> Result<Self> {
        Self::new(
            epsilon_per_study.unwrap_or(self.epsilon_per_study),
            epsilon_total.unwrap_or(self.epsilon_total),
            delta_total.unwrap_or(self.delta_total),
        )
    }

    /// Largest ε of one report.
    pub fn epsilon_per_study(&self) -> f64 {
        self.epsilon_per_study
    }

    /// Largest ε of all reports together.
    pub fn epsilon_total(&self) -> f64 {
        self.epsilon_total
    }

    /// Largest δ of all reports together.
    pub fn delta_total(&self) -> f64 {
        self.delta_total
    }

    /// The rest of the totals, rounded down.
    pub fn remaining(&self, spent: PrivacyCost) -> PrivacyCost {
        PrivacyCost {
            epsilon: difference_rounded_down(self.epsilon_total, spent.epsilon),
            delta: difference_rounded_down(self.delta_total, spent.delta),
        }
    }

    /// Checks `charge` against the limits; the error names the cost and the limit it would exceed.
    pub(crate) fn check(&self, spent: &[Budget], charge: Budget) -> Result<(), LimitExceeded> {
        if charge.epsilon() > self.epsilon_per_study {
            return Err(LimitExceeded {
                cost: format!("epsilon {}", charge.epsilon()),
                limit: format!("{} on one study", self.epsilon_per_study),
            });
        }
        let before = compose(spent.iter().copied());
        let after = compose(spent.iter().copied().chain([charge]));
        if after.epsilon > self.epsilon_total {
            return Err(LimitExceeded {
                cost: format!("epsilon {} on top of {}", charge.epsilon(), before.epsilon),
                limit: format!("{} in total", self.epsilon_total),
            });
        }
        if after.delta > self.delta_total {
            return Err(LimitExceeded {
                cost: format!(
                    "delta {} on top of {}",
                    format_delta(charge.delta()),
                    format_delta(before.delta)
                ),
                limit: format!("{} in total", format_delta(self.delta_total)),
            });
        }
        Ok(())
    }
}

/// A limit that would be exceeded.
#[derive(Debug)]
pub(crate) struct LimitExceeded {
    cost: String,
    limit: String,
}

impl LimitExceeded {
    /// The error; `action` is a phrase such as "taking part in", `who_spends` a clause such as "this device spends";
    /// `owner` names who may raise the limit.
    pub(crate) fn to_error(
        &self,
        action: &str,
        study: &str,
        who_spends: &str,
        owner: &str,
    ) -> crate::Error {
        SharedError::new(
            ErrorCode::BudgetExceeded,
            format!(
                "{action} study {study} would cost {}, and {who_spends} at most {}; do not take part, or let {owner} raise the limit",
                self.cost, self.limit
            ),
        )
        .into()
    }
}

/// An (ε, δ) that was spent, or remains; both may be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyCost {
    /// The ε.
    pub epsilon: f64,
    /// The δ.
    pub delta: f64,
}

/// The charge of one report of these parameters.
///
/// Every charge is computed here. A study whose noise is as published may give less privacy than it claims: the charge
/// is the larger of the claimed ε and the true ε at the claimed δ. The latter includes floating-point slack
/// ([`arithmetic_slack`](eigenveil_shared::mechanism::Mechanism::arithmetic_slack)): 2⁻²⁰ for `double-cap`, at most a
/// hundredth of ε for the Gaussian mechanisms, nothing for the discrete one.
///
/// # Errors
/// `budget-exceeded` if no ε holds.
pub(crate) fn charge(
    study: &str,
    params: &Parameters,
    statement: &PrivacyStatement,
) -> Result<Budget> {
    let claimed = params.budget();
    // If the claim holds exactly, charge the claim rather than its rounded-up bound.
    if statement.claim_holds && params.arithmetic_slack() == 0.0 {
        return Ok(claimed);
    }
    let Some(true_epsilon) = statement.true_epsilon else {
        return refuse(
            ErrorCode::BudgetExceeded,
            format!(
                "the noise of study {study} is so small that no epsilon holds at delta {}, which no limit allows; do not take part",
                format_delta(claimed.delta())
            ),
        );
    };
    Ok(Budget::new(
        claimed.epsilon().max(true_epsilon),
        claimed.delta(),
    )?)
}

/// The total of these charges: basic composition (Dwork & Roth 2014, Theorem 3.16), which holds for any mechanisms,
/// chosen by anybody in any order. Sums, rounded up.
pub(crate) fn compose(charges: impl IntoIterator<Item = Budget>) -> PrivacyCost {
    let (epsilons, deltas): (Vec<f64>, Vec<f64>) = charges
        .into_iter()
        .map(|charge| (charge.epsilon(), charge.delta()))
        .unzip();
    PrivacyCost {
        epsilon: sum_rounded_up(&epsilons),
        delta: sum_rounded_up(&deltas),
    }
}

/// The smallest number that is not below the exact sum (Shewchuk 1997: a sum of nonoverlapping numbers is exact), so
/// that rounding can neither exceed a limit nor fall short of it.
fn sum_rounded_up(values: &[f64]) -> f64 {
    // Ascending, without overlap; their sum is exact.
    let mut parts: Vec<f64> = Vec::new();
    for &value in values {
        let mut carry = value;
        parts.retain_mut(|part| {
            let (high, low) = two_sum(carry, *part);
            carry = high;
            *part = low;
            low != 0.0
        });
        parts.push(carry);
    }
    let mut high = 0.0;
    for part in parts.into_iter().rev() {
        let low;
        (high, low) = two_sum(high, part);
        // Everything below is smaller than this remainder, which decides.
        if low > 0.0 {
            return high.next_up();
        } else if low < 0.0 {
            break;
        }
    }
    high
}

/// The largest number that is not above `limit - spent`; 0 where that is negative.
fn difference_rounded_down(limit: f64, spent: f64) -> f64 {
    if spent >= limit {
        return 0.0;
    }
    let (high, low) = two_sum(limit, -spent);
    if low < 0.0 { high.next_down() } else { high }
}

/// The rounded sum, and the rounding error, exactly (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    let a_part = sum - b_part;
    (sum, (a - a_part) + (b - b_part))
}

fn refuse<T>(code: ErrorCode, detail: String) -> Result<T> {
    Err(SharedError::new(code, detail).into())
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        mechanism::{Calibration, MechanismKind},
        study::{StudyDesign, StudyParams},
    };
    use proptest::prelude::*;

    use super::*;

    fn budget(epsilon: f64, delta: f64) -> Budget {
        Budget::new(epsilon, delta).unwrap()
    }

    #[test]
    fn a_limit_may_be_reached_but_not_passed_by_one_ulp() {
        let limits = Limits::new(2.0, 5.0, 3e-6).unwrap();
        let fits = |spent: &[Budget], charge| limits.check(spent, charge).is_ok();
        // Per study.
        assert!(fits(&[], budget(2.0, 0.0)));
        assert!(!fits(&[], budget(2.0_f64.next_up(), 0.0)));
        // In total.
        let spent = [budget(2.0, 0.0), budget(1.5, 0.0)];
        assert!(fits(&spent, budget(1.5, 0.0)));
        assert!(!fits(&spent, budget(1.5_f64.next_up(), 0.0)));
        assert!(fits(&spent, budget(1.5_f64.next_down(), 0.0)));
        // An excess lost by ordinary rounding is still detected.
        assert_eq!(5.0 + 1e-300, 5.0);
        let spent = [budget(2.0, 0.0), budget(2.0, 0.0), budget(1.0, 0.0)];
        assert!(!fits(&spent, budget(1e-300, 0.0)));
        // δ.
        let spent = [budget(0.1, 2e-6)];
        let rest = difference_rounded_down(3e-6, 2e-6);
        assert!(fits(&spent, budget(0.1, rest)));
        assert!(!fits(&spent, budget(0.1, rest.next_up().next_up())));
        assert!(fits(&[], budget(0.1, 3e-6)));
        assert!(!fits(&[], budget(0.1, 3e-6_f64.next_up())));
        // Zero limits.
        let nothing = Limits::new(0.0, 0.0, 0.0).unwrap();
        assert!(nothing.check(&[], budget(1e-9, 0.0)).is_err());
        let pure = Limits::new(1.0, 1.0, 0.0).unwrap();
        assert!(pure.check(&[], budget(1.0, 0.0)).is_ok());
        assert!(pure.check(&[], budget(1.0, 1e-300)).is_err());
    }

    #[test]
    fn refusals_name_value_limit_and_way_out() {
        let limits = Limits::new(2.0, 5.0, 3e-6).unwrap();
        for (spent, charge, says) in [
            (
                vec![],
                budget(2.5, 1e-6),
                "epsilon 2.5, and this device spends at most 2 on one study",
            ),
            (
                vec![budget(2.0, 1e-6), budget(1.5, 1e-6)],
                budget(2.0, 1e-6),
                "epsilon 2 on top of 3.5, and this device spends at most 5 in total",
            ),
            (
                vec![budget(1.0, 2e-6)],
                budget(1.0, 2e-6),
                "delta 2e-6 on top of 2e-6, and this device spends at most 3e-6 in total",
            ),
        ] {
            let over = limits.check(&spent, charge).unwrap_err();
            let error = over
                .to_error(
                    "taking part in",
                    "0123",
                    "this device spends",
                    "the device's owner",
                )
                .to_string();
            assert!(
                error.contains(says) && error.contains("study 0123"),
                "{error}"
            );
            assert!(error.contains("raise the limit"), "{error}");
        }
    }

    #[test]
    fn ten_ordinary_studies_fit_the_default_delta() {
        let limits = Limits::default();
        let spent = [budget(1.0, 1e-6); 9];
        assert!(limits.check(&spent, budget(1.0, 1e-6)).is_ok());
        let spent = [budget(1.0, 1e-6); 10];
        assert!(limits.check(&spent, budget(1.0, 1e-6)).is_err());
        assert_eq!(limits.remaining(compose(spent)).epsilon, 16.01 - 10.0);
        assert!(limits.remaining(compose(spent)).delta < 1e-20);
        assert_eq!(
            limits.remaining(PrivacyCost {
                epsilon: 99.0,
                delta: 0.5
            }),
            PrivacyCost::default()
        );
        assert_eq!(compose([]), PrivacyCost::default());
    }

    #[test]
    fn limits_are_checked_by_serde_too() {
        for (per_study, total, delta, name) in [
            (-1.0, 1.0, 0.0, "epsilon_per_study is -1"),
            (f64::NAN, 1.0, 0.0, "epsilon_per_study is NaN"),
            (1.0, f64::INFINITY, 0.0, "epsilon_total is inf"),
            (1.0, 1.0, 1.0, "delta_total is 1"),
            (1.0, 1.0, f64::NAN, "delta_total is NaN"),
            (1.0, 1.0, -1e-9, "delta_total is -0.000000001"),
        ] {
            let error = Limits::new(per_study, total, delta).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::InvalidBudget));
            let error = error.to_string();
            assert!(error.contains(name) && error.contains("such as"), "{error}");
        }
        let limits = Limits::new(0.1, 0.3, 1e-7).unwrap();
        let json = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&json).unwrap(), limits);
        let bad = json.replace("1e-7", "1.5");
        assert!(serde_json::from_str::<Limits>(&bad).is_err(), "{bad}");
    }

    #[test]
    fn the_true_epsilon_is_charged() {
        let charge_of_mechanism = |mechanism, dimension, calibration, epsilon| {
            let params = StudyParams::freeze(StudyDesign {
                calibration,
                ..StudyDesign::new(mechanism, dimension, budget(epsilon, 1e-6))
            })
            .unwrap();
            let statement = PrivacyStatement::new(&params);
            (
                charge("s", &params.clone().into(), &statement),
                params,
                statement,
            )
        };
        let charge_of = |calibration, epsilon| {
            charge_of_mechanism(MechanismKind::SymmetricGaussian, 4, calibration, epsilon)
        };
        // The true ε, floating-point slack included, is charged; it is at most 1 % above the claim.
        for mechanism in [
            MechanismKind::SymmetricGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            for (dimension, epsilon) in [(4, 0.01), (4, 0.1), (400, 1.0), (4, 4.0), (4_096, 8.0)] {
                let (charged, params, statement) =
                    charge_of_mechanism(mechanism, dimension, Calibration::Analytic, epsilon);
                let charged = charged.unwrap();
                assert_eq!(Some(charged.epsilon()), statement.true_epsilon);
                assert_eq!(charged.delta(), 1e-6);
                let slack = params.mechanism().arithmetic_slack(dimension);
                assert!(slack > 0.0 && charged.epsilon() >= epsilon + slack);
                // A study with a larger slack is refused.
                assert!(charged.epsilon() <= epsilon * 1.01);
                assert!(Limits::default().check(&[], charged).is_ok());
            }
        }
        // Without slack the claim is charged, even if the noise gives a little more privacy.
        for epsilon in [0.1, 1.0, 4.0, 8.0, 16.0] {
            let kind = MechanismKind::DiscreteGaussian;
            let (charged, ..) = charge_of_mechanism(kind, 4, Calibration::Analytic, epsilon);
            assert_eq!(charged.unwrap(), budget(epsilon, 1e-6));
        }
        let (charged, ..) = charge_of(Calibration::AsPublished, 0.1);
        assert_eq!(charged.unwrap(), budget(0.1, 1e-6));
        // The true ε of the paper's noise is charged where that noise is too small.
        let (charged, params, mut statement) = charge_of(Calibration::AsPublished, 4.0);
        let charged = charged.unwrap();
        assert!(charged.epsilon() > 5.26 && charged.epsilon() < 5.27);
        assert_eq!(charged.delta(), 1e-6);
        statement.true_epsilon = None;
        let error = charge("0123", &params.clone().into(), &statement).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BudgetExceeded));
        assert!(error.to_string().contains("no epsilon holds"), "{error}");
    }

    #[test]
    fn double_cap_is_charged_its_stated_epsilon() {
        for epsilon in [0.01, 1.0, 4.0, 8.0, 16.0] {
            let params = StudyParams::freeze(StudyDesign::new(
                MechanismKind::DoubleCap,
                40,
                Budget::pure(epsilon).unwrap(),
            ))
            .unwrap();
            let statement = PrivacyStatement::new(&params);
            let charged = charge("s", &params.clone().into(), &statement).unwrap();
            assert!(statement.claim_holds);
            assert_eq!(Some(charged.epsilon()), statement.true_epsilon);
            assert!(charged.epsilon() >= epsilon + 2.0_f64.powi(-20));
            assert_eq!(charged.delta(), 0.0);
        }
        // The defaults admit as many such studies as the total allows.
        let one = budget(4.0 + 2.0_f64.powi(-20), 0.0);
        assert!(Limits::default().check(&[one; 3], one).is_ok());
    }

    /// A multiple of 2⁻⁶⁰, and the exact multiplier.
    fn on_the_grid() -> impl Strategy<Value = (f64, u128)> {
        (1_u64..1 << 53, 0_u32..40).prop_map(|(mantissa, shift)| {
            let exact = u128::from(mantissa) << shift;
            (mantissa as f64 * 2.0_f64.powi(shift as i32 - 60), exact)
        })
    }

    proptest! {
        #[test]
        fn sums_are_the_exact_ones_rounded_up(terms in proptest::collection::vec(on_the_grid(), 0..40)) {
            let values: Vec<f64> = terms.iter().map(|(value, _)| *value).collect();
            let exact: u128 = terms.iter().map(|(_, exact)| *exact).sum();
            // Rounded up to 53 bits, in integers.
            let drop = (128 - exact.leading_zeros()).saturating_sub(53);
            let rounded = (exact >> drop) + u128::from((exact >> drop) << drop != exact);
            let expected = rounded as f64 * 2.0_f64.powi(drop as i32 - 60);
            prop_assert_eq!(sum_rounded_up(&values), expected);
        }
    }
}
