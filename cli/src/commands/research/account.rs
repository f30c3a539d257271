//! `eigenveil account`: the privacy cost of one report or of several.

use std::num::NonZeroU32;

use clap::Args;
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    privacy::{
        AccountAnswer, AccountRequest, account, format_delta, format_epsilon, format_rounded_up,
    },
};

use crate::{error::Result, output};

/// Show the privacy cost of one report, or of several studies together
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil account --epsilon 4 --studies 5\n  eigenveil account --mechanism isotropic-gaussian --epsilon 1 --delta 1e-6 --studies 5\n  eigenveil account --sigma 5.3 --sensitivity 1.4142135623730951 --delta 1e-6\n\nNeighbours are any two rows of one participant. All numbers are rounded up (conservatively); what floating point adds to Gaussian reports (below 1e-6 up to p = 200) is in a study's privacy statement, not here.\nThe total of several studies also holds for adaptive choices, if number and parameters are chosen from earlier outcomes within a limit that was set beforehand."
)]
pub(crate) struct AccountArgs {
    #[arg(long, help = format!("{} [default: double-cap]", crate::args::mechanism_help()), value_parser = crate::args::parse::<MechanismKind>)]
    mechanism: Option<MechanismKind>,
    /// How Gaussian noise is chosen: analytic or as-published [default: analytic]
    #[arg(long, value_parser = crate::args::parse::<Calibration>)]
    calibration: Option<Calibration>,
    /// Dimension of a report of discrete-gaussian [default: 40]
    #[arg(long, value_name = "P")]
    p: Option<usize>,
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
    /// δ at which ε is computed; the claimed δ of an (ε, δ) mechanism; not for double-cap, whose δ is 0 [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Studies that one participant takes part in, with one report each
    #[arg(long, value_name = "M", default_value_t = NonZeroU32::MIN)]
    studies: NonZeroU32,
}

impl From<&AccountArgs> for AccountRequest {
    fn from(args: &AccountArgs) -> Self {
        Self {
            mechanism: args.mechanism,
            calibration: args.calibration,
            p: args.p,
            epsilon: args.epsilon,
            sigma: args.sigma,
            sensitivity: args.sensitivity,
            delta: args.delta,
            studies: Some(args.studies),
        }
    }
}

pub(crate) fn run(args: &AccountArgs, json: bool) -> Result<()> {
    let account = account(&AccountRequest::from(args))?;
    if json {
        output::json(&account)
    } else {
        print(&account)
    }
}

fn print(account: &AccountAnswer) -> Result<()> {
    let number =
        |value: Option<f64>| value.map_or("none".to_owned(), |value| format_epsilon(value, 6));
    let delta = format_delta(account.delta);
    if let (Some(mechanism), Some(epsilon)) = (account.mechanism, account.epsilon) {
        let pure = mechanism.is_pure();
        output::text(&format!(
            "one report         {}, claimed {}",
            output::mechanism_text(mechanism, account.calibration),
            output::budget_text(epsilon, account.delta)
        ))?;
        output::text(&format!(
            "true epsilon       {}{}",
            number(account.true_epsilon),
            match format_rounded_up(account.true_delta.unwrap_or(1.0), 3) {
                _ if pure => ", delta 0".to_owned(),
                shown => format!(" at delta {delta}; delta {shown} at epsilon {epsilon}"),
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
            "{:<6} studies     epsilon {} at delta {delta}, even if they are chosen adaptively within this total",
            account.studies,
            number(account.composed_epsilon)
        ))?;
        if account.sum_delta > 0.0 {
            output::text(&format!(
                "plain sum          epsilon {} at delta {}",
                number(account.sum_epsilon),
                format_rounded_up(account.sum_delta, 3)
            ))?;
        }
    }
    Ok(())
}
