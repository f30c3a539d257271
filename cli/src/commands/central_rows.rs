//! The rows a trusted curator holds in `eigenveil central`.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use eigenveil_central::{
    AlgorithmInfo, Baseline, Fit, Generator, Privacy, Request, Rows, model_row,
    principal_components,
};
use eigenveil_estimation::{linalg::Threads, metrics::projector_distance, models::Model};
use eigenveil_shared::preprocess::{FeatureRow, Preprocessing};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};

use super::model::{ModelArg, ModelArgs, model_of};
use crate::{
    args::NormArgs,
    error::{CliError, Result},
    rows::{self, TableArgs},
};

/// Largest p of the algorithms that hold p × p matrices: at this size one takes 3.2 GB, and some hold several.
const MAX_QUADRATIC: usize = 20_000;
/// Largest p of the others: as many columns as a file may have.
const MAX_DIMENSION: usize = 1 << 17;

/// Where rows come from and how they are prepared.
#[derive(Clone, Debug, Args)]
pub(super) struct RowsArgs {
    /// Synthetic population
    #[arg(long, value_enum, conflicts_with = "rows", requires_all = ["p", "n"])]
    model: Option<ModelArg>,
    /// Rows: .csv, .tsv, .parquet, .npy or .libsvm; all of them, or --n of them drawn with replacement
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Dimension p of the model
    #[arg(long, value_name = "P", conflicts_with = "rows")]
    p: Option<usize>,
    /// Number of rows n
    #[arg(long, value_name = "N")]
    n: Option<u64>,
    /// Nonzero rows of V, for --model sparse and wang-xu
    #[arg(long, value_name = "S", conflicts_with = "rows")]
    s: Option<usize>,
    #[command(flatten)]
    of_model: ModelArgs,
    #[command(flatten)]
    norm: NormArgs,
    #[command(flatten)]
    table: TableArgs,
}

/// The source of every repeat's rows.
pub(super) struct Source {
    kind: Kind,
    preprocessing: Preprocessing,
    names: Option<Vec<String>>,
    n: Option<u64>,
}

enum Kind {
    Model(Model),
    Table { rows: Rows, truth: DMatrix<f64> },
}

/// The fit of one repeat and how good it is.
pub(super) struct Comparison {
    pub(super) fit: Fit,
    /// ‖V̂V̂ᵀ − VVᵀ‖_F, V that of the model, or the non-private top-k of the file's rows.
    pub(super) error: f64,
    /// Share of the population's variance, or of the second moment of the file's rows.
    pub(super) captured: f64,
    /// Time of the algorithm itself, without reading or drawing rows and without this comparison.
    pub(super) algorithm: Duration,
}

impl RowsArgs {
    pub(super) fn source(&self, info: &AlgorithmInfo, k: usize) -> Result<Source> {
        if self.n == Some(0) {
            return Err(CliError::usage("--n is 0; at least one row is needed"));
        }
        let preprocessing = |dimension, features, norm: NormArgs| -> Result<Preprocessing> {
            check_dimension(info.name, info.quadratic_memory, dimension)?;
            Ok(Preprocessing {
                features,
                ..Preprocessing::new(dimension, norm.norm()?)
            })
        };
        let (kind, preprocessing, names) = match (&self.rows, self.model) {
            (Some(path), _) => {
                let (table, features) = rows::read_with_constants(path, &self.table)?;
                let preprocessing = preprocessing(table.dimension(), features, self.norm)?;
                let preprocessor = preprocessing.preprocessor()?;
                let row = |at| preprocessor.prepare_features_nth(at, &table.row(at));
                let rows = Rows::collect((0..table.len()).map(row))?;
                let truth = Threads::available().run(|| principal_components(&rows, k))?;
                let truth = truth.vectors;
                let names = table.names().map(<[String]>::to_vec);
                (Kind::Table { rows, truth }, preprocessing, names)
            }
            (None, Some(model)) => {
                let p = self.p.unwrap_or(0);
                let preprocessing = preprocessing(p, None, model.default_norm(self.norm))?;
                preprocessing.check()?;
                let model = model_of(model, p, k, self.s, self.of_model)?;
                (Kind::Model(model), preprocessing, None)
            }
            (None, None) => return Err(CliError::usage("give --model or --rows")),
        };
        Ok(Source {
            kind,
            preprocessing,
            names,
            n: self.n,
        })
    }
}

impl Source {
    /// Number of rows n and dimension p of a run.
    pub(super) fn shape(&self) -> (u64, usize) {
        let n = match &self.kind {
            Kind::Table { rows, .. } => self.n.unwrap_or(rows.n() as u64),
            Kind::Model(_) => self.n.unwrap_or(0),
        };
        (n, self.preprocessing.dimension)
    }

    /// Of the features, if they have some.
    pub(super) fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Runs the algorithm once on its own rows and, if asked, traces its iterations; rows of a model are not stored if
    /// the algorithm takes a stream.
    pub(super) fn run(
        &self,
        baseline: &Baseline,
        k: usize,
        privacy: Privacy,
        traced: bool,
        rng: &mut Generator,
    ) -> Result<Comparison> {
        let request_for = |truth| Request {
            truth: traced.then_some(truth),
            ..Request::new(k, privacy)
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

/// Refuses rows of more columns than this work has memory for.
pub(super) fn check_dimension(work: &str, quadratic_memory: bool, dimension: usize) -> Result<()> {
    let (most, because) = if quadratic_memory {
        (MAX_QUADRATIC, "holds matrices of p × p")
    } else {
        (MAX_DIMENSION, "holds frames of p × k")
    };
    if dimension <= most {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "the rows have {dimension} columns; {work} {because}, for at most {most} columns: take some of them with --keep"
    )))
}
