//! `ppi`: private power iteration, one component at a time, with deflation.

use eigenveil_estimation::linalg::{fix_signs, top_k};
use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};
use rand_distr::{Distribution, StandardNormal};

use crate::{
    CentralCalibration, Fit, Generator, Options, Privacy, Request, Rows,
    accountant::full_batch,
    baseline::{AlgorithmInfo, Run},
    parameter::ITERATIONS,
};

const MAX_STEPS: usize = 200_000;
const CONVERGENCE_TOLERANCE: f64 = 1e-14;

/// Private power iteration (Hardt & Roth 2013; the PPI of Shang et al.): for each component T steps (⌈2 ln p⌉ + 2 if
/// private and not set) `v ← (I − VVᵀ)(Av + g)`, normalised, A = Σxxᵀ and V the components found before.
///
/// * Neighbours: both relations, Δ = 1 for each: `‖xxᵀv‖ ≤ 1`, and `xxᵀ − yyᵀ` has its eigenvalues in [−1, 1], so
///   `‖(xxᵀ − yyᵀ)v‖ ≤ 1` too. All `k·T` steps are full-batch releases; start and deflation use no row.
/// * `accounted`: g of `N(0, σ²I)`, σ for kT releases. `as-published`: `N(0, ρ²‖v‖_∞²I)` with `ρ = √(4kT ln(1/δ))/ε`,
///   calibrated for a change of one *entry* of A; the guarantee for a row is that of noise ρ/√p, because the smallest
///   possible `‖v‖_∞` is 1/√p.
pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "ppi",
    source: "Hardt & Roth 2013, private power iteration with deflation (PPI of Shang et al.)",
    description: "power iteration with noise in every step, one component at a time",
    guarantee: "accounted: (ε, δ) for a row, all steps composed exactly; as-published: made for one entry of the matrix; the true ε for a row is reported",
    parameters: &[ITERATIONS],
    quadratic_memory: true,
    has_trace: false,
    ..AlgorithmInfo::private(Run::Table(fit))
};

/// Standard deviation of an entry of g, given v.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepNoise {
    None,
    /// Independent of v.
    Fixed(f64),
    /// Times `‖v‖_∞`.
    WithCoherence(f64),
}

impl StepNoise {
    fn deviation(self, v: &DVector<f64>) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Fixed(sigma) => sigma,
            Self::WithCoherence(rho) => rho * v.amax(),
        }
    }
}

fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (n, p, k) = (rows.n() as u64, rows.dimension(), request.k);
    let requested_steps = options.count(ITERATIONS);
    let Privacy::Private(target) = request.privacy else {
        let steps = requested_steps.unwrap_or(MAX_STEPS);
        let subspace = deflate(rows, request, steps, StepNoise::None, rng)?;
        return Ok(Fit::plain(subspace, n));
    };
    let steps = requested_steps.unwrap_or_else(|| default_steps(p));
    let releases = (k * steps) as u64;
    let budget = target.budget;
    let (epsilon, delta) = (budget.epsilon(), budget.delta());
    let (noise, multiplier) = match target.calibration {
        CentralCalibration::Accounted => {
            let sigma = full_batch::noise_multiplier(budget, releases)?;
            (StepNoise::Fixed(sigma), sigma)
        }
        CentralCalibration::AsPublished => {
            let rho = (4.0 * releases as f64 * (1.0 / delta).ln()).sqrt() / epsilon;
            (StepNoise::WithCoherence(rho), rho / (p as f64).sqrt())
        }
    };
    let subspace = deflate(rows, request, steps, noise, rng)?;
    let note = (target.calibration == CentralCalibration::AsPublished).then(|| {
        "the noise is calibrated for one entry of the matrix; true_epsilon is for a row".to_owned()
    });
    let holds = full_batch::true_epsilon(multiplier, releases, delta);
    Ok(Fit {
        privacy: Some(target.guarantee(holds, note)),
        diagnostics: vec![
            ("steps_per_component", steps as f64),
            ("least_sigma_of_step", multiplier),
        ],
        ..Fit::plain(subspace, n)
    })
}

fn default_steps(p: usize) -> usize {
    (2.0 * (p as f64).ln()).ceil() as usize + 2
}

fn deflate(
    rows: &Rows,
    request: &Request<'_>,
    steps: usize,
    noise: StepNoise,
    rng: &mut Generator,
) -> Result<DMatrix<f64>> {
    let (p, k) = (rows.dimension(), request.k);
    let sum = rows.sum_of_outer_products();
    let mut components = DMatrix::zeros(p, k);
    for component in 0..k {
        let previous = components.columns(0, component).clone_owned();
        let orthogonalised = |v: DVector<f64>| -> DVector<f64> {
            // Twice: one pass leaves rounding errors relative to the part removed.
            let once = &v - &previous * (previous.transpose() * &v);
            let twice = &once - &previous * (previous.transpose() * &once);
            let length = twice.norm();
            twice.unscale(length)
        };
        let mut v = orthogonalised(normal(p, 1.0, rng));
        for _ in 0..steps {
            request.cancel.check()?;
            let deviation = noise.deviation(&v);
            let mut next = &sum * &v;
            if deviation > 0.0 {
                next += normal(p, deviation, rng);
            }
            // If the rank is exhausted, any direction will do.
            if next.norm() <= 1e-14 * sum.trace() {
                break;
            }
            let next = orthogonalised(next);
            let change = (&next - &v).norm();
            v = next;
            if noise == StepNoise::None && change < CONVERGENCE_TOLERANCE {
                break;
            }
        }
        components.set_column(component, &v);
    }
    if noise == StepNoise::None {
        // With nearly equal eigenvalues the vectors do not converge, but their span does: diagonalise within the span.
        let small = components.transpose() * &sum * &components;
        components = &components * top_k(&small, k)?.vectors;
    }
    fix_signs(&mut components);
    Ok(components)
}

fn normal(p: usize, deviation: f64, rng: &mut Generator) -> DVector<f64> {
    DVector::from_fn(p, |_, _| {
        let z: f64 = StandardNormal.sample(rng);
        deviation * z
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::privacy::{Budget, gaussian};

    use super::*;
    use crate::{Neighbours, generator, testing::gaussian_rows};

    /// 2 components of 8 steps: four times the noise of one release.
    #[test]
    fn all_steps_are_accounted_for() {
        let rows = gaussian_rows(200, &[0.5, 0.3, 0.1, 0.05], 3);
        let budget = Budget::approximate(1.0, 1e-6).unwrap();
        let accounted = CentralCalibration::Accounted;
        let privacy = Privacy::with_budget(budget, Neighbours::Replace, accounted);
        let (request, mut rng) = (Request::new(2, privacy), generator(Some(1)).unwrap());
        let method = INFO.build(&Options::default().with(ITERATIONS, 8)).unwrap();
        let fit = method.fit(&rows, &request, &mut rng);
        let one = gaussian::analytic_sigma(budget, 1.0).unwrap();
        let ratio = fit.unwrap().diagnostics[1].1 / one;
        assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
    }

    /// One step on a table of zeros: 20,000 squared entries of g, five standard deviations (false alarm 6e-7). Half the
    /// noise is off by a factor of four.
    #[test]
    fn noise_of_a_step_has_the_reported_scale() {
        let mut rng = generator(Some(2)).unwrap();
        let sigma = 3.0;
        let v = DVector::from_vec(vec![0.6, -0.8]);
        assert_eq!(StepNoise::Fixed(sigma).deviation(&v), sigma);
        assert!((StepNoise::WithCoherence(sigma).deviation(&v) - 2.4).abs() < 1e-15);
        let mean = normal(20_000, sigma, &mut rng).norm_squared() / 20_000.0 / 9.0;
        let deviation = (2.0 / 20_000.0_f64).sqrt();
        assert!((mean - 1.0).abs() < 5.0 * deviation, "{mean}");
    }
}
