//! `eigenveil prepare`: makes the public constants of a study from public rows, published statistics or the answers of a
//! preparation.

mod answers;

use std::{
    num::NonZeroU64,
    path::{Path, PathBuf},
};

use clap::Args;
use eigenveil_client::Holders;
use eigenveil_estimation::{
    Cancel, Table,
    format::three_digits,
    planning::{
        Choice, Column, ColumnDescription, CorrelationOutlook, MovedCorrelation, PrepareAnswer,
        PrepareRequest, PublicColumn, PublicRows, describe, prepare,
    },
};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Feature, Norm},
    wording::percent,
};
use eigenveil_tables::{Label, RowTable, Settings, identifiers};
use serde::Serialize;

use crate::{
    args::OperatorArgs,
    error::{CliError, Result},
    files, output,
    tables::{self, Names, TableArgs},
};

/// Make a study's features file (centers and scales) from public rows, a description or a preparation
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil prepare --rows public.csv --k 3 --n 20000 --epsilon 4 --out features.csv\n  eigenveil prepare --description columns.csv --out features.csv\n  eigenveil prepare --rows visits.csv --person patient --k 3 --n 20000 --epsilon 4 --out features.csv\n  eigenveil prepare --from-study ID --out features.csv\n\nThe constants are public and fixed with the study. Use public rows of the same kind (a published table, an earlier\nsurvey), never the participants' rows. A description is CSV with the columns name,mean,sd or name,min,max, as in data\nsheets and health surveys. Without either, --from-study takes the answers of a preparation, a study that asks each\nparticipant one question about one column (study create --columns)."
)]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    /// Identifier of a preparation (of its second round, if it has one), the beginning of it, or its name
    #[arg(long, value_name = "ID", conflicts_with_all = ["rows", "description", "k", "n", "epsilon", "mechanism", "delta", "one_hot", "person", "TableArgs"])]
    from_study: Option<String>,
    /// Public rows: .csv, .tsv, .parquet, .npy or .libsvm
    #[arg(long, value_name = "FILE", required_unless_present_any = ["description", "from_study"], conflicts_with_all = ["token_file", "ca_cert", "insecure_http", "proxy"])]
    rows: Option<PathBuf>,
    /// Published statistics of the columns: CSV with name,mean,sd or name,min,max
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "k", "n", "epsilon", "mechanism", "delta", "one_hot", "person", "TableArgs", "token_file", "ca_cert", "insecure_http", "proxy"])]
    description: Option<PathBuf>,
    /// Components wanted; with --rows this, --n and --epsilon are required
    #[arg(long, required_unless_present_any = ["description", "from_study"])]
    k: Option<usize>,
    /// Participants expected
    #[arg(long, required_unless_present_any = ["description", "from_study"])]
    n: Option<NonZeroU64>,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E", required_unless_present_any = ["description", "from_study"])]
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
    /// Columns of text that become one column of 0 and 1 for each value found in the public rows, such as town=Rome, or
    /// one column, sex=m|f, for two values; country=NA says that NA is a value of country, and not a missing one
    #[arg(long, value_name = "NAMES", value_parser = tables::names, requires = "rows")]
    one_hot: Option<Names>,
    /// Rows with the same text in this column are one person's: persons count alike, however many rows they have, as in
    /// report --person
    #[arg(long, value_name = "COLUMN", requires = "rows")]
    person: Option<String>,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Written<'a> {
    out: String,
    #[serde(flatten)]
    prepared: &'a PrepareAnswer,
}

impl PrepareArgs {
    /// The request, whose flags clap requires together with --rows.
    fn request(&self) -> Option<PrepareRequest> {
        Some(PrepareRequest {
            k: self.k?,
            n: self.n?,
            epsilon: self.epsilon?,
            mechanism: self.mechanism,
            delta: self.delta,
        })
    }
}

pub(crate) async fn run(args: &PrepareArgs, json: bool) -> Result<()> {
    files::check_table(&args.out)?;
    if let Some(study) = &args.from_study {
        return answers::run(args, study, json).await;
    }
    let prepared = match (&args.rows, args.request(), &args.description) {
        (Some(path), Some(request), _) => from_rows(args, path, &request)?,
        (_, _, Some(path)) => describe(&descriptions(path)?)
            .map_err(|error| CliError::from(error).context(path.display()))?,
        _ => {
            return Err(CliError::usage(
                "give --rows, --description or --from-study",
            ));
        }
    };
    let features = prepared.columns.iter().map(|column| &column.feature);
    let mut file = files::NewFile::create(&args.out)?;
    file.write(&features_csv(features)?)?;
    file.persist()?;
    let out = args.out.display().to_string();
    if json {
        let prepared = &prepared;
        return output::json(&Written { out, prepared });
    }
    print(args, &out, &prepared)
}

fn from_rows(args: &PrepareArgs, path: &Path, request: &PrepareRequest) -> Result<PrepareAnswer> {
    let label = args.person.clone().map(|column| Label {
        flag: "--person",
        column,
    });
    let settings = Settings {
        one_hot: args.one_hot.clone().map(|names| names.0),
        public_rows: true,
        label,
        ..args.table.settings()?
    };
    let table = tables::read_with_constants(path, settings)?.0;
    let in_file = |error: eigenveil_tables::Error| CliError::from(error).context(path.display());
    // If the names were read as a row, every center and scale would be wrong.
    table.check_header_is_known().map_err(in_file)?;
    let holders = match args.person {
        Some(_) => Holders::persons(identifiers(table.labels()).map_err(in_file)?),
        None => Holders::Rows(table.len()),
    };
    let columns = public_columns(&table);
    let rows = PublicRows {
        table: Table {
            len: table.len(),
            columns: table.dimension(),
            row: &|index| table.row(index),
        },
        columns: &columns,
        persons: holders.rows_of_persons(),
    };
    let bar = output::bar(0, "choices");
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let prepared = prepare(request, rows, &mut progress, Cancel::NEVER)?;
    bar.finish_and_clear();
    Ok(prepared)
}

fn public_columns(table: &RowTable) -> Vec<PublicColumn> {
    let names = table.names();
    let column = |at: usize| PublicColumn {
        name: names.map_or_else(|| format!("column_{}", at + 1), |names| names[at].clone()),
        category_of: table.is_category(at).then(|| table.file_columns()[at]),
    };
    (0..table.dimension()).map(column).collect()
}

/// The lines of a description.
fn descriptions(path: &Path) -> Result<Vec<ColumnDescription>> {
    // The text of the error may quote a cell, which in a table of rows would be a value.
    let not_a_description = |position: Option<&csv::Position>| {
        let line = position.map_or(1, csv::Position::line);
        CliError::usage(format!(
            "{}: line {line} is not a column's description; it must have the columns name,mean,sd or name,min,max",
            path.display()
        ))
    };
    let text = files::read_text(path)?;
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.trim(csv::Trim::All).from_reader(text.as_bytes());
    let heads = reader
        .headers()
        .map_err(|error| not_a_description(error.position()))?;
    let heads: csv::StringRecord = heads.iter().map(str::to_lowercase).collect();
    let description = |line: csv::Result<csv::StringRecord>| {
        let line = line.map_err(|error| not_a_description(error.position()))?;
        let cells = heads.iter().zip(&line).map(|(head, cell)| match head {
            "name" => cell.to_owned(),
            // The minus sign of typesetting.
            _ => cell.replace('\u{2212}', "-"),
        });
        let cells: csv::StringRecord = cells.collect();
        let described: csv::Result<ColumnDescription> = cells.deserialize(Some(&heads));
        described.map_err(|_| not_a_description(line.position()))
    };
    reader.records().map(description).collect()
}

/// A line of a features file whose cells may be missing.
#[derive(Serialize)]
struct ObservedLine<'a> {
    name: &'a str,
    center: f64,
    scale: f64,
    observed: Option<f64>,
    section: Option<&'a str>,
}

fn features_csv<'a>(features: impl Iterator<Item = &'a Feature>) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for feature in features {
        let written = match feature.observed {
            None => writer.serialize(feature),
            observed => writer.serialize(ObservedLine {
                name: &feature.name,
                center: feature.center,
                scale: feature.scale,
                observed,
                section: feature.section.as_deref(),
            }),
        };
        written.map_err(|error| CliError::failed(error.to_string()))?;
    }
    let bytes = writer.into_inner();
    bytes.map_err(|error| CliError::failed(error.to_string()))
}

/// Largest number of columns shown on a terminal; the file and the JSON have all.
const MAX_COLUMNS_SHOWN: usize = 40;

fn error_text(choice: &Choice) -> String {
    match choice.error_se {
        Some(se) => format!("{:.3} ± {se:.3}", choice.error),
        None => format!("{:.3}", choice.error),
    }
}

/// The flags of study create.
fn flags(choice: &Choice) -> String {
    let norm = match choice.norm {
        Norm::Normalize => " --bound-rows normalize".to_owned(),
        Norm::Clip { radius } => format!(" --bound-rows clip --radius {radius}"),
        Norm::Require { radius } => format!(" --bound-rows require --radius {radius}"),
    };
    norm + choice.centring.map_or("", |_| " --centring")
}

fn print(args: &PrepareArgs, out: &str, prepared: &PrepareAnswer) -> Result<()> {
    print_columns(prepared)?;
    for warning in &prepared.warnings {
        output::text(&format!("warning: {warning}"))?;
    }
    print_choices(&prepared.choices)?;
    output::text(&format!("\nwritten: {out}"))?;
    let path = output::shell_quoted(out);
    match (&prepared.chosen, args.epsilon) {
        (Some(chosen), Some(epsilon)) => {
            let smallest = match &prepared.passed_over {
                None => "smallest expected error",
                Some(_) => {
                    "smallest expected error, with these centers and scales, among choices whose first component is made of several columns"
                }
            };
            let k = chosen.components_above_floor.min(chosen.k);
            let advice = match k < chosen.k {
                true => format!(" for k = {}; with the k of the warning", chosen.k),
                false => String::new(),
            };
            output::text(&format!(
                "{smallest}, {}{advice}:\n  eigenveil study create --name NAME --features {path} --k {k} --epsilon {epsilon} --mechanism {}{}",
                error_text(chosen),
                args.mechanism,
                flags(chosen)
            ))?;
            let passed_over = prepared.passed_over.as_deref();
            passed_over.map_or(Ok(()), output::text)?;
            print_correlations(chosen, prepared.for_correlations.as_ref())?;
            print_plan(args, prepared, chosen, k)
        }
        (None, Some(_)) => {
            output::text("no such study is worth creating: the warnings above say why")?;
            let hidden = prepared.hidden.as_ref();
            hidden.map_or(Ok(()), |hidden| print_plan(args, prepared, hidden, 1))
        }
        (_, None) => output::text(&format!(
            "  eigenveil study create --name NAME --features {path} --epsilon 4\n--bound-rows normalize needs no radius; for --bound-rows clip, --radius {} (√p) is about the length of rows scaled this way",
            three_digits((prepared.columns.len() as f64).sqrt())
        )),
    }
}

fn print_columns(prepared: &PrepareAnswer) -> Result<()> {
    output::text(&format!(
        "{:<30} {:>12} {:>12} {:>8} {:>9} {:>9}  reason",
        "column", "center", "scale", "within", "length", "mean"
    ))?;
    for column in prepared.columns.iter().take(MAX_COLUMNS_SHOWN) {
        let within = column.scale_factor;
        output::text(&format!(
            "{:<30} {:>12} {:>12} {:>8} {:>9} {:>9}  {}",
            column.feature.name,
            column.feature.center,
            column.feature.scale,
            within.map_or_else(|| "-".to_owned(), |factor| format!("×{factor}")),
            percent(column.share_of_squared_length),
            percent(column.share_of_squared_mean),
            reason(column)
        ))?;
    }
    match prepared.columns.len().saturating_sub(MAX_COLUMNS_SHOWN) {
        0 => {}
        more => output::text(&format!("… and {more} columns more"))?,
    }
    if prepared
        .columns
        .iter()
        .any(|column| column.scale_factor.is_some())
    {
        output::text(
            "\nwithin: the scale of all people like these is at most so many times larger or smaller, in 19 of 20 cases where tails are not heavy",
        )?;
    }
    output::text(&format!(
        "\nlength: the column's share of the raw rows' squared length; mean: its share of the mean's squared length (the mean has {} of the rows' squared length)",
        percent(prepared.squared_mean_over_squared_length)
    ))
}

/// Where the constants come from, and how many people have the value.
fn reason(column: &Column) -> String {
    let observed = column.feature.observed.filter(|share| *share < 1.0);
    let observed = observed.map_or_else(String::new, |share| {
        format!("; {} have a value", percent(share))
    });
    let section = column.feature.section.as_ref();
    let section = section.map_or_else(String::new, |section| {
        format!(", missing with section {section:?}")
    });
    format!("{}{observed}{section}", column.reason)
}

fn print_choices(choices: &[Choice]) -> Result<()> {
    let ways: Vec<String> = choices.iter().map(Choice::to_string).collect();
    let width = ways.iter().map(String::len).max().unwrap_or(0);
    if ways.is_empty() {
        return Ok(());
    }
    output::text(&format!(
        "\n{:<width$} {:>14} {:>6} {:>12} {:>12} {:>7}  first component",
        "what a study would get", "error", "above", "mean's share", "correlations", "off by"
    ))?;
    for (way, choice) in ways.iter().zip(choices) {
        let outlook = choice.correlations.as_ref();
        let [error, moved] =
            outlook.map_or_else(|| ["-", "-"].map(str::to_owned), correlation_text);
        output::text(&format!(
            "{way:<width$} {:>14} {:>6} {:>12} {error:>12} {moved:>7}  {}",
            error_text(choice),
            format!("≤ {}/{}", choice.components_above_floor, choice.k),
            percent(choice.squared_mean_over_squared_length),
            choice.warning.as_deref().unwrap_or("of several columns")
        ))?;
    }
    output::text(
        "\nabove: components whose expected eigenvalue is above the noise floor; in a single study fewer may stand (simulate counts)",
    )?;
    if choices.iter().any(|choice| choice.correlations.is_some()) {
        output::text(
            "correlations: their median standard error, of those that would be given (- if none); off by: the most that preparing rows so moves one from the correlation of the values, however many take part",
        )?;
    }
    Ok(())
}

/// The median standard error, and how far a correlation is at most from that of the values.
fn correlation_text(outlook: &CorrelationOutlook) -> [String; 2] {
    let error = outlook.standard_error;
    let moved = outlook.furthest.as_ref().map(MovedCorrelation::distance);
    [
        error.map_or_else(|| "-".to_owned(), |error| format!("± {error:.3}")),
        moved.map_or_else(|| "-".to_owned(), |moved| format!("{moved:.2}")),
    ]
}

/// The correlations of the chosen study, and the study whose correlations are nearer to those of the values.
fn print_correlations(chosen: &Choice, better: Option<&Choice>) -> Result<()> {
    let outlook = chosen.correlations.as_ref();
    if let Some(moved) = outlook.and_then(|outlook| outlook.furthest.as_ref())
        && chosen.norm == Norm::Normalize
    {
        output::text(&format!(
            "its correlations are those of directions, not of values: {} ~ {} is {:.2} there, and {:.2} in the values",
            moved.feature, moved.with, moved.value, moved.of_values
        ))?;
    }
    let Some((better, outlook)) = better.and_then(|better| {
        better
            .correlations
            .as_ref()
            .map(|outlook| (better, outlook))
    }) else {
        return Ok(());
    };
    let [error, moved] = correlation_text(outlook);
    output::text(&format!(
        "if correlations are wanted:{}: expected error {}, correlations {error}, off by {moved} at most",
        flags(better),
        error_text(better)
    ))
}

/// Largest number of eigenvalues printed; the JSON has more.
const MAX_EIGENVALUES_SHOWN: usize = 30;

/// The command, and so the fields of the form, with the same figures.
fn print_plan(
    args: &PrepareArgs,
    prepared: &PrepareAnswer,
    chosen: &Choice,
    k: usize,
) -> Result<()> {
    let (Some(n), Some(epsilon)) = (args.n, args.epsilon) else {
        return Ok(());
    };
    let mut columns = prepared.columns.iter();
    if columns.any(|column| column.feature.observed.is_some()) {
        return output::text(
            "other numbers of participants: prepare with them; a plan knows of no missing cells",
        );
    }
    let spectrum = chosen.spectrum.iter().take(MAX_EIGENVALUES_SHOWN);
    let spectrum: Vec<String> = spectrum.map(f64::to_string).collect();
    let norm = match chosen.norm {
        Norm::Normalize => String::new(),
        Norm::Clip { .. } | Norm::Require { .. } => format!(
            " --bound-rows clip --mean-squared-length {}",
            chosen.mean_squared_length
        ),
    };
    let centring = chosen.centring.map_or_else(String::new, |_| {
        format!(" --centring --mean-length {}", chosen.mean_length)
    });
    output::text(&format!(
        "other numbers of participants (the form of the server's page takes the same):\n  eigenveil plan --p {} --k {k} --spectrum {} --epsilon {epsilon} --mechanism {} --n {n}{norm}{centring}",
        chosen.p,
        spectrum.join(","),
        args.mechanism
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::assert_says;

    #[test]
    fn a_description_may_have_capitals_and_the_minus_of_typesetting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("columns.csv");
        std::fs::write(&path, "Name,Mean,SD\na \u{2212} b,\u{2212}1.5,2\n").unwrap();
        let read = descriptions(&path).unwrap();
        assert_eq!(read[0].name, "a \u{2212} b");
        assert_eq!((read[0].mean, read[0].sd), (Some(-1.5), Some(2.0)));
    }

    /// A table of rows by mistake.
    #[test]
    fn an_error_in_a_description_quotes_no_cell() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("columns.csv");
        for (bad, line) in [
            ("8641.25,SECRETNAME\n1,2\n", "line 2"),
            ("name,mean,sd\nSECRETNAME,8641.25,x8641\n", "line 2"),
            ("name,mean,sd\na,1,2\nSECRETNAME,8641.25\n", "line 3"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let error = descriptions(&path).unwrap_err();
            assert_says(&error, &[line], &["SECRET", "8641"]);
        }
    }
}
