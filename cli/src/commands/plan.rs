//! `eigenveil plan`: how many participants a target error needs.

use std::{num::NonZeroU64, path::PathBuf};

use clap::Args;
use eigenveil_estimation::{
    Cancel,
    centring::planned_noise,
    floor::{ExpectedError, SpectrumRange, resolution},
    format::{people, with_thousands},
    plan::{
        MeanSquaredLength, PlanTarget, assumed_of_pilot, max_error, pilot_mean_length, plan,
        spectrum_from_eigenvalues, spectrum_from_pilot,
    },
};
use eigenveil_shared::{
    estimate::Estimate,
    mechanism::{Calibration, MechanismKind},
    preprocess::Preprocessing,
    privacy::{PrivacyStatement, format_epsilon},
    study::{StudyDesign, StudyParams},
};
use serde::Serialize;

use super::{
    plan_chart::{self, Line, Setting, decades, errors, smallest_components},
    project::read_estimate,
};
use crate::{
    IsStopped,
    args::{DEFAULT_CENTRING_TEXT, NormArg},
    error::{CliError, Result},
    files, output,
};

/// Plan a study: how many users a target error needs, or the error to expect with a given number, for every mechanism
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil plan --p 40 --k 2 --spectrum 0.3,0.2 --epsilon 1,2,4 --target-error 0.3\n  eigenveil plan --p 40 --k 2 --spectrum 0.3,0.2 --epsilon 4 --n 100000,1000000 --plot plan.svg\n  eigenveil plan --pilot result/estimate.json --k 2 --epsilon 4 --target-error 0.3\n  eigenveil plan --p 40 --k 2 --spectrum 0.15,0.1 --centring --mean-length 0.8 --epsilon 4 --target-error 0.3\n\n  eigenveil plan --p 40 --k 3 --epsilon 4 --n 20000,100000\n\nThe error is a root mean square of the distance between projectors, 0 to √(2k); single runs vary around it.\nTake the spectrum from a pilot, from public data, or from a guess, never from the participants' own rows.\nWith a pilot the plan has a range that holds the truth in nine of ten cases: it plans with the cautious end.\nWithout either no error is known: the plan says how small a component n participants can show."
)]
pub(crate) struct PlanArgs {
    /// Dimension of the rows
    #[arg(long, required_unless_present = "pilot")]
    p: Option<usize>,
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
    /// The k leading eigenvalues of E[xxᵀ] of prepared rows, or more. With --bound-rows normalize all p of them sum to 1; the
    /// rest is spread evenly over the other directions
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
    #[arg(
        long,
        value_name = "X",
        required_unless_present = "n",
        conflicts_with = "n"
    )]
    pub(super) target_error: Option<f64>,
    /// Participants expected; several values with commas
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(super) n: Vec<NonZeroU64>,
    /// How rows are brought into the unit ball [default: normalize]
    #[arg(long = "bound-rows", value_enum, conflicts_with = "pilot")]
    pub(super) norm: Option<NormArg>,
    /// Mean squared length of the prepared rows, at most 1 (for --bound-rows clip and require; normalize makes it 1)
    #[arg(long, value_name = "T")]
    mean_squared_length: Option<f64>,
    /// Plan for private centring with the constant A [default A: 1/√2]: the spectrum is then that of the covariance; components are assumed to be orthogonal to the mean
    #[arg(long, value_name = "A", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_CENTRING_TEXT, requires = "mean_length", conflicts_with = "pilot")]
    pub(super) centring: Option<f64>,
    /// Length of the mean E x of the prepared rows, 0 to 1, for --centring; typically 0.7 to 0.9 if every feature is
    /// positive
    #[arg(long, value_name = "L", requires = "centring")]
    pub(super) mean_length: Option<f64>,
    /// Draw the expected error against n as SVG; without a spectrum, the smallest component that shows
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One row of the plan; scripts rely on its keys.
#[derive(Serialize)]
struct PlanRow {
    mechanism: MechanismKind,
    epsilon: f64,
    delta: f64,
    /// Enough participants, by the cautious end of a pilot's range; `null` where perhaps no number is.
    n: Option<u64>,
    /// Fewer cannot be enough; with a pilot and a target error only.
    n_at_least: Option<u64>,
    /// Expected error with `n` participants, and its range with a pilot.
    error: Option<f64>,
    error_range: Option<(f64, f64)>,
    report_bytes: usize,
    calibration: Option<Calibration>,
    true_epsilon: Option<f64>,
    claim_holds: bool,
    components_above_floor: Option<usize>,
    reason: Option<String>,
    /// Expected attempts of one report on its device; double-cap only.
    expected_attempts: Option<f64>,
}

#[derive(Serialize)]
struct PlanAnswer {
    rows: Vec<PlanRow>,
    p: usize,
    k: usize,
    target_error: Option<f64>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &PlanArgs, json: bool, is_stopped: IsStopped<'_>) -> Result<()> {
    let cancel = Cancel::when(is_stopped);
    let pilot = args.pilot.as_deref().map(read_estimate).transpose()?;
    args.plot.as_deref().map_or(Ok(()), files::check_figure)?;
    if pilot.is_none() && args.spectrum.is_empty() {
        return run_without_spectrum(args, json, cancel);
    }
    let mut population = match &pilot {
        Some(pilot) => from_pilot(args, pilot)?,
        None => from_spectrum(args)?,
    };
    let participants = args.n.iter().map(|n| PlanTarget::Participants(n.get()));
    let targets: Vec<PlanTarget> = match args.target_error {
        Some(target) => vec![PlanTarget::Error(target)],
        None => participants.collect(),
    };
    let mut total_variance = population.spectrum.central.total();
    if pilot.is_some() {
        // Estimated: what prepared rows can have is exceeded by chance.
        let rest = 1.0 - population.mean_length * population.mean_length;
        total_variance = total_variance.clamp(0.0, rest.max(0.0));
    }
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for setting in settings(args, &population.preprocessing, &mut population.notes)? {
        let params = &setting.params;
        let spectrum = &population.spectrum;
        let noise = match &pilot {
            // Measured, and so the estimate's own.
            Some(pilot) if same_reports(params, &pilot.params) => pilot.spectrum.as_ref(),
            _ => None,
        };
        let noise = match noise {
            Some(measured) => measured.noise,
            None => planned_noise(params, total_variance, population.mean_length)?,
        };
        let privacy = PrivacyStatement::new(params);
        for &target in &targets {
            cancel.check()?;
            let planned = plan(spectrum, &noise, target)?;
            let ranged = pilot.is_some();
            let range = |error: ExpectedError| (error.low, error.high);
            rows.push(PlanRow {
                mechanism: setting.mechanism,
                epsilon: setting.epsilon,
                delta: privacy.delta,
                n: planned.n,
                n_at_least: planned.participants.filter(|_| ranged).and_then(|n| n.low),
                error: planned.error.map(|error| error.central),
                error_range: planned.error.filter(|_| ranged).map(range),
                report_bytes: privacy.report_bytes,
                calibration: privacy.calibration,
                true_epsilon: privacy.true_epsilon,
                claim_holds: privacy.claim_holds,
                components_above_floor: planned.components_above,
                reason: planned.reason,
                expected_attempts: params.mechanism().expected_attempts(),
            });
        }
        lines.push((setting, noise));
    }
    print_budget_warnings(&lines, rows.iter().filter_map(|row| row.n));
    if let Some(path) = &args.plot {
        let range = decades(rows.iter().filter_map(|row| row.n));
        let chart = errors(&lines, &population.spectrum, range, args.target_error)?;
        output::write_figure(path, &chart)?;
    }
    let plan = PlanAnswer {
        rows,
        p: population.preprocessing.dimension,
        k: population.spectrum.central.rank(),
        target_error: args.target_error,
        notes: population.notes,
    };
    if json {
        output::json(&plan)
    } else {
        print(&plan)
    }
}

/// Of all settings and numbers of participants those that are worst.
fn print_budget_warnings(lines: &[Line], participants: impl Iterator<Item = u64>) {
    let epsilon = lines.iter().map(|(setting, _)| setting.epsilon);
    output::print_budget_warnings(
        epsilon.fold(0.0, f64::max),
        plan_chart::largest_delta(lines),
        participants.max().unwrap_or(1),
    );
}

/// Whether two studies' reports have the same noise, on rows prepared alike.
fn same_reports(one: &StudyParams, other: &StudyParams) -> bool {
    one.mechanism() == other.mechanism() && one.preprocessing() == other.preprocessing()
}

/// Every mechanism with every ε, for rows prepared so.
fn settings(
    args: &PlanArgs,
    rows: &Preprocessing,
    notes: &mut Vec<String>,
) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    let p = rows.dimension;
    for (mechanism, calibration) in mechanisms(args, p, notes)? {
        // If both kinds are compared, δ is that of the other mechanisms.
        let delta = (!mechanism.is_pure()).then_some(args.delta).flatten();
        for &epsilon in &args.epsilon {
            let params = StudyParams::freeze(StudyDesign {
                norm: rows.norm,
                centring: rows.centring,
                features: rows.features.clone(),
                weights: rows.weights,
                calibration,
                ..StudyDesign::new(mechanism, p, mechanism.budget(epsilon, delta)?)
            })?;
            if let Some(slow) = output::slow_report_note(&params) {
                notes.push(format!("{mechanism} at epsilon {epsilon}: {slow}."));
            }
            all.push(Setting {
                mechanism,
                calibration,
                epsilon,
                params,
            });
        }
    }
    Ok(all)
}

struct Population {
    spectrum: SpectrumRange,
    /// How the rows are prepared. Their dimension is larger than that of the spectrum for a sparse pilot.
    preprocessing: Preprocessing,
    /// ‖E x‖, for private centring.
    mean_length: f64,
    notes: Vec<String>,
}

/// The total variance: the rows' mean squared length less that of their mean.
fn without_mean(total: f64, mean_length: f64) -> Result<f64> {
    if !(mean_length >= 0.0 && mean_length * mean_length < total) {
        return Err(CliError::usage(format!(
            "--mean-length is {mean_length}; it must be at least 0 and below {:.4}: a longer mean would exceed the mean squared length of the prepared rows ({total})",
            total.sqrt()
        )));
    }
    Ok(total - mean_length * mean_length)
}

/// The population given by the flags.
fn from_spectrum(args: &PlanArgs) -> Result<Population> {
    let (Some(p), Some(k)) = (args.p, args.k) else {
        return Err(CliError::usage("--spectrum needs --p and --k"));
    };
    // Eigenvalues and total are those of prepared rows, after division by the radius.
    let norm = args.norm.unwrap_or(NormArg::Normalize);
    let total = match (norm, args.mean_squared_length) {
        (NormArg::Normalize, None) => MeanSquaredLength::UnitRows,
        (NormArg::Normalize, Some(total)) => {
            return Err(CliError::usage(format!(
                "--mean-squared-length is {total}, but under --bound-rows normalize every row has length 1; leave it out, or give --bound-rows clip or require"
            )));
        }
        (NormArg::Clip | NormArg::Require, total) => mean_squared_length(total),
    };
    let mean_length = args.mean_length.unwrap_or(0.0);
    let mut notes = Vec::new();
    let known = match total {
        MeanSquaredLength::UnitRows => Some(1.0),
        MeanSquaredLength::Known(total) => Some(total),
        MeanSquaredLength::Unknown => None,
    };
    let total = match known.filter(|_| args.centring.is_some()) {
        Some(known) => MeanSquaredLength::Known(without_mean(known, mean_length)?),
        None => total,
    };
    if args.centring.is_some() {
        notes.push("Private centring: the spectrum is that of the covariance, and the components are assumed to be orthogonal to the mean; a component along the mean has more noise.".to_owned());
    }
    Ok(Population {
        spectrum: spectrum_from_eigenvalues(p, k, &args.spectrum, total)?,
        preprocessing: Preprocessing {
            centring: args.centring,
            ..Preprocessing::new(p, norm.with_radius(1.0))
        },
        mean_length,
        notes,
    })
}

fn from_pilot(args: &PlanArgs, pilot: &Estimate) -> Result<Population> {
    if let Some(p) = args.p.filter(|&p| p != pilot.p) {
        return Err(CliError::usage(format!(
            "--p is {p}, but the pilot has dimension {}; leave --p out",
            pilot.p
        )));
    }
    if args.k.is_none() && pilot.k == 0 {
        return Err(CliError::usage(
            "the pilot has no component: none stood above the noise floor. Give --k, and as many participants as it takes: eigenveil plan --p P --k K --n N says what so many can show",
        ));
    }
    let k = args.k.unwrap_or(pilot.k);
    let spectrum = spectrum_from_pilot(pilot, k, mean_squared_length(args.mean_squared_length))?;
    let mut notes = Vec::new();
    if let Some(sparse) = &pilot.sparse {
        notes.push(format!(
            "The pilot is sparse: the plan is for a sparse estimate of as many features ({}).",
            sparse.support.len()
        ));
    }
    notes.extend(assumed_of_pilot(pilot).map(str::to_owned));
    Ok(Population {
        spectrum,
        preprocessing: pilot.params.preprocessing().clone(),
        mean_length: pilot_mean_length(pilot),
        notes,
    })
}

fn mean_squared_length(total: Option<f64>) -> MeanSquaredLength {
    total.map_or(MeanSquaredLength::Unknown, MeanSquaredLength::Known)
}

/// The mechanisms to compare; without --mechanism those that p is too large for are left out.
fn mechanisms(
    args: &PlanArgs,
    p: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<(MechanismKind, Calibration)>> {
    let named = !args.mechanism.is_empty();
    let mut kinds = match named {
        true => args.mechanism.clone(),
        false => MechanismKind::ALL.to_vec(),
    };
    let largest = eigenveil_shared::mechanism::MAX_DENSE_DIMENSION;
    if !named && p > largest {
        kinds.retain(|kind| kind.max_dimension() > largest);
        notes.push(format!(
            "p = {p} is above {largest}, the largest p of the Gaussian mechanisms: they are left out."
        ));
    }
    if args.delta.is_some_and(|delta| delta != 0.0) && kinds.iter().all(|kind| kind.is_pure()) {
        return Err(CliError::usage(
            "--delta is given, but the delta of double-cap is always 0; leave --delta out",
        ));
    }
    let mut all = Vec::new();
    for own in kinds.into_iter().map(|kind| (kind, Calibration::Analytic)) {
        if !all.contains(&own) {
            all.push(own);
        }
    }
    if args.calibration == Calibration::AsPublished {
        let published = MechanismKind::SymmetricGaussian;
        let Some(place) = all.iter().position(|(kind, _)| *kind == published) else {
            return Err(CliError::usage(
                "--calibration as-published is for symmetric-gaussian, which is not among the mechanisms; add it to --mechanism, or leave --calibration out",
            ));
        };
        all.insert(place + 1, (published, Calibration::AsPublished));
    }
    Ok(all)
}

/// A mechanism in a table; the default calibration is not mentioned.
fn name(mechanism: MechanismKind, calibration: Option<Calibration>) -> String {
    match calibration.filter(|&calibration| calibration != Calibration::Analytic) {
        None => mechanism.to_string(),
        Some(calibration) => format!("{mechanism}, {calibration}"),
    }
}

fn print(plan: &PlanAnswer) -> Result<()> {
    for note in &plan.notes {
        output::text(note)?;
    }
    output::text(&format!(
        "{:<34} {:>7} {:>8} {:>12} {:>18} {:>18} {:>7} {:>14}",
        "mechanism",
        "epsilon",
        "delta",
        "true epsilon",
        "users",
        "error",
        "above",
        "bytes a report"
    ))?;
    for row in &plan.rows {
        output::text(&format!(
            "{:<34} {:>7} {:>8} {:>12} {:>18} {:>18} {:>7} {:>14}",
            name(row.mechanism, row.calibration),
            row.epsilon,
            match row.delta {
                0.0 => "pure".to_owned(),
                delta => format!("{delta:e}"),
            },
            row.true_epsilon
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
                (Some(error), Some((low, high))) => format!("{error:.3} ({low:.2}–{high:.2})"),
            },
            row.components_above_floor
                .map_or("-".to_owned(), |above| format!("{above}/{}", plan.k)),
            row.report_bytes,
        ))?;
    }
    output::text(&format!("\n{}", summary(plan)))?;
    if let Some(row) = plan.rows.iter().find(|row| !row.claim_holds) {
        output::text(&format!(
            "warning: the noise of {} is smaller than claimed; the column \"true epsilon\" says what holds",
            name(row.mechanism, row.calibration)
        ))?;
    }
    Ok(())
}

/// One sentence with the best mechanism whose claim holds.
fn summary(plan: &PlanAnswer) -> String {
    let honest = || plan.rows.iter().filter(|row| row.claim_holds);
    let mut epsilons: Vec<f64> = Vec::new();
    for row in &plan.rows {
        if !epsilons.contains(&row.epsilon) {
            epsilons.push(row.epsilon);
        }
    }
    if let Some(target) = plan.target_error {
        let largest = max_error(plan.p, plan.k);
        let of = format!("{target} of at most {largest:.2}");
        let parts: Vec<String> = epsilons
            .iter()
            .filter_map(|epsilon| {
                let best = honest()
                    .filter(|row| row.epsilon == *epsilon && row.n.is_some())
                    .min_by_key(|row| row.n)?;
                let least = best.n_at_least.map_or(String::new(), |least| {
                    format!(", and {} at the very least", people(least))
                });
                Some(format!(
                    "about {} at epsilon {epsilon} ({}){least}",
                    people(best.n?),
                    best.mechanism
                ))
            })
            .collect();
        if parts.is_empty() {
            // The mechanism that needs the fewest says it best.
            let best = honest().min_by_key(|row| row.n_at_least.unwrap_or(u64::MAX));
            let reason = best
                .and_then(|row| row.reason.as_deref())
                .unwrap_or("never");
            return format!("How many users do I need? For an error of {of}: {reason}.");
        }
        return format!(
            "How many users do I need? For an expected error of {of}: {}.",
            parts.join("; ")
        );
    }
    let known = honest().filter_map(|row| Some((row, row.n?, row.error?)));
    let Some((row, n, error)) = known.min_by(|a, b| a.2.total_cmp(&b.2)) else {
        return String::new();
    };
    format!(
        "The best of these: {} users with {} at epsilon {} can expect an error of about {}{}.",
        with_thousands(n),
        row.mechanism,
        row.epsilon,
        output::error_text(error, plan.p, plan.k),
        row.error_range.map_or(String::new(), output::range_text)
    )
}

const DEFAULT_COMPONENTS: usize = 3;

#[derive(Serialize)]
struct ResolutionRow {
    mechanism: MechanismKind,
    epsilon: f64,
    delta: f64,
    calibration: Option<Calibration>,
    true_epsilon: Option<f64>,
    claim_holds: bool,
    n: u64,
    /// Share of the variance that a direction must have above an average one to show; `null` where none can.
    visible: Option<f64>,
    /// By how much the shares of components k and k + 1 must differ to be told apart.
    separable: Option<f64>,
}

#[derive(Serialize)]
struct ResolutionAnswer {
    rows: Vec<ResolutionRow>,
    p: usize,
    k: usize,
    /// Share of an average direction, 1/p.
    average: f64,
    notes: Vec<String>,
}

fn run_without_spectrum(args: &PlanArgs, json: bool, cancel: Cancel<'_>) -> Result<()> {
    let Some(p) = args.p else {
        return Err(CliError::usage(
            "plan needs --pilot, or --p with --spectrum, or --p with --n",
        ));
    };
    if let Some(target) = args.target_error {
        return Err(CliError::usage(format!(
            "--target-error is {target}, but an error depends on the participants' own spectrum: give that of a pilot (--pilot) or of public data (--spectrum); --n without them says what so many participants can show"
        )));
    }
    let k = args
        .k
        .unwrap_or(DEFAULT_COMPONENTS.min(p.saturating_sub(1)));
    let norm = args.norm.unwrap_or(NormArg::Normalize).with_radius(1.0);
    let mut notes = Vec::new();
    let (mut rows, mut lines) = (Vec::new(), Vec::<Line>::new());
    let preprocessing = Preprocessing {
        centring: args.centring,
        ..Preprocessing::new(p, norm)
    };
    let mean_length = args.mean_length.unwrap_or(0.0);
    for setting in settings(args, &preprocessing, &mut notes)? {
        let noise = planned_noise(
            &setting.params,
            1.0 - mean_length * mean_length,
            mean_length,
        )?;
        let privacy = PrivacyStatement::new(&setting.params);
        for n in &args.n {
            cancel.check()?;
            let found = resolution(&noise, p, n.get(), k)?;
            rows.push(ResolutionRow {
                mechanism: setting.mechanism,
                epsilon: setting.epsilon,
                delta: privacy.delta,
                calibration: privacy.calibration,
                true_epsilon: privacy.true_epsilon,
                claim_holds: privacy.claim_holds,
                n: n.get(),
                visible: found.visible,
                separable: found.separable,
            });
        }
        lines.push((setting, noise));
    }
    print_budget_warnings(&lines, args.n.iter().map(|n| n.get()));
    if let Some(path) = &args.plot {
        let range = decades(args.n.iter().map(|n| n.get()));
        output::write_figure(path, &smallest_components(&lines, p, range)?)?;
    }
    let answer = ResolutionAnswer {
        rows,
        p,
        k,
        average: 1.0 / p as f64,
        notes,
    };
    if json {
        return output::json(&answer);
    }
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
        "participants",
        "a direction",
        format!("components {k} and {}", k + 1)
    ))?;
    for row in &answer.rows {
        output::text(&format!(
            "{:<34} {:>7} {:>14} {:>16} {:>24}",
            name(row.mechanism, row.calibration),
            row.epsilon,
            with_thousands(row.n),
            points(row.visible),
            points(row.separable)
        ))?;
    }
    output::text(&format!(
        "\nA direction shows if it has so many points more of the variance than an average one ({:.1} %); components {k} and {} are told apart if their shares differ by so many. \"-\": so few cannot show any.\nHow large the error is depends on the participants' own spectrum: run a pilot, and plan with --pilot.",
        100.0 * answer.average,
        k + 1
    ))?;
    // One of several n says it.
    let mut broken: Vec<&ResolutionRow> =
        answer.rows.iter().filter(|row| !row.claim_holds).collect();
    broken.dedup_by_key(|row| (row.mechanism, row.epsilon.to_bits()));
    for row in broken {
        output::text(&format!(
            "warning: the noise of {} is smaller than claimed at epsilon {}; what holds is {}",
            name(row.mechanism, row.calibration),
            row.epsilon,
            output::true_budget_text(row.true_epsilon, row.delta)
        ))?;
    }
    Ok(())
}
