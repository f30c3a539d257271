//! `eigenveil account`: what a report, several reports, or a shuffled report give away.

use std::num::NonZeroU64;

use clap::Args;
use eigenveil_shared::{
    mechanism::{Calibration, DEFAULT_DELTA, MechanismKind, MechanismSpec},
    privacy::{
        accountant::{Composition, Gaussian, Guarantee, Shuffled},
        delta_text, delta_warning, epsilon_text, gaussian, rounded_up,
    },
};
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    output,
};

/// Show what one report, several studies together, or a shuffled report gives away
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil account --epsilon 4 --studies 5\n  eigenveil account --mechanism isotropic-gaussian --epsilon 1 --delta 1e-6 --studies 5\n  eigenveil account --epsilon 4 --n 1000000\n  eigenveil account --sigma 5.3 --sensitivity 1.4142135623730951 --delta 1e-6\n\nNeighbours are any two rows of one participant. Every number is rounded up, to the safe side; what floating point adds to Gaussian reports (below 1e-6 up to p = 200) is in a study's own statement, not here.\nSeveral studies: the line \"studies\" holds if their number and parameters are fixed in advance. If they are chosen from earlier outcomes, the line \"chosen later\" holds, provided that the total of these studies is a limit set beforehand and never exceeded.\nA shuffled report is one that is seen only as part of an unordered set, without identifiers: Eigenveil does not shuffle for you."
)]
pub(crate) struct AccountArgs {
    /// Local randomizer of the reports
    #[arg(long, default_value = "double-cap", value_parser = crate::args::parse::<MechanismKind>)]
    mechanism: MechanismKind,
    /// How Gaussian noise is chosen: analytic or as-published
    #[arg(long, default_value = "analytic", value_parser = crate::args::parse::<Calibration>)]
    calibration: Calibration,
    /// Dimension of a report (it matters for discrete-gaussian only)
    #[arg(long, value_name = "P", default_value_t = 40)]
    p: usize,
    /// Privacy-loss bound ε claimed for one report
    #[arg(
        long,
        value_name = "E",
        required_unless_present = "sigma",
        conflicts_with = "sigma"
    )]
    epsilon: Option<f64>,
    /// Noise scale σ of any Gaussian release, instead of --epsilon
    #[arg(long, value_name = "S", requires = "sensitivity")]
    sigma: Option<f64>,
    /// L2 sensitivity of that release
    #[arg(long, value_name = "D", requires = "sigma")]
    sensitivity: Option<f64>,
    /// δ at which ε is computed; the claimed δ of an (ε, δ) mechanism [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Studies that one participant takes part in, with one report each; their number is fixed in advance
    #[arg(long, value_name = "M", default_value_t = NonZeroU64::MIN)]
    studies: NonZeroU64,
    /// Participants whose reports are shuffled (double-cap only)
    #[arg(long, value_name = "N")]
    n: Option<NonZeroU64>,
}

#[derive(Serialize)]
struct Account {
    mechanism: Option<MechanismKind>,
    calibration: Option<Calibration>,
    epsilon: Option<f64>,
    /// The δ of everything below.
    delta: f64,
    true_epsilon: Option<f64>,
    true_delta: Option<f64>,
    studies: u64,
    composed_epsilon: Option<f64>,
    composed_pure_epsilon: Option<f64>,
    /// Where number and parameters of the studies are chosen from outcomes, within the same totals.
    filter_epsilon: Option<f64>,
    n: Option<u64>,
    shuffled_epsilon: Option<f64>,
    shuffled_epsilon_closed_form: Option<f64>,
}

/// Reports of one participant beyond which composing one by one would take long.
const MOST_STUDIES: u64 = 10_000;

pub(crate) fn run(args: &AccountArgs, json: bool) -> Result<()> {
    if args.studies.get() > MOST_STUDIES {
        return Err(CliError::usage(format!(
            "--studies is {}; it must be at most {MOST_STUDIES}",
            args.studies
        )));
    }
    let delta = args.delta.unwrap_or(DEFAULT_DELTA);
    if !(delta > 0.0 && delta < 1.0) {
        return Err(CliError::usage(format!(
            "--delta is {delta}; it must lie between 0 and 1, such as 1e-6"
        )));
    }
    let (spec, guarantee) = report(args)?;
    let (true_epsilon, true_delta) = match (&spec, args.sigma, args.sensitivity) {
        (Some((spec, epsilon)), ..) => {
            let of_claim = if spec.kind().is_pure() { 0.0 } else { delta };
            (spec.true_epsilon(of_claim), Some(spec.true_delta(*epsilon)))
        }
        (None, Some(sigma), Some(sensitivity)) => {
            (gaussian::true_epsilon(sigma, sensitivity, delta), None)
        }
        _ => (None, None),
    };
    let mut composed = Composition::new();
    for _ in 0..args.studies.get() {
        composed.add(guarantee);
    }
    let shuffled = match (args.n, guarantee) {
        (None, _) => None,
        (Some(n), Guarantee::Pure(pure)) => Some(Shuffled::new(pure, n)),
        (Some(_), _) => {
            return Err(CliError::usage(
                "--n asks for a shuffled guarantee, which only double-cap has: for (epsilon, delta) reports the bound adds about n·delta·e^epsilon to delta, which makes it useless; leave --n out",
            ));
        }
    };
    let account = Account {
        mechanism: spec.as_ref().map(|(spec, _)| spec.kind()),
        calibration: spec.as_ref().and_then(|(spec, _)| spec.calibration()),
        epsilon: args.epsilon,
        delta,
        true_epsilon,
        true_delta,
        studies: args.studies.get(),
        composed_epsilon: composed.epsilon(delta),
        composed_pure_epsilon: composed.pure_epsilon(),
        filter_epsilon: composed.filter_epsilon(delta),
        n: args.n.map(NonZeroU64::get),
        shuffled_epsilon: shuffled.as_ref().map(|shuffled| shuffled.epsilon(delta)),
        shuffled_epsilon_closed_form: shuffled
            .as_ref()
            .and_then(|shuffled| shuffled.closed_form_epsilon(delta)),
    };
    if let Some(warning) = args.n.and_then(|n| delta_warning(delta, n.get())) {
        crate::output::warn(&warning);
    }
    if json {
        output::json(&account)
    } else {
        print(&account)
    }
}

/// What one report satisfies, and its mechanism with the claimed ε where there is one.
fn report(args: &AccountArgs) -> Result<(Option<(MechanismSpec, f64)>, Guarantee)> {
    if let (Some(sigma), Some(sensitivity)) = (args.sigma, args.sensitivity) {
        return Ok((None, Gaussian::from_noise(sigma, sensitivity)?.into()));
    }
    let epsilon = args
        .epsilon
        .ok_or_else(|| CliError::usage("give --epsilon, or --sigma and --sensitivity"))?;
    // δ here is also where a pure mechanism's composition is asked for: no mistake then.
    let claimed = (!args.mechanism.is_pure()).then_some(args.delta).flatten();
    let budget = args.mechanism.budget(epsilon, claimed)?;
    let spec = MechanismSpec::derive(args.mechanism, args.calibration, args.p, budget)?;
    let guarantee = spec.guarantee()?;
    Ok((Some((spec, epsilon)), guarantee))
}

fn print(account: &Account) -> Result<()> {
    let number =
        |value: Option<f64>| value.map_or("none".to_owned(), |value| epsilon_text(value, 6));
    let delta = delta_text(account.delta);
    if let (Some(mechanism), Some(epsilon)) = (account.mechanism, account.epsilon) {
        let pure = mechanism.is_pure();
        output::text(&format!(
            "one report         {}, claimed {}",
            output::mechanism_text(mechanism, account.calibration),
            output::budget_text(epsilon, if pure { 0.0 } else { account.delta })
        ))?;
        output::text(&format!(
            "really holds       epsilon {}{}",
            number(account.true_epsilon),
            if pure {
                ", delta 0".to_owned()
            } else {
                format!(
                    " at delta {delta}; delta {} at epsilon {epsilon}",
                    rounded_up(account.true_delta.unwrap_or(1.0), 3)
                )
            }
        ))?;
    } else {
        output::text(&format!(
            "one release        epsilon {} at delta {delta}",
            number(account.true_epsilon)
        ))?;
    }
    if account.studies > 1 {
        output::text(&format!(
            "{:<6} studies     epsilon {} at delta {delta}{}, their number and parameters fixed in advance",
            account.studies,
            number(account.composed_epsilon),
            account
                .composed_pure_epsilon
                .map_or_else(String::new, |pure| format!(
                    "; epsilon {} at delta 0",
                    epsilon_text(pure, 6)
                ))
        ))?;
        output::text(&format!(
            "chosen later       epsilon {} at delta {delta}: number or parameters chosen from outcomes, within the same totals",
            number(account.filter_epsilon)
        ))?;
    }
    if let (Some(n), Some(epsilon)) = (account.n, account.shuffled_epsilon) {
        output::text(&format!(
            "shuffled, n={n}  epsilon {} at delta {delta} (closed form {})\n\nThe shuffled line holds only against somebody who sees the reports as an unordered set without identifiers. The server is not that: against it the first lines hold.",
            epsilon_text(epsilon, 6),
            number(account.shuffled_epsilon_closed_form)
        ))?;
    }
    Ok(())
}
