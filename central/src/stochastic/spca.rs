//! `dp-spca`: stochastic gradient ascent with noise on every step.

use eigenveil_shared::Result;

use super::{
    batches::Batches,
    calibration::{StepPlan, spca_noise},
    run::{StochasticRun, is_as_published, step_above_noise, typical_spectral_norm},
};
use crate::{
    AlgorithmInfo, Fit, Generator, Options, Privacy, Request, Rows,
    baseline::Run,
    oja::{DEFAULT_NUMERATOR, StepSize},
    parameter::{BATCH, ITERATIONS, STEP_SIZE},
    parts::noise::EntryNoise,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "dp-spca",
    source: "Shang et al. 2021, Algorithm 1",
    description: "stochastic gradient ascent over sampled rows with noise on every step",
    guarantee: "accounted: (eps,delta) by the privacy losses of all sampled steps; the published noise has a true eps of tens to hundreds at a claimed 1",
    parameters: &[ITERATIONS, BATCH, STEP_SIZE],
    ..AlgorithmInfo::private(Run::Table(fit))
};

const DEFAULT_STEPS: usize = 60;

/// `dp-spca`: `V ← polar(V + η/B·(Σ x(xᵀV) + N(0, sd²)))` over Poisson samples of B rows on average.
///
/// * `accounted`: sd by the privacy losses of T samples; B = n, T = 60. Sampling gains no more than the smaller batch
///   costs, and between `replace` neighbours a sum over all rows moves by √2 (1 for k = 1), a sampled one by up to 2.
///   The result is the polar factor of the mean of the last two thirds of the iterates. η = 1/R, R the typical spectral
///   norm of the noise on `Σ/B` plus its sampling error; at most 1,000.
/// * `as-published`: sd = Bλ₁ with `λ₁² = 20Tα/(n²εμ)`, `α = ln(1/δ)/((1−μ)ε) + 1`, μ = 1/2, G = 1; B = 1, T = n; the
///   last iterate. Step sizes `c/(o + t)` as `minibatch-oja`'s, or constant. The paper's is `1/2n`: with T = n no
///   direction grows by more than √e, so the result stays close to the start.
fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (n, p) = (rows.n(), rows.dimension());
    let published = is_as_published(&request.privacy);
    let (steps, batch) = if published {
        (n, 1)
    } else {
        (DEFAULT_STEPS, n)
    };
    let steps = options.count(ITERATIONS).unwrap_or(steps);
    let batches = Batches::new(rows, options.count(BATCH).unwrap_or(batch))?;
    let expected = batches.expected();
    let (sd, promised) = match request.privacy {
        Privacy::None => (0.0, None),
        Privacy::Private(target) => {
            let plan = StepPlan {
                n,
                rate: batches.rate(),
                steps,
                epochs: 1,
            };
            let (sd, promised) = spca_noise(target, plan, request.k)?;
            (sd, Some(promised))
        }
    };
    let set = options.number(STEP_SIZE);
    let constant = set.unwrap_or_else(|| {
        let noise = typical_spectral_norm(sd / expected, (p, request.k));
        step_above_noise(1.0, noise.hypot(batches.sampling_deviation()))
    });
    let falling = match set {
        None if published => {
            let variance = 1.0 / expected + p as f64 * (sd / expected).powi(2);
            Some(StepSize::for_variance(DEFAULT_NUMERATOR, variance)?)
        }
        _ => None,
    };
    let size = |t: usize| falling.map_or(constant, |schedule| schedule.at(t));
    let averaged = !published && (sd > 0.0 || batches.rate() < 1.0);
    let mut run = StochasticRun::start(rows, request, steps, averaged, rng)?;
    let noise = EntryNoise::Gaussian { sd };
    for t in 1..=steps {
        let (_, mut sum) = batches.sum(run.frame().clone(), 1.0, rng);
        if sd > 0.0 {
            noise.add_to(&mut sum, rng);
        }
        run.step(&(sum / expected), size(t), t as f64 * batches.rate())?;
    }
    let diagnostics = vec![
        ("steps", steps as f64),
        ("batch", expected),
        ("noise_sd", sd),
        ("first_step", size(1)),
    ];
    run.finish(promised, diagnostics)
}
