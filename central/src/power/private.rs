//! The private power method: noise added to every product.

use std::ops::ControlFlow;

use eigenveil_estimation::models::uniform_frame;
use eigenveil_shared::{Result, privacy::Budget};
use nalgebra::DMatrix;

use super::{
    block_settings::{block_size, default_iterations},
    entry_sensitivity_factor, noisy_power,
    plain::{multiplier, record, run_without_noise},
    product_sensitivity, product_sensitivity_l1,
};
use crate::{
    AlgorithmInfo, CentralCalibration, DeltaSupport, Fit, Generator, Neighbours, Options, Privacy,
    Request, Rows,
    accountant::{full_batch, laplace},
    baseline::Run,
    parameter::{BLOCK_SIZE, ITERATIONS},
    parts::{noise::EntryNoise, trace::Tracer},
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "private-power",
    source: "Hardt & Price 2014, Figure 3 (PPM) and Lemma 4.5",
    description: "block power method with Gaussian noise on every product (Laplace for delta = 0)",
    guarantee: "accounted: (eps,delta) over all L steps; the published noise holds too, for rows with sqrt(block size) more than needed",
    neighbours: &Neighbours::ALL,
    delta: DeltaSupport::Any,
    parameters: &[ITERATIONS, BLOCK_SIZE],
    ..AlgorithmInfo::private(Run::Table(fit))
};

/// `private-power`: L releases of `AX`, A = Σxxᵀ, each with independent noise on its `d × m` entries; Gaussian for δ >
/// 0, Laplace for δ = 0. The start is random and independent of the data.
///
/// With entry neighbours the noise scales with the iterate's largest entries, so the error depends on the coherence of
/// A instead of d.
fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (d, k) = (rows.dimension(), request.k);
    let Privacy::Private(target) = request.privacy else {
        return run_without_noise(options, rows, request, rng);
    };
    let columns = block_size(options, k, d)?;
    let steps = options
        .count(ITERATIONS)
        .unwrap_or_else(|| default_iterations(d));
    let inputs = NoiseInputs {
        budget: target.budget,
        neighbours: target.neighbours,
        steps,
        shape: (d, columns),
    };
    let accounted = inputs.accounted()?;
    let published = inputs.published();
    let scale = match target.calibration {
        CentralCalibration::Accounted => accounted,
        CentralCalibration::AsPublished => published,
    };
    let multiply = multiplier(rows, columns, steps);
    let mut tracer = Tracer::new(request);
    let mut before = uniform_frame(rng, d, columns)?;
    let mut largest = 0.0_f64;
    let run = noisy_power(
        before.clone(),
        steps,
        |_, x| {
            let mut image = multiply(x);
            scale.noise(x).add_to(&mut image, rng);
            before.clone_from(x);
            Ok(image)
        },
        |run| {
            largest = largest.max(iterate_coherence(&run.basis));
            record(&mut tracer, run, &multiply, rows.n())?;
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(Fit {
        subspace: run.leading(k)?.0,
        n: rows.n() as u64,
        privacy: Some(target.guarantee(inputs.true_epsilon(scale), inputs.note())),
        trace: tracer.finish(),
        diagnostics: vec![
            ("steps", steps as f64),
            ("block_size", columns as f64),
            ("noise_sd", scale.noise(&before).sd()),
            ("accounted_noise_sd", accounted.noise(&before).sd()),
            ("published_noise_sd", published.noise(&before).sd()),
            ("iterate_coherence", largest),
        ],
    })
}

/// `d·max|Xᵢⱼ|²` of an iterate: a proxy for the coherence of A (Hardt & Price 2014, Definition 4.8) in a private run,
/// which may only use its own iterates.
fn iterate_coherence(iterate: &DMatrix<f64>) -> f64 {
    iterate.nrows() as f64 * iterate.amax().powi(2)
}

#[derive(Clone, Copy, Debug)]
enum NoiseScale {
    /// Gaussian: this many times the L2 sensitivity of the step.
    PerSensitivity(Neighbours, f64),
    /// Laplace: this many times the L1 sensitivity of the step.
    PerSensitivityL1(Neighbours, f64),
    /// Gaussian of this standard deviation.
    Fixed(f64),
    /// Gaussian: this many times the iterate's largest entry.
    PerLargestEntry(f64),
    /// Laplace of this scale.
    FixedLaplace(f64),
}

impl NoiseScale {
    fn noise(self, x: &DMatrix<f64>) -> EntryNoise {
        match self {
            Self::PerSensitivity(neighbours, multiplier) => EntryNoise::Gaussian {
                sd: multiplier * product_sensitivity(neighbours, x),
            },
            Self::PerSensitivityL1(neighbours, multiplier) => EntryNoise::Laplace {
                scale: multiplier * product_sensitivity_l1(neighbours, x),
            },
            Self::Fixed(sd) => EntryNoise::Gaussian { sd },
            Self::PerLargestEntry(sigma) => EntryNoise::Gaussian {
                sd: sigma * x.amax(),
            },
            Self::FixedLaplace(scale) => EntryNoise::Laplace { scale },
        }
    }
}

/// The inputs of a run's noise; all public, apart from the iterate.
struct NoiseInputs {
    budget: Budget,
    neighbours: Neighbours,
    steps: usize,
    /// d and m.
    shape: (usize, usize),
}

impl NoiseInputs {
    /// The smallest noise that keeps the budget over all releases.
    fn accounted(&self) -> Result<NoiseScale> {
        Ok(if self.budget.is_pure() {
            // ε/L for each release, and a margin for rounding.
            let multiplier =
                laplace::scale(self.budget.epsilon(), 1.0, self.steps as u64)? * (1.0 + 1e-12);
            NoiseScale::PerSensitivityL1(self.neighbours, multiplier)
        } else {
            let multiplier = full_batch::noise_multiplier(self.budget, self.steps as u64)?;
            NoiseScale::PerSensitivity(self.neighbours, multiplier)
        })
    }

    /// The published noise: σ = √(4mL·ln(1/δ))/ε, times max|Xᵢⱼ| for entries (Figure 3), as it is for rows (Lemma 4.5);
    /// λ = 10mL√d/ε for δ = 0.
    fn published(&self) -> NoiseScale {
        let (epsilon, delta) = (self.budget.epsilon(), self.budget.delta());
        let products = (self.shape.1 * self.steps) as f64;
        if self.budget.is_pure() {
            return NoiseScale::FixedLaplace(
                10.0 * products * (self.shape.0 as f64).sqrt() / epsilon,
            );
        }
        let sigma = (4.0 * products * (1.0 / delta).ln()).sqrt() / epsilon;
        match self.neighbours {
            Neighbours::Entry => NoiseScale::PerLargestEntry(sigma),
            Neighbours::ZeroOut | Neighbours::Replace => NoiseScale::Fixed(sigma),
        }
    }

    /// The ε of this noise, for any iterates.
    fn true_epsilon(&self, scale: NoiseScale) -> Option<f64> {
        let gaussian = |multiplier: f64| {
            full_batch::true_epsilon(multiplier, self.steps as u64, self.budget.delta())
        };
        let (d, m) = self.shape;
        // For rows the sensitivity is the same for every orthonormal frame.
        let frame = DMatrix::identity(d, m);
        match scale {
            NoiseScale::PerSensitivity(_, multiplier) => gaussian(multiplier),
            NoiseScale::Fixed(sd) => gaussian(sd / product_sensitivity(self.neighbours, &frame)),
            NoiseScale::PerLargestEntry(sigma) => gaussian(sigma / entry_sensitivity_factor(m)),
            NoiseScale::PerSensitivityL1(_, multiplier) => {
                Some(laplace::true_epsilon(multiplier, 1.0, self.steps as u64))
            }
            NoiseScale::FixedLaplace(scale) => {
                let sensitivity = match self.neighbours {
                    // Two rows of a frame have norm at most 1 each, and a joint norm of √2 in one column.
                    Neighbours::Entry => 2.0 * (m as f64).sqrt(),
                    Neighbours::ZeroOut | Neighbours::Replace => {
                        product_sensitivity_l1(self.neighbours, &frame)
                    }
                };
                Some(laplace::true_epsilon(scale, sensitivity, self.steps as u64))
            }
        }
    }

    fn note(&self) -> Option<String> {
        match self.neighbours {
            Neighbours::Entry => Some(
                "protects one entry of the sum of outer products, not a row: a row moves all entries"
                    .to_owned(),
            ),
            Neighbours::ZeroOut | Neighbours::Replace => None,
        }
    }
}
