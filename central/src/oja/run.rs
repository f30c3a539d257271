//! A run, from request to result.

use eigenveil_estimation::{linalg::fix_signs, models::uniform_frame};
use eigenveil_shared::Result;

use super::{
    DEFAULT_NUMERATOR, Oja, StepSize,
    ascent::Ascent,
    calibration::{accounted_sd, gradient_sensitivity},
};
use crate::{
    AlgorithmInfo, Baseline, CentralCalibration, Fit, Generator, Privacy, Request, RowStream, Rows,
    StreamingBaseline,
    accountant::full_batch,
    check,
    stream::{Feed, shuffled},
    trace::Tracer,
};

impl Baseline for Oja {
    fn info(&self) -> &'static AlgorithmInfo {
        self.variant.info()
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        let mut stream = shuffled(rows, rng);
        let (d, n) = (rows.dimension(), rows.n() as u64);
        self.run(&mut stream, d, n, Some(rows), request, rng)
    }

    fn streaming(&self) -> Option<&dyn StreamingBaseline> {
        Some(self)
    }
}

impl StreamingBaseline for Oja {
    fn fit_stream(
        &self,
        rows: &mut RowStream<'_>,
        dimension: usize,
        n: u64,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        self.run(rows, dimension, n, None, request, rng)
    }
}

impl Oja {
    /// One pass over the stream; the trace's objective is computed from `table`.
    fn run(
        &self,
        rows: &mut RowStream<'_>,
        dimension: usize,
        n: u64,
        table: Option<&Rows>,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        check(self.info(), dimension, n, request)?;
        let k = request.k;
        let (steps, batch) = self.variant.steps(n)?;
        let clip = self.variant.clip()?;
        let mut diagnostics = vec![("steps", steps as f64), ("batch", batch as f64)];
        let (mut noise_sd, mut promised) = (0.0, None);
        if let Privacy::Private(target) = request.privacy {
            let budget = target.budget;
            let clip = clip.unwrap_or(1.0);
            let sensitivity = gradient_sensitivity(target.neighbours, clip, k);
            let accounted = accounted_sd(budget, sensitivity)?;
            let (published, published_note) = self.variant.published(budget, n, steps, clip);
            let (sd, note) = match target.calibration {
                CentralCalibration::Accounted => (accounted, None),
                CentralCalibration::AsPublished => (published, published_note),
            };
            noise_sd = sd;
            // Each row is used in one step.
            let holds = full_batch::true_epsilon(sd / sensitivity, 1, budget.delta());
            promised = Some(target.guarantee(holds, note));
            diagnostics.extend([
                ("noise_sd", sd),
                ("accounted_noise_sd", accounted),
                ("published_noise_sd", published),
            ]);
        }
        let rows_a_step = batch as f64;
        let variance = 1.0 / rows_a_step + dimension as f64 * (noise_sd / rows_a_step).powi(2);
        let numerator = self.numerator.unwrap_or(DEFAULT_NUMERATOR);
        let ascent = Ascent {
            batch,
            steps,
            clip,
            noise_sd,
            schedule: StepSize::for_variance(numerator, variance)?,
        };
        let mut tracer = Tracer::new(request);
        let start = uniform_frame(rng, dimension, k)?;
        let mut feed = Feed::new(rows, dimension, n);
        let mut subspace = ascent.run(start, &mut feed, rng, |step, w| {
            let passes = step as f64 * rows_a_step / n as f64;
            tracer.record(step, passes, w, |w| {
                table.map(|rows| rows.multiply(w).dot(w) / n as f64)
            })
        })?;
        fix_signs(&mut subspace);
        Ok(Fit {
            subspace,
            n,
            privacy: promised,
            trace: tracer.finish(),
            diagnostics,
        })
    }
}
