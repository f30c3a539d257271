//! Step sizes.

use eigenveil_shared::{Error, Result};

/// Default numerator c if nothing is known about the spectrum: right for an eigengap of about 1/20 (rows in the unit
/// ball have a second-moment matrix of trace at most 1).
pub const DEFAULT_NUMERATOR: f64 = 20.0;

/// `η_t = c/(o + t)` for t = 1, 2, …: the schedule of the paper (Theorem 2.2, after Jain et al. 2016), and the family
/// that its tuning searches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSize {
    numerator: f64,
    offset: f64,
}

impl StepSize {
    /// `c/(o + t)`.
    ///
    /// # Errors
    /// `invalid-request` unless `0 < c < ∞` and `0 ≤ o < ∞`.
    ///
    /// ```
    /// use eigenveil_central::oja::StepSize;
    /// let steps = StepSize::new(6.0, 1.0)?;
    /// assert_eq!((steps.at(1), steps.at(2)), (3.0, 2.0));
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    pub fn new(numerator: f64, offset: f64) -> Result<Self> {
        if !(numerator.is_finite() && numerator > 0.0 && offset.is_finite() && offset >= 0.0) {
            return Err(Error::invalid_request(format!(
                "step sizes {numerator}/({offset} + t); the numerator must be a positive and the offset a non-negative finite number"
            )));
        }
        Ok(Self { numerator, offset })
    }

    /// The schedule with offset `c²·v`, v a bound on `E‖gradient − its mean‖²` per step: the paper's `ξ ≥ κ²(V+1)α²` up
    /// to constants, which keeps `Σ η_t² v` below 1. Does not depend on the data: v is at most `1/B` for a batch of B
    /// rows in the unit ball, and the noise adds `d·sd²/B²`.
    pub fn for_variance(numerator: f64, variance: f64) -> Result<Self> {
        Self::new(numerator, numerator * numerator * variance)
    }

    /// `η_t`.
    pub fn at(self, t: usize) -> f64 {
        self.numerator / (self.offset + t as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_rejected() {
        for (numerator, offset) in [
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (1.0, -1.0),
            (1.0, f64::INFINITY),
        ] {
            assert!(StepSize::new(numerator, offset).is_err());
        }
    }

    /// `Σ η_t²·v < 1` for the schedule made for v, however long.
    #[test]
    fn the_variance_stays_bounded() {
        for (numerator, variance) in [(20.0, 1.0), (20.0, 1e-3), (5.0, 300.0)] {
            let schedule = StepSize::for_variance(numerator, variance).unwrap();
            let total: f64 = (1..1_000_000).map(|t| schedule.at(t).powi(2)).sum();
            assert!(total * variance < 1.0);
        }
    }
}
