//! The baselines `ggd` and its five relatives.

use eigenveil_estimation::linalg::fix_signs;
use eigenveil_shared::{Result, privacy::Budget};

use super::descent::{Descent, objective};
use crate::{
    AlgorithmInfo, Baseline, CentralCalibration, Fit, Generator, Options, Privacy, Request, Rows,
    check,
    noise::SymmetricNoise,
    parameter::{BATCH, GRADIENT_NOISE, HALVE_STEP_EVERY, ITERATIONS, Parameter, STEP_SIZE},
    robust::{
        calibration::{Calibrated, Releases, noise_of, published_for_batches},
        sampling::Schedule,
        start::Start,
        table::Table,
    },
    trace::{Tracer, is_recorded},
};

/// Steps without privacy: twenty halvings of the first step size.
const DEFAULT_NONPRIVATE_STEPS: usize = 1000;
/// Halvings of a short private run, spread over its steps; longer runs use the paper's interval.
const HALVINGS: usize = 8;
/// Initial η of the paper.
const DEFAULT_STEP_SIZE: f64 = 1.0;
const DEFAULT_GRADIENT_NOISE: f64 = 0.01;
/// Iterations between halvings in the paper's experiments.
const PAPER_STAGE: usize = 50;

/// The variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GladVariant {
    /// `ggd`: all rows, no noise.
    Ggd,
    /// `nggd`: all rows, and noise of standard deviation [`Glad::gradient_noise`] on every entry of the *mean* gradient;
    /// no guarantee.
    Nggd,
    /// `sggd`: a batch, no noise.
    Sggd,
    /// `nsggd`: a batch, and the same noise on its *mean* gradient; no guarantee.
    Nsggd,
    /// `dp-ggd`: like [`GladVariant::Nggd`], with noise calibrated for the budget.
    DpGgd,
    /// `dp-sggd`: like [`GladVariant::Nsggd`], with noise calibrated for the budget.
    DpSggd,
}

/// Geodesic gradient descent on `(1/N)Σ‖(I − VVᵀ)x‖` over spherised rows (Maunu, Yu & Lerman, Section 2).
///
/// Starts at PCA ([`Start`]) and steps `V ← P_{O(D,r)}(V − η_t(∇F + noise))`, P the polar factor, like the paper's
/// noisy variants; its GGD itself steps along geodesics, `Exp_V(−η∇F)`, which is the same up to O(η³). Every
/// `halve_step_every` iterations η halves: the paper's geometric restarts, each from the last iterate. Batches are
/// Poisson samples, and their sums are divided by the expected size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glad {
    /// The variant.
    pub variant: GladVariant,
    /// T; `None`: 1,000 without privacy, 100 for `dp-ggd`, 500 for `dp-sggd`.
    pub iterations: Option<usize>,
    /// Expected batch size B; `None`: 20 without privacy, the paper's `max(N√(ε/4T), 1)` with privacy.
    pub batch: Option<usize>,
    /// Initial η; the paper's is 1.
    pub step: f64,
    /// Iterations between halvings of η; `None`: the paper's 50 without privacy or as published, otherwise an eighth of
    /// T, at most 50.
    pub halve_step_every: Option<usize>,
    /// σ ≥ 0 of the noise of `nggd` and `nsggd`; the other variants do not use it.
    pub gradient_noise: f64,
    /// The initial subspace.
    pub start: Start,
}

const NO_GUARANTEE: &str = "none of its own: use dp-ggd or dp-sggd for privacy";
const STEP: Parameter = STEP_SIZE.with_default(DEFAULT_STEP_SIZE);
const NOISE: Parameter = GRADIENT_NOISE.with_default(DEFAULT_GRADIENT_NOISE);

pub(crate) static GGD: AlgorithmInfo = AlgorithmInfo {
    name: "ggd",
    source: "Maunu, Yu & Lerman, Section 2.1",
    description: "robust PCA: least absolute deviations on spherised rows, gradient descent from PCA",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY],
    ..AlgorithmInfo::nonprivate(|options| Glad::build(GladVariant::Ggd, options))
};
pub(crate) static NGGD: AlgorithmInfo = AlgorithmInfo {
    name: "nggd",
    source: "Maunu, Yu & Lerman, (NGGD)",
    description: "ggd with Gaussian noise of a given sigma on the mean gradient",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY, NOISE],
    ..AlgorithmInfo::nonprivate(|options| Glad::build(GladVariant::Nggd, options))
};
pub(crate) static SGGD: AlgorithmInfo = AlgorithmInfo {
    name: "sggd",
    source: "Maunu, Yu & Lerman, Section 2.2",
    description: "ggd on Poisson batches",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY, BATCH],
    ..AlgorithmInfo::nonprivate(|options| Glad::build(GladVariant::Sggd, options))
};
pub(crate) static NSGGD: AlgorithmInfo = AlgorithmInfo {
    name: "nsggd",
    source: "Maunu, Yu & Lerman, (NSGGD)",
    description: "sggd with Gaussian noise of a given sigma on the batch's mean gradient",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY, BATCH, NOISE],
    ..AlgorithmInfo::nonprivate(|options| Glad::build(GladVariant::Nsggd, options))
};
pub(crate) static DP_GGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-ggd",
    source: "Maunu, Yu & Lerman, Theorem 6",
    description: "private ggd: robust PCA by noisy gradients of all rows",
    guarantee: "accounted: (eps,delta), including the start; the published noise of the steps holds for small eps (the true eps is reported)",
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY],
    ..AlgorithmInfo::private(|options| Glad::build(GladVariant::DpGgd, options))
};
pub(crate) static DP_SGGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-sggd",
    source: "Maunu, Yu & Lerman, Theorem 6",
    description: "private sggd: robust PCA by noisy gradients of Poisson batches",
    guarantee: "accounted: (eps,delta), including the start; the published noise is too small by a factor of N/B: no meaningful guarantee",
    parameters: &[ITERATIONS, STEP, HALVE_STEP_EVERY, BATCH],
    ..AlgorithmInfo::private(|options| Glad::build(GladVariant::DpSggd, options))
};

impl Glad {
    /// A variant with default settings.
    pub fn new(variant: GladVariant) -> Self {
        Self {
            variant,
            iterations: None,
            batch: None,
            step: DEFAULT_STEP_SIZE,
            halve_step_every: None,
            gradient_noise: DEFAULT_GRADIENT_NOISE,
            start: Start::default(),
        }
    }

    fn build(variant: GladVariant, options: &Options) -> Result<Box<dyn Baseline>> {
        let default = Self::new(variant);
        Ok(Box::new(Self {
            iterations: options.count(ITERATIONS),
            batch: options.count(BATCH),
            step: options.number(STEP_SIZE).unwrap_or(default.step),
            halve_step_every: options.count(HALVE_STEP_EVERY),
            gradient_noise: options
                .number(GRADIENT_NOISE)
                .unwrap_or(default.gradient_noise),
            ..default
        }))
    }

    /// The releases of a run over n rows of dimension p, and the iterations between halvings.
    fn releases(&self, n: usize, p: usize, privacy: &Privacy) -> Result<(Releases, usize)> {
        let sampled = self.variant.is_sampled();
        let default = Schedule::default_count(DEFAULT_NONPRIVATE_STEPS, sampled, privacy);
        let accounted = privacy.calibration() == Some(CentralCalibration::Accounted);
        let count = self.iterations.unwrap_or(default);
        let halve_step_every = self
            .halve_step_every
            .or((!accounted).then_some(PAPER_STAGE))
            .unwrap_or(count.div_ceil(HALVINGS).min(PAPER_STAGE));
        ITERATIONS.check(count)?;
        HALVE_STEP_EVERY.check(halve_step_every)?;
        let steps = Schedule::new(count, sampled, self.batch, n, privacy)?;
        let start = self.start.resolve(p).releases();
        Ok((Releases { steps, start }, halve_step_every))
    }
}

impl GladVariant {
    /// Whether a step uses a batch.
    pub fn is_sampled(self) -> bool {
        matches!(self, Self::Sggd | Self::Nsggd | Self::DpSggd)
    }

    /// Its static description.
    pub fn info(self) -> &'static AlgorithmInfo {
        match self {
            Self::Ggd => &GGD,
            Self::Nggd => &NGGD,
            Self::Sggd => &SGGD,
            Self::Nsggd => &NSGGD,
            Self::DpGgd => &DP_GGD,
            Self::DpSggd => &DP_SGGD,
        }
    }
}

/// Theorem 6 with constants 1, as the standard deviation on a *sum* of gradients, and a note about it.
fn published(budget: Budget, n: usize, steps: Schedule) -> (f64, &'static str) {
    match steps.rate {
        // σ² = T·log²(1/δ)/(ε²N²) on the mean over N rows.
        None => (
            (steps.count as f64).sqrt() * -budget.delta().ln() / budget.epsilon(),
            "the start is Analyze Gauss with its published noise at the same budget; the steps alone keep the claim for small epsilon",
        ),
        Some(rate) => (
            published_for_batches(budget, n, steps.count, rate),
            "the published noise is too small by a factor of N/B for the mean over a batch, which one row moves by 1/B",
        ),
    }
}

impl Baseline for Glad {
    fn info(&self) -> &'static AlgorithmInfo {
        self.variant.info()
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        let (n, p) = (rows.n(), rows.dimension());
        let calibrated = self.calibrate(n, p, &request.privacy)?;
        self.fit_calibrated(rows, request, calibrated.as_ref(), rng)
    }
}

impl Glad {
    /// The noise of a run over n rows of dimension p; `None` without privacy.
    ///
    /// # Errors
    /// `invalid-request` for parameters that do not fit n; `invalid-budget` if the budget cannot be met.
    pub fn calibrate(&self, n: usize, p: usize, privacy: &Privacy) -> Result<Option<Calibrated>> {
        check(self.info(), p, n as u64, &Request::new(1, *privacy))?;
        let (releases, _) = self.releases(n, p, privacy)?;
        releases.calibrate(privacy, |budget| published(budget, n, releases.steps))
    }

    /// Like [`Baseline::fit`], with noise from [`Glad::calibrate`].
    ///
    /// # Errors
    /// Those of [`Baseline::fit`]; `invalid-request` for the noise of another run.
    pub fn fit_calibrated(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        calibrated: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        let (n, p) = (rows.n(), rows.dimension());
        check(self.info(), p, n as u64, request)?;
        let (releases, halve_step_every) = self.releases(n, p, &request.privacy)?;
        let steps = releases.steps;
        STEP_SIZE.check(self.step)?;
        let sigma = match self.variant {
            GladVariant::Nggd | GladVariant::Nsggd => self.gradient_noise,
            _ => 0.0,
        };
        GRADIENT_NOISE.check(sigma)?;
        let denominator = steps.denominator(n);
        let mut noise_sd = sigma * denominator;
        let mut start_noise = None;
        let mut diagnostics = vec![
            ("steps", steps.count as f64),
            ("halve_step_every", halve_step_every as f64),
            ("batch", denominator),
        ];
        let promised = noise_of(&request.privacy, releases, calibrated)?;
        if let Some(noise) = promised {
            noise_sd = noise.step_sd;
            start_noise = Some(SymmetricNoise::calibrated(
                noise.guarantee.calibration,
                noise.start_sd,
            ));
            let of_steps = noise.epsilon_of_steps.unwrap_or(f64::INFINITY);
            diagnostics.extend([
                ("start_sd", noise.start_sd),
                ("published_noise_sd", noise.published_step_sd),
                ("epsilon_of_steps", of_steps),
            ]);
        }
        diagnostics.push(("noise_sd", noise_sd));
        let table = Table::spherised(rows);
        let frame = self.start.frame(&table, request.k, start_noise, rng)?;
        let mut tracer = Tracer::new(request);
        let look = |v: &nalgebra::DMatrix<f64>| Some(objective(&table, v));
        tracer.record(0, 0.0, &frame, look)?;
        let descent = Descent {
            steps,
            step: self.step,
            halve_step_every,
            noise_sd,
        };
        let mut subspace = descent.run(&table, frame, rng, |t, v| {
            match is_recorded(t, steps.count) {
                true => tracer.record(t, t as f64 * denominator / n as f64, v, look),
                false => tracer.check_cancelled(),
            }
        })?;
        fix_signs(&mut subspace);
        Ok(Fit {
            subspace,
            n: n as u64,
            privacy: promised.map(|noise| noise.guarantee.clone()),
            trace: tracer.finish(),
            diagnostics,
        })
    }
}
