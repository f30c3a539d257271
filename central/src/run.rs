//! Runs of a baseline on rows or on a model, compared with the truth.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use eigenveil_estimation::{
    Cancel, Table, check_columns, linalg::Threads, metrics::projector_distance, models::Model,
};
use eigenveil_shared::{
    Error, Result, optional_word,
    preprocess::{BoundRows, Feature, FeatureRow, Preprocessing},
    privacy::{Budget, budget_warnings},
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::{
    AlgorithmInfo, Baseline, CentralCalibration, Fit, Generator, ModelKind, ModelSettings,
    Neighbours, Options, Privacy, PrivacyTarget, Request, Rows, RunGuarantee, TracePoint, find,
    generator, input::population::norm, model_row, principal_components,
};

/// A request for runs of a baseline. The rows are those of a table, or `n` that are drawn from it, or `n` of a model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CentralRequest {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The model, unless there is a table.
    pub model: Option<ModelKind>,
    /// Parameters of the model.
    #[serde(default)]
    pub model_settings: ModelSettings,
    /// Dimension of the model.
    pub p: Option<usize>,
    /// Rows of a run; all of a table without.
    pub n: Option<u64>,
    /// Nonzero rows of the model's V.
    pub s: Option<usize>,
    /// Names and public constants of the table's features.
    pub features: Option<Vec<Feature>>,
    /// How rows are brought into the unit ball; without, as the model is stated, or normalized.
    pub bound_rows: Option<BoundRows>,
    /// Radius for that.
    pub radius: Option<f64>,
    /// Components.
    pub k: usize,
    /// ε of the whole run; no noise without.
    pub epsilon: Option<f64>,
    /// δ of the whole run; without, 1e-6, or 0 where the algorithm's guarantee is pure.
    pub delta: Option<f64>,
    /// Which tables are neighbours, with `epsilon`; `replace` without.
    #[serde(default, deserialize_with = "optional_word")]
    pub neighbours: Option<Neighbours>,
    /// How the noise is chosen, with `epsilon`; `accounted` without.
    #[serde(default, deserialize_with = "optional_word")]
    pub calibration: Option<CentralCalibration>,
    /// The algorithm's own parameters.
    #[serde(default)]
    pub options: Options,
    /// Number of runs; with a model each has rows of its own.
    #[serde(default = "crate::simulate::one")]
    pub repeats: u64,
    /// Seed, which makes the noise repeatable, and protects nobody.
    pub seed: Option<u64>,
    /// Whether to give the trace of the first run.
    #[serde(default)]
    pub trace: bool,
}

impl CentralRequest {
    /// Checks what can be checked without the rows.
    ///
    /// # Errors
    /// As [`run`].
    pub fn check(&self) -> Result<()> {
        self.resolve().map(drop)
    }

    fn resolve(&self) -> Result<(&'static AlgorithmInfo, Baseline, Privacy)> {
        let info = find(&self.algorithm)?;
        if self.repeats == 0 {
            return Err(wrong("repeats", "`repeats` is 0; at least one is needed"));
        }
        if self.model.is_none() {
            self.model_settings.check(None)?;
        }
        let baseline = info.build(&self.options)?;
        if self.trace && !info.has_trace {
            return Err(no_iterations(info.name));
        }
        Ok((info, baseline, self.privacy(info)?))
    }

    fn privacy(&self, info: &AlgorithmInfo) -> Result<Privacy> {
        let Some(epsilon) = self.epsilon else {
            let of_noise = [
                ("delta", self.delta.is_some()),
                ("neighbours", self.neighbours.is_some()),
                ("calibration", self.calibration.is_some()),
            ];
            Error::reject_if_given(&of_noise, "there is no noise without a finite `epsilon`")?;
            return Ok(Privacy::None);
        };
        let calibration = self.calibration.unwrap_or_default();
        if let [only] = info.calibrations
            && *only != calibration
        {
            let name = info.name;
            return Err(wrong(
                "calibration",
                format!("{name} has no {calibration} noise; give `calibration` {only}"),
            ));
        }
        let delta = self.delta.unwrap_or_else(|| info.delta.default_delta());
        let budget = Budget::new(epsilon, delta)?.check_study_limit()?;
        let neighbours = self.neighbours.unwrap_or_default();
        Ok(Privacy::with_budget(budget, neighbours, calibration))
    }
}

fn wrong(field: &'static str, detail: impl Into<String>) -> Error {
    Error::invalid_request(detail).with_field(field)
}

fn no_iterations(name: &str) -> Error {
    wrong(
        "trace",
        format!("{name} has no iterations to trace with these settings; leave `trace` out"),
    )
}

fn prepared(table: Table<'_>, preprocessing: &Preprocessing, cancel: Cancel<'_>) -> Result<Rows> {
    let preprocessor = preprocessing.preprocessor()?;
    let row = |at| {
        cancel.check()?;
        preprocessor.prepare_features_nth(at, &(table.row)(at))
    };
    Rows::collect((0..table.len).map(row))
}

/// Means over the runs. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CentralAnswer {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// ε asked for.
    pub epsilon: Option<f64>,
    /// δ asked for.
    pub delta: Option<f64>,
    /// ε that holds at this δ.
    pub true_epsilon: Option<f64>,
    /// Which tables are neighbours.
    pub neighbours: Option<&'static str>,
    /// How the noise was chosen.
    pub calibration: Option<&'static str>,
    /// ‖V̂V̂ᵀ − VVᵀ‖_F, V that of the model or of the table's rows. **Not private.**
    pub error_mean: f64,
    /// Share of the variance. **Not private.**
    pub captured_variance: f64,
    /// Seconds of everything: drawing or preparing rows, the algorithm and the comparison.
    pub seconds: f64,
    /// Seconds of the algorithm alone.
    pub algorithm_seconds: f64,
    /// Standard deviation of the error over several runs.
    pub error_sd: Option<f64>,
    /// Rows of a run.
    pub n: u64,
    /// Dimension.
    pub p: usize,
    /// Components.
    pub k: usize,
    /// Runs.
    pub repeats: u64,
    /// Seed.
    pub seed: Option<u64>,
    /// Whether the budget is kept.
    pub claim_holds: Option<bool>,
    /// Remark on the guarantee.
    pub note: Option<String>,
    /// Numbers about the first run. **Not private.**
    pub diagnostics: Vec<Diagnostic>,
    /// Iterations of the first run, if asked for. **Not private.**
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Vec<TracePoint>>,
}

/// A number about a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Diagnostic {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// The answer, with the loadings of the first run.
#[derive(Clone, Debug)]
pub struct CentralRun {
    /// The answer.
    pub answer: CentralAnswer,
    /// The first run.
    pub first: Fit,
}

/// Runs a baseline and compares it with the truth: the subspace of the model, or the non-private components of the
/// table's rows. `tick` receives the number of runs done since the last call. The answer comes with warnings about the
/// budget.
///
/// # Errors
/// `invalid-request` unless there is either a model with `p` and `n` or a table, and for an algorithm, parameters or
/// noise that do not fit, and for `seed` and `repeats` where nothing is random; `invalid-budget`; those of preparing
/// rows and of [`Baseline::fit`].
pub fn run(
    request: &CentralRequest,
    table: Option<Table<'_>>,
    tick: &mut dyn FnMut(u64),
    cancel: Cancel<'_>,
) -> Result<(CentralRun, Vec<String>)> {
    let started = Instant::now();
    let (info, baseline, privacy) = request.resolve()?;
    let source = Source::new(request, info, table, cancel)?;
    let (n, p) = source.shape();
    let k = request.k;
    let warnings = match privacy {
        Privacy::Private(PrivacyTarget { budget, .. }) => {
            budget_warnings(budget.epsilon(), budget.delta(), n)
        }
        Privacy::None => Vec::new(),
    };
    let (mut errors, mut captured, mut first) = (Vec::new(), 0.0, None);
    let mut algorithm_time = Duration::ZERO;
    for number in 0..request.repeats {
        let mut rng = generator(request.seed)?;
        // One stream per repeat: adding repeats does not change the earlier ones.
        rng.set_stream(number);
        let traced = request.trace && number == 0;
        let comparison =
            Threads::available().run(|| source.run(&baseline, privacy, traced, &mut rng))?;
        if number == 0 && rng.get_word_pos() == 0 {
            let given = [
                ("seed", request.seed.is_some()),
                ("repeats", request.repeats > 1),
            ];
            Error::reject_if_given(&given, "nothing is random here, and every run is the same")?;
        }
        errors.push(comparison.error);
        captured += comparison.captured;
        algorithm_time += comparison.algorithm;
        first.get_or_insert(comparison.fit);
        tick(1);
    }
    let Some(first) = first else {
        return Err(Error::estimate_failed("there was no run"));
    };
    if request.trace && first.trace.is_empty() {
        return Err(no_iterations(info.name));
    }
    let guarantee = first.privacy.as_ref();
    let count = errors.len() as f64;
    let error = errors.iter().sum::<f64>() / count;
    let spread = errors.iter().map(|e| (e - error).powi(2)).sum::<f64>();
    let diagnostics = first.diagnostics.iter();
    let diagnostics = diagnostics.map(|&(name, value)| Diagnostic { name, value });
    let answer = CentralAnswer {
        algorithm: info.name,
        epsilon: guarantee.map(|g| g.budget.epsilon()),
        delta: guarantee.map(|g| g.budget.delta()),
        true_epsilon: guarantee.and_then(|g| g.true_epsilon),
        neighbours: guarantee.map(|g| g.neighbours.as_str()),
        calibration: guarantee.map(|g| g.calibration.as_str()),
        error_mean: error,
        captured_variance: captured / count,
        seconds: started.elapsed().as_secs_f64(),
        algorithm_seconds: algorithm_time.as_secs_f64(),
        error_sd: (count > 1.0).then(|| (spread / (count - 1.0)).sqrt()),
        n,
        p,
        k,
        repeats: request.repeats,
        seed: request.seed,
        claim_holds: guarantee.map(RunGuarantee::holds),
        note: guarantee.and_then(|g| g.note.clone()),
        diagnostics: diagnostics.collect(),
        trace: request.trace.then(|| first.trace.clone()),
    };
    Ok((CentralRun { answer, first }, warnings))
}

/// One fit without a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitAnswer {
    /// Rows used.
    pub n: u64,
    /// The guarantee; none for a run without noise.
    pub privacy: Option<FitPrivacy>,
    /// Numbers about the run. **Not private.**
    pub diagnostics: BTreeMap<&'static str, f64>,
    /// Share of the rows' second moment. **Not private.**
    pub captured_variance: f64,
}

/// The guarantee of a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitPrivacy {
    /// ε asked for.
    pub epsilon: f64,
    /// δ asked for.
    pub delta: f64,
    /// Which tables are neighbours.
    pub neighbours: &'static str,
    /// How the noise was chosen.
    pub calibration: &'static str,
    /// ε that holds for the whole run at this δ.
    pub true_epsilon: Option<f64>,
    /// Whether the budget is kept.
    pub claim_holds: bool,
    /// Remark on the guarantee.
    pub note: Option<String>,
    /// The algorithm's guarantee in words.
    pub guarantee: &'static str,
}

/// Runs a baseline once on all rows of a table, and gives its loadings, `p × k`.
///
/// # Errors
/// Those of [`run`].
pub fn fit(
    request: &CentralRequest,
    table: Table<'_>,
    cancel: Cancel<'_>,
) -> Result<(FitAnswer, DMatrix<f64>)> {
    let (info, baseline, privacy) = request.resolve()?;
    let norm = norm(request.model, request.bound_rows, request.radius)?;
    let preprocessing = Preprocessing {
        features: request.features.clone(),
        ..Preprocessing::new(table.columns, norm)
    };
    let rows = prepared(table, &preprocessing, cancel)?;
    let of_fit = Request {
        cancel,
        ..Request::new(request.k, privacy)
    };
    let fit =
        Threads::available().run(|| baseline.fit(&rows, &of_fit, &mut generator(request.seed)?))?;
    let guarantee = fit.privacy.as_ref();
    let privacy = guarantee.map(|guarantee| FitPrivacy {
        epsilon: guarantee.budget.epsilon(),
        delta: guarantee.budget.delta(),
        neighbours: guarantee.neighbours.as_str(),
        calibration: guarantee.calibration.as_str(),
        true_epsilon: guarantee.true_epsilon,
        claim_holds: guarantee.holds(),
        note: guarantee.note.clone(),
        guarantee: info.guarantee,
    });
    let answer = FitAnswer {
        n: fit.n,
        privacy,
        diagnostics: fit.diagnostics.into_iter().collect(),
        captured_variance: rows.captured_variance(&fit.subspace)?,
    };
    Ok((answer, fit.subspace))
}

/// The source of every run's rows.
struct Source<'a> {
    kind: Kind,
    preprocessing: Preprocessing,
    n: Option<u64>,
    k: usize,
    cancel: Cancel<'a>,
}

enum Kind {
    Model(Model),
    Table { rows: Rows, truth: DMatrix<f64> },
}

/// The fit of one run and how good it is.
struct Comparison {
    fit: Fit,
    /// ‖V̂V̂ᵀ − VVᵀ‖_F, V that of the model, or the non-private top-k of the table's rows.
    error: f64,
    /// Share of the population's variance, or of the second moment of the table's rows.
    captured: f64,
    /// Time of the algorithm itself, without drawing or preparing rows and without this comparison.
    algorithm: Duration,
}

impl<'a> Source<'a> {
    fn new(
        request: &CentralRequest,
        info: &AlgorithmInfo,
        table: Option<Table<'_>>,
        cancel: Cancel<'a>,
    ) -> Result<Self> {
        if request.n == Some(0) {
            return Err(wrong("n", "`n` is 0; at least one row is needed"));
        }
        let preprocessing = |columns, features| -> Result<Preprocessing> {
            check_columns(info.name, info.quadratic_memory, columns)?;
            let norm = norm(request.model, request.bound_rows, request.radius)?;
            Ok(Preprocessing {
                features,
                ..Preprocessing::new(columns, norm)
            })
        };
        let k = request.k;
        let (kind, preprocessing) = match (table, request.model) {
            (Some(table), None) => {
                let preprocessing = preprocessing(table.columns, request.features.clone())?;
                let rows = prepared(table, &preprocessing, cancel)?;
                let truth = Threads::available().run(|| principal_components(&rows, k))?;
                let truth = truth.vectors;
                (Kind::Table { rows, truth }, preprocessing)
            }
            (None, Some(model)) => {
                let (Some(p), Some(_)) = (request.p, request.n) else {
                    return Err(wrong("p", "`model` needs `p` and `n`"));
                };
                let preprocessing = preprocessing(p, None)?;
                preprocessing.check()?;
                let model = model.model(p, k, request.s, request.model_settings)?;
                (Kind::Model(model), preprocessing)
            }
            _ => return Err(wrong("model", "give `model` or `rows`")),
        };
        Ok(Self {
            kind,
            preprocessing,
            n: request.n,
            k,
            cancel,
        })
    }

    /// Number of rows n and dimension p of a run.
    fn shape(&self) -> (u64, usize) {
        let n = match &self.kind {
            Kind::Table { rows, .. } => self.n.unwrap_or(rows.n() as u64),
            Kind::Model(_) => self.n.unwrap_or(0),
        };
        (n, self.preprocessing.dimension)
    }

    /// Runs the algorithm once on its own rows and, if asked, traces its iterations; rows of a model are not stored if
    /// the algorithm takes a stream.
    fn run(
        &self,
        baseline: &Baseline,
        privacy: Privacy,
        traced: bool,
        rng: &mut Generator,
    ) -> Result<Comparison> {
        let request_for = |truth| Request {
            truth: traced.then_some(truth),
            cancel: self.cancel,
            ..Request::new(self.k, privacy)
        };
        match &self.kind {
            Kind::Table { rows, truth } => {
                let drawn;
                let taken = match self.n {
                    None => rows,
                    Some(n) => {
                        let all: Vec<&FeatureRow> = rows.iter().collect();
                        let draw = |_| Ok(all[rng.random_range(0..all.len())].clone());
                        drawn = Rows::collect((0..n).map(draw))?;
                        &drawn
                    }
                };
                let started = Instant::now();
                let fit = baseline.fit(taken, &request_for(truth), rng)?;
                let algorithm = started.elapsed();
                Ok(Comparison {
                    error: projector_distance(&fit.subspace, truth)?,
                    captured: rows.captured_variance(&fit.subspace)?,
                    fit,
                    algorithm,
                })
            }
            Kind::Model(model) => {
                let population = model.draw(rng)?;
                let preprocessor = self.preprocessing.preprocessor()?;
                let (n, p) = self.shape();
                let request = request_for(population.subspace());
                let (fit, algorithm) = if baseline.is_streaming() {
                    // Rows have a generator of their own, so that the algorithm's draws do not change them.
                    let mut rows_rng = Generator::from_rng(rng);
                    let mut making = Duration::ZERO;
                    let mut rows = (0..n).map(|_| {
                        let started = Instant::now();
                        let row = model_row(&population, preprocessor, &mut rows_rng);
                        making += started.elapsed();
                        row
                    });
                    let started = Instant::now();
                    let fit = baseline.fit_stream(&mut rows, p, n, &request, rng)?;
                    (fit, started.elapsed().saturating_sub(making))
                } else {
                    let rows = (0..n).map(|_| model_row(&population, preprocessor, rng));
                    let rows = Rows::collect(rows)?;
                    let started = Instant::now();
                    let fit = baseline.fit(&rows, &request, rng)?;
                    (fit, started.elapsed())
                };
                Ok(Comparison {
                    error: projector_distance(&fit.subspace, population.subspace())?,
                    captured: population.captured_variance(&fit.subspace)?,
                    fit,
                    algorithm,
                })
            }
        }
    }
}
