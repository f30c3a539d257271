//! `eigenveil plan`: how many participants a target error needs.

use std::{cmp::Ordering, num::NonZeroU64, path::PathBuf};

use clap::{ArgGroup, Args};
use eigenveil_estimation::{
    Cancel,
    format::{people, with_thousands},
    metrics::max_error,
    planning::{
        ErrorPlan, PlanAnswer, PlanRequest, PlanRow, PlanSetting, RANDOM, SizePlan, SizeRow,
        is_guess, plan,
    },
    preparation::{PreparationPlan, PreparationPlanRequest, plan_preparation},
};
use eigenveil_figures::plan_chart;
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    preprocess::BoundRows,
    privacy::format_epsilon,
    site_study::SiteWeights,
};
use eigenveil_tables::questions;

use crate::commands::project::read_estimate;
use crate::{
    args::{DEFAULT_CENTRING_TEXT, NormArg},
    error::Result,
    files, output,
};

/// Plan a study: how many users a target error needs, or the error to expect with a given number, for every mechanism
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("asked").args(["p", "columns"])),
    after_help = "Examples:\n  eigenveil plan --p 40 --k 2 --spectrum 0.3,0.2,0.05 --epsilon 1,2,4 --target-error 0.3\n  eigenveil plan --p 40 --k 2 --spectrum 0.3,0.2,0.05 --epsilon 4 --n 100000,1000000 --plot plan.svg\n  eigenveil plan --pilot result/estimate.json --k 2 --epsilon 4 --target-error 0.3\n  eigenveil plan --p 40 --k 2 --spectrum 0.15,0.1,0.02 --centring --mean-length 0.8 --epsilon 4 --target-error 0.3\n\n  eigenveil plan --p 40 --k 3 --epsilon 4 --n 20000,100000\n  eigenveil plan --p 40 --k 2 --spectrum 0.3,0.2,0.05 --epsilon 1 --delta 1e-7 --sites 10 --rows 100000 --plot plan.svg\n  eigenveil plan --prepare --p 30 --n 20000 --epsilon 1,2,4\n  eigenveil plan --prepare --columns columns.csv --n 20000 --epsilon 1,2,4\n\nThe error is a root mean square of the distance between projectors, 0 to √(2k); single runs vary around it.\nTake the spectrum from a pilot, from public data, or from a guess, never from the participants' own rows.\nWith a pilot the plan has a range that holds the truth in nine of ten cases: the plan uses the pessimistic end of that range. With a part of the eigenvalues it has one, too: the error depends on the difference of components k and k + 1, so give k + 1 of them or more.\nWithout either no error is known: the plan says how small a component n participants can show."
)]
pub(crate) struct PlanArgs {
    /// Plan a preparation instead, which finds centers and scales without public rows: how many of the --n people
    /// prepare, and what that gives, for --p columns of numbers, or for --columns
    #[arg(long, requires = "asked", requires = "n", conflicts_with_all = [
        "k", "delta", "mechanism", "calibration", "spectrum", "pilot", "target_error", "norm", "mean_squared_length",
        "centring", "mean_length", "sites", "rows", "site_rows", "site_weights", "plot",
    ])]
    prepare: bool,
    /// Dimension of the rows
    #[arg(long)]
    p: Option<usize>,
    /// CSV with the columns name,kind of a preparation, as for study create
    #[arg(long, value_name = "FILE", requires = "prepare")]
    columns: Option<PathBuf>,
    /// Components wanted [default: all of the pilot's; 3 without a spectrum]
    #[arg(long)]
    k: Option<usize>,
    /// Privacy-loss bound ε of one report, at most 16; several values with commas
    #[arg(long, value_name = "E,…", value_delimiter = ',', required = true)]
    epsilon: Vec<f64>,
    /// Failure probability δ of the (ε, δ) mechanisms [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Mechanisms to compare [default: all]
    #[arg(long, value_name = "M,…", value_delimiter = ',', value_parser = crate::args::parse::<MechanismKind>)]
    mechanism: Vec<MechanismKind>,
    /// as-published adds a row for the paper's own noise of symmetric-gaussian, with its true ε
    #[arg(long, default_value = "analytic", value_parser = crate::args::parse::<Calibration>)]
    calibration: Calibration,
    /// The k leading eigenvalues of E[xxᵀ] of prepared rows, or better more: at least the next one. With --bound-rows
    /// normalize all p of them sum to 1
    #[arg(
        long,
        value_name = "A,B,…",
        value_delimiter = ',',
        conflicts_with = "pilot"
    )]
    spectrum: Vec<f64>,
    /// An estimate.json of this program: its spectrum with its uncertainty, its p and its preprocessing
    #[arg(long, value_name = "FILE")]
    pilot: Option<PathBuf>,
    /// Target error ‖V̂V̂ᵀ−VVᵀ‖_F, below √(2k)
    #[arg(long, value_name = "X", conflicts_with = "n")]
    target_error: Option<f64>,
    /// Participants expected; several values with commas
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    n: Vec<NonZeroU64>,
    /// How rows are brought into the unit ball [default: normalize]
    #[arg(long = "bound-rows", value_enum, conflicts_with = "pilot")]
    norm: Option<NormArg>,
    /// Mean squared length of the prepared rows, at most 1 (for --bound-rows clip and require; normalize makes it 1)
    #[arg(long, value_name = "T")]
    mean_squared_length: Option<f64>,
    /// Plan for private centring with the constant A [default A: 1/√2]: the spectrum is then that of the covariance; components are assumed to be orthogonal to the mean
    #[arg(long, value_name = "A", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_CENTRING_TEXT, requires = "mean_length", conflicts_with = "pilot")]
    centring: Option<f64>,
    /// Length of the mean E x of the prepared rows, 0 to 1, for --centring; typically 0.7 to 0.9 if every feature is
    /// positive
    #[arg(long, value_name = "L", requires = "centring")]
    mean_length: Option<f64>,
    /// Rows are divided evenly among so many sites, each with one report of its table; beside them the plan has a curator
    /// with all rows, and each row's own report
    #[arg(long, value_name = "S", conflicts_with = "n")]
    sites: Option<NonZeroU64>,
    /// Rows of all sites together; several values with commas
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        requires = "sites",
        conflicts_with = "target_error"
    )]
    rows: Vec<NonZeroU64>,
    /// Rows of each site, in place of --sites and --rows; with --target-error their proportions
    #[arg(long, value_name = "M,…", value_delimiter = ',', conflicts_with_all = ["n", "sites", "rows"])]
    site_rows: Vec<NonZeroU64>,
    /// Weights of the sites: rows, or precision, for a population that all sites share
    #[arg(long, value_name = "W", default_value = "rows", value_parser = crate::args::parse::<SiteWeights>)]
    site_weights: SiteWeights,
    /// Draw the expected error against n as SVG; without a spectrum, the smallest component that shows
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl From<&PlanArgs> for PlanRequest {
    fn from(args: &PlanArgs) -> Self {
        Self {
            p: args.p,
            k: args.k,
            epsilon: args.epsilon.clone(),
            delta: args.delta,
            mechanism: args.mechanism.clone(),
            calibration: args.calibration,
            spectrum: args.spectrum.clone(),
            target_error: args.target_error,
            n: args.n.clone(),
            bound_rows: args.norm.map(BoundRows::from),
            mean_squared_length: args.mean_squared_length,
            centring: args.centring,
            mean_length: args.mean_length,
            sites: args.sites,
            rows: args.rows.clone(),
            site_rows: args.site_rows.clone(),
            site_weights: args.site_weights,
        }
    }
}

pub(crate) fn run(args: &PlanArgs, json: bool) -> Result<()> {
    if args.prepare {
        return plan_to_prepare(args, json);
    }
    let pilot = args.pilot.as_deref().map(read_estimate).transpose()?;
    args.plot.as_deref().map_or(Ok(()), files::check_figure)?;
    let request = PlanRequest::from(args);
    let (answer, warnings) = plan(&request, pilot.as_ref(), Cancel::NEVER)?;
    output::print_warnings(&warnings);
    if let Some(path) = &args.plot {
        output::write_figure(path, &plan_chart(&answer)?)?;
    }
    match &answer {
        _ if json => output::json(&answer),
        PlanAnswer::Errors(plan) => print(plan),
        PlanAnswer::Sizes(plan) => print_sizes(plan),
    }
}

/// Plans of a preparation, for each ε and each number of people.
fn plan_to_prepare(args: &PlanArgs, json: bool) -> Result<()> {
    let columns = match &args.columns {
        Some(path) => Some(questions::parse(path, &files::read_text(path)?)?.0),
        None => None,
    };
    let request = |epsilon: f64, n: u64| match &columns {
        Some(columns) => PreparationPlanRequest::of_columns(columns.clone(), n, epsilon),
        None => Ok(PreparationPlanRequest {
            columns: args.p.unwrap_or_default() as u64,
            answers: 3,
            n,
            epsilon,
        }),
    };
    let mut plans = Vec::new();
    for epsilon in &args.epsilon {
        for n in &args.n {
            plans.push(plan_preparation(&request(*epsilon, n.get())?)?);
        }
    }
    if json {
        return output::json(&serde_json::json!({ "plans": plans }));
    }
    output::text(&format!(
        "{:>7} {:>14} {:>12} {:>12} {:>14} {:>8} {:>10} {:>10} {:>14}",
        "epsilon",
        "people",
        "prepare",
        "first round",
        "left for study",
        "N",
        "center",
        "scale",
        "further loss"
    ))?;
    for plan in &plans {
        output::text(&format!(
            "{:>7} {:>14} {:>12} {:>12} {:>14} {:>8} {:>10} {:>10} {:>14}",
            plan.epsilon,
            with_thousands(plan.n),
            with_thousands(plan.prepare),
            with_thousands(plan.first_round),
            with_thousands(plan.study),
            plan.effective_answers.round(),
            format!("± {:.2} σ", plan.center_within),
            format!("× {:.2}", plan.scale_within),
            format!(
                "{} ({}) %",
                plan.further_loss, plan.further_loss_of_nine_in_ten
            )
        ))?;
    }
    output::text(
        "\nN: effective answers about the column whose question has most answers, about others more; center: in 19 of 20 cases, scale: in two of three, where tails are not heavy; further loss: of the variance of the study's first components, on average (and for nine of ten tables). Of those who prepare 40 % are asked in the first round, the others, later, in the second one; ask all in one round where the ranges are real limits, as of scores.",
    )?;
    let mut sentences: Vec<String> = plans.iter().flat_map(PreparationPlan::sentences).collect();
    sentences.dedup();
    sentences
        .iter()
        .try_for_each(|sentence| output::text(sentence))
}

/// A mechanism in a table; the default calibration is not mentioned.
fn name(setting: &PlanSetting) -> String {
    if let Some(sites) = setting.sites {
        return match sites {
            1 => format!("a curator, {}", setting.mechanism),
            many => format!("{} sites, {}", with_thousands(many), setting.mechanism),
        };
    }
    let published = Some(Calibration::AsPublished);
    match setting.calibration == published {
        true => format!("{}, {}", setting.mechanism, Calibration::AsPublished),
        false => setting.mechanism.to_string(),
    }
}

fn print(plan: &ErrorPlan) -> Result<()> {
    for note in &plan.notes {
        output::text(note)?;
    }
    output::text(&format!(
        "{:<34} {:>7} {:>8} {:>12} {:>18} {:>18} {:>7} {:>14}",
        "mechanism",
        "epsilon",
        "delta",
        "true epsilon",
        if has_sites(plan) { "rows" } else { "users" },
        "error (expected)",
        "above",
        "bytes a report"
    ))?;
    for row in &plan.rows {
        output::text(&format!(
            "{:<34} {:>7} {:>8} {:>12} {:>18} {:>18} {:>7} {:>14}",
            name(&row.setting),
            row.setting.epsilon,
            match row.setting.delta {
                0.0 => "pure".to_owned(),
                delta => format!("{delta:e}"),
            },
            row.setting
                .true_epsilon
                .map_or("none".to_owned(), |e| format_epsilon(e, 6)),
            match (plan.target_error, row.n) {
                (_, None) => match row.n_at_least {
                    Some(least) => format!("{} or never", people(least)),
                    None => "never".to_owned(),
                },
                (Some(_), Some(n)) => people(n),
                (None, Some(n)) => with_thousands(n),
            },
            match (row.error, row.error_range) {
                (None, _) => "-".to_owned(),
                (Some(error), None) => format!("{error:.3}"),
                (Some(error), Some((low, high))) => format!("{low:.2}–{high:.2} ({error:.2})"),
            },
            row.components_above_floor
                .map_or("-".to_owned(), |above| format!("{above}/{}", plan.k)),
            row.report_bytes,
        ))?;
    }
    output::text(&format!("\n{}", summary(plan)))?;
    if let Some(row) = plan.rows.iter().find(|row| !row.setting.claim_holds) {
        output::text(&format!(
            "warning: the noise of {} is smaller than claimed; the column \"true epsilon\" says what holds",
            name(&row.setting)
        ))?;
    }
    Ok(())
}

fn has_sites(plan: &ErrorPlan) -> bool {
    plan.rows.iter().any(|row| row.setting.sites.is_some())
}

/// One sentence for each ε: sites, a curator, and the best mechanism where each row is reported by itself.
fn summary_of_sites(plan: &ErrorPlan) -> String {
    let who = |row: &PlanRow| match row.setting.sites {
        None => 2,
        Some(1) => 1,
        Some(_) => 0,
    };
    let says = |row: &PlanRow| {
        let outcome = match (plan.target_error, row.n, row.error) {
            (Some(_), Some(rows), _) => format!("{} rows", people(rows)),
            (None, _, Some(error)) => format!("an error of {error:.3}"),
            _ => "never".to_owned(),
        };
        match row.setting.sites {
            None => format!(
                "with one report a row ({}) {outcome}",
                row.setting.mechanism
            ),
            Some(1) => format!("a curator {outcome}"),
            Some(sites) => format!("{} sites {outcome}", with_thousands(sites)),
        }
    };
    let mut rows: Vec<&PlanRow> = plan
        .rows
        .iter()
        .filter(|row| row.setting.claim_holds)
        .collect();
    // The best of each kind first.
    let key = |row: &PlanRow| {
        (
            row.setting.epsilon,
            who(row),
            row.error.unwrap_or(f64::INFINITY),
            row.n.unwrap_or(u64::MAX),
        )
    };
    rows.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(Ordering::Equal));
    rows.dedup_by_key(|row| (row.setting.epsilon.to_bits(), who(row)));
    let largest = max_error(plan.p, plan.k);
    let of_epsilon = rows.chunk_by(|a, b| a.setting.epsilon == b.setting.epsilon);
    let sentences = of_epsilon.map(|rows| {
        let parts: Vec<String> = rows.iter().map(|row| says(row)).collect();
        format!(
            "At epsilon {}: {} (at most {largest:.2}).",
            rows[0].setting.epsilon,
            parts.join("; ")
        )
    });
    sentences.collect::<Vec<_>>().join("\n")
}

/// One sentence with the best mechanism whose claim holds.
fn summary(plan: &ErrorPlan) -> String {
    if has_sites(plan) {
        return summary_of_sites(plan);
    }
    let honest = || plan.rows.iter().filter(|row| row.setting.claim_holds);
    let mut epsilons: Vec<f64> = Vec::new();
    for row in &plan.rows {
        if !epsilons.contains(&row.setting.epsilon) {
            epsilons.push(row.setting.epsilon);
        }
    }
    if let Some(target) = plan.target_error {
        let largest = max_error(plan.p, plan.k);
        let target_text = format!("{target} of at most {largest:.2}");
        let parts: Vec<String> = epsilons
            .iter()
            .filter_map(|epsilon| {
                let best = honest()
                    .filter(|row| row.setting.epsilon == *epsilon && row.n.is_some())
                    .min_by_key(|row| row.n)?;
                let n = people(best.n?);
                let least = best.n_at_least.map(people).filter(|least| *least != n);
                let number = match least {
                    Some(least) => format!("between {least} and {n}"),
                    None => format!("about {n}"),
                };
                Some(format!(
                    "{number} at epsilon {epsilon} ({})",
                    best.setting.mechanism
                ))
            })
            .collect();
        if parts.is_empty() {
            // Report the reason given for the mechanism that needs the fewest participants.
            let best = honest().min_by_key(|row| row.n_at_least.unwrap_or(u64::MAX));
            let reason = best
                .and_then(|row| row.reason.as_deref())
                .unwrap_or("never");
            return format!("How many users do I need? For an error of {target_text}: {reason}.");
        }
        let larger = match parts.iter().any(|part| part.starts_with("between")) {
            true => {
                " Plan for the larger number: the smaller one is enough only if the gap after the last component is as wide as it can be."
            }
            false => "",
        };
        return format!(
            "How many users do I need? For an expected error of {target_text}: {}.{larger}",
            parts.join("; ")
        );
    }
    let known = honest().filter_map(|row| Some((row, row.n?, row.error?)));
    let Some((row, n, error)) = known.min_by(|a, b| a.2.total_cmp(&b.2)) else {
        return String::new();
    };
    let guess = match is_guess(error, plan.p, plan.k) {
        true => format!(", {RANDOM}"),
        false => String::new(),
    };
    format!(
        "The best of these: {} users with {} at epsilon {} can expect an error of about {}{guess}{}.",
        with_thousands(n),
        row.setting.mechanism,
        row.setting.epsilon,
        output::error_text(error, plan.p, plan.k),
        row.error_range.map_or(String::new(), output::range_text)
    )
}

fn print_sizes(answer: &SizePlan) -> Result<()> {
    let k = answer.k;
    for note in &answer.notes {
        output::text(note)?;
    }
    let points = |size: Option<f64>| match size {
        Some(size) => format!("{:.1} points", 100.0 * size),
        None => "-".to_owned(),
    };
    output::text(&format!(
        "{:<34} {:>7} {:>14} {:>16} {:>24}",
        "mechanism",
        "epsilon",
        if answer.rows.iter().any(|row| row.setting.sites.is_some()) {
            "rows"
        } else {
            "participants"
        },
        "a direction",
        format!("components {k} and {}", k + 1)
    ))?;
    for row in &answer.rows {
        output::text(&format!(
            "{:<34} {:>7} {:>14} {:>16} {:>24}",
            name(&row.setting),
            row.setting.epsilon,
            with_thousands(row.n),
            points(row.visible),
            points(row.separable)
        ))?;
    }
    output::text(&format!(
        "\nA direction can show if it has so many points more of the rows' variance than an average one ({:.1} %): with so many in half of such studies at most, with twice as many nearly always. Components {k} and {} are told apart if their shares differ by so many. \"-\": so few cannot show any.\nHow large the error is depends on the participants' own spectrum: run a pilot, and plan with --pilot.",
        100.0 * answer.average,
        k + 1
    ))?;
    // Warn once per mechanism and ε.
    let mut broken: Vec<&SizeRow> = answer
        .rows
        .iter()
        .filter(|row| !row.setting.claim_holds)
        .collect();
    broken.dedup_by_key(|row| (row.setting.mechanism, row.setting.epsilon.to_bits()));
    for row in broken {
        output::text(&format!(
            "warning: the noise of {} is smaller than claimed at epsilon {}; what holds is {}",
            name(&row.setting),
            row.setting.epsilon,
            output::true_budget_text(row.setting.true_epsilon, row.setting.delta)
        ))?;
    }
    Ok(())
}
