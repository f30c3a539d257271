//! `eigenveil audit`: an empirical lower bound on ε.

use clap::Args;
use eigenveil_audit::{
    AttemptsVerdict, AuditReport, AuditSettings, CONFIDENCE, Method, Observed, PairKind,
    Randomness, TRIALS,
};
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    privacy::format_epsilon,
};

use crate::{
    args::{mechanism_help, parse},
    error::Result,
    output,
};

/// Try to refute a mechanism's ε: a lower bound from many reports of chosen rows
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil audit --mechanism double-cap --p 8 --epsilon 1 --trials 1000000\n  eigenveil audit --mechanism symmetric-gaussian --calibration as-published --p 40 --epsilon 4\n  eigenveil audit --max-rows 1000000 --p 8 --epsilon 1\n\nReports are made as on a device, from the raw row to the wire; the audit sees the report, its envelope and the attempts it took.\nA refuted mechanism is a result, not a failure: the exit code is 0 and the verdict says so.\nAn audit can refute a claim and never prove one; docs/audit.md says how to read it."
)]
pub(crate) struct AuditArgs {
    #[arg(long, help = format!("{} [default: double-cap; of tables discrete-gaussian]", mechanism_help()), value_parser = parse::<MechanismKind>)]
    mechanism: Option<MechanismKind>,
    /// How Gaussian noise is chosen: analytic (the claim holds) or as-published (the paper's formula) [default:
    /// analytic]
    #[arg(long, value_parser = parse::<Calibration>)]
    calibration: Option<Calibration>,
    /// Dimension of a row
    #[arg(long, value_name = "P")]
    p: usize,
    /// Audit the report of a site's table of at most so many rows (see study create --max-rows), and not of a single row
    #[arg(long, value_name = "M")]
    max_rows: Option<u64>,
    /// Privacy-loss bound ε that is claimed, at most 16
    #[arg(long, value_name = "E")]
    epsilon: f64,
    /// Failure probability δ that is claimed; not for double-cap, which has none [default: 1e-6]
    #[arg(long, value_name = "D")]
    delta: Option<f64>,
    /// Reports of each row, or table, of each pair, at least 1000; more make the bound tighter
    #[arg(long, value_name = "T", default_value_t = TRIALS)]
    trials: usize,
    /// Seed of the random rows, and of the trials with --randomness seeded
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Source of randomness: system (as on a device, different each time) or seeded (the same seed gives the same
    /// numbers)
    #[arg(long, value_name = "system|seeded", default_value = "system", value_parser = parse::<Randomness>)]
    randomness: Randomness,
    /// Confidence of the verdict, from 0.5 to below 1
    #[arg(long, value_name = "C", default_value_t = CONFIDENCE)]
    confidence: f64,
    /// Pairs to compare (docs/audit.md describes each): axes, orthogonal, unit-zero; clipped, normalized, required, unusable; short-axes, short-dense, short-axes-required, short-dense-required; centred, centred-unusable, missing-cells, weighted, two-rows; of tables row-replaced, row-added, row-removed, row-unusable, all-unusable, offset-rows; centred-row, centred-row-added; person-added, person-replaced, person-unusable [default: all]
    #[arg(long, value_name = "PAIR,…", value_delimiter = ',', value_parser = parse::<PairKind>)]
    pair: Vec<PairKind>,
    /// event assumes nothing; mu-gdp assumes Gaussian noise and is refused for mechanisms without it [default: the
    /// tightest that fits the mechanism]
    #[arg(long, value_name = "event|mu-gdp", value_parser = parse::<Method>)]
    method: Option<Method>,
}

impl From<&AuditArgs> for AuditSettings {
    fn from(args: &AuditArgs) -> Self {
        Self {
            mechanism: args.mechanism,
            calibration: args.calibration.unwrap_or_default(),
            dimension: args.p,
            max_rows: args.max_rows,
            epsilon: args.epsilon,
            delta: args.delta,
            trials: args.trials,
            seed: args.seed,
            randomness: args.randomness,
            pairs: args.pair.clone(),
            method: args.method,
            confidence: args.confidence,
        }
    }
}

pub(crate) fn run(args: &AuditArgs, json: bool) -> Result<()> {
    args.mechanism
        .unwrap_or_default()
        .calibration(args.calibration)?;
    let settings = AuditSettings::from(args);
    let bar = output::bar(settings.draws(), "reports");
    let (report, warnings) = eigenveil_audit::run(&settings, &|done| {
        bar.inc(done);
        Ok(())
    })?;
    bar.finish_and_clear();
    output::print_warnings(&warnings);
    if json {
        output::json(&report)
    } else {
        print(&report)
    }
}

fn print(report: &AuditReport) -> Result<()> {
    let (of, input) = match report.max_rows {
        None => (String::new(), "row"),
        Some(rows) => (format!(" of tables of at most {rows} rows"), "table"),
    };
    output::text(&format!(
        "{}{of}, p = {}, {}, {} trials a {input} in {:.1} s",
        output::mechanism_text(report.mechanism, report.calibration),
        report.p,
        output::budget_text(report.epsilon, report.delta),
        report.trials,
        report.seconds
    ))?;
    output::text(
        "epsilon is at least\npair                   from the report   from the transcript",
    )?;
    for pair in &report.pairs {
        let (alone, joint) = match report.observed {
            _ if pair.name != report.pair => ("", ""),
            Observed::Report => (" *", ""),
            _ => ("", " *"),
        };
        let alone = format!("{:.4}{alone}", pair.epsilon_lower_bound);
        let joint = format!("{:.4}{joint}", pair.transcript_epsilon_lower_bound);
        let line = format!("{:<22} {alone:<17} {joint}", pair.name.as_str());
        output::text(line.trim_end())?;
    }
    output::text(
        "                       * reported: chosen on the first half of the trials, judged on the second",
    )?;
    let true_epsilon = report
        .true_epsilon
        .map_or("-".to_owned(), |epsilon| format_epsilon(epsilon, 6));
    output::text(&format!(
        "claimed       {}   by analysis {true_epsilon}",
        report.epsilon
    ))?;
    output::text(&if report.model_based {
        format!(
            "method        mu-gdp, model-based: takes Gaussian noise on trust and measures its scale; black box, the report alone gives {:.4}",
            report.event_epsilon_lower_bound
        )
    } else {
        "method        event, black box: nothing is assumed about the mechanism".to_owned()
    })?;
    output::text(&format!(
        "transcript    report, envelope, attempts and words of randomness together: {:.4}",
        report.transcript_epsilon_lower_bound
    ))?;
    if let Some(attempts) = &report.attempts {
        output::text(&format!(
            "attempts      {} (p = {:.3}; a correct mechanism is accused once in {:.0})",
            match attempts.verdict {
                AttemptsVerdict::SameForEveryRow => "no difference between the rows of any pair",
                AttemptsVerdict::DependsOnTheRow => "depend on the row",
            },
            attempts.p_value,
            1.0 / attempts.false_alarm
        ))?;
    }
    output::text(&report.finding)?;
    output::text(&format!(
        "This audit tried these pairs and these statistics. With this many trials it can refute a claim up to epsilon {:.2}; it cannot prove one.",
        report.max_provable_epsilon
    ))
}
