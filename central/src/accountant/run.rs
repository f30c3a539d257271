//! A whole run: releases of all rows and of Poisson samples of them, composed adaptively.

use eigenveil_shared::{
    Error, ErrorCode, Result, error,
    privacy::{Budget, gaussian, smallest_epsilon},
};

use super::{
    convolution::{ComposedPld, Target},
    privacy_loss::{DominatingPair, Step},
    renyi,
};
use crate::privacy::Neighbours;

/// Relative precision of an ε or a multiplier found by search.
const PRECISION: f64 = 1e-5;

/// The releases of a run, and the ε they compose to.
///
/// Two kinds: *full-batch* (all rows, the sum moves by at most Δ; z = σ/Δ) and *subsampled* (each row taking part with
/// probability q, independently: a Poisson sample; contributions of norm ≤ 1, z = σ; the sum is divided by a public
/// number, never by the size the sample happens to have). Between `replace` neighbours a subsampled contribution may
/// change sign, from g to −g: the bound does not exploit that outer products never do.
///
/// ```
/// use eigenveil_central::{Neighbours, accountant::RunAccountant};
/// // A thousand steps over samples of 1 % of the rows, noise as large as the largest contribution.
/// let mut run = RunAccountant::new(Neighbours::ZeroOut);
/// run.subsampled(0.01, 1.0, 1000)?;
/// assert!((run.epsilon(1e-5)? - 1.82824).abs() < 1e-3);
/// assert!((run.renyi_epsilon(1e-5)? - 2.1014).abs() < 1e-2);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RunAccountant {
    neighbours: Neighbours,
    mu_squared: f64,
    /// Rate, multiplier, times.
    subsampled: Vec<(f64, f64, u64)>,
}

impl RunAccountant {
    /// A run without releases.
    pub fn new(neighbours: Neighbours) -> Self {
        Self {
            neighbours,
            mu_squared: 0.0,
            subsampled: Vec::new(),
        }
    }

    /// `times` releases of all rows with multiplier z = σ/Δ, Δ the sensitivity between these neighbours.
    pub fn full_batch(&mut self, multiplier: f64, times: u64) -> Result<&mut Self> {
        positive("the noise multiplier", multiplier)?;
        self.mu_squared += (times as f64 / (multiplier * multiplier)).next_up();
        Ok(self)
    }

    /// `times` releases of Poisson samples of rate q with noise z per unit of the norm bound of one contribution.
    ///
    /// # Errors
    /// `invalid-request` unless 0 < q ≤ 1 and z is positive and finite, and for entry neighbours.
    pub fn subsampled(&mut self, rate: f64, multiplier: f64, times: u64) -> Result<&mut Self> {
        positive("the noise multiplier", multiplier)?;
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(Error::invalid_request(format!(
                "the sampling rate is {rate}; it must be above 0 and at most 1"
            )));
        }
        if self.neighbours == Neighbours::Entry {
            return Err(Error::invalid_request(
                "entry neighbours have no sampled rows; use zero-out or replace",
            ));
        }
        if times > 0 {
            self.subsampled.push((rate, multiplier, times));
        }
        Ok(self)
    }

    /// A δ such that the run is (`epsilon`, δ)-differentially private, by the composed privacy loss, rounded up.
    ///
    /// # Errors
    /// `invalid-request` unless ε ≥ 0; `invalid-budget` where the noise is too small to be accounted.
    pub fn delta(&self, epsilon: f64) -> Result<f64> {
        if !(epsilon.is_finite() && epsilon >= 0.0) {
            return Err(Error::invalid_request(format!(
                "epsilon is {epsilon}; it must be finite and not negative"
            )));
        }
        if self.subsampled.is_empty() {
            return Ok(self.gaussian_delta(epsilon));
        }
        self.worst(|steps| Ok(ComposedPld::new(steps, Target::Epsilon(epsilon))?.delta(epsilon)))
    }

    /// An ε such that the run is (ε, `delta`)-differentially private, by the composed privacy loss, rounded up: about
    /// 1e-4 (relative) above the smallest one.
    ///
    /// # Errors
    /// `invalid-budget` unless 0 < δ < 1 and where no ε below 10¹² holds.
    pub fn epsilon(&self, delta: f64) -> Result<f64> {
        check_delta(delta)?;
        let none = || {
            error!(
                InvalidBudget,
                "no epsilon holds at delta {delta:e}; use more noise or fewer steps"
            )
        };
        if self.subsampled.is_empty() {
            if self.mu_squared == 0.0 {
                return Ok(0.0);
            }
            return gaussian::true_epsilon(1.0, self.mu_squared.sqrt().next_up(), delta)
                .ok_or_else(none);
        }
        self.worst(|steps| {
            let composed = ComposedPld::new(steps, Target::Delta(delta))?;
            smallest_epsilon(|epsilon| composed.delta(epsilon), delta, PRECISION).ok_or_else(none)
        })
    }

    /// Like [`RunAccountant::epsilon`], by Rényi differential privacy: faster and looser.
    pub fn renyi_epsilon(&self, delta: f64) -> Result<f64> {
        check_delta(delta)?;
        self.worst(|steps| Ok(renyi::epsilon(steps, delta)))
    }

    fn gaussian_delta(&self, epsilon: f64) -> f64 {
        if self.mu_squared == 0.0 {
            return 0.0;
        }
        gaussian::true_delta(1.0, self.mu_squared.sqrt().next_up(), epsilon)
    }

    /// The larger of the bounds for the two orders of the neighbours.
    fn worst(&self, bound: impl Fn(&[(Step, u64)]) -> Result<f64>) -> Result<f64> {
        let pairs: &[DominatingPair] = match self.neighbours {
            Neighbours::ZeroOut => &[DominatingPair::Remove, DominatingPair::Add],
            // Symmetric. Entries have no subsampled steps.
            Neighbours::Replace | Neighbours::Entry => &[DominatingPair::Replace],
        };
        let mut worst = 0.0_f64;
        for &pair in pairs {
            let sampled = self.subsampled.iter();
            let sampled = sampled.map(|&(rate, multiplier, times)| {
                let step = Step {
                    pair,
                    rate,
                    multiplier,
                };
                (step, times)
            });
            // A Gaussian moved by Δ, whatever the neighbours.
            let full = (self.mu_squared > 0.0).then(|| Step {
                pair: DominatingPair::Remove,
                rate: 1.0,
                multiplier: 1.0 / self.mu_squared.sqrt().next_up(),
            });
            let steps: Vec<(Step, u64)> = sampled.chain(full.map(|step| (step, 1))).collect();
            worst = worst.max(bound(&steps)?);
        }
        Ok(worst)
    }
}

/// The smallest noise multiplier z, to a relative 1e-5, for which the run that `build` creates from z keeps the budget.
///
/// ```
/// use eigenveil_central::{Neighbours, accountant::{RunAccountant, noise_multiplier}};
/// use eigenveil_shared::privacy::Budget;
/// let budget = Budget::approximate(1.0, 1e-6)?;
/// let z = noise_multiplier(budget, |z| {
///     let mut run = RunAccountant::new(Neighbours::Replace);
///     run.full_batch(4.0 * z, 1)?.subsampled(0.01, z, 500)?;
///     Ok(run)
/// })?;
/// assert!(z > 1.0 && z < 4.0);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn noise_multiplier(
    budget: Budget,
    build: impl Fn(f64) -> Result<RunAccountant>,
) -> Result<f64> {
    check_delta(budget.delta())?;
    let enough = |multiplier: f64| -> Result<bool> {
        let run = build(multiplier)?;
        match run.delta(budget.epsilon()) {
            Ok(delta) => Ok(delta <= budget.delta()),
            // Noise too small to be accounted for is too small.
            Err(error) if error.code() == ErrorCode::InvalidBudget => Ok(false),
            Err(error) => Err(error),
        }
    };
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while !enough(high)? {
        low = high;
        high *= 2.0;
        if high > 1e9 {
            return Err(error!(
                InvalidBudget,
                "no noise multiplier below 1e9 keeps epsilon {} at delta {:e}; use a larger budget or fewer steps",
                budget.epsilon(),
                budget.delta()
            ));
        }
    }
    while low == 0.0 && high > 1e-3 {
        if enough(0.5 * high)? {
            high *= 0.5;
        } else {
            low = 0.5 * high;
        }
    }
    while high - low > PRECISION * high {
        let middle = 0.5 * (low + high);
        if enough(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

fn check_delta(delta: f64) -> Result<()> {
    if delta > 0.0 && delta < 1.0 {
        return Ok(());
    }
    Err(error!(
        InvalidBudget,
        "delta is {delta}; Gaussian noise needs one strictly between 0 and 1, such as 1e-6"
    ))
}

fn positive(what: &str, value: f64) -> Result<()> {
    if value.is_normal() && value > 0.0 {
        return Ok(());
    }
    Err(Error::invalid_request(format!(
        "{what} is {value}; it must be positive and finite"
    )))
}
