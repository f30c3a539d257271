//! `eigenveil project`: scores of rows in the estimated subspace, on this machine only.

use std::path::PathBuf;

use clap::Args;
use eigenveil_shared::estimate::Estimate;
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    output,
    rows::{self, TableArgs, Wanted},
};

/// Scores of rows in the estimated subspace, around the estimated mean if there is one; nothing is sent anywhere
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil project --estimate result/estimate.json --rows rows.npy --out scores.csv\n  eigenveil project --estimate result/estimate.json --rows people.csv --drop id --out scores.csv\n\nColumns are matched by name with the features of the estimate, where they have names."
)]
pub(crate) struct ProjectArgs {
    /// The estimate, as `eigenveil estimate` and `eigenveil demo` write it
    #[arg(long, value_name = "FILE")]
    estimate: PathBuf,
    /// Rows to project: .csv, .tsv, .parquet, .npy or LIBSVM text
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// Where to write the scores as CSV; standard output when absent
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Serialize)]
struct Projected {
    n: usize,
    p: usize,
    k: usize,
    out: String,
}

pub(crate) fn run(args: &ProjectArgs, json: bool) -> Result<()> {
    if json && args.out.is_none() {
        return Err(CliError::usage(
            "--json needs --out FILE: the scores are a table, not one object",
        ));
    }
    let estimate = read_estimate(&args.estimate)?;
    let wanted = Wanted {
        of: "estimate",
        dimension: estimate.p,
        names: estimate.study.feature_names(),
        reports: false,
    };
    let table = rows::read(&args.rows, &args.table, Some(&wanted))?;
    output::notes(table.notes());
    let preprocessor = estimate.study.preprocessor();
    let mut csv = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| CliError::failed(format!("cannot write the scores: {error}"));
    csv.write_record((1..=estimate.k).map(|j| format!("component_{j}")))
        .map_err(failed)?;
    for index in 0..table.len() {
        let row = preprocessor.prepare_features_nth(index, &table.row(index))?;
        let mut centred = row.as_slice().to_vec();
        for (x, mean) in centred.iter_mut().zip(estimate.mean.iter().flatten()) {
            *x -= mean;
        }
        csv.write_record(estimate.components.iter().map(|component| {
            let loadings = component.loadings.iter();
            let score: f64 = loadings.zip(&centred).map(|(v, x)| v * x).sum();
            score.to_string()
        }))
        .map_err(failed)?;
    }
    let bytes = csv
        .into_inner()
        .map_err(|error| CliError::failed(error.to_string()))?;
    let Some(out) = &args.out else {
        return output::text(String::from_utf8_lossy(&bytes).trim_end());
    };
    output::write_file(out, &bytes)?;
    let projected = Projected {
        n: table.len(),
        p: estimate.p,
        k: estimate.k,
        out: out.display().to_string(),
    };
    if json {
        return output::json(&projected);
    }
    output::text(&format!(
        "{} rows projected onto {} components: {}",
        projected.n, projected.k, projected.out
    ))
}

/// Reads an estimate document and checks that its parts fit together.
pub(super) fn read_estimate(path: &std::path::Path) -> Result<Estimate> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))?;
    let estimate: Estimate = serde_json::from_str(&text).map_err(|error| {
        CliError::usage(format!("{} is not an estimate ({error})", path.display()))
    })?;
    let fits = estimate.p == estimate.study.dimension()
        && estimate.k == estimate.components.len()
        && estimate
            .mean
            .as_ref()
            .is_none_or(|mean| mean.len() == estimate.p)
        && estimate
            .components
            .iter()
            .all(|c| c.loadings.len() == estimate.p);
    if !fits {
        return Err(CliError::usage(format!(
            "{} does not fit together: {} components of dimension {} for a study of {}",
            path.display(),
            estimate.components.len(),
            estimate.p,
            estimate.study.dimension()
        )));
    }
    Ok(estimate)
}
