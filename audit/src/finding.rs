//! The verdict in words.

use eigenveil_shared::privacy::{format_delta, format_epsilon};

use crate::{AttemptsTest, AttemptsVerdict, AuditReport, AuditVerdict, Observed};

pub(crate) fn finding(report: &AuditReport, claim: f64) -> String {
    let AuditReport {
        epsilon,
        epsilon_lower_bound: bound,
        pair,
        ..
    } = report;
    let percent = 100.0 * report.confidence;
    let from = match report.observed {
        Observed::Report => "from the report alone",
        Observed::Transcript => {
            "from the transcript: report, envelope, attempts and words of randomness together"
        }
    };
    let bound_text =
        format!("at {percent} % confidence epsilon is at least {bound:.4} (pair {pair}, {from})");
    let exceeds = *bound > claim;
    let mut text = match report.verdict {
        AuditVerdict::Consistent => {
            format!("Consistent: no observation contradicts epsilon {epsilon}; {bound_text}.")
        }
        AuditVerdict::Refuted if exceeds => {
            format!("Refuted: epsilon {epsilon} is claimed, and {bound_text}.")
        }
        AuditVerdict::Refuted => format!(
            "Refuted: the number of attempts should have the same distribution for every row, and it does not; {bound_text}."
        ),
    };
    match report.true_epsilon {
        Some(really) if exceeds && really >= *bound => text.push_str(&format!(
            " The noise is smaller than the claim needs: the true value is epsilon {} at delta {}.",
            format_epsilon(really, 4),
            format_delta(report.delta)
        )),
        _ if report.verdict == AuditVerdict::Refuted => text.push_str(
            " The analysis rules this out, so the implementation does not do what it claims: do not use it.",
        ),
        Some(really) if really > epsilon * 1.000_01 => text.push_str(&format!(
            " But by analysis the claim is too small: the true value is epsilon {} at delta {}.",
            format_epsilon(really, 4),
            format_delta(report.delta)
        )),
        _ => {}
    }
    if report.max_provable_epsilon < *epsilon {
        text.push_str(&format!(
            " {} trials cannot refute a claim above {:.2}: give more --trials.",
            report.trials, report.max_provable_epsilon
        ));
    }
    if let Some(AttemptsTest {
        verdict: AttemptsVerdict::DependsOnTheRow,
        p_value,
        pair,
        ..
    }) = &report.attempts
    {
        text.push_str(&format!(
            " The number of attempts depends on the row (pair {pair}, p = {p_value:.1e}): the time that a device takes reveals something about its data."
        ));
    }
    text
}
