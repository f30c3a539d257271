//! `dp-vrpca`: stochastic ascent with variance reduction.

use eigenveil_estimation::linalg::{cross_product, symmetric_eigenvalues};
use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::{
    batches::Batches,
    calibration::{StepPlan, VrNoise},
    run::{StochasticRun, is_as_published, step_above_noise, typical_spectral_norm},
};
use crate::{
    AlgorithmInfo, Fit, Generator, Options, Privacy, PrivacyTarget, Request, Rows,
    baseline::Run,
    oja::{DEFAULT_NUMERATOR, StepSize},
    parameter::{BATCH, EPOCHS, ITERATIONS, STEP_SIZE},
    parts::noise::EntryNoise,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "dp-vrpca",
    source: "Shang et al. 2021, Algorithm 2",
    description: "a noisy full gradient once an epoch, then sampled corrections with noise proportional to the distance moved",
    guarantee: "accounted: (eps,delta), full gradients and sampled differences composed by their privacy losses; the published noise has a true eps of hundreds at a claimed 1",
    parameters: &[EPOCHS, ITERATIONS, BATCH, STEP_SIZE],
    ..AlgorithmInfo::private(Run::Table(fit))
};

/// Default epochs, steps per epoch, and steps per pass over the rows, unless as published.
const DEFAULT_EPOCHS: usize = 30;
const DEFAULT_STEPS: usize = 3;
const STEPS_PER_PASS: usize = 2;
/// η relative to the reciprocal noise of a full gradient.
const STEP_SHARE: f64 = 0.2;

/// m, T and B for n rows of dimension p.
fn sizes(options: &Options, n: usize, p: usize, privacy: &Privacy) -> (usize, usize, usize) {
    let default = match privacy {
        Privacy::Private(PrivacyTarget { budget, .. }) if is_as_published(privacy) => {
            let signal = (n as f64 * budget.epsilon()).powi(2);
            let log = (signal / (p as f64 * (1.0 / budget.delta()).ln())).ln();
            (log.ceil().max(1.0) as usize, n, 1)
        }
        _ => (DEFAULT_EPOCHS, DEFAULT_STEPS, n.div_ceil(STEPS_PER_PASS)),
    };
    (
        options.count(EPOCHS).unwrap_or(default.0),
        options.count(ITERATIONS).unwrap_or(default.1),
        options.count(BATCH).unwrap_or(default.2),
    )
}

/// `dp-vrpca`: each epoch releases `Ã = Σx(xᵀṼ)` at its start Ṽ, then makes T steps
/// `V ← polar(V + η(Ã/n + S/B))`, `S = Σ x(xᵀ(V − Ṽ))` over a Poisson sample of B rows on average.
///
/// * `accounted`: noise on Ã for its sensitivity (1, or √2 between `replace` neighbours with k > 1) and on S for
///   `‖V − Ṽ‖` (spectral), which is public: `‖x(xᵀD)‖_F = ‖x‖‖Dᵀx‖ ≤ ‖D‖`. All mT + m releases are composed; the full
///   gradients get three quarters of the budget (in μ²). m = 30, T = 3, B = ⌈n/2⌉. The result is the polar factor of
///   the mean of the last two thirds of the iterates.
/// * `as-published`: fresh noise `λ₂² = Tm ln(1/δ)/(n²ε²)` on the gradient of every step; B = 1, T = n,
///   `m = ⌈ln(n²ε²/(p ln(1/δ)))⌉` (its constants 1, γ = 0); differences are clipped to norm 1, the paper's G.
/// * Step: `0.2/R`, R the typical spectral norm of the noise on `Ã/n` plus the sampling error, at most 1,000; as
///   published `c/(o + 1)`, the first of [`StepSize::for_variance`](crate::oja::StepSize::for_variance); or the
///   setting. With the paper's `1/n` no direction grows by more than e in an epoch.
fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (n, p, k) = (rows.n(), rows.dimension(), request.k);
    let (epochs, steps, batch) = sizes(options, n, p, &request.privacy);
    let batches = Batches::new(rows, batch)?;
    let plan = StepPlan {
        n,
        rate: batches.rate(),
        steps,
        epochs,
    };
    let all_steps = epochs.checked_mul(steps).ok_or_else(|| {
        Error::invalid_request(
            "epochs times iterations exceeds what this machine can count; use fewer",
        )
    })?;
    let published = is_as_published(&request.privacy);
    let (noise, promised) = match request.privacy {
        Privacy::None => (VrNoise::default(), None),
        Privacy::Private(target) => {
            let (noise, promised) = VrNoise::new(target, plan, k)?;
            (noise, Some(promised))
        }
    };
    let b = batches.expected();
    let step_size = match options.number(STEP_SIZE) {
        Some(set) => set,
        None if published => {
            let variance = 1.0 / b + p as f64 * noise.step_sd.powi(2);
            StepSize::for_variance(DEFAULT_NUMERATOR, variance)?.at(1)
        }
        None => {
            let full = typical_spectral_norm(noise.full_sd / n as f64, (p, k));
            step_above_noise(STEP_SHARE, full.hypot(batches.sampling_deviation()))
        }
    };
    let averaged = !published && noise.full_sd > 0.0;
    let mut run = StochasticRun::start(rows, request, all_steps, averaged, rng)?;
    for epoch in 0..epochs {
        let start = run.frame().clone();
        let full = full_gradient(rows, &start, &noise, rng);
        for t in 1..=steps {
            let away = run.frame() - &start;
            let correction = difference(&batches, away, &noise, published, rng)?;
            let mut gradient = &full + correction;
            if noise.step_sd > 0.0 {
                EntryNoise::Gaussian { sd: noise.step_sd }.add_to(&mut gradient, rng);
            }
            let done = epoch * steps + t;
            let passes = (epoch + 1) as f64 + done as f64 * batches.rate();
            run.step(&gradient, step_size, passes)?;
        }
    }
    let diagnostics = vec![
        ("epochs", epochs as f64),
        ("steps", steps as f64),
        ("batch", b),
        ("full_noise_sd", noise.full_sd),
        ("difference_noise_multiplier", noise.difference_sd_per_unit),
        ("step_noise_sd", noise.step_sd),
        ("first_step", step_size),
    ];
    run.finish(promised, diagnostics)
}

/// `(Σx(xᵀṼ) + noise)/n`.
fn full_gradient(
    rows: &Rows,
    start: &DMatrix<f64>,
    noise: &VrNoise,
    rng: &mut Generator,
) -> DMatrix<f64> {
    let mut full = rows.multiply(start);
    if noise.full_sd > 0.0 {
        EntryNoise::Gaussian { sd: noise.full_sd }.add_to(&mut full, rng);
    }
    full / rows.n() as f64
}

/// `(Σ x(xᵀD) + noise)/B` over a sample, for D = `away`; every summand is clipped to `‖D‖`, the bound the noise is
/// calibrated for, or, as published, to 1.
fn difference(
    batches: &Batches<'_>,
    away: DMatrix<f64>,
    noise: &VrNoise,
    published: bool,
    rng: &mut Generator,
) -> Result<DMatrix<f64>> {
    let bound = if published {
        1.0
    } else {
        symmetric_eigenvalues(&cross_product(&away, &away))?[0]
            .max(0.0)
            .sqrt()
    };
    let (_, mut sum) = batches.sum(away, bound, rng);
    if noise.difference_sd_per_unit > 0.0 {
        let sd = noise.difference_sd_per_unit * bound;
        EntryNoise::Gaussian { sd }.add_to(&mut sum, rng);
    }
    Ok(sum / batches.expected())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generator, testing::gaussian_rows};

    const NOISE: VrNoise = VrNoise {
        full_sd: 3.0,
        difference_sd_per_unit: 0.5,
        step_sd: 0.0,
    };

    /// On zero rows only the noise remains. 40,000 entries: relative standard error 0.35 %, bound 3 %, false alarm far
    /// below 1e-9; half the noise is off by 50 %.
    #[test]
    fn both_noises_have_their_size() {
        let rows = gaussian_rows(10, &[0.0; 2_000], 1);
        let mut rng = generator(Some(1)).unwrap();
        let full = full_gradient(&rows, &DMatrix::zeros(2_000, 20), &NOISE, &mut rng);
        let sd = full.norm() / 200.0;
        assert!((sd / 0.3 - 1.0).abs() < 0.03, "{sd}");
        // ‖D‖ = 0.7 (spectral; its Frobenius norm is √20 times that).
        let away = DMatrix::<f64>::identity(2_000, 20) * 0.7;
        let batches = Batches::new(&rows, 4).unwrap();
        let deviation = difference(&batches, away, &NOISE, false, &mut rng);
        let sd = deviation.unwrap().norm() / 200.0;
        assert!((sd / (0.5 * 0.7 / 4.0) - 1.0).abs() < 0.03, "{sd}");
    }

    /// No row's summand exceeds `‖D‖`, and one along D's largest direction attains it.
    #[test]
    fn summand_of_a_row_is_bounded_by_the_distance() {
        let rows = gaussian_rows(1, &[5.0, 0.0, 0.0], 2);
        let away = DMatrix::from_row_slice(3, 2, &[0.3, 0.4, 0.1, 0.0, 0.0, 0.2]);
        let bound = symmetric_eigenvalues(&cross_product(&away, &away)).unwrap()[0].sqrt();
        let batches = Batches::new(&rows, 1).unwrap();
        let mut rng = generator(Some(1)).unwrap();
        let none = VrNoise::default();
        let share = difference(&batches, away, &none, false, &mut rng).unwrap();
        // The row is ±e₁ after clipping: x(xᵀD) has D's first row.
        assert!((share.norm() - 0.5).abs() < 1e-12 && share.norm() <= bound);
    }
}
