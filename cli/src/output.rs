//! Results on standard output, progress on standard error.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use eigenveil_estimation::{floor::grouped, plan::max_error};
use eigenveil_figures::Figure;
use eigenveil_shared::{
    estimate::{Estimate, SparseOutcome},
    mechanism::{Calibration, MechanismKind},
    privacy::{PrivacyStatement, delta_text},
    study::StudyParams,
};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::error::{CliError, Result};

/// Prints one JSON object on one line and nothing else; numbers that are not finite become `null`.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(value).map_err(|error| CliError::failed(error.to_string()))?;
    bytes(format!("{line}\n").as_bytes())
}

/// Prints the one for programs, or the other for people.
pub(crate) fn either(as_json: bool, value: &impl Serialize, line: &str) -> Result<()> {
    match as_json {
        true => json(value),
        false => text(line),
    }
}

/// Prints a line of text. What would steer the terminal, such as an escape in the name that a server gives a study, is
/// shown as a sign.
pub(crate) fn text(line: &str) -> Result<()> {
    bytes(format!("{}\n", printable(line)).as_bytes())
}

/// Prints these bytes. A reader that has had enough (`… | head`) is no error.
pub(crate) fn bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A line on standard error, for as long as anybody can be told: a log that cannot be written is no reason to stop.
/// What would steer the terminal (an escape in a file's column name) is shown as a sign.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.,/".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn printable(text: &str) -> String {
    let shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars()
        .map(|c| {
            if shown(c) {
                c
            } else {
                char::REPLACEMENT_CHARACTER
            }
        })
        .collect()
}

/// What the user should think about, on standard error.
pub(crate) fn warn(warning: &str) {
    say(&format!("warning: {warning}"));
}

/// What the user is told once, on standard error.
pub(crate) fn notes(notes: &[String]) {
    for note in notes {
        say(&format!("note: {note}"));
    }
}

/// A bar on standard error: hidden when that is not a terminal.
pub(crate) fn bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    // The template is a constant; should it ever not parse, the default style is as good.
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {rate} {eta}")
    {
        let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // A bar that cannot be written is no reason to stop.
            let _ = write!(text, "{}/s", rounded_rate(state.per_sec()));
        };
        bar.set_style(style.with_key("rate", rate));
    }
    bar.set_message(what.to_owned());
    bar
}

/// A rate without decimals that mean nothing: two digits below 10, whole numbers above.
fn rounded_rate(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        with_thousands(rate.round() as u64)
    }
}

/// Mean and standard deviation over some runs; of one run there is no deviation.
pub(crate) fn over_runs(mean: f64, deviation: f64, runs: u64) -> String {
    let mean = decimals(mean, 4);
    if runs == 1 {
        mean
    } else {
        format!("{mean} ± {}", decimals(deviation, 4))
    }
}

/// A number to so many decimals; to two digits where those would all be zero ("3.2e-6").
pub(crate) fn decimals(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    if value != 0.0 && text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        format!("{value:.1e}")
    } else {
        text
    }
}

/// A mechanism's name, with the calibration where there is a choice.
pub(crate) fn mechanism_text(kind: MechanismKind, calibration: Option<Calibration>) -> String {
    calibration.map_or_else(
        || kind.to_string(),
        |calibration| format!("{kind}, calibration {calibration}"),
    )
}

/// A budget in words: pure budgets have no δ worth showing.
pub(crate) fn budget_text(epsilon: f64, delta: f64) -> String {
    if delta == 0.0 {
        format!("epsilon {epsilon}, pure (delta 0)")
    } else {
        format!("epsilon {epsilon}, delta {}", delta_text(delta))
    }
}

/// The error of a subspace beside the largest there is, that of spaces with nothing in common: "0.61 of at most 2.83".
pub(crate) fn error_text(error: f64, p: usize, k: usize) -> String {
    format!("{error:.2} of at most {:.2}", max_error(p, k))
}

/// Most rows of a sparse estimate named on the terminal.
const MOST_NAMED: usize = 40;

/// What a sparse estimate selected: λ, how many rows, and which.
pub(crate) fn selection_text(estimate: &Estimate, sparse: &SparseOutcome) -> String {
    let names = estimate.feature_names();
    let of = |row: &usize| names.get(*row).map_or("", String::as_str);
    let named: Vec<&str> = sparse.support.iter().take(MOST_NAMED).map(of).collect();
    let more = match sparse.support.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more (components.csv has all)"),
    };
    format!(
        "sparse: λ = {:.6}, {} of {} rows selected: {}{more}",
        sparse.lambda,
        sparse.support.len(),
        estimate.p,
        if named.is_empty() {
            "none".to_owned()
        } else {
            named.join(", ")
        }
    )
}

/// What private centring did, where the study has it.
pub(crate) fn centring_text(estimate: &Estimate) -> Option<String> {
    let mean = estimate.mean.as_ref()?;
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    Some(format!(
        "constant {:.4}; mean of length {length:.4} removed, each entry known to about {}",
        estimate.study.preprocessing().centring?,
        decimals(estimate.mean_standard_error.unwrap_or(0.0), 4)
    ))
}

/// The whole privacy statement, for people.
pub(crate) fn privacy_text(privacy: &PrivacyStatement) -> String {
    let holds = match privacy.true_epsilon {
        Some(epsilon) => budget_text((1e6 * epsilon).ceil() / 1e6, privacy.delta),
        None => format!("nothing at delta {}", delta_text(privacy.delta)),
    };
    let mut text = format!(
        "mechanism    {}\nneighbours   {}\nclaimed      {}\ntrue epsilon {holds}\none report   {} bytes ({} of payload)\n\n{}",
        mechanism_text(privacy.mechanism, privacy.calibration),
        privacy.neighbours,
        budget_text(privacy.epsilon, privacy.delta),
        privacy.bytes_per_report,
        privacy.payload_bytes,
        privacy.sentence
    );
    for caution in &privacy.cautions {
        text.push('\n');
        text.push_str(caution);
    }
    text
}

/// Expected tries × coordinates from which a report is called slow: a few milliseconds on one core.
const SLOW: f64 = 200_000.0;

/// A sentence for people where one report takes noticeably long.
pub(crate) fn slow_text(params: &StudyParams) -> Option<String> {
    let tries = params.mechanism().expected_tries()?;
    let p = params.report_dimension();
    (tries * (p as f64) >= SLOW).then(|| {
        format!("one report takes {tries:.0} tries of {p} numbers on average; a smaller epsilon takes fewer")
    })
}

/// Writes a file so that a reader never sees half of it.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    fs::write(&partial, bytes)
        .and_then(|()| fs::rename(&partial, path))
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))
}

/// Writes a figure as SVG.
pub(crate) fn write_figure(path: &Path, figure: &impl Figure) -> Result<()> {
    write_file(path, figure.to_svg().as_bytes())
}

/// Makes a directory for results.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| {
        CliError::failed(format!(
            "cannot make the directory {}: {error}",
            path.display()
        ))
    })
}

/// A file that appears under its name when it is whole, and not before.
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: fs::File,
}

impl NewFile {
    /// Begins a file that must not exist.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if path.exists() {
            return Err(CliError::usage(format!(
                "{} exists; give another name or remove it first",
                path.display()
            )));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        // Identifiers and perturbed reports: nobody else's business.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&partial) {
            Ok(file) => Ok(Self {
                path: path.to_owned(),
                partial,
                file,
            }),
            Err(error) => Err(CliError::failed(format!(
                "cannot write {}: {error}",
                partial.display()
            ))),
        }
    }

    /// Where to write.
    pub(crate) fn writer(&mut self) -> &mut fs::File {
        &mut self.file
    }

    /// Syncs it and gives it its name.
    pub(crate) fn keep(self) -> Result<()> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.partial, &self.path))
            .map_err(|error| {
                CliError::failed(format!("cannot write {}: {error}", self.path.display()))
            })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Nothing to remove once it has its name; half a file is of no use.
        let _ = fs::remove_file(&self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_words_do_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}\n\tb\u{9b}"), "a�]0;x�\n\tb�");
        assert_eq!(quoted("a/b-1.csv"), "a/b-1.csv");
        assert_eq!(quoted("it's;x"), "'it'\\''s;x'");
    }

    #[test]
    fn an_error_that_is_not_zero_is_not_shown_as_zero() {
        assert_eq!(over_runs(0.25, 3.2e-6, 5), "0.2500 ± 3.2e-6");
        assert_eq!(over_runs(4.12e-13, 5e-14, 5), "4.1e-13 ± 5.0e-14");
        assert_eq!(over_runs(0.25, 0.001_23, 5), "0.2500 ± 0.0012");
        assert_eq!(over_runs(0.25, 0.0, 5), "0.2500 ± 0.0000");
        assert_eq!(decimals(4e-7, 5), "4.0e-7");
        assert_eq!(decimals(-0.000_06, 4), "-0.0001");
        assert_eq!(decimals(0.04, 1), "4.0e-2");
        assert_eq!(decimals(0.0, 4), "0.0000");
    }

    #[test]
    fn a_pure_budget_has_no_exponent() {
        assert_eq!(budget_text(4.0, 0.0), "epsilon 4, pure (delta 0)");
        assert_eq!(budget_text(4.0, 1e-6), "epsilon 4, delta 1e-6");
    }
}
