//! Names of before: an error that names what they are called now.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Command (any where empty), old flag, new flag.
const FLAGS: &[(&str, &str, &str)] = &[
    ("", "--in-order", "--by-position"),
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
];

/// Flag, old value, new value.
const VALUES: &[(&str, &str, &str)] = &[
    ("--model", "published", "wang-xu"),
    ("--model", "signs", "plus-minus"),
    ("--noise", "device", "per-report"),
    ("--noise", "law", "from-sum"),
];

/// What to say instead of clap's own words if a name of before was used.
pub(crate) fn hint(error: &clap::Error, command: &str) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // `--model <MODEL>` where the value is what is wrong.
    let flag = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?;
    match error.kind() {
        ErrorKind::UnknownArgument => FLAGS
            .iter()
            .find(|(of, old, _)| (of.is_empty() || *of == command) && *old == flag)
            .map(|(_, old, new)| format!("{old} is now called {new}")),
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
