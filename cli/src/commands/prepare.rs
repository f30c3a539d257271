//! `eigenveil prepare`: makes the public constants of a study from public rows or published statistics.

use std::{num::NonZeroU64, path::PathBuf};

use clap::Args;
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Feature, Norm, Preprocessing},
};
use serde::{Deserialize, Serialize};

use super::prepare_choices::{Choice, Setting, choices};
use crate::{
    error::{CliError, Result},
    files, output,
    rows::{self, RowTable, TableArgs},
    shares::{LengthShares, percent},
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
    /// Local randomizer of the study
    #[arg(long, default_value = "double-cap", value_parser = crate::args::parse::<MechanismKind>)]
    mechanism: MechanismKind,
    /// Failure probability δ of the (ε, δ) mechanisms [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Features file to write; an existing one is refused
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    table: TableArgs,
}

/// One column with its constants.
#[derive(Serialize)]
struct Column {
    #[serde(flatten)]
    feature: Feature,
    reason: String,
    /// Share of the squared length of the raw rows.
    share_of_squared_length: f64,
    /// Share of the squared length of the mean of the raw rows.
    share_of_squared_mean: f64,
}

#[derive(Serialize)]
struct PrepareAnswer {
    out: String,
    columns: Vec<Column>,
    /// `‖E x‖²/E‖x‖²` of the raw rows.
    squared_mean_over_squared_length: f64,
    /// Empty without rows.
    choices: Vec<Choice>,
    chosen: Option<Choice>,
    warnings: Vec<String>,
}

struct ColumnStatistics {
    name: String,
    mean: f64,
    deviation: f64,
    /// Where mean and scale come from.
    source: String,
}

pub(crate) fn run(args: &PrepareArgs, json: bool) -> Result<()> {
    let table = match &args.rows {
        Some(path) => {
            let table = rows::read_with_constants(path, &args.table)?.0;
            // Names read as a row would spoil every center and scale.
            table
                .check_header_is_known()
                .map_err(|error| error.context(path.display()))?;
            Some(table)
        }
        None => None,
    };
    let statistics = match (&table, &args.description) {
        (Some(table), _) => from_rows(table),
        (None, Some(path)) => from_description(path)?,
        (None, None) => return Err(CliError::usage("give --rows or --description")),
    };
    let squared_means: Vec<f64> = statistics.iter().map(|c| c.mean * c.mean).collect();
    let mean_squares: Vec<f64> = statistics
        .iter()
        .map(|c| c.mean * c.mean + c.deviation * c.deviation)
        .collect();
    let shares = LengthShares::from_moments(&squared_means, &mean_squares);
    let columns = columns(&statistics, &shares);
    let features: Vec<Feature> = columns.iter().map(|c| c.feature.clone()).collect();
    let mut warnings: Vec<String> = shares
        .warning(|column| format!("{:?}", statistics[column].name))
        .map(|warning| format!("as the columns are, {warning}"))
        .into_iter()
        .collect();
    // The same checks as study create.
    Preprocessing {
        features: Some(features.clone()),
        ..Preprocessing::new(features.len(), Norm::Normalize)
    }
    .check()?;
    let choices = match (&table, args.k, args.n, args.epsilon) {
        (Some(table), Some(k), Some(n), Some(epsilon)) => {
            let setting = Setting {
                k,
                n: n.get(),
                mechanism: args.mechanism,
                budget: args.mechanism.budget(epsilon, args.delta)?,
            };
            choices(table, &features, &setting)?
        }
        _ => Vec::new(),
    };
    // Only choices that use the written file and whose first component is neither the mean nor one column.
    let chosen = choices
        .iter()
        .filter(|choice| choice.uses_centers_and_scales && choice.warning.is_none())
        .min_by(|a, b| a.error.total_cmp(&b.error))
        .cloned();
    if !choices.is_empty() && chosen.is_none() {
        warnings.push(
            "even with these centers and scales the first component is one column or the mean: look at the columns"
                .to_owned(),
        );
    }
    let mut file = files::NewFile::create(&args.out)?;
    file.write(&features_csv(&features)?)?;
    file.persist()?;
    let prepared = PrepareAnswer {
        out: args.out.display().to_string(),
        columns,
        squared_mean_over_squared_length: shares.mean,
        choices,
        chosen,
        warnings,
    };
    if json {
        return output::json(&prepared);
    }
    print(args, &prepared)
}

/// Means and standard deviations of public rows.
fn from_rows(table: &RowTable) -> Vec<ColumnStatistics> {
    let n = table.len() as f64;
    let p = table.dimension();
    let mut means = vec![0.0; p];
    for index in 0..table.len() {
        for (mean, x) in means.iter_mut().zip(table.row(index).values()) {
            *mean += x / n;
        }
    }
    let mut variances = vec![0.0; p];
    for index in 0..table.len() {
        let row = table.row(index);
        for ((variance, mean), x) in variances.iter_mut().zip(&means).zip(row.values()) {
            *variance += (x - mean) * (x - mean) / n;
        }
    }
    let source = format!("of {} public rows", table.len());
    means
        .into_iter()
        .zip(variances)
        .enumerate()
        .map(|(at, (mean, variance))| ColumnStatistics {
            name: table
                .names()
                .map_or_else(|| format!("column_{}", at + 1), |names| names[at].clone()),
            mean,
            deviation: variance.sqrt(),
            source: source.clone(),
        })
        .collect()
}

/// A line of a description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescriptionLine {
    name: String,
    mean: Option<f64>,
    sd: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
}

fn from_description(path: &std::path::Path) -> Result<Vec<ColumnStatistics>> {
    let refused = |why: String| {
        CliError::usage(format!(
            "{}: {why}; it must have the columns name,mean,sd or name,min,max",
            path.display()
        ))
    };
    // The text of the error may quote a cell: a value, if it is a table of rows.
    let unlike = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        refused(format!("line {line} is not a column's description"))
    };
    let text = files::read_text(path)?;
    let mut statistics = Vec::new();
    for line in csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes())
        .deserialize()
    {
        let line: DescriptionLine = line.map_err(unlike)?;
        let (mean, deviation, source) = match (line.mean, line.sd, line.min, line.max) {
            (Some(mean), Some(sd), _, _) => (mean, sd, "as described".to_owned()),
            // A range alone suggests a uniform distribution.
            (_, _, Some(min), Some(max)) => (
                0.5 * (min + max),
                (max - min) / 12_f64.sqrt(),
                format!("of a column spread evenly from {min} to {max}"),
            ),
            _ => {
                return Err(refused(format!(
                    "{:?} has neither mean and sd nor min and max",
                    line.name
                )));
            }
        };
        // Written so that NaN fails.
        if !(mean.is_finite() && deviation.is_finite() && deviation >= 0.0) {
            return Err(refused(format!(
                "{:?} has a number that is not finite, a negative sd or a max below its min",
                line.name
            )));
        }
        statistics.push(ColumnStatistics {
            name: line.name,
            mean,
            deviation,
            source,
        });
    }
    if statistics.is_empty() {
        return Err(refused("it has no lines".to_owned()));
    }
    Ok(statistics)
}

/// Constants of few digits, and where they come from.
fn columns(statistics: &[ColumnStatistics], shares: &LengthShares) -> Vec<Column> {
    let squared: f64 = statistics.iter().map(|c| c.mean * c.mean).sum();
    statistics
        .iter()
        .zip(&shares.columns)
        .map(|(column, &share)| {
            let from = &column.source;
            let (center, scale, reason) = if column.deviation <= 1e-9 * column.mean.abs() {
                let why = "which says nothing about other values";
                (
                    column.mean,
                    1.0,
                    format!("center is its only value, {from}, {why}"),
                )
            } else {
                let scale = rounded(column.deviation);
                let why = "center and scale are the mean and standard deviation";
                (
                    round_to_scale(column.mean, scale),
                    scale,
                    format!("{why} {from}"),
                )
            };
            Column {
                feature: Feature::new(&column.name, center, scale),
                reason,
                share_of_squared_length: share,
                share_of_squared_mean: if squared > 0.0 {
                    column.mean * column.mean / squared
                } else {
                    0.0
                },
            }
        })
        .collect()
}

/// Three significant digits: a constant that people can read and type.
pub(super) fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

/// Rounded to about a hundredth of the scale.
fn round_to_scale(x: f64, scale: f64) -> f64 {
    let digits = 2.0 - scale.log10().floor();
    if (0.0..=15.0).contains(&digits) {
        // Adding 0 makes −0 a 0.
        format!("{x:.*}", digits as usize).parse().unwrap_or(x) + 0.0
    } else if digits < 0.0 {
        let step = 10_f64.powf(-digits);
        (x / step).round() * step + 0.0
    } else {
        x
    }
}

fn features_csv(features: &[Feature]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for feature in features {
        writer
            .serialize(feature)
            .map_err(|error| CliError::failed(error.to_string()))?;
    }
    writer
        .into_inner()
        .map_err(|error| CliError::failed(error.to_string()))
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
    if prepared.columns.len() > MAX_COLUMNS_SHOWN {
        output::text(&format!(
            "… and {} columns more",
            prepared.columns.len() - MAX_COLUMNS_SHOWN
        ))?;
    }
    output::text(&format!(
        "\nlength: the column's share of the raw rows' squared length; mean: its share of their mean's squared length, which is {} of the rows'",
        percent(prepared.squared_mean_over_squared_length)
    ))?;
    for warning in &prepared.warnings {
        output::text(&format!("warning: {warning}"))?;
    }
    if !prepared.choices.is_empty() {
        output::text(&format!(
            "\n{:<40} {:>6} {:>6} {:>11}  first component",
            "what a study would get", "error", "above", "mean's share"
        ))?;
    }
    for choice in &prepared.choices {
        output::text(&format!(
            "{:<40} {:>6.3} {:>6} {:>11}  {}",
            choice.to_string(),
            choice.error,
            format!("{}/{}", choice.components_above_floor, choice.k),
            percent(choice.squared_mean_over_squared_length),
            choice.warning.as_deref().unwrap_or("of several columns")
        ))?;
    }
    output::text(&format!("\nwritten: {}", prepared.out))?;
    match (&prepared.chosen, args.epsilon) {
        (Some(chosen), Some(epsilon)) => output::text(&format!(
            "smallest expected error, {:.3}:\n  eigenveil study create --name NAME --features {} --k {} --epsilon {epsilon} --mechanism {}{}",
            chosen.error,
            prepared.out,
            chosen.k,
            args.mechanism,
            chosen.flags()
        )),
        _ => output::text(&format!(
            "  eigenveil study create --name NAME --features {} --epsilon 4\n--bound-rows normalize needs no radius; for --bound-rows clip, --radius {} (√p) is about the length of rows scaled this way",
            prepared.out,
            rounded((prepared.columns.len() as f64).sqrt())
        )),
    }
}

/// The flags of `study create` for a norm.
pub(super) fn norm_flags(norm: Norm) -> String {
    match norm {
        Norm::Normalize => " --bound-rows normalize".to_owned(),
        Norm::Clip { radius } => format!(" --bound-rows clip --radius {radius}"),
        Norm::Require { radius } => format!(" --bound-rows require --radius {radius}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_rounded_to_few_digits() {
        assert_eq!((rounded(3.5240), rounded(0.001_234_5)), (3.52, 0.00123));
        assert_eq!(round_to_scale(14.127_291, 3.52), 14.13);
        assert_eq!(round_to_scale(880.583, 569.0), 881.0);
        assert_eq!(round_to_scale(123_456.0, 56_900.0), 123_500.0);
        assert!(
            round_to_scale(-0.000_1, 1.0).is_sign_positive()
                && round_to_scale(-3.0, 5e4).is_sign_positive()
        );
    }

    #[test]
    fn a_column_is_described_by_range_or_mean_and_sd() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("columns.csv");
            std::fs::write(&path, text).unwrap();
            from_description(&path)
        };
        let statistics = of("name,mean,sd,min,max\nheight,170,10,,\nshare,,,0,12\n").unwrap();
        assert_eq!((statistics[0].mean, statistics[0].deviation), (170.0, 10.0));
        assert_eq!(statistics[1].mean, 6.0);
        assert!((statistics[1].deviation - 12_f64.sqrt()).abs() < 1e-12);
        for bad in [
            "name,mean\na,1\n",
            "name,mean,sd\na,1,-2\n",
            "name,min,max\na,2,1\n",
            "name,mean,sd\n",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        // A table of rows by mistake.
        for (bad, line) in [
            ("8641.25,SECRETNAME\n1,2\n", "line 2"),
            ("name,mean,sd\nSECRETNAME,8641.25,x8641\n", "line 2"),
            ("name,mean,sd\na,1,2\nSECRETNAME,8641.25\n", "line 3"),
        ] {
            let error = of(bad).err().unwrap().to_string();
            assert!(
                error.contains(line) && !error.contains("SECRET") && !error.contains("8641"),
                "{error}"
            );
        }
    }
}
