//! The rows a trusted curator holds in `eigenveil central`.

use std::path::PathBuf;

use clap::Args;
use eigenveil_central::{Baseline, Fit, Generator, Request, Rows, pca};
use eigenveil_estimation::models::{Model, Population};
use eigenveil_shared::{
    Result as SharedResult,
    preprocess::{FeatureRow, Preprocessing, Preprocessor, Row},
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};

use super::simulate::{HaystackArgs, ModelArg, model_of};
use crate::{
    args::{NormArg, NormArgs},
    error::{CliError, Result},
    rows::{self, TableArgs},
};

/// Most columns: a matrix of p × p takes 3.2 GB then, and some algorithms hold several.
const MAX_DIMENSION: usize = 20_000;

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
    haystack: HaystackArgs,
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
    Table {
        rows: Rows,
        truth: DMatrix<f64>,
        moment: DMatrix<f64>,
    },
}

/// What one repeat found, with what it is compared with.
pub(super) struct Compared {
    pub(super) fit: Fit,
    /// `p × k`: V of the model, or the non-private top-k of the file's rows.
    pub(super) truth: DMatrix<f64>,
    /// The covariance of the population, or the second moment of the file's rows.
    pub(super) moment: DMatrix<f64>,
}

impl RowsArgs {
    /// Reads and prepares a file, or fixes the model.
    ///
    /// # Errors
    /// Wrong usage; those of reading and preparing rows.
    pub(super) fn source(&self, k: usize) -> Result<Source> {
        let mut norm = self.norm;
        let table = match (&self.rows, self.model) {
            (Some(path), _) => Some(rows::read_with_constants(path, &self.table)?),
            (None, Some(_)) => None,
            (None, None) => return Err(CliError::usage("give --model or --rows")),
        };
        // The paper's model is stated for rows inside the unit ball, not on its surface.
        if self.model == Some(ModelArg::Published) {
            norm.norm.get_or_insert(NormArg::Clip);
        }
        if self.n == Some(0) {
            return Err(CliError::usage("--n is 0; at least one row is needed"));
        }
        let (table, features) = table.unzip();
        let dimension = table
            .as_ref()
            .map_or(self.p.unwrap_or(0), rows::RowTable::dimension);
        if dimension > MAX_DIMENSION {
            return Err(CliError::usage(format!(
                "the rows have {dimension} columns; central holds matrices of p × p, for at most {MAX_DIMENSION}: take some of them with --keep"
            )));
        }
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
                let reference = pca(rows.stream(), dimension, k)?;
                Kind::Table {
                    rows,
                    truth: reference.subspace,
                    moment: reference.moment,
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
                    self.haystack,
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

    /// Runs the algorithm once, on rows of its own; the rows of a model are not kept where the algorithm takes a
    /// stream.
    ///
    /// # Errors
    /// Those of the model, of preparing rows and of the algorithm.
    pub(super) fn run(
        &self,
        baseline: &dyn Baseline,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Compared> {
        match &self.kind {
            Kind::Table {
                rows,
                truth,
                moment,
            } => {
                let fit = match self.n {
                    None => baseline.fit(rows, request, rng)?,
                    Some(n) => {
                        let all: Vec<&FeatureRow> = rows.iter().collect();
                        let drawn = Rows::collect(
                            (0..n).map(|_| Ok(all[rng.random_range(0..all.len())].clone())),
                        )?;
                        baseline.fit(&drawn, request, rng)?
                    }
                };
                Ok(Compared {
                    fit,
                    truth: truth.clone(),
                    moment: moment.clone(),
                })
            }
            Kind::Model(model) => {
                let population = model.draw(rng)?;
                let preprocessor = self.preprocessing.preprocessor()?;
                let (n, p) = self.shape();
                let fit = match baseline.streaming() {
                    Some(streaming) => {
                        // Rows from a generator of their own: the algorithm draws from the other.
                        let mut rows_rng = Generator::from_rng(rng);
                        let mut rows =
                            (0..n).map(|_| row_of(&population, preprocessor, &mut rows_rng));
                        streaming.fit_stream(&mut rows, p, n, request, rng)?
                    }
                    None => {
                        let rows =
                            Rows::collect((0..n).map(|_| row_of(&population, preprocessor, rng)))?;
                        baseline.fit(&rows, request, rng)?
                    }
                };
                Ok(Compared {
                    fit,
                    truth: population.subspace().clone(),
                    moment: population.covariance(),
                })
            }
        }
    }
}

fn row_of(
    population: &Population,
    preprocessor: Preprocessor<'_>,
    rng: &mut Generator,
) -> SharedResult<FeatureRow> {
    preprocessor.prepare_features(&Row::new(population.row(rng)))
}
