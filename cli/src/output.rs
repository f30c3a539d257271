//! Results on standard output, progress on standard error.

use std::{
    io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use eigenveil_estimation::metrics::max_error;
use eigenveil_figures::{DataTable, Figure};
pub(crate) use eigenveil_shared::wording::mechanism_text;
use eigenveil_shared::{
    estimate::{Estimate, SparseOutcome},
    privacy::{PrivacyStatement, format_delta},
    wording::first_few,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    error::{CliError, Result, in_flags},
    files,
};

/// Prints one JSON object on one line and nothing else; numbers that are not finite become `null`.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(value).map_err(|error| CliError::failed(error.to_string()))?;
    bytes(format!("{line}\n").as_bytes())
}

pub(crate) fn json_or_text(as_json: bool, value: &impl Serialize, line: &str) -> Result<()> {
    match as_json {
        true => json(value),
        false => text(line),
    }
}

/// Prints a line of text. Control characters, such as an escape in a study's name, are replaced by a visible sign.
pub(crate) fn text(line: &str) -> Result<()> {
    bytes(format!("{}\n", printable(line)).as_bytes())
}

/// Prints these bytes. A closed pipe (`… | head`) is not an error.
pub(crate) fn bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a line on standard error; failing to write it is not a reason to stop. Control characters (an escape in a
/// file's column name) are replaced by a visible sign.
pub(crate) fn print_error_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.,/".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn printable(text: &str) -> String {
    let is_printable = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.replace(|c: char| !is_printable(c), "\u{fffd}")
}

pub(crate) fn print_warning(warning: &str) {
    print_error_line(&format!("warning: {warning}"));
}

pub(crate) fn print_warnings(warnings: &[String]) {
    for warning in warnings {
        print_warning(&in_flags(warning));
    }
}

pub(crate) fn print_notes(notes: &[String]) {
    for note in notes {
        print_error_line(&format!("note: {}", in_flags(note)));
    }
}

/// A progress bar on standard error, hidden if that is not a terminal.
pub(crate) fn bar(total: u64, label: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    // The template is a constant; if it ever fails to parse the default style will do.
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(label.to_owned());
    bar
}

/// Mean and standard deviation over runs; a single run has no deviation.
pub(crate) fn mean_and_sd(mean: f64, deviation: Option<f64>) -> String {
    let mean = decimals(mean, 4);
    match deviation {
        None => mean,
        Some(deviation) => format!("{mean} ± {}", decimals(deviation, 4)),
    }
}

/// A number with this many decimals, or with two digits if those would all be zero ("3.2e-6").
pub(crate) fn decimals(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    match value != 0.0 && text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        true => format!("{value:.1e}"),
        false => text,
    }
}

/// A budget in words; δ is omitted if it is 0.
pub(crate) fn budget_text(epsilon: f64, delta: f64) -> String {
    match delta {
        0.0 => format!("epsilon {epsilon}, pure (delta 0)"),
        delta => format!("epsilon {epsilon}, delta {}", format_delta(delta)),
    }
}

/// The budget that holds, its ε rounded up, in words.
pub(crate) fn true_budget_text(epsilon: Option<f64>, delta: f64) -> String {
    match epsilon {
        Some(epsilon) => budget_text((1e6 * epsilon).ceil() / 1e6, delta),
        None => format!("no finite epsilon at delta {}", format_delta(delta)),
    }
}

/// The error of a subspace and the largest possible, that of orthogonal subspaces: "0.61 of at most 2.83".
pub(crate) fn error_text(error: f64, p: usize, k: usize) -> String {
    format!("{error:.2} of at most {:.2}", max_error(p, k))
}

/// The range of an expected error, after the error: ", range 0.17 to 0.26".
pub(crate) fn range_text((low, high): (f64, f64)) -> String {
    format!(", range {low:.2} to {high:.2}")
}

const MAX_LISTED: usize = 40;

/// The selection of a sparse estimate: λ, the number of features, and their names.
pub(crate) fn selection_text(estimate: &Estimate, sparse: &SparseOutcome) -> String {
    let names = estimate.feature_names();
    let name_of = |row: &usize| names.get(*row).cloned().unwrap_or_default();
    let named = match sparse.support.len() {
        0 => "none".to_owned(),
        _ => first_few(sparse.support.iter().map(name_of), MAX_LISTED, |more| {
            format!(", and {more} more (components.csv has all)")
        }),
    };
    format!(
        "sparse: λ = {:.6}, {} of {} rows selected: {named}",
        sparse.lambda,
        sparse.support.len(),
        estimate.p
    )
}

/// A table for the terminal: numbers to the right, the last column to the left.
pub(crate) fn aligned<C: AsRef<[String]>>(heads: &C, rows: &[C]) -> String {
    let lines = || std::iter::once(heads).chain(rows).map(AsRef::as_ref);
    let columns = heads.as_ref().len();
    let width = |column: usize| {
        let lengths = lines().map(|line| line[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.saturating_sub(1)).map(width).collect();
    let line = |line: &[String]| {
        let numbers = line.iter().zip(&widths);
        let numbers = numbers.map(|(cell, width)| format!("{cell:>width$}  "));
        numbers.collect::<String>() + line.last().map_or("", String::as_str)
    };
    lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A table of figures for the terminal, under its caption.
pub(crate) fn table_text(table: &DataTable) -> String {
    format!(
        "{}\n{}",
        table.caption,
        aligned(&table.headers, &table.rows)
    )
}

/// The effect of private centring, if the study has it.
pub(crate) fn centring_text(estimate: &Estimate) -> Option<String> {
    let mean = estimate.mean.as_ref()?;
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    Some(format!(
        "constant {:.4}; mean of length {length:.4} removed, each entry known to about {}",
        estimate.params.preprocessing().ok()?.centring?,
        decimals(estimate.mean_standard_error.unwrap_or(0.0), 4)
    ))
}

pub(crate) fn privacy_text(privacy: &PrivacyStatement) -> String {
    let mut true_text = true_budget_text(privacy.true_epsilon, privacy.delta);
    if privacy.claim_holds && privacy.true_epsilon > Some(privacy.epsilon) {
        true_text += " (the claim plus floating-point slack)";
    }
    let mut text = format!(
        "mechanism    {}\nneighbours   {}\nclaimed      {}\ntrue epsilon {true_text}\none report   {} bytes ({} of payload)\n\n{}",
        mechanism_text(privacy.mechanism, privacy.calibration),
        privacy.neighbours,
        budget_text(privacy.epsilon, privacy.delta),
        privacy.report_bytes,
        privacy.payload_bytes,
        privacy.sentence
    );
    for warning in &privacy.warnings {
        text.push('\n');
        text.push_str(warning);
    }
    text
}

/// The path of a file beside this one, with more at the end of its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn write_figure(path: &Path, figure: &impl Figure) -> Result<()> {
    files::write(path, figure.to_svg().as_bytes())
}

/// Asks at the terminal; `None` if there is no terminal.
pub(crate) fn ask(question: &str) -> Result<Option<bool>> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(None);
    }
    print_error_line(question);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}\n\tb\u{9b}"), "a�]0;x�\n\tb�");
        assert_eq!(shell_quoted("a/b-1.csv"), "a/b-1.csv");
        assert_eq!(shell_quoted("it's;x"), "'it'\\''s;x'");
    }

    #[test]
    fn small_errors_are_not_shown_as_zero() {
        assert_eq!(mean_and_sd(0.25, Some(3.2e-6)), "0.2500 ± 3.2e-6");
        assert_eq!(mean_and_sd(4.12e-13, Some(5e-14)), "4.1e-13 ± 5.0e-14");
        assert_eq!(mean_and_sd(0.25, Some(0.001_23)), "0.2500 ± 0.0012");
        assert_eq!(mean_and_sd(0.25, Some(0.0)), "0.2500 ± 0.0000");
        assert_eq!(mean_and_sd(0.25, None), "0.2500");
        assert_eq!(decimals(4e-7, 5), "4.0e-7");
        assert_eq!(decimals(-0.000_06, 4), "-0.0001");
        assert_eq!(decimals(0.04, 1), "4.0e-2");
        assert_eq!(decimals(0.0, 4), "0.0000");
    }

    #[test]
    fn delta_zero_is_omitted_from_budgets() {
        assert_eq!(budget_text(4.0, 0.0), "epsilon 4, pure (delta 0)");
        assert_eq!(budget_text(4.0, 1e-6), "epsilon 4, delta 1e-6");
    }
}
