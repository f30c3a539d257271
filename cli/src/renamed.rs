//! Old names of flags and values, for errors that name the new ones.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Command (empty: any command), old flag, new flag.
const FLAGS: &[(&str, &str, &str)] = &[
    ("", "--in-order", "--by-position"),
    ("", "--norm", "--bound-rows"),
    ("audit", "--source", "--randomness"),
    ("central", "--clip", "--gradient-clip"),
    ("central", "--columns", "--block-size"),
    ("central", "--gap", "--eigengap"),
    ("central", "--sigma", "--gradient-noise"),
    ("central", "--stage", "--halve-step-every"),
    ("central", "--step", "--step-size"),
    ("estimate", "--number", "--job"),
    ("plan", "--total", "--mean-squared-length"),
    ("report", "--accept-changes", "--accept-new-purpose"),
    ("report", "--single", "--no-batch"),
    ("reproduce", "--fresh", "--restart"),
    ("serve", "--memory-bytes", "--sum-cache-bytes"),
    ("serve", "--store-bytes", "--max-store-bytes"),
    ("simulate", "--path", "--noise"),
    ("study", "--ends", "--last-day"),
    ("study", "--responsible", "--responsible-party"),
];

/// Command, flag that is gone, and why.
const REMOVED: &[(&str, &str, &str)] = &[
    ("report", "--state", REPORTS_IN_LEDGER),
    ("report", "--outbox", REPORTS_IN_LEDGER),
];
const REPORTS_IN_LEDGER: &str =
    "is gone: the ledger (--ledger) holds the reports that are still to be sent, too";

/// Flag, old value, new value.
const VALUES: &[(&str, &str, &str)] = &[
    ("--model", "published", "wang-xu"),
    ("--model", "signs", "plus-minus"),
    ("--noise", "device", "per-report"),
    ("--noise", "law", "from-sum"),
];

/// The message instead of clap's own, if the error is about an old name.
pub(crate) fn hint(error: &clap::Error, command: &str) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // `--model <MODEL>` if the value is wrong.
    let flag = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?;
    match error.kind() {
        ErrorKind::UnknownArgument => FLAGS
            .iter()
            .find(|(of, old, _)| (of.is_empty() || *of == command) && *old == flag)
            .map(|(_, old, new)| format!("{old} is now called {new}"))
            .or_else(|| {
                let mut removed = REMOVED.iter();
                removed
                    .find(|(of, old, _)| *of == command && *old == flag)
                    .map(|(_, old, why)| format!("{old} {why}"))
            }),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue)?;
            VALUES
                .iter()
                .find(|(of, old, _)| *of == flag && *old == value)
                .map(|(_, old, new)| format!("{flag} {old} is now called {flag} {new}"))
        }
        _ => None,
    }
}
