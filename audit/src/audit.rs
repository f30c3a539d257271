//! The audit of one mechanism: its run and its report.

use std::time::Instant;

use eigenveil_shared::{
    Error, Result,
    codec::{ReportFormat, SiteReportFormat, decode_report, decode_site_report},
    mechanism::{Calibration, MechanismKind},
    privacy::{epsilon_warning, format_delta, format_epsilon},
    site_study::SiteStudyParams,
    study::StudyParams,
};
use rand::rngs::ChaCha20Rng;
use serde::Serialize;

use crate::{
    AttemptsTest, AttemptsVerdict, AuditSettings, Bound, Device, Method, PairKind, Randomness,
    Side, SiteDevice, Statistic, Table, TableStatistic, attempts_test,
    device::prepare,
    transcript::Observation,
    trials::{ATTEMPTS_SHARE, Claim, PairResult, try_pair},
};

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
    /// Most rows of a table, in an audit of tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,
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
    let randomness = settings.randomness;
    match settings.max_rows {
        None => audit_devices(settings, &|params| randomness.device(params), progress),
        Some(_) => {
            let site = |params: &SiteStudyParams| -> Box<dyn Device<Table>> {
                Box::new(SiteDevice::new(params, randomness))
            };
            audit_sites(settings, &site, progress)
        }
    }
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
///
/// # Errors
/// Those of [`audit()`]; `invalid-request` for settings with `max_rows`.
pub fn audit_devices(
    settings: &AuditSettings,
    device: &dyn Fn(&StudyParams) -> Result<Box<dyn Device>>,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<AuditReport> {
    settings.check()?;
    let given = [("max_rows", settings.max_rows.is_some())];
    Error::reject_if_given(&given, "the devices report single rows")?;
    let claim = Claim::of_rows(settings, &settings.study(PairKind::Axes)?)?;
    audit_pairs(settings, &claim, &|pair| {
        let params = settings.study(pair)?;
        let device = device(&params)?;
        let (a, b) = pair.participants(settings.dimension, settings.seed);
        let rows = (prepare(&params, &a)?, prepare(&params, &b)?);
        let statistic = Statistic::new(params.mechanism(), &rows)?;
        let format = ReportFormat::new(&params);
        let observe = |side: Side, rng: &mut ChaCha20Rng| -> Result<Observation> {
            let sent = device.report(side.of(&a, &b), rng)?;
            let report = decode_report(&sent.bytes, &format)?;
            let (value, class) = statistic.value_and_class(&report.payload())?;
            Ok(Observation {
                value,
                class,
                work: sent.work,
                bytes: sent.bytes,
            })
        };
        try_pair(settings, &claim, pair, &observe, progress)
    })
}

/// Like [`audit`], for other sites: claim and studies come from the settings, the reports from the site.
///
/// # Errors
/// Those of [`audit()`]; `invalid-request` for settings without `max_rows`.
pub fn audit_sites(
    settings: &AuditSettings,
    site: &dyn Fn(&SiteStudyParams) -> Box<dyn Device<Table>>,
    progress: &(dyn Fn(u64) -> Result<()> + Sync),
) -> Result<AuditReport> {
    settings.check()?;
    let Some(max_rows) = settings.max_rows else {
        return Err(Error::invalid_request(
            "give `max_rows`, the most rows of a site's table",
        ));
    };
    let study = |pair| settings.site_study(pair, max_rows);
    let claim = Claim::of_tables(settings, &study(PairKind::RowReplaced)?);
    audit_pairs(settings, &claim, &|pair| {
        let params = study(pair)?;
        let site = site(&params);
        let (a, b) = pair.tables(settings.dimension, settings.seed);
        let statistic = TableStatistic::new(&params, &a, &b)?;
        let format = SiteReportFormat::new(&params);
        let observe = |side: Side, rng: &mut ChaCha20Rng| -> Result<Observation> {
            let sent = site.report(side.of(&a, &b), rng)?;
            let report = decode_site_report(&sent.bytes, &format)?;
            Ok(Observation {
                value: statistic.value(&report.payload()),
                class: None,
                work: sent.work,
                bytes: sent.bytes,
            })
        };
        try_pair(settings, &claim, pair, &observe, progress)
    })
}

/// Tries all pairs, and judges the claim by them together.
fn audit_pairs(
    settings: &AuditSettings,
    claim: &Claim,
    try_one: &dyn Fn(PairKind) -> Result<PairResult>,
) -> Result<AuditReport> {
    let started = Instant::now();
    let pairs = settings.selected_pairs().into_iter();
    let results: Vec<PairResult> = pairs.map(try_one).collect::<Result<_>>()?;
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
        true => (Observed::Report, claim.method),
        false => (Observed::Transcript, Method::Event),
    };
    let attempts = claim.tries.then(|| {
        let counts_of = |finding: &PairResult| (finding.pair, finding.attempts.clone());
        let counts: Vec<_> = results.iter().map(counts_of).collect();
        attempts_test(&counts, ATTEMPTS_SHARE * (1.0 - settings.confidence))
    });
    let attempts = attempts.flatten();
    let mut report = AuditReport {
        mechanism: claim.mechanism,
        calibration: claim.calibration,
        p: settings.dimension,
        max_rows: settings.max_rows,
        epsilon: claim.budget.epsilon(),
        delta: claim.budget.delta(),
        true_epsilon: claim.true_epsilon,
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
