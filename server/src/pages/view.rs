//! What pages show of one estimate, made once and kept.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use eigenveil_estimation::floor::grouped;
use eigenveil_figures::{self as figures, BarChart, DataTable, Figure};
use eigenveil_shared::{
    Error, Result,
    api::EstimateDocument,
    estimate::{BucketVerdict, Component, Estimate, RowVerdict, SparseOutcome, Verdict},
};

use super::{images, layout::short, planner::Forecast};
use crate::{
    http::estimates::finished,
    store::{Store, Study, StudyId},
};

/// Estimates kept, the last ones asked for.
const KEPT: usize = 16;
/// Rows of a table in a page; the files have all of them.
const ROWS: usize = 60;
/// Components drawn one by one.
const DRAWN: usize = 6;

/// One picture of an estimate.
pub(super) struct Picture {
    /// Name of the file.
    pub(super) file: String,
    /// What it shows, for those who do not see it.
    pub(super) what: String,
    pub(super) wide: Bytes,
    pub(super) narrow: Bytes,
    /// Its numbers.
    pub(super) table: String,
}

/// One estimate as pages show it.
pub(super) struct View {
    pub(super) number: u64,
    pub(super) n: u64,
    pub(super) created_at_ms: u64,
    /// How far to trust it, in sentences.
    pub(super) verdict: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// One row a component, and one for those that cannot be told apart: number, verdict, made-up reports that suffice for
    /// it, variance, share of the total, alignment, largest loadings.
    pub(super) components: Vec<[String; 7]>,
    pub(super) pictures: Vec<Picture>,
    pub(super) seconds: f64,
    /// What it says about the error of other numbers of participants.
    pub(super) forecast: Option<Forecast>,
}

/// The last estimates that were shown.
#[derive(Default)]
pub(super) struct Views {
    kept: Mutex<VecDeque<(StudyId, Arc<View>)>>,
}

impl Views {
    /// The view of a finished estimate. Blocks while it is made.
    pub(super) fn get(&self, store: &Store, study: &Study, number: u64) -> Result<Arc<View>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept
            .iter()
            .find(|(id, view)| *id == study.id() && view.number == number)
            .map(|(_, view)| Arc::clone(view));
        drop(kept);
        if let Some(view) = found {
            return Ok(view);
        }
        let view = Arc::new(View::new(store.estimate(study, number)?)?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((study.id(), Arc::clone(&view)));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(view)
    }
}

impl View {
    fn new(document: EstimateDocument) -> Result<Self, Error> {
        let (number, created_at_ms) = (document.number, document.created_at_ms);
        let estimate = finished(document)?;
        Ok(Self {
            number,
            n: estimate.n,
            created_at_ms,
            verdict: verdict(&estimate),
            warnings: estimate.warnings.clone(),
            components: components(&estimate),
            pictures: pictures(&estimate),
            seconds: estimate.seconds,
            forecast: Forecast::measured(&estimate, number),
        })
    }

    pub(super) fn picture(&self, file: &str) -> Option<&Picture> {
        self.pictures.iter().find(|picture| picture.file == file)
    }
}

/// How far to trust an estimate, in words.
fn verdict(estimate: &Estimate) -> Vec<String> {
    let count = |wanted| {
        estimate
            .components
            .iter()
            .filter(|c| c.verdict == wanted)
            .count()
    };
    let (above, at, below) = (
        count(Verdict::Above),
        count(Verdict::At),
        count(Verdict::Below),
    );
    let mut sentences = Vec::new();
    let of = estimate.components.len();
    sentences.push(match (above, of) {
        (_, 0) => "No component stands above the noise: there is nothing to show yet. More participants, or a larger ε, are needed.".to_owned(),
        (0, _) => "No component stands clearly above the noise: do not read anything into the loadings.".to_owned(),
        (1, 1) => "The component stands clearly above the noise.".to_owned(),
        (above, of) if above == of => format!("All {of} components stand clearly above the noise."),
        (1, of) => format!("1 of {of} components stands clearly above the noise."),
        (above, of) => format!("{above} of {of} components stand clearly above the noise."),
    });
    if at > 0 {
        sentences.push(format!(
            "{at} {} at the noise floor: perhaps real, but poorly recovered.",
            if at == 1 { "is" } else { "are" }
        ));
    }
    if below > 0 {
        sentences.push(format!("{below} cannot be told from noise."));
    }
    if of > 0 {
        let largest = eigenveil_estimation::plan::largest_error(estimate.p, of);
        sentences.push(format!(
            "The expected error of the subspace is {} of at most {}.",
            short(estimate.expected_error),
            short(largest)
        ));
    }
    if let Some(sparse) = &estimate.sparse {
        sentences.push(selection(estimate, sparse));
    }
    match &estimate.bucket_agreement {
        Some(agreement) if agreement.verdict == BucketVerdict::Disagree => sentences.push(
            "Parts of the reports disagree more than chance allows: some may be made up. Do not rely on the components before you know why.".to_owned(),
        ),
        Some(_) => sentences.push(
            "The parts of the reports agree with each other, so no single batch turned the components. Made-up reports spread evenly over the study agree as well.".to_owned(),
        ),
        None => {}
    }
    if let Some(check) = &estimate.row_check {
        sentences.push(match check.verdict {
            RowVerdict::Impossible => "No rows can have made these reports: some are made up. Do not rely on the components.".to_owned(),
            RowVerdict::Possible => "Rows can have made these reports, which does not prove that rows did.".to_owned(),
        });
    }
    if let Some(influence) = estimate.influence {
        sentences.push(format!(
            "One report moves the moment by at most {}, and 1 % of the participants together by at most {}. Nothing here shows that they told the truth.",
            eigenveil_figures::format_number(influence),
            short(influence * (0.01 * estimate.n as f64).ceil())
        ));
    }
    sentences
}

fn components(estimate: &Estimate) -> Vec<[String; 7]> {
    let names = estimate.feature_names();
    let absent = || "–".to_owned();
    let share =
        |share: Option<f64>| share.map_or_else(absent, |share| format!("{:.1} %", 100.0 * share));
    let mut rows = Vec::new();
    for (j, component) in estimate.components.iter().take(ROWS).enumerate() {
        let group = estimate.group_of(j);
        let suffice = estimate.reports_that_suffice(component);
        rows.push([
            (j + 1).to_string(),
            group.map_or_else(
                || component.verdict.in_words().to_owned(),
                |group| format!("cannot be told apart from others in {}", group.range()),
            ),
            suffice.map_or_else(absent, |reports| format!("{} reports", grouped(reports))),
            estimate
                .variance(component)
                .map_or_else(absent, |value| with_error(value, component.variance_se)),
            share(component.explained_variance_ratio),
            with_error(component.alignment(), component.alignment_se()),
            largest_loadings(component, &names),
        ]);
        if let Some(group) = group.filter(|group| group.last == j + 1) {
            rows.push([
                group.range(),
                format!("together {}", group.verdict.in_words()),
                absent(),
                short(group.variance),
                share(group.explained_variance_ratio),
                short(group.alignment),
                absent(),
            ]);
        }
    }
    rows
}

/// Most rows of a sparse estimate named in a sentence; a table has all of them.
const NAMED: usize = 20;

/// What a sparse estimate selected.
fn selection(estimate: &Estimate, sparse: &SparseOutcome) -> String {
    let names = estimate.feature_names();
    let named: Vec<&str> = sparse
        .support
        .iter()
        .take(NAMED)
        .filter_map(|&row| names.get(row).map(String::as_str))
        .collect();
    let list = match sparse.support.len() {
        0 => ".".to_owned(),
        all if all > NAMED => format!(": {} and {} more.", named.join(", "), all - NAMED),
        _ => format!(": {}.", named.join(", ")),
    };
    format!(
        "{} of {} features were selected (λ = {}){list}",
        grouped(sparse.support.len() as u64),
        grouped(estimate.p as u64),
        eigenveil_figures::format_number(sparse.lambda)
    )
}

fn with_error(value: f64, error: Option<f64>) -> String {
    match error {
        Some(error) => format!("{} ± {}", short(value), short_error(error)),
        None => short(value),
    }
}

/// As [`short`], and never 0 for an error that is not: then its first digit.
fn short_error(error: f64) -> String {
    if error > 0.0 && error < 0.5e-4 {
        let first: f64 = format!("{error:.0e}").parse().unwrap_or(error);
        eigenveil_figures::format_number(first)
    } else {
        short(error)
    }
}

/// The names of the features that load most, with their signs.
fn largest_loadings(component: &Component, names: &[String]) -> String {
    let mut order: Vec<usize> = (0..component.loadings.len()).collect();
    let size = |i: usize| component.loadings[i].abs();
    order.sort_by(|&a, &b| size(b).total_cmp(&size(a)));
    let words = order
        .into_iter()
        .take(4)
        .filter(|&i| size(i) > 0.0)
        .map(|i| {
            let sign = if component.loadings[i] < 0.0 {
                "−"
            } else {
                "+"
            };
            format!("{sign}{}", names.get(i).map_or("", String::as_str))
        });
    words.collect::<Vec<_>>().join(", ")
}

/// Without the study's name, which is the page's heading.
fn untitled(title: &mut String, estimate: &Estimate) {
    if let Some(short) = title.strip_suffix(&format!(", {}", estimate.name)) {
        *title = short.to_owned();
    }
}

fn pictures(estimate: &Estimate) -> Vec<Picture> {
    let mut scree = figures::scree(estimate, None);
    untitled(&mut scree.title, estimate);
    let mut all = vec![picture(
        "scree",
        "Variance of each component, with error bars, against the noise floor.",
        scree,
    )];
    if !estimate.components.is_empty() {
        let mut alignment = figures::alignment(estimate);
        untitled(&mut alignment.title, estimate);
        all.push(picture(
            "alignment",
            "How well each component is expected to be recovered.",
            alignment,
        ));
    }
    match &estimate.sparse {
        Some(sparse) if !sparse.support.is_empty() && !estimate.components.is_empty() => {
            let mut loadings = figures::loadings(estimate, sparse);
            untitled(&mut loadings.title, estimate);
            all.push(picture(
                "loadings",
                "The selected features and their loadings.",
                loadings,
            ));
        }
        _ => {
            let names = estimate.feature_names();
            for (j, component) in (1..).zip(estimate.components.iter().take(DRAWN)) {
                let bars = names
                    .iter()
                    .cloned()
                    .zip(component.loadings.iter().copied());
                let title = format!("Component {j}: largest loadings");
                all.push(picture(
                    &format!("loadings-{j}"),
                    &format!("Largest loadings of component {j}."),
                    BarChart::new(title, "loading", bars),
                ));
            }
        }
    }
    let path = estimate
        .sparse
        .as_ref()
        .and_then(|sparse| sparse.path.as_ref());
    if let Some(path) = path {
        let charts = [
            (
                "lambda-path",
                "Variance captured and features selected along the path of λ.",
                Some(figures::lambda_path(estimate, path)),
            ),
            (
                "lambda-rows",
                "Which features enter when along the path of λ.",
                figures::lambda_rows(estimate, path),
            ),
        ];
        for (file, what, chart) in charts {
            let Some(mut chart) = chart else { continue };
            untitled(&mut chart.title, estimate);
            all.push(picture(file, what, chart));
        }
    }
    all
}

fn picture(file: &str, what: &str, figure: impl Figure + Clone) -> Picture {
    Picture {
        file: format!("{file}.svg"),
        what: what.to_owned(),
        table: first_rows(figure.to_table()).to_html(),
        wide: figure.clone().with_width(images::WIDE).to_svg().into(),
        narrow: figure.with_width(images::NARROW).to_svg().into(),
    }
}

fn first_rows(mut table: DataTable) -> DataTable {
    if table.rows.len() > ROWS {
        table.caption = format!(
            "{} (the first {ROWS} of {})",
            table.caption,
            table.rows.len()
        );
        table.rows.truncate(ROWS);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_error_is_not_shown_as_zero() {
        assert_eq!(with_error(0.353_76, Some(0.003_72)), "0.3538 ± 0.0037");
        assert_eq!(with_error(0.353_76, Some(4.2e-5)), "0.3538 ± 4×10⁻⁵");
        assert_eq!(with_error(0.353_76, Some(3e-9)), "0.3538 ± 3×10⁻⁹");
        assert_eq!(with_error(0.353_76, Some(0.0)), "0.3538 ± 0");
        assert_eq!(with_error(0.353_76, None), "0.3538");
    }
}
