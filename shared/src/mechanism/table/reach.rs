//! How far the noise of a site's report reaches: what a server may refuse (`docs/derivations/sites.md`, "The test of a
//! report").

use std::ops::RangeInclusive;

use super::TableMechanism;
use crate::mechanism::{NORM_TAIL, NoiseModel};

/// Relative rounding error of the numbers below, with room to spare.
const ROUNDING: f64 = 1e-6;

/// An honest site passes each of these limits with probability at most [`NORM_TAIL`].
impl TableMechanism {
    /// The decoded count of a table of at most so many rows (persons, where persons are protected), none of which need
    /// be usable.
    pub fn count_limits(&self, max_rows: u64) -> RangeInclusive<f64> {
        let reach = self.reach(1);
        -reach..=max_rows as f64 + reach
    }

    /// Largest trace of the decoded moment beside this decoded count: a row is in the unit ball.
    pub fn trace_limit(&self, rows: f64) -> f64 {
        self.grid().decoding() * (rows + self.reach(self.dimension() + 1))
    }

    /// Smallest eigenvalue of the decoded moment, −q: that of Σxxᵀ is not negative.
    pub fn least_eigenvalue(&self) -> f64 {
        let NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } = self.noise_model()
        else {
            return f64::NEG_INFINITY;
        };
        let p = self.dimension() as f64;
        // A direction's part of the noise, and how far it is from that of another direction.
        let sd = diagonal_sd.max(std::f64::consts::SQRT_2 * off_diagonal_sd);
        let half_step = 0.5 * self.grid().decoding() * self.steps()[0];
        -(sd * ((2.0 * p).sqrt() + tail()) + p * half_step) * (1.0 + ROUNDING)
    }

    /// Reach of a sum of so many numbers with the noise of the diagonal, each rounded to half a step.
    fn reach(&self, numbers: usize) -> f64 {
        let numbers = numbers as f64;
        let noise = tail() * self.count_sd() * numbers.sqrt();
        (noise + 0.5 * numbers * self.steps()[0]) * (1.0 + ROUNDING)
    }
}

/// The t of e^(−t²/2) = [`NORM_TAIL`]: 7.434.
fn tail() -> f64 {
    (-2.0 * NORM_TAIL.ln()).sqrt()
}

#[cfg(test)]
mod tests {
    use crate::{
        mechanism::{MechanismKind, table::TableMechanism},
        privacy::Budget,
    };

    /// σ(√2p + 7.43) and σ(2√p + 10.5), and what rounding adds to them.
    #[test]
    fn the_limits_are_those_of_the_derivation() {
        let budget = Budget::approximate(1.0, 1e-7).unwrap();
        for p in [2, 40, 400] {
            let root = (p as f64).sqrt();
            let svec = 2.0_f64.sqrt() * root + 7.434;
            for (kind, expected, rounding) in [
                (MechanismKind::DiscreteGaussian, svec, 0.001),
                (MechanismKind::IsotropicGaussian, svec, 0.1),
                (MechanismKind::SymmetricGaussian, 2.0 * root + 10.513, 0.1),
            ] {
                let mechanism = TableMechanism::derive(kind, p, budget, 1_000, 1).unwrap();
                let sigma = mechanism.count_sd();
                let ratio = -mechanism.least_eigenvalue() / (sigma * expected);
                assert!(
                    ratio > 0.999 && ratio < 1.0 + rounding,
                    "{kind} {p}: {ratio}"
                );
                let counts = mechanism.count_limits(1_000);
                let above = (counts.end() - 1_000.0) / (7.434 * sigma);
                assert!(above > 0.999 && above < 1.01, "{kind} {p}: {above}");
                assert!((counts.start() + counts.end() - 1_000.0).abs() < 1e-9);
                let trace = mechanism.trace_limit(500.0) - 500.0;
                let trace = trace / (7.434 * sigma * (p as f64 + 1.0).sqrt());
                assert!(
                    trace > 0.999 && trace < 1.0 + rounding,
                    "{kind} {p}: {trace}"
                );
            }
        }
    }
}
