//! The verdict in words.

use eigenveil_shared::privacy::{delta_text, epsilon_text};

use crate::{AuditReport, AuditVerdict, Observed, TriesTest, TriesVerdict};

/// What the report says, against this claim.
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
        Observed::Joint => "from the report, its envelope and the work it took together",
    };
    let seen =
        format!("at {percent} % confidence epsilon is at least {bound:.4} (pair {pair}, {from})");
    let exceeds = *bound > claim;
    let mut text = match report.verdict {
        AuditVerdict::Consistent => {
            format!("Consistent: nothing seen contradicts epsilon {epsilon}; {seen}.")
        }
        AuditVerdict::Convicted if exceeds => {
            format!("Convicted: epsilon {epsilon} is claimed, and {seen}.")
        }
        AuditVerdict::Convicted => format!(
            "Convicted: the number of tries should have the same distribution for every row, and it does not; {seen}."
        ),
    };
    match report.true_epsilon {
        Some(really) if exceeds && really >= *bound => text.push_str(&format!(
            " The noise is smaller than the claim needs: what really holds is epsilon {} at delta {}.",
            epsilon_text(really, 4),
            delta_text(report.delta)
        )),
        _ if report.verdict == AuditVerdict::Convicted => text.push_str(
            " The analysis rules this out, so the implementation does not do what it claims: do not use it.",
        ),
        Some(really) if really > epsilon * 1.000_01 => text.push_str(&format!(
            " But by analysis the claim is too small: what really holds is epsilon {} at delta {}.",
            epsilon_text(really, 4),
            delta_text(report.delta)
        )),
        _ => {}
    }
    if report.epsilon_provable < *epsilon {
        text.push_str(&format!(
            " {} trials cannot refute a claim above {:.2}: give more --trials.",
            report.trials, report.epsilon_provable
        ));
    }
    if let Some(TriesTest {
        verdict: TriesVerdict::DependsOnTheRow,
        p_value,
        pair,
        ..
    }) = &report.tries
    {
        text.push_str(&format!(
            " The number of tries depends on the row (pair {pair}, p = {p_value:.1e}): the time a device takes tells about its data."
        ));
    }
    text
}
