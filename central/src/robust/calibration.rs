//! The noise of a whole run, including its start.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    privacy::{Budget, gaussian},
};

use super::sampling::Schedule;
use crate::{
    CentralCalibration, Neighbours, Privacy, RunGuarantee,
    accountant::{RunAccountant, full_batch, noise_multiplier},
};

/// Share of μ² for the start under `accounted`.
const START_SHARE: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Releases {
    /// Steps, each the sum of gradients of norm ≤ 1.
    pub(super) steps: Schedule,
    /// Releases of `Σxxᵀ`, or of its product with a frame, before them.
    pub(super) start: u64,
}

/// The noise of a run and its guarantee. It depends on public numbers only and can be reused for many runs; for batches
/// the calibration takes seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// Standard deviation of the noise on a release of the start, along every direction of unit length; 0 without
    /// such releases.
    pub start_sd: f64,
    /// Standard deviation of the noise on a sum of gradients, along every direction of unit length.
    pub step_sd: f64,
    /// The paper's value of `step_sd`.
    pub published_step_sd: f64,
    /// The guarantee of the whole run.
    pub guarantee: RunGuarantee,
    /// ε of the steps alone; `None` if none holds.
    pub epsilon_of_steps: Option<f64>,
    releases: Releases,
}

impl Releases {
    fn run(&self, neighbours: Neighbours, start_sd: f64, step_sd: f64) -> Result<RunAccountant> {
        let mut run = RunAccountant::new(neighbours);
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
        // Rounded up past the rounding error of the sums of squares.
        Ok((start_sd * (1.0 + 1e-12), step_sd * (1.0 + 1e-12)))
    }

    /// The noise of the run, `None` without privacy. `published` returns the paper's noise on a sum of gradients, and a
    /// note about it.
    pub(super) fn calibrate(
        &self,
        privacy: &Privacy,
        published: impl FnOnce(Budget) -> (f64, &'static str),
    ) -> Result<Option<Calibrated>> {
        let Privacy::Private(target) = *privacy else {
            return Ok(None);
        };
        let (budget, neighbours) = (target.budget, target.neighbours);
        let (published, note) = published(budget);
        let (start_sd, step_sd) = match target.calibration {
            CentralCalibration::Accounted => self.accounted(budget, neighbours)?,
            CentralCalibration::AsPublished => {
                let one = gaussian::as_published_sigma(budget)?;
                (one * (self.start as f64).sqrt(), published)
            }
        };
        let delta = budget.delta();
        let whole = self.run(neighbours, start_sd, step_sd)?;
        let steps_alone = Self { start: 0, ..*self }.run(neighbours, 0.0, step_sd)?;
        let mut true_epsilon = accountable_epsilon(&whole, delta)?;
        if target.calibration == CentralCalibration::Accounted
            && whole.delta(budget.epsilon())? <= delta
        {
            // The search rounds up; that the budget is kept was checked directly.
            true_epsilon = true_epsilon.map(|found| found.min(budget.epsilon()));
        }
        let note = (target.calibration == CentralCalibration::AsPublished).then(|| note.to_owned());
        Ok(Some(Calibrated {
            start_sd,
            step_sd,
            published_step_sd: published,
            guarantee: target.guarantee(true_epsilon, note),
            releases: *self,
            epsilon_of_steps: accountable_epsilon(&steps_alone, delta)?,
        }))
    }
}

/// The noise of a private run, after checking that it was calibrated for it; `None` without privacy.
pub(super) fn noise_of<'a>(
    privacy: &Privacy,
    releases: Releases,
    calibrated: Option<&'a Calibrated>,
) -> Result<Option<&'a Calibrated>> {
    let promised = match (privacy, calibrated) {
        (Privacy::None, None) => return Ok(None),
        (Privacy::Private(target), Some(noise)) => {
            let made_for = &noise.guarantee;
            (made_for.budget, made_for.neighbours, made_for.calibration)
                == (target.budget, target.neighbours, target.calibration)
                && noise.releases == releases
        }
        _ => false,
    };
    if promised {
        return Ok(calibrated);
    }
    Err(Error::invalid_request(
        "the noise was calibrated for another budget, other steps or batches; calibrate it for this run",
    ))
}

/// The ε of a run; `None` if the noise is too small to account for.
fn accountable_epsilon(run: &RunAccountant, delta: f64) -> Result<Option<f64>> {
    match run.epsilon(delta) {
        Ok(epsilon) => Ok(Some(epsilon)),
        Err(error) if error.code() == ErrorCode::InvalidBudget => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The noise of every kind of run keeps its budget; 3 % less noise does not.
    #[test]
    fn noise_is_enough_and_tight() {
        let budget = Budget::approximate(0.8, 1e-5).unwrap();
        for (neighbours, rate, start) in [
            (Neighbours::ZeroOut, None, 1),
            (Neighbours::ZeroOut, None, 0),
            (Neighbours::Replace, None, 1),
            (Neighbours::Replace, None, 0),
            (Neighbours::Replace, Some(0.05), 1),
        ] {
            let steps = Schedule { count: 50, rate };
            let releases = Releases { steps, start };
            let (start_sd, step_sd) = releases.accounted(budget, neighbours).unwrap();
            let [enough, less] = [1.0, 0.97].map(|factor| {
                let run = releases.run(neighbours, start_sd, factor * step_sd);
                run.unwrap().delta(budget.epsilon()).unwrap()
            });
            let context = format!("{neighbours} {rate:?} {start}: {enough:e} {less:e}");
            assert!(
                enough <= budget.delta() && less > budget.delta(),
                "{context}"
            );
        }
    }
}
