//! `eigenveil simulate`: an in-process experiment with a known true subspace.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
};

use clap::Args;
use eigenveil_central::{
    Options, Request, Rows, find, generator,
    parameter::{STARTS, SUPPORT},
};
use eigenveil_estimation::{
    Cancel,
    metrics::max_error,
    simulate::{Experiment, NoisePath, RowSource, run as simulate},
};
use eigenveil_shared::{
    preprocess::{Feature, Preprocessing, Row},
    privacy::{PrivacyStatement, format_delta, format_epsilon},
};
use nalgebra::DMatrix;

use super::{
    central_rows::check_dimension,
    model::{ModelArg, ModelArgs, model_of},
    sweep::{self, SimulateAnswer},
};
use crate::{
    IsStopped,
    args::{MechanismArgs, SparseArgs},
    error::{CliError, Result},
    files, output,
    rows::{self, RowTable, TableArgs},
};

/// Run an experiment in this process, with a known true subspace
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil simulate --model spiked --p 40 --k 5 --spike 20 --n 100000 --epsilon 4 --repeats 20\n  eigenveil simulate --model sparse --p 200 --k 3 --s 15 --spike 60 --n 100000 --epsilon 4 --sparse --refit\n  eigenveil simulate --rows rows.npy --k 3 --n 1000000 --epsilon 2 --json\n  eigenveil simulate --rows rows.npy --k 3 --s 10 --sparse --n 100000 --epsilon 4\n\nThe noise comes from a seeded generator: a simulation protects nobody."
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
    /// Rows to draw participants from, with replacement: .csv, .tsv, .parquet, .npy or .libsvm
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Dimension of the model; several values, with commas, make a sweep, as do several of --n, --k, --s, --epsilon
    #[arg(
        long,
        value_name = "P,…",
        value_delimiter = ',',
        conflicts_with = "rows"
    )]
    p: Vec<usize>,
    /// Participants
    #[arg(long, value_name = "N,…", value_delimiter = ',', required = true)]
    n: Vec<u64>,
    /// Components; also the rank of the model's subspace
    #[arg(long, value_name = "K,…", value_delimiter = ',', required = true)]
    k: Vec<usize>,
    /// Nonzero rows of V, for --model sparse, and for wang-xu in the paper's sparse experiments; with --rows the error
    /// is against the file's own components on S rows (`central sparse-pca`, best of 50 starts) instead of its PCA
    #[arg(long, value_name = "S,…", value_delimiter = ',')]
    s: Vec<usize>,
    #[command(flatten)]
    of_model: ModelArgs,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E,…", value_delimiter = ',', required = true)]
    epsilon: Vec<f64>,
    #[command(flatten)]
    mechanism: MechanismArgs,
    #[command(flatten)]
    sparse: SparseArgs,
    /// Number of runs, each with its own population and noise
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeats: usize,
    /// from-sum: noise from the exact distribution of the sum; per-report: every report perturbed, encoded and decoded
    #[arg(long, default_value = "from-sum", value_parser = crate::args::parse::<NoisePath>)]
    noise: NoisePath,
    /// Seed; the same seed gives the same numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw the errors of a sweep as SVG, against the flag with the most values
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Title of the figure
    #[arg(long, value_name = "TEXT", requires = "plot")]
    title: Option<String>,
    #[command(flatten)]
    table: TableArgs,
}

/// The rows of a file, with the public constants of a features file.
type RawTable = (Vec<Row>, Option<Vec<Feature>>);

#[derive(Clone, Copy)]
struct Setting {
    n: u64,
    p: Option<usize>,
    k: usize,
    s: Option<usize>,
    epsilon: f64,
}

pub(crate) fn run(args: &SimulateArgs, json: bool, is_stopped: IsStopped<'_>) -> Result<()> {
    let path = args.rows.as_deref();
    let read = path.map(|path| rows::read_with_constants(path, &args.table));
    let read = read.transpose()?;
    let rows = |table: RowTable| (0..table.len()).map(|index| table.row(index)).collect();
    let raw: Option<RawTable> = read.map(|(table, features)| (rows(table), features));
    args.plot.as_deref().map_or(Ok(()), files::check_figure)?;
    let settings = settings(args);
    let participants = settings.iter().map(|setting| setting.n).sum::<u64>();
    let all = participants.saturating_mul(args.repeats as u64);
    let bar = output::bar(all, "participants");
    let mut references = References {
        found: BTreeMap::new(),
        cancel: Cancel::when(is_stopped),
    };
    let simulated = settings
        .iter()
        .map(|setting| run_setting(args, setting, raw.as_ref(), &mut references, &bar))
        .collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    let largest = simulated.iter().map(|row| row.n).max().unwrap_or(0);
    let delta = simulated.iter().map(|row| row.delta).fold(0.0, f64::max);
    let epsilon = args.epsilon.iter().copied().fold(0.0, f64::max);
    output::print_budget_warnings(epsilon, delta, largest);
    if let Some(path) = &args.plot {
        let chart = sweep::chart(&simulated, args.title.as_deref(), args.sparse.sparse);
        output::write_figure(path, &chart)?;
    }
    match (json, simulated.as_slice()) {
        (true, [one]) => output::json(one),
        (true, rows) => output::json(&serde_json::json!({ "rows": rows })),
        (false, [one]) => print(args, one),
        (false, rows) => print_table(rows, args.sparse.sparse),
    }
}

/// Starts of the sparse reference; the one that captures most is used, as in Wang & Xu's experiments.
const REFERENCE_STARTS: usize = 50;

/// The file's own components on s features, by (k, s), each computed once in a sweep.
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
            return Err(CliError::usage(
                "--s with --rows compares uncentred components; leave --s or --centring out",
            ));
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

/// Every combination of the given values.
fn settings(args: &SimulateArgs) -> Vec<Setting> {
    fn optional<T: Copy>(values: &[T]) -> Vec<Option<T>> {
        match values {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect(),
        }
    }
    let mut settings = Vec::new();
    for &epsilon in &args.epsilon {
        for &k in &args.k {
            for &p in &optional(&args.p) {
                for &s in &optional(&args.s) {
                    settings.extend(args.n.iter().map(|&n| Setting {
                        n,
                        p,
                        k,
                        s,
                        epsilon,
                    }));
                }
            }
        }
    }
    settings
}

fn run_setting(
    args: &SimulateArgs,
    setting: &Setting,
    raw: Option<&RawTable>,
    references: &mut References<'_>,
    bar: &indicatif::ProgressBar,
) -> Result<SimulateAnswer> {
    let p = match (raw, setting.p) {
        (Some((rows, _)), _) => {
            let p = rows.first().map_or(0, |row| row.values().len());
            check_dimension("simulate", true, p)?;
            p
        }
        (None, Some(p)) => p,
        (None, None) => return Err(CliError::usage("--model needs --p")),
    };
    let mut mechanism = args.mechanism.clone();
    if let Some(model) = args.model {
        mechanism.norm = model.default_norm(mechanism.norm);
    }
    let features = raw.and_then(|(_, features)| features.clone());
    let params = mechanism.freeze(p, setting.epsilon, features)?;
    let (k, cancel) = (setting.k, references.cancel);
    let source = match (raw, args.model, setting.s) {
        (Some((rows, _)), _, None) => RowSource::Rows(rows),
        (Some((rows, _)), _, Some(s)) => {
            let preprocessing = params.preprocessing();
            RowSource::Referenced(rows, references.find(rows, preprocessing, k, s)?)
        }
        (None, Some(model), s) => RowSource::Model(model_of(model, p, k, s, args.of_model)?),
        (None, None, _) => return Err(CliError::usage("give --model or --rows")),
    };
    let sparse = args.sparse.settings();
    let experiment = Experiment {
        params: &params,
        source,
        n: setting.n,
        k: setting.k,
        sparse: sparse.as_ref(),
        noise_path: args.noise,
        repeats: args.repeats,
        seed: args.seed,
        cancel,
    };
    let (_, summary) = simulate(&experiment, &mut |done| bar.inc(done))?;
    let privacy = PrivacyStatement::new(&params);
    let support = summary.support;
    Ok(SimulateAnswer {
        mechanism: privacy.mechanism,
        calibration: privacy.calibration,
        epsilon: privacy.epsilon,
        delta: privacy.delta,
        true_epsilon: privacy.true_epsilon,
        claim_holds: privacy.claim_holds,
        n: setting.n,
        p,
        k: setting.k,
        s: setting.s,
        centring: params.preprocessing().centring,
        noise: args.noise.as_str(),
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
        seed: args.seed,
    })
}

fn print(args: &SimulateArgs, simulated: &SimulateAnswer) -> Result<()> {
    output::text(&format!(
        "{} participants, p = {}, k = {}, {}, {}, noise {}, {} repeats in {:.1} s",
        simulated.n,
        simulated.p,
        simulated.k,
        output::mechanism_text(simulated.mechanism, simulated.calibration),
        output::budget_text(simulated.epsilon, simulated.delta),
        simulated.noise,
        simulated.repeats,
        simulated.seconds
    ))?;
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| output::decimals(v, 4));
    output::text(&format!(
        "error              {}   (0 is perfect; at most {:.3})",
        output::mean_and_sd(
            simulated.error_mean,
            simulated.error_sd,
            simulated.repeats as u64
        ),
        max_error(simulated.p, simulated.k)
    ))?;
    output::text(&format!(
        "predicted          {}   from the noiseless spectrum",
        number(simulated.error_predicted_from_truth)
    ))?;
    output::text(&format!(
        "expected           {}   as an analyst would see it",
        output::decimals(simulated.error_predicted_from_data, 4)
    ))?;
    output::text(&format!(
        "without privacy    {}",
        output::decimals(simulated.nonprivate_error, 4)
    ))?;
    if args.sparse.sparse {
        output::text(&format!(
            "plain PCA          {}   on the same reports",
            output::decimals(simulated.pca_error, 4)
        ))?;
        output::text(&format!(
            "support            precision {}, recall {}, F1 {}",
            number(simulated.support_precision),
            number(simulated.support_recall),
            number(simulated.support_f1)
        ))?;
        if simulated.converged < simulated.repeats {
            output::text(&format!(
                "warning: {} of {} solves did not reach the tolerance: noise drowns the signal, or --max-iterations is too low",
                simulated.repeats - simulated.converged,
                simulated.repeats
            ))?;
        }
    }
    output::text(&format!(
        "above the floor    {:.1} of all {} eigenvalues   (k = {} asked for)",
        simulated.components_above_floor, simulated.p, simulated.k
    ))?;
    if !simulated.claim_holds {
        output::text(&format!(
            "warning: the noise is smaller than claimed; the true epsilon is {} at delta {}",
            simulated
                .true_epsilon
                .map_or("-".to_owned(), |epsilon| format_epsilon(epsilon, 6)),
            format_delta(simulated.delta)
        ))?;
    }
    Ok(())
}

fn print_table(rows: &[SimulateAnswer], sparse: bool) -> Result<()> {
    output::text(&format!(
        "{:>9} {:>6} {:>4} {:>4} {:>7}  {:>8} {:>7} {:>9} {:>11} {:>10}{}",
        "n",
        "p",
        "k",
        "s",
        "epsilon",
        "error",
        "± s.d.",
        "predicted",
        "no privacy",
        "above",
        if sparse {
            "  plain PCA  support F1"
        } else {
            ""
        }
    ))?;
    for row in rows {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| output::decimals(v, 4));
        let mut line = format!(
            "{:>9} {:>6} {:>4} {:>4} {:>7}  {:>8} {:>7} {:>9} {:>11} {:>10.1}",
            row.n,
            row.p,
            row.k,
            row.s.map_or("-".to_owned(), |s| s.to_string()),
            row.epsilon,
            output::decimals(row.error_mean, 4),
            output::decimals(row.error_sd, 4),
            number(row.error_predicted_from_truth),
            output::decimals(row.nonprivate_error, 4),
            row.components_above_floor
        );
        if sparse {
            line.push_str(&format!(
                "  {:>9}  {:>10}",
                output::decimals(row.pca_error, 4),
                number(row.support_f1)
            ));
        }
        output::text(&line)?;
    }
    Ok(())
}
