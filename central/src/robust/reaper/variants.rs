//! The baselines of the four private REAPER algorithms.

use super::{
    average::AverageIterate,
    descent::{Descent, Geometry, objective},
};
use crate::{
    AlgorithmInfo, Baseline, Fit, Generator, Options, Privacy, Request, Rows, check,
    noise::SymmetricNoise,
    parameter::{BATCH, ITERATIONS, Parameter, STEP_SIZE},
    robust::{
        calibration::{Calibrated, Releases, noise_of, published_for_batches},
        sampling::Schedule,
        table::Table,
    },
    trace::{Tracer, is_recorded},
};
use eigenveil_shared::{Result, privacy::Budget};

const DEFAULT_NONPRIVATE_STEPS: usize = 300;
/// c of the paper's step sizes `c/√t`.
const DEFAULT_STEP_SIZE: f64 = 8.0;

/// The variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaperVariant {
    /// `dp-gd-reap`: all rows, Euclidean projection.
    Gd,
    /// `dp-sgd-reap`: a batch (Algorithm 1).
    Sgd,
    /// `dp-md-reap`: all rows, mirror descent.
    Md,
    /// `dp-smd-reap`: a batch, mirror descent (Algorithm 2).
    Smd,
}

/// REAPER: least absolute deviations over `{0 ≼ P ≼ I, tr P = k}` by (mirror) subgradient descent on spherised rows
/// (Maunu, Yu & Lerman, Section 4.3 and Appendix A); the result is the top-k subspace of the average iterate.
///
/// Starts at `(k/p)I`; the paper's `AᵀA`, `A_ij ~ N(1, 0.01)`, is not in the set. The noise is on the **sum** of
/// equation 4.1 over the rows of a step, symmetric; the sum is then divided by n, or by the mean size of a batch.
/// Without a budget there is none, which is the non-private REAPER.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reaper {
    /// The variant.
    pub variant: ReaperVariant,
    /// T; `None`: 300 without privacy; with privacy, 100 over all rows, 500 over batches.
    pub iterations: Option<usize>,
    /// Expected batch size B; `None`: 20 without privacy, the paper's `max(N√(ε/4T), 1)` with privacy.
    pub batch: Option<usize>,
    /// c of the step sizes `c/√t`; the paper's is 8.
    pub step: f64,
}

const STEP: Parameter = STEP_SIZE.with_default(DEFAULT_STEP_SIZE);

pub(crate) static GD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-gd-reap",
    source: "Maunu, Yu & Lerman, Appendix A",
    description: "private robust PCA by convex relaxation: gradient descent over the Fantope",
    guarantee: "accounted: (eps,delta); as-published: holds for small eps, with far more noise than needed",
    parameters: &[ITERATIONS, STEP],
    quadratic_memory: true,
    ..AlgorithmInfo::private(|options| Reaper::build(ReaperVariant::Gd, options))
};
pub(crate) static SGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-sgd-reap",
    source: "Maunu, Yu & Lerman, Algorithm 1",
    description: "dp-gd-reap on Poisson batches",
    guarantee: "accounted: (eps,delta); the published noise is too small by a factor of N/B for a batch's mean: no meaningful guarantee",
    parameters: &[ITERATIONS, STEP, BATCH],
    quadratic_memory: true,
    ..AlgorithmInfo::private(|options| Reaper::build(ReaperVariant::Sgd, options))
};
pub(crate) static MD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-md-reap",
    source: "Maunu, Yu & Lerman, Appendix A",
    description: "private robust PCA by convex relaxation: mirror descent in von Neumann entropy",
    guarantee: "accounted: (eps,delta); as-published: holds for small eps, with far more noise than needed",
    parameters: &[ITERATIONS, STEP],
    quadratic_memory: true,
    ..AlgorithmInfo::private(|options| Reaper::build(ReaperVariant::Md, options))
};
pub(crate) static SMD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-smd-reap",
    source: "Maunu, Yu & Lerman, Algorithm 2",
    description: "dp-md-reap on Poisson batches",
    guarantee: "accounted: (eps,delta); the published noise is too small by a factor of N/B for a batch's mean: no meaningful guarantee",
    parameters: &[ITERATIONS, STEP, BATCH],
    quadratic_memory: true,
    ..AlgorithmInfo::private(|options| Reaper::build(ReaperVariant::Smd, options))
};

impl ReaperVariant {
    /// Whether a step uses a batch.
    pub fn is_sampled(self) -> bool {
        matches!(self, Self::Sgd | Self::Smd)
    }

    fn geometry(self) -> Geometry {
        match self {
            Self::Gd | Self::Sgd => Geometry::Euclidean,
            Self::Md | Self::Smd => Geometry::Entropy,
        }
    }

    /// Its static description.
    pub fn info(self) -> &'static AlgorithmInfo {
        match self {
            Self::Gd => &GD,
            Self::Sgd => &SGD,
            Self::Md => &MD,
            Self::Smd => &SMD,
        }
    }
}

impl Reaper {
    /// A variant with default settings.
    pub fn new(variant: ReaperVariant) -> Self {
        Self {
            variant,
            iterations: None,
            batch: None,
            step: DEFAULT_STEP_SIZE,
        }
    }

    fn build(variant: ReaperVariant, options: &Options) -> Result<Box<dyn Baseline>> {
        Ok(Box::new(Self {
            variant,
            iterations: options.count(ITERATIONS),
            batch: options.count(BATCH),
            step: options.number(STEP_SIZE).unwrap_or(DEFAULT_STEP_SIZE),
        }))
    }

    fn steps(&self, n: usize, privacy: &Privacy) -> Result<Schedule> {
        let sampled = self.variant.is_sampled();
        let default = Schedule::default_count(DEFAULT_NONPRIVATE_STEPS, sampled, privacy);
        let count = self.iterations.unwrap_or(default);
        ITERATIONS.check(count)?;
        STEP_SIZE.check(self.step)?;
        Schedule::new(count, sampled, self.batch, n, privacy)
    }

    /// The noise of a run over n rows; `None` without privacy.
    ///
    /// # Errors
    /// `invalid-request` for parameters that do not fit n; `invalid-budget` if the budget cannot be met.
    pub fn calibrate(&self, n: usize, privacy: &Privacy) -> Result<Option<Calibrated>> {
        check(self.info(), 1, n as u64, &Request::new(1, *privacy))?;
        let steps = self.steps(n, privacy)?;
        Releases { steps, start: 0 }.calibrate(privacy, |budget| published(budget, n, steps))
    }

    /// The average iterate `P̄`, the solution of the relaxation before it is rounded to a subspace, and the fit; with
    /// noise from [`Reaper::calibrate`].
    ///
    /// # Errors
    /// Those of [`Baseline::fit`]; `invalid-request` for the noise of another run.
    pub fn fit_calibrated(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        calibrated: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<(AverageIterate, Fit)> {
        let (n, k) = (rows.n(), request.k);
        check(self.info(), rows.dimension(), n as u64, request)?;
        let steps = self.steps(n, &request.privacy)?;
        let denominator = steps.denominator(n);
        let mut diagnostics = vec![("steps", steps.count as f64), ("batch", denominator)];
        let mut step_noise = None;
        let promised = noise_of(&request.privacy, Releases { steps, start: 0 }, calibrated)?;
        if let Some(noise) = promised {
            // The paper's noise is weakest along the diagonal, where it has σ too.
            step_noise = Some(SymmetricNoise::calibrated(
                noise.guarantee.calibration,
                noise.step_sd,
            ));
            diagnostics.extend([
                ("noise_sd", noise.step_sd),
                ("published_noise_sd", noise.published_step_sd),
            ]);
        }
        let table = Table::spherised(rows);
        let mut tracer = Tracer::new(request);
        let descent = Descent {
            geometry: self.variant.geometry(),
            steps,
            step: self.step,
            noise: step_noise,
        };
        let accuracy = descent.leading_accuracy();
        let average = descent.run(&table, k, rng, |t, average| {
            tracer.check_cancelled()?;
            if request.truth.is_some() && is_recorded(t, steps.count) {
                let passes = t as f64 * denominator / n as f64;
                let leading = average.leading(k, accuracy)?;
                tracer.record(t, passes, &leading, |_| Some(objective(&table, average)))?;
            }
            Ok(())
        })?;
        let fit = Fit {
            subspace: average.leading(k, accuracy)?,
            n: n as u64,
            privacy: promised.map(|noise| noise.guarantee.clone()),
            trace: tracer.finish(),
            diagnostics,
        };
        Ok((average, fit))
    }
}

/// Appendix A with constants 1, as the standard deviation on a *sum* of gradients, and a note about it.
///
/// The paper has three formulas: Algorithms 1 and 2 `(B/N)²T log(1/δ)/(ε²N²)`, Theorem 9 `B²T log(1/δ)/(ε²N²)`, its
/// proof the same with log². Its gradient (4.1) has no 1/N. We use the first, on the *mean* over a batch as for
/// dp-SGGD; on the sum of (4.1) it would be smaller still by a factor of B.
fn published(budget: Budget, n: usize, steps: Schedule) -> (f64, &'static str) {
    let (epsilon, t) = (budget.epsilon(), steps.count as f64);
    match steps.rate {
        // σ² = 32T·log²(T/δ)/(ε²N²) on the mean over N rows.
        None => (
            (32.0 * t).sqrt() * (t / budget.delta()).ln() / epsilon,
            "the published noise holds for small epsilon, with more noise than needed",
        ),
        Some(rate) => (
            published_for_batches(budget, n, steps.count, rate),
            "of the three published formulas this is the one of Algorithms 1 and 2, on the mean over a batch: too small by a factor of N/B",
        ),
    }
}

impl Baseline for Reaper {
    fn info(&self) -> &'static AlgorithmInfo {
        self.variant.info()
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        let calibrated = self.calibrate(rows.n(), &request.privacy)?;
        Ok(self
            .fit_calibrated(rows, request, calibrated.as_ref(), rng)?
            .1)
    }
}
