//! For participants: what one report reveals.

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use eigenveil_estimation::floor::grouped;
use eigenveil_plots::{Axis, LineChart, LineStyle, Marker, Series};
use eigenveil_shared::{
    api::StudyState,
    enrolment::Enrolment,
    mechanism::PayloadForm,
    privacy::{PrivacyStatement, rounded_up},
};
use maud::{Markup, html};

use super::{
    images::{self, Drawing, What},
    layout,
    renderings::PageOf,
    study::hide_drafts,
    visitor::{Fields, Visitor},
};
use crate::{
    app::AppState,
    http::{ApiError, extract::StudyInPath},
    store::Study,
};

const TITLE: &str = "What one report reveals";
/// Prior beliefs in the table, in percent.
const PRIORS: [f64; 5] = [1.0, 10.0, 50.0, 90.0, 99.0];
/// Points of the picture's lines.
const POINTS: u32 = 100;

/// The most that a belief of this probability can become: odds grow by a factor of e^ε at most.
fn at_most(prior: f64, epsilon: f64) -> f64 {
    1.0 / (1.0 + (1.0 - prior) / prior * (-epsilon).exp())
}

/// The least that it can become.
fn at_least(prior: f64, epsilon: f64) -> f64 {
    1.0 - at_most(1.0 - prior, epsilon)
}

/// The ε that really holds; infinite where none does.
fn epsilon_that_holds(privacy: &PrivacyStatement) -> f64 {
    match privacy.claim_holds {
        true => privacy.epsilon,
        false => privacy.true_epsilon.unwrap_or(f64::INFINITY),
    }
}

/// How often the bound may fail: 0 for a pure mechanism.
fn exception(study: &Study) -> f64 {
    let epsilon = epsilon_that_holds(study.privacy());
    study.params().mechanism().loss_exceeds(epsilon)
}

fn percent(probability: f64) -> String {
    let value = 100.0 * probability;
    // Never rounded to certainty.
    if value > 99.0 && value < 100.0 {
        let left = 100.0 - value;
        let digits = (1.0 - left.log10().floor()).clamp(1.0, 12.0) as usize;
        format!("{value:.digits$} %")
    } else if value < 1.0 && value > 0.0 {
        let digits = (1.0 - value.log10().floor()).clamp(1.0, 12.0) as usize;
        format!("{value:.digits$} %")
    } else {
        format!("{value:.1} %")
    }
}

pub(super) async fn show(
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    visitor: Visitor,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    let what = PageOf::Participate(study.id(), study.state());
    let render = move |visitor: &Visitor| {
        let content = content(visitor, &study);
        Ok(layout::document(visitor, TITLE, &content))
    };
    let page = app.pages().rendered.page(visitor, what, || 0, render);
    Ok(layout::answer(StatusCode::OK, page.await?))
}

fn content(visitor: &Visitor, study: &Study) -> Markup {
    let path = format!("/studies/{}", study.id());
    let privacy = study.privacy();
    let epsilon = epsilon_that_holds(privacy);
    let rare = exception(study);
    let seeds = study.shape().payload_form == PayloadForm::Seed;
    html! {
        p { a href=(visitor.link(&path)) { "← " (study.name()) } }
        h1 { (TITLE) }
        p { "You are asked to take part in " strong { (study.name()) } ", which is " (study.state().as_str()) "." }
        section aria-labelledby="h-belief" {
            h2 #h-belief { "What an observer can learn about you" }
            p { (privacy.sentence) }
            p #belief {
                "Suppose somebody thinks that a statement about your data is as likely to be true as false (50 %). After seeing your report they can be at most "
                strong { (percent(at_most(0.5, epsilon))) } " sure of it."
                @if rare > 0.0 { " With a probability of at most " (rounded_up(rare, 2)) " they can be surer." }
            }
            @if epsilon.is_finite() {
                (images::picture(visitor, &format!("{path}/belief.svg"), "What a belief can become after one report, against what it was before; the table below has numbers."))
                div .scroll tabindex="0" role="region" aria-label="Beliefs before and after" {
                    table #beliefs {
                        caption { "What a belief can become" }
                        thead { tr { th scope="col" { "Before" } th scope="col" { "At least" } th scope="col" { "At most" } } }
                        tbody { @for prior in PRIORS {
                            tr {
                                th scope="row" { (prior) " %" }
                                td { (percent(at_least(prior / 100.0, epsilon))) }
                                td { (percent(at_most(prior / 100.0, epsilon))) }
                            }
                        } }
                    }
                }
            }
            p { "This holds for every observer, whatever else they know and however they compute: for whoever runs this server, and for whoever breaks into it." }
            @if !privacy.cautions.is_empty() {
                ul .cautions { @for caution in &privacy.cautions { li { (caution) } } }
            }
        }
        section aria-labelledby="h-sent" {
            h2 #h-sent { "What is sent" }
            ul {
                li { "One report of " strong { (grouped(privacy.bytes_per_report as u64)) " bytes" } ", made on your device. Your row of " (grouped(study.params().dimension() as u64)) " numbers never leaves it." }
                li { @if seeds { "It holds a random seed that leans a little towards your row." } @else { "It holds a matrix made of your row, with random noise added to each of its numbers." } }
                li { "It has an identifier, so that it is counted once. The identifier shows when the report was made." }
                @if study.enrolment() == Enrolment::Token { li { "It comes with a one-time token. The server keeps a hash of the token, apart from the report." } }
            }
        }
        section aria-labelledby="h-stored" {
            h2 #h-stored { "What is stored" }
            ul {
                @if seeds {
                    li { "The report's seed, without its identifier, among those that came in the same commit." }
                } @else {
                    li { "The report's numbers are added to a sum and then dropped." }
                }
                li { "The identifier, in a list of its own, so that a repeated report is not counted twice." }
                li { "How many reports came in each minute, later in each hour, then in each day." }
                li { "No address, no name, nothing about your device." }
            }
        }
        section aria-labelledby="h-back" {
            h2 #h-back { "It cannot be withdrawn" }
            p { "Once a report is counted nobody can take it out again, neither you nor the operator: nothing says which part of the sum is yours. What is written above stays true for ever. If you take part in several studies with the same data, what they reveal adds up." }
        }
        section aria-labelledby="h-check" {
            h2 #h-check { "How to check" }
            ul {
                li { "The answer to your report says that it was accepted, or that it is a duplicate of one that was counted before." }
                li { "Your device keeps a ledger of what it has spent, and refuses what goes beyond your own limit." }
                li { "Your device computes with the parameters whose fingerprint is below, and refuses others: compare it with the one you were given. " code .long { (study.shape().fingerprint) } }
                li { "The program is open: " code { "eigenveil audit" } " tries to break the promise and shows how far it gets." }
            }
        }
        @if study.state() == StudyState::Open {
            section aria-labelledby="h-take-part" {
                h2 #h-take-part { "Take part" }
                p { "With the program, for the rows of a file (or with an app that has the device library inside):" }
                pre tabindex="0" { code { "eigenveil report --server SERVER --study " (study.id()) " --rows rows.npy" } }
            }
        }
    }
}

/// The picture: a belief before and after.
pub(super) async fn belief(
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let drawing = Drawing {
        study: study.id(),
        what: What::Belief,
        estimate: None,
        narrow: fields.has("narrow"),
    };
    let drawn = app.pages().drawings.get(
        drawing,
        || 0,
        move || Ok(draw_belief(&study, &fields).into()),
    );
    Ok(images::svg(drawn.await?))
}

fn draw_belief(study: &Study, fields: &Fields) -> String {
    let epsilon = epsilon_that_holds(study.privacy());
    let line = |name: &str, after: &dyn Fn(f64) -> f64, style| {
        let points = (0..=POINTS).map(|i| {
            // Close to both ends, where the lines are steep.
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
        eigenveil_plots::format_number(epsilon),
        percent(at_most(0.5, epsilon))
    ));
    chart.series = vec![
        line(
            "at most",
            &|prior| at_most(prior, epsilon),
            LineStyle::Solid,
        ),
        line("nothing learned", &|prior| prior, LineStyle::Dotted),
        line(
            "at least",
            &|prior| at_least(prior, epsilon),
            LineStyle::Dashed,
        ),
    ];
    chart.width = images::width(fields);
    chart.to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_grow_and_shrink_by_the_same_factor() {
        for prior in [0.001, 0.3, 0.5, 0.999] {
            for epsilon in [0.1_f64, 1.0, 8.0] {
                let odds = |p: f64| p / (1.0 - p);
                let up = odds(at_most(prior, epsilon)) / odds(prior);
                let down = odds(prior) / odds(at_least(prior, epsilon));
                assert!((up / epsilon.exp() - 1.0).abs() < 1e-9, "{up}");
                assert!((down / epsilon.exp() - 1.0).abs() < 1e-6, "{down}");
            }
        }
        assert_eq!(at_most(0.5, f64::INFINITY), 1.0);
    }

    #[test]
    fn percentages_never_claim_certainty() {
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(at_most(0.5, 4.0)), "98.2 %");
        assert_eq!(percent(at_most(0.5, 16.0)), "99.999989 %");
        assert_eq!(percent(0.000_2), "0.020 %");
    }
}
