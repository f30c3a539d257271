//! Checked privacy parameters.

use serde::{Deserialize, Serialize};

use crate::error::{Result, error};

/// Largest ε a study may have: beyond it the word "private" means nothing.
pub const MAX_EPSILON: f64 = 16.0;
/// ε above which every surface warns.
pub const WARN_EPSILON: f64 = 8.0;

/// An (ε, δ) differential privacy budget: finite ε > 0 and 0 ≤ δ < 1. Pure when δ = 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Budget {
    epsilon: f64,
    delta: f64,
}

impl Budget {
    /// An (ε, δ) budget with δ > 0.
    ///
    /// ```
    /// use eigenveil_shared::privacy::Budget;
    /// assert!(Budget::approximate(1.0, 1e-6).is_ok());
    /// assert!(Budget::approximate(0.0, 1e-6).is_err());
    /// assert!(Budget::approximate(1.0, 1.0).is_err());
    /// ```
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ε < ∞ and 0 < δ < 1.
    pub fn approximate(epsilon: f64, delta: f64) -> Result<Self> {
        if !(delta > 0.0 && delta < 1.0) {
            return Err(error!(
                InvalidBudget,
                "delta is {delta}; it must lie strictly between 0 and 1, such as 1e-6 (well below 1/n)"
            )
            .with_field("delta"));
        }
        Ok(Self {
            epsilon: check_epsilon(epsilon)?,
            delta,
        })
    }

    /// A pure ε budget (δ = 0).
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < ε < ∞.
    pub fn pure(epsilon: f64) -> Result<Self> {
        Ok(Self {
            epsilon: check_epsilon(epsilon)?,
            delta: 0.0,
        })
    }

    /// Pure when `delta` is zero, approximate otherwise.
    pub fn new(epsilon: f64, delta: f64) -> Result<Self> {
        match delta {
            0.0 => Self::pure(epsilon),
            delta => Self::approximate(epsilon, delta),
        }
    }

    /// The privacy-loss bound ε.
    pub fn epsilon(self) -> f64 {
        self.epsilon
    }

    /// The failure probability δ.
    pub fn delta(self) -> f64 {
        self.delta
    }

    /// Whether δ = 0.
    pub fn is_pure(self) -> bool {
        self.delta == 0.0
    }

    /// Refuses an ε above [`MAX_EPSILON`]: studies and reports are held to it, accounting is not.
    ///
    /// # Errors
    /// `invalid-budget` when ε > 16.
    pub fn check_study_limit(self) -> Result<Self> {
        if self.epsilon > MAX_EPSILON {
            return Err(error!(
                InvalidBudget,
                "epsilon is {}; a study may have at most {MAX_EPSILON} (above {WARN_EPSILON} the protection is already weak)",
                self.epsilon
            ));
        }
        Ok(self)
    }
}

/// A δ as people read it: 0, or 1e-6.
///
/// ```
/// use eigenveil_shared::privacy::format_delta;
/// assert_eq!((format_delta(0.0), format_delta(1e-6)), ("0".to_owned(), "1e-6".to_owned()));
/// ```
pub fn format_delta(delta: f64) -> String {
    match delta {
        0.0 => "0".to_owned(),
        delta => format!("{delta:e}"),
    }
}

fn check_epsilon(epsilon: f64) -> Result<f64> {
    if epsilon.is_normal() && epsilon > 0.0 {
        Ok(epsilon)
    } else {
        Err(error!(
            InvalidBudget,
            "epsilon is {epsilon}; it must be a positive finite number, such as 1"
        ))
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Unchecked {
            epsilon: f64,
            delta: f64,
        }
        let unchecked = Unchecked::deserialize(deserializer)?;
        Budget::new(unchecked.epsilon, unchecked.delta).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn out_of_range_is_refused_also_by_serde() {
        let epsilons = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310].map(|bad| (bad, 1e-6));
        let deltas = [-1e-6, 1.0, f64::NAN].map(|bad| (1.0, bad));
        for (epsilon, delta) in epsilons.into_iter().chain(deltas) {
            let error = Budget::new(epsilon, delta).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget);
        }
        for bad in [
            r#"{"epsilon":0.0,"delta":0.1}"#,
            r#"{"epsilon":1.0,"delta":1.5}"#,
            r#"{"epsilon":1.0}"#,
        ] {
            assert!(serde_json::from_str::<Budget>(bad).is_err(), "{bad}");
        }
        let budget: Budget = serde_json::from_str(r#"{"epsilon":1.0,"delta":0.0}"#).unwrap();
        assert!(budget.is_pure());
        assert!(Budget::pure(16.5).unwrap().check_study_limit().is_err());
    }
}
