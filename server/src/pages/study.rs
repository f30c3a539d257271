//! The page of a study.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use eigenveil_estimation::format::{three_digits, with_thousands};
use eigenveil_figures::{
    Axis, ComponentRow, DataTable, LineChart, Marker, Series, number::rounded,
};
use eigenveil_shared::{
    Error,
    api::{EstimateJob, EstimateState, SparseSettings, StudyState},
    wording::plural,
};
use eigenveil_store::{ArrivalCount, Study};
use maud::{Markup, PreEscaped, html};

use super::{
    about, images, layout,
    planner::{Forecast, Outlook},
    preparation,
    render_cache::{ChartKind, PageKind},
    state::{self, Pages},
    view::View,
    visitor::{Fields, Visitor},
};
use crate::http::{
    ApiError,
    estimates::check_moment,
    extract::{NumberInPath, StudyInPath, hide_draft},
    run_blocking,
};

type Column = (&'static str, fn(&ComponentRow) -> &str);
const COMPONENTS: [Column; 7] = [
    ("Component", |row| &row.component),
    ("Verdict", |row| &row.verdict),
    ("Could be made by", |row| &row.could_be_made_by),
    ("Variance", |row| &row.variance),
    ("Explained", |row| &row.explained),
    ("Expected alignment", |row| &row.alignment),
    ("Largest loadings", |row| &row.largest_loadings),
];
/// Number of estimates in the list, newest first.
const MAX_LISTED_ESTIMATES: usize = 20;

pub(super) struct VisibleStudy {
    pub(super) study: Arc<Study>,
    /// Newest first; empty for visitors who may not read estimates.
    jobs: Vec<EstimateJob>,
    view: Option<Arc<View>>,
}

impl VisibleStudy {
    /// Blocks while reading.
    pub(super) fn new(app: &Pages, visitor: &Visitor, study: Arc<Study>) -> Result<Self, Error> {
        let mut jobs = app.store().estimates(&study)?;
        jobs.reverse();
        let newest = jobs.iter().find(|job| job.state == EstimateState::Done);
        let view = newest
            .map(|job| app.state.views.get(app.store(), &study, job.number))
            .transpose()?;
        if !visitor.may_read(&study) {
            jobs.clear();
        }
        Ok(Self { study, jobs, view })
    }

    /// The expected error by the newest estimate: all that everybody sees of it.
    fn forecast(&self) -> Option<&Forecast> {
        self.view.as_ref()?.forecast.as_ref().ok()
    }

    /// The source of the error of other numbers of reports, or a sentence that says why it is not known.
    fn curve(&self) -> Result<&Forecast, String> {
        let Some(view) = &self.view else {
            return Err(
                "The first estimate tells: the error depends on the participants' own spectrum."
                    .to_owned(),
            );
        };
        let unknown = |why| format!("Not known: {why}.");
        let forecast = view.forecast.as_ref().map_err(unknown)?;
        match forecast.without_curve() {
            None => Ok(forecast),
            Some(why) => Err(format!("Not known for other numbers of reports: {why}.")),
        }
    }

    /// The expected error of the newest estimate, formatted; empty before the first one.
    pub(super) fn expected_error(&self) -> String {
        self.forecast().map_or(String::new(), Forecast::error)
    }

    /// The outlook with this many reports, before the first estimate.
    fn outlook(&self) -> Option<String> {
        let n = self.study.reports_accepted();
        let params = self.study.params().rows().ok()?;
        let outlook = Outlook::of(params, self.study.default_k())?;
        (n > 0 && self.view.is_none()).then(|| outlook.sentences(n))?
    }

    /// Changes when more than the live numbers changes.
    pub(super) fn version(&self) -> String {
        let newest = self
            .jobs
            .first()
            .map(|job| (job.number, job.state.as_str()));
        let (number, state) = newest.unwrap_or_default();
        format!("{} {number} {state}", self.study.state().as_str())
    }
}

pub(super) async fn show(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    let kind = PageKind::Study(study.id(), study.state());
    let pages = app.clone();
    let render = move |visitor: &Visitor| {
        let visible = VisibleStudy::new(&app, visitor, study)?;
        let arrivals = app.store().arrivals(&visible.study)?;
        let is_rewritten = visitor.is_operator() && app.store().is_rewritten(&visible.study)?;
        let prepared = preparation::found(app.store(), visitor, &visible.study);
        let content = content(visitor, &visible, (&arrivals, prepared), is_rewritten);
        Ok(layout::document(visitor, visible.study.name(), &content))
    };
    let page = pages.state.pages.page(visitor, kind, render);
    Ok(layout::html_response(StatusCode::OK, page.await?))
}

pub(super) const FILES: [&str; 4] = [
    "estimate.json",
    "components.csv",
    "components.npy",
    "estimate.ipynb",
];

/// The page of an older estimate.
pub(super) async fn estimate(
    StudyInPath(study): StudyInPath,
    NumberInPath(number): NumberInPath,
    State(app): State<Pages>,
    visitor: Visitor,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    visitor.require_reader(&study)?;
    let response = run_blocking(move || {
        let view = app.state.views.get(app.store(), &study, number)?;
        let content = html! {
            p { a href=(visitor.link(&format!("/studies/{}", study.id()))) { "← " (study.name()) } }
            h1 { "Estimate " (number) }
            (estimate_section(&visitor, &study, &view))
        };
        let title = format!("Estimate {number} of {}", study.name());
        Ok(layout::page(&visitor, StatusCode::OK, &title, &content))
    });
    Ok(response.await?)
}

pub(super) fn hide_drafts(visitor: &Visitor, study: &Study) -> Result<(), Error> {
    hide_draft(study, visitor.is_operator())
}

pub(super) async fn arrivals(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let what = (study, ChartKind::Arrivals);
    let pages = app.clone();
    let chart = move |study: Arc<Study>, _: &Visitor| {
        let arrivals = app.store().arrivals(&study)?;
        let mut chart = cumulative_chart(&arrivals, study.reports_accepted());
        // The page has the title as a heading.
        chart.title.clear();
        chart.height = 320.0;
        Ok(chart)
    };
    state::cached_chart(&pages, visitor, what, fields, chart).await
}

pub(super) async fn expected_error(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let what = (study, ChartKind::ExpectedError);
    let pages = app.clone();
    let chart = move |study: Arc<Study>, visitor: &Visitor| {
        let visible = VisibleStudy::new(&app, visitor, study)?;
        let reports = visible.study.reports_accepted();
        let forecast = visible.curve().map_err(Error::invalid_request)?;
        let mut chart = forecast.progress(reports)?;
        // The page has it as a heading.
        chart.title.clear();
        Ok(chart)
    };
    state::cached_chart(&pages, visitor, what, fields, chart).await
}

/// Cumulative reports; imported ones come first.
fn cumulative_chart(arrivals: &[ArrivalCount], total: u64) -> LineChart {
    let uploaded: u64 = arrivals.iter().map(|arrivals| arrivals.n).sum();
    let begin = arrivals.first().map_or(0, |first| first.start);
    let end = arrivals.last().map_or(0, |last| last.start + last.seconds);
    let (unit, seconds) = match end - begin {
        0..=10_800 => ("minutes", 60.0),
        10_801..=259_200 => ("hours", 3_600.0),
        _ => ("days", 86_400.0),
    };
    let mut sum = total.saturating_sub(uploaded);
    let mut points = vec![(0.0, sum as f64)];
    for interval in arrivals {
        let since = |time: u64| (time - begin) as f64 / seconds;
        points.push((since(interval.start), sum as f64));
        sum += interval.n;
        points.push((since(interval.start + interval.seconds), sum as f64));
    }
    points.dedup();
    let mut chart = LineChart::new(
        "Reports over time",
        Axis::linear(format!("{unit} since the first report")),
        Axis::linear("reports"),
    );
    chart.series = vec![Series::new("reports", points).with_marker(Marker::None)];
    chart
}

fn arrivals_table(arrivals: &[ArrivalCount]) -> DataTable {
    let newest = arrivals.iter().rev().take(48);
    DataTable {
        caption: "Reports, newest first".to_owned(),
        headers: ["From", "For", "Reports"].map(str::to_owned).into(),
        rows: newest
            .map(|a| {
                let length = match a.seconds {
                    60 => "a minute",
                    3_600 => "an hour",
                    _ => "a day",
                };
                vec![
                    layout::format_time(a.start * 1_000),
                    length.to_owned(),
                    with_thousands(a.n),
                ]
            })
            .collect(),
    }
}

fn content(
    visitor: &Visitor,
    visible: &VisibleStudy,
    (arrivals, prepared): (&[ArrivalCount], Option<Markup>),
    is_rewritten: bool,
) -> Markup {
    let study = &visible.study;
    let path = format!("/studies/{}", study.id());
    let reports = study.reports_accepted();
    let forecast = visible.forecast();
    let outlook = visible.outlook();
    html! {
        div #study data-events=(visitor.link(&format!("{path}/events"))) data-version=(visible.version()) {
            p { a href=(visitor.link("/")) { "← All studies" } }
            h1 { (study.name()) " " span #state data-swap=(study.state().as_str()) { (layout::badge(study.state())) } }
            div .numbers-row {
                p .number { strong #reports data-live="reports" { (with_thousands(reports)) } " " span data-live="noun" { (plural(reports, "report")) } }
                div #error-tile data-swap=(visible.expected_error()) {
                    @if let Some(forecast) = forecast {
                        p .number { strong #error-now data-live="error" { (forecast.error()) } " " (forecast.caption()) }
                    }
                }
            }
            div #outlook data-swap=(outlook.as_deref().unwrap_or("none")) {
                @if let Some(outlook) = &outlook { p { (outlook) } }
            }
            p .visually-hidden #announcer aria-live="polite" {}
            @if study.state() == StudyState::Open {
                p { a .button href=(visitor.link(&format!("{path}/participate"))) { "What does one report reveal?" } }
            }
            section aria-labelledby="h-about" {
                h2 #h-about { "About this study" }
                (about::people(study))
                @if visitor.is_operator() && !study.about().missing().is_empty() {
                    p #not-stated .muted { "Participants read \"not stated\" for: " (study.about().missing().join(", ")) ". This is fixed with the study: create another one to state it." }
                }
            }
            section aria-labelledby="h-estimate" {
                h2 #h-estimate { @if prepared.is_some() { "Centers and scales" } @else { "Newest estimate" } }
                @if visitor.is_operator() && prepared.is_none() { (estimate_form(visitor, visible, &path)) }
                div #estimate data-swap=(visible.version()) {
                    @if let Some(prepared) = &prepared { (prepared) } @else { (estimates(visitor, visible, &path)) }
                }
            }
            div .figures {
                section aria-labelledby="h-time" {
                    h2 #h-time { "Reports over time" }
                    // Swapped when the first figure appears; later the image itself is reloaded.
                    div #arrivals data-swap=(if arrivals.is_empty() { "none" } else { "drawn" }) {
                        @if !arrivals.is_empty() {
                            (images::figure(visitor, &format!("{path}/arrivals.svg"), "Reports received over time, added up; the table below has numbers."))
                            (numbers("arrivals-numbers", &arrivals_table(arrivals).to_html()))
                            p .muted { "Counted by the minute for two hours, then by the hour for two weeks, then by the day." }
                        } @else if reports == 0 {
                            p #no-arrivals { "No report has arrived yet." }
                        } @else {
                            p #no-arrivals { "All reports were imported; it is not known when they arrived." }
                        }
                    }
                }
                @if prepared.is_none() { (error_section(visitor, visible, &path)) }
            }
            div .figures {
                section aria-labelledby="h-parameters" {
                    h2 #h-parameters { "Parameters" }
                    p .muted { "Frozen when the study was created, " (layout::format_time(study.created_at_ms())) "." }
                    (about::parameters(study))
                    h3 { "What a row is" }
                    (about::features(study))
                }
                section aria-labelledby="h-privacy" {
                    h2 #h-privacy { "Privacy" }
                    p { (study.privacy().sentence) }
                    (layout::warning_list(None, &study.privacy().warnings))
                    p { a href=(visitor.link(&format!("{path}/participate"))) { "For participants: what one report reveals" } }
                }
            }
            @if visitor.is_operator() { (state_section(visitor, study, &path, is_rewritten)) }
        }
    }
}

fn error_section(visitor: &Visitor, visible: &VisibleStudy, path: &str) -> Markup {
    html! {
        section #error aria-labelledby="h-error" data-swap=(visible.expected_error()) {
            h2 #h-error { "Expected error as reports arrive" }
            @match visible.curve() {
                Ok(forecast) => {
                    (images::figure(visitor, &format!("{path}/expected-error.svg"), "Expected error against the number of participants; the table below has numbers."))
                    (numbers("error-numbers", &error_table(visible).to_html()))
                    p #error-source .muted { (forecast.source()) " The error is ‖V̂V̂ᵀ − VVᵀ‖F." }
                }
                Err(why) => { p #no-curve { (why) } }
            }
        }
    }
}

fn error_table(visible: &VisibleStudy) -> DataTable {
    let n = visible.study.reports_accepted();
    let mut numbers: Vec<u64> = (3..=7)
        .map(|power| 10_u64.pow(power))
        .chain((n > 0).then_some(n))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let row = |n: u64| {
        let error = visible.forecast()?.with_participants(n)?;
        let cells = [error.low, error.central, error.high].map(three_digits);
        Some([vec![with_thousands(n)], cells.to_vec()].concat())
    };
    DataTable {
        caption: "Expected error".to_owned(),
        headers: ["Participants", "Lower end", "Expected error", "Upper end"]
            .map(str::to_owned)
            .into(),
        rows: numbers.into_iter().filter_map(row).collect(),
    }
}

/// The numbers of a figure, collapsed; `id` if they change while the page is shown.
fn numbers(id: impl Into<Option<&'static str>>, table: &str) -> Markup {
    let id = id.into();
    html! {
        details {
            summary { "Numbers" }
            div .scroll id=[id] data-swap=[id.map(|_| "")] tabindex="0" role="region" aria-label="Numbers of the figure" { (PreEscaped(table)) }
        }
    }
}

fn state_section(visitor: &Visitor, study: &Study, path: &str, is_rewritten: bool) -> Markup {
    let button = |to: &str, label: &str, help: &str| {
        html! {
            form method="post" action=(visitor.link(&format!("{path}/{to}"))) {
                (layout::csrf_token(visitor))
                button type="submit" { (label) } " " span .help { (help) }
            }
        }
    };
    html! {
        section #operator data-swap=(study.state().as_str()) aria-labelledby="h-operator" {
            h2 #h-operator { "State" }
            @match study.state() {
                StudyState::Draft => (button("open", "Open the study", "Participants can then send reports.")),
                StudyState::Open => (button("close", "Close the study", "It then accepts no more reports; this cannot be undone.")),
                StudyState::Closed => p .muted {
                    "The study is closed."
                    @if !is_rewritten { " Its data are being written anew: until that has ended, files and backups still show who sent what." }
                },
            }
        }
    }
}

/// The form for an estimate: open until there is one, then collapsed.
fn estimate_form(visitor: &Visitor, visible: &VisibleStudy, path: &str) -> Markup {
    html! {
        details #ask open[visible.jobs.is_empty()] {
            summary { "Request an estimate" }
            form method="post" action=(visitor.link(&format!("{path}/estimates"))) {
                (layout::csrf_token(visitor))
                fieldset {
                    legend { "What to estimate" }
                    div .fields {
                        div .field {
                            label for="k" { "Components k" }
                            input #k type="text" name="k" value="" placeholder="the study's default" autocomplete="off" aria-describedby="k-help";
                            p #k-help .help { "A whole number, or auto; empty for the study's default." }
                        }
                        div .field {
                            label for="lambda" { "Penalty λ, for a sparse estimate" }
                            select #lambda name="lambda" {
                                option value="auto" { "from the known noise" }
                                option value="path" { "a path of values, and the one nearest to that" }
                                option value="cv" { "cross-validated" }
                            }
                        }
                        div {
                            div .checkbox { input #sparse type="checkbox" name="sparse" value="yes"; " " label for="sparse" { "Row-sparse: select features" } }
                            div .checkbox { input #refit type="checkbox" name="refit" value="yes" checked[SparseSettings::default().refit]; " " label for="refit" { "Refit on the selected features" } }
                            @match check_moment(visible.study.params()) {
                                Ok(()) => div .checkbox { input #moment type="checkbox" name="moment" value="yes"; " " label for="moment" { "With the moment: correlations, regressions, at no further ε" } },
                                Err(why) => p #no-moment .help { "No correlations: " (why.detail()) "." },
                            }
                        }
                    }
                    button .primary type="submit" { "Request an estimate" }
                }
            }
        }
    }
}

fn estimates(visitor: &Visitor, visible: &VisibleStudy, path: &str) -> Markup {
    let study = &visible.study;
    if !visitor.may_read(study) {
        return html! {
            p { "Estimates are for the operator and for analysts. "
                a href=(visitor.link(&format!("/login?next={path}"))) { "Log in" } " to see them." }
        };
    }
    html! {
        @for job in visible.jobs.iter().filter(|job| job.state == EstimateState::Running) {
            p .running { "Estimate " (job.number) " is being computed or waits in the queue. "
                a href="" { "Reload" } }
        }
        @match &visible.view {
            Some(view) => (estimate_section(visitor, study, view)),
            None => p { "There is no estimate yet." },
        }
        @if visible.jobs.len() > 1 || visible.jobs.iter().any(|job| job.state != EstimateState::Done) {
            h3 { "All estimates" }
            ul #jobs {
                @for job in visible.jobs.iter().take(MAX_LISTED_ESTIMATES) {
                    li {
                        @if job.state == EstimateState::Done {
                            a href=(visitor.link(&format!("{path}/estimates/{}", job.number))) { "Estimate " (job.number) }
                        } @else { "Estimate " (job.number) }
                        ", " (layout::format_time(job.created_at_ms)) ": " (job.state.as_str())
                        @if let Some(problem) = &job.problem { ". " (super::error::sentence(&problem.detail)) }
                    }
                }
            }
        }
    }
}

fn estimate_section(visitor: &Visitor, study: &Study, view: &View) -> Markup {
    let path = format!("/studies/{}/estimates/{}", study.id(), view.number);
    html! {
        p .muted { "Estimate " (view.number) " of " (layout::format_time(view.created_at_ms)) ", from " (view.sample) ", computed in " (rounded(view.seconds, 4)) " s." }
        div #verdict .verdict { @for sentence in &view.verdict { p { (sentence) } } }
        (layout::warning_list(Some("warnings"), &view.warnings))
        p #downloads { "Download: "
            @for (i, file) in FILES.iter().enumerate() {
                @if i > 0 { " · " }
                a href=(visitor.link(&format!("{path}/{file}"))) download { (file) }
            }
            " (a Python notebook that continues from estimate.json)"
        }
        @if !view.components.is_empty() {
            div .scroll tabindex="0" role="region" aria-label="Components" {
                table #components {
                    caption { "Components. \"Could be made by\": the share of the " (if study.has_sites() { "sites that" } else { "participants who" }) ", acting together, could have made it from nothing." }
                    thead { tr {
                        @for (head, _) in COMPONENTS { th scope="col" { (head) } }
                    } }
                    tbody { @for row in &view.components {
                        tr {
                            @for (i, (head, cell)) in COMPONENTS.iter().enumerate() {
                                @if i == 0 { th scope="row" data-head=(head) { (cell(row)) } }
                                @else { td data-head=(head) { (cell(row)) } }
                            }
                        }
                    } }
                }
            }
        }
        @if !view.sites.is_empty() {
            div #sites .scroll tabindex="0" role="region" aria-label="Sites" { @for table in &view.sites { (PreEscaped(table)) } }
        }
        @if let Some(table) = &view.correlations {
            div #correlations .scroll tabindex="0" role="region" aria-label="Largest correlations" { (PreEscaped(table)) }
        }
        div .figures {
            @for figure in &view.figures {
                div {
                    (images::figure(visitor, &format!("{path}/{}", figure.file), &figure.what))
                    (numbers(None, &figure.table))
                }
            }
        }
    }
}
