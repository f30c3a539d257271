//! `eigenveil estimate`: starts an estimate on the server and fetches it.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use eigenveil_client::http::EstimateFormat;
use eigenveil_estimation::{
    format::with_thousands,
    planning::{UnknownError, error_in_words, known_error, known_spectrum},
    sample, sites_in_sentences,
};
use eigenveil_figures::{component_rows, estimate_figures, interval_table, site_table};
use eigenveil_shared::{
    api::{EstimateRequest, EstimateState},
    estimate::{
        BucketVerdict, ComponentCount, CountShares, Estimate, Feasibility, FeasibilityCheck,
    },
    privacy::format_epsilon,
    wording::{counted, plural},
};
use serde::Serialize;

use crate::commands::{study_name::find_study, wait};
use crate::{
    args::{OperatorArgs, SparseArgs, rank},
    error::Result,
    output, results,
};

/// Estimate the principal subspace of a study and fetch the result
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("fetches").args(["job", "wait"]).multiple(true)),
    after_help = "Examples:\n  eigenveil estimate --study ID --k auto --wait --out result/\n  eigenveil estimate --study ID --k 3 --sparse --lambda path --wait --out result/ --overwrite\n\nWrites estimate.json, components.csv (loadings by feature, verdicts in the header), components.npy (k × p) with features.txt (its columns), summary.csv (one line a component), scree.svg and alignment.svg; of a study of sites sites.csv (one line a site); of a job of eigenveil moment correlations.svg; with --sparse loadings.svg, with --lambda path lambda_path.csv, lambda_path.svg and, up to p = 100, lambda_rows.svg.\nWithout --wait the job is only started; fetch it later with --job N --wait."
)]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    /// Identifier of the study, the beginning of it, or the study's name
    #[arg(long, value_name = "ID")]
    study: String,
    /// Components: a number, or auto: those before the last gap that noise does not explain; the study's default when absent
    #[arg(long, value_name = "K|auto", value_parser = rank)]
    k: Option<ComponentCount>,
    #[command(flatten)]
    sparse: SparseArgs,
    /// Fetch the estimate with this number instead of starting one
    #[arg(long, value_name = "N", conflicts_with_all = ["k", "sparse"])]
    job: Option<u64>,
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
    /// Longest wait in seconds; the estimate continues after it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 3600,
        requires = "wait"
    )]
    timeout: u64,
    /// Directory for the result; one that has a result already is refused
    #[arg(
        long,
        value_name = "DIR",
        default_value = "eigenveil-estimate",
        requires = "fetches"
    )]
    out: PathBuf,
    /// Replace the result that is there, once the new one is computed
    #[arg(long, requires = "fetches")]
    overwrite: bool,
}

/// The files that the server makes.
const RESULT_FILES: [(EstimateFormat, &str); 3] = [
    (EstimateFormat::Json, "estimate.json"),
    (EstimateFormat::Csv, "components.csv"),
    (EstimateFormat::Npy, "components.npy"),
];

#[derive(Serialize)]
struct EstimateAnswer {
    study: String,
    job: u64,
    state: EstimateState,
    n: Option<u64>,
    p: Option<usize>,
    k: Option<usize>,
    k_is_open: Option<bool>,
    k_shares: Option<CountShares>,
    components_above_floor: Option<usize>,
    expected_error: Option<f64>,
    expected_error_range: Option<(f64, f64)>,
    /// Why the error is not known, here and with other numbers of participants.
    error_unknown: Option<String>,
    other_errors_unknown: Option<String>,
    influence: Option<f64>,
    duplicate_seeds: Option<u64>,
    feasibility: Option<FeasibilityCheck>,
    seconds: Option<f64>,
    warnings: Vec<String>,
    out: Option<String>,
}

pub(crate) async fn run(args: &EstimateArgs, json: bool) -> Result<()> {
    let client = args.operator.client()?;
    // Before the server computes anything.
    let names = [&RESULT_FILES.map(|(_, file)| file)[..], &results::NAMES].concat();
    // What is only started is not fetched, even if it is done at once.
    let fetches = args.wait || args.job.is_some();
    if fetches {
        results::check(&args.out, &names, args.overwrite)?;
    }
    let study = find_study(&client, &args.study).await?;
    let number = match args.job {
        Some(number) => number,
        None => {
            let request = EstimateRequest {
                k: args.k,
                sparse: args.sparse.settings(),
                moment: false,
            };
            client.request_estimate(&study, &request).await?.number
        }
    };
    let document = if args.wait {
        wait(&client, &study, number, args.timeout).await?
    } else {
        client.fetch_estimate(&study, number).await?
    };
    if let Some(problem) = &document.problem {
        return Err(eigenveil_shared::Error::new(problem.code, problem.detail.clone()).into());
    }
    let mut out = None;
    let mut files = Vec::new();
    if let (true, Some(estimate)) = (fetches, &document.estimate) {
        let mut written = Vec::new();
        for (format, file) in RESULT_FILES {
            let bytes = client.fetch_estimate_file(&study, number, format).await?;
            written.push((file, bytes));
        }
        written.extend(results::files(estimate, &estimate_figures(estimate, None))?);
        results::write(&args.out, &names, args.overwrite, &written)?;
        files = written.iter().map(|(name, _)| *name).collect();
        out = Some(args.out.display().to_string());
    }
    let estimate = document.estimate.as_ref();
    let estimated = EstimateAnswer {
        study: study.clone(),
        job: number,
        state: document.state,
        n: estimate.map(|e| e.n),
        p: estimate.map(|e| e.p),
        k: estimate.map(|e| e.k),
        k_is_open: estimate.map(|e| e.k_is_open),
        k_shares: estimate.and_then(|e| e.k_shares),
        components_above_floor: estimate.map(|e| e.floor.components_above),
        expected_error: estimate.and_then(|e| e.expected_error),
        expected_error_range: estimate.and_then(|e| e.expected_error_range),
        error_unknown: estimate.and_then(|e| Some(known_error(e).err()?.to_string())),
        other_errors_unknown: estimate.and_then(|e| Some(known_spectrum(e).err()?.to_string())),
        influence: estimate.map(|e| e.influence),
        duplicate_seeds: estimate.map(|e| e.duplicate_seeds),
        feasibility: estimate.and_then(|e| e.feasibility.clone()),
        seconds: estimate.map(|e| e.seconds),
        warnings: estimate.map(|e| e.warnings.clone()).unwrap_or_default(),
        out,
    };
    if json {
        return output::json(&estimated);
    }
    match (estimate, &estimated.out) {
        (Some(estimate), Some(out)) => {
            print_components(estimate)?;
            output::text(&format!("written to {out}: {}", files.join(" ")))
        }
        _ => output::text(&format!(
            "estimate {number} is {}; fetch it with: eigenveil estimate --study {} --job {number} --wait",
            document.state.as_str(),
            study
        )),
    }
}

/// The components with their verdicts, as a table for people.
pub(crate) fn print_components(estimate: &Estimate) -> Result<()> {
    let mut verdict = estimate.verdict_in_words();
    match error_in_words(estimate, |x| format!("{x:.2}")) {
        Ok(error) => verdict.push_str(&format!(", expected subspace error {error}")),
        Err(UnknownError::NoComponent) => {}
        Err(why) => verdict.push_str(&format!(", error not known: {why}")),
    }
    let sample = match estimate.sites {
        None => counted(estimate.n, "report"),
        Some(_) => sample(estimate),
    };
    output::text(&format!(
        "{sample}, p = {}, {}: {verdict}",
        estimate.p, estimate.privacy.mechanism
    ))?;
    let sentences = [estimate.count_in_sentences(), sites_in_sentences(estimate)];
    for sentence in sentences.concat() {
        output::text(&sentence)?;
    }
    let privacy = &estimate.privacy;
    let calibration = privacy
        .calibration
        .map(|calibration| format!(" (calibration {calibration})"));
    let holds = match privacy.true_epsilon.map(|real| format_epsilon(real, 6)) {
        _ if privacy.claim_holds => "which holds".to_owned(),
        Some(real) => format!("which does NOT hold: it is epsilon {real} at this delta"),
        None => "which does NOT hold: no epsilon does".to_owned(),
    };
    output::text(&format!(
        "privacy: claimed {}{}, {holds}",
        output::budget_text(privacy.epsilon, privacy.delta),
        calibration.unwrap_or_default()
    ))?;
    output::text(&format!("         {}", privacy.sentence))?;
    if let Some(centring) = output::centring_text(estimate) {
        output::text(&format!("private centring: {centring}"))?;
    }
    output::text(&format!(
        "influence: exchanging one report for another moves the moment by at most {:.2e}; \"could be made by\": the share of the {} who, acting together, could have made a component from nothing",
        estimate.influence,
        if estimate.sites.is_some() {
            "sites"
        } else {
            "participants"
        }
    ))?;
    if estimate.duplicate_seeds > 0 {
        output::text(&format!(
            "repeated seeds: {} left out, because each seed is counted once",
            counted(estimate.duplicate_seeds, "report")
        ))?;
    }
    if let Some(sparse) = &estimate.sparse {
        output::text(&output::selection_text(estimate, sparse))?;
    }
    output::text(&table(estimate))?;
    for shown in [interval_table(estimate), site_table(estimate)]
        .iter()
        .flatten()
    {
        output::text(&format!("\n{}", output::table_text(shown)))?;
    }
    if let Err(why) = known_spectrum(estimate) {
        output::text(&format!(
            "with other numbers of participants: error not known: {why}"
        ))?;
    }
    if let Some(agreement) = &estimate.bucket_agreement {
        output::text(&format!(
            "{} buckets of reports {}: largest deviation {:.1} standard deviations, chance alone reaches {:.1} in one study of 1,000; made-up reports spread evenly agree too",
            agreement.buckets,
            match agreement.verdict {
                BucketVerdict::Agree => "agree",
                BucketVerdict::Disagree => "DISAGREE",
            },
            agreement.statistic,
            agreement.threshold
        ))?;
    }
    if let Some(check) = &estimate.feasibility {
        output::text(&feasibility_text(check))?;
    }
    for warning in &estimate.warnings {
        output::text(&format!("warning: {warning}"))?;
    }
    Ok(())
}

/// A limit of the squared length, 1 at most without noise, from which on it refuses next to nothing.
const MOST_USEFUL_LIMIT: f64 = 2.0;

fn feasibility_text(check: &FeasibilityCheck) -> String {
    let infeasible = check.verdict == Feasibility::Infeasible;
    if !infeasible && check.length.limit > MOST_USEFUL_LIMIT {
        return format!(
            "{} reports are too few to tell whether rows can have made them",
            check.reports
        );
    }
    let seeds = check.seeds.as_ref().filter(|_| infeasible).map(|seeds| {
        format!(
            "; {} {} lie as near to what was found as 1 of {} random ones does, and devices alone reach fewer than {}",
            with_thousands(seeds.found),
            plural(seeds.found, "seed"),
            with_thousands(seeds.null_probability.recip().round() as u64),
            with_thousands(seeds.limit)
        )
    });
    format!(
        "rows {} these {} reports: squared length {:.3} along {}, limit {:.3}{}",
        match infeasible {
            false => "can have made",
            true => "CANNOT have made",
        },
        check.reports,
        check.length.found,
        counted(check.length.directions as u64, "direction"),
        check.length.limit,
        seeds.unwrap_or_default()
    )
}

/// One line per component; after a group of components that cannot be told apart one line for the space they span.
fn table(estimate: &Estimate) -> String {
    let rows = component_rows(estimate).map(|row| {
        [
            row.component,
            row.variance,
            row.explained,
            row.alignment,
            row.direction,
            row.could_be_made_by,
            row.verdict,
        ]
    });
    let rows: Vec<[String; 7]> = rows.collect();
    // Only where one is known.
    let with_error = |head: &str, column: usize| {
        let known = rows.iter().any(|row| row[column].contains('±'));
        format!("{head}{}", if known { " ± s.e." } else { "" })
    };
    let heads = [
        "component".to_owned(),
        with_error("variance", 1),
        "explained".to_owned(),
        with_error("alignment", 3),
        "direction".to_owned(),
        "could be made by".to_owned(),
        "verdict".to_owned(),
    ];
    output::aligned(&heads, &rows)
}
