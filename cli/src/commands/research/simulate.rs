//! `eigenveil simulate`: an in-process experiment with a known true subspace.

use std::path::PathBuf;

use clap::Args;
use eigenveil_central::{ModelKind, SimulateRequest, simulate};
use eigenveil_estimation::{
    Cancel,
    metrics::max_error,
    simulate::{NoisePath, SimulateAnswer},
};
use eigenveil_figures::sweep_chart;
use eigenveil_shared::{
    preprocess::{BoundRows, Row},
    privacy::{format_delta, format_epsilon},
    site_study::SiteWeights,
};

use super::model::{ModelArg, ModelArgs};
use crate::{
    args::{MechanismArgs, SparseArgs},
    error::Result,
    files, output,
    tables::{self, TableArgs},
};

/// Run an experiment in this process, with a known true subspace
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil simulate --model spiked --p 40 --k 5 --spike 20 --n 100000 --epsilon 4 --repeats 20\n  eigenveil simulate --model sparse --p 200 --k 3 --s 15 --spike 60 --n 100000 --epsilon 4 --sparse\n  eigenveil simulate --rows rows.npy --k 3 --n 1000000 --epsilon 2 --json\n  eigenveil simulate --rows rows.npy --k 3 --s 10 --sparse --n 100000 --epsilon 4\n  eigenveil simulate --model spiked --p 40 --k 5 --n 100000 --sites 1,10,100,1000 --epsilon 0.25,1,4 --delta 1e-7 --repeats 10 --plot sites.svg\n\nRows with missing cells need --features FILE with the shares of people who have each value, as prepare writes it.\nThe noise comes from a seeded generator: a simulation protects nobody."
)]
pub(crate) struct SimulateArgs {
    /// Synthetic population
    #[arg(
        long,
        value_enum,
        required_unless_present = "rows",
        conflicts_with_all = ["rows", "TableArgs"],
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
    /// Participants, or rows of all sites together
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        required_unless_present = "site_rows"
    )]
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
    /// Sites among which the rows are divided evenly, each with one report of its table; 1 is a curator. As many rows as
    /// --rows has are divided, each once
    #[arg(long, value_name = "S,…", value_delimiter = ',')]
    sites: Vec<u64>,
    /// Rows of each site, in place of --n and --sites
    #[arg(long, value_name = "M,…", value_delimiter = ',', conflicts_with_all = ["n", "sites"])]
    site_rows: Vec<u64>,
    /// Weights of the sites: rows, or precision, for a population that all sites share
    #[arg(long, value_name = "W", default_value = "rows", value_parser = crate::args::parse::<SiteWeights>)]
    site_weights: SiteWeights,
    /// Degrees by which each site's components are tilted; the error is against those of all rows together
    #[arg(long, value_name = "DEGREES")]
    tilt: Option<f64>,
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

impl From<&SimulateArgs> for SimulateRequest {
    fn from(args: &SimulateArgs) -> Self {
        let mechanism = &args.mechanism;
        Self {
            model: args.model.map(ModelKind::from),
            model_settings: args.of_model.into(),
            p: args.p.clone(),
            n: args.n.clone(),
            k: args.k.clone(),
            s: args.s.clone(),
            epsilon: args.epsilon.clone(),
            mechanism: mechanism.mechanism,
            calibration: mechanism.calibration.unwrap_or_default(),
            delta: mechanism.delta,
            features: None,
            bound_rows: mechanism.norm.norm.map(BoundRows::from),
            radius: mechanism.norm.radius,
            centring: mechanism.centring,
            sparse: args.sparse.settings(),
            repeats: args.repeats,
            noise: args.noise,
            seed: args.seed,
            sites: args.sites.clone(),
            site_rows: args.site_rows.clone(),
            site_weights: args.site_weights,
            tilt: args.tilt,
        }
    }
}

pub(crate) fn run(args: &SimulateArgs, json: bool) -> Result<()> {
    let path = args.rows.as_deref();
    let read = path.map(|path| tables::read_with_constants(path, args.table.settings()?));
    let (table, features) = read.transpose()?.unzip();
    let rows: Option<Vec<Row>> =
        table.map(|table| (0..table.len()).map(|index| table.row(index)).collect());
    args.plot.as_deref().map_or(Ok(()), files::check_figure)?;
    let mechanism = &args.mechanism;
    mechanism
        .mechanism
        .unwrap_or_default()
        .calibration(mechanism.calibration)?;
    let request = SimulateRequest {
        features: features.flatten(),
        ..SimulateRequest::from(args)
    };
    let bar = output::bar(request.participants(), "participants");
    let (sweep, warnings) = simulate(
        &request,
        rows.as_deref(),
        &mut |done| bar.inc(done),
        Cancel::NEVER,
    )?;
    bar.finish_and_clear();
    output::print_warnings(&warnings);
    if let Some(path) = &args.plot {
        let chart = sweep_chart(&sweep.rows, args.title.as_deref(), args.sparse.sparse);
        output::write_figure(path, &chart)?;
    }
    match (json, sweep.rows.as_slice()) {
        (true, _) => output::json(&sweep),
        (false, [one]) => print(args, one),
        (false, rows) => print_table(rows, args.sparse.sparse),
    }
}

fn print(args: &SimulateArgs, simulated: &SimulateAnswer) -> Result<()> {
    let who = match simulated.sites {
        None => "participants".to_owned(),
        Some(1) => "rows at 1 site".to_owned(),
        Some(sites) => format!("rows at {sites} sites"),
    };
    output::text(&format!(
        "{} {who}, p = {}, k = {}, {}, {}, noise {}, {} repeats in {:.1} s",
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
        output::mean_and_sd(simulated.error_mean, simulated.error_sd),
        max_error(simulated.p, simulated.k)
    ))?;
    output::text(&format!(
        "predicted          {}   from the noiseless spectrum",
        number(simulated.error_predicted_from_truth)
    ))?;
    output::text(&format!(
        "expected           {}   as an analyst would see it",
        number(simulated.error_predicted_from_data)
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
    let of_sites = rows.iter().any(|row| row.sites.is_some());
    output::text(&format!(
        "{:>9}{} {:>6} {:>4} {:>4} {:>7}  {:>8} {:>7} {:>9} {:>11} {:>10}{}",
        "n",
        if of_sites { "  sites" } else { "" },
        "p",
        "k",
        "s",
        "epsilon",
        "error",
        "± s.d.",
        "predicted",
        "no privacy",
        "above of p",
        if sparse {
            "  plain PCA  support F1"
        } else {
            ""
        }
    ))?;
    for row in rows {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| output::decimals(v, 4));
        let mut line = format!(
            "{:>9}{} {:>6} {:>4} {:>4} {:>7}  {:>8} {:>7} {:>9} {:>11} {:>10.1}",
            row.n,
            row.sites
                .map_or(String::new(), |sites| format!(" {sites:>6}")),
            row.p,
            row.k,
            row.s.map_or("-".to_owned(), |s| s.to_string()),
            row.epsilon,
            output::decimals(row.error_mean, 4),
            number(row.error_sd),
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
