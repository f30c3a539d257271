//! Preparations: for the people whom one invites, the questions, one of which is answered; for whoever runs it, the
//! centers and scales that it has found.

use eigenveil_estimation::{
    Cancel,
    format::{three_digits, with_thousands},
    preparation::{
        PreparationEstimate, PreparationPlanRequest, estimate_answers, plan_preparation,
    },
};
use eigenveil_shared::{
    Result, about::StudyNotice, enrolment::Enrolment, preparation::PreparationParams,
    wording::percent,
};
use eigenveil_store::{Store, Study};
use maud::{Markup, html};

use super::visitor::Visitor;

/// More columns than these are estimated by whoever asks for them, as error bars take some milliseconds a column.
const MAX_ESTIMATED_COLUMNS: usize = 64;
/// Lists of columns longer than this are collapsed.
const MAX_UNFOLDED_COLUMNS: usize = 40;

/// The columns, with what is stated about each, and what they mean.
pub(super) fn questions(params: &PreparationParams, about: &StudyNotice) -> Markup {
    let columns = params.columns();
    html! {
        @if columns.len() <= MAX_UNFOLDED_COLUMNS { (table(params, about)) } @else {
            details {
                summary { "All " (with_thousands(columns.len() as u64)) " columns" }
                (table(params, about))
            }
        }
        p .muted { "Your device draws one of these columns before it looks at your data, and of a number column one of its pairs of values. It then answers one question: is your number below both values, between them, or not below either? Or: which of the words is it? With some probability it gives an answer that was drawn instead of yours. Nobody can see which it did." }
        @if params.after().is_some() {
            p .muted { "“Within” is the interval that the first round has found, in which both values lie." }
        }
        @if columns.iter().any(|column| column.may_be_missing) {
            p .muted { "Where a value may be missing, “missing” is an answer like the others. Elsewhere a device without a value gives an answer that was drawn." }
        }
    }
}

fn table(params: &PreparationParams, about: &StudyNotice) -> Markup {
    let described = about.features.is_some();
    let mut next_feature = 0;
    let rows = params.columns().iter().map(|column| {
        let feature = next_feature;
        next_feature += column.feature_names().len();
        (column, about.feature(feature))
    });
    html! {
        div .scroll tabindex="0" role="region" aria-label="Columns" {
            table #features {
                caption { "Columns" }
                thead { tr { th scope="col" { "Column" } @if described { th scope="col" { "Meaning" } } th scope="col" { "Answers" } } }
                tbody { @for (column, meaning) in rows {
                    tr {
                        th scope="row" { (column.name) }
                        @if described { td .text { @if let Some(meaning) = meaning { (meaning) } } }
                        td .text { (column) }
                    }
                } }
            }
        }
    }
}

/// How many of these people prepare, and what that gives the study to come.
pub(super) fn plan(params: &PreparationParams, people: u64) -> Markup {
    let (columns, epsilon) = (params.columns().to_vec(), params.budget().epsilon());
    let request = PreparationPlanRequest::of_columns(columns, people, epsilon);
    let plan = match request.and_then(|request| plan_preparation(&request)) {
        Ok(plan) => plan,
        Err(error) => return html! { p .wrong { (error.detail()) } },
    };
    let rows = [
        ("People who prepare", with_thousands(plan.prepare)),
        (
            "… of them in the first round",
            with_thousands(plan.first_round),
        ),
        ("Left for the study", with_thousands(plan.study)),
        (
            "Effective answers a column N",
            plan.effective_answers.round().to_string(),
        ),
        (
            "A center is within",
            format!("± {:.2} σ", plan.center_within),
        ),
        ("A scale is within", format!("× {:.2}", plan.scale_within)),
        (
            "Further loss, and of nine in ten tables",
            format!(
                "{} %, {} %",
                plan.further_loss, plan.further_loss_of_nine_in_ten
            ),
        ),
    ];
    html! {
        h2 { "How many prepare" }
        @for sentence in plan.sentences() { p { (sentence) } }
        table #plan {
            caption { "Of " (with_thousands(people)) " people, for preparation and study together" }
            tbody { @for (what, number) in rows { tr { th scope="row" { (what) } td { (number) } } } }
        }
        p .muted { "Of the variance of the study's first components. N is that of the column whose question has most answers; 150 are advised. Ask all in one round where the ranges are real limits, as of scores." }
    }
}

/// The sections on what is sent and stored of an answer; `traces` says what the store shows of who sent what.
pub(super) fn sent_and_stored(study: &Study, traces: &Markup) -> Markup {
    html! {
        section aria-labelledby="h-sent" {
            h2 #h-sent { "What is sent" }
            ul {
                li { "One report of " strong { (study.privacy().report_bytes) " bytes" } ", made on your device: which column was drawn, which pair of its values, and the answer. Your row never leaves it." }
                li { "It has an identifier, so that it is counted once. The identifier shows when the report was made." }
                @if study.enrolment() == Enrolment::Token { li { "It comes with a one-time token. The server stores a hash of the token, in a list of its own." } }
            }
        }
        section aria-labelledby="h-stored" {
            h2 #h-stored { "What is stored" }
            ul {
                li { "How often each answer was given: the report is counted and then discarded." }
                li { "The identifier, in a separate list, so that a repeated report is not counted twice." }
                li { "How many reports came in each minute; later only in each hour, then in each day." }
                li { "No address, no name, nothing about your device." }
            }
            p #traces { (traces) }
        }
    }
}

/// The centers and scales that a preparation has found, for whoever may read them; `None` for another study.
pub(super) fn found(store: &Store, visitor: &Visitor, study: &Study) -> Option<Markup> {
    let params = study.params().preparation().ok()?;
    if !visitor.may_read(study) {
        let login = visitor.link(&format!("/login?next=/studies/{}", study.id()));
        return Some(html! {
            p { "What the answers show is for the operator and for analysts. " a href=(login) { "Log in" } " to see it." }
        });
    }
    let estimate = || -> Result<Option<PreparationEstimate>> {
        if params.columns().len() > MAX_ESTIMATED_COLUMNS || study.reports_accepted() == 0 {
            return Ok(None);
        }
        estimate_answers(
            &store.preparation_answers(study)?,
            &mut |_, _| (),
            Cancel::NEVER,
        )
        .map(Some)
    };
    let server = visitor.address().unwrap_or("SERVER");
    Some(html! {
        @match estimate() {
            Ok(Some(estimate)) => { (columns(&estimate)) }
            Ok(None) => { p { "Nothing is estimated here, without reports or with more than " (MAX_ESTIMATED_COLUMNS) " columns." } }
            Err(error) => { p #not-prepared { (error.detail()) } }
        }
        p { "The features file of the study to come:" }
        pre tabindex="0" { code #prepare-command { "eigenveil prepare --server " (server) " --from-study " (study.id()) " --out features.csv" } }
        @if params.after().is_none() {
            p { "A second round, for other people, asks about the intervals that this one has found; it is worth it unless the ranges are real limits, as of scores:" }
            pre tabindex="0" { code { "eigenveil study create --server " (server) " --name NAME --second-round-of " (study.id()) } }
        }
    })
}

fn columns(estimate: &PreparationEstimate) -> Markup {
    let digits = |number: Option<f64>| number.map_or_else(|| "–".to_owned(), three_digits);
    let messages: Vec<&String> = estimate
        .columns
        .iter()
        .flat_map(|column| &column.messages)
        .chain(&estimate.warnings)
        .collect();
    html! {
        div .scroll tabindex="0" role="region" aria-label="Columns with their constants" {
            table #prepared {
                caption { "What the answers show" }
                thead { tr { th scope="col" { "Column" } th scope="col" { "Answers" } th scope="col" { "Effective" } th scope="col" { "Mean" } th scope="col" { "±" } th scope="col" { "Deviation" } th scope="col" { "Within" } th scope="col" { "Missing" } th scope="col" { "Reach" } th scope="col" { "Over" } } }
                tbody { @for column in &estimate.columns {
                    tr {
                        th scope="row" { (column.name) }
                        td { (with_thousands(column.answers)) }
                        td { (column.effective_answers.round()) }
                        td { (digits(column.mean)) }
                        td { (digits(column.mean_error.map(|error| 2.0 * error))) }
                        td { (digits(column.deviation)) }
                        td { @if let Some(factor) = column.deviation_factor { "×" (three_digits(factor)) } @else { "–" } }
                        td { @if let Some(missing) = column.missing { (percent(missing.share)) } @else { "–" } }
                        td { (three_digits(column.reach_of_made_up)) }
                        td { (column.over().unwrap_or_else(|| "–".to_owned())) }
                    }
                    @for category in &column.categories {
                        tr {
                            td { (category.category) }
                            td {} td {}
                            td { (three_digits(category.share.share)) }
                            td { (digits(category.share.two_errors())) }
                            td {} td {} td {} td {} td {}
                        }
                    }
                } }
            }
        }
        p .muted { "Effective answers: 150 a column are advised, and fewer than 50 are too few. ±: two standard errors. Mean, deviation and its factor (three standard errors) are those of the column clipped to the interval that they are over. Reach: if a share g of all devices make up answers about this column, its shares move by reach·g at most." }
        @if !messages.is_empty() {
            ul #messages { @for message in messages { li { (message) } } }
        }
    }
}
