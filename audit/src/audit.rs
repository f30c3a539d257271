//! The audit of one mechanism: which rows, which bound, what is said about it.

use std::time::Instant;

use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::{Calibration, MechanismKind, MechanismSpec},
    preprocess::{BoundedRow, Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};
use serde::Serialize;

use crate::{
    Bound, PairKind, Released, Sampling, TriesTest, TriesVerdict, bounds::check_gaussian,
    event_bound, mu_bound, observe, tries_test,
};

/// Confidence of every bound, over the whole set of pairs.
pub const CONFIDENCE: f64 = 0.95;

/// Fewest trials a row: with fewer, no event proves an ε of 5.
pub const MIN_TRIALS: usize = 1_000;

/// Most trials a row: what is observed of one pair is held in memory, 16 bytes a trial and as much again
/// while it is sorted.
pub const MAX_TRIALS: usize = 20_000_000;

/// Most draws of each row in the test of the tries: plenty for it.
const MAX_TRIES_TRIALS: usize = 200_000;

/// Stream of the first draw of the tries, beyond those of the pairs.
const TRIES_STREAM: u64 = 1_000;

/// Length of the short row in the test of the tries.
const SHORT: f64 = 0.5;

/// How the bound is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Black box: [`event_bound`].
    Event,
    /// Takes the Gaussian shape on trust: [`mu_bound`].
    MuGdp,
}

impl Method {
    /// The tightest method whose assumptions this mechanism meets by construction.
    pub fn of(spec: &MechanismSpec) -> Self {
        match spec {
            MechanismSpec::SymmetricGaussian(_) | MechanismSpec::IsotropicGaussian(_) => {
                Self::MuGdp
            }
            MechanismSpec::DoubleCap(_) => Self::Event,
            // Whoever adds a mechanism and proves that it is Gaussian says so above.
            _ => Self::Event,
        }
    }

    /// The name as written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::MuGdp => "mu-gdp",
        }
    }

    /// Whether the bound assumes a law of the noise.
    pub const fn is_model_based(self) -> bool {
        matches!(self, Self::MuGdp)
    }
}

impl std::str::FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Event, Self::MuGdp]
            .into_iter()
            .find(|method| method.as_str() == text)
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::InvalidRequest,
                    format!("there is no method {text:?}; it is event or mu-gdp"),
                )
            })
    }
}

/// What to audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditSettings {
    /// The mechanism.
    pub mechanism: MechanismKind,
    /// How its noise is chosen.
    pub calibration: Calibration,
    /// Dimension p of a row.
    pub dimension: usize,
    /// What is claimed.
    pub budget: Budget,
    /// Trials under each row of each pair, [`MIN_TRIALS`] to [`MAX_TRIALS`].
    pub trials: usize,
    /// The same seed gives the same numbers.
    pub seed: u64,
    /// Pairs to try; none means all.
    pub pairs: Vec<PairKind>,
    /// The bound; none means [`Method::of`] the mechanism.
    pub method: Option<Method>,
}

impl AuditSettings {
    /// Each once, in one order, whatever was asked for.
    fn pairs(&self) -> Vec<PairKind> {
        let mut pairs = PairKind::ALL.to_vec();
        pairs.retain(|pair| self.pairs.is_empty() || self.pairs.contains(pair));
        pairs
    }

    fn tries_trials(&self) -> usize {
        self.trials.min(MAX_TRIES_TRIALS)
    }

    /// Draws the whole audit makes, for a progress bar.
    pub fn draws(&self) -> u64 {
        let of_pairs = 2 * self.pairs().len() * self.trials;
        let of_tries = if self.mechanism == MechanismKind::DoubleCap {
            3 * self.tries_trials()
        } else {
            0
        };
        (of_pairs + of_tries) as u64
    }
}

/// Whether the outputs are compatible with the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The lower bound does not exceed the claim. This proves nothing beyond the bound.
    Consistent,
    /// The lower bound exceeds the claim.
    Convicted,
}

/// What one pair shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairReport {
    /// The pair.
    pub name: PairKind,
    /// Its bound by the audit's method, valid for this pair alone.
    pub epsilon_lower_bound: f64,
}

/// Result of [`audit`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// The mechanism.
    pub mechanism: MechanismKind,
    /// How its noise is chosen, where there is a choice.
    pub calibration: Option<Calibration>,
    /// Dimension of a row.
    pub p: usize,
    /// ε claimed.
    pub epsilon: f64,
    /// δ claimed.
    pub delta: f64,
    /// ε that really holds at this δ, by analysis.
    pub true_epsilon: Option<f64>,
    /// No ε below this fits the outputs, at [`AuditReport::confidence`] over all pairs.
    pub epsilon_lower_bound: f64,
    /// The bound.
    pub method: Method,
    /// Whether it takes the shape of the noise on trust.
    pub model_based: bool,
    /// The black-box bound on the same outputs, for which nothing is assumed.
    pub event_epsilon_lower_bound: f64,
    /// Largest bound that this many trials can give: a claim above it cannot be refuted by them.
    pub epsilon_provable: f64,
    /// Confidence of the bound.
    pub confidence: f64,
    /// Trials under each row of each pair; half of them choose the event, half judge it.
    pub trials: usize,
    /// The pair whose bound is reported, chosen on the first half.
    pub pair: PairKind,
    /// Every pair's bound.
    pub pairs: Vec<PairReport>,
    /// Bound against claim.
    pub verdict: Verdict,
    /// p-value of the test that the tries have one law, for mechanisms that try.
    pub tries_p_value: Option<f64>,
    /// That test, over a unit row, one of length ½ and the zero row.
    pub tries: Option<TriesTest>,
    /// The verdict in words.
    pub finding: String,
    /// Seed.
    pub seed: u64,
    /// Time taken.
    pub seconds: f64,
}

/// Audits a mechanism as devices run it: reports of chosen pairs of rows, perturbed, encoded and decoded by
/// the public path, and a lower bound on ε from them at [`CONFIDENCE`].
///
/// ```
/// use eigenveil_audit::{AuditSettings, Verdict, audit};
/// use eigenveil_shared::{mechanism::MechanismKind, privacy::Budget};
/// let report = audit(
///     &AuditSettings {
///         mechanism: MechanismKind::DoubleCap,
///         calibration: Default::default(),
///         dimension: 8,
///         budget: Budget::pure(1.0)?,
///         trials: 2_000,
///         seed: 1,
///         pairs: vec![],
///         method: None,
///     },
///     &|_| (),
/// )?;
/// assert_eq!(report.verdict, Verdict::Consistent);
/// assert!(report.epsilon_lower_bound > 0.3);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Errors
/// `invalid-dimension`, `invalid-budget`, `invalid-mechanism` for a study that cannot be, or a method that
/// does not fit the mechanism; `invalid-request` for trials out of range.
pub fn audit(settings: &AuditSettings, progress: &(dyn Fn(u64) + Sync)) -> Result<AuditReport> {
    if !(MIN_TRIALS..=MAX_TRIALS).contains(&settings.trials) {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} trials; an audit takes {MIN_TRIALS} to {MAX_TRIALS} under each row",
                settings.trials
            ),
        ));
    }
    let params = study(
        settings.mechanism,
        settings.calibration,
        settings.dimension,
        settings.budget,
    )?;
    let spec = params.mechanism();
    let method = settings.method.unwrap_or_else(|| Method::of(spec));
    if method.is_model_based() {
        check_gaussian(spec)?;
    }
    let started = Instant::now();
    let delta = settings.budget.delta();
    let sampling = Sampling {
        progress,
        ..Sampling::quiet(settings.trials, settings.seed)
    };
    let (mut bounds, mut events) = (Vec::new(), Vec::new());
    let pairs = settings.pairs();
    for &kind in &pairs {
        let rows = kind.rows(&params, settings.seed)?;
        // A pair's numbers do not depend on which others are tried.
        let samples = observe(&Released::new(&params, &rows)?, kind as u64, &sampling)?;
        let event = event_bound(&samples, delta, CONFIDENCE)?;
        events.push(event);
        bounds.push(match method {
            Method::Event => event,
            Method::MuGdp => mu_bound(spec, &samples, delta, CONFIDENCE)?,
        });
    }
    let no_pair = || Error::new(ErrorCode::InvalidRequest, "no pair of rows to audit");
    let worst = Bound::worst(&bounds).ok_or_else(no_pair)?;
    let worst_event = Bound::worst(&events).ok_or_else(no_pair)?;
    let tries = tries_of(&params, settings, &sampling)?;
    let mut report = AuditReport {
        mechanism: spec.kind(),
        calibration: spec.calibration(),
        p: settings.dimension,
        epsilon: settings.budget.epsilon(),
        delta,
        true_epsilon: spec.true_epsilon(delta),
        epsilon_lower_bound: bounds[worst].epsilon_lower_bound,
        method,
        model_based: method.is_model_based(),
        event_epsilon_lower_bound: events[worst_event].epsilon_lower_bound,
        epsilon_provable: bounds[worst].provable,
        confidence: CONFIDENCE,
        trials: settings.trials,
        pair: pairs[worst],
        pairs: pairs
            .iter()
            .zip(&bounds)
            .map(|(&name, bound)| PairReport {
                name,
                epsilon_lower_bound: bound.epsilon_lower_bound,
            })
            .collect(),
        verdict: Verdict::Consistent,
        tries_p_value: tries.as_ref().map(|tries| tries.p_value),
        tries,
        finding: String::new(),
        seed: settings.seed,
        seconds: 0.0,
    };
    // A pure mechanism claims ε plus the slack of its generator (docs/mechanisms.md).
    let claim = match spec {
        MechanismSpec::DoubleCap(_) => report.true_epsilon.unwrap_or(report.epsilon),
        _ => report.epsilon,
    };
    if report.epsilon_lower_bound > claim {
        report.verdict = Verdict::Convicted;
    }
    report.finding = finding(&report);
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// A study of rows in the unit ball as they are.
pub(crate) fn study(
    mechanism: MechanismKind,
    calibration: Calibration,
    dimension: usize,
    budget: Budget,
) -> Result<StudyParams> {
    StudyParams::freeze(StudyDesign {
        dimension,
        features: None,
        norm: Norm::Clip { radius: 1.0 },
        centring: None,
        mechanism,
        calibration,
        budget,
    })
}

/// The test of the tries, for a mechanism that tries.
fn tries_of(
    params: &StudyParams,
    settings: &AuditSettings,
    sampling: &Sampling<'_>,
) -> Result<Option<TriesTest>> {
    let MechanismSpec::DoubleCap(cap) = params.mechanism() else {
        return Ok(None);
    };
    let mut short = vec![0.0; params.dimension()];
    short[0] = SHORT;
    let (unit, zero) = PairKind::UnitZero.rows(params, settings.seed)?;
    let rows: [BoundedRow; 3] = [unit, params.preprocessor().prepare(&Row::new(short))?, zero];
    let sampling = Sampling {
        trials: settings.tries_trials(),
        ..*sampling
    };
    let count = |row: usize, rng: &mut _| Ok(cap.draw_with(&rows[row], rng).1);
    tries_test(&count, rows.len(), TRIES_STREAM, &sampling).map(Some)
}

fn finding(report: &AuditReport) -> String {
    let AuditReport {
        epsilon,
        epsilon_lower_bound: bound,
        pair,
        ..
    } = report;
    let percent = 100.0 * report.confidence;
    let mut text = match report.verdict {
        Verdict::Consistent => format!(
            "Consistent: nothing seen contradicts epsilon {epsilon}; at {percent} % confidence epsilon is at least {bound:.4} (pair {pair})."
        ),
        Verdict::Convicted => format!(
            "Convicted: epsilon {epsilon} is claimed, and at {percent} % confidence it is at least {bound:.4} (pair {pair})."
        ),
    };
    match (report.verdict, report.true_epsilon) {
        (Verdict::Convicted, Some(really)) if really >= *bound => {
            text.push_str(&format!(
                " The noise is smaller than the claim needs: what really holds is epsilon {really:.4} at delta {:e}.",
                report.delta
            ));
        }
        (Verdict::Convicted, _) => text.push_str(
            " The analysis of this noise allows no such thing: the implementation does not do what it says, do not use it.",
        ),
        (Verdict::Consistent, Some(really)) if really > epsilon * 1.000_01 => {
            text.push_str(&format!(
                " Yet the claim is too small by analysis: what really holds is epsilon {really:.4} at delta {:e}.",
                report.delta
            ));
        }
        (Verdict::Consistent, _) => {}
    }
    if report.epsilon_provable < *epsilon {
        text.push_str(&format!(
            " {} trials cannot refute a claim above {:.2}: give more.",
            report.trials, report.epsilon_provable
        ));
    }
    if let Some(TriesTest {
        verdict: TriesVerdict::DependsOnTheRow,
        p_value,
        ..
    }) = &report.tries
    {
        text.push_str(&format!(
            " The number of tries depends on the row (p = {p_value:.1e}): the time a device takes tells about its data."
        ));
    }
    text
}
