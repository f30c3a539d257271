//! The files of an estimate: tables and figures.

use std::path::Path;

use eigenveil_figures::EstimateFigure;
use eigenveil_shared::{
    api::{Lambda, SparseSettings},
    estimate::{Estimate, LambdaPath, may_be_formula},
    study::to_hex,
};
use rustix::fs::Access;
use sha2::{Digest as _, Sha256};

use crate::{
    error::{CliError, Result},
    files::{self, Written},
};

/// The file in a result's directory that lists the files of the last run.
const MANIFEST: &str = ".eigenveil-files";

/// Its first line, which tells it from a file of somebody's own; a comment to `sha256sum --check`.
const HEAD: &str = "# SHA-256 and names of the files that Eigenveil wrote here\n";

/// Each of its other lines: the SHA-256 of what was written, and the name.
type Entry = (String, String);

/// A file of a result: its name and contents.
pub(crate) type ResultFile = (&'static str, Vec<u8>);

/// Refuses a directory for results that cannot be written to, or in which what has the name of one of these files must
/// not be replaced or is not an earlier run's, or a file of an earlier run must not be removed, before the work.
pub(crate) fn check<'a>(out: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    replaceable(out, names).map(drop)
}

/// The files of earlier runs, which may be replaced; refuses as [`check`] does.
fn replaceable<'a>(out: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<Entry>> {
    // The directory, or that in which it will be made. A link to nothing is there, and is none.
    let mut above = out.components().as_path().ancestors();
    let folder = above.find(|at| at.symlink_metadata().is_ok());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(CliError::usage(format!(
            "{} is not a directory; give another for the results",
            folder.display()
        )));
    }
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        CliError::failed(format!(
            "cannot write to {}: {error}; give another --out",
            folder.display()
        ))
    })?;
    let check = |name: &str| files::check_writable(Some(&out.join(name)));
    check(MANIFEST)?;
    let earlier = earlier(out)?;
    for name in names {
        check(name)?;
        let path = out.join(name);
        if path.symlink_metadata().is_ok() && !earlier.iter().any(|(_, own)| own == name) {
            let is = if path.is_symlink() {
                "is a link"
            } else {
                "exists"
            };
            return Err(CliError::usage(format!(
                "{} {is}, and no earlier run wrote it as it is now; give another --out, or remove it",
                path.display()
            )));
        }
    }
    earlier.iter().try_for_each(|(_, name)| check(name))?;
    Ok(earlier)
}

/// The files of earlier runs that are as those left them: an interrupted run has not written all that it lists, and
/// anybody may have put another file in the place of one. Plain names only, so that nothing outside the directory is
/// removed.
/// Wrong usage if what has the name of the list is none.
fn earlier(out: &Path) -> Result<Vec<Entry>> {
    let manifest = out.join(MANIFEST);
    if manifest.symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let text = contents(&manifest).and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(lines) = text.as_deref().and_then(|text| text.strip_prefix(HEAD)) else {
        return Err(CliError::usage(format!(
            "{} is not a list of the files that earlier runs wrote; give another --out, or remove it",
            manifest.display()
        )));
    };
    let entries = lines.lines().filter_map(|line| line.split_once("  "));
    let own = entries.filter(|(written, name)| {
        is_plain_name(name)
            && contents(&out.join(name)).is_some_and(|bytes| digest(&bytes) == *written)
    });
    let own = own.map(|(written, name)| (written.to_owned(), name.to_owned()));
    Ok(own.collect())
}

/// What a regular file has. A link leads elsewhere, and a pipe waits.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let found = path.symlink_metadata().ok()?;
    found.is_file().then(|| std::fs::read(path).ok())?
}

fn digest(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

fn entry((name, bytes): &ResultFile) -> Entry {
    (digest(bytes), (*name).to_owned())
}

fn listed<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> String {
    let entries = entries.into_iter();
    let lines = entries.map(|(written, name)| format!("{written}  {name}\n"));
    std::iter::once(HEAD.to_owned()).chain(lines).collect()
}

/// Writes the files of a result into a directory, which is created if necessary, and removes files that only an earlier
/// run wrote there: a figure of one estimate beside the numbers of another would mislead. Other files stay.
pub(crate) fn write(out: &Path, files: &[ResultFile]) -> Result<()> {
    // Of two runs at once the second replaces what the first wrote.
    let folder = std::fs::File::open(out).ok();
    let _ = folder.as_ref().map(std::fs::File::lock);
    // Nothing is begun that cannot be finished.
    let before = replaceable(out, files.iter().map(|(name, _)| *name))?;
    let manifest = out.join(MANIFEST);
    let now: Vec<Entry> = files.iter().map(entry).collect();
    // First both lists, so that the next run knows the files of an interrupted one, old and new.
    let both = listed(now.iter().chain(&before));
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
    let is_stale = |old: &str| !files.iter().any(|(name, _)| *name == old);
    for (_, name) in before.iter().filter(|(_, name)| is_stale(name)) {
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
    files::write(&manifest, listed(&now).as_bytes())
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
                Some(component.variance),
                component.variance_se,
                component.explained_variance_ratio,
                Some(component.alignment),
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
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::error::assert_says;

    #[track_caller]
    fn refused(out: &Path, files: &[ResultFile], words: &[&str]) {
        let checked = check(out, files.iter().map(|(name, _)| *name));
        assert_says(&checked.unwrap_err(), words, &[]);
        assert_says(&write(out, files).unwrap_err(), words, &[]);
    }

    /// Under a name that a run wrote, or would have written had it not been interrupted, anybody may have a file.
    #[test]
    fn a_file_of_an_earlier_run_has_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let (a, b) = (out.join("a.csv"), out.join("b.csv"));
        let old = [("a.csv", b"old".to_vec())];
        let new = [("a.csv", b"new".to_vec()), ("b.csv", b"new".to_vec())];
        for left in ["old", "new"] {
            // An interrupted run: both lists, and of the files none or only the first.
            let both: Vec<Entry> = new.iter().chain(&old).map(entry).collect();
            std::fs::write(out.join(MANIFEST), listed(&both)).unwrap();
            std::fs::write(&a, left).unwrap();
            std::fs::write(&b, "mine").unwrap();
            refused(out, &new, &["b.csv exists", "another --out"]);
            assert_eq!(std::fs::read(&b).unwrap(), b"mine");
            std::fs::remove_file(&b).unwrap();
            write(out, &new).unwrap();
            assert_eq!(std::fs::read(&a).unwrap(), b"new");
        }
        std::fs::write(&a, "mine").unwrap();
        refused(out, &new, &["a.csv exists", "no earlier run wrote it"]);
        // Nor is it removed, as what a run left is.
        write(out, &[("c.csv", Vec::new())]).unwrap();
        assert_eq!(std::fs::read(&a).unwrap(), b"mine");
        assert!(!b.exists());
    }

    /// Also one to what the run wrote, whose target would be replaced.
    #[test]
    fn links_in_the_place_of_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (out, target) = (folder.path().join("out"), folder.path().join("target"));
        let results = [("a.csv", b"1".to_vec())];
        for (name, dangles) in [("a.csv", false), ("a.csv", true), (MANIFEST, false)] {
            write(&out, &results).unwrap();
            std::fs::rename(out.join(name), &target).unwrap();
            if dangles {
                std::fs::remove_file(&target).unwrap();
            }
            std::os::unix::fs::symlink("../target", out.join(name)).unwrap();
            let before = std::fs::read(&target).ok();
            refused(&out, &results, &[name, "another --out"]);
            assert_eq!(std::fs::read(&target).ok(), before, "{name}");
            std::fs::remove_dir_all(&out).unwrap();
        }
    }

    #[test]
    fn what_is_no_list_of_files_stays() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join(MANIFEST);
        let results = [("a.csv", b"1".to_vec())];
        for text in ["", "notes\n", "a.csv\n"] {
            std::fs::write(&own, text).unwrap();
            refused(folder.path(), &results, &[MANIFEST, "another --out"]);
            assert_eq!(std::fs::read_to_string(&own).unwrap(), text);
        }
        // Nobody reads a pipe, even if it would give a list.
        std::fs::remove_file(&own).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&own).status();
        assert!(made.unwrap().success());
        let pipe = own.clone();
        let writer = std::thread::spawn(move || std::fs::write(pipe, HEAD));
        refused(folder.path(), &results, &[MANIFEST, "another --out"]);
        assert_eq!(std::fs::read_to_string(&own).unwrap(), HEAD);
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("nothing", at("link")).unwrap();
        for out in ["file", "file/out", "link", "link/", "link/out"] {
            let error = check(&at(out), ["a.csv"]).unwrap_err();
            assert_says(&error, &["is not a directory; give another"], &[]);
        }
        std::fs::create_dir(at("closed")).unwrap();
        std::fs::set_permissions(at("closed"), Permissions::from_mode(0o555)).unwrap();
        // Root may write there.
        if std::fs::write(at("closed/file"), "").is_err() {
            for out in ["closed", "closed/out"] {
                let error = check(&at(out), ["a.csv"]).unwrap_err();
                assert_says(&error, &["cannot write to", "closed", "another --out"], &[]);
            }
        }
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
