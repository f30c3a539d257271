//! From the sums of a study to the document an analyst gets.

use std::{ops::ControlFlow, time::Instant};

use eigenveil_estimation::{
    estimate::{Findings, principal_components, sparse_components},
    fantope::Progress,
    floor::{grouped, probably_the_mean},
    large::{self, SeedSource},
    moment::NoisyMoment,
    row_check,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{Lambda, SparseSettings},
    estimate::{Estimate, Rank, RowCheck},
    mechanism::PayloadForm,
    privacy::{PrivacyStatement, delta_warning},
    study::StudyParams,
};

use crate::store::cancelled;

/// Version of the [`Estimate`] document.
const FORMAT: u32 = 1;

/// Estimates the principal subspace of a study: PCA, or row-sparse components with `sparse`.
///
/// `cancel` is asked before and after plain PCA and after every iteration of the sparse solver.
///
/// # Errors
/// `estimate-failed` when cancelled, when there is no report, or when a number is not finite;
/// `invalid-request` for a k or a setting out of range.
pub fn estimate(
    params: &StudyParams,
    name: &str,
    moment: &NoisyMoment,
    k: Rank,
    sparse: Option<&SparseSettings>,
    cancel: &dyn Fn() -> bool,
) -> Result<Estimate> {
    let started = Instant::now();
    if cancel() {
        return Err(cancelled());
    }
    let setting = setting_of(params);
    let findings = match sparse {
        None => principal_components(moment, k, &setting)?,
        Some(settings) => sparse_components(moment, k, settings, &setting, &watch(cancel))?,
    };
    if cancel() {
        return Err(cancelled());
    }
    let mut estimate = document(params, name, moment.n(), k, findings);
    if let Some(mean) = moment.estimated_mean() {
        estimate.mean = Some(mean.values().to_vec());
        estimate.mean_standard_error = Some(mean.standard_error());
    }
    estimate.seconds = started.elapsed().as_secs_f64();
    check_finite(&estimate)?;
    Ok(estimate)
}

/// Whether a row-sparse estimate of this study can be made by [`estimate_from_seeds`].
pub(crate) fn can_stream(params: &StudyParams, k: Rank, settings: &SparseSettings) -> bool {
    let few = match k {
        Rank::Auto => true,
        Rank::Fixed(k) => k <= large::MOST_COMPONENTS,
    };
    params.mechanism().payload_form() == PayloadForm::Seed
        && params.preprocessing().centring.is_none()
        && !matches!(settings.lambda, Lambda::CrossValidated | Lambda::Path)
        && few
}

/// Row-sparse components of a study from its seeds, which are read twice: for dimensions at which the sums of the buckets
/// would not fit into memory. Works on [`Threads::current`](eigenveil_estimation::linalg::Threads::current) threads.
///
/// `cancel` is asked every 256 seeds and after every iteration.
///
/// # Errors
/// As [`estimate`], and those of reading the seeds; `invalid-request` for a study or a setting that needs the sums of
/// the buckets.
pub fn estimate_from_seeds(
    params: &StudyParams,
    name: &str,
    seeds: &impl SeedSource,
    k: Rank,
    settings: &SparseSettings,
    cancel: &dyn Fn() -> bool,
) -> Result<Estimate> {
    let started = Instant::now();
    let setting = setting_of(params);
    let watch = watch(cancel);
    let (findings, n) =
        large::sparse_components(seeds, params, k, settings, &setting, &watch, cancel)?;
    let mut estimate = document(params, name, n, k, findings);
    estimate.seconds = started.elapsed().as_secs_f64();
    check_finite(&estimate)?;
    Ok(estimate)
}

/// Puts what rows can and cannot do into the document, and first of all what they cannot.
pub(crate) fn note_row_check(estimate: &mut Estimate, check: RowCheck) {
    // JSON has no infinity; sums of enormous reports are refused elsewhere.
    if check.length.found.is_finite() {
        estimate.warnings.splice(0..0, row_check::in_words(&check));
        estimate.row_check = Some(check);
    }
}

/// Says how many reports were left out because another one with their seed is counted.
pub(crate) fn note_repeated(estimate: &mut Estimate, repeated: u64) {
    estimate.repeated_seeds = repeated;
    if repeated > 0 {
        let (reports, repeat) = match repeated {
            1 => ("report", "repeats"),
            _ => ("reports", "repeat"),
        };
        estimate.warnings.insert(
            0,
            format!(
                "{} {reports} {repeat} the seed of another report, which honest devices do not do (two seeds are equal once in 10³⁸): each seed is counted once, and they are not among the {} reports of this estimate. Somebody sends made-up reports, or a device sends one report again under new identifiers.",
                grouped(repeated),
                grouped(estimate.n)
            ),
        );
    }
}

fn setting_of(params: &StudyParams) -> String {
    format!("ε = {}", params.budget().epsilon())
}

fn watch(cancel: &dyn Fn() -> bool) -> impl Fn(&Progress) -> ControlFlow<()> {
    move |_| match cancel() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// The document of these findings from `n` reports; mean and time are the caller's.
fn document(params: &StudyParams, name: &str, n: u64, k: Rank, findings: Findings) -> Estimate {
    let Findings {
        vectors,
        spectrum,
        mut assessment,
        sparse,
        bucket_agreement,
        ..
    } = findings;
    match probably_the_mean(params, &assessment) {
        // Then the others are small beside it, and asking for more people would be the wrong advice.
        Some(mean) => assessment.warnings.insert(0, mean),
        None => assessment.warnings.extend(assessment.outlook.take()),
    }
    assessment
        .warnings
        .extend(delta_warning(params.budget().delta(), n));
    Estimate {
        format: FORMAT,
        name: name.to_owned(),
        study: params.clone(),
        fingerprint: params.fingerprint().to_string(),
        n,
        repeated_seeds: 0,
        p: vectors.nrows(),
        k: assessment.components.len(),
        requested_k: k,
        components: assessment.components,
        groups: assessment.groups,
        mean: None,
        mean_standard_error: None,
        variances: assessment.variances,
        eigenvalues: spectrum,
        total_variance: assessment.total_variance,
        floor: assessment.floor,
        expected_error: assessment.expected_error,
        influence: Some(
            params
                .mechanism()
                .report_influence(params.report_dimension())
                / n as f64,
        ),
        sparse,
        bucket_agreement,
        row_check: None,
        privacy: PrivacyStatement::of(params),
        warnings: assessment.warnings,
        seconds: 0.0,
    }
}

/// JSON has no NaN: a document that holds one could be written but not read.
fn check_finite(estimate: &Estimate) -> Result<()> {
    let floor = &estimate.floor;
    let scores = estimate
        .sparse
        .iter()
        .filter_map(|sparse| sparse.cross_validation.as_ref())
        .flat_map(|cv| &cv.path)
        .flat_map(|point| {
            [
                point.lambda,
                point.score,
                point.behind,
                point.standard_error,
            ]
        });
    let path = estimate
        .sparse
        .iter()
        .filter_map(|sparse| sparse.path.as_ref())
        .flat_map(|path| {
            let points = path.points.iter().flat_map(|point| {
                let numbers = [point.lambda, point.captured_variance, point.relative_gap];
                numbers
                    .into_iter()
                    .chain(point.row_norms.iter().flatten().copied())
            });
            points.chain([path.lambda_max, path.automatic, path.most_variance])
        });
    let numbers = estimate
        .components
        .iter()
        .flat_map(|component| {
            component.loadings.iter().copied().chain([
                component.variance.unwrap_or(0.0),
                component.variance_se.unwrap_or(0.0),
                component.eigenvalue,
                component.debiased_eigenvalue.unwrap_or(0.0),
                component.expected_alignment,
                component.explained_variance_ratio.unwrap_or(0.0),
                component.eigenvalue_se.unwrap_or(0.0),
                component.debiased_eigenvalue_se.unwrap_or(0.0),
                component.expected_alignment_se.unwrap_or(0.0),
                component.direction_se.unwrap_or(0.0),
            ])
        })
        .chain(estimate.eigenvalues.iter().copied())
        .chain(estimate.variances.iter().copied())
        .chain(
            estimate
                .groups
                .iter()
                .flat_map(|group| [group.variance, group.alignment]),
        )
        .chain(scores)
        .chain(path)
        .chain(estimate.mean.iter().flatten().copied())
        .chain(
            estimate
                .bucket_agreement
                .iter()
                .flat_map(|agreement| [agreement.statistic, agreement.threshold, agreement.shift]),
        )
        .chain([
            estimate.total_variance.unwrap_or(0.0),
            estimate.mean_standard_error.unwrap_or(0.0),
            estimate.influence.unwrap_or(0.0),
            estimate.expected_error,
            floor.centre,
            floor.radius,
            floor.edge,
            floor.threshold,
        ])
        .chain(
            floor
                .variance
                .iter()
                .flat_map(|floor| [floor.level, floor.edge, floor.threshold]),
        );
    if numbers.into_iter().all(f64::is_finite) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::EstimateFailed,
        "the estimate holds a number that is not finite; a report with enormous numbers may be in the sums",
    ))
}
