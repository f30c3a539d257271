//! The audit of one mechanism: its settings, its run and its report.

use std::time::Instant;

use eigenveil_shared::{
    Error, Result,
    codec::{ReportFormat, decode_report},
    mechanism::{Calibration, Mechanism, MechanismKind},
    names,
    preprocess::Weights,
    privacy::{Budget, epsilon_warning, format_delta, format_epsilon},
    study::{StudyDesign, StudyParams},
    word,
};
use rand::rngs::ChaCha20Rng;
use serde::{Deserialize, Serialize};

use crate::{
    AttemptsTest, AttemptsVerdict, Bound, Device, PairKind, Participant, Randomness, Samples,
    Sampling, Statistic, attempts_test,
    bounds::check_gaussian,
    device::prepare,
    event_bound, mu_bound,
    transcript::{Observation, TranscriptStatistic},
};

/// Default trials per row.
pub const TRIALS: usize = 100_000;

/// Default confidence of a verdict.
pub const CONFIDENCE: f64 = 0.95;

/// Minimum trials per row: with fewer, no event proves an ε of 5.
pub const MIN_TRIALS: usize = 1_000;

/// Maximum trials per row: the observations of one pair are held in memory, about 100 bytes per trial.
pub const MAX_TRIALS: usize = 10_000_000;

/// Maximum number of attempt counts compared per row.
const MAX_ATTEMPT_COUNTS: usize = 200_000;

/// Maximum training trials of each row for the transcript statistic.
const MAX_TRAINING_TRIALS: usize = 50_000;

/// Share of a verdict's false-alarm probability for the attempts test; the bound uses the rest.
const ATTEMPTS_SHARE: f64 = 0.02;

/// The random streams of training trials follow those of the test trials.
const TRAINING_STREAM: u64 = 1_000;

/// How the bound is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Black box: [`event_bound`].
    Event,
    /// Assumes Gaussian noise: [`mu_bound`].
    MuGdp,
}

impl Method {
    /// The tightest method whose assumptions this mechanism satisfies by construction.
    pub fn for_mechanism(mechanism: &Mechanism) -> Self {
        if check_gaussian(mechanism).is_ok() {
            Self::MuGdp
        } else {
            Self::Event
        }
    }

    /// Whether the bound assumes a noise distribution.
    pub const fn is_model_based(self) -> bool {
        matches!(self, Self::MuGdp)
    }
}

names! {
    pub Method { Event = "event", MuGdp = "mu-gdp" } else |text, names| Error::invalid_request(format!(
        "there is no method {text:?}; use {}",
        names.join(" or ")
    ));
}

/// Settings of an audit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// The mechanism.
    #[serde(default, deserialize_with = "word")]
    pub mechanism: MechanismKind,
    /// How its noise is chosen.
    #[serde(default, deserialize_with = "word")]
    pub calibration: Calibration,
    /// Dimension p of a row.
    #[serde(rename = "p")]
    pub dimension: usize,
    /// The claimed ε.
    pub epsilon: f64,
    /// The claimed δ; `None`: the mechanism's default.
    pub delta: Option<f64>,
    /// Trials under each row of each pair, [`MIN_TRIALS`] to [`MAX_TRIALS`].
    #[serde(default = "default_trials")]
    pub trials: usize,
    /// Seed of the random pair, and of the trials with [`Randomness::Seeded`].
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Source of the trials' randomness.
    #[serde(default, deserialize_with = "word")]
    pub randomness: Randomness,
    /// Pairs to try; if empty, all that fit.
    #[serde(default, rename = "pair")]
    pub pairs: Vec<PairKind>,
    /// The bound; `None`: [`Method::for_mechanism`].
    pub method: Option<Method>,
    /// Confidence of the verdict, from ½ to below 1: a correct mechanism is refuted at most once in 1/(1 − confidence)
    /// audits.
    #[serde(default = "default_confidence")]
    pub confidence: f64,
}

fn default_trials() -> usize {
    TRIALS
}

fn default_seed() -> u64 {
    1
}

fn default_confidence() -> f64 {
    CONFIDENCE
}

impl AuditSettings {
    /// All pairs that fit, the mechanism's own method and calibration, repeatable trials from seed 1.
    pub fn new(mechanism: MechanismKind, dimension: usize, budget: Budget, trials: usize) -> Self {
        Self {
            mechanism,
            calibration: Calibration::default(),
            dimension,
            epsilon: budget.epsilon(),
            delta: Some(budget.delta()),
            trials,
            seed: default_seed(),
            randomness: Randomness::Seeded,
            pairs: Vec::new(),
            method: None,
            confidence: CONFIDENCE,
        }
    }

    /// The requested pairs, each once, in a fixed order.
    fn selected_pairs(&self) -> Vec<PairKind> {
        let mut pairs = PairKind::ALL.to_vec();
        pairs.retain(|pair| {
            if self.pairs.is_empty() {
                pair.fits(self.mechanism, self.dimension)
            } else {
                self.pairs.contains(pair)
            }
        });
        pairs
    }

    /// Training trials of each row, in addition to the test trials.
    fn training_trials(&self) -> usize {
        (self.trials / 4).min(MAX_TRAINING_TRIALS)
    }

    /// Total number of draws of the audit, for a progress bar.
    pub fn draws(&self) -> u64 {
        (2 * self.selected_pairs().len() * (self.trials + self.training_trials())) as u64
    }

    /// The study whose devices produce the reports of this pair.
    pub(crate) fn study(&self, pair: PairKind) -> Result<StudyParams> {
        let budget = self.mechanism.budget(self.epsilon, self.delta)?;
        StudyParams::freeze(StudyDesign {
            norm: pair.norm(),
            features: pair.features(self.dimension),
            centring: pair.centring(),
            weights: pair.weights().map(|_| Weights::default()),
            calibration: self.calibration,
            ..StudyDesign::new(self.mechanism, self.dimension, budget)
        })
    }

    fn check(&self) -> Result<()> {
        let invalid = |detail| Err(Error::invalid_request(detail));
        if !(MIN_TRIALS..=MAX_TRIALS).contains(&self.trials) {
            return invalid(format!(
                "{} trials; an audit takes {MIN_TRIALS} to {MAX_TRIALS} under each row",
                self.trials
            ));
        }
        if !(self.confidence >= 0.5 && self.confidence < 1.0) {
            return invalid(format!(
                "the confidence is {}; it must be at least 0.5 and below 1, such as {CONFIDENCE}",
                self.confidence
            ));
        }
        Ok(())
    }
}

/// Whether the observations are compatible with the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditVerdict {
    /// The lower bound does not exceed the claim, and the number of attempts does not depend on the row. This proves
    /// nothing beyond the bound.
    Consistent,
    /// The lower bound exceeds the claim, or the number of attempts depends on the row.
    Refuted,
}

/// The observations behind a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observed {
    /// The payload of the report, by the statistic that the mechanism's claim suggests.
    Report,
    /// The whole transcript: the report, every bit on the wire, the attempts and the random words.
    Transcript,
}

/// The bounds of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairReport {
    /// The pair.
    pub name: PairKind,
    /// The bound from its reports by the audit's method, valid for this pair only.
    pub epsilon_lower_bound: f64,
    /// The black-box bound from the whole transcript, valid for this pair only.
    pub transcript_epsilon_lower_bound: f64,
}

/// Result of [`audit`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// The mechanism.
    pub mechanism: MechanismKind,
    /// Calibration of its noise, if it has several.
    pub calibration: Option<Calibration>,
    /// Dimension of a row.
    pub p: usize,
    /// ε claimed.
    pub epsilon: f64,
    /// δ claimed.
    pub delta: f64,
    /// True ε at this δ, by analysis.
    pub true_epsilon: Option<f64>,
    /// Lower bound on ε over all pairs, from report and transcript: no smaller ε is compatible with the observations.
    pub epsilon_lower_bound: f64,
    /// The observations behind that bound.
    pub observed: Observed,
    /// How it was computed.
    pub method: Method,
    /// Whether it assumes a noise distribution.
    pub model_based: bool,
    /// The black-box bound from the reports alone, without any assumption.
    pub event_epsilon_lower_bound: f64,
    /// The black-box bound from the whole transcript.
    pub transcript_epsilon_lower_bound: f64,
    /// The largest bound that this many trials can prove: they cannot refute a claim above it.
    pub max_provable_epsilon: f64,
    /// Confidence of the verdict.
    pub confidence: f64,
    /// Trials under each row of each pair; half of them choose the event, half compute the bound.
    pub trials: usize,
    /// Source of their randomness.
    pub randomness: Randomness,
    /// The pair whose bound is reported, chosen on the first half.
    pub pair: PairKind,
    /// The bounds of every pair.
    pub pairs: Vec<PairReport>,
    /// The verdict on the claim.
    pub verdict: AuditVerdict,
    /// p-value of the attempts test, for mechanisms that sample by rejection.
    pub attempts_p_value: Option<f64>,
    /// The attempts test over all pairs.
    pub attempts: Option<AttemptsTest>,
    /// The verdict in words.
    pub finding: String,
    /// Seed.
    pub seed: u64,
    /// Duration of the audit.
    pub seconds: f64,
}

/// Audits a mechanism as devices run it: passes raw rows of chosen pairs through a study's preprocessing, randomizer
/// and wire format, and computes a lower bound on ε from the output.
///
/// ```
/// use eigenveil_audit::{AuditSettings, AuditVerdict, audit};
/// use eigenveil_shared::{mechanism::MechanismKind, privacy::Budget};
/// let settings = AuditSettings::new(MechanismKind::DoubleCap, 8, Budget::pure(1.0)?, 2_000);
/// let report = audit(&settings, &|_| Ok(()))?;
/// assert_eq!(report.verdict, AuditVerdict::Consistent);
/// assert!(report.epsilon_lower_bound > 0.3);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Errors
/// `invalid-dimension`, `invalid-budget`, `invalid-mechanism` for an impossible study or a method that does not fit the
/// mechanism; `invalid-request` for trials or a confidence out of range.
pub fn audit(
    settings: &AuditSettings,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<AuditReport> {
    let device = |params: &StudyParams| settings.randomness.device(params);
    audit_devices(settings, &device, progress)
}

/// Runs an [`audit()`], and returns the warnings about its claim.
///
/// # Errors
/// Those of [`audit()`].
pub fn run(
    settings: &AuditSettings,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<(AuditReport, Vec<String>)> {
    let report = audit(settings, progress)?;
    let warnings = epsilon_warning(report.epsilon).into_iter().collect();
    Ok((report, warnings))
}

/// Like [`audit`], for other devices: claim and studies come from the settings, the reports from the device.
pub fn audit_devices(
    settings: &AuditSettings,
    device: &dyn Fn(&StudyParams) -> Result<Box<dyn Device>>,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<AuditReport> {
    settings.check()?;
    // The claim is the budget for every pair: the studies differ only in the dimension of a report.
    let params = settings.study(PairKind::Axes)?;
    let mechanism = params.mechanism();
    let method = settings
        .method
        .unwrap_or_else(|| Method::for_mechanism(mechanism));
    if method.is_model_based() {
        check_gaussian(mechanism)?;
    }
    let started = Instant::now();
    let mut results = Vec::new();
    for pair in settings.selected_pairs() {
        results.push(try_pair(settings, pair, method, device, progress)?);
    }
    let worst = |bounds: Vec<Bound>| {
        let at = Bound::worst(&bounds)
            .ok_or_else(|| Error::invalid_request("no pair of rows to audit"))?;
        Ok::<(usize, Bound), Error>((at, bounds[at]))
    };
    let bounds_of = |which: fn(&PairResult) -> Bound| results.iter().map(which).collect::<Vec<_>>();
    let (_, event) = worst(bounds_of(|finding| finding.event))?;
    let (_, transcript) = worst(bounds_of(|finding| finding.transcript))?;
    // A single choice among all bounds, made on the selection halves: the chosen bound keeps its confidence.
    let mut all = bounds_of(|finding| finding.report);
    all.extend(bounds_of(|finding| finding.transcript));
    let (at, bound) = worst(all)?;
    let (observed, method) = match at < results.len() {
        true => (Observed::Report, method),
        false => (Observed::Transcript, Method::Event),
    };
    let attempts = mechanism.expected_attempts().and_then(|_| {
        let counts_of = |finding: &PairResult| (finding.pair, finding.attempts.clone());
        let counts: Vec<_> = results.iter().map(counts_of).collect();
        attempts_test(&counts, ATTEMPTS_SHARE * (1.0 - settings.confidence))
    });
    let delta = params.budget().delta();
    let mut report = AuditReport {
        mechanism: mechanism.kind(),
        calibration: mechanism.calibration(),
        p: settings.dimension,
        epsilon: params.budget().epsilon(),
        delta,
        true_epsilon: mechanism.true_epsilon(delta),
        epsilon_lower_bound: bound.epsilon_lower_bound,
        observed,
        method,
        model_based: method.is_model_based(),
        event_epsilon_lower_bound: event.epsilon_lower_bound,
        transcript_epsilon_lower_bound: transcript.epsilon_lower_bound,
        max_provable_epsilon: bound.provable,
        confidence: settings.confidence,
        trials: settings.trials,
        randomness: settings.randomness,
        pair: results[at % results.len()].pair,
        pairs: results
            .iter()
            .map(|finding| PairReport {
                name: finding.pair,
                epsilon_lower_bound: finding.report.epsilon_lower_bound,
                transcript_epsilon_lower_bound: finding.transcript.epsilon_lower_bound,
            })
            .collect(),
        verdict: AuditVerdict::Consistent,
        attempts_p_value: attempts.as_ref().map(|attempts| attempts.p_value),
        attempts,
        finding: String::new(),
        seed: settings.seed,
        seconds: 0.0,
    };
    judge(&mut report);
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn judge(report: &mut AuditReport) {
    // The claim of a pure mechanism is ε plus the slack of its generator (docs/mechanisms.md).
    let claim = match report.mechanism.is_pure() {
        true => report.true_epsilon.unwrap_or(report.epsilon),
        false => report.epsilon,
    };
    let attempts_depend_on_row = report
        .attempts
        .as_ref()
        .is_some_and(|attempts| attempts.verdict == AttemptsVerdict::DependsOnTheRow);
    if report.epsilon_lower_bound > claim || attempts_depend_on_row {
        report.verdict = AuditVerdict::Refuted;
    }
    report.finding = finding(report, claim);
}

struct PairResult {
    pair: PairKind,
    /// From the report, by the audit's method.
    report: Bound,
    /// From the report, black box.
    event: Bound,
    /// From the transcript, black box.
    transcript: Bound,
    attempts: [Vec<u64>; 2],
}

/// One test trial: the statistics of report and transcript, and the attempts.
type Trial = (f64, f64, u64);

fn try_pair(
    settings: &AuditSettings,
    pair: PairKind,
    method: Method,
    device: &dyn Fn(&StudyParams) -> Result<Box<dyn Device>>,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<PairResult> {
    let params = settings.study(pair)?;
    let device = device(&params)?;
    let (a, b) = pair.participants(settings.dimension, settings.seed);
    let observer = Observer {
        format: ReportFormat::new(&params),
        statistic: Statistic::new(
            params.mechanism(),
            &(prepare(&params, &a)?, prepare(&params, &b)?),
        )?,
        device: &*device,
    };
    let sampling = Sampling {
        progress,
        ..Sampling::quiet(settings.trials, settings.seed)
    };
    // Each pair's random stream is independent of which other pairs run.
    let stream = 2 * pair as u64;
    let train = |participant, stream| {
        sampling.draw(
            stream + TRAINING_STREAM,
            settings.training_trials(),
            &|rng| observer.observe(participant, rng),
        )
    };
    let transcript = TranscriptStatistic::train(&train(&a, stream)?, &train(&b, stream + 1)?);
    let run_trials = |participant, stream| -> Result<Vec<Trial>> {
        sampling.draw(stream, settings.trials, &|rng| {
            let seen = observer.observe(participant, rng)?;
            Ok((seen.value, transcript.score(&seen), seen.work.attempts))
        })
    };
    let (a, b) = (run_trials(&a, stream)?, run_trials(&b, stream + 1)?);
    let samples = |value: fn(&Trial) -> f64| Samples {
        a: a.iter().map(value).collect(),
        b: b.iter().map(value).collect(),
    };
    let delta = params.budget().delta();
    let mechanism = params.mechanism();
    let confidence = if mechanism.expected_attempts().is_some() {
        1.0 - (1.0 - ATTEMPTS_SHARE) * (1.0 - settings.confidence)
    } else {
        settings.confidence
    };
    let transcript = event_bound(&samples(|trial| trial.1), delta, confidence)?;
    let reports = samples(|trial| trial.0);
    let event = event_bound(&reports, delta, confidence)?;
    let report = match method {
        Method::Event => event,
        Method::MuGdp => mu_bound(mechanism, &reports, delta, confidence)?,
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

/// An observer who reads the reports of a device and measures its work.
struct Observer<'a> {
    format: ReportFormat,
    statistic: Statistic,
    device: &'a dyn Device,
}

impl Observer<'_> {
    fn observe(&self, of: &Participant, rng: &mut ChaCha20Rng) -> Result<Observation> {
        let sent = self.device.report(of, rng)?;
        let report = decode_report(&sent.bytes, &self.format)?;
        let (value, class) = self.statistic.value_and_class(&report.payload())?;
        Ok(Observation {
            value,
            class,
            work: sent.work,
            bytes: sent.bytes,
        })
    }
}

/// The verdict in words.
fn finding(report: &AuditReport, claim: f64) -> String {
    let AuditReport {
        epsilon,
        epsilon_lower_bound: bound,
        pair,
        ..
    } = report;
    let percent = 100.0 * report.confidence;
    let from = match report.observed {
        Observed::Report => "from the report alone",
        Observed::Transcript => {
            "from the transcript: report, envelope, attempts and words of randomness together"
        }
    };
    let bound_text =
        format!("at {percent} % confidence epsilon is at least {bound:.4} (pair {pair}, {from})");
    let exceeds = *bound > claim;
    let mut text = match report.verdict {
        AuditVerdict::Consistent => {
            format!("Consistent: no observation contradicts epsilon {epsilon}; {bound_text}.")
        }
        AuditVerdict::Refuted if exceeds => {
            format!("Refuted: epsilon {epsilon} is claimed, and {bound_text}.")
        }
        AuditVerdict::Refuted => format!(
            "Refuted: the number of attempts should have the same distribution for every row, and it does not; {bound_text}."
        ),
    };
    match report.true_epsilon {
        Some(true_epsilon) if exceeds && true_epsilon >= *bound => text.push_str(&format!(
            " The noise is smaller than the claim needs: the true value is epsilon {} at delta {}.",
            format_epsilon(true_epsilon, 4),
            format_delta(report.delta)
        )),
        _ if report.verdict == AuditVerdict::Refuted => text.push_str(
            " The analysis rules this out, so the implementation does not do what it claims: do not use it.",
        ),
        Some(true_epsilon) if true_epsilon > epsilon * 1.000_01 => text.push_str(&format!(
            " But by analysis the claim is too small: the true value is epsilon {} at delta {}.",
            format_epsilon(true_epsilon, 4),
            format_delta(report.delta)
        )),
        _ => {}
    }
    if report.max_provable_epsilon < *epsilon {
        text.push_str(&format!(
            " {} trials cannot refute a claim above {:.2}: give more trials.",
            report.trials, report.max_provable_epsilon
        ));
    }
    if let Some(AttemptsTest {
        verdict: AttemptsVerdict::DependsOnTheRow,
        p_value,
        pair,
        ..
    }) = &report.attempts
    {
        text.push_str(&format!(
            " The number of attempts depends on the row (pair {pair}, p = {p_value:.1e}): the time that a device takes reveals something about its data."
        ));
    }
    text
}
