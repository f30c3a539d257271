//! The noise of a whole run, start included.

use eigenveil_shared::{
    ErrorCode, Result,
    privacy::{Budget, gaussian},
};

use super::sampling::Steps;
use crate::{
    Calibration, Guarantee, Neighbours,
    accountant::{Run, full_batch, noise_multiplier},
};

/// Part of μ² that the start gets under `accounted`.
const START_SHARE: f64 = 0.2;

/// What a run releases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Releases {
    /// Steps, each the sum of gradients of norm ≤ 1.
    pub(super) steps: Steps,
    /// Releases of `Σxxᵀ`, or of its product with a frame, before them.
    pub(super) start: u64,
}

/// Standard deviations, and what they give.
pub(super) struct Calibrated {
    /// Of the noise on a release of the start.
    pub(super) start_sd: f64,
    /// Of the noise on a sum of gradients, along every direction of unit length.
    pub(super) step_sd: f64,
    /// What holds for the whole run.
    pub(super) guarantee: Guarantee,
    /// The ε of the steps alone.
    pub(super) epsilon_of_steps: Option<f64>,
}

impl Releases {
    /// The accountant's view of it.
    fn run(&self, neighbours: Neighbours, start_sd: f64, step_sd: f64) -> Result<Run> {
        let mut run = Run::new(neighbours);
        if self.start > 0 {
            run.full_batch(start_sd / neighbours.outer_sensitivity(), self.start)?;
        }
        let times = self.steps.count as u64;
        match self.steps.rate {
            None => run.full_batch(step_sd / neighbours.gradient_sensitivity(), times)?,
            Some(rate) => run.subsampled(rate, step_sd, times)?,
        };
        Ok(run)
    }

    /// Noise for which the whole run keeps the budget.
    fn accounted(&self, budget: Budget, neighbours: Neighbours) -> Result<(f64, f64)> {
        let (mut share, mut start_sd) = (0.0, 0.0);
        let one = full_batch::noise_multiplier(budget, 1)?;
        if self.start > 0 {
            share = START_SHARE;
            let multiplier = one * (self.start as f64 / share).sqrt();
            start_sd = multiplier * neighbours.outer_sensitivity();
        }
        let step_sd = match self.steps.rate {
            None => {
                let steps = self.steps.count as f64;
                one * (steps / (1.0 - share)).sqrt() * neighbours.gradient_sensitivity()
            }
            Some(_) => noise_multiplier(budget, |z| self.run(neighbours, start_sd, z))?,
        };
        // Upwards past the rounding of the sums of squares.
        Ok((start_sd * (1.0 + 1e-12), step_sd * (1.0 + 1e-12)))
    }

    /// The noise, `published` being the paper's on a sum of gradients.
    pub(super) fn calibrate(
        &self,
        budget: Budget,
        neighbours: Neighbours,
        calibration: Calibration,
        published: f64,
        remark: &str,
    ) -> Result<Calibrated> {
        let (start_sd, step_sd) = match calibration {
            Calibration::Accounted => self.accounted(budget, neighbours)?,
            Calibration::AsPublished => {
                let one = gaussian::as_published_sigma(budget)?;
                (one * (self.start as f64).sqrt(), published)
            }
        };
        let delta = budget.delta();
        let whole = self.run(neighbours, start_sd, step_sd)?;
        let steps_alone = Self { start: 0, ..*self }.run(neighbours, 0.0, step_sd)?;
        let mut true_epsilon = held(&whole, delta)?;
        if calibration == Calibration::Accounted && whole.delta(budget.epsilon())? <= delta {
            // The search rounds up; that the budget is kept was seen directly.
            true_epsilon = true_epsilon.map(|found| found.min(budget.epsilon()));
        }
        let guarantee = Guarantee {
            budget,
            neighbours,
            calibration,
            true_epsilon,
            remark: (calibration == Calibration::AsPublished).then(|| remark.to_owned()),
        };
        Ok(Calibrated {
            start_sd,
            step_sd,
            guarantee,
            epsilon_of_steps: held(&steps_alone, delta)?,
        })
    }
}

/// The ε of a run; `None` where the noise is too small to be accounted.
fn held(run: &Run, delta: f64) -> Result<Option<f64>> {
    match run.epsilon(delta) {
        Ok(epsilon) => Ok(Some(epsilon)),
        Err(error) if error.code() == ErrorCode::InvalidBudget => Ok(None),
        Err(error) => Err(error),
    }
}

/// The batch of the papers' experiments, `max(N√(ε/4T), 1)` (after Bassily et al. 2019).
pub(super) fn usual_batch(n: usize, epsilon: f64, steps: usize) -> usize {
    let batch = n as f64 * (epsilon / (4.0 * steps as f64)).sqrt();
    (batch as usize).clamp(1, n)
}

/// The noise of Theorem 6 and Algorithms 1 and 2 for a batch, constant 1: `σ² = (B/N)²·T·log(1/δ)/(ε²N²)` on the *mean* over B
/// rows, as the standard deviation on their sum.
pub(super) fn published_for_batches(budget: Budget, n: usize, steps: usize, rate: f64) -> f64 {
    let log = -budget.delta().ln();
    let sigma = rate * (steps as f64 * log).sqrt() / (budget.epsilon() * n as f64);
    rate * n as f64 * sigma
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The noise of every kind of run keeps its budget, half of it does not; neither do 3 % less.
    #[test]
    fn the_noise_is_needed() {
        let budget = Budget::approximate(0.8, 1e-5).unwrap();
        for neighbours in Neighbours::ALL {
            for (rate, start) in [(None, 1), (None, 0), (Some(0.01), 1), (Some(0.05), 0)] {
                let steps = Steps { count: 200, rate };
                let releases = Releases { steps, start };
                let (start_sd, step_sd) = releases.accounted(budget, neighbours).unwrap();
                let delta = |factor: f64| {
                    let run = releases.run(neighbours, start_sd, factor * step_sd);
                    run.unwrap().delta(budget.epsilon()).unwrap()
                };
                assert!(
                    delta(1.0) <= budget.delta(),
                    "{neighbours} {rate:?} {start}"
                );
                assert!(
                    delta(0.97) > budget.delta(),
                    "{neighbours} {rate:?} {start}"
                );
                assert!(
                    delta(0.5) > 10.0 * budget.delta(),
                    "{neighbours} {rate:?} {start}"
                );
            }
        }
    }

    #[test]
    fn the_batch_of_the_first_experiment() {
        assert_eq!(usual_batch(2000, 0.8, 2000), 20);
        assert_eq!(usual_batch(100, 0.8, 1_000_000), 1);
        assert_eq!(usual_batch(100, 800.0, 10), 100);
    }
}
