//! How long, as a vector, an honest report ever is: what a server may refuse, and what one report can do.
//!
//! A dense report is `s + e`, on a grid, with ‖s‖₂ ≤ 1 and d = p(p+1)/2 independent noises e of variance proxy σ², and
//! `P(‖e‖₂² ≥ σ²(d + 2√(dt) + 2t)) ≤ e^(−t)` (Laurent & Massart 2000, Lemma 1; for the discrete Gaussian too:
//! `docs/derivations/gaussian.md`, "How long a report is").

use super::payload::{PackedValues, Payload};
use crate::{
    error::{Result, error},
    packed::{packed_index, packed_len},
};

/// Probability that the norm test refuses an honest report, at most.
pub const NORM_TAIL: f64 = 1e-12;

/// Relative rounding error of a single-precision number, with room to spare.
const ROUNDING: f64 = 1e-6;

/// The norm that an honest report of a dense mechanism exceeds with probability at most [`NORM_TAIL`].
///
/// ```
/// use eigenveil_shared::mechanism::{Calibration, MechanismKind, Mechanism};
/// let kind = MechanismKind::IsotropicGaussian;
/// let mechanism = Mechanism::derive(kind, Calibration::Analytic, 10, kind.budget(4.0, None)?)?;
/// let bound = mechanism.norm_bound(10).expect("a dense mechanism");
/// assert!(bound.limit() > 1.0 + mechanism.noise_model().off_diagonal_sd());
/// // A sum of so many reports is no longer than they are together.
/// assert!(bound.check_sum(&[5.0; 55], 4).is_ok());
/// assert!(bound.check_sum(&[1e3; 55], 4).is_err());
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormBound {
    dimension: usize,
    /// How often an off-diagonal entry counts in the squared norm: 1 or 2.
    off_diagonal: f64,
    /// In units of the payload's numbers.
    limit: f64,
}

impl NormBound {
    /// The bound for `signal + noise` where the signal has at most this length and each of the noises of the packed
    /// triangle variance proxy `sigma`², all in units of the payload's numbers. `off_diagonal` says how often an entry
    /// off the diagonal counts in the squared norm.
    pub(super) fn from_noise(dimension: usize, off_diagonal: f64, signal: f64, sigma: f64) -> Self {
        let entries = packed_len(dimension) as f64;
        let tail = -NORM_TAIL.ln();
        let chi = (entries + 2.0 * (entries * tail).sqrt() + 2.0 * tail).sqrt();
        Self {
            dimension,
            off_diagonal,
            limit: (signal + sigma * chi) * (1.0 + ROUNDING),
        }
    }

    /// Refuses numbers whose norm is above the limit.
    ///
    /// # Errors
    /// `implausible-report`, with how far it is above and not with what it holds.
    pub(crate) fn check<B: AsRef<[u8]>>(&self, payload: &Payload<B>) -> Result<()> {
        let norm = match payload {
            Payload::Seed(_) | Payload::Answer(_) => return Ok(()),
            Payload::Floats(numbers) => self.norm(numbers),
            Payload::Integers(numbers) => self.norm(numbers),
        };
        if norm <= self.limit {
            return Ok(());
        }
        Err(error!(
            ImplausibleReport,
            "the report is {:.3e} times as long as the limit of {:.6e}, which an honest device's report exceeds once in {:.0e} times; it was not counted",
            norm / self.limit,
            self.limit,
            NORM_TAIL.recip()
        ))
    }

    fn norm<N: PackedValues>(&self, numbers: &N) -> f64 {
        let numbers = numbers.bytes();
        // Sums of their own, so that the loop vectorises: every report goes through it.
        let (blocks, rest) = numbers.as_chunks::<16>();
        let mut sums = [0.0; 16];
        for block in blocks {
            for (sum, bytes) in sums.iter_mut().zip(block) {
                let x = N::value(*bytes);
                *sum += x * x;
            }
        }
        let square = |bytes: &[u8; 4]| N::value(*bytes).powi(2);
        let all = sums.iter().sum::<f64>() + rest.iter().map(square).sum::<f64>();
        if self.off_diagonal == 1.0 {
            return all.sqrt();
        }
        let p = self.dimension;
        let diagonal = (0..p).filter_map(|i| numbers.get(packed_index(p, i, i)));
        let diagonal = diagonal.map(square).sum::<f64>();
        let squared = self.off_diagonal * all - (self.off_diagonal - 1.0) * diagonal;
        squared.max(0.0).sqrt()
    }

    /// Refuses a sum of `count` payloads whose norm is larger than `count` valid reports can produce (triangle
    /// inequality).
    ///
    /// # Errors
    /// `implausible-report`, also for a sum that is not finite.
    pub fn check_sum(&self, sum: &[f64], count: u64) -> Result<()> {
        let all: f64 = sum.iter().map(|x| x * x).sum();
        let p = self.dimension;
        let diagonal = (0..p).filter_map(|i| sum.get(packed_index(p, i, i)));
        let diagonal = diagonal.map(|x| x * x).sum::<f64>();
        let norm = (self.off_diagonal * (all - diagonal) + diagonal).sqrt();
        let limit = count as f64 * self.limit;
        if norm <= limit {
            return Ok(());
        }
        Err(error!(
            ImplausibleReport,
            "the sum of {count} reports has length {norm:.3e}, and the sum of so many valid reports has at most {limit:.3e}; none of them was counted"
        ))
    }

    /// The limit, in units of the payload's numbers.
    pub fn limit(&self) -> f64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::{
        error::ErrorCode,
        mechanism::{Calibration, Mechanism, MechanismKind},
        preprocess::{Norm, bounded},
    };

    const DENSE: [MechanismKind; 3] = [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::DiscreteGaussian,
    ];

    fn mechanism(kind: MechanismKind, p: usize, epsilon: f64) -> Mechanism {
        let budget = kind.budget(epsilon, None).unwrap();
        Mechanism::derive(kind, Calibration::Analytic, p, budget).unwrap()
    }

    /// False-alarm rate: 4,500 reports at 1e-12 each, below 1e-8. The lengths that occur show that the limit is that
    /// of the right coordinates: the mean of ‖e‖² is σ²d, so an honest report of p = 60 comes within 10 %.
    #[test]
    fn honest_reports_pass_close_to_the_limit() {
        let mut rng = ChaCha20Rng::seed_from_u64(7);
        for kind in DENSE {
            for (p, reports) in [(2, 1_000), (5, 400), (60, 100)] {
                let mechanism = mechanism(kind, p, 1.0);
                let bound = mechanism.norm_bound(p).unwrap();
                let values = (0..p).map(|_| rng.random_range(-1.0..1.0)).collect();
                let row = bounded(values, Norm::Normalize);
                let mut longest = 0.0_f64;
                for _ in 0..reports {
                    let payload = mechanism.perturb_with(&row, &mut rng);
                    checked(&payload, &mechanism, p).unwrap();
                    longest = longest.max(norm(&payload, &mechanism, p) / bound.limit);
                }
                let near = p < 60 || longest > 0.9;
                assert!(longest < 1.0 && near, "{kind} {p}: {longest}");
            }
        }
    }

    fn checked(payload: &[u8], mechanism: &Mechanism, p: usize) -> Result<()> {
        let bound = mechanism.norm_bound(p).unwrap();
        bound.check(&mechanism.payload_kind().read(payload, payload.len())?)
    }

    /// The norm by the definition: in svec's coordinates, or in those of the triangle.
    fn norm(payload: &[u8], mechanism: &Mechanism, p: usize) -> f64 {
        let mut squared = 0.0;
        let mut numbers = payload.chunks_exact(4);
        for i in 0..p {
            for j in i..p {
                let bytes = numbers.next().unwrap().try_into().unwrap();
                let value = match mechanism {
                    Mechanism::DiscreteGaussian(_) => f64::from(i32::from_le_bytes(bytes)),
                    _ => f64::from(f32::from_le_bytes(bytes)),
                };
                let isotropic = matches!(mechanism, Mechanism::IsotropicGaussian(_));
                squared += value * value * if isotropic && i != j { 2.0 } else { 1.0 };
            }
        }
        squared.sqrt()
    }

    #[test]
    fn the_limit_is_sharp_in_every_entry() {
        for kind in DENSE {
            let p = 4;
            let mechanism = mechanism(kind, p, 2.0);
            let bound = mechanism.norm_bound(p).unwrap();
            for at in 0..packed_len(p) {
                let diagonal = [0, 4, 7, 9].contains(&at);
                let twice = kind == MechanismKind::IsotropicGaussian && !diagonal;
                let weight = if twice { 2.0_f64 } else { 1.0 };
                for (factor, passes) in [(0.999, true), (1.001, false)] {
                    let value = factor * bound.limit / weight.sqrt();
                    let bytes = match kind {
                        MechanismKind::DiscreteGaussian => (value as i32).to_le_bytes(),
                        _ => (value as f32).to_le_bytes(),
                    };
                    let mut payload = vec![0; 4 * packed_len(p)];
                    payload[4 * at..4 * at + 4].copy_from_slice(&bytes);
                    let checked = checked(&payload, &mechanism, p);
                    assert_eq!(checked.is_ok(), passes, "{kind} {at} {factor}");
                    if let Err(error) = checked {
                        assert_eq!(error.code(), ErrorCode::ImplausibleReport);
                    }
                }
            }
        }
    }
}
