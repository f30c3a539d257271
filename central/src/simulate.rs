//! Simulated studies with a known true subspace, in every combination of the given values.

use std::collections::{BTreeMap, btree_map::Entry};

use eigenveil_estimation::{
    Cancel, check_columns,
    simulate::{
        Experiment, NoisePath, RowSource, SimulateAnswer, SiteExperiment, Summary, Sweep, run,
        run_sites,
    },
};
use eigenveil_shared::{
    Error, Result,
    api::SparseSettings,
    mechanism::{Calibration, MechanismKind},
    optional_word,
    preprocess::{BoundRows, Feature, Preprocessing, Row},
    privacy::{PrivacyStatement, budget_warnings},
    site_study::{
        DEFAULT_SITE_MECHANISM, SiteStudyDesign, SiteStudyParams, SiteTerms, SiteWeights,
    },
    study::{StudyDesign, StudyParams},
    word,
};
use nalgebra::DMatrix;
use serde::Deserialize;

use crate::{
    ModelKind, ModelSettings, Options, Request, Rows, find, generator,
    input::population::norm,
    parameter::{STARTS, SUPPORT},
};

/// Starts of the sparse reference; the one that captures most is used, as in Wang & Xu's experiments.
const REFERENCE_STARTS: usize = 50;

/// A request for simulations. Several values of `n`, `p`, `k`, `s` or `epsilon` make a sweep.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulateRequest {
    /// The population, unless participants are drawn from rows.
    pub model: Option<ModelKind>,
    /// Parameters of the model.
    #[serde(default)]
    pub model_settings: ModelSettings,
    /// Dimension of the model.
    #[serde(default)]
    pub p: Vec<usize>,
    /// Participants, or rows of all sites together.
    #[serde(default)]
    pub n: Vec<u64>,
    /// Components; also the rank of the model's subspace.
    pub k: Vec<usize>,
    /// Nonzero rows of the model's V; with rows, the features of their own components that are the reference (the best
    /// of 50 starts of `sparse-pca`), instead of their PCA.
    #[serde(default)]
    pub s: Vec<usize>,
    /// ε of one report.
    pub epsilon: Vec<f64>,
    /// The mechanism; double-cap without, of tables of sites discrete-gaussian.
    #[serde(default, deserialize_with = "optional_word")]
    pub mechanism: Option<MechanismKind>,
    /// How its noise is chosen, where there is a choice.
    #[serde(default, deserialize_with = "word")]
    pub calibration: Calibration,
    /// δ of one report; the mechanism's default without.
    pub delta: Option<f64>,
    /// Names and public constants of the rows' features.
    pub features: Option<Vec<Feature>>,
    /// How rows are brought into the unit ball; without, as the model is stated, or normalized.
    pub bound_rows: Option<BoundRows>,
    /// Radius for that.
    pub radius: Option<f64>,
    /// Constant of private centring.
    pub centring: Option<f64>,
    /// The sparse estimator; PCA without.
    pub sparse: Option<SparseSettings>,
    /// Repeats, each with a population and noise of its own.
    #[serde(default = "one")]
    pub repeats: usize,
    /// How the noise of the sum is drawn.
    #[serde(default, deserialize_with = "word")]
    pub noise: NoisePath,
    /// Seed; the same seed gives the same numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// Sites among which the rows are divided evenly, each with one report of its table; several values make a sweep. As
    /// many rows as are given are divided, each once.
    #[serde(default)]
    pub sites: Vec<u64>,
    /// Rows of each site, in place of `n` and `sites`.
    #[serde(default)]
    pub site_rows: Vec<u64>,
    /// How the sites are weighed.
    #[serde(default, deserialize_with = "word")]
    pub site_weights: SiteWeights,
    /// Degrees by which each site's components are tilted; the truth is then that of all rows together.
    pub tilt: Option<f64>,
}

/// The default of a count.
pub(crate) fn one<T: From<u8>>() -> T {
    T::from(1)
}

#[derive(Clone, Copy)]
struct Setting {
    n: u64,
    p: Option<usize>,
    k: usize,
    s: Option<usize>,
    epsilon: f64,
    /// Sites of equal size.
    sites: Option<u64>,
}

impl SimulateRequest {
    /// Participants of all settings and repeats: the sum of all ticks.
    pub fn participants(&self) -> u64 {
        let participants: u64 = self.settings().iter().map(|setting| setting.n).sum();
        participants.saturating_mul(self.repeats as u64)
    }

    /// Every combination of the given values.
    fn settings(&self) -> Vec<Setting> {
        fn optional<T: Copy>(values: &[T]) -> Vec<Option<T>> {
            match values {
                [] => vec![None],
                values => values.iter().copied().map(Some).collect(),
            }
        }
        let mut settings = Vec::new();
        for &epsilon in &self.epsilon {
            for &k in &self.k {
                for &p in &optional(&self.p) {
                    for &s in &optional(&self.s) {
                        for &sites in &optional(&self.sites) {
                            let by_list =
                                self.site_rows.iter().copied().reduce(u64::saturating_add);
                            settings.extend(self.n.iter().copied().chain(by_list).map(|n| {
                                Setting {
                                    n,
                                    p,
                                    k,
                                    s,
                                    epsilon,
                                    sites,
                                }
                            }));
                        }
                    }
                }
            }
        }
        settings
    }

    fn study(&self, p: usize, epsilon: f64) -> Result<StudyParams> {
        let mechanism = self.mechanism.unwrap_or_default();
        let budget = mechanism.budget(epsilon, self.delta)?;
        StudyParams::freeze(StudyDesign {
            features: self.features.clone(),
            norm: norm(self.model, self.bound_rows, self.radius)?,
            centring: self.centring,
            calibration: self.calibration,
            ..StudyDesign::new(mechanism, p, budget)
        })
    }

    fn study_of_sites(&self, p: usize, epsilon: f64, max_rows: u64) -> Result<SiteStudyParams> {
        let mechanism = self.mechanism.unwrap_or(DEFAULT_SITE_MECHANISM);
        SiteStudyParams::freeze(SiteStudyDesign {
            dimension: p,
            features: self.features.clone(),
            norm: norm(self.model, self.bound_rows, self.radius)?,
            centring: self.centring,
            mechanism,
            budget: mechanism.budget(epsilon, self.delta)?,
            terms: SiteTerms {
                site_weights: self.site_weights,
                ..SiteTerms::new(max_rows)
            },
        })
    }

    fn has_sites(&self) -> bool {
        !self.sites.is_empty() || !self.site_rows.is_empty()
    }

    /// Refuses settings of sites that do not go together.
    fn check_sites(&self) -> Result<()> {
        let list = !self.site_rows.is_empty();
        let beside = [
            ("n", list && !self.n.is_empty()),
            ("sites", list && !self.sites.is_empty()),
        ];
        Error::reject_if_given(&beside, "`site_rows` has the rows of each site")?;
        if self.n.is_empty() && !list {
            return Err(Error::invalid_request("`n` is the number of participants, or of rows of all sites: give it, or `site_rows`").with_field("n"));
        }
        let has_sites = self.has_sites();
        let other_weights = self.site_weights != SiteWeights::default();
        let of_sites = [
            ("site_weights", other_weights && !has_sites),
            ("tilt", self.tilt.is_some() && !has_sites),
        ];
        Error::reject_if_given(
            &of_sites,
            "it is of sites, and `sites` or `site_rows` is not given",
        )?;
        let of_rows = [
            ("noise", has_sites && self.noise != NoisePath::default()),
            (
                "calibration",
                has_sites && self.calibration != Calibration::default(),
            ),
        ];
        Error::reject_if_given(
            &of_rows,
            "the noise of a site's table is drawn once, from its exact distribution",
        )
    }
}

/// Runs studies whose true subspace is known: that of a model, or of `rows`, from which participants are then drawn
/// with replacement. `tick` receives the number of participants processed since the last call. The answers come with
/// warnings about the budget.
///
/// # Errors
/// `invalid-request` unless there is either a model with `p` or rows, and for a model, rows or an estimator that does
/// not fit; those of [`StudyParams::freeze`]; `estimate-failed` when it was cancelled.
pub fn simulate(
    request: &SimulateRequest,
    rows: Option<&[Row]>,
    tick: &mut dyn FnMut(u64),
    cancel: Cancel<'_>,
) -> Result<(Sweep, Vec<String>)> {
    let mut references = References {
        found: BTreeMap::new(),
        cancel,
    };
    if let Some(sparse) = &request.sparse {
        sparse.lambda.check()?;
    }
    if request.model.is_none() {
        request.model_settings.check(None)?;
    }
    request.check_sites()?;
    let settings = request.settings();
    let answers = settings
        .iter()
        .map(|setting| run_setting(request, setting, rows, &mut references, tick))
        .collect::<Result<Vec<_>>>()?;
    let n = answers.iter().map(|row| row.n).max().unwrap_or(0);
    let delta = answers.iter().map(|row| row.delta).fold(0.0, f64::max);
    let epsilon = request.epsilon.iter().copied().fold(0.0, f64::max);
    Ok((Sweep { rows: answers }, budget_warnings(epsilon, delta, n)))
}

fn run_setting(
    request: &SimulateRequest,
    setting: &Setting,
    rows: Option<&[Row]>,
    references: &mut References<'_>,
    tick: &mut dyn FnMut(u64),
) -> Result<SimulateAnswer> {
    let wrong = |detail: &str, field| Err(Error::invalid_request(detail).with_field(field));
    let p = match (rows, setting.p) {
        (Some(_), Some(_)) => return wrong("`p` is that of `rows`; leave it out", "p"),
        (Some(rows), None) => {
            let p = rows.first().map_or(0, |row| row.values().len());
            check_columns("simulate", true, p)?;
            p
        }
        (None, Some(p)) => p,
        (None, None) => return wrong("`model` needs `p`", "p"),
    };
    let study = Study::of(request, setting, p)?;
    let (k, cancel) = (setting.k, references.cancel);
    let preprocessing = study.preprocessing();
    let source = match (rows, request.model, setting.s) {
        (Some(rows), None, None) => RowSource::Rows(rows),
        (Some(rows), None, Some(s)) => {
            RowSource::RowsWithReference(rows, references.find(rows, preprocessing, k, s)?)
        }
        (None, Some(model), s) => RowSource::Model(model.model(p, k, s, request.model_settings)?),
        (None, None, _) | (Some(_), Some(_), _) => {
            return wrong("give `model` or `rows`", "model");
        }
    };
    let (summary, privacy) = study.run(request, source, setting, (cancel, tick))?;
    let support = summary.support;
    Ok(SimulateAnswer {
        mechanism: study.mechanism(),
        calibration: privacy.calibration,
        epsilon: privacy.epsilon,
        delta: privacy.delta,
        true_epsilon: privacy.true_epsilon,
        claim_holds: privacy.claim_holds,
        n: setting.n,
        p,
        k,
        s: setting.s,
        centring: preprocessing.centring,
        sites: study.sites(),
        noise: request.noise,
        error_mean: summary.error_mean,
        error_sd: summary.error_sd,
        error_predicted_from_truth: summary.predicted_error,
        nonprivate_error: summary.nonprivate_error,
        support_f1: support.map(|s| s.f1),
        seconds: summary.seconds,
        repeats: summary.repeats,
        error_predicted_from_data: summary.expected_error,
        pca_error: summary.pca_error,
        support_precision: support.map(|s| s.precision),
        support_recall: support.map(|s| s.recall),
        components_above_floor: summary.components_above,
        converged: summary.converged,
        seed: request.seed,
    })
}

/// A simulated study, and of sites the rows of each.
enum Study {
    Rows(StudyParams),
    Sites(SiteStudyParams, Vec<u64>),
}

impl Study {
    fn of(request: &SimulateRequest, setting: &Setting, p: usize) -> Result<Self> {
        if !request.has_sites() {
            return request.study(p, setting.epsilon).map(Self::Rows);
        }
        let sizes = sizes(request, setting)?;
        let max_rows = sizes.iter().copied().max().unwrap_or(1);
        let params = request.study_of_sites(p, setting.epsilon, max_rows)?;
        Ok(Self::Sites(params, sizes))
    }

    fn preprocessing(&self) -> &Preprocessing {
        match self {
            Self::Rows(params) => params.preprocessing(),
            Self::Sites(params, _) => params.preprocessing(),
        }
    }

    fn mechanism(&self) -> MechanismKind {
        match self {
            Self::Rows(params) => params.mechanism().kind(),
            Self::Sites(params, _) => params.mechanism().kind(),
        }
    }

    fn sites(&self) -> Option<u64> {
        match self {
            Self::Rows(_) => None,
            Self::Sites(_, sizes) => Some(sizes.len() as u64),
        }
    }

    fn run(
        &self,
        request: &SimulateRequest,
        source: RowSource<'_>,
        setting: &Setting,
        (cancel, tick): (Cancel<'_>, &mut dyn FnMut(u64)),
    ) -> Result<(Summary, PrivacyStatement)> {
        match self {
            Self::Rows(params) => {
                let experiment = Experiment {
                    params,
                    source,
                    n: setting.n,
                    k: setting.k,
                    sparse: request.sparse.as_ref(),
                    noise_path: request.noise,
                    repeats: request.repeats,
                    seed: request.seed,
                    cancel,
                };
                Ok((run(&experiment, tick)?.1, PrivacyStatement::new(params)))
            }
            Self::Sites(params, sizes) => {
                let experiment = SiteExperiment {
                    params,
                    source,
                    sizes: sizes.clone(),
                    tilt: request.tilt,
                    k: setting.k,
                    sparse: request.sparse.as_ref(),
                    repeats: request.repeats,
                    seed: request.seed,
                    cancel,
                };
                let (_, summary) = run_sites(&experiment, tick)?;
                Ok((summary, PrivacyStatement::of_site(params)))
            }
        }
    }
}

/// Rows of each site, as even as they can be unless they are listed.
fn sizes(request: &SimulateRequest, setting: &Setting) -> Result<Vec<u64>> {
    let Some(sites) = setting.sites else {
        return Ok(request.site_rows.clone());
    };
    if sites == 0 || sites > setting.n {
        return Err(Error::invalid_request(format!(
            "`sites` is {sites}; {} rows make tables for 1 to {} sites",
            setting.n, setting.n
        ))
        .with_field("sites"));
    }
    let (each, more) = (setting.n / sites, setting.n % sites);
    Ok((0..sites).map(|j| each + u64::from(j < more)).collect())
}

/// The rows' own components on s features, by (k, s), each computed once in a sweep.
struct References<'a> {
    found: BTreeMap<(usize, usize), DMatrix<f64>>,
    cancel: Cancel<'a>,
}

impl References<'_> {
    /// The components of these prepared rows on `s` features, `p × k`.
    fn find(
        &mut self,
        rows: &[Row],
        preprocessing: &Preprocessing,
        k: usize,
        s: usize,
    ) -> Result<&DMatrix<f64>> {
        if preprocessing.centring.is_some() {
            return Err(Error::invalid_request(
                "`s` with `rows` compares uncentred components; leave `s` or `centring` out",
            )
            .with_field("s"));
        }
        let entry = match self.found.entry((k, s)) {
            Entry::Occupied(found) => return Ok(found.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let preprocessor = preprocessing.preprocessor()?;
        let rows = rows.iter().enumerate();
        let rows = rows.map(|(index, row)| preprocessor.prepare_features_nth(index, row));
        let rows = Rows::collect(rows)?;
        let options = Options::default().with(SUPPORT, s);
        let method = find("sparse-pca")?.build(&options.with(STARTS, REFERENCE_STARTS))?;
        // Seeded, because it is a reference.
        let request = Request {
            cancel: self.cancel,
            ..Request::nonprivate(k)
        };
        let fit = method.fit(&rows, &request, &mut generator(Some(1))?)?;
        Ok(entry.insert(fit.subspace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_defaults_and_refuses_what_it_does_not_know() {
        let read = |text: &str| serde_json::from_str::<SimulateRequest>(text);
        let request = r#"{"model": "spiked", "p": [6], "n": [200, 300], "k": [1], "epsilon": [8]}"#;
        let request = read(request).unwrap();
        assert_eq!((request.repeats, request.participants()), (1, 500));
        let simulated = simulate(&request, None, &mut |_| (), Cancel::NEVER);
        let (sweep, warnings) = simulated.unwrap();
        assert_eq!((sweep.rows.len(), warnings.len()), (2, 0));
        let json = serde_json::to_value(&sweep).unwrap();
        assert_eq!(json["rows"][1]["n"], 300);
        assert!(read(r#"{"n": [9], "k": [1], "epsilon": [1], "spikes": 3}"#).is_err());
        let neither = read(r#"{"n": [9], "k": [1], "epsilon": [1]}"#).unwrap();
        let error = simulate(&neither, None, &mut |_| (), Cancel::NEVER).unwrap_err();
        assert_eq!(error.field(), Some("p"));
    }
}
