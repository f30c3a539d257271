//! `eigenveil prepare`: makes the public constants of a study from public rows or published statistics.

use std::{num::NonZeroU64, path::PathBuf};

use clap::Args;
use eigenveil_estimation::{
    Cancel,
    format::{percent, with_thousands},
};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Feature, Norm, Preprocessing},
};
use serde::Serialize;

use super::{
    central_rows::check_dimension,
    prepare_choices::{Choice, MAX_FEW_ROWS, Setting, choices},
    prepare_columns::{Column, columns, from_description, from_rows, rounded},
};
use crate::{
    IsStopped,
    error::{CliError, Result},
    files, output,
    rows::{self, Names, RowTable, TableArgs},
    shares::LengthShares,
};

/// Make a study's features file (centers and scales) from public rows or a description
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil prepare --rows public.csv --k 3 --n 20000 --epsilon 4 --out features.csv\n  eigenveil prepare --description columns.csv --out features.csv\n\nThe constants are public and fixed with the study. Use public rows of the same kind (a published table, an earlier\nsurvey), never the participants' rows. A description is CSV with the columns name,mean,sd or name,min,max, as in data\nsheets and health surveys."
)]
pub(crate) struct PrepareArgs {
    /// Public rows: .csv, .tsv, .parquet, .npy or .libsvm
    #[arg(long, value_name = "FILE", required_unless_present = "description")]
    rows: Option<PathBuf>,
    /// Published statistics of the columns: CSV with name,mean,sd or name,min,max
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "k", "n", "epsilon"])]
    description: Option<PathBuf>,
    /// Components wanted
    #[arg(long, required_unless_present = "description")]
    k: Option<usize>,
    /// Participants expected
    #[arg(long, required_unless_present = "description")]
    n: Option<NonZeroU64>,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E", required_unless_present = "description")]
    epsilon: Option<f64>,
    #[arg(long, help = crate::args::mechanism_help(), default_value = "double-cap", value_parser = crate::args::parse::<MechanismKind>)]
    mechanism: MechanismKind,
    /// Failure probability δ of the (ε, δ) mechanisms [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Features file to write; an existing one is refused
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    table: TableArgs,
    /// Columns of text that become one column of 0 and 1 for each value found in the public rows, as sex=f and sex=m
    #[arg(long, value_name = "NAMES", value_parser = rows::names, requires = "rows")]
    one_hot: Option<Names>,
}

#[derive(Serialize)]
struct PrepareAnswer {
    out: String,
    columns: Vec<Column>,
    /// `‖E x‖²/E‖x‖²` of the raw rows.
    squared_mean_over_squared_length: f64,
    /// Empty without rows.
    choices: Vec<Choice>,
    /// `null` where no choice is worth a study.
    chosen: Option<Choice>,
    /// Why a choice of smaller error was not taken.
    passed_over: Option<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &PrepareArgs, json: bool, is_stopped: IsStopped<'_>) -> Result<()> {
    let (table, statistics) = match (&args.rows, &args.description) {
        (Some(path), _) => {
            let how = TableArgs {
                one_hot: args.one_hot.clone(),
                ..args.table.clone()
            };
            let table = rows::read_with_constants(path, &how)?.0;
            // Names read as a row would spoil every center and scale.
            let known = table.check_header_is_known();
            let statistics = known.and_then(|()| from_rows(&table));
            let statistics = statistics.map_err(|error| error.context(path.display()))?;
            (Some(table), statistics)
        }
        (None, Some(path)) => (None, from_description(path)?),
        (None, None) => return Err(CliError::usage("give --rows or --description")),
    };
    let squared_means: Vec<f64> = statistics.iter().map(|c| c.mean * c.mean).collect();
    let squares = statistics.iter();
    let squares = squares.map(|c| c.mean * c.mean + c.deviation * c.deviation);
    let mean_squares: Vec<f64> = squares.collect();
    let shares = LengthShares::from_moments(&squared_means, &mean_squares);
    let columns = columns(&statistics, &shares)?;
    let features: Vec<Feature> = columns.iter().map(|c| c.feature.clone()).collect();
    let raw = shares.warnings(|column| format!("{:?}", statistics[column].name));
    let raw = raw.iter().map(|text| format!("as the columns are, {text}"));
    let mut warnings = Vec::from_iter(raw);
    // The same checks as study create.
    Preprocessing {
        features: Some(features.clone()),
        ..Preprocessing::new(features.len(), Norm::Normalize)
    }
    .check()?;
    let choices = match (&table, args.k, args.n, args.epsilon) {
        (Some(table), Some(k), Some(n), Some(epsilon)) => {
            check_dimension(
                "prepare --rows (not --description)",
                true,
                table.dimension(),
            )?;
            let setting = Setting {
                k,
                n: n.get(),
                mechanism: args.mechanism,
                budget: args.mechanism.budget(epsilon, args.delta)?,
                cancel: Cancel::when(is_stopped),
            };
            choices(table, &features, &setting)?
        }
        _ => Vec::new(),
    };
    warnings.extend(table.as_ref().and_then(few_rows_warning));
    let chosen = choose(&choices, args, &mut warnings);
    let mut file = files::NewFile::create(&args.out)?;
    file.write(&features_csv(&features)?)?;
    file.persist()?;
    let prepared = PrepareAnswer {
        out: args.out.display().to_string(),
        columns,
        squared_mean_over_squared_length: shares.mean,
        passed_over: passed_over(&choices, chosen.as_ref()),
        choices,
        chosen,
        warnings,
    };
    if json {
        return output::json(&prepared);
    }
    print(args, &prepared)
}

/// The choice of smallest error that uses the written file and whose first component is neither the mean nor one column.
/// None, and a warning, if it could not show anything.
fn choose(choices: &[Choice], args: &PrepareArgs, warnings: &mut Vec<String>) -> Option<Choice> {
    let candidates = choices.iter().filter(|choice| choice.is_candidate());
    let best = candidates.min_by(|a, b| a.error.total_cmp(&b.error));
    let Some(best) = best else {
        if !choices.is_empty() {
            warnings.push(
                "even with these centers and scales the first component is one column or the mean: look at the columns"
                    .to_owned(),
            );
        }
        return None;
    };
    let (above, k) = (best.components_above_floor, best.k);
    let way = "more participants or a larger epsilon would help";
    let n = args.n.map_or(0, NonZeroU64::get);
    if above == 0 {
        let n = with_thousands(n);
        warnings.push(match choices.iter().any(|choice| choice.components_above_floor > 0) {
            true => format!("with {n} participants a component would stand above the noise floor only where the first is one column or the mean, or without these centers and scales: look at the columns; {way}"),
            false => format!("hopeless: with {n} participants no component of rows like these would stand above the noise floor; {way}"),
        });
        return None;
    }
    if above < k {
        warnings.push(format!(
            "only {above} of the {k} components would stand above the noise floor: ask for --k {above}; {way}"
        ));
    }
    Some(best.clone())
}

fn passed_over(choices: &[Choice], chosen: Option<&Choice>) -> Option<String> {
    let chosen = chosen?;
    let smaller = choices.iter().filter(|choice| choice.error < chosen.error);
    let smaller = smaller.map(|choice| {
        let why = match &choice.warning {
            Some(warning) => format!("first component: {warning}"),
            None => "other components, those of the columns in their own units".to_owned(),
        };
        format!("{choice}, {:.3} ({why})", choice.error)
    });
    let smaller: Vec<String> = smaller.collect();
    (!smaller.is_empty()).then(|| format!("smaller, but not taken: {}", smaller.join("; ")))
}

/// What few rows do not tell.
fn few_rows_warning(table: &RowTable) -> Option<String> {
    let n = table.len();
    (n <= MAX_FEW_ROWS).then(|| {
        format!(
            "{n} public rows are few: a center is known to ± {:.2} scales, a scale to ± {:.0} %, and an error below to about what stands behind its ± (jackknife); so few rows look simpler than many: expect a larger error",
            1.0 / (n as f64).sqrt(),
            100.0 / (2.0 * (n as f64 - 1.0)).sqrt()
        )
    })
}

fn features_csv(features: &[Feature]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = features.iter().try_for_each(|own| writer.serialize(own));
    written.map_err(|error| CliError::failed(error.to_string()))?;
    let bytes = writer.into_inner();
    bytes.map_err(|error| CliError::failed(error.to_string()))
}

/// Largest number of columns shown on a terminal; the file and the JSON have all.
const MAX_COLUMNS_SHOWN: usize = 40;

fn print(args: &PrepareArgs, prepared: &PrepareAnswer) -> Result<()> {
    output::text(&format!(
        "{:<30} {:>12} {:>12} {:>9} {:>9}  reason",
        "column", "center", "scale", "length", "mean"
    ))?;
    for column in prepared.columns.iter().take(MAX_COLUMNS_SHOWN) {
        output::text(&format!(
            "{:<30} {:>12} {:>12} {:>9} {:>9}  {}",
            column.feature.name,
            column.feature.center,
            column.feature.scale,
            percent(column.share_of_squared_length),
            percent(column.share_of_squared_mean),
            column.reason
        ))?;
    }
    match prepared.columns.len().saturating_sub(MAX_COLUMNS_SHOWN) {
        0 => {}
        more => output::text(&format!("… and {more} columns more"))?,
    }
    output::text(&format!(
        "\nlength: the column's share of the raw rows' squared length; mean: its share of their mean's squared length, which is {} of the rows'",
        percent(prepared.squared_mean_over_squared_length)
    ))?;
    for warning in &prepared.warnings {
        output::text(&format!("warning: {warning}"))?;
    }
    let ways: Vec<String> = prepared.choices.iter().map(Choice::to_string).collect();
    let wide = ways.iter().map(String::len).max().unwrap_or(0);
    if !ways.is_empty() {
        output::text(&format!(
            "\n{:<wide$} {:>14} {:>6} {:>12}  first component",
            "what a study would get", "error", "above", "mean's share"
        ))?;
    }
    for (way, choice) in ways.iter().zip(&prepared.choices) {
        output::text(&format!(
            "{way:<wide$} {:>14} {:>6} {:>12}  {}",
            choice.error_text(),
            format!("{}/{}", choice.components_above_floor, choice.k),
            percent(choice.squared_mean_over_squared_length),
            choice.warning.as_deref().unwrap_or("of several columns")
        ))?;
    }
    output::text(&format!("\nwritten: {}", prepared.out))?;
    let path = output::shell_quoted(&prepared.out);
    match (&prepared.chosen, args.epsilon) {
        (Some(chosen), Some(epsilon)) => {
            let smallest = match &prepared.passed_over {
                None => "smallest expected error",
                Some(_) => {
                    "smallest expected error with these centers and scales and a first component of several columns"
                }
            };
            output::text(&format!(
                "{smallest}, {}:\n  eigenveil study create --name NAME --features {path} --k {} --epsilon {epsilon} --mechanism {}{}",
                chosen.error_text(),
                chosen.k,
                args.mechanism,
                chosen.flags()
            ))?;
            let passed_over = prepared.passed_over.as_deref();
            passed_over.map_or(Ok(()), output::text)
        }
        (None, Some(_)) => {
            output::text("no such study is worth creating: the warnings above say why")
        }
        (_, None) => output::text(&format!(
            "  eigenveil study create --name NAME --features {path} --epsilon 4\n--bound-rows normalize needs no radius; for --bound-rows clip, --radius {} (√p) is about the length of rows scaled this way",
            rounded((prepared.columns.len() as f64).sqrt())
        )),
    }
}
