//! The trials of one pair, and the bounds that they give.

use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
    privacy::Budget,
    site_study::SiteStudyParams,
    study::StudyParams,
};
use rand::rngs::ChaCha20Rng;

use crate::{
    AuditSettings, Bound, Method, PairKind, Samples, Sampling, Side,
    bounds::{check_gaussian, unchecked_mu_bound},
    event_bound,
    transcript::{Observation, TranscriptStatistic},
};

/// Maximum number of attempt counts compared per row.
const MAX_ATTEMPT_COUNTS: usize = 200_000;

/// Share of a verdict's false-alarm probability for the attempts test; the bound uses the rest.
pub(crate) const ATTEMPTS_SHARE: f64 = 0.02;

/// The random streams of training trials follow those of the test trials.
const TRAINING_STREAM: u64 = 1_000;

/// The claim of an audit, the same for every pair: the studies differ only in how they prepare rows.
pub(crate) struct Claim {
    pub(crate) mechanism: MechanismKind,
    pub(crate) calibration: Option<Calibration>,
    pub(crate) budget: Budget,
    /// True ε at this δ, by analysis.
    pub(crate) true_epsilon: Option<f64>,
    /// Whether it samples by rejection.
    pub(crate) tries: bool,
    pub(crate) method: Method,
}

impl Claim {
    /// # Errors
    /// `invalid-mechanism` for a method that does not fit the mechanism.
    pub(crate) fn of_rows(settings: &AuditSettings, params: &StudyParams) -> Result<Self> {
        let (mechanism, budget) = (params.mechanism(), params.budget());
        let default_method = || Method::for_mechanism(mechanism);
        let method = settings.method.unwrap_or_else(default_method);
        if method.is_model_based() {
            check_gaussian(mechanism)?;
        }
        Ok(Self {
            mechanism: mechanism.kind(),
            calibration: mechanism.calibration(),
            budget,
            true_epsilon: mechanism.true_epsilon(budget.delta()),
            tries: mechanism.expected_attempts().is_some(),
            method,
        })
    }

    /// Every mechanism over tables has Gaussian noise.
    pub(crate) fn of_tables(settings: &AuditSettings, params: &SiteStudyParams) -> Self {
        let (mechanism, budget) = (params.mechanism(), params.budget());
        Self {
            mechanism: mechanism.kind(),
            calibration: mechanism.calibration(),
            budget,
            true_epsilon: mechanism.true_epsilon(budget.delta()),
            tries: false,
            method: settings.method.unwrap_or(Method::MuGdp),
        }
    }
}

/// The bounds of one pair.
pub(crate) struct PairResult {
    pub(crate) pair: PairKind,
    /// From the report, by the audit's method.
    pub(crate) report: Bound,
    /// From the report, black box.
    pub(crate) event: Bound,
    /// From the transcript, black box.
    pub(crate) transcript: Bound,
    pub(crate) attempts: [Vec<u64>; 2],
}

/// One test trial: the statistics of report and transcript, and the attempts.
type Trial = (f64, f64, u64);

/// Tries one pair; `observe` makes a trial of one side as an observer sees it.
pub(crate) fn try_pair(
    settings: &AuditSettings,
    claim: &Claim,
    pair: PairKind,
    observe: &(dyn Fn(Side, &mut ChaCha20Rng) -> Result<Observation> + Sync),
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<PairResult> {
    let sampling = Sampling {
        progress,
        ..Sampling::quiet(settings.trials, settings.seed)
    };
    // Each pair's random stream is independent of which other pairs run.
    let stream = 2 * pair as u64;
    let train = |side, stream| {
        sampling.draw(
            stream + TRAINING_STREAM,
            settings.training_trials(),
            &|rng| observe(side, rng),
        )
    };
    let trained = [train(Side::A, stream)?, train(Side::B, stream + 1)?];
    let transcript = TranscriptStatistic::train(&trained[0], &trained[1]);
    drop(trained);
    let run_trials = |side, stream| -> Result<Vec<Trial>> {
        sampling.draw(stream, settings.trials, &|rng| {
            let seen = observe(side, rng)?;
            Ok((seen.value, transcript.score(&seen), seen.work.attempts))
        })
    };
    let (a, b) = (
        run_trials(Side::A, stream)?,
        run_trials(Side::B, stream + 1)?,
    );
    let samples = |value: fn(&Trial) -> f64| Samples {
        a: a.iter().map(value).collect(),
        b: b.iter().map(value).collect(),
    };
    let delta = claim.budget.delta();
    let confidence = if claim.tries {
        1.0 - (1.0 - ATTEMPTS_SHARE) * (1.0 - settings.confidence)
    } else {
        settings.confidence
    };
    let transcript = event_bound(&samples(|trial| trial.1), delta, confidence)?;
    let reports = samples(|trial| trial.0);
    let event = event_bound(&reports, delta, confidence)?;
    let report = match claim.method {
        Method::Event => event,
        // The claim is of Gaussian noise.
        Method::MuGdp => unchecked_mu_bound(&reports, delta, confidence)?,
    };
    let attempts = |trials: &[Trial]| {
        let attempts = trials.iter().map(|trial| trial.2);
        attempts.take(MAX_ATTEMPT_COUNTS).collect()
    };
    Ok(PairResult {
        pair,
        report,
        event,
        transcript,
        attempts: [attempts(&a), attempts(&b)],
    })
}
