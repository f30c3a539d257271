//! The ten algorithms, from request to result.

use eigenveil_estimation::linalg::fix_signs;
use eigenveil_shared::{Result, privacy::Budget};
use nalgebra::DMatrix;

use super::{
    calibration::{Calibrated, Releases, noise_of},
    glad,
    reaper::{self, AverageIterate, Geometry},
    sampling::Schedule,
    start::Start,
    table::Table,
};
use crate::{
    AlgorithmInfo, CentralCalibration, Fit, Generator, Options, Privacy, Request, Rows,
    baseline::{Run, check},
    parameter::{BATCH, GRADIENT_NOISE, HALVE_STEP_EVERY, ITERATIONS, Parameter, STEP_SIZE},
    parts::{
        noise::{EntryNoise, SymmetricNoise},
        polar::polar,
        trace::{Tracer, is_recorded},
    },
};

macro_rules! run {
    ($variant:ident) => {
        Run::Table(|options, rows, request, rng| Variant::$variant.fit(options, rows, request, rng))
    };
}

/// Steps without privacy: twenty halvings of GLAD's first step size.
const NONPRIVATE_GLAD_STEPS: usize = 1000;
const NONPRIVATE_REAPER_STEPS: usize = 300;
/// Halvings of a short private run, spread over its steps; longer runs use the paper's interval.
const HALVINGS: usize = 8;
/// Iterations between halvings in the paper's experiments.
const PAPER_STAGE: usize = 50;

/// The paper's initial η of GLAD.
const GLAD_STEP_SIZE: f64 = 1.0;
/// The paper's c of REAPER's step sizes `c/√t`.
const REAPER_STEP_SIZE: f64 = 8.0;
const DEFAULT_GRADIENT_NOISE: f64 = 0.01;

const GLAD_STEP: Parameter = STEP_SIZE.with_default(GLAD_STEP_SIZE);
const REAPER_STEP: Parameter = STEP_SIZE.with_default(REAPER_STEP_SIZE);
const NOISE: Parameter = GRADIENT_NOISE.with_default(DEFAULT_GRADIENT_NOISE);

const NO_GUARANTEE: &str = "none of its own: use dp-ggd or dp-sggd for privacy";

pub(crate) static GGD: AlgorithmInfo = AlgorithmInfo {
    name: "ggd",
    source: "Maunu, Yu & Lerman, Section 2.1",
    description: "robust PCA: least absolute deviations on spherised rows, gradient descent from PCA",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY],
    ..AlgorithmInfo::nonprivate(run!(Ggd))
};
pub(crate) static NGGD: AlgorithmInfo = AlgorithmInfo {
    name: "nggd",
    source: "Maunu, Yu & Lerman, (NGGD)",
    description: "ggd with Gaussian noise of a given sigma on the mean gradient",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY, NOISE],
    ..AlgorithmInfo::nonprivate(run!(Nggd))
};
pub(crate) static SGGD: AlgorithmInfo = AlgorithmInfo {
    name: "sggd",
    source: "Maunu, Yu & Lerman, Section 2.2",
    description: "ggd on Poisson batches",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY, BATCH],
    ..AlgorithmInfo::nonprivate(run!(Sggd))
};
pub(crate) static NSGGD: AlgorithmInfo = AlgorithmInfo {
    name: "nsggd",
    source: "Maunu, Yu & Lerman, (NSGGD)",
    description: "sggd with Gaussian noise of a given sigma on the batch's mean gradient",
    guarantee: NO_GUARANTEE,
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY, BATCH, NOISE],
    ..AlgorithmInfo::nonprivate(run!(Nsggd))
};
pub(crate) static DP_GGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-ggd",
    source: "Maunu, Yu & Lerman, Theorem 6",
    description: "private ggd: robust PCA by noisy gradients of all rows",
    guarantee: "accounted: (eps,delta), including the start; the published noise of the steps holds for small eps (the true eps is reported)",
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY],
    ..AlgorithmInfo::private(run!(DpGgd))
};
pub(crate) static DP_SGGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-sggd",
    source: "Maunu, Yu & Lerman, Theorem 6",
    description: "private sggd: robust PCA by noisy gradients of Poisson batches",
    guarantee: "accounted: (eps,delta), including the start; the published noise is too small by a factor of N/B: no meaningful guarantee",
    parameters: &[ITERATIONS, GLAD_STEP, HALVE_STEP_EVERY, BATCH],
    ..AlgorithmInfo::private(run!(DpSggd))
};
pub(crate) static GD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-gd-reap",
    source: "Maunu, Yu & Lerman, Appendix A",
    description: "private robust PCA by convex relaxation: gradient descent over the Fantope",
    guarantee: "accounted: (eps,delta); as-published: holds for small eps, with far more noise than needed",
    parameters: &[ITERATIONS, REAPER_STEP],
    quadratic_memory: true,
    ..AlgorithmInfo::private(run!(Gd))
};
pub(crate) static SGD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-sgd-reap",
    source: "Maunu, Yu & Lerman, Algorithm 1",
    description: "dp-gd-reap on Poisson batches",
    guarantee: "accounted: (eps,delta); the published noise is too small by a factor of N/B for a batch's mean: no meaningful guarantee",
    parameters: &[ITERATIONS, REAPER_STEP, BATCH],
    quadratic_memory: true,
    ..AlgorithmInfo::private(run!(Sgd))
};
pub(crate) static MD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-md-reap",
    description: "private robust PCA by convex relaxation: mirror descent in von Neumann entropy",
    run: run!(Md),
    ..GD
};
pub(crate) static SMD: AlgorithmInfo = AlgorithmInfo {
    name: "dp-smd-reap",
    source: "Maunu, Yu & Lerman, Algorithm 2",
    description: "dp-md-reap on Poisson batches",
    run: run!(Smd),
    ..SGD
};

/// The algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `ggd`: all rows, no noise.
    Ggd,
    /// `nggd`: all rows, and noise of standard deviation `gradient-noise` on every entry of the *mean* gradient; no
    /// guarantee.
    Nggd,
    /// `sggd`: a batch, no noise.
    Sggd,
    /// `nsggd`: a batch, and the same noise on its *mean* gradient; no guarantee.
    Nsggd,
    /// `dp-ggd`: like [`Variant::Nggd`], with noise calibrated for the budget.
    DpGgd,
    /// `dp-sggd`: like [`Variant::Nsggd`], with noise calibrated for the budget.
    DpSggd,
    /// `dp-gd-reap`: REAPER over all rows, Euclidean projection.
    Gd,
    /// `dp-sgd-reap`: over a batch (Algorithm 1).
    Sgd,
    /// `dp-md-reap`: all rows, mirror descent.
    Md,
    /// `dp-smd-reap`: a batch, mirror descent (Algorithm 2).
    Smd,
}

impl Variant {
    /// Whether a step uses a batch.
    pub fn is_sampled(self) -> bool {
        self.info().parameters.contains(&BATCH)
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
            Self::Gd => &GD,
            Self::Sgd => &SGD,
            Self::Md => &MD,
            Self::Smd => &SMD,
        }
    }

    /// Geometry of REAPER; `None` for GLAD.
    fn geometry(self) -> Option<Geometry> {
        match self {
            Self::Gd | Self::Sgd => Some(Geometry::Euclidean),
            Self::Md | Self::Smd => Some(Geometry::Entropy),
            _ => None,
        }
    }

    /// A run without a noise that was calibrated before.
    pub(crate) fn fit(
        self,
        options: &Options,
        rows: &Rows,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        let run = Robust {
            variant: self,
            options: options.clone(),
            start: None,
        };
        let calibrated = run.calibrate(rows.n(), rows.dimension(), &request.privacy)?;
        let (fit, _) = run.fit_calibrated(rows, request, calibrated.as_ref(), rng)?;
        Ok(fit)
    }

    /// The paper's noise with constants 1, as the standard deviation on a *sum* of gradients, and a note about it.
    ///
    /// For batches of REAPER it has three formulas: Algorithms 1 and 2 `(B/N)²T log(1/δ)/(ε²N²)`, Theorem 9
    /// `B²T log(1/δ)/(ε²N²)`, its proof the same with log². Its gradient (4.1) has no 1/N. We use the first, on the
    /// *mean* over a batch as for dp-SGGD; on the sum of (4.1) it would be smaller still by a factor of B.
    fn published(self, budget: Budget, n: usize, steps: Schedule) -> (f64, &'static str) {
        let (epsilon, t) = (budget.epsilon(), steps.count as f64);
        let sd = match (steps.rate, self.geometry()) {
            // Theorem 6, Algorithms 1 and 2: σ² = (B/N)²·T·log(1/δ)/(ε²N²) on the mean over B rows.
            (Some(rate), _) => {
                let sigma = rate * (t * -budget.delta().ln()).sqrt() / (epsilon * n as f64);
                rate * n as f64 * sigma
            }
            // Theorem 6: σ² = T·log²(1/δ)/(ε²N²) on the mean over N rows.
            (None, None) => t.sqrt() * -budget.delta().ln() / epsilon,
            // Appendix A: σ² = 32T·log²(T/δ)/(ε²N²) on the mean over N rows.
            (None, Some(_)) => (32.0 * t).sqrt() * (t / budget.delta()).ln() / epsilon,
        };
        let note = match (steps.rate, self.geometry()) {
            (None, None) => {
                "the start is Analyze Gauss with its published noise at the same budget; the steps alone keep the claim for small epsilon"
            }
            (Some(_), None) => {
                "the published noise is too small by a factor of N/B for the mean over a batch, which one row moves by 1/B"
            }
            (None, Some(_)) => {
                "the published noise holds for small epsilon, with more noise than needed"
            }
            (Some(_), Some(_)) => {
                "of the three published formulas this is the one of Algorithms 1 and 2, on the mean over a batch: too small by a factor of N/B"
            }
        };
        (sd, note)
    }
}

/// One of the algorithms with its parameters, whose noise can be calibrated once for many runs.
///
/// GLAD is geodesic gradient descent on `(1/N)Σ‖(I − VVᵀ)x‖` over spherised rows (Maunu, Yu & Lerman, Section 2). It
/// starts at PCA ([`Start`]) and steps `V ← P_{O(D,r)}(V − η_t(∇F + noise))`, P the polar factor, like the paper's noisy
/// variants; its GGD itself steps along geodesics, `Exp_V(−η∇F)`, which is the same up to O(η³). Every
/// `halve-step-every` iterations η halves: the paper's geometric restarts, each from the last iterate. By default that
/// is the paper's 50 without privacy or as published, otherwise an eighth of T, at most 50.
///
/// REAPER is least absolute deviations over `{0 ≼ P ≼ I, tr P = k}` by (mirror) subgradient descent with step sizes
/// `c/√t` (Section 4.3 and Appendix A); the result is the top-k subspace of the average iterate. It starts at `(k/p)I`;
/// the paper's `AᵀA`, `A_ij ~ N(1, 0.01)`, is not in the set. The noise is on the **sum** of equation 4.1 over the rows
/// of a step, symmetric. Without a budget there is none, which is the non-private REAPER.
///
/// Batches are Poisson samples, and their sums are divided by the expected size: 20 without privacy, the paper's
/// `max(N√(ε/4T), 1)` with privacy. Steps without privacy are 1,000 or, for REAPER, 300; with privacy, 100 over all
/// rows, 500 over batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Robust {
    variant: Variant,
    options: Options,
    /// GLAD's initial subspace; `None`: [`Start::AnalyzeGauss`] up to p = 2,000, [`Start::Power`] above.
    pub start: Option<Start>,
}

impl Robust {
    /// A variant with these parameters.
    ///
    /// # Errors
    /// Those of [`AlgorithmInfo::build`].
    pub fn new(variant: Variant, options: &Options) -> Result<Self> {
        variant.info().build(options)?;
        Ok(Self {
            variant,
            options: options.clone(),
            start: None,
        })
    }

    fn start(&self, p: usize) -> Start {
        self.start.unwrap_or_else(|| Start::by_dimension(p))
    }

    /// The releases of a run over n rows of dimension p.
    fn releases(&self, n: usize, p: usize, privacy: &Privacy) -> Result<Releases> {
        let sampled = self.variant.is_sampled();
        let (plain, start) = match self.variant.geometry() {
            None => (NONPRIVATE_GLAD_STEPS, self.start(p).releases()),
            Some(_) => (NONPRIVATE_REAPER_STEPS, 0),
        };
        let steps = Schedule::new(&self.options, plain, sampled, n, privacy)?;
        Ok(Releases { steps, start })
    }

    /// The noise of a run over n rows of dimension p; `None` without privacy.
    ///
    /// # Errors
    /// `invalid-request` for parameters that do not fit n; `invalid-budget` if the budget cannot be met.
    pub fn calibrate(&self, n: usize, p: usize, privacy: &Privacy) -> Result<Option<Calibrated>> {
        check(self.variant.info(), p, n as u64, &Request::new(1, *privacy))?;
        let releases = self.releases(n, p, privacy)?;
        releases.calibrate(privacy, |budget| {
            self.variant.published(budget, n, releases.steps)
        })
    }

    /// Like [`Baseline::fit`](crate::Baseline::fit), with noise from [`Robust::calibrate`]; and, of REAPER, the average
    /// iterate `P̄`, the solution of the relaxation before it is rounded to a subspace.
    ///
    /// # Errors
    /// Those of [`Baseline::fit`](crate::Baseline::fit); `invalid-request` for the noise of another run.
    pub fn fit_calibrated(
        &self,
        rows: &Rows,
        request: &Request<'_>,
        calibrated: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<(Fit, Option<AverageIterate>)> {
        let (n, p) = (rows.n(), rows.dimension());
        check(self.variant.info(), p, n as u64, request)?;
        let releases = self.releases(n, p, &request.privacy)?;
        let promised = noise_of(&request.privacy, releases, calibrated)?;
        let table = Table::spherised(rows);
        let (fit, average) = match self.variant.geometry() {
            None => (
                self.glad(&table, releases.steps, request, promised, rng)?,
                None,
            ),
            Some(geometry) => {
                let (fit, average) =
                    self.reaper(geometry, &table, releases.steps, request, promised, rng)?;
                (fit, Some(average))
            }
        };
        let privacy = promised.map(|noise| noise.guarantee.clone());
        Ok((Fit { privacy, ..fit }, average))
    }

    fn glad(
        &self,
        table: &Table,
        steps: Schedule,
        request: &Request<'_>,
        promised: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        let n = table.n();
        let accounted = request.privacy.calibration() == Some(CentralCalibration::Accounted);
        let halve_step_every = self
            .options
            .count(HALVE_STEP_EVERY)
            .or((!accounted).then_some(PAPER_STAGE))
            .unwrap_or(steps.count.div_ceil(HALVINGS).min(PAPER_STAGE));
        let sigma = match self.variant {
            Variant::Nggd | Variant::Nsggd => {
                let set = self.options.number(GRADIENT_NOISE);
                set.unwrap_or(DEFAULT_GRADIENT_NOISE)
            }
            _ => 0.0,
        };
        let denominator = steps.denominator(n);
        let mut noise_sd = sigma * denominator;
        let mut start_noise = None;
        let mut diagnostics = vec![
            ("steps", steps.count as f64),
            ("halve_step_every", halve_step_every as f64),
            ("batch", denominator),
        ];
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
        let mut v = self
            .start(table.dimension())
            .frame(table, request.k, start_noise, rng)?;
        let mut tracer = Tracer::new(request);
        let look = |v: &DMatrix<f64>| Some(glad::objective(table, v));
        tracer.record(0, 0.0, &v, look)?;
        let step = self.options.number(STEP_SIZE).unwrap_or(GLAD_STEP_SIZE);
        let noise = EntryNoise::Gaussian { sd: noise_sd };
        for t in 1..=steps.count {
            let mut sum = glad::descent_direction(&steps.rows(table, rng), &v);
            if noise_sd > 0.0 {
                noise.add_to(&mut sum, rng);
            }
            let halvings = ((t - 1) / halve_step_every) as f64;
            let eta = step * (-halvings).exp2() / denominator;
            v = polar(&(v + sum * eta))?;
            match is_recorded(t, steps.count) {
                true => tracer.record(t, t as f64 * denominator / n as f64, &v, look)?,
                false => tracer.check_cancelled()?,
            }
        }
        fix_signs(&mut v);
        Ok(Fit {
            trace: tracer.finish(),
            diagnostics,
            ..Fit::plain(v, n as u64)
        })
    }

    fn reaper(
        &self,
        geometry: Geometry,
        table: &Table,
        steps: Schedule,
        request: &Request<'_>,
        promised: Option<&Calibrated>,
        rng: &mut Generator,
    ) -> Result<(Fit, AverageIterate)> {
        let (n, k) = (table.n(), request.k);
        let denominator = steps.denominator(n);
        let mut diagnostics = vec![("steps", steps.count as f64), ("batch", denominator)];
        let mut step_noise = None;
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
        let mut tracer = Tracer::new(request);
        let descent = reaper::Descent {
            geometry,
            steps,
            step: self.options.number(STEP_SIZE).unwrap_or(REAPER_STEP_SIZE),
            noise: step_noise,
        };
        let accuracy = descent.leading_accuracy();
        let average = descent.run(table, k, rng, |t, average| {
            tracer.check_cancelled()?;
            if tracer.is_on() && is_recorded(t, steps.count) {
                let passes = t as f64 * denominator / n as f64;
                let leading = average.leading(k, accuracy)?;
                tracer.record(t, passes, &leading, |_| {
                    Some(reaper::objective(table, average))
                })?;
            }
            Ok(())
        })?;
        let fit = Fit {
            trace: tracer.finish(),
            diagnostics,
            ..Fit::plain(average.leading(k, accuracy)?, n as u64)
        };
        Ok((fit, average))
    }
}
