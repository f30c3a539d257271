//! Runs on haystacks: the synthetic data of the paper.

use std::time::Instant;

use eigenveil_central::{CentralCalibration, Request, Rows, TracePoint, generator};
use eigenveil_estimation::{metrics::projector_distance, models::Model};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::method::{DP_SGGD, Method, Noise, NoiseCache};
use crate::{
    Cell, Point, RunPlan,
    number::short,
    runs::{model_rows, private},
};

/// Key columns of every exhibit on haystacks.
pub(super) const COLUMNS: &str =
    "algorithm calibration n p k inliers inlier_noise epsilon delta iterations batch";
pub(super) const CONSTANTS: &str = "true_epsilon";
/// Measures of the final point of a run.
pub(super) const MEASURES: &str = "error log10_error reached seconds seconds_to_tolerance";

/// The paper's tolerance of 1e-2 is a bound on `Σθ²`; for small angles that is half of our squared error: `√0.02`.
pub(super) const TOLERANCE: f64 = 0.141_421;

/// Both calibrations, the paper's first.
pub(super) const CALIBRATIONS: [CentralCalibration; 2] = [
    CentralCalibration::AsPublished,
    CentralCalibration::Accounted,
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) n: usize,
    pub(super) p: usize,
    pub(super) k: usize,
    pub(super) inliers: f64,
    pub(super) inlier_noise: f64,
    pub(super) epsilon: f64,
    pub(super) delta: f64,
}

impl Setting {
    /// N rows of dimension p, otherwise as in the paper's experiments: r = 2, half inliers, ε = 0.8, δ = 1/√N.
    pub(super) fn from_paper(n: usize, p: usize) -> Self {
        Self {
            n,
            p,
            k: 2,
            inliers: 0.5,
            inlier_noise: 0.0,
            epsilon: 0.8,
            delta: 1.0 / (n as f64).sqrt(),
        }
    }

    /// The rows of a repeat and the subspace of their inliers.
    fn haystack(&self, repeat: u64) -> Result<(Rows, DMatrix<f64>)> {
        let mut rng = generator(Some(1))?;
        rng.set_stream(repeat);
        let model = Model::haystack(self.p, self.k, self.inliers, self.inlier_noise);
        model_rows(&model, self.n, &mut rng)
    }

    /// Rows of a step: the paper's `max(N√(ε/4T), 1)` unless the method sets it.
    fn batch(&self, method: &Method) -> usize {
        if !method.variant.is_sampled() {
            return self.n;
        }
        let default = self.n as f64 * (self.epsilon / (4.0 * method.iterations as f64)).sqrt();
        method.batch.unwrap_or((default as usize).clamp(1, self.n))
    }
}

struct Outcome {
    true_epsilon: f64,
    /// ‖V̂V̂ᵀ − VVᵀ‖_F.
    error: f64,
    seconds: f64,
    trace: Vec<TracePoint>,
}

fn outcome(setting: &Setting, method: &Method, noise: &Noise, repeat: u64) -> Result<Outcome> {
    let (rows, truth) = setting.haystack(repeat)?;
    let calibrated = noise.calibrated()?;
    let mut request = Request {
        truth: Some(&truth),
        ..Request::new(setting.k, noise.privacy)
    };
    let timed = |request: &Request<'_>| {
        let mut rng = generator(Some(repeat))?;
        let started = Instant::now();
        let fit = method.fit(&rows, request, calibrated, &mut rng)?;
        Ok::<_, eigenveil_shared::Error>((fit, started.elapsed().as_secs_f64()))
    };
    let (fit, mut seconds) = timed(&request)?;
    if method.variant == DP_SGGD {
        // For this method measuring the error costs more than its steps, so it is timed without the trace.
        request.truth = None;
        seconds = timed(&request)?.1;
    }
    Ok(Outcome {
        true_epsilon: calibrated
            .and_then(|noise| noise.guarantee.true_epsilon)
            .unwrap_or(f64::NAN),
        error: projector_distance(&fit.subspace, &truth)?,
        seconds,
        trace: fit.trace,
    })
}

impl Outcome {
    /// Share of the iterations after which the error stays within the tolerance to the end. (The error may start within
    /// the tolerance and leave it.)
    fn tolerance_share(&self) -> Option<f64> {
        let last = self.trace.last()?.iteration.max(1) as f64;
        let within = |point: &&TracePoint| point.error <= TOLERANCE;
        let settled = self.trace.iter().rev().take_while(within).last()?;
        Some(settled.iteration as f64 / last)
    }

    /// The values of [`MEASURES`], after the true ε.
    fn final_point(&self) -> Point {
        let settled = self.tolerance_share();
        Point::single([
            self.true_epsilon,
            self.error,
            self.error.log10(),
            f64::from(u8::from(settled.is_some())),
            self.seconds,
            settled.map_or(f64::NAN, |share| share * self.seconds),
        ])
    }

    /// True ε, error and seconds by iteration, assuming equal duration.
    fn trace_points(&self) -> Vec<Point> {
        let last = self.trace.last().map_or(1, |point| point.iteration.max(1));
        self.trace
            .iter()
            .map(|point| Point {
                at: Some(point.iteration as f64),
                values: vec![
                    self.true_epsilon,
                    point.error,
                    self.seconds * point.iteration as f64 / last as f64,
                ],
            })
            .collect()
    }
}

#[derive(Clone, Copy)]
pub(super) enum Recorded {
    End,
    Trace,
}

#[derive(Default)]
pub(super) struct PlanBuilder {
    pub(super) plan: RunPlan,
    noise_cache: NoiseCache,
}

impl PlanBuilder {
    pub(super) fn add(
        &mut self,
        setting: Setting,
        method: Method,
        calibration: CentralCalibration,
        recorded: Recorded,
        repeats: u64,
    ) -> Result<()> {
        let privacy = private(setting.epsilon, setting.delta, calibration)?;
        let noise = self
            .noise_cache
            .shared(method, (setting.n, setting.p), privacy);
        self.plan.cells.push(Cell::new(
            [
                &method.variant.name(),
                &calibration,
                &setting.n,
                &setting.p,
                &setting.k,
                &setting.inliers,
                &setting.inlier_noise,
                &setting.epsilon,
                &short(setting.delta),
                &method.iterations,
                &setting.batch(&method),
            ],
            repeats,
            move |repeat| {
                let outcome = outcome(&setting, &method, &noise, repeat)?;
                Ok(match recorded {
                    Recorded::End => vec![outcome.final_point()],
                    Recorded::Trace => outcome.trace_points(),
                })
            },
        ));
        Ok(())
    }
}
