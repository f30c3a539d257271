//! `eigenveil simulate`: an in-process experiment with the true subspace known.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eigenveil_estimation::{
    models::Model,
    simulate::{Experiment, Path, RowSource, Summary, run as simulate},
};
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    preprocess::Row,
    privacy::PrivacyStatement,
};
use serde::Serialize;

use crate::{
    args::{MechanismArgs, NormArg, SparseArgs},
    error::{CliError, Result},
    output, rows,
};

/// A synthetic population with a known principal subspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelArg {
    /// N(0, I + spike·VVᵀ), V a uniformly random p × k frame
    Spiked,
    /// The same with V supported on --s random rows
    Sparse,
    /// Section 6 of Wang & Xu: N(0, λ/(5p(λ+1))·VVᵀ + 1/(5p(λ+1))·I) with λ = 1, clipped at radius 1
    Published,
}

/// Run an experiment in this process, with the true subspace known
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil simulate --model spiked --p 40 --k 5 --spike 20 --n 100000 --epsilon 4 --repeats 20\n  eigenveil simulate --model sparse --p 200 --k 3 --s 15 --spike 60 --n 100000 --epsilon 4 --sparse --refit\n  eigenveil simulate --rows rows.npy --k 3 --n 1000000 --epsilon 2 --json\n\nThe noise comes from a seeded generator: a simulation protects nobody."
)]
pub(crate) struct SimulateArgs {
    /// Synthetic population
    #[arg(
        long,
        value_enum,
        required_unless_present = "rows",
        conflicts_with = "rows",
        requires = "p"
    )]
    model: Option<ModelArg>,
    /// Rows to draw participants from, with replacement: .npy, .csv or LIBSVM text
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Dimension of the model
    #[arg(long, value_name = "P", conflicts_with = "rows")]
    p: Option<usize>,
    /// Participants
    #[arg(long, value_name = "N")]
    n: u64,
    /// Components; also the rank of the model's subspace
    #[arg(long, value_name = "K")]
    k: usize,
    /// Rows of V that are not zero (model sparse, and published for the paper's sparse experiments)
    #[arg(long, value_name = "S", conflicts_with = "rows")]
    s: Option<usize>,
    /// Variance along V of the models spiked and sparse
    #[arg(long, value_name = "X", default_value_t = 20.0)]
    spike: f64,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E")]
    epsilon: f64,
    #[command(flatten)]
    mechanism: MechanismArgs,
    #[command(flatten)]
    sparse: SparseArgs,
    /// Repeats, each with a population and noise of its own
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeats: usize,
    /// law: noise from the exact law of the sum; device: every report perturbed, encoded and decoded
    #[arg(long, default_value = "law", value_parser = crate::args::parse::<Path>)]
    path: Path,
    /// Seed; the same seed gives the same numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// What scripts rely on, and a few keys more.
#[derive(Serialize)]
struct Simulated {
    mechanism: MechanismKind,
    calibration: Calibration,
    epsilon: f64,
    delta: f64,
    true_epsilon: Option<f64>,
    n: u64,
    p: usize,
    k: usize,
    path: &'static str,
    error_mean: f64,
    error_std: f64,
    predicted_error: Option<f64>,
    nonprivate_error: f64,
    support_f1: Option<f64>,
    seconds: f64,
    repeats: usize,
    expected_error: f64,
    pca_error: f64,
    support_precision: Option<f64>,
    support_recall: Option<f64>,
    components_above_floor: f64,
    converged: usize,
    seed: u64,
}

pub(crate) fn run(args: &SimulateArgs, json: bool) -> Result<()> {
    let table = args
        .rows
        .as_deref()
        .map(|path| rows::read(path, None))
        .transpose()?;
    let raw: Vec<Row> = table
        .iter()
        .flat_map(|table| (0..table.len()).map(|index| table.row(index)))
        .collect();
    let (source, p) = match (&table, args.model) {
        (Some(table), _) => (RowSource::Rows(&raw), table.dimension()),
        (None, Some(model)) => {
            let p = args.p.ok_or_else(|| CliError::usage("--model needs --p"))?;
            (RowSource::Model(model_of(args, model, p)?), p)
        }
        (None, None) => return Err(CliError::usage("give --model or --rows")),
    };
    let mut mechanism = args.mechanism.clone();
    // The paper's model is stated for rows inside the unit ball, not on its surface.
    if args.model == Some(ModelArg::Published) {
        mechanism.norm.get_or_insert(NormArg::Clip);
    }
    let params = mechanism.freeze(p, args.epsilon, None)?;
    let settings = args.sparse.settings();
    let experiment = Experiment {
        params: &params,
        source,
        n: args.n,
        k: args.k,
        sparse: settings.as_ref(),
        path: args.path,
        repeats: args.repeats,
        seed: args.seed,
    };
    let bar = output::bar(args.n.saturating_mul(args.repeats as u64), "participants");
    let ran = simulate(&experiment, &mut |done| bar.inc(done));
    bar.finish_and_clear();
    let (_, summary) = ran?;
    let privacy = PrivacyStatement::of(&params);
    let support = summary.support;
    let simulated = Simulated {
        mechanism: privacy.mechanism,
        calibration: privacy.calibration,
        epsilon: privacy.epsilon,
        delta: privacy.delta,
        true_epsilon: privacy.true_epsilon,
        n: args.n,
        p,
        k: args.k,
        path: args.path.as_str(),
        error_mean: summary.error_mean,
        error_std: summary.error_std,
        predicted_error: summary.predicted_error,
        nonprivate_error: summary.nonprivate_error,
        support_f1: support.map(|s| s.f1),
        seconds: summary.seconds,
        repeats: summary.repeats,
        expected_error: summary.expected_error,
        pca_error: summary.pca_error,
        support_precision: support.map(|s| s.precision),
        support_recall: support.map(|s| s.recall),
        components_above_floor: summary.components_above,
        converged: summary.converged,
        seed: args.seed,
    };
    if json {
        return output::json(&simulated);
    }
    print(args, &simulated, &summary)
}

fn model_of(args: &SimulateArgs, model: ModelArg, p: usize) -> Result<Model> {
    let SimulateArgs { k, s, spike, .. } = *args;
    match (model, s) {
        (ModelArg::Spiked, None) => Ok(Model::Spiked { p, k, spike }),
        (ModelArg::Spiked, Some(_)) => Err(CliError::usage(
            "--s belongs to --model sparse or published",
        )),
        (ModelArg::Sparse, Some(s)) => Ok(Model::Sparse { p, k, s, spike }),
        (ModelArg::Sparse, None) => Err(CliError::usage(
            "--model sparse needs --s, the number of rows of V that are not zero",
        )),
        (ModelArg::Published, s) => Ok(Model::Published {
            p,
            k,
            s,
            lambda: 1.0,
        }),
    }
}

fn print(args: &SimulateArgs, simulated: &Simulated, summary: &Summary) -> Result<()> {
    output::text(&format!(
        "{} participants, p = {}, k = {}, {} ({}), epsilon {}, delta {:e}, path {}, {} repeats in {:.1} s",
        simulated.n,
        simulated.p,
        simulated.k,
        simulated.mechanism,
        simulated.calibration,
        simulated.epsilon,
        simulated.delta,
        simulated.path,
        simulated.repeats,
        simulated.seconds
    ))?;
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.4}"));
    output::text(&format!(
        "error              {:.4} ± {:.4}   (0 is perfect; at most {:.3})",
        simulated.error_mean,
        simulated.error_std,
        (2.0 * args.k.min(simulated.p - args.k) as f64).sqrt()
    ))?;
    output::text(&format!(
        "predicted          {}   from the noiseless spectrum",
        number(simulated.predicted_error)
    ))?;
    output::text(&format!(
        "expected           {:.4}   what an analyst would be told",
        simulated.expected_error
    ))?;
    output::text(&format!(
        "without privacy    {:.4}",
        simulated.nonprivate_error
    ))?;
    if args.sparse.sparse {
        output::text(&format!(
            "plain PCA          {:.4}   on the same reports",
            simulated.pca_error
        ))?;
        output::text(&format!(
            "support            precision {}, recall {}, F1 {}",
            number(simulated.support_precision),
            number(simulated.support_recall),
            number(simulated.support_f1)
        ))?;
        if simulated.converged < simulated.repeats {
            output::text(&format!(
                "warning: {} of {} solves hit the iteration cap; raise --max-iterations or --tolerance",
                simulated.repeats - simulated.converged,
                simulated.repeats
            ))?;
        }
    }
    output::text(&format!(
        "above the floor    {:.1} of {} components",
        summary.components_above, simulated.k
    ))?;
    if simulated
        .true_epsilon
        .is_none_or(|real| real > simulated.epsilon)
    {
        output::text(&format!(
            "warning: the noise is smaller than claimed; what really holds is epsilon {} at delta {:e}",
            number(simulated.true_epsilon),
            simulated.delta
        ))?;
    }
    Ok(())
}
