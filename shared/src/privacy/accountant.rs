//! The privacy guarantee of one report, and of several reports of one participant together.
//!
//! Neighbours: any two rows of one participant (replacement, the local model). Rounding: every ε, δ, μ
//! and ρ that comes out is rounded up, against us. Warn about δ > 1/n with
//! [`delta_warning`](super::delta_warning).

use crate::{
    error::Result,
    privacy::{
        gaussian,
        search::{is_valid_delta, positive},
    },
};

/// More than what the few operations below can lose.
const ROUNDED_UP: f64 = 1.0 + 8.0 * f64::EPSILON;

/// ε-differential privacy, δ = 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Pure {
    epsilon: f64,
}

impl Pure {
    /// ε-differential privacy.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ε < ∞.
    pub fn new(epsilon: f64) -> Result<Self> {
        Ok(Self {
            epsilon: positive("epsilon", epsilon)?,
        })
    }

    /// ε.
    pub fn epsilon(self) -> f64 {
        self.epsilon
    }
}

/// The guarantee of a report, for any two rows of its participant, in the form that adds up exactly.
///
/// All three totals are privacy filters: they hold too where number and parameters of the reports are chosen from
/// earlier outcomes, as long as the total was a limit set beforehand and is never passed (Rogers, Roth, Ullman &
/// Vadhan 2016 for ε; Smith & Thakurta 2022 for μ²; Feldman & Zrnic 2021 for ρ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guarantee {
    /// ε-differential privacy, of `double-cap`: ε adds.
    Pure(Pure),
    /// Telling two rows apart is no easier than telling N(0, 1) from N(μ, 1), of `symmetric-gaussian` and
    /// `isotropic-gaussian`: μ² adds (Dong, Roth & Su 2022, Corollary 3.3).
    Gaussian {
        /// μ = Δ/σ.
        mu: f64,
    },
    /// Zero-concentrated differential privacy, of `discrete-gaussian`: ρ adds (Bun & Steinke 2016, Lemma 1.7).
    Zcdp {
        /// ρ = Δ²/2σ².
        rho: f64,
    },
}

impl Guarantee {
    /// The guarantee of continuous noise `N(0, σ²I)` on a query of L2 sensitivity `sensitivity` (both in the same
    /// unit).
    ///
    /// # Errors
    /// `invalid-budget` unless σ, Δ and Δ/σ are positive and finite.
    pub fn gaussian(sigma: f64, sensitivity: f64) -> Result<Self> {
        let mu = positive("sensitivity", sensitivity)? / positive("sigma", sigma)?;
        let mu = positive("mu", mu.next_up())?;
        Ok(Self::Gaussian { mu })
    }

    /// ρ-zero-concentrated differential privacy.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ρ < ∞.
    pub fn zcdp(rho: f64) -> Result<Self> {
        let rho = positive("rho", rho)?;
        Ok(Self::Zcdp { rho })
    }

    /// The guarantee of this many reports together, each to a different study, rounded up.
    ///
    /// # Errors
    /// `invalid-budget` if the total is not finite.
    pub fn times(self, reports: u32) -> Result<Self> {
        let many = f64::from(reports);
        let total = |each: f64| match reports {
            1 => each,
            _ => each * many * ROUNDED_UP,
        };
        match self {
            Self::Pure(pure) => Pure::new(total(pure.epsilon)).map(Self::Pure),
            Self::Gaussian { mu } => Self::gaussian(1.0, mu * many.sqrt() * ROUNDED_UP),
            Self::Zcdp { rho } => Self::zcdp(total(rho)),
        }
    }

    /// An ε that holds at this δ, rounded up: exact for [`Gaussian`](Self::Gaussian); ρ + 2√(ρ ln(1/δ)) for
    /// [`Zcdp`](Self::Zcdp) (Bun & Steinke 2016, Proposition 1.3). `None` when no ε holds, and unless 0 ≤ δ < 1.
    pub fn epsilon(self, delta: f64) -> Option<f64> {
        match self {
            Self::Pure(pure) => (delta == 0.0 || is_valid_delta(delta)).then_some(pure.epsilon),
            Self::Gaussian { mu } => gaussian::true_epsilon(1.0, mu, delta),
            Self::Zcdp { rho } => {
                is_valid_delta(delta).then(|| (rho + 2.0 * (rho * -delta.ln()).sqrt()) * ROUNDED_UP)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn nonsense_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            for error in [
                Pure::new(bad).unwrap_err(),
                Guarantee::gaussian(bad, 1.0).unwrap_err(),
                Guarantee::gaussian(1.0, bad).unwrap_err(),
                Guarantee::zcdp(bad).unwrap_err(),
            ] {
                assert_eq!(error.code(), ErrorCode::InvalidBudget);
            }
        }
        assert!(Guarantee::zcdp(1e308).unwrap().times(10).is_err());
        let gaussian = Guarantee::gaussian(1.0, 1.0).unwrap();
        for delta in [-1.0, 0.0, 1.0, f64::NAN] {
            assert_eq!(gaussian.epsilon(delta), None);
            assert_eq!(Guarantee::zcdp(1.0).unwrap().epsilon(delta), None);
        }
    }

    /// ε of five reports at δ = 1e-6; the Gaussian ones by 50-digit arithmetic.
    #[test]
    fn several_reports_are_never_less_than_their_sum() {
        let pure = Guarantee::Pure(Pure::new(1.1).unwrap());
        let gaussian = Guarantee::gaussian(1.0, 0.236_704_380_663_436).unwrap();
        let zcdp = Guarantee::zcdp(0.028_014_481_906_929).unwrap();
        let rho = 0.140_072_409_534_645;
        let of_zcdp = rho + 2.0 * (rho * 1e6_f64.ln()).sqrt();
        for (one, sum) in [
            (pure, 5.5),
            (gaussian, 2.399_712_349_177_9),
            (zcdp, of_zcdp),
        ] {
            let five = one.times(5).unwrap().epsilon(1e-6).unwrap();
            let allowed = 1.0 - 1e-13..1.0 + 1e-10;
            assert!(allowed.contains(&(five / sum)), "{five} {sum}");
        }
        assert_eq!(pure.times(1).unwrap(), pure);
        assert_eq!(pure.epsilon(0.0), Some(1.1));
        // zCDP forgets that noise is Gaussian: never less than what exactly this ρ = μ²/2 is.
        for (mu, delta) in [(0.01, 1e-9), (0.2, 1e-6), (1.0, 1e-6), (5.0, 1e-3)] {
            let exact = Guarantee::gaussian(1.0, mu).unwrap().epsilon(delta);
            let concentrated = Guarantee::zcdp(0.5 * mu * mu).unwrap().epsilon(delta);
            assert!(concentrated > exact, "{mu} {delta}");
        }
    }
}
