//! `eigenveil central`: runs a trusted-curator baseline, or lists them.

use std::{fmt::Write as _, path::PathBuf, time::Instant};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use eigenveil_central::{
    self as central, ALGORITHMS, AlgorithmInfo, CentralAnswer, CentralCalibration, CentralRequest,
    DeltaSupport, ModelKind, Neighbours, Options, RunGuarantee,
    parameter::{self, Kind, Parameter, Value},
};
use eigenveil_estimation::{Cancel, Table, metrics::max_error};
use eigenveil_shared::preprocess::{BoundRows, Row};
use eigenveil_tables::RowTable;
use nalgebra::DMatrix;

use super::model::{ModelArg, ModelArgs};
use crate::{
    args::NormArgs,
    error::{CliError, Result},
    files, output, results,
    tables::{self, TableArgs},
};

/// Run a baseline that sees every row, as a trusted curator would
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  eigenveil central list\n  eigenveil central analyze-gauss --model wang-xu --p 40 --n 100000 --k 5 --epsilon 1 --delta 1e-4 --repeats 20 --seed 1\n  eigenveil central private-power --rows rows.npy --k 3 --epsilon 2 --neighbours zero-out --out components.csv\n  eigenveil central dp-sggd --model haystack --p 20 --n 2000 --k 2 --epsilon 0.8\n  eigenveil central pca --rows people.csv --drop id --features features.csv --k 3 --json\n\nError and captured variance are computed from the rows, or from the model's truth, and are not private. With --seed the noise is reproducible and protects nobody; leave it out for a result that you release."
)]
pub(crate) struct CentralArgs {
    #[command(subcommand)]
    command: Option<CentralCommand>,
    /// Name of the algorithm; `eigenveil central list` shows them
    #[arg(required = true)]
    algorithm: Option<String>,
    #[command(flatten)]
    rows: RowsArgs,
    /// Components
    #[arg(long, value_name = "K", required = true)]
    k: Option<usize>,
    /// Privacy-loss bound ε of the whole run; inf for none
    #[arg(long, value_name = "E|inf", default_value = "inf")]
    epsilon: f64,
    /// Failure probability δ, well below 1/n; 0 for pure ε [default: 1e-6; 0 for wishart and amin]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Which tables are neighbours: replace (one row replaced by any other, as in the local model), zero-out (one row
    /// replaced by the zero row) or entry (one entry of the sum of outer products changed; private-power only)
    /// [default: replace]
    #[arg(long, value_parser = crate::args::parse::<Neighbours>)]
    neighbours: Option<Neighbours>,
    /// How the noise is chosen: accounted (the whole run keeps the budget) or as-published (the paper's formula; its
    /// true ε is shown) [default: accounted]
    #[arg(long, value_parser = crate::args::parse::<CentralCalibration>)]
    calibration: Option<CentralCalibration>,
    #[command(flatten)]
    options: OptionArgs,
    /// Number of runs; with --model each has rows of its own
    #[arg(long, value_name = "R", default_value_t = 1)]
    repeats: u64,
    /// Seed; the same seed gives the same numbers, and no privacy [default: from the operating system]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Show error and objective after each iteration of the (first) run, compared with the truth: not private
    #[arg(long)]
    trace: bool,
    /// Write the loadings of the (first) run as CSV, one line a feature
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Where rows come from and how they are prepared.
#[derive(Clone, Debug, Args)]
struct RowsArgs {
    /// Synthetic population
    #[arg(long, value_enum, conflicts_with_all = ["rows", "TableArgs"], requires_all = ["p", "n"])]
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

#[derive(Debug, Subcommand)]
enum CentralCommand {
    /// Every algorithm, with source and guarantee
    #[command(after_help = "Example:\n  eigenveil central list --json")]
    List,
}

/// The flags of the algorithms' parameters, generated from the table of algorithms.
#[derive(Clone, Debug)]
struct OptionArgs(Options);

impl Args for OptionArgs {
    fn augment_args(command: Command) -> Command {
        command.args(parameter::ALL.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let set = |parameter: &Parameter| match parameter.kind {
            Kind::Count => matches.get_one(parameter.name).copied().map(Value::Count),
            Kind::Number => matches.get_one(parameter.name).copied().map(Value::Number),
            Kind::Switch => matches.get_flag(parameter.name).then_some(Value::Set),
        };
        let given = parameter::ALL.iter();
        let given = given.filter_map(|parameter| Some((*parameter, set(parameter)?)));
        let with = |options: Options, (parameter, value)| options.with(parameter, value);
        Ok(Self(given.fold(Options::default(), with)))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(parameter: &Parameter) -> Arg {
    let mut help = parameter.help.to_owned();
    if let Some(default) = common_default(parameter) {
        // Writing to a string does not fail.
        let _ = write!(help, " [default: {default}]");
    }
    let flag = Arg::new(parameter.name).long(parameter.name).help(help);
    match parameter.kind {
        Kind::Count => flag
            .value_name(parameter.symbol)
            .value_parser(clap::value_parser!(usize)),
        Kind::Number => flag
            .value_name(parameter.symbol)
            .value_parser(clap::value_parser!(f64)),
        Kind::Switch => flag.action(ArgAction::SetTrue),
    }
}

/// The default of a parameter, if all algorithms that have it agree.
fn common_default(parameter: &Parameter) -> Option<f64> {
    let all = ALGORITHMS.iter().flat_map(|info| info.parameters);
    let same_parameter = all.filter(|same_parameter| same_parameter.name == parameter.name);
    let mut defaults = same_parameter.map(|same_parameter| same_parameter.default);
    let first = defaults.next()?;
    first.filter(|_| defaults.all(|default| default == first))
}

impl CentralArgs {
    fn request(&self, algorithm: &str, k: usize) -> CentralRequest {
        let rows = &self.rows;
        CentralRequest {
            algorithm: algorithm.to_owned(),
            model: rows.model.map(ModelKind::from),
            model_settings: rows.of_model.into(),
            p: rows.p,
            n: rows.n,
            s: rows.s,
            features: None,
            bound_rows: rows.norm.norm.map(BoundRows::from),
            radius: rows.norm.radius,
            k,
            epsilon: (self.epsilon != f64::INFINITY).then_some(self.epsilon),
            delta: self.delta,
            neighbours: self.neighbours,
            calibration: self.calibration,
            options: self.options.0.clone(),
            repeats: self.repeats,
            seed: self.seed,
            trace: self.trace,
        }
    }
}

pub(crate) fn run(args: &CentralArgs, json: bool) -> Result<()> {
    if let Some(CentralCommand::List) = args.command {
        return list(json);
    }
    // clap requires both.
    let (Some(name), Some(k)) = (&args.algorithm, args.k) else {
        return Err(CliError::usage(
            "give an algorithm and --k; `eigenveil central list` shows the algorithms",
        ));
    };
    let started = Instant::now();
    let mut request = args.request(name, k);
    request.check()?;
    let read = |path: &PathBuf| tables::read_with_constants(path, args.rows.table.settings()?);
    let read = args.rows.rows.as_ref().map(read).transpose()?;
    let (table, features) = read.unzip();
    request.features = features.flatten();
    args.out.as_deref().map_or(Ok(()), files::check_table)?;
    let bar = output::bar(args.repeats, "runs");
    let row = |index| {
        table
            .as_ref()
            .map_or_else(|| Row::new(Vec::new()), |t| t.row(index))
    };
    let rows = table.as_ref().map(|table| Table {
        len: table.len(),
        columns: table.dimension(),
        row: &row,
    });
    let (mut run, warnings) =
        central::run(&request, rows, &mut |done| bar.inc(done), Cancel::NEVER)?;
    bar.finish_and_clear();
    output::print_warnings(&warnings);
    if let Some(path) = &args.out {
        let names = table.as_ref().and_then(RowTable::names);
        files::write(path, &loadings(&run.first.subspace, names)?)?;
    }
    // Of the whole command.
    run.answer.seconds = started.elapsed().as_secs_f64();
    if json {
        output::json(&run.answer)
    } else {
        print(&run.answer, run.first.privacy.as_ref())
    }
}

/// The loadings as CSV: a line for each feature, by name or numbered from 0, and a column for each component.
fn loadings(subspace: &DMatrix<f64>, features: Option<&[String]>) -> Result<Vec<u8>> {
    let names = (1..=subspace.ncols()).map(|component| format!("component{component}"));
    let header = std::iter::once("feature".to_owned()).chain(names).collect();
    let lines = subspace.row_iter().enumerate().map(|(feature, row)| {
        let name = features.map_or_else(|| feature.to_string(), |names| names[feature].clone());
        let name = std::iter::once(name);
        name.chain(row.iter().map(f64::to_string)).collect()
    });
    results::table(header, lines)
}

fn print(answer: &CentralAnswer, guarantee: Option<&RunGuarantee>) -> Result<()> {
    output::text(&format!(
        "{}: n = {}, p = {}, k = {}, {} runs in {:.2} s ({} s in the algorithm)",
        answer.algorithm,
        answer.n,
        answer.p,
        answer.k,
        answer.repeats,
        answer.seconds,
        output::decimals(answer.algorithm_seconds, 2)
    ))?;
    match guarantee {
        None => output::text("privacy            none")?,
        Some(guarantee) => {
            output::text(&format!(
                "asked for          {}, {} neighbours, {}",
                output::budget_text(guarantee.budget.epsilon(), guarantee.budget.delta()),
                guarantee.neighbours,
                guarantee.calibration
            ))?;
            let delta = guarantee.budget.delta();
            let true_text = output::true_budget_text(guarantee.true_epsilon, delta);
            output::text(&format!("true epsilon       {true_text}"))?;
            if let Some(note) = &answer.note {
                output::text(&format!("                   {note}"))?;
            }
        }
    }
    output::text(&format!(
        "error              {}   (0 is perfect; at most {:.3}; not private)",
        output::mean_and_sd(answer.error_mean, answer.error_sd),
        max_error(answer.p, answer.k)
    ))?;
    output::text(&format!(
        "captured variance  {}   (not private)",
        output::decimals(answer.captured_variance, 4)
    ))?;
    for diagnostic in &answer.diagnostics {
        // A number of steps has no decimals.
        let value = match diagnostic.value.fract() {
            0.0 => diagnostic.value.to_string(),
            _ => output::decimals(diagnostic.value, 6),
        };
        output::text(&format!("{:<18} {value}", diagnostic.name))?;
    }
    let Some(trace) = &answer.trace else {
        return Ok(());
    };
    output::text("\niteration     passes      error  objective   (first run; not private)")?;
    for point in trace {
        let six = |value| output::decimals(value, 6);
        let (iteration, passes) = (point.iteration, output::decimals(point.passes, 3));
        let (error, objective) = (six(point.error), point.objective.map(six));
        let objective = objective.as_deref().unwrap_or("-");
        output::text(&format!(
            "{iteration:>9} {passes:>10} {error:>10} {objective:>10}"
        ))?;
    }
    Ok(())
}

fn list(json: bool) -> Result<()> {
    if json {
        let entry = |info: &&AlgorithmInfo| {
            let neighbours = info.neighbours.iter().map(|kind| kind.as_str());
            let calibrations = info.calibrations.iter().map(|kind| kind.as_str());
            serde_json::json!({
                "algorithm": info.name,
                "source": info.source,
                "description": info.description,
                "guarantee": info.guarantee,
                "neighbours": neighbours.collect::<Vec<_>>(),
                "calibrations": calibrations.collect::<Vec<_>>(),
                "supports_delta_zero": info.delta != DeltaSupport::Positive,
            })
        };
        let listed: Vec<_> = ALGORITHMS.iter().map(entry).collect();
        return output::json(&serde_json::json!({ "algorithms": listed }));
    }
    for info in ALGORITHMS {
        output::text(&format!(
            "{}\n    {}\n    source     {}\n    guarantee  {}",
            info.name, info.description, info.source, info.guarantee
        ))?;
        let parameters: Vec<String> = info.parameters.iter().map(parameter_text).collect();
        if !parameters.is_empty() {
            output::text(&format!("    parameters {}", parameters.join(", ")))?;
        }
    }
    Ok(())
}

/// A parameter as its flag, with its default if that is a number.
fn parameter_text(parameter: &Parameter) -> String {
    let value = match parameter.default {
        Some(default) => format!(" (default {default})"),
        None => String::new(),
    };
    format!("--{}{value}", parameter.name)
}
