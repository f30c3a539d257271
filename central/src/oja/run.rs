//! Stochastic gradient ascent on `tr(WᵀAW)` over orthonormal W: a run of any variant, from request to result.

use eigenveil_estimation::{
    linalg::{fix_signs, orthonormalize},
    models::uniform_frame,
};
use eigenveil_shared::Result;

use super::{
    StepSize,
    calibration::gradient_sensitivity,
    variants::{OjaVariant, numerator},
};
use crate::{
    CentralCalibration, Fit, Generator, GradientSum, Options, Privacy, Request, Rows,
    accountant::full_batch,
    input::stream::CheckedRows,
    parts::{
        noise::EntryNoise,
        trace::{Tracer, is_recorded},
    },
};

/// Linear steps between two orthonormalisations: the span is the same as with one after each step (QR factors
/// multiply), at less cost.
const STEPS_PER_QR: usize = 8;

/// `W ← QR(W + η_t/B·(Σ clip_β(x(xᵀW)) + noise))` in one pass over the rows, from a random W. The divisor is the
/// planned B.
pub(super) fn ascend(
    variant: OjaVariant,
    options: &Options,
    mut feed: CheckedRows<'_, '_>,
    table: Option<&Rows>,
    request: &Request<'_>,
    rng: &mut Generator,
) -> Result<Fit> {
    let (dimension, n, k) = (feed.dimension(), feed.n(), request.k);
    let (steps, batch) = variant.steps(options, n)?;
    let clip = variant.clip(options);
    let mut diagnostics = vec![("steps", steps as f64), ("batch", batch as f64)];
    let (mut noise_sd, mut promised) = (0.0, None);
    if let Privacy::Private(target) = request.privacy {
        let budget = target.budget;
        let clip = clip.unwrap_or(1.0);
        let sensitivity = gradient_sensitivity(target.neighbours, clip, k);
        // Each row is used in only one step, so the run is as private as one release (parallel composition).
        let accounted = full_batch::noise_multiplier(budget, 1)? * sensitivity;
        let (published, published_note) = variant.published(budget, n, steps, clip);
        let (sd, note) = match target.calibration {
            CentralCalibration::Accounted => (accounted, None),
            CentralCalibration::AsPublished => (published, published_note),
        };
        noise_sd = sd;
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
    let schedule = StepSize::for_variance(numerator(options), variance)?;
    let mut tracer = Tracer::new(request);
    let mut w = uniform_frame(rng, dimension, k)?;
    let noise = EntryNoise::Gaussian { sd: noise_sd };
    // Clipping and noise refer to an orthonormal W, so it is orthonormalised at every step.
    let linear = noise_sd == 0.0 && clip.is_none();
    for t in 1..=steps {
        let mut sum = GradientSum::new(w, clip, batch);
        for _ in 0..batch {
            sum.add(feed.next_row()?.as_slice());
        }
        let (previous, mut gradient) = sum.finish();
        if noise_sd > 0.0 {
            noise.add_to(&mut gradient, rng);
        }
        w = previous + gradient * (schedule.at(t) / rows_a_step);
        if !linear || t % STEPS_PER_QR == 0 || t == steps || is_recorded(t, steps) {
            w = orthonormalize(w)?;
        }
        if is_recorded(t, steps) {
            let passes = t as f64 * rows_a_step / n as f64;
            tracer.record(t, passes, &w, |w| {
                table.map(|rows| rows.multiply(w).dot(w) / n as f64)
            })?;
        }
    }
    fix_signs(&mut w);
    Ok(Fit {
        privacy: promised,
        trace: tracer.finish(),
        diagnostics,
        ..Fit::plain(w, n)
    })
}
