//! The files of a result in their folder, and the tables and figures of an estimate.

use std::{fs, io, path::Path};

use eigenveil_figures::EstimateFigure;
use eigenveil_shared::{
    estimate::{Estimate, LambdaPath, may_be_formula},
    site_estimate::{SiteDifference, SiteVerdict, SitesEstimate},
};
use tempfile::Builder;

use crate::{
    error::{CliError, Result},
    files,
};

/// A file of a result: its name and contents.
pub(crate) type ResultFile = (&'static str, Vec<u8>);

/// Refuses a folder that takes no files, and one that has one of these names, which the command may write, unless that
/// is to be replaced; before the work.
pub(crate) fn check(out: &Path, names: &[&str], overwrite: bool) -> Result<()> {
    // The folder, or that in which it will be made. A link to nothing is there, and is none.
    let mut above = out.components().as_path().ancestors();
    let folder = above.find(|at| at.symlink_metadata().is_ok());
    files::check_folder(folder.unwrap_or(Path::new(".")))?;
    for name in names {
        let path = out.join(name);
        if path.symlink_metadata().is_err() {
            continue;
        }
        if !overwrite {
            return Err(CliError::usage(format!(
                "{} has {name} already; give another --out, or --overwrite to replace the result there",
                out.display()
            )));
        }
        files::check(&path)?;
    }
    Ok(())
}

/// Writes the files of a result into a folder, which is made if necessary, in place of all that has one of these names:
/// a figure of one estimate beside the numbers of another would mislead. Other files stay.
/// Refuses as [`check`] does.
pub(crate) fn write(
    out: &Path,
    names: &[&str],
    overwrite: bool,
    files: &[ResultFile],
) -> Result<()> {
    debug_assert!(files.iter().all(|(name, _)| names.contains(name)));
    let cannot = |error| CliError::failed(format!("cannot write to {}: {error}", out.display()));
    check(out, names, overwrite)?;
    fs::create_dir_all(out).map_err(cannot)?;
    // Nothing is replaced before the last file is on disk, which may be full.
    let new = Builder::new().prefix(".eigenveil-").tempdir_in(out);
    let new = new.map_err(cannot)?;
    for (name, bytes) in files {
        fs::write(new.path().join(name), bytes).map_err(cannot)?;
    }
    for (name, _) in files {
        let (from, to) = (new.path().join(name), out.join(name));
        if let Ok(found) = to.symlink_metadata()
            && found.is_file()
        {
            fs::set_permissions(&from, found.permissions()).map_err(cannot)?;
        }
        fs::rename(from, to).map_err(cannot)?;
    }
    for name in names
        .iter()
        .filter(|name| files.iter().all(|(new, _)| new != *name))
    {
        match fs::remove_file(out.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
    }
    Ok(())
}

/// The names that [`files`] may give.
pub(crate) const NAMES: [&str; 10] = [
    "summary.csv",
    "sites.csv",
    "features.txt",
    "scree.svg",
    "alignment.svg",
    "correlations.svg",
    "loadings.svg",
    "lambda_path.csv",
    "lambda_path.svg",
    "lambda_rows.svg",
];

/// `summary.csv`, `features.txt`, the figures of an estimate, the table of its sites and that of a path of λ.
pub(crate) fn files(estimate: &Estimate, figures: &[EstimateFigure]) -> Result<Vec<ResultFile>> {
    let mut names = estimate.feature_names().join("\n");
    names.push('\n');
    let mut files = vec![
        ("summary.csv", summary(estimate)?),
        ("features.txt", names.into_bytes()),
    ];
    if let Some(sites) = &estimate.sites {
        files.push(("sites.csv", site_lines(estimate, sites)?));
    }
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
    let header = "component,verdict,group,variance,variance_se,explained_variance_ratio,alignment,alignment_se,direction_se";
    // Of tables of sites intervals of 95 % too, by target.
    let by_target = "rows_low,rows_high,populations_low,populations_high,sites_low,sites_high";
    let intervals = estimate.sites.as_ref().map(|sites| &sites.intervals);
    let header = match intervals {
        None => header.to_owned(),
        Some(_) => format!("{header},{by_target}"),
    };
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
                estimate.variance_error(component),
                component.explained_variance_ratio,
                component.alignment,
                component.alignment_se,
                // Of a component that cannot be told from others, that of their space.
                match group {
                    Some(group) => group.subspace_se,
                    None => component.direction_se,
                },
            ];
            row.extend(numbers.map(number));
            let ends = intervals.and_then(|intervals| intervals.get(j));
            row.extend(ends.into_iter().flat_map(|of| {
                [of.rows, of.populations, of.sites]
                    .into_iter()
                    .flat_map(|ends| {
                        [
                            number(ends.map(|ends| ends.0)),
                            number(ends.map(|ends| ends.1)),
                        ]
                    })
            }));
            row
        });
    table(header.split(',').map(str::to_owned).collect(), rows)
}

/// One line for each site; unknown values are empty cells.
fn site_lines(estimate: &Estimate, sites: &SitesEstimate) -> Result<Vec<u8>> {
    let names = estimate.feature_names();
    let of_difference = "size,low,high,excess,feature,along_feature,along_feature_se";
    let differences = ["means", "moments"].map(|what| {
        let columns = of_difference
            .split(',')
            .map(|column| format!("{what}_{column}"));
        columns.collect::<Vec<_>>()
    });
    let header = "site,reports,rows,share,verdict,one_of_several";
    let mut header: Vec<String> = header.split(',').map(str::to_owned).collect();
    header.extend(differences.concat());
    header.extend(["movement", "expected_movement", "robust_factor"].map(str::to_owned));
    let difference = |found: Option<SiteDifference>| match found {
        None => vec![String::new(); of_difference.split(',').count()],
        Some(found) => {
            let feature = names.get(found.feature).cloned().unwrap_or_default();
            vec![
                found.size.to_string(),
                found.interval.0.to_string(),
                found.interval.1.to_string(),
                found.excess.to_string(),
                feature,
                found.along_feature.to_string(),
                found.along_feature_se.to_string(),
            ]
        }
    };
    let rows = sites.sites.iter().map(|line| {
        let verdict = line.verdict.map_or("", SiteVerdict::as_str);
        let mut row = vec![
            line.site.clone(),
            line.reports.to_string(),
            line.rows.to_string(),
            line.share.to_string(),
            verdict.to_owned(),
            line.one_of_several.to_string(),
        ];
        row.extend([line.means, line.moments].map(difference).concat());
        row.extend([line.movement, line.expected_movement, line.robust_factor].map(number));
        row
    });
    table(header, rows)
}

/// A number, or an empty cell.
fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |x| x.to_string())
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
    let missing = estimate.k as f64 * estimate.missing_trace_per_direction();
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
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::error::assert_says;

    #[test]
    fn a_folder_that_takes_no_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("nothing", at("link")).unwrap();
        for out in ["file", "file/out", "link/", "link/out"] {
            let error = check(&at(out), &["a.csv"], true).unwrap_err();
            assert_says(&error, &["is not a directory; give another"], &[]);
        }
        fs::create_dir(at("closed")).unwrap();
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o555)).unwrap();
        // Root may write there.
        if fs::write(at("closed/file"), "").is_err() {
            let error = check(&at("closed/out"), &["a.csv"], true).unwrap_err();
            assert_says(&error, &["cannot write to", "closed", "another"], &[]);
        }
    }
}
