//! `eigenveil project`: scores of rows in the estimated subspace, on this machine only.

use std::path::PathBuf;

use clap::Args;
use eigenveil_figures::biplot;
use eigenveil_shared::{
    estimate::Estimate,
    preprocess::{Norm, Preprocessing},
    wording::counted,
};
use eigenveil_tables::{ExpectedColumns, Label, Settings};
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    files, output, results,
    tables::{self, TableArgs},
};

/// Scores of rows in the estimated subspace, around the estimated mean if there is one; nothing is sent anywhere
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil project --estimate result/estimate.json --rows rows.npy --out scores.csv\n  eigenveil project --estimate result/estimate.json --rows people.csv --drop id --out scores.csv\n  eigenveil project --estimate result/estimate.json --rows rows.csv --out scores.csv --plot scatter.svg --label kind\n\nColumns are matched by name with the features of the estimate, if they have names. Scores are of the rows as the study\nprepares them: with --bound-rows normalize each row has length 1, and so no score is beyond 1."
)]
pub(crate) struct ProjectArgs {
    /// The estimate, as `eigenveil estimate` and `eigenveil demo` write it
    #[arg(long, value_name = "FILE")]
    estimate: PathBuf,
    /// Rows to project: .csv, .tsv, .parquet, .npy or .libsvm
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// Where to write the scores as CSV; standard output when absent
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
    /// SVG file of the rows in the plane of two components, with the loadings as arrows; it shows rows, so protect it
    /// as you protect them
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Column of a text table with the label or identifier of each row, written beside its scores; in the figure it
    /// decides the colour. It may be a feature of the estimate, too
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// The two components of the figure
    #[arg(long, value_name = "I,J", requires = "plot", default_value = "1,2", value_parser = axes)]
    axes: (usize, usize),
}

/// "1,2" as indices from 0.
fn axes(text: &str) -> std::result::Result<(usize, usize), String> {
    let number = |text: &str| text.trim().parse::<usize>().ok()?.checked_sub(1);
    text.split_once(',')
        .and_then(|(first, second)| number(first).zip(number(second)))
        .filter(|(first, second)| first != second)
        .ok_or_else(|| "give two different components, counted from 1, such as 1,2".to_owned())
}

#[derive(Serialize)]
struct ProjectAnswer {
    n: usize,
    p: usize,
    k: usize,
    /// The rows of the scores: prepared as the study prepares them.
    scores_of: String,
    out: String,
    plot: Option<String>,
}

pub(crate) fn run(args: &ProjectArgs, json: bool) -> Result<()> {
    if json && args.out.is_none() {
        return Err(CliError::usage(
            "--json needs --out FILE: the scores are a table, not one object",
        ));
    }
    if args.out.is_some() && args.out == args.plot {
        return Err(CliError::usage("--out and --plot are one file; give two"));
    }
    let estimate = read_estimate(&args.estimate)?;
    let constants = estimate.params.preprocessing()?;
    let expected = ExpectedColumns {
        source: "estimate",
        dimension: estimate.p,
        names: estimate.params.feature_names(),
        reports: false,
        persons: false,
        site: false,
        missing_cells: constants.allows_missing_cells(),
        other_categories: false,
    };
    let settings = args.table.settings();
    let settings = Settings {
        label: args.label.clone().map(|column| Label {
            flag: "--label",
            column,
        }),
        ..settings.map_err(|error| error.context(args.rows.display()))?
    };
    let table = tables::read(&args.rows, &settings, Some(&expected))?;
    let labels = args.label.is_some().then(|| table.labels());
    args.out.as_deref().map_or(Ok(()), files::check_table)?;
    args.plot.as_deref().map_or(Ok(()), files::check_figure)?;
    let scores = estimate.scores((0..table.len()).map(|index| table.row(index)))?;
    if let Some(plot) = &args.plot {
        let picture = biplot(&estimate, args.axes, &scores, labels);
        let picture = picture.map_err(CliError::usage)?;
        files::write(plot, picture.to_svg().as_bytes())?;
    }
    let of_rows = scored_rows(constants);
    let own = ["row".to_owned()].into_iter().chain(args.label.clone());
    let header = own.chain((1..=estimate.k).map(|j| format!("component_{j}")));
    let lines = (0..).zip(&scores).map(|(at, scores): (usize, _)| {
        let cells = std::iter::once((at + 1).to_string());
        let cells = cells.chain(labels.and_then(|labels| labels.get(at)).cloned());
        cells.chain(scores.iter().map(f64::to_string)).collect()
    });
    let bytes = results::table(header.collect(), lines)?;
    let Some(out) = &args.out else {
        output::print_notes(table.notes());
        output::print_notes(&[format!("scores of {of_rows}")]);
        return output::text(String::from_utf8_lossy(&bytes).trim_end());
    };
    files::write(out, &bytes)?;
    output::print_notes(table.notes());
    let projected = ProjectAnswer {
        n: table.len(),
        p: estimate.p,
        k: estimate.k,
        scores_of: of_rows,
        out: out.display().to_string(),
        plot: args.plot.as_ref().map(|plot| plot.display().to_string()),
    };
    if json {
        return output::json(&projected);
    }
    output::text(&format!(
        "{} projected onto {}: {} (scores of {}){}",
        counted(projected.n as u64, "row"),
        counted(projected.k as u64, "component"),
        projected.out,
        projected.scores_of,
        projected
            .plot
            .map_or_else(String::new, |plot| format!(", drawn in {plot}"))
    ))
}

/// The projected rows in words: not the rows as the file has them.
fn scored_rows(preprocessing: &Preprocessing) -> String {
    let has_missing = preprocessing.allows_missing_cells();
    let missing = match has_missing {
        true => "missing cells as centers, ",
        false => "",
    };
    let treatment = match preprocessing.norm {
        Norm::Normalize => "divided by their own length: unit-length rows".to_owned(),
        Norm::Clip { radius } if has_missing => format!(
            "divided by their length, at least by {radius} times the root of the share of cells that they have"
        ),
        Norm::Clip { radius } => {
            format!("shortened to length {radius} where longer, and divided by it")
        }
        Norm::Require { radius } => format!("divided by {radius}"),
    };
    format!(
        "rows prepared as in the study, less its centers, over its scales, {missing}{treatment}"
    )
}

/// Reads an estimate document and checks that its parts fit together.
pub(crate) fn read_estimate(path: &std::path::Path) -> Result<Estimate> {
    let text = files::read_text(path)?;
    let estimate: Estimate = serde_json::from_str(&text).map_err(|error| {
        // The text of the error may quote what stands there: a value, if it is a table.
        let (line, column) = (error.line(), error.column());
        CliError::usage(format!("{} is not an estimate (line {line}, column {column}); give an estimate.json of eigenveil estimate or eigenveil demo", path.display()))
    })?;
    if !estimate.is_consistent() {
        return Err(CliError::usage(format!(
            "{} contradicts itself: it has {} components of dimension {} for a study of dimension {}; fetch the estimate again",
            path.display(),
            estimate.components.len(),
            estimate.p,
            estimate.params.dimension()
        )));
    }
    Ok(estimate)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::preprocess::Feature;

    use super::*;

    #[test]
    fn rows_with_missing_cells_are_divided_by_less() {
        let clip = |feature| {
            scored_rows(&Preprocessing {
                features: Some(vec![feature]),
                ..Preprocessing::new(1, Norm::Clip { radius: 2.0 })
            })
        };
        let whole = clip(Feature::new("a", 0.0, 1.0));
        assert!(
            whole.ends_with(
                "over its scales, shortened to length 2 where longer, and divided by it"
            )
        );
        let missing = clip(Feature::new("a", 0.0, 1.0).observed(0.5));
        assert!(missing.ends_with("missing cells as centers, divided by their length, at least by 2 times the root of the share of cells that they have"));
    }
}
