//! What one report satisfies.

use super::zcdp;
use crate::privacy::search::{is_open_unit, positive, smallest_epsilon};
use crate::{
    error::Result,
    privacy::{Budget, gaussian},
};

/// Precision of an ε found by search, as a part of itself.
const PRECISION: f64 = 1e-12;

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

    /// The δ that goes with a smaller ε: `(e^ε₀ − e^ε)/(1 + e^ε₀)`, that of binary randomized response,
    /// which every ε₀-private mechanism is a post-processing of (Kairouz, Oh & Viswanath 2015); 0 from ε₀
    /// on. Rounded up.
    pub fn delta(self, epsilon: f64) -> f64 {
        if epsilon.is_nan() || epsilon < 0.0 {
            return 1.0;
        }
        if epsilon >= self.epsilon {
            return 0.0;
        }
        let delta = -(epsilon - self.epsilon).exp_m1() / (1.0 + (-self.epsilon).exp());
        (delta * (1.0 + 8.0 * f64::EPSILON)).min(1.0)
    }
}

/// (ε, δ)-differential privacy, δ > 0, of a mechanism of which nothing else is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Approximate {
    epsilon: f64,
    delta: f64,
}

impl Approximate {
    /// (ε, δ)-differential privacy.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ε < ∞ and 0 < δ < 1.
    pub fn new(epsilon: f64, delta: f64) -> Result<Self> {
        let budget = Budget::approximate(epsilon, delta)?;
        Ok(Self {
            epsilon: budget.epsilon(),
            delta: budget.delta(),
        })
    }

    /// ε.
    pub fn epsilon(self) -> f64 {
        self.epsilon
    }

    /// δ.
    pub fn delta(self) -> f64 {
        self.delta
    }
}

/// μ-Gaussian differential privacy: telling two rows apart is no easier than telling N(0, 1) from N(μ, 1)
/// (Dong, Roth & Su 2022). The Gaussian mechanism has μ = Δ/σ, exactly.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Gaussian {
    mu: f64,
}

impl Gaussian {
    /// μ-Gaussian differential privacy.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < μ < ∞.
    pub fn new(mu: f64) -> Result<Self> {
        Ok(Self {
            mu: positive("mu", mu)?,
        })
    }

    /// What noise `N(0, σ²I)` on a query of L2 sensitivity `sensitivity` satisfies (σ and sensitivity in
    /// the same unit): μ = Δ/σ, rounded up. Continuous noise only: the discrete Gaussian is [`Zcdp`].
    ///
    /// # Errors
    /// `invalid-budget` unless σ, Δ and Δ/σ are positive and finite.
    pub fn from_noise(sigma: f64, sensitivity: f64) -> Result<Self> {
        Self::new((positive("sensitivity", sensitivity)? / positive("sigma", sigma)?).next_up())
    }

    /// The Gaussian mechanism of analytic calibration to (ε, δ), whatever its sensitivity
    /// ([`gaussian::analytic_sigma`]).
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ε < ∞ and 0 < δ < 1.
    pub fn calibrated(epsilon: f64, delta: f64) -> Result<Self> {
        let budget = Budget::approximate(epsilon, delta)?;
        Self::from_noise(gaussian::analytic_sigma(budget, 1.0)?, 1.0)
    }

    /// μ = Δ/σ.
    pub fn mu(self) -> f64 {
        self.mu
    }

    /// The smallest δ at this ε, rounded up (Balle & Wang 2018, Theorem 8).
    pub fn delta(self, epsilon: f64) -> f64 {
        gaussian::true_delta(1.0, self.mu, epsilon)
    }

    /// The smallest ε at this δ, rounded up; `None` unless 0 < δ < 1.
    pub fn epsilon(self, delta: f64) -> Option<f64> {
        gaussian::true_epsilon(1.0, self.mu, delta)
    }
}

/// ρ-zero-concentrated differential privacy (Bun & Steinke 2016).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Zcdp {
    rho: f64,
}

impl Zcdp {
    /// ρ-zCDP.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ρ < ∞.
    pub fn new(rho: f64) -> Result<Self> {
        Ok(Self {
            rho: positive("rho", rho)?,
        })
    }

    /// What independent discrete (or continuous) Gaussian noise of parameter σ on an integer query of
    /// L2 sensitivity `sensitivity` satisfies, both in grid steps: ρ = Δ²/2σ², rounded up (Canonne, Kamath
    /// & Steinke 2020, Theorem 14).
    ///
    /// # Errors
    /// `invalid-budget` unless σ, Δ and ρ are positive and finite.
    pub fn from_noise(sigma: f64, sensitivity: f64) -> Result<Self> {
        let gaussian = Gaussian::from_noise(sigma, sensitivity)?;
        Self::new(rho_of_mu(gaussian.mu))
    }

    /// ρ.
    pub fn rho(self) -> f64 {
        self.rho
    }

    /// A δ at this ε, rounded up (Canonne, Kamath & Steinke 2020, Corollary 13).
    pub fn delta(self, epsilon: f64) -> f64 {
        if epsilon.is_nan() || epsilon < 0.0 {
            return 1.0;
        }
        zcdp::delta(self.rho, epsilon)
    }

    /// An ε at this δ, rounded up: the same conversion; `None` unless 0 < δ < 1.
    pub fn epsilon(self, delta: f64) -> Option<f64> {
        if !is_open_unit(delta) {
            return None;
        }
        smallest_epsilon(|epsilon| self.delta(epsilon), delta, PRECISION)
    }
}

/// ε-differential privacy implies ρ = ε²/2 (Bun & Steinke 2016, Proposition 1.4); rounded up.
impl From<Pure> for Zcdp {
    fn from(pure: Pure) -> Self {
        Self {
            rho: rho_of_mu(pure.epsilon),
        }
    }
}

/// μ-Gaussian differential privacy implies ρ = μ²/2 (Dong, Roth & Su 2022, Corollary B.6; for the Gaussian
/// mechanism Bun & Steinke 2016, Proposition 1.6); rounded up.
impl From<Gaussian> for Zcdp {
    fn from(gaussian: Gaussian) -> Self {
        Self {
            rho: rho_of_mu(gaussian.mu),
        }
    }
}

/// x²/2, rounded up, never zero and never infinite.
fn rho_of_mu(mu: f64) -> f64 {
    (0.5 * mu * mu).next_up().clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// (ε, 0) as pure, anything else as approximate.
impl From<Budget> for Guarantee {
    fn from(budget: Budget) -> Self {
        let (epsilon, delta) = (budget.epsilon(), budget.delta());
        if budget.is_pure() {
            Self::Pure(Pure { epsilon })
        } else {
            Self::Approximate(Approximate { epsilon, delta })
        }
    }
}

/// What one report satisfies, for any two rows of its participant.
///
/// | variant | mechanisms | composed by [`Composition`](super::Composition) |
/// |---|---|---|
/// | [`Pure`] | `double-cap` | as randomized response, exactly |
/// | [`Gaussian`] | `symmetric-gaussian`, `isotropic-gaussian` | μ² adds, exactly |
/// | [`Zcdp`] | `discrete-gaussian` | ρ adds |
/// | [`Approximate`] | anything known by its (ε, δ) alone | δ adds, the ε part as pure |
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guarantee {
    /// ε-differential privacy.
    Pure(Pure),
    /// (ε, δ)-differential privacy.
    Approximate(Approximate),
    /// μ-Gaussian differential privacy.
    Gaussian(Gaussian),
    /// ρ-zero-concentrated differential privacy.
    Zcdp(Zcdp),
}

impl Guarantee {
    /// What Gaussian noise σ on a query of L2 sensitivity `sensitivity` satisfies.
    ///
    /// # Errors
    /// As [`Gaussian::from_noise`].
    pub fn gaussian(sigma: f64, sensitivity: f64) -> Result<Self> {
        Gaussian::from_noise(sigma, sensitivity).map(Self::Gaussian)
    }

    /// A δ that holds at this ε, rounded up; 1 where nothing better is known.
    pub fn delta(self, epsilon: f64) -> f64 {
        super::Composition::from(self).delta(epsilon)
    }

    /// An ε that holds at this δ, rounded up; δ = 0 asks for pure differential privacy. `None` when no ε
    /// holds, and unless 0 ≤ δ < 1.
    pub fn epsilon(self, delta: f64) -> Option<f64> {
        super::Composition::from(self).epsilon(delta)
    }

    /// The ρ of zero-concentrated differential privacy, rounded up; `None` for [`Approximate`], which
    /// has none.
    pub fn zcdp(self) -> Option<Zcdp> {
        match self {
            Self::Pure(pure) => Some(pure.into()),
            Self::Gaussian(gaussian) => Some(gaussian.into()),
            Self::Zcdp(zcdp) => Some(zcdp),
            Self::Approximate(_) => None,
        }
    }
}

macro_rules! guarantee_from {
    ($($variant:ident),*) => {$(
        impl From<$variant> for Guarantee {
            fn from(guarantee: $variant) -> Self {
                Self::$variant(guarantee)
            }
        }
    )*};
}
guarantee_from!(Pure, Approximate, Gaussian, Zcdp);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn nonsense_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            for error in [
                Pure::new(bad).unwrap_err(),
                Gaussian::new(bad).unwrap_err(),
                Gaussian::from_noise(bad, 1.0).unwrap_err(),
                Gaussian::from_noise(1.0, bad).unwrap_err(),
                Zcdp::new(bad).unwrap_err(),
                Zcdp::from_noise(1.0, bad).unwrap_err(),
                Approximate::new(bad, 1e-6).unwrap_err(),
            ] {
                assert_eq!(error.code(), ErrorCode::InvalidBudget);
            }
        }
        assert!(Approximate::new(1.0, 0.0).is_err());
    }

    #[test]
    fn conversions_are_the_theorems() {
        let rho = Zcdp::from(Pure::new(3.0).unwrap()).rho();
        assert!((4.5..4.5 + 1e-14).contains(&rho));
        let mu = Gaussian::from_noise(2.0, 3.0).unwrap();
        assert!(mu.mu() >= 1.5 && mu.mu() < 1.5 + 1e-15);
        let rho = Zcdp::from(mu).rho();
        assert!((1.125..1.125 + 1e-14).contains(&rho));
        assert!(Zcdp::from_noise(2.0, 3.0).unwrap().rho() >= 1.125);
        // zCDP forgets that the noise is Gaussian: its ε is larger.
        assert!(Zcdp::from(mu).epsilon(1e-6).unwrap() > mu.epsilon(1e-6).unwrap());
        assert_eq!(
            Guarantee::from(Approximate::new(1.0, 1e-6).unwrap()).zcdp(),
            None
        );
    }

    #[test]
    fn budgets_become_pure_or_approximate() {
        let pure = Guarantee::from(Budget::pure(2.0).unwrap());
        assert_eq!(pure, Pure::new(2.0).unwrap().into());
        assert_eq!((pure.epsilon(0.0), pure.delta(2.0)), (Some(2.0), 0.0));
        let approximate = Guarantee::from(Budget::approximate(2.0, 1e-6).unwrap());
        assert_eq!(approximate, Approximate::new(2.0, 1e-6).unwrap().into());
        assert_eq!(approximate.epsilon(0.0), None);
    }

    #[test]
    fn calibrated_gaussians_keep_their_budget() {
        for (epsilon, delta) in [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)] {
            let gaussian = Gaussian::calibrated(epsilon, delta).unwrap();
            assert!(gaussian.delta(epsilon) <= delta);
            assert!(gaussian.epsilon(delta).unwrap() <= epsilon);
            let sigma = gaussian::analytic_sigma(
                Budget::approximate(epsilon, delta).unwrap(),
                gaussian::SENSITIVITY,
            )
            .unwrap();
            let of_noise = Gaussian::from_noise(sigma, gaussian::SENSITIVITY).unwrap();
            assert!((of_noise.mu() / gaussian.mu() - 1.0).abs() < 1e-14);
        }
    }
}
