//! The rows a trusted curator holds in `eigenveil central`.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args;
use eigenveil_central::{
    AlgorithmInfo, Baseline, Fit, Generator, Privacy, Request, Rows, principal_components,
};
use eigenveil_estimation::{
    linalg::Threads,
    metrics::projector_distance,
    models::{Model, Population},
};
use eigenveil_shared::{
    Result as SharedResult,
    preprocess::{FeatureRow, Preprocessing, Preprocessor, Row},
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};

use super::simulate::{ModelArg, ModelArgs, model_of};
use crate::{
    args::NormArgs,
    error::{CliError, Result},
    rows::{self, TableArgs},
};

/// Most columns for the algorithms that hold matrices of p × p: one takes 3.2 GB then, and some hold several.
const MAX_QUADRATIC: usize = 20_000;
/// Most columns for the others: as many as a file may have.
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
    /// Rows of V that are not zero, for --model sparse and published
    #[arg(long, value_name = "S", conflicts_with = "rows")]
    s: Option<usize>,
    /// Variance along V, for --model spiked and sparse
    #[arg(long, value_name = "X", default_value_t = 20.0)]
    spike: f64,
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
    n: Option<u64>,
}

enum Kind {
    Model(Model),
    Table { rows: Rows, truth: DMatrix<f64> },
}

/// What one repeat found, and how good that is.
pub(super) struct Compared {
    pub(super) fit: Fit,
    /// ‖V̂V̂ᵀ − VVᵀ‖_F, V that of the model, or the non-private top-k of the file's rows.
    pub(super) error: f64,
    /// Share of the population's variance, or of the second moment of the file's rows.
    pub(super) captured: f64,
    /// What the algorithm itself took, without reading or making rows and without this comparison.
    pub(super) algorithm: Duration,
}

impl RowsArgs {
    /// Reads and prepares a file, or fixes the model.
    pub(super) fn source(&self, info: &AlgorithmInfo, k: usize) -> Result<Source> {
        let mut norm = self.norm;
        let table = match (&self.rows, self.model) {
            (Some(path), _) => Some(rows::read_with_constants(path, &self.table)?),
            (None, Some(_)) => None,
            (None, None) => return Err(CliError::usage("give --model or --rows")),
        };
        if let Some(model) = self.model {
            norm = model.usual_norm(norm);
        }
        if self.n == Some(0) {
            return Err(CliError::usage("--n is 0; at least one row is needed"));
        }
        let (table, features) = table.unzip();
        let dimension = table
            .as_ref()
            .map_or(self.p.unwrap_or(0), rows::RowTable::dimension);
        check_dimension(info, dimension)?;
        let preprocessing = Preprocessing {
            dimension,
            features: features.flatten(),
            norm: norm.norm()?,
            centring: None,
        };
        let kind = match (table, self.model) {
            (Some(table), _) => {
                let preprocessor = preprocessing.preprocessor()?;
                let rows = Rows::collect(
                    (0..table.len())
                        .map(|index| preprocessor.prepare_features_nth(index, &table.row(index))),
                )?;
                let truth = Threads::available().run(|| principal_components(&rows, k))?;
                Kind::Table {
                    rows,
                    truth: truth.vectors,
                }
            }
            (None, Some(model)) => {
                preprocessing.check()?;
                Kind::Model(model_of(
                    model,
                    dimension,
                    k,
                    self.s,
                    self.spike,
                    self.of_model,
                )?)
            }
            (None, None) => return Err(CliError::usage("give --model or --rows")),
        };
        Ok(Source {
            kind,
            preprocessing,
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

    /// Runs the algorithm once, on rows of its own, and where asked traces its iterations; the rows of a model are not kept
    /// where the algorithm takes a stream.
    pub(super) fn run(
        &self,
        baseline: &dyn Baseline,
        k: usize,
        privacy: Privacy,
        traced: bool,
        rng: &mut Generator,
    ) -> Result<Compared> {
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
                        drawn = Rows::collect(
                            (0..n).map(|_| Ok(all[rng.random_range(0..all.len())].clone())),
                        )?;
                        &drawn
                    }
                };
                let started = Instant::now();
                let fit = baseline.fit(taken, &request_for(truth), rng)?;
                let algorithm = started.elapsed();
                Ok(Compared {
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
                let (fit, algorithm) = match baseline.streaming() {
                    Some(streaming) => {
                        // Rows from a generator of their own: the algorithm draws from the other.
                        let mut rows_rng = Generator::from_rng(rng);
                        let mut making = Duration::ZERO;
                        let mut rows = (0..n).map(|_| {
                            let started = Instant::now();
                            let row = row_of(&population, preprocessor, &mut rows_rng);
                            making += started.elapsed();
                            row
                        });
                        let started = Instant::now();
                        let fit = streaming.fit_stream(&mut rows, p, n, &request, rng)?;
                        (fit, started.elapsed().saturating_sub(making))
                    }
                    None => {
                        let rows =
                            Rows::collect((0..n).map(|_| row_of(&population, preprocessor, rng)))?;
                        let started = Instant::now();
                        let fit = baseline.fit(&rows, &request, rng)?;
                        (fit, started.elapsed())
                    }
                };
                Ok(Compared {
                    error: projector_distance(&fit.subspace, population.subspace())?,
                    captured: population.captured_variance(&fit.subspace)?,
                    fit,
                    algorithm,
                })
            }
        }
    }
}

/// Refuses more columns than the algorithm can hold.
fn check_dimension(info: &AlgorithmInfo, dimension: usize) -> Result<()> {
    let (most, because) = if info.quadratic_memory {
        (MAX_QUADRATIC, "holds matrices of p × p")
    } else {
        (MAX_DIMENSION, "holds frames of p × k")
    };
    if dimension <= most {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "the rows have {dimension} columns; {} {because}, for at most {most} columns: take some of them with --keep",
        info.name
    )))
}

fn row_of(
    population: &Population,
    preprocessor: Preprocessor<'_>,
    rng: &mut Generator,
) -> SharedResult<FeatureRow> {
    preprocessor.prepare_features(&Row::new(population.row(rng)))
}
