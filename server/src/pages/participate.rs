//! For participants: what one report reveals, as prior and posterior beliefs.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use eigenveil_estimation::{
    format::with_thousands,
    simulate::{example_reports, has_example_reports},
};
use eigenveil_figures::{
    Axis, Figure as _, LineChart, LineStyle, Marker, ReportPicture, ReportedRow, Series,
};
use eigenveil_shared::{
    Error,
    api::StudyState,
    enrolment::Enrolment,
    privacy::{PrivacyStatement, REFUSAL, STOPPING, format_rounded_up},
};
use eigenveil_store::Study;
use maud::{Markup, PreEscaped, html};

use super::{
    about, images, layout, preparation,
    render_cache::{ChartKind, PageKind},
    sites,
    state::{self, Pages},
    study::hide_drafts,
    visitor::{Fields, Visitor},
};
use crate::http::{ApiError, extract::StudyInPath};

const TITLE: &str = "What one report reveals";
/// Prior probabilities in the table, in percent.
const PRIORS: [f64; 5] = [1.0, 10.0, 50.0, 90.0, 99.0];
const POINTS: u32 = 100;

/// The largest posterior for this prior: the odds grow by a factor of at most e^ε.
fn max_posterior(prior: f64, epsilon: f64) -> f64 {
    1.0 / (1.0 + (1.0 - prior) / prior * (-epsilon).exp())
}

fn min_posterior(prior: f64, epsilon: f64) -> f64 {
    1.0 - max_posterior(1.0 - prior, epsilon)
}

/// The ε that actually holds; infinite if none does.
fn effective_epsilon(privacy: &PrivacyStatement) -> f64 {
    match privacy.claim_holds {
        true => privacy.epsilon,
        false => privacy.true_epsilon.unwrap_or(f64::INFINITY),
    }
}

/// Probability that the bound fails: 0 for a pure mechanism.
fn bound_failure_probability(study: &Study) -> f64 {
    let epsilon = effective_epsilon(study.privacy());
    study.params().privacy_loss_tail(epsilon)
}

/// A probability that is at most this, or else at least, rounded to that side: never to 100 %, nor to 0.
fn percent(probability: f64, at_most: bool) -> String {
    let value = 100.0 * probability;
    let distance = if value > 99.0 { 100.0 - value } else { value };
    let digits = match distance > 0.0 && distance < 1.0 {
        true => (1.0 - distance.log10().floor()).clamp(1.0, 12.0) as usize,
        false => 1,
    };
    let steps = 10_f64.powi(digits as i32);
    let round = if at_most { f64::ceil } else { f64::floor };
    format!("{:.digits$} %", round(value * steps) / steps)
}

/// The store in use, and whether it has written the study's rows anew since the study was closed.
#[derive(Clone, Copy)]
struct Traces {
    is_shared: bool,
    is_rewritten: bool,
}

impl Traces {
    /// How much the store shows of who sent what.
    fn sentences(self, study: &Study, state: StudyState) -> Markup {
        let has_tokens = self.is_shared && study.enrolment() == Enrolment::Token;
        let pairs = match (study.has_seeds(), has_tokens) {
            (true, false) => "which seed came with which identifier",
            (true, true) => "which seed came with which identifier and which token",
            (false, _) => "what a single report added",
        };
        html! {
            @if self.is_rewritten {
                "Since the study was closed its data have been written anew, sorted: the server's database no longer shows "
                (pairs) ". Copies, backups and logs from before may."
            } @else {
                @match (study.has_seeds(), self.is_shared) {
                    (true, false) => { "Seeds lie in the order in which they came, and an identifier shows when its report was made. Whoever has the server's files can tell from that " (pairs) ", nearly always where reports come one at a time. " }
                    (true, true) => { "The database notes which transaction wrote a row. Whoever has its files can tell from that " (pairs) ", always where reports come one at a time. " }
                    (false, _) => { "Files keep for a while what was changed in them. Whoever has the server's files may find the sum before and after a report, and so the report itself. " }
                }
                @if state == StudyState::Closed {
                    "The study is closed, and its data are being written anew, sorted, so that this ends."
                } @else {
                    "Once the study is closed its data are written anew, sorted, and this ends, but not for copies, backups and logs from before."
                }
            }
            " Even then, what your report reveals about your data is bounded as above."
        }
    }
}

pub(super) async fn show(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    // Reports are rejected slightly before the stored state changes.
    let state = match study.about().is_over(app.store().unix_ms()) {
        true if study.state() == StudyState::Open => StudyState::Closed,
        _ => study.state(),
    };
    let kind = PageKind::Participate(study.id(), state, visitor.address().map(str::to_owned));
    let pages = app.clone();
    let render = move |visitor: &Visitor| {
        let store = app.store();
        let traces = Traces {
            is_shared: store.config().database.is_some(),
            is_rewritten: state == StudyState::Closed && store.is_rewritten(&study)?,
        };
        let content = content(visitor, &study, state, traces);
        Ok(layout::document(visitor, TITLE, &content))
    };
    let page = pages.state.pages.page(visitor, kind, render);
    Ok(layout::html_response(StatusCode::OK, page.await?))
}

fn content(visitor: &Visitor, study: &Study, state: StudyState, traces: Traces) -> Markup {
    let path = format!("/studies/{}", study.id());
    let privacy = study.privacy();
    let epsilon = effective_epsilon(privacy);
    let failure = bound_failure_probability(study);
    let whose = match study
        .params()
        .sites()
        .map(|params| params.terms().rows_per_person)
    {
        Err(_) => "your data",
        Ok(None) => "one row",
        Ok(Some(_)) => "one person",
    };
    let ledger = match study.has_sites() {
        true => "NAME.ledger",
        false => "ROWS.csv.ledger",
    };
    html! {
        p { a href=(visitor.link(&path)) { "← " (study.name()) } }
        h1 { (TITLE) }
        p { "You are asked to take part in " strong { (study.name()) } ", which is " (state.as_str()) ". " (REFUSAL) }
        section aria-labelledby="h-belief" {
            h2 #h-belief { "What an observer can learn about you" }
            p { (privacy.sentence) }
            p #belief {
                "Suppose somebody thinks that a statement about " (whose) " is as likely to be true as false (50 %). After seeing the report they can be at most "
                strong { (percent(max_posterior(0.5, epsilon), true)) } " sure of it."
                @if failure > 0.0 { " With a probability of at most " (format_rounded_up(failure, 2)) " they can be more certain." }
            }
            @if epsilon.is_finite() {
                div .figures {
                (images::figure(visitor, &format!("{path}/belief.svg"), "Largest and smallest belief after one report, against the belief before it; the table beside it has the numbers."))
                div .scroll tabindex="0" role="region" aria-label="Beliefs before and after" {
                    table #beliefs {
                        caption { "What a belief can become" }
                        thead { tr { th scope="col" { "Before" } th scope="col" { "At least" } th scope="col" { "At most" } } }
                        tbody { @for prior in PRIORS {
                            tr {
                                th scope="row" { (prior) " %" }
                                td { (percent(min_posterior(prior / 100.0, epsilon), false)) }
                                td { (percent(max_posterior(prior / 100.0, epsilon), true)) }
                            }
                        } }
                    }
                }
                }
            }
            p { "This holds for every observer" @if study.has_sites() { " but the site itself" } ", whatever else they know and whatever they compute, including the people who run this server and anybody who breaks into it." }
            (layout::warning_list(None, &privacy.warnings))
        }
        section aria-labelledby="h-about" {
            h2 #h-about { "Who is asking, and what for" }
            (about::people(study))
            p .muted { "These are the words of the people who run the study; nobody has checked them. They cannot be changed while the study exists." }
        }
        div .figures {
            section aria-labelledby="h-row" {
                h2 #h-row { "What you are asked for" }
                (about::features(study))
            }
            section aria-labelledby="h-done" {
                h2 #h-done { "What is done with it" }
                (about::parameters(study))
            }
        }
        @if let Ok(params) = study.params().sites() { (sites::sent_and_stored(study, params)) }
        @else if study.params().preparation().is_ok() { (preparation::sent_and_stored(study, &traces.sentences(study, state))) }
        @else { (sent_and_stored(visitor, study, state, traces)) }
        section aria-labelledby="h-back" {
            h2 #h-back { "How to stop, and what stays" }
            p #stop { (STOPPING) " Use what the app offers, or the program with your ledger:" }
            pre tabindex="0" { code #give-up-command { (format!("eigenveil report --give-up --study {} --ledger {ledger}", study.id())) } }
            p { "Once a report is counted it cannot be withdrawn: the server takes none out again, neither for you nor for the operator. Only the whole study can be deleted. The bound above holds for ever. If you take part in several studies with the same data, what they reveal adds up." }
        }
        section aria-labelledby="h-check" {
            h2 #h-check { "How to check" }
            ul {
                li { "The response to your report says that it was accepted, or that it was counted before." }
                li { "Your device keeps a ledger of what it has spent, and refuses to exceed your own limit." }
                li { "Your device uses the parameters with the fingerprint below, and refuses others: compare it with the fingerprint you were given. " code .long { (study.fingerprint()) } }
                li { "The program is open: " code { "eigenveil audit" } " tries to break the promise and shows how far it gets." }
            }
        }
        @if study.has_sites() {
            (sites::tokens())
            @if state == StudyState::Open { (sites::command(visitor, study)) }
        } @else {
            @if study.enrolment() == Enrolment::Token { (tokens(traces)) }
            @if state == StudyState::Open { (commands(visitor, study)) }
        }
    }
}

fn sent_and_stored(visitor: &Visitor, study: &Study, state: StudyState, traces: Traces) -> Markup {
    let path = format!("/studies/{}", study.id());
    let (privacy, seeds) = (study.privacy(), study.has_seeds());
    let picture = report_picture(study);
    html! {
        section aria-labelledby="h-sent" {
            h2 #h-sent { "What is sent" }
            ul {
                li { "One report of " strong { (with_thousands(privacy.report_bytes as u64)) " bytes" } ", made on your device. Your row of " (with_thousands(study.params().dimension() as u64)) " numbers never leaves it." }
                li { @if seeds { "It holds a random seed that leans a little towards your row." } @else { "It holds a matrix made of your row, with random noise added to each of its numbers." } }
                li { "It has an identifier, so that it is counted once. The identifier shows when the report was made." }
                @if study.enrolment() == Enrolment::Token { li { "It comes with a one-time token. The server stores a hash of the token, in a list of its own." } }
            }
            @if let Some(picture) = picture {
                div .figures {
                (images::figure(visitor, &format!("{path}/report.svg"), "Two made-up rows as bars, and beside each two of its reports as squares of changing shades; the table below has their bytes."))
                }
                details #report-bytes {
                    summary { "Their bytes" }
                    div .scroll tabindex="0" role="region" aria-label="Bytes of the reports" { (PreEscaped(picture.to_table().to_html())) }
                }
                p .muted { "Two rows that nobody has, and two reports of each, made with this study's parameters as a device makes yours. Every report of the same row looks different, and none shows what the row was with more certainty than is said above." }
            }
        }
        section aria-labelledby="h-stored" {
            h2 #h-stored { "What is stored" }
            ul {
                @if seeds {
                    li { "The report's seed." }
                } @else {
                    li { "The report's numbers are added to a sum and then discarded." }
                }
                li { "The identifier, in a separate list, so that a repeated report is not counted twice." }
                li { "How many reports came in each minute; later only in each hour, then in each day." }
                li { "No address, no name, nothing about your device." }
            }
            p #traces { (traces.sentences(study, state)) }
        }
    }
}

fn tokens(traces: Traces) -> Markup {
    let stored = match (traces.is_shared, traces.is_rewritten) {
        (false, _) => {
            "A backup of the server's database does not show which report came with which token."
        }
        (true, false) => {
            "Until the study is closed and its data are written anew, the server's database shows which report came with which token."
        }
        (true, true) => "The server's database no longer shows which report came with which token.",
    };
    html! {
        section #tokens aria-labelledby="h-tokens" {
            h2 #h-tokens { "You need a one-time token" }
            ul {
                li { "A token has 64 hexadecimal digits and is valid for one report. Whoever runs the study creates the tokens and gives you yours; you cannot get one here. Without a token the server accepts no report." }
                li { "It is a ticket and says nothing about your data. Anybody who has it can use it in your place: keep it secret until your report has arrived." }
                li { "What it reveals: whether it was used. The server stores a hash of each token and whether it was spent. Anybody who can read that and knows who got your token learns whether you took part." }
                li { (stored) " Both come in one request: somebody who runs the server and watches its memory, disk or traffic at that moment, compares copies of its files, or changes its program, can see them together and know which report is yours. What they then learn about your data is bounded by ε as above." }
                li { "If the response gets lost, send the same report again: it is counted once, and your token is not needed twice." }
            }
        }
    }
}

fn commands(visitor: &Visitor, study: &Study) -> Markup {
    let address = visitor.address();
    let server = address.unwrap_or("SERVER");
    let needs_token = study.enrolment() == Enrolment::Token;
    let named = study.params().named_features() > 0;
    let tokens = if needs_token {
        " --tokens TOKENS.txt"
    } else {
        ""
    };
    let report = format!(
        "eigenveil report --server {server} --study {} --fingerprint {} --rows ROWS.csv --header yes{tokens}",
        study.id(),
        study.fingerprint()
    );
    html! {
        section aria-labelledby="h-take-part" {
            h2 #h-take-part { "Take part" }
            p { "With the program, for the rows of a file (or with an app that uses the device library):" }
            pre tabindex="0" { code #report-command { (report) } }
            p { "Replace:" }
            ul {
                @if address.is_none() { li { code { "SERVER" } " by the address of this page up to the first single slash, such as https://study.example." } }
                li {
                    code { "ROWS.csv" } " with your table, one line per person. "
                    @if named { "Its first line names the columns, which are the features above, in any order; " code { "--drop NAME" } " leaves a column out." }
                    @else { "Its first line names the columns, which must be in the study's order." }
                }
                @if needs_token { li { code { "TOKENS.txt" } " by a file with your token in it: one token per line; line 1 is for the first row." } }
            }
            p { "Your row is perturbed on your machine. A report that cannot be sent now is sent when you run the command again, and is counted once. What it cost, and what you were told, is in the ledger beside your table:" }
            pre tabindex="0" { code #receipt-command { "eigenveil receipt ROWS.csv.ledger" } }
            @if address.is_some_and(|address| address.starts_with("http://")) {
                p .muted { "Plain HTTP works only for a server on your own machine. If this one is elsewhere, the program sends nothing: ask the contact for an address that begins with https." }
            }
        }
    }
}

pub(super) async fn belief(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let what = (study, ChartKind::Belief);
    let chart = |study: Arc<Study>, _: &Visitor| Ok(belief_chart(&study));
    state::cached_chart(&app, visitor, what, fields, chart).await
}

/// A picture of a report beside its row.
pub(super) async fn report(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let chart_key = (study, ChartKind::Report);
    let picture = |study: Arc<Study>, _: &Visitor| {
        report_picture(&study).ok_or_else(|| {
            Error::invalid_request("a report of this study takes too long to be drawn on a page")
        })
    };
    state::cached_chart(&app, visitor, chart_key, fields, picture).await
}

/// Rows that nobody has, with their reports; `None` where those take noticeably long.
fn report_picture(study: &Study) -> Option<ReportPicture> {
    let params = study.params().rows().ok()?;
    if !has_example_reports(params) {
        return None;
    }
    let examples = example_reports(params).ok()?.into_iter();
    let rows = examples.map(|example| ReportedRow {
        values: example.row,
        reports: example.payloads,
    });
    let numbered = || (1..=params.dimension()).map(|i| format!("x{i}")).collect();
    Some(ReportPicture {
        title: "What a report looks like".to_owned(),
        features: params.feature_names().unwrap_or_else(numbered),
        rows: rows.collect(),
    })
}

fn belief_chart(study: &Study) -> LineChart {
    let epsilon = effective_epsilon(study.privacy());
    let line = |name: &str, after: &dyn Fn(f64) -> f64, style| {
        let points = (0..=POINTS).map(|i| {
            // Denser near both ends, where the lines are steep.
            let prior = 0.5 - 0.5 * (std::f64::consts::PI * f64::from(i) / f64::from(POINTS)).cos();
            let prior = prior.clamp(1e-9, 1.0 - 1e-9);
            (100.0 * prior, 100.0 * after(prior))
        });
        Series::new(name, points)
            .with_style(style)
            .with_marker(Marker::None)
    };
    let mut chart = LineChart::new(
        "What a belief about you can become",
        Axis::linear("belief before, %").between(0.0, 100.0),
        Axis::linear("belief after one report, %").between(0.0, 100.0),
    );
    chart.subtitle = Some(format!(
        "ε\u{a0}=\u{a0}{}: 50\u{a0}% becomes {} at most",
        eigenveil_figures::number::compact(epsilon),
        percent(max_posterior(0.5, epsilon), true)
    ));
    chart.series = vec![
        line(
            "at most",
            &|prior| max_posterior(prior, epsilon),
            LineStyle::Solid,
        ),
        line("nothing learned", &|prior| prior, LineStyle::Dotted),
        line(
            "at least",
            &|prior| min_posterior(prior, epsilon),
            LineStyle::Dashed,
        ),
    ];
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_grow_and_shrink_by_the_same_factor() {
        for prior in [0.001, 0.3, 0.5, 0.999] {
            for epsilon in [0.1_f64, 1.0, 8.0] {
                let odds = |p: f64| p / (1.0 - p);
                let up = odds(max_posterior(prior, epsilon)) / odds(prior);
                let down = odds(prior) / odds(min_posterior(prior, epsilon));
                assert!((up / epsilon.exp() - 1.0).abs() < 1e-9, "{up}");
                assert!((down / epsilon.exp() - 1.0).abs() < 1e-6, "{down}");
            }
        }
        assert_eq!(max_posterior(0.5, f64::INFINITY), 1.0);
    }

    /// Bounds are never told better than they are, nor as certainty.
    #[test]
    fn bounds_are_rounded_away_from_the_belief_before() {
        for (probability, least, most) in [
            (0.5, "50.0 %", "50.0 %"),
            (max_posterior(0.5, 4.0), "98.2 %", "98.3 %"),
            (max_posterior(0.5, 16.0), "99.999988 %", "99.999989 %"),
            (min_posterior(0.5, 4.0), "1.7 %", "1.8 %"),
            (min_posterior(0.01, 4.0), "0.018 %", "0.019 %"),
        ] {
            assert_eq!(percent(probability, false), least);
            assert_eq!(percent(probability, true), most);
        }
        for epsilon in [0.3, 1.0, 2.0, 7.7, 15.9] {
            for prior in PRIORS {
                let [low, high] =
                    [min_posterior, max_posterior].map(|of| of(prior / 100.0, epsilon));
                let number = |text: String| text.trim_end_matches(" %").parse::<f64>().unwrap();
                let (least, most) = (number(percent(low, false)), number(percent(high, true)));
                assert!(
                    0.0 < least && least <= 100.0 * low,
                    "{prior} {epsilon}: {least}"
                );
                assert!(
                    most < 100.0 && most >= 100.0 * high,
                    "{prior} {epsilon}: {most}"
                );
            }
        }
    }

    /// With tokens, and seeds or numbers, in either store, before and after the rows are written anew.
    #[test]
    fn what_the_store_shows_is_said_of_the_store_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let config = eigenveil_store::StoreConfig::new(folder.path().join("data"));
        let environment = eigenveil_store::Environment::system();
        let store = eigenveil_store::Store::open(&config, environment).unwrap();
        let create = |mechanism: &str, delta: Option<f64>| {
            let design = serde_json::json!({
                "name": "test", "dimension": 3, "mechanism": mechanism, "epsilon": 1.0, "delta": delta, "enrolment": "token",
            });
            let created = store.create_study(serde_json::from_value(design).unwrap());
            tokio::runtime::Runtime::new()
                .unwrap()
                .block_on(created)
                .unwrap()
        };
        let (seeds, numbers) = (
            create("double-cap", None),
            create("symmetric-gaussian", Some(1e-6)),
        );
        for (study, is_shared, while_open, pairs) in [
            (&seeds, false, "nearly always", "which identifier."),
            (
                &seeds,
                true,
                "which transaction",
                "which identifier and which token.",
            ),
            (
                &numbers,
                false,
                "the sum before and after",
                "a single report added.",
            ),
            (
                &numbers,
                true,
                "the sum before and after",
                "a single report added.",
            ),
        ] {
            let texts = |is_rewritten, state| {
                let traces = Traces {
                    is_shared,
                    is_rewritten,
                };
                let text = traces.sentences(study, state).into_string();
                (text, tokens(traces).into_string())
            };
            let (open, of_token) = texts(false, StudyState::Open);
            assert!(
                open.contains(while_open) && open.contains("Once the study is closed"),
                "{open}"
            );
            assert_eq!(
                of_token.contains("database shows which report"),
                is_shared,
                "{of_token}"
            );
            let (closed, _) = texts(false, StudyState::Closed);
            assert!(
                closed.contains(while_open) && closed.contains("are being written anew"),
                "{closed}"
            );
            let (rewritten, of_token) = texts(true, StudyState::Closed);
            assert!(
                !rewritten.contains(while_open) && rewritten.contains(pairs),
                "{rewritten}"
            );
            assert!(
                !of_token.contains("database shows which report"),
                "{of_token}"
            );
        }
    }
}
