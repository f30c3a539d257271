//! The parts of an estimate that pages show, rendered once and cached.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use eigenveil_estimation::{
    format::{three_digits, with_thousands},
    planning::{UnknownError, error_in_words},
    sample, sites_in_sentences,
};
use eigenveil_figures::{
    ComponentRow, DataTable, Figure, component_rows, estimate_figures, interval_table,
    largest_correlations, loading_bars, number::compact, site_table,
};
use eigenveil_shared::{
    Error, Result,
    api::EstimateJob,
    estimate::{BucketVerdict, Estimate, Feasibility, SparseOutcome},
};
use eigenveil_store::{Store, Study, StudyId};

use super::{images, planner::Forecast};
use crate::http::estimates::finished_result;

/// Number of cached estimates, the last ones shown.
const MAX_CACHED_VIEWS: usize = 16;
/// Maximum number of table rows on a page; the files have all of them.
const MAX_TABLE_ROWS: usize = 60;
/// Maximum number of components with their own chart.
const MAX_COMPONENT_CHARTS: usize = 6;
/// Maximum number of correlations on a page; `eigenveil moment` has all of them.
const MAX_CORRELATIONS: usize = 10;
/// Largest number of features whose correlations a page computes: a tenth of a second.
const MAX_CORRELATED_FEATURES: usize = 200;

pub(super) struct ViewFigure {
    pub(super) file: String,
    pub(super) what: String,
    pub(super) wide: Bytes,
    pub(super) narrow: Bytes,
    pub(super) table: String,
}

pub(super) struct View {
    pub(super) number: u64,
    /// "50,000 reports", "1,797 rows of 3 sites".
    pub(super) sample: String,
    pub(super) created_at_ms: u64,
    pub(super) verdict: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) components: Vec<ComponentRow>,
    pub(super) figures: Vec<ViewFigure>,
    /// The sites and the intervals by target as HTML tables, of a study of sites.
    pub(super) sites: Vec<String>,
    /// Largest correlations as an HTML table, if it has the mean report.
    pub(super) correlations: Option<String>,
    pub(super) seconds: f64,
    /// The expected error at this and other participant counts, or why it is not known.
    pub(super) forecast: Result<Forecast, UnknownError>,
}

/// The estimates shown last.
#[derive(Default)]
pub(super) struct Views {
    cached: Mutex<VecDeque<(StudyId, Arc<View>)>>,
}

impl Views {
    pub(super) fn get(&self, store: &Store, study: &Study, number: u64) -> Result<Arc<View>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached
            .iter()
            .find(|(id, view)| *id == study.id() && view.number == number)
            .map(|(_, view)| Arc::clone(view));
        drop(cached);
        if let Some(view) = found {
            return Ok(view);
        }
        let view = Arc::new(View::new(store.estimate(study, number)?)?);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push_back((study.id(), Arc::clone(&view)));
        if cached.len() > MAX_CACHED_VIEWS {
            cached.pop_front();
        }
        Ok(view)
    }
}

impl View {
    fn new(document: EstimateJob) -> Result<Self, Error> {
        let (number, created_at_ms) = (document.number, document.created_at_ms);
        let mut estimate = finished_result(document)?;
        // The page has it as a heading.
        estimate.name.clear();
        Ok(Self {
            number,
            sample: sample(&estimate),
            created_at_ms,
            verdict: verdict(&estimate),
            warnings: estimate.warnings.clone(),
            components: component_rows(&estimate).take(MAX_TABLE_ROWS).collect(),
            figures: figures(&estimate),
            sites: [site_table(&estimate), interval_table(&estimate)]
                .iter()
                .flatten()
                .map(DataTable::to_html)
                .collect(),
            correlations: correlations(&estimate),
            seconds: estimate.seconds,
            forecast: Forecast::by(&estimate, number),
        })
    }

    pub(super) fn figure(&self, file: &str) -> Option<&ViewFigure> {
        self.figures.iter().find(|figure| figure.file == file)
    }
}

fn verdict(estimate: &Estimate) -> Vec<String> {
    let mut sentences = estimate.verdict_in_sentences();
    let total = estimate.k;
    if total > 0 {
        sentences.push(match error_in_words(estimate, three_digits) {
            Ok(error) => format!("The expected error of the subspace is {error}."),
            Err(why) => format!("The error of the subspace is not known: {why}."),
        });
        sentences.extend(estimate.count_in_sentences());
    }
    if let Some(sparse) = &estimate.sparse {
        sentences.push(selection(estimate, sparse));
    }
    sentences.extend(sites_in_sentences(estimate));
    match &estimate.bucket_agreement {
        Some(agreement) if agreement.verdict == BucketVerdict::Disagree => sentences.push(
            "Parts of the reports disagree more than chance allows: some may be made up. Do not rely on the components before you know why.".to_owned(),
        ),
        Some(_) => sentences.push(
            "The parts of the reports agree with each other, so no single batch distorted the components. Made-up reports spread evenly over the study agree as well.".to_owned(),
        ),
        None => {}
    }
    if let Some(check) = &estimate.feasibility {
        sentences.push(match check.verdict {
            Feasibility::Infeasible => "No real rows could have produced these reports: some are made up. Do not rely on the components.".to_owned(),
            Feasibility::Feasible => "Real rows could have produced these reports, which does not prove that they did.".to_owned(),
        });
    }
    if total > 0 {
        let whom = match &estimate.sites {
            None => "participants",
            Some(_) => "sites",
        };
        sentences.push(format!("Nothing here shows that the {whom} told the truth: \"could be made by\" says what share of them, acting together, could have made a component up."));
    }
    sentences
}

/// Maximum number of selected features named in a sentence; a table has all of them.
const MAX_NAMED_FEATURES: usize = 20;

fn selection(estimate: &Estimate, sparse: &SparseOutcome) -> String {
    let names = estimate.feature_names();
    let named: Vec<&str> = sparse
        .support
        .iter()
        .take(MAX_NAMED_FEATURES)
        .filter_map(|&row| names.get(row).map(String::as_str))
        .collect();
    let list = match sparse.support.len() {
        0 => ".".to_owned(),
        all if all > MAX_NAMED_FEATURES => format!(
            ": {} and {} more.",
            named.join(", "),
            all - MAX_NAMED_FEATURES
        ),
        _ => format!(": {}.", named.join(", ")),
    };
    format!(
        "{} of {} features were selected (λ = {}){list}",
        with_thousands(sparse.support.len() as u64),
        with_thousands(estimate.p as u64),
        compact(sparse.lambda)
    )
}

fn correlations(estimate: &Estimate) -> Option<String> {
    let few = estimate.p <= MAX_CORRELATED_FEATURES;
    let table = few.then(|| largest_correlations(estimate, MAX_CORRELATIONS))??;
    (!table.rows.is_empty()).then(|| table.to_html())
}

fn figures(estimate: &Estimate) -> Vec<ViewFigure> {
    // The scree plot has the alignments below it.
    let mut all: Vec<ViewFigure> = estimate_figures(estimate, None)
        .into_iter()
        .filter(|shown| shown.file != "alignment.svg")
        .map(|shown| figure(shown.file.to_owned(), shown.what.to_owned(), &*shown.figure))
        .collect();
    if !all.iter().any(|figure| figure.file == "loadings.svg") {
        let bars = (1..).zip(loading_bars(estimate).take(MAX_COMPONENT_CHARTS));
        all.extend(bars.map(|(j, chart)| {
            let alt_text = format!("{}.", chart.title);
            figure(format!("loadings-{j}.svg"), alt_text, &chart)
        }));
    }
    all
}

fn figure(file: String, what: String, figure: &dyn Figure) -> ViewFigure {
    let draw = |width| figure.to_svg_of_width(width).into();
    ViewFigure {
        file,
        what,
        wide: draw(images::WIDE),
        narrow: draw(images::NARROW),
        table: first_rows(figure.to_table()).to_html(),
    }
}

fn first_rows(mut table: DataTable) -> DataTable {
    if table.rows.len() > MAX_TABLE_ROWS {
        table.caption = format!(
            "{} (the first {MAX_TABLE_ROWS} of {})",
            table.caption,
            table.rows.len()
        );
        table.rows.truncate(MAX_TABLE_ROWS);
    }
    table
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::estimate::CountShares;

    use super::*;

    #[test]
    fn the_headline_says_how_firm_k_is() {
        let text = include_str!("../../../figures/tests/samples/estimate.json");
        let mut estimate: Estimate = serde_json::from_str(text).unwrap();
        let verdict_text = |estimate: &Estimate| verdict(estimate).join(" ");
        assert!(!verdict_text(&estimate).contains("would choose"));
        estimate.k_is_open = true;
        estimate.k_shares = Some(CountShares {
            one_fewer: 0.104,
            same: 0.618,
            one_more: 0.002,
        });
        let verdict_text = verdict_text(&estimate);
        let shares = "about 62 % would choose k = 4, about 10 % k = 3, about 28 % another.";
        let error = "error of the subspace is 1.13 to 1.70 of at most 2.00 (expected 1.42)";
        for words in [error, "4 is a guess", "upper end", shares] {
            assert!(verdict_text.contains(words), "{verdict_text}");
        }
    }
}
