//! Row-sparse components of a noisy second-moment matrix (Algorithm 2).

use eigenveil_shared::{
    Result,
    api::{Lambda, SparseSettings},
    estimate::{ComponentCount, CrossValidation, LambdaPath, SparseOutcome, Verdict},
};
use nalgebra::{DMatrix, DVector};

use super::fantope::{self, AdmmSettings, Solution, Stop, resolve_lambda};
use crate::{
    assessment::{
        Eigenvalues, Measured, Refitted, Support, assess, count_components,
        error_bars::{Reestimate, error_bars},
    },
    cancel::Cancel,
    components::ComponentsReport,
    dense::pca::rayleigh_quotients,
    input::moment::{ExcessNoise, NoisyMoment},
    linalg::{submatrix, symmetric_eigen, symmetric_eigenvalues},
    report::warning::Warning,
};

/// Row-sparse components: Fantope, and with `settings.refit` PCA on the rows it selects; without, their error is not
/// known.
///
/// With `k = auto` the components above the plain floor are counted. If there is none, one sparse component is still
/// searched for and judged on its own rows, because selecting features also leaves out the others' noise. `cancel` is
/// checked after every iteration.
///
/// # Errors
/// As [`principal_components`](crate::principal_components); `invalid-request` for settings out of range;
/// `estimate-failed` when it was cancelled. Reaching the iteration cap is a warning, and `converged` is false.
pub fn sparse_components(
    moment: &NoisyMoment,
    rank: ComponentCount,
    settings: &SparseSettings,
    setting: &str,
    cancel: Cancel<'_>,
) -> Result<ComponentsReport> {
    let dense = moment.dense();
    let (noise, n_eff) = (moment.noise(), moment.n_eff());
    let resolved = resolve_lambda(settings, noise, moment.dimension(), n_eff)?;
    let spectrum: Vec<f64> = symmetric_eigenvalues(&dense)?.iter().copied().collect();
    let count = count_components(rank, &Eigenvalues::all(&spectrum), noise, n_eff, &[])?;
    let k = count.k.max(1);
    let (lambda, cross_validation, path) = match resolved {
        Some(lambda) => (lambda, None, None),
        None => chosen_lambda(moment, k, settings, cancel)?,
    };
    let admm = AdmmSettings {
        noise_gap: Some(fantope::negligible_gap(noise, k, n_eff)),
        ..AdmmSettings::from(settings)
    };
    let solution = fantope::solve(&dense, k, lambda, &admm, cancel)?;
    let rows = &solution.support;
    let (vectors, reestimate) = match settings.refit {
        true => (
            fantope::refit(&dense, rows, k)?,
            Reestimate::PcaOnRows(rows),
        ),
        false => (solution.vectors.clone(), Reestimate::Nothing),
    };
    let images = &dense * &vectors;
    let values = rayleigh_quotients(&dense, &vectors);
    let bars = error_bars(moment, &vectors, reestimate)?;
    let on_rows = |rows: &[usize]| submatrix(&dense, rows);
    let excess_noise = moment.excess_noise();
    let (eigenvalues, excess) = spectrum_on_rows(&on_rows(rows), excess_noise.as_ref(), rows)?;
    let refitted = Refitted {
        eigenvalues: eigenvalues.as_slice(),
        images: &images,
        moment: &on_rows,
    };
    let measured = Measured {
        vectors: &vectors,
        values: values.as_slice(),
        spectrum: Eigenvalues::all(&spectrum),
        noise,
        n_eff,
        rows_of_tables: moment.counts().rows_of_tables(),
        excess_noise: excess_noise.as_ref(),
        excess: &excess,
        support: Some(Support {
            rows,
            refitted: settings.refit.then_some(refitted),
        }),
        k_is_open: count.is_open,
        error_bars: bars.as_ref(),
        setting,
    };
    let outcome = SparseOutcome {
        cross_validation,
        path,
        ..sparse_outcome(&solution, settings)
    };
    let mut findings = sparse_report(&measured, outcome, convergence_warning(&solution))?;
    findings.k_shares = count.shares;
    findings.compare_buckets(moment);
    Ok(findings)
}

/// λ from a path of solutions or by cross-validation, with the one it comes from.
fn chosen_lambda(
    moment: &NoisyMoment,
    k: usize,
    settings: &SparseSettings,
    cancel: Cancel<'_>,
) -> Result<(f64, Option<CrossValidation>, Option<LambdaPath>)> {
    if settings.lambda == Lambda::Path {
        let path = fantope::lambda_path(moment, k, settings, cancel)?;
        return Ok((path.lambda_chosen, None, Some(path)));
    }
    let validated = fantope::cross_validate(moment, k, settings, cancel)?;
    Ok((validated.lambda_1se, Some(validated), None))
}

/// Eigenvalues of the moment on the selected `rows`, and the excess noise along its eigenvectors there.
fn spectrum_on_rows(
    on_rows: &DMatrix<f64>,
    excess_noise: Option<&ExcessNoise>,
    rows: &[usize],
) -> Result<(DVector<f64>, Vec<f64>)> {
    let Some(noise_along) = excess_noise else {
        return Ok((symmetric_eigenvalues(on_rows)?, Vec::new()));
    };
    let noise_along = noise_along.on_rows(rows);
    let eigen = symmetric_eigen(on_rows)?;
    let directions = eigen.vectors.column_iter();
    let excess = directions.map(|v| noise_along.along(v)).collect();
    Ok((eigen.values, excess))
}

fn convergence_warning(solution: &Solution) -> Option<Warning> {
    let (iterations, gap) = (solution.iterations, solution.relative_gap);
    match solution.stop {
        Stop::WithinNoise => Some(Warning::SolverWithinNoise { iterations, gap }),
        Stop::IterationCap => Some(Warning::SolverLimit { iterations, gap }),
        Stop::Converged => None,
    }
}

/// How the solver ended, λ neither by cross-validation nor from a path.
pub(crate) fn sparse_outcome(solution: &Solution, settings: &SparseSettings) -> SparseOutcome {
    SparseOutcome {
        settings: settings.clone(),
        lambda: solution.lambda,
        converged: solution.converged(),
        iterations: solution.iterations,
        duality_gap: solution.gap,
        primal_residual: solution.primal_residual,
        dual_residual: solution.dual_residual,
        support: solution.support.clone(),
        refit: settings.refit,
        cross_validation: None,
        path: None,
    }
}

/// A sparse estimate, judged; `convergence_warning` is the warning where the solver did not reach its tolerance.
pub(crate) fn sparse_report(
    measured: &Measured<'_>,
    outcome: SparseOutcome,
    convergence_warning: Option<Warning>,
) -> Result<ComponentsReport> {
    let mut floor_report = assess(measured)?;
    if floor_report.components.iter().any(|component| {
        component.verdict == Verdict::At && component.debiased_eigenvalue.is_some()
    }) {
        floor_report.warnings.push(Warning::Selection {
            selected: outcome.support.len(),
            of: measured.spectrum.dimension,
        });
    }
    floor_report.warnings.extend(convergence_warning);
    Ok(ComponentsReport {
        vectors: measured.vectors.clone(),
        spectrum: measured.spectrum.leading.to_vec(),
        floor_report,
        sparse: Some(outcome),
        k_is_open: measured.k_is_open,
        k_shares: None,
        bucket_agreement: None,
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{ErrorCode, mechanism::NoiseModel, packed::PackedSymmetric};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    use super::*;
    use crate::{
        dense::principal_components, input::accumulate::Accumulator, metrics::projector_distance,
        models::Model,
    };

    const N: u64 = 100_000;

    /// A sparse population's covariance, scaled to trace 1, in the noise of `N` reports.
    fn noisy(p: usize, s: usize, sd: f64) -> (NoisyMoment, DMatrix<f64>, Vec<usize>) {
        let mut rng = ChaCha8Rng::seed_from_u64(17);
        let population = Model::sparse(p, 2, s, 20.0).draw(&mut rng).unwrap();
        let covariance = population.covariance();
        let scale = N as f64 / covariance.trace();
        let mut sum = PackedSymmetric::zeros(p);
        let mut next = 0;
        for i in 0..p {
            for j in i..p {
                let z: f64 = StandardNormal.sample(&mut rng);
                sum.as_mut_slice()[next] = covariance[(i, j)] * scale + z * sd * (N as f64).sqrt();
                next += 1;
            }
        }
        let noise = NoiseModel::gaussian(sd);
        let bucket = Accumulator::from_parts(sum, N).unwrap();
        let moment = NoisyMoment::from_buckets(vec![bucket], noise).unwrap();
        let truth = population.subspace().clone();
        (moment, truth, population.support().to_vec())
    }

    fn sparse(
        moment: &NoisyMoment,
        rank: ComponentCount,
        settings: &SparseSettings,
    ) -> ComponentsReport {
        sparse_components(moment, rank, settings, "ε = 1", Cancel::NEVER).unwrap()
    }

    #[test]
    fn sparsity_beats_plain_pca_and_is_judged() {
        let (moment, truth, rows) = noisy(120, 8, 3.0);
        let plain = principal_components(&moment, ComponentCount::Fixed(2), "ε = 1").unwrap();
        let settings = SparseSettings {
            lambda: Lambda::Fixed(0.02),
            ..SparseSettings::default()
        };
        let automatic = sparse(&moment, ComponentCount::Auto, &settings);
        let above = plain.floor_report.floor.components_above;
        assert_eq!(automatic.vectors.ncols(), above.max(1));
        let sparse = sparse(&moment, ComponentCount::Fixed(2), &settings);
        let outcome = sparse.sparse.as_ref().unwrap();
        assert!(outcome.converged && outcome.refit);
        assert!(outcome.support.len() >= 6 && outcome.support.iter().all(|row| rows.contains(row)));
        let plain_error = projector_distance(&plain.vectors, &truth).unwrap();
        let sparse_error = projector_distance(&sparse.vectors, &truth).unwrap();
        assert!(
            sparse_error < 0.5 * plain_error,
            "{sparse_error} {plain_error}"
        );
        assert!(sparse.floor_report.expected_error < plain.floor_report.expected_error);
        let expected = sparse.floor_report.expected_error.unwrap();
        assert!((expected / sparse_error - 1.0).abs() < 0.5);
        // The assumptions of the expected error are stated.
        let (selected, of) = (outcome.support.len(), 120);
        let assumed = Warning::Selection { selected, of };
        assert!(sparse.floor_report.warnings.contains(&assumed));
    }

    #[test]
    fn nothing_above_the_noise_gives_no_component_and_a_warning() {
        let (moment, ..) = noisy(40, 4, 300.0);
        let plain = principal_components(&moment, ComponentCount::Auto, "ε = 0.01").unwrap();
        assert_eq!(plain.vectors.ncols(), 0);
        assert_eq!(plain.floor_report.expected_error, None);
        let warning = &plain.floor_report.warnings[0];
        assert!(matches!(warning, Warning::NothingStands { n: N, .. }));
        let sparse = sparse(&moment, ComponentCount::Auto, &SparseSettings::default());
        assert_eq!(sparse.vectors.ncols(), 1);
        assert!(!sparse.floor_report.warnings.is_empty());
    }

    /// Pure noise: the solver stops when its gap is far below what the noise does, and says so.
    #[test]
    fn pure_noise_stops_early_with_a_warning() {
        let (moment, ..) = noisy(60, 4, 300.0);
        let settings = SparseSettings {
            refit: false,
            ..SparseSettings::default()
        };
        let drowned = sparse(&moment, ComponentCount::Fixed(2), &settings);
        let outcome = drowned.sparse.unwrap();
        let negligible = fantope::negligible_gap(moment.noise(), 2, N as f64);
        assert!(!outcome.converged && outcome.iterations < 1_000);
        assert!(outcome.duality_gap > 0.0 && outcome.duality_gap <= negligible);
        let mut warnings = drowned.floor_report.warnings.iter();
        assert!(warnings.any(|warning| warning.code() == "solver-within-noise"));
    }

    #[test]
    fn the_iteration_cap_is_reported_and_the_rank_checked() {
        let (moment, ..) = noisy(60, 8, 3.0);
        let short = SparseSettings {
            max_iterations: 2,
            tolerance: 1e-12,
            ..SparseSettings::default()
        };
        let capped = sparse(&moment, ComponentCount::Fixed(2), &short);
        assert!(!capped.sparse.unwrap().converged);
        let mut warnings = capped.floor_report.warnings.iter();
        let limit =
            |warning: &Warning| matches!(warning, Warning::SolverLimit { iterations: 2, .. });
        assert!(warnings.any(limit));
        for k in [0, 61] {
            let error = principal_components(&moment, ComponentCount::Fixed(k), "").unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
    }
}
