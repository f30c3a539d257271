//! `eigenveil moment`: the second moment of a study, with covariances, correlations and a regression.

use std::path::PathBuf;

use clap::Args;
use eigenveil_client::http::OperatorClient;
use eigenveil_estimation::{
    format::with_thousands,
    statistics::{
        Correlation, MomentAnswer, MomentRequest, MomentTables, NamedRegression, Refusal, Z_95,
        correlation_of, moment, norm_caveat,
    },
};
use eigenveil_figures::{Figure as _, correlation_map};
use eigenveil_shared::{
    api::EstimateRequest, estimate::Estimate, parameters::Parameters, wording::plural,
};
use eigenveil_tables::npy;
use nalgebra::DMatrix;
use serde::Serialize;

use crate::commands::{estimate_of, project::read_estimate, study_name::find_study, wait};
use crate::{
    args::OperatorArgs,
    error::{CliError, Result},
    output,
    results::{self, ResultFile},
    tables,
};

/// Compute the second moment of a study: covariances, correlations and a regression with 95 % intervals, from the
/// reports received so far, at no further privacy cost
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil moment --study ID --out moment/\n  eigenveil moment --estimate moment/estimate.json --regress weight --on height,age\n\nWrites covariance.csv and correlation.csv (a line for each pair of features: value, standard error, interval, or why it is refused), correlations.svg (their map), mean.csv with private centring, regression.csv with --regress, moment.npy (unbiased), moment-projected.npy (the nearest moment that a population can have, which the tables show), standard-errors.npy, features.txt (their rows) and estimate.json (the estimate with the mean report: further questions need no server).\nAll values are in units of the prepared rows."
)]
pub(crate) struct MomentArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    /// Identifier of the study, the beginning of it, or the study's name
    #[arg(long, value_name = "ID", required_unless_present = "estimate")]
    study: Option<String>,
    /// Read an estimate.json that moment --out wrote, instead of asking the server
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["study", "token_file", "proxy", "insecure_http", "ca_cert"]
    )]
    estimate: Option<PathBuf>,
    /// Fetch the estimate with this number, which an earlier `eigenveil moment` started, instead of starting one
    #[arg(long, value_name = "N", conflicts_with = "estimate")]
    job: Option<u64>,
    /// Longest wait in seconds; the estimate continues after it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 3600,
        conflicts_with = "estimate"
    )]
    timeout: u64,
    /// Feature to predict from those of --on
    #[arg(long, value_name = "NAME", requires = "on")]
    regress: Option<String>,
    /// Features from which to predict the feature of --regress, separated by commas
    #[arg(long, value_name = "A,B,C", requires = "regress")]
    on: Option<String>,
    /// Correlations to print, the largest first; correlation.csv has all
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Directory for the files, without which nothing is written; one that already has a result is refused
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the result that is there, once the new one is computed
    #[arg(long, requires = "out")]
    overwrite: bool,
}

/// Files that may be written.
const FILES: [&str; 10] = [
    "estimate.json",
    "features.txt",
    "moment.npy",
    "moment-projected.npy",
    "standard-errors.npy",
    "mean.csv",
    "covariance.csv",
    "correlation.csv",
    "correlations.svg",
    "regression.csv",
];

/// The document of `--json`.
#[derive(Serialize)]
struct Written {
    study: Option<String>,
    job: Option<u64>,
    out: Option<String>,
    #[serde(flatten)]
    answer: MomentAnswer,
}

impl MomentArgs {
    /// The request. A name with a comma needs no quotes if it is the only one.
    fn request(&self, params: &Parameters) -> Result<MomentRequest> {
        let names = params.feature_names().unwrap_or_default();
        let listed = |text: &String| match names.contains(text) {
            true => Ok(vec![text.clone()]),
            false => tables::names(text)
                .map(|found| found.0)
                .map_err(CliError::usage),
        };
        let regress = match &self.regress {
            None => None,
            Some(y) => match &listed(y)?[..] {
                [one] => Some(one.clone()),
                _ => Some(y.clone()),
            },
        };
        let on = self.on.as_ref().map(listed).transpose()?;
        Ok(MomentRequest {
            regress,
            on: on.unwrap_or_default(),
            top: self.top,
        })
    }
}

pub(crate) async fn run(args: &MomentArgs, json: bool) -> Result<()> {
    // An input is read first, since no output is written over it.
    let read = args.estimate.as_deref().map(read_estimate).transpose()?;
    // Checked before the server computes anything.
    if let Some(out) = &args.out {
        results::check(out, &FILES, args.overwrite)?;
    }
    let (estimate, request, source) = match (read, &args.study) {
        (Some(estimate), _) => {
            let request = args.request(&estimate.params)?;
            (estimate, request, None)
        }
        (None, study) => {
            let client = args.operator.client()?;
            let study = study.as_deref().unwrap_or_default();
            let study = find_study(&client, study).await?;
            let params = client.study(&study).await?.params;
            let request = args.request(&params)?;
            request.check(&params)?;
            let (estimate, job) = fetched(&client, &study, args).await?;
            (estimate, request, Some((study, job)))
        }
    };
    let (answer, tables) = moment(&request, &estimate)?;
    let names = estimate.feature_names();
    if let Some(out) = &args.out {
        let files = files(&estimate, &tables, &names, answer.regression.as_ref())?;
        results::write(out, &FILES, args.overwrite, &files)?;
    }
    let (study, job) = source.unzip();
    let written = Written {
        study,
        job,
        out: args.out.as_ref().map(|out| out.display().to_string()),
        answer,
    };
    if json {
        return output::json(&written);
    }
    let mut correlations = tables.correlations.iter();
    let refusal = correlations.find_map(|(_, _, correlations)| correlations.err());
    print(&written, &estimate, refusal.map(|why| why.in_words(&names)))
}

/// The estimate with the mean report, started unless `--job` names one, and its number.
async fn fetched(
    client: &OperatorClient,
    study: &str,
    args: &MomentArgs,
) -> Result<(Estimate, u64)> {
    let number = match args.job {
        Some(number) => number,
        None => {
            let request = EstimateRequest {
                moment: true,
                ..EstimateRequest::default()
            };
            client.request_estimate(study, &request).await?.number
        }
    };
    let done = wait(client, study, number, args.timeout).await?;
    Ok((estimate_of(done)?, number))
}

fn files(
    estimate: &Estimate,
    MomentTables {
        moment,
        correlations,
    }: &MomentTables,
    names: &[String],
    regression: Option<&NamedRegression>,
) -> Result<Vec<ResultFile>> {
    let p = moment.dimension();
    // Symmetric: columns are rows.
    let square = |matrix: &DMatrix<f64>| npy::write(p, p, matrix.iter().copied());
    let errors = moment.standard_errors();
    let document = serde_json::to_vec(estimate)
        .map_err(|error| CliError::failed(format!("cannot write the estimate: {error}")))?;
    let shown = moment.projected().unwrap_or(moment.raw());
    let covariances = (0..p).flat_map(|i| (i..p).map(move |j| (i, j)));
    let covariances = covariances.map(|(i, j)| {
        // With double-cap the variances may not be known at all.
        let refused = || Refusal::NoVariances.in_words(names);
        let value = (!shown[(i, j)].is_nan()).then(|| interval(shown[(i, j)], errors[(i, j)]));
        line(&[&names[i], &names[j]], value.ok_or_else(refused))
    });
    let map = correlation_map(estimate, correlations).to_svg();
    let correlations = correlations.iter().map(|(i, j, found)| {
        let found = found.map(|c| [c.value, c.standard_error, c.low, c.high]);
        let found = found.map_err(|refusal| refusal.in_words(names));
        line(&[&names[*i], &names[*j]], found)
    });
    let pair = || header(&["feature", "with"]);
    let mut files = vec![
        ("estimate.json", document),
        ("features.txt", (names.join("\n") + "\n").into_bytes()),
        ("moment.npy", square(moment.raw())),
        ("standard-errors.npy", square(&errors)),
        ("covariance.csv", results::table(pair(), covariances)?),
        ("correlation.csv", results::table(pair(), correlations)?),
        ("correlations.svg", map.into_bytes()),
    ];
    if let Some(projected) = moment.projected() {
        files.push(("moment-projected.npy", square(projected)));
    }
    if let Some(mean) = moment.mean() {
        let lines = mean.iter().enumerate().map(|(i, &value)| {
            let error = moment.mean_standard_error(i).unwrap_or(f64::NAN);
            line(&[&names[i]], Ok(interval(value, error)))
        });
        files.push(("mean.csv", results::table(header(&["feature"]), lines)?));
    }
    if let Some(regression) = regression {
        let coefficients = regression.coefficients.iter().map(|named| {
            let c = named.coefficient;
            let numbers = [c.value, c.standard_error, c.low, c.high];
            line(&[&regression.feature, &named.feature], Ok(numbers))
        });
        let refused = regression.refused.iter().map(|why| {
            let on = regression.on.join("; ");
            line(&[&regression.feature, &on], Err(why.clone()))
        });
        files.push((
            "regression.csv",
            results::table(header(&["feature", "on"]), coefficients.chain(refused))?,
        ));
    }
    Ok(files)
}

fn header(names: &[&str]) -> Vec<String> {
    let numbers = ["value", "standard_error", "low", "high", "refused"];
    let all = names.iter().chain(&numbers);
    all.map(|name| (*name).to_owned()).collect()
}

/// A line of a table: names, four numbers, or the reason why there are none.
fn line(names: &[&str], numbers: std::result::Result<[f64; 4], String>) -> Vec<String> {
    let mut cells: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    match numbers {
        Ok(numbers) => {
            cells.extend(numbers.map(|number| number.to_string()));
            cells.push(String::new());
        }
        Err(refused) => {
            cells.extend(std::iter::repeat_n(String::new(), 4));
            cells.push(refused);
        }
    }
    cells
}

/// Value, standard error and the ends of the 95 % interval.
fn interval(value: f64, error: f64) -> [f64; 4] {
    [value, error, value - Z_95 * error, value + Z_95 * error]
}

fn print(
    Written { answer, out, .. }: &Written,
    estimate: &Estimate,
    refusal: Option<String>,
) -> Result<()> {
    let norm = estimate.params.preprocessing()?.norm;
    output::text(&norm_caveat(norm))?;
    output::text(if answer.around_the_mean {
        "around the mean, which private centring estimates; units of the prepared rows"
    } else {
        "around the public centers, not around the mean: features whose means differ from their centers appear correlated (study create --centring estimates the mean); units of the prepared rows"
    })?;
    output::text(&format!(
        "{} {}, p = {}; computed from these reports alone: no further epsilon is spent",
        with_thousands(answer.n),
        plural(answer.n, "report"),
        answer.p
    ))?;
    let shown_pairs = answer.correlations.len();
    if shown_pairs > 0 {
        output::text(&format!(
            "\nlargest by {}, {shown_pairs} of {} pairs (with 95 % intervals)",
            correlation_of(norm),
            with_thousands(answer.pairs as u64)
        ))?;
        let rows = answer.correlations.iter().map(|pair| {
            let label = format!("{} ~ {}", pair.feature, pair.with);
            let Correlation {
                value, low, high, ..
            } = pair.correlation;
            let interval = format!("{low:.3} to {high:.3}");
            [label, format!("{value:.3}"), interval]
        });
        output::text(&aligned(&rows.collect::<Vec<_>>()))?;
    }
    if let Some(why) = refusal {
        output::text(&format!(
            "refused: {} of {} correlations; the first because {why}",
            with_thousands(answer.refused as u64),
            with_thousands(answer.pairs as u64)
        ))?;
    }
    if let Some(regression) = &answer.regression {
        let on = regression.on.join(", ");
        match &regression.refused {
            Some(why) => output::text(&format!(
                "\nregression of {} on {on} refused: {why}",
                regression.feature
            ))?,
            None => {
                output::text(&format!(
                    "\nregression of {} on {on}: coefficients with 95 % intervals",
                    regression.feature
                ))?;
                let rows = regression.coefficients.iter().map(|named| {
                    let c = named.coefficient;
                    let [value, low, high] =
                        [c.value, c.low, c.high].map(|x| output::decimals(x, 4));
                    [named.feature.clone(), value, format!("{low} to {high}")]
                });
                output::text(&aligned(&rows.collect::<Vec<_>>()))?;
            }
        }
    }
    for warning in &answer.warnings {
        output::text(&format!("warning: {warning}"))?;
    }
    match out {
        Some(out) => output::text(&format!("written to {out}")),
        None => Ok(()),
    }
}

/// Names to the left, numbers to the right.
fn aligned(rows: &[[String; 3]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let [first, second, third] = [width(0), width(1), width(2)];
    let lines = rows.iter().map(|[name, value, interval]| {
        format!("  {name:<first$}  {value:>second$}  {interval:>third$}")
    });
    lines.collect::<Vec<_>>().join("\n")
}
