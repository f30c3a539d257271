//! `eigenveil plan` without a spectrum: what n participants can show, for no error is known.

use eigenveil_estimation::{centring::planned_noise, floor::resolution, format::with_thousands};
use eigenveil_shared::{mechanism::MechanismKind, preprocess::Preprocessing};
use serde::Serialize;

use super::plan::{PlanArgs, settings};
use crate::{
    args::NormArg,
    error::{CliError, Result},
    output,
};

const DEFAULT_COMPONENTS: usize = 3;

#[derive(Serialize)]
struct ResolutionRow {
    mechanism: MechanismKind,
    epsilon: f64,
    delta: f64,
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

pub(super) fn run(args: &PlanArgs, json: bool) -> Result<()> {
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
    let mut rows = Vec::new();
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
        for n in &args.n {
            let found = resolution(&noise, p, n.get(), k)?;
            let possible = |size: f64| (size + found.average < 1.0).then_some(size);
            rows.push(ResolutionRow {
                mechanism: setting.mechanism,
                epsilon: setting.epsilon,
                delta: setting.params.budget().delta(),
                n: n.get(),
                visible: possible(found.visible),
                separable: possible(found.separable),
            });
        }
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
        "{:<20} {:>7} {:>14} {:>16} {:>24}",
        "mechanism",
        "epsilon",
        "participants",
        "a direction",
        format!("components {k} and {}", k + 1)
    ))?;
    for row in &answer.rows {
        output::text(&format!(
            "{:<20} {:>7} {:>14} {:>16} {:>24}",
            row.mechanism.to_string(),
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
    ))
}
