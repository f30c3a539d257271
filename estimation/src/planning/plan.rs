//! The use case of planning: a plan for every mechanism and ε.

use std::num::NonZeroU64;

use eigenveil_shared::{
    Error, Result,
    codec::report_len,
    estimate::Estimate,
    mechanism::{
        Calibration, MAX_DENSE_DIMENSION, MechanismKind, NoiseModel, table::MAX_TABLE_ROWS,
    },
    preprocess::{BoundRows, Preprocessing},
    privacy::{PrivacyStatement, budget_warnings},
    site_study::{
        DEFAULT_SITE_MECHANISM, SiteStudyDesign, SiteStudyParams, SiteTerms, SiteWeights,
    },
    study::{StudyDesign, StudyParams},
    word,
};
use serde::{Deserialize, Serialize};

use super::{
    tables::Tables,
    target::{
        PlanResult, PlanTarget, assumed_of_pilot, check_total, meet, pilot_mean_length, reject,
        spectrum_from_eigenvalues, spectrum_from_pilot,
    },
};
use crate::{
    Cancel,
    centring::planned_noise,
    floor::{ExpectedError, Resolution, SpectrumRange, resolution},
};

/// Components planned for where nothing says how many.
pub const DEFAULT_COMPONENTS: usize = 3;
/// Each request that is complete; what is missing from one may be several things.
const COMPLETE_REQUESTS: &str = "a plan needs `p`, the dimension, and `n`, the participants expected: it then says how small a component they can show. For an error, add `k` and `spectrum`, or give `pilot` in place of `p`; then `target_error` may stand in place of `n`";
/// Expected attempts × coordinates from which a report is called slow: a few milliseconds on one core.
const SLOW_ATTEMPTS_TIMES_P: f64 = 200_000.0;
/// Most sites of equal size in a plan.
const MAX_PLANNED_SITES: u64 = 1_000_000;

/// A request for a plan for `n` or for `target_error`, from a spectrum or a pilot; with neither of these, the plan
/// gives the smallest components that `n` participants can show.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// Dimension of the rows.
    pub p: Option<usize>,
    /// Components wanted; `None`: all of the pilot's, or 3.
    pub k: Option<usize>,
    /// ε of one report.
    pub epsilon: Vec<f64>,
    /// δ of the (ε, δ) mechanisms.
    pub delta: Option<f64>,
    /// Mechanisms to compare; empty: all.
    #[serde(default)]
    pub mechanism: Vec<MechanismKind>,
    /// Whether the published noise of symmetric-gaussian is compared too.
    #[serde(default, deserialize_with = "word")]
    pub calibration: Calibration,
    /// The k leading eigenvalues of `E[xxᵀ]` of prepared rows, or more; errors have a range for the others.
    #[serde(default)]
    pub spectrum: Vec<f64>,
    /// Target error ‖V̂V̂ᵀ−VVᵀ‖_F.
    pub target_error: Option<f64>,
    /// Participants expected.
    #[serde(default)]
    pub n: Vec<NonZeroU64>,
    /// How rows are brought into the unit ball.
    pub bound_rows: Option<BoundRows>,
    /// Mean squared length of the prepared rows, where their lengths differ.
    pub mean_squared_length: Option<f64>,
    /// Constant of private centring; the spectrum is then that of the covariance.
    pub centring: Option<f64>,
    /// ‖E x‖ of the prepared rows, for private centring.
    pub mean_length: Option<f64>,
    /// Sites among which rows are divided evenly, each with one report of its table: beside them the plan has one site
    /// with all rows (a curator), and each row's own report.
    #[serde(default)]
    pub sites: Option<NonZeroU64>,
    /// Rows of all sites together.
    #[serde(default)]
    pub rows: Vec<NonZeroU64>,
    /// Rows of each site, in place of `sites` and `rows`; with `target_error` their proportions.
    #[serde(default)]
    pub site_rows: Vec<NonZeroU64>,
    /// How the sites are weighed.
    #[serde(default, deserialize_with = "word")]
    pub site_weights: SiteWeights,
}

/// A plan. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PlanAnswer {
    /// Expected errors, for a given spectrum.
    Errors(ErrorPlan),
    /// Resolution of each number of participants, without a spectrum.
    Sizes(SizePlan),
}

/// Expected errors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorPlan {
    /// Every mechanism with every ε and number of participants.
    pub rows: Vec<PlanRow>,
    /// Dimension of the rows.
    pub p: usize,
    /// Components.
    pub k: usize,
    /// The target error, if one was requested.
    pub target_error: Option<f64>,
    /// Assumptions and omissions of the plan.
    pub notes: Vec<String>,
    /// For the chart.
    #[serde(skip)]
    pub spectrum: Box<SpectrumRange>,
}

/// A plan by resolution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizePlan {
    /// Every mechanism with every ε and number of participants.
    pub rows: Vec<SizeRow>,
    /// Dimension of the rows.
    pub p: usize,
    /// Components.
    pub k: usize,
    /// Share of an average direction, 1/p.
    pub average: f64,
    /// Total variance of the prepared rows: what the sizes are shares of.
    pub total_variance: f64,
    /// Assumptions and omissions of the plan.
    pub notes: Vec<String>,
}

/// A mechanism with an ε.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSetting {
    /// The mechanism.
    pub mechanism: MechanismKind,
    /// ε of one report.
    pub epsilon: f64,
    /// δ of one report.
    pub delta: f64,
    /// How the noise is chosen, where there is a choice.
    pub calibration: Option<Calibration>,
    /// ε that holds at this δ.
    pub true_epsilon: Option<f64>,
    /// Whether the claim holds.
    pub claim_holds: bool,
    /// Sites, each of which reports its table; absent where each report is of one row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<u64>,
    /// The noise of a report, for the chart.
    #[serde(skip)]
    pub noise: NoiseModel,
    /// The tables of the sites, for the chart.
    #[serde(skip)]
    pub tables: Option<Tables>,
}

impl PlanSetting {
    /// The error to expect with `n` participants, or rows of all sites.
    ///
    /// # Errors
    /// Those of [`SpectrumRange::error`].
    pub fn error(&self, spectrum: &SpectrumRange, n: u64) -> Result<ExpectedError> {
        match &self.tables {
            None => spectrum.error(&self.noise, n as f64),
            Some(tables) => tables.error(spectrum, n),
        }
    }

    /// The resolution with `n` participants, or rows of all sites, for rows of dimension p and this total variance.
    ///
    /// # Errors
    /// Those of [`resolution`].
    pub fn resolution(&self, rows: (usize, f64), n: u64, k: usize) -> Result<Resolution> {
        match &self.tables {
            None => resolution(&self.noise, rows, n as f64, k),
            Some(tables) => {
                let (noise, n_eff) = tables.noise_of(n);
                resolution(&noise, rows, n_eff, k)
            }
        }
    }

    fn meet(&self, spectrum: &SpectrumRange, target: PlanTarget) -> Result<PlanResult> {
        match &self.tables {
            None => meet(spectrum, &self.noise, target),
            Some(tables) => tables.meet(spectrum, target),
        }
    }
}

/// An expected error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRow {
    /// Mechanism and ε.
    #[serde(flatten)]
    pub setting: PlanSetting,
    /// A sufficient number of participants, by the cautious end of the range; `null` if possibly no number is
    /// sufficient.
    pub n: Option<u64>,
    /// Necessary number of participants: fewer cannot suffice; where there is a range and a target error.
    pub n_at_least: Option<u64>,
    /// Expected error with `n` participants; with a part of the eigenvalues its range's upper end.
    pub error: Option<f64>,
    /// Its range, unless the whole spectrum is known.
    pub error_range: Option<(f64, f64)>,
    /// Bytes of one report.
    pub report_bytes: usize,
    /// Components expected above the noise floor, of k.
    pub components_above_floor: Option<usize>,
    /// Why there is no number.
    pub reason: Option<String>,
    /// Expected attempts of one report on its device; double-cap only.
    pub expected_attempts: Option<f64>,
}

/// The smallest differences that show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeRow {
    /// Mechanism and ε.
    #[serde(flatten)]
    pub setting: PlanSetting,
    /// Participants.
    pub n: u64,
    /// Share of the variance that a direction must have above an average one to show in at most half of all studies;
    /// with twice as much it nearly always does. `null` where none can.
    pub visible: Option<f64>,
    /// By how much the shares of components k and k + 1 must differ to be told apart.
    pub separable: Option<f64>,
}

/// Plans a study; also returns warnings about the budget.
///
/// # Errors
/// `invalid-request` unless there is exactly one target, or if a spectrum, a pilot or settings do not fit together;
/// those of [`StudyParams::freeze`]; `estimate-failed` when it was cancelled.
pub fn plan(
    request: &PlanRequest,
    pilot: Option<&Estimate>,
    cancel: Cancel<'_>,
) -> Result<(PlanAnswer, Vec<String>)> {
    request.check(pilot.is_some())?;
    let answer = match pilot {
        None if request.spectrum.is_empty() => PlanAnswer::Sizes(sizes(request, cancel)?),
        _ => PlanAnswer::Errors(errors(request, pilot, cancel)?),
    };
    let settings: Vec<(&PlanSetting, Option<u64>)> = match &answer {
        PlanAnswer::Errors(plan) => plan.rows.iter().map(|row| (&row.setting, row.n)).collect(),
        PlanAnswer::Sizes(plan) => plan
            .rows
            .iter()
            .map(|row| (&row.setting, Some(row.n)))
            .collect(),
    };
    // The worst of all settings and numbers of participants.
    let epsilon = settings.iter().map(|(setting, _)| setting.epsilon);
    let delta = settings.iter().map(|(setting, _)| setting.delta);
    let with_delta = settings.iter().filter(|(setting, _)| setting.delta > 0.0);
    let n = with_delta.filter_map(|(_, n)| *n).max();
    let warnings = budget_warnings(
        epsilon.fold(0.0, f64::max),
        delta.fold(0.0, f64::max),
        n.unwrap_or(1),
    );
    Ok((answer, warnings))
}

/// A note if one report takes noticeably long.
pub fn slow_report_note(params: &StudyParams) -> Option<String> {
    let attempts = params.mechanism().expected_attempts()?;
    let p = params.report_dimension();
    (attempts * (p as f64) >= SLOW_ATTEMPTS_TIMES_P).then(|| {
        format!("one report takes {attempts:.0} attempts of {p} numbers on average; a smaller epsilon takes fewer")
    })
}

fn errors(
    request: &PlanRequest,
    pilot: Option<&Estimate>,
    cancel: Cancel<'_>,
) -> Result<ErrorPlan> {
    let Population {
        spectrum,
        preprocessing,
        mean_length,
        mut notes,
    } = match pilot {
        Some(pilot) => request.population_of(pilot)?,
        None => request.population()?,
    };
    let mut total_variance = spectrum.central.total();
    if pilot.is_some() {
        // An estimate may by chance exceed what prepared rows can have.
        let rest = 1.0 - mean_length * mean_length;
        total_variance = total_variance.clamp(0.0, rest.max(0.0));
    }
    let noise = |params: &StudyParams| {
        // The pilot's measured noise, if its reports are the same.
        let of_rows = |pilot: &&Estimate| {
            pilot
                .params
                .rows()
                .is_ok_and(|own| same_reports(params, own))
        };
        let same = pilot.filter(of_rows);
        match same.and_then(|pilot| pilot.spectrum.as_ref()) {
            Some(measured) => Ok(measured.noise),
            None => planned_noise(params, total_variance, mean_length),
        }
    };
    let mut settings = request.settings(&preprocessing, noise, &mut notes)?;
    settings.extend(request.settings_of_sites(&preprocessing, (total_variance, mean_length))?);
    let participants = request.numbers().map(PlanTarget::Participants);
    let targets: Vec<PlanTarget> = match request.target_error {
        Some(target) => vec![PlanTarget::Error(target)],
        None => participants.collect(),
    };
    let has_range = !spectrum.is_known();
    let range = |error: ExpectedError| (error.low, error.high);
    let mut rows = Vec::new();
    for setting in settings {
        let PlannedSetting {
            setting,
            report_bytes,
            expected_attempts,
        } = setting;
        for &target in &targets {
            cancel.check()?;
            let planned = setting.meet(&spectrum, target)?;
            rows.push(PlanRow {
                setting: setting.clone(),
                n: planned.n,
                n_at_least: planned
                    .participants
                    .filter(|_| has_range)
                    .and_then(|n| n.low),
                error: planned.error.map(|error| error.central),
                error_range: planned.error.filter(|_| has_range).map(range),
                report_bytes,
                components_above_floor: planned.components_above,
                reason: planned.reason,
                expected_attempts,
            });
        }
    }
    Ok(ErrorPlan {
        rows,
        p: preprocessing.dimension,
        k: spectrum.central.rank(),
        target_error: request.target_error,
        notes,
        spectrum: Box::new(spectrum),
    })
}

fn sizes(request: &PlanRequest, cancel: Cancel<'_>) -> Result<SizePlan> {
    let Some(p) = request.p else {
        return reject(COMPLETE_REQUESTS);
    };
    if let Some(target) = request.target_error {
        return reject(format!(
            "`target_error` is {target}, but an error depends on the participants' spectrum: give that of a pilot (`pilot`) or of public data (`spectrum`); `n` without either gives what that many participants can show"
        ));
    }
    let k = request
        .k
        .unwrap_or(DEFAULT_COMPONENTS.min(p.saturating_sub(1)));
    let Some(total_variance) = request.total_variance()? else {
        return reject(
            "what shows is a share of the rows' variance: give the mean squared length of the prepared rows (`mean_squared_length`), or `bound_rows` normalize, which makes it 1",
        );
    };
    let mean_length = request.mean_length.unwrap_or(0.0);
    let noise = |params: &StudyParams| planned_noise(params, total_variance, mean_length);
    let mut notes = Vec::new();
    let preprocessing = request.preprocessing(p);
    let mut settings = request.settings(&preprocessing, noise, &mut notes)?;
    settings.extend(request.settings_of_sites(&preprocessing, (total_variance, mean_length))?);
    let mut rows = Vec::new();
    for PlannedSetting { setting, .. } in settings {
        for n in request.numbers() {
            cancel.check()?;
            let resolved = setting.resolution((p, total_variance), n, k)?;
            rows.push(SizeRow {
                setting: setting.clone(),
                n,
                visible: resolved.visible,
                separable: resolved.separable,
            });
        }
    }
    Ok(SizePlan {
        rows,
        p,
        k,
        average: 1.0 / p as f64,
        total_variance,
        notes,
    })
}

/// A setting with what its reports take.
struct PlannedSetting {
    setting: PlanSetting,
    report_bytes: usize,
    expected_attempts: Option<f64>,
}

struct Population {
    spectrum: SpectrumRange,
    /// How the rows are prepared. For a sparse pilot, their dimension is larger than that of the spectrum.
    preprocessing: Preprocessing,
    /// ‖E x‖, for private centring.
    mean_length: f64,
    notes: Vec<String>,
}

impl PlanRequest {
    fn check(&self, has_pilot: bool) -> Result<()> {
        let has_population = has_pilot || self.p.is_some();
        self.check_sites()?;
        match (self.target_error, self.numbers().next().is_none()) {
            (Some(_), false) => return reject("give `n` or `target_error`, not both"),
            (None, true) => return reject(COMPLETE_REQUESTS),
            _ if !has_population => return reject(COMPLETE_REQUESTS),
            _ => {}
        }
        let of_pilot = [
            ("spectrum", has_pilot && !self.spectrum.is_empty()),
            ("bound_rows", has_pilot && self.bound_rows.is_some()),
            ("centring", has_pilot && self.centring.is_some()),
        ];
        Error::reject_if_given(&of_pilot, "it is that of the pilot")?;
        match self.centring.is_some() == self.mean_length.is_some() {
            true => Ok(()),
            false => reject("`centring` and `mean_length` need each other; give both or neither"),
        }
    }

    fn preprocessing(&self, p: usize) -> Preprocessing {
        let norm = self.bound_rows.unwrap_or_default().with_radius(1.0);
        Preprocessing {
            centring: self.centring,
            ..Preprocessing::new(p, norm)
        }
    }

    /// Every mechanism with every ε, for rows prepared as `preprocessing` says.
    fn settings(
        &self,
        preprocessing: &Preprocessing,
        noise: impl Fn(&StudyParams) -> Result<NoiseModel>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<PlannedSetting>> {
        let p = preprocessing.dimension;
        let mut settings = Vec::new();
        for (mechanism, calibration) in self.mechanisms(p, notes)? {
            // The requested δ is for the (ε, δ) mechanisms only.
            let delta = (!mechanism.is_pure()).then_some(self.delta).flatten();
            for &epsilon in &self.epsilon {
                let params = StudyParams::freeze(StudyDesign {
                    norm: preprocessing.norm,
                    centring: preprocessing.centring,
                    features: preprocessing.features.clone(),
                    weights: preprocessing.weights,
                    calibration,
                    ..StudyDesign::new(mechanism, p, mechanism.budget(epsilon, delta)?)
                })?;
                let slow = slow_report_note(&params);
                notes.extend(slow.map(|slow| format!("{mechanism} at epsilon {epsilon}: {slow}.")));
                let privacy = PrivacyStatement::new(&params);
                let setting = PlanSetting {
                    mechanism,
                    epsilon,
                    delta: privacy.delta,
                    calibration: privacy.calibration,
                    true_epsilon: privacy.true_epsilon,
                    claim_holds: privacy.claim_holds,
                    sites: None,
                    noise: noise(&params)?,
                    tables: None,
                };
                settings.push(PlannedSetting {
                    setting,
                    report_bytes: report_len(params.payload_len()),
                    expected_attempts: params.mechanism().expected_attempts(),
                });
            }
        }
        Ok(settings)
    }

    /// The mechanisms to compare; unless they were named, those for which p is too large are left out.
    fn mechanisms(
        &self,
        p: usize,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(MechanismKind, Calibration)>> {
        let named = !self.mechanism.is_empty();
        let mut kinds = match named {
            true => self.mechanism.clone(),
            // Beside sites, one of each guarantee.
            false if self.has_sites() => {
                vec![MechanismKind::DoubleCap, MechanismKind::IsotropicGaussian]
            }
            false => MechanismKind::ALL.to_vec(),
        };
        if !named && p > MAX_DENSE_DIMENSION {
            kinds.retain(|kind| kind.max_dimension() > MAX_DENSE_DIMENSION);
            notes.push(format!(
                "p = {p} is above {MAX_DENSE_DIMENSION}, the largest p of the Gaussian mechanisms: they are left out."
            ));
        }
        let unused = !self.has_sites() && kinds.iter().all(|kind| kind.is_pure());
        if self.delta.is_some_and(|delta| delta != 0.0) && unused {
            return reject(
                "`delta` is given, but the delta of double-cap is always 0; leave `delta` out",
            );
        }
        let mut all = Vec::new();
        for kind in kinds {
            if !all.contains(&(kind, Calibration::Analytic)) {
                all.push((kind, Calibration::Analytic));
            }
        }
        if self.calibration == Calibration::AsPublished {
            let published = MechanismKind::SymmetricGaussian;
            let Some(place) = all.iter().position(|(kind, _)| *kind == published) else {
                return reject(
                    "`calibration` as-published is for symmetric-gaussian, which is not among the mechanisms; add it to `mechanism`, or leave `calibration` out",
                );
            };
            all.insert(place + 1, (published, Calibration::AsPublished));
        }
        Ok(all)
    }

    fn has_sites(&self) -> bool {
        self.sites.is_some() || !self.site_rows.is_empty()
    }

    /// Numbers of participants, or of rows of all sites, to plan for; none with a target error.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let of_each: u64 = self
            .site_rows
            .iter()
            .map(|rows| rows.get())
            .fold(0, u64::saturating_add);
        let by_list = (of_each > 0 && self.target_error.is_none()).then_some(of_each);
        let numbers = self.n.iter().chain(&self.rows).map(|n| n.get());
        numbers.chain(by_list)
    }

    fn check_sites(&self) -> Result<()> {
        let (list, even) = (!self.site_rows.is_empty(), self.sites.is_some());
        let beside_list = [
            ("sites", list && even),
            ("rows", list && !self.rows.is_empty()),
        ];
        Error::reject_if_given(&beside_list, "`site_rows` has the rows of each site")?;
        if !self.rows.is_empty() && !self.has_sites() {
            return reject(
                "`rows` are those of all sites together: give `sites`, their number, too",
            );
        }
        if self.has_sites() && !self.n.is_empty() {
            return reject(
                "`n` is of participants with one row each: give `rows` with `sites`, or `site_rows` alone",
            );
        }
        if self.sites.is_some() && self.rows.is_empty() && self.target_error.is_none() {
            return reject("`sites` needs `rows`, those of all sites together, or `target_error`");
        }
        if !self.rows.is_empty() && self.target_error.is_some() {
            return reject("give `rows` or `target_error`, not both");
        }
        if !self.has_sites() && self.site_weights != SiteWeights::default() {
            return reject(
                "`site_weights` are of sites: give `sites` or `site_rows`, or leave it out",
            );
        }
        match self.sites {
            Some(sites) if sites.get() > MAX_PLANNED_SITES => reject(format!(
                "`sites` is {sites}; a plan takes up to {MAX_PLANNED_SITES}"
            )),
            Some(sites) => match self.rows.iter().find(|rows| **rows < sites) {
                Some(rows) => reject(format!(
                    "`sites` is {sites}; {rows} rows make tables for 1 to {rows} sites"
                )),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// The sites with every ε, and one site with all rows, for rows prepared as `preprocessing` says.
    fn settings_of_sites(
        &self,
        preprocessing: &Preprocessing,
        rows: (f64, f64),
    ) -> Result<Vec<PlannedSetting>> {
        if !self.has_sites() {
            return Ok(Vec::new());
        }
        let sizes: Vec<u64> = match self.sites {
            // Of equal size, whatever that is.
            Some(sites) => vec![1; sites.get() as usize],
            None => self.site_rows.iter().map(|rows| rows.get()).collect(),
        };
        let mut mechanisms: Vec<MechanismKind> = self.mechanism.clone();
        mechanisms.retain(|kind| !kind.is_pure());
        if mechanisms.is_empty() {
            mechanisms.push(DEFAULT_SITE_MECHANISM);
        }
        let mut settings = Vec::new();
        for mechanism in mechanisms {
            for &epsilon in &self.epsilon {
                let params = SiteStudyParams::freeze(SiteStudyDesign {
                    dimension: preprocessing.dimension,
                    features: preprocessing.features.clone(),
                    norm: preprocessing.norm,
                    centring: preprocessing.centring,
                    mechanism,
                    budget: mechanism.budget(epsilon, self.delta)?,
                    terms: SiteTerms {
                        site_weights: self.site_weights,
                        ..SiteTerms::new(MAX_TABLE_ROWS)
                    },
                })?;
                let several = Tables::new(&params, &sizes, rows)?;
                let curator = (sizes.len() > 1).then(|| Tables::new(&params, &[1], rows));
                for tables in std::iter::once(Ok(several)).chain(curator) {
                    settings.push(planned_tables(&params, tables?));
                }
            }
        }
        Ok(settings)
    }

    /// Total variance of the prepared rows, after division by the radius; `None` if it is not known.
    fn total_variance(&self) -> Result<Option<f64>> {
        let bound_rows = self.bound_rows.unwrap_or_default();
        let total = match (bound_rows, self.mean_squared_length) {
            (BoundRows::Normalize, None) => Some(1.0),
            (BoundRows::Normalize, Some(total)) => {
                return reject(format!(
                    "`mean_squared_length` is {total}, but under `bound_rows` normalize every row has length 1; leave it out, or give `bound_rows` clip or require"
                ));
            }
            (BoundRows::Clip | BoundRows::Require, total) => total,
        };
        check_total(total)?;
        match (total, self.mean_length) {
            (Some(total), Some(mean)) => without_mean(total, mean).map(Some),
            _ => Ok(total),
        }
    }

    /// The population of `spectrum`.
    fn population(&self) -> Result<Population> {
        let (Some(p), Some(k)) = (self.p, self.k) else {
            return reject("`spectrum` needs `p` and `k`");
        };
        let total = self.total_variance()?;
        let mean_length = self.mean_length.unwrap_or(0.0);
        let spectrum = spectrum_from_eigenvalues(p, k, &self.spectrum, total)?;
        let in_part = (!spectrum.is_known()).then(|| {
            format!(
                "{} of {p} eigenvalues are given: the range is from others that are all equal to others as near to component {k} as their sum and the last one given allow. More eigenvalues make it narrower.",
                self.spectrum.len()
            )
        });
        let centred = self.centring.map(|_| "Private centring: the spectrum is that of the covariance, and the components are assumed to be orthogonal to the mean; a component along the mean has more noise.".to_owned());
        Ok(Population {
            spectrum,
            preprocessing: self.preprocessing(p),
            mean_length,
            notes: in_part.into_iter().chain(centred).collect(),
        })
    }

    fn population_of(&self, pilot: &Estimate) -> Result<Population> {
        if let Some(p) = self.p.filter(|&p| p != pilot.p) {
            return reject(format!(
                "`p` is {p}, but the pilot has dimension {}; leave `p` out",
                pilot.p
            ));
        }
        if self.k.is_none() && pilot.k == 0 {
            return reject(
                "the pilot has no component: none stood above the noise floor. Give `k`, and plan for more participants: a plan with `p`, `k` and `n` alone gives what that many can show",
            );
        }
        let k = self.k.unwrap_or(pilot.k);
        let spectrum = spectrum_from_pilot(pilot, k, self.mean_squared_length)?;
        let sparse = pilot.sparse.as_ref().map(|sparse| {
            format!(
                "The pilot is sparse: the plan is for a sparse estimate of as many features ({}).",
                sparse.support.len()
            )
        });
        let assumed = assumed_of_pilot(pilot).map(str::to_owned);
        Ok(Population {
            spectrum,
            preprocessing: pilot.params.preprocessing()?.clone(),
            mean_length: pilot_mean_length(pilot),
            notes: sparse.into_iter().chain(assumed).collect(),
        })
    }
}

fn planned_tables(params: &SiteStudyParams, tables: Tables) -> PlannedSetting {
    let privacy = PrivacyStatement::of_site(params);
    PlannedSetting {
        setting: PlanSetting {
            mechanism: params.mechanism().kind(),
            epsilon: privacy.epsilon,
            delta: privacy.delta,
            calibration: None,
            true_epsilon: privacy.true_epsilon,
            claim_holds: privacy.claim_holds,
            sites: Some(tables.sites()),
            noise: params.mechanism().noise_model(),
            tables: Some(tables),
        },
        report_bytes: privacy.report_bytes,
        expected_attempts: None,
    }
}

/// The total variance: the rows' mean squared length less that of their mean.
fn without_mean(total: f64, mean_length: f64) -> Result<f64> {
    if !(mean_length >= 0.0 && mean_length * mean_length < total) {
        return reject(format!(
            "`mean_length` is {mean_length}; it must be at least 0 and below {:.4}: a longer mean would exceed the mean squared length of the prepared rows ({total})",
            total.sqrt()
        ));
    }
    Ok(total - mean_length * mean_length)
}

/// Whether two studies' reports have the same noise, on rows prepared alike.
fn same_reports(one: &StudyParams, other: &StudyParams) -> bool {
    one.mechanism() == other.mechanism() && one.preprocessing() == other.preprocessing()
}
