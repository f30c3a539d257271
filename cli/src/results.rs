//! The files of an estimate: tables and figures.

use std::path::Path;

use eigenveil_figures::EstimateFigure;
use eigenveil_shared::{
    api::{Lambda, SparseSettings},
    estimate::{Estimate, LambdaPath, may_be_formula},
};

use crate::{
    error::{CliError, Result},
    files::{self, Written},
};

/// The file in a result's directory that names the files of the last run.
const MANIFEST: &str = ".eigenveil-files";

/// A file of a result: its name and contents.
pub(crate) type ResultFile = (&'static str, Vec<u8>);

/// Refuses a directory for results in which one of these files cannot be written or is not an earlier run's, or one of an
/// earlier run must not be removed, before the work.
pub(crate) fn check<'a>(out: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    if out.exists() && !out.is_dir() {
        return Err(CliError::usage(format!(
            "{} is not a directory; give another for the results",
            out.display()
        )));
    }
    let check = |name: &str| files::check_writable(Some(&out.join(name)));
    let names: Vec<&str> = std::iter::once(MANIFEST).chain(names).collect();
    let earlier = earlier(out);
    for (at, name) in names.iter().enumerate() {
        check(name)?;
        let path = out.join(name);
        if at > 0 && path.is_file() && !earlier.iter().any(|own| own == name) {
            return Err(CliError::usage(format!(
                "{} exists, and no earlier run wrote it; give another --out, or remove the file",
                path.display()
            )));
        }
        // A link may lead from one to another.
        for other in &names[..at] {
            files::check_different((other, &out.join(other)), (name, &path))?;
        }
    }
    earlier.iter().try_for_each(|name| check(name))
}

/// The files of the last run: one plain name a line, so that nothing outside the directory is removed.
fn earlier(out: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(out.join(MANIFEST)).unwrap_or_default();
    let names = text.lines().filter(|line| is_plain_name(line));
    names.map(str::to_owned).collect()
}

/// Writes the files of a result into a directory, which is created if necessary, and removes files that only an earlier
/// run wrote there: a figure of one estimate beside the numbers of another would mislead. Other files stay.
pub(crate) fn write(out: &Path, files: &[ResultFile]) -> Result<()> {
    // Nothing is begun that cannot be finished.
    check(out, files.iter().map(|(name, _)| *name))?;
    let manifest = out.join(MANIFEST);
    let before = earlier(out);
    let names = || files.iter().map(|(name, _)| *name);
    let stale = || {
        let before = before.iter().map(String::as_str);
        before.filter(|line| !names().any(|name| name == *line))
    };
    let listed = |all: Vec<&str>| {
        let mut text = all.join("\n");
        text.push('\n');
        text
    };
    // First the union of both lists, so that the next run knows the files of an interrupted one.
    let both = listed(names().chain(stale()).collect());
    let mut all = vec![(manifest.clone(), both.as_bytes())];
    all.extend(
        files
            .iter()
            .map(|(name, bytes)| (out.join(name), bytes.as_slice())),
    );
    // No file has its name before the last is on disk, which may be full: a result is of one estimate.
    let made = out.ancestors().take_while(|folder| !folder.exists());
    let made: Vec<&Path> = made.collect();
    let begun = files::create_dir(out).and_then(|()| {
        let begun = all.iter().map(|(path, bytes)| Written::begin(path, bytes));
        begun.collect::<Result<Vec<_>>>()
    });
    let begun = begun.inspect_err(|_| {
        for folder in made {
            let _ = std::fs::remove_dir(folder);
        }
    })?;
    begun.into_iter().try_for_each(Written::finish)?;
    for name in stale() {
        let path = out.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CliError::failed(format!(
                    "cannot remove {}, which an earlier run left: {error}",
                    path.display()
                )));
            }
            _ => {}
        }
    }
    files::write(&manifest, listed(names().collect()).as_bytes())
}

fn is_plain_name(line: &str) -> bool {
    let mut parts = Path::new(line).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(std::path::Component::Normal(_)), None)
    )
}

/// The names that [`files`] may give the files of an estimate with these settings, to be checked before the work, when
/// neither the components nor, perhaps, p are known.
pub(crate) fn possible_names(sparse: Option<&SparseSettings>) -> Vec<&'static str> {
    let mut names = vec!["summary.csv", "features.txt", "scree.svg", "alignment.svg"];
    if let Some(sparse) = sparse {
        names.push("loadings.svg");
        if sparse.lambda == Lambda::Path {
            names.extend(["lambda_path.csv", "lambda_path.svg", "lambda_rows.svg"]);
        }
    }
    names
}

/// `summary.csv`, `features.txt`, the figures of an estimate, and the table of a path of λ.
pub(crate) fn files(estimate: &Estimate, figures: &[EstimateFigure]) -> Result<Vec<ResultFile>> {
    let mut names = estimate.feature_names().join("\n");
    names.push('\n');
    let mut files = vec![
        ("summary.csv", summary(estimate)?),
        ("features.txt", names.into_bytes()),
    ];
    let sparse = estimate.sparse.as_ref();
    if let Some(path) = sparse.and_then(|sparse| sparse.path.as_ref()) {
        files.push(("lambda_path.csv", path_table(estimate, path)?));
    }
    let figures = figures.iter();
    files.extend(figures.map(|shown| (shown.file, shown.figure.to_svg().into_bytes())));
    Ok(files)
}

/// One line for each component; unknown values are empty cells.
fn summary(estimate: &Estimate) -> Result<Vec<u8>> {
    let number = |value: Option<f64>| value.map_or(String::new(), |x| x.to_string());
    let header = "component,verdict,group,variance,variance_se,explained_variance_ratio,alignment,alignment_se,direction_se";
    let rows = estimate
        .components
        .iter()
        .enumerate()
        .map(|(j, component)| {
            let group = estimate.group_of(j);
            let range = group.map(|group| format!("{} to {}", group.first, group.last));
            let verdict = component.verdict.as_str().to_owned();
            let mut row = vec![(j + 1).to_string(), verdict, range.unwrap_or_default()];
            let numbers = [
                estimate.variance(component),
                component.variance_se,
                component.explained_variance_ratio,
                Some(component.alignment()),
                component.alignment_se(),
                // Of a component that cannot be told from others, that of their space.
                match group {
                    Some(group) => group.subspace_se,
                    None => component.direction_se,
                },
            ];
            row.extend(numbers.map(number));
            row
        });
    table(header.split(',').map(str::to_owned).collect(), rows)
}

/// One line for each λ of a path; features by their names, joined by "; ".
fn path_table(estimate: &Estimate, path: &LambdaPath) -> Result<Vec<u8>> {
    let names = estimate.feature_names();
    let joined = |rows: &[usize]| {
        let names = rows.iter().filter_map(|&row| names.get(row));
        names.map(String::as_str).collect::<Vec<_>>().join("; ")
    };
    let header =
        "lambda,chosen,support_size,captured_variance,relative_gap,converged,entering,leaving";
    let mut header: Vec<String> = header.split(',').map(str::to_owned).collect();
    if path.points.iter().all(|point| point.row_norms.is_some()) {
        header.extend(names.iter().map(|name| format!("norm of {name}")));
    }
    // In units of E[xxᵀ], like every variance in a table.
    let missing = estimate.k as f64 * estimate.missing_trace();
    let rows = path.points.iter().map(|point| {
        let mut row = vec![
            point.lambda.to_string(),
            (point.lambda == path.lambda_chosen).to_string(),
            point.support_size.to_string(),
            (point.captured_variance + missing).max(0.0).to_string(),
            point.relative_gap.to_string(),
            point.converged.to_string(),
            joined(&point.entering),
            joined(&point.leaving),
        ];
        row.extend(point.row_norms.iter().flatten().map(f64::to_string));
        row
    });
    table(header, rows)
}

/// A table as CSV; its texts are quoted if a spreadsheet may take one for a formula.
pub(crate) fn table(
    header: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<Vec<u8>> {
    let all: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let quotes = match all.iter().flatten().any(|cell| may_be_formula(cell)) {
        true => csv::QuoteStyle::NonNumeric,
        false => csv::QuoteStyle::Necessary,
    };
    let mut writer = csv::WriterBuilder::new()
        .quote_style(quotes)
        .from_writer(Vec::new());
    for row in all {
        writer
            .write_record(row)
            .map_err(|error| CliError::failed(format!("cannot write a table: {error}")))?;
    }
    writer
        .into_inner()
        .map_err(|error| CliError::failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::assert_says;

    #[test]
    fn two_names_of_one_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b.csv", folder.path().join("a.csv")).unwrap();
        let results = [("a.csv", b"1".to_vec()), ("b.csv", b"2".to_vec())];
        let error = write(folder.path(), &results).unwrap_err().to_string();
        assert_says(&error, &["a.csv and b.csv are the same file"], &[]);
        assert!(!folder.path().join("b.csv").exists());
    }

    /// A file of the last run may have become the rows of this one.
    #[test]
    fn a_file_of_an_earlier_run_that_is_an_input_stays() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        write(&out, &[("a.csv", b"1,2".to_vec()), ("b.csv", Vec::new())]).unwrap();
        files::read(&out.join("a.csv")).unwrap();
        let results = [("b.csv", b"3".to_vec())];
        for refused in [check(&out, ["b.csv"]), write(&out, &results)] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("a.csv is an input"), "{error}");
        }
        assert_eq!(std::fs::read(out.join("a.csv")).unwrap(), b"1,2");
        assert_eq!(std::fs::read(out.join("b.csv")).unwrap(), b"");
    }
}
