//! From seeds to judged row-sparse components.

use eigenveil_shared::{
    Error, Result,
    api::{Lambda, SparseSettings},
    estimate::{ComponentCount, SparseOutcome},
    mechanism::{Decoding, NoiseModel, double_cap::DoubleCapParameters},
    study::StudyParams,
};

use super::{
    candidates::{KRYLOV_DIMENSION, leading_pairs},
    dual::DualMatrix,
    matrix::LargeMatrix,
    solve::{MAX_CANDIDATES, Problem, SolveResult},
    source::{SeedSource, check_same_reports, sums_of_rows},
};
use crate::{
    assessment::{
        ChosenCount, Eigenvalues, Floor, Measured, Refitted, Support, checked_rank,
        count_components,
        error_bars::{Reestimate, error_bars},
    },
    cancel::Cancel,
    components::ComponentsReport,
    dense::pca::rayleigh_quotients,
    input::{accumulate::Accumulator, moment::NoisyMoment},
    linalg::{PANEL_WIDTH, StartVectors, Symmetric, symmetric_eigenvalues, top_k},
    report::warning::Warning,
    sparse::{
        components::{sparse_outcome, sparse_report},
        fantope::{AdmmSettings, KAPPA, automatic_lambda, embed, resolve_lambda},
    },
};

/// Dimension from which this method is worthwhile: below it the whole moment fits in memory and has all its
/// eigenvalues.
pub const MIN_STREAMED_DIMENSION: usize = 1_500;
/// Maximum number of components: beyond it blocks of vectors are no longer small compared with the candidates.
pub const MAX_COMPONENTS: usize = 64;
/// Eigenvalues of S̃ beyond the k requested.
const EXTRA_EIGENVALUES: usize = 8;
/// Residuals of these eigenvalues, relative to the largest, and products with a block to spend on them.
const EIGENVALUE_ACCURACY: f64 = 3e-3;
const EIGENVALUE_PRODUCTS: usize = 60;

/// Maximum memory of [`sparse_components`] with this many threads: both triangles, the candidates' rows of the dual
/// matrix, the small solver's matrices, blocks of vectors, a Krylov space with room to grow and one tile per thread.
pub fn bytes_needed(p: usize, threads: usize) -> u64 {
    let (p, width) = (p as u64, PANEL_WIDTH as u64);
    let triangle = p * (p + width) / 2;
    let candidates = MAX_CANDIDATES.min(p as usize) as u64;
    let rows = 2 * 8 * candidates * p;
    let small = 16 * 8 * candidates * candidates;
    let krylov = 2 * 8 * KRYLOV_DIMENSION as u64 * p;
    (4 + 8) * triangle + rows + small + krylov + (4 + 8 * threads as u64) * width * p
}

/// Estimates like [`sparse_components`](crate::sparse_components) for a `double-cap` study, from its seeds, with memory
/// for [`bytes_needed`] instead of the sums of every bucket. Also returns the number of reports.
///
/// The duality gap is that of the whole problem. [`ComponentsReport::spectrum`] holds the leading eigenvalues of S̃
/// only, as Ritz values (never above the true ones) with residuals of about 0.3 % of the largest. Works on
/// [`Threads::current`](crate::linalg::Threads::current) threads.
///
/// `cancel` is checked once every 256 seeds, between steps and after every iteration of the solver.
///
/// # Errors
/// As [`sparse_components`](crate::sparse_components) and those of the source; `invalid-request`
/// for more than [`MAX_COMPONENTS`] components, for λ by cross-validation and for studies with another mechanism or
/// private centring, which need the sums of the buckets.
pub fn sparse_components(
    source: &(impl SeedSource + ?Sized),
    params: &StudyParams,
    rank: ComponentCount,
    settings: &SparseSettings,
    setting: &str,
    cancel: Cancel<'_>,
) -> Result<(ComponentsReport, u64)> {
    let parameters = supported(params, rank, settings)?;
    let noise = params.noise_model();
    let p = parameters.dimension;
    let moment = LargeMatrix::gather(source, &parameters, PANEL_WIDTH, cancel)?;
    let (n, trace) = (moment.n(), moment.trace());
    let n_eff = n as f64;
    let lambda = resolve_lambda(settings, &noise, p, n_eff)?
        .ok_or_else(|| Error::estimate_failed("this lambda needs the sums of every bucket"))?;
    let (count, spectrum) = leading_spectrum(&moment, rank, &noise)?;
    let k = count.k.max(1);
    let centre = trace / p as f64;
    let unit: f64 = spectrum.iter().take(k).map(|value| value - centre).sum();
    let problem = Problem {
        moment: &moment,
        k,
        lambda,
        largest_noise_entry: automatic_lambda(&noise, p, n_eff, false)? / KAPPA,
        settings: AdmmSettings::from(settings),
    };
    let solved = problem.solve(unit.max(f64::MIN_POSITIVE), cancel)?;
    let rows = &solved.support;
    let buckets = sums_of_rows(source, p, rows, cancel)?;
    check_same_reports(&buckets, n)?;
    let on_rows = moment_of_rows(buckets, params)?;
    let dense = on_rows.dense();
    let (within, again) = match settings.refit {
        true => (top_k(&dense, k)?.vectors, Reestimate::Pca),
        false => (solved.vectors.select_rows(rows), Reestimate::Nothing),
    };
    let values = rayleigh_quotients(&dense, &within);
    let bars = error_bars(&on_rows, &within, again)?;
    let eigenvalues = symmetric_eigenvalues(&dense)?;
    let vectors = embed(&within, rows, p);
    let refitted = Refitted {
        eigenvalues: eigenvalues.as_slice(),
        images: &DualMatrix::soft(&moment, 0.0, 0.0).times(&vectors),
        moment: &|rows| moment.submatrix(rows),
    };
    let measured = Measured {
        vectors: &vectors,
        values: values.as_slice(),
        spectrum: Eigenvalues {
            leading: &spectrum,
            trace,
            squares: None,
            dimension: p,
        },
        noise: &noise,
        n_eff,
        rows_of_tables: None,
        excess_noise: None,
        excess: &[],
        support: Some(Support {
            rows,
            refitted: settings.refit.then_some(refitted),
        }),
        k_is_open: count.is_open,
        error_bars: bars.as_ref(),
        setting,
    };
    let outcome = SparseOutcome {
        converged: solved.converged,
        iterations: solved.iterations,
        duality_gap: solved.gap,
        support: solved.support.clone(),
        ..sparse_outcome(&solved.small, settings)
    };
    let mut findings = sparse_report(&measured, outcome, convergence_warning(&solved))?;
    findings.k_shares = count.shares;
    Ok((findings, n))
}

/// Whether row-sparse components of this study can be found by [`sparse_components`].
pub fn can_stream(params: &StudyParams, rank: ComponentCount, settings: &SparseSettings) -> bool {
    supported(params, rank, settings).is_ok()
}

/// The constants of the study's mechanism, if this method applies to it.
fn supported(
    params: &StudyParams,
    rank: ComponentCount,
    settings: &SparseSettings,
) -> Result<DoubleCapParameters> {
    let reject = |field, detail: &str| Err(Error::invalid_request(detail).with_field(field));
    if let ComponentCount::Fixed(k) = rank
        && k > MAX_COMPONENTS
    {
        return reject(
            "k",
            &format!(
                "k is {k}; of a row-sparse estimate from seeds it is at most {MAX_COMPONENTS}"
            ),
        );
    }
    if matches!(settings.lambda, Lambda::CrossValidated | Lambda::Path) {
        return reject(
            "lambda",
            "lambda is cv or path, which need the sums of every bucket; without them it is a number or auto",
        );
    }
    if params.preprocessing().allows_missing_cells() || params.preprocessing().weights.is_some() {
        return reject(
            "features",
            "the study allows missing cells or weights, which needs the whole second-moment matrix; request the estimate without streaming",
        );
    }
    if params.preprocessing().centring.is_some() {
        return reject(
            "centring",
            "the study has private centring, which needs the whole second-moment matrix; request the estimate without streaming",
        );
    }
    match params.mechanism().decoding() {
        Decoding::Direction(parameters) => Ok(parameters),
        Decoding::Entries | Decoding::Grid { .. } => reject(
            "mechanism",
            "only the seeds of double-cap can be read twice; this study stores sums",
        ),
    }
}

/// How many components there are, and more leading eigenvalues of S̃: as many as the floor needs.
fn leading_spectrum(
    moment: &LargeMatrix,
    rank: ComponentCount,
    noise: &NoiseModel,
) -> Result<(ChosenCount, Vec<f64>)> {
    let p = moment.dimension();
    let whole = DualMatrix::soft(moment, 0.0, 0.0);
    let mut wanted = match rank {
        ComponentCount::Fixed(k) => checked_rank(k, p)? + EXTRA_EIGENVALUES,
        ComponentCount::Auto => EXTRA_EIGENVALUES,
    };
    loop {
        let mut values = leading_pairs(
            &whole,
            wanted.min(p),
            EIGENVALUE_ACCURACY,
            EIGENVALUE_PRODUCTS,
            &mut StartVectors::default(),
        )?
        .values;
        values.truncate(wanted);
        let spectrum = Eigenvalues {
            leading: &values,
            trace: moment.trace(),
            squares: None,
            dimension: p,
        };
        if Floor::try_from_leading(&spectrum, noise, moment.n() as f64)?.is_some() {
            let count = count_components(rank, &spectrum, noise, moment.n() as f64, &[])?;
            return Ok((count, values));
        }
        // All of them are components: look at more.
        if wanted > MAX_COMPONENTS {
            return Err(Error::invalid_request(format!(
                "all {} leading eigenvalues stand above the noise; a row-sparse estimate from seeds finds at most {MAX_COMPONENTS} components",
                values.len()
            )));
        }
        wanted *= 2;
    }
}

fn moment_of_rows(mut buckets: Vec<Accumulator>, params: &StudyParams) -> Result<NoisyMoment> {
    for bucket in &mut buckets {
        bucket.decode_rows(params.mechanism(), params.report_dimension());
    }
    NoisyMoment::from_buckets(buckets, params.noise_model())
}

fn convergence_warning(solved: &SolveResult) -> Option<Warning> {
    (!solved.converged).then_some(Warning::SolverTolerance {
        gap: solved.relative_gap,
        candidates: solved.candidates,
        limit: MAX_CANDIDATES,
    })
}
