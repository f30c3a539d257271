//! From the sums of a study to the document an analyst gets.

use std::{ops::ControlFlow, time::Instant};

use eigenveil_estimation::{
    centring::EstimatedMean,
    estimate::{Findings, principal_components, sparse_components},
    moment::NoisyMoment,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::SparseSettings,
    estimate::{Estimate, Rank},
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
    let setting = format!("ε = {}", params.budget().epsilon());
    if cancel() {
        return Err(cancelled());
    }
    let findings = match sparse {
        None => principal_components(moment, k, &setting)?,
        Some(settings) => sparse_components(moment, k, settings, &setting, &|_| match cancel() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?,
    };
    if cancel() {
        return Err(cancelled());
    }
    let Findings {
        spectrum,
        mut assessment,
        sparse,
        ..
    } = findings;
    assessment
        .warnings
        .extend(delta_warning(params.budget().delta(), moment.n()));
    let estimate = Estimate {
        format: FORMAT,
        name: name.to_owned(),
        study: params.clone(),
        fingerprint: params.fingerprint().to_string(),
        n: moment.n(),
        p: moment.dimension(),
        k: assessment.components.len(),
        requested_k: k,
        components: assessment.components,
        mean: moment.estimated_mean().map(|mean| mean.values().to_vec()),
        mean_standard_error: moment.estimated_mean().map(EstimatedMean::standard_error),
        eigenvalues: spectrum,
        total_variance: assessment.total_variance,
        floor: assessment.floor,
        expected_error: assessment.expected_error,
        influence: Some(
            params
                .mechanism()
                .report_influence(params.report_dimension())
                / moment.n() as f64,
        ),
        sparse,
        privacy: PrivacyStatement::of(params),
        warnings: assessment.warnings,
        seconds: started.elapsed().as_secs_f64(),
    };
    check_finite(&estimate)?;
    Ok(estimate)
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
    let numbers = estimate
        .components
        .iter()
        .flat_map(|component| {
            component.loadings.iter().copied().chain([
                component.eigenvalue,
                component.debiased_eigenvalue.unwrap_or(0.0),
                component.expected_alignment,
                component.explained_variance_ratio.unwrap_or(0.0),
                component.eigenvalue_se.unwrap_or(0.0),
                component.debiased_eigenvalue_se.unwrap_or(0.0),
                component.direction_se.unwrap_or(0.0),
            ])
        })
        .chain(estimate.eigenvalues.iter().copied())
        .chain(scores)
        .chain(estimate.mean.iter().flatten().copied())
        .chain([
            estimate.total_variance.unwrap_or(0.0),
            estimate.mean_standard_error.unwrap_or(0.0),
            estimate.influence.unwrap_or(0.0),
            estimate.expected_error,
            floor.centre,
            floor.radius,
            floor.edge,
            floor.threshold,
        ]);
    if numbers.into_iter().all(f64::is_finite) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::EstimateFailed,
        "the estimate holds a number that is not finite; a report with enormous numbers may be in the sums",
    ))
}
