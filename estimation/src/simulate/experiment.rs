//! One setting, repeated: errors, and the floor's predictions.

use std::time::Instant;

use eigenveil_shared::{
    Error, Result, api::SparseSettings, estimate::ComponentCount, mechanism::NoiseModel,
    study::StudyParams,
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use super::{NoisePath, RowSource, SimulatedParticipants, noisy_sum};
use crate::{
    assessment::{Prediction, Spectrum, predict},
    cancel::Cancel,
    components::ComponentsReport,
    dense::{pca::pca, principal},
    input::moment::NoisyMoment,
    linalg::{require_rank, symmetric_eigen},
    metrics::{SupportScore, projector_distance, support_score},
    sparse::sparse_components,
};

/// A simulated study.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Preprocessing, mechanism and budget.
    pub params: &'a StudyParams,
    /// Where participants come from.
    pub source: RowSource<'a>,
    /// Participants n.
    pub n: u64,
    /// Components k.
    pub k: usize,
    /// The sparse estimator; plain PCA when `None`.
    pub sparse: Option<&'a SparseSettings>,
    /// How the noise of the sum is drawn.
    pub noise_path: NoisePath,
    /// Repeats, each with a population and noise of its own.
    pub repeats: usize,
    /// Seed; the same seed gives the same numbers.
    pub seed: u64,
    /// When to give up.
    pub cancel: Cancel<'a>,
}

impl<'a> Experiment<'a> {
    /// One repeat of plain PCA on the exact distribution of the sum, seed 1.
    pub fn new(params: &'a StudyParams, source: RowSource<'a>, n: u64, k: usize) -> Self {
        Self {
            params,
            source,
            n,
            k,
            sparse: None,
            noise_path: NoisePath::FromSum,
            repeats: 1,
            seed: 1,
            cancel: Cancel::NEVER,
        }
    }
}

/// One repeat. Errors are ‖V̂V̂ᵀ−VVᵀ‖_F against the true V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    /// Error of the estimate.
    pub error: f64,
    /// Error of plain PCA on the same reports; equal to `error` without the sparse estimator.
    pub pca_error: f64,
    /// Error of plain PCA on the same rows without noise.
    pub nonprivate_error: f64,
    /// The floor's prediction from the noiseless spectrum: what a planner who knew the spectrum would say. `None` where
    /// there is no bulk (k = p), for the sparse estimator, whose error depends on the features that it selects, and
    /// against a reference that is not the principal components.
    pub predicted_error: Option<f64>,
    /// The smallest squared cosine in that prediction, 0 if a component is invisible.
    pub predicted_alignment: Option<f64>,
    /// The estimate's own expectation from the noisy spectrum: what an analyst sees; `None` for shrunk loadings.
    pub expected_error: Option<f64>,
    /// Components above the floor's threshold.
    pub components_above: usize,
    /// Support recovery (Theorem 5 of Wang & Xu), for the sparse estimator on a sparse model.
    pub support: Option<SupportScore>,
    /// Whether the sparse solver met its stopping rule; true for PCA.
    pub converged: bool,
}

/// Mean and spread over the repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean error.
    pub error_mean: f64,
    /// Standard deviation of the error over the repeats (denominator R − 1), if there are several.
    pub error_sd: Option<f64>,
    /// Mean error of plain PCA on the same reports.
    pub pca_error: f64,
    /// Mean error without noise.
    pub nonprivate_error: f64,
    /// Mean prediction from the noiseless spectrum.
    pub predicted_error: Option<f64>,
    /// Mean of the smallest squared cosine in the prediction.
    pub predicted_alignment: Option<f64>,
    /// Mean of the estimate's own expectation.
    pub expected_error: Option<f64>,
    /// Mean number of components above the floor's threshold.
    pub components_above: f64,
    /// Mean precision, recall and F1.
    pub support: Option<SupportScore>,
    /// Repeats whose solver met its stopping rule.
    pub converged: usize,
    /// Repeats.
    pub repeats: usize,
    /// Seconds of computation.
    pub seconds: f64,
}

/// Runs the experiment. `tick` receives the number of participants processed, out of `n · repeats`.
pub fn run(
    experiment: &Experiment<'_>,
    tick: &mut dyn FnMut(u64),
) -> Result<(Vec<Repeat>, Summary)> {
    if experiment.repeats == 0 {
        return Err(Error::invalid_request(
            "repeats is 0; at least one is needed",
        ));
    }
    let p = experiment.params.dimension();
    require_rank(experiment.k, p)?;
    let started = Instant::now();
    let draw = |rng: &mut ChaCha20Rng| {
        SimulatedParticipants::draw(&experiment.source, experiment.k, experiment.params, rng)
    };
    // Given rows are prepared once (which draws nothing); a model draws a new frame in every repeat.
    let given = match experiment.source {
        RowSource::Rows(_) | RowSource::RowsWithReference(..) => {
            Some(draw(&mut ChaCha20Rng::seed_from_u64(experiment.seed))?)
        }
        RowSource::Model(_) => None,
    };
    let repeats = (0..experiment.repeats as u64)
        .map(|number| {
            // One random stream per repeat: adding repeats does not change the earlier ones.
            let mut rng = ChaCha20Rng::seed_from_u64(experiment.seed);
            rng.set_stream(number);
            match &given {
                Some(participants) => repeat(experiment, participants, &mut rng, tick),
                None => repeat(experiment, &draw(&mut rng)?, &mut rng, tick),
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let summary = summarize(&repeats, started.elapsed().as_secs_f64());
    Ok((repeats, summary))
}

fn repeat(
    experiment: &Experiment<'_>,
    participants: &SimulatedParticipants<'_>,
    rng: &mut ChaCha20Rng,
    tick: &mut dyn FnMut(u64),
) -> Result<Repeat> {
    let Experiment {
        params, k, cancel, ..
    } = *experiment;
    let (noisy, clean) = noisy_sum(
        params,
        participants,
        experiment.n,
        experiment.noise_path,
        rng,
        &mut |done| {
            tick(done);
            cancel.check()
        },
    )?;
    let truth = participants.truth();
    let setting = format!("ε = {}", params.budget().epsilon());
    let plain = principal(&noisy, ComponentCount::Fixed(k), &setting, false)?;
    let pca_error = projector_distance(&plain.vectors, truth)?;
    let nonprivate_error = projector_distance(&pca(&clean.dense(), k)?.vectors, truth)?;
    let (found, support, converged) = match experiment.sparse {
        None => (plain, None, true),
        Some(settings) => {
            let sparse_report =
                sparse_components(&noisy, ComponentCount::Fixed(k), settings, &setting, cancel)?;
            let outcome = sparse_report.sparse.as_ref();
            let support = outcome
                .zip(participants.support())
                .map(|(o, truth)| support_score(&o.support, truth));
            let converged = outcome.is_none_or(|o| o.converged);
            (sparse_report, support, converged)
        }
    };
    let ComponentsReport {
        vectors,
        floor_report,
        ..
    } = found;
    let prediction = match (experiment.sparse, experiment.source) {
        (None, RowSource::Rows(_) | RowSource::Model(_)) => {
            predicted(&clean, k, noisy.noise(), noisy.n_eff())?
        }
        // The error is that of other features, or against something else than the principal components.
        (Some(_), _) | (None, RowSource::RowsWithReference(..)) => None,
    };
    Ok(Repeat {
        error: projector_distance(&vectors, truth)?,
        pca_error,
        nonprivate_error,
        predicted_error: prediction.as_ref().map(|p| p.expected_error),
        predicted_alignment: prediction.as_ref().map(Prediction::weakest_alignment),
        expected_error: floor_report.expected_error,
        components_above: floor_report.floor.components_above,
        support,
        converged,
    })
}

/// The prediction for plain PCA from the noiseless moment, with this noise of one report.
pub(super) fn predicted(
    clean: &NoisyMoment,
    k: usize,
    noise: &NoiseModel,
    n_eff: f64,
) -> Result<Option<Prediction>> {
    let moment = clean.dense();
    if k >= moment.nrows() {
        return Ok(None);
    }
    let eigen = symmetric_eigen(&moment)?;
    let mut spectrum = Spectrum::from_eigenvalues(eigen.values.as_slice(), k)?;
    if let Some(mean) = clean.estimated_mean() {
        let excess = eigen.vectors.column_iter();
        let excess = excess.map(|v| mean.excess_along(v)).collect();
        spectrum = spectrum.with_excess_along_mean(excess)?;
    }
    predict(&spectrum, noise, n_eff).map(Some)
}

/// Mean and spread of these repeats.
pub fn summarize(repeats: &[Repeat], seconds: f64) -> Summary {
    let count = repeats.len() as f64;
    let mean = |of: &dyn Fn(&Repeat) -> f64| repeats.iter().map(of).sum::<f64>() / count;
    let mean_if = |of: &dyn Fn(&Repeat) -> Option<f64>| {
        repeats
            .iter()
            .map(of)
            .sum::<Option<f64>>()
            .map(|sum| sum / count)
    };
    let error_mean = mean(&|r| r.error);
    let squares = repeats
        .iter()
        .map(|r| (r.error - error_mean).powi(2))
        .sum::<f64>();
    let support = mean_if(&|r| r.support.map(|s| s.precision))
        .zip(mean_if(&|r| r.support.map(|s| s.recall)))
        .zip(mean_if(&|r| r.support.map(|s| s.f1)))
        .map(|((precision, recall), f1)| SupportScore {
            precision,
            recall,
            f1,
        });
    Summary {
        error_mean,
        error_sd: (repeats.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
        pca_error: mean(&|r| r.pca_error),
        nonprivate_error: mean(&|r| r.nonprivate_error),
        predicted_error: mean_if(&|r| r.predicted_error),
        predicted_alignment: mean_if(&|r| r.predicted_alignment),
        expected_error: mean_if(&|r| r.expected_error),
        components_above: mean(&|r| r.components_above as f64),
        support,
        converged: repeats.iter().filter(|r| r.converged).count(),
        repeats: repeats.len(),
        seconds,
    }
}
