//! All studies.

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use eigenveil_estimation::floor::grouped;
use eigenveil_shared::api::StudyState;
use maud::html;

use super::{
    layout,
    visitor::{Fields, Visitor},
};
use crate::app::AppState;

/// Studies of one page.
const PER_PAGE: usize = 50;
/// From so many studies there is a field to search them.
const SEARCHED: usize = 10;
/// Most characters that are searched for: no name is longer.
const LONGEST: usize = 200;

pub(super) async fn show(
    State(app): State<AppState>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Response {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let page: usize = fields.get("page").parse().unwrap_or(1).max(1);
    let mut studies = app.store().studies();
    studies.retain(|study| visitor.is_operator() || study.state() != StudyState::Draft);
    studies.reverse();
    let all = studies.len();
    let wanted: String = fields.get("q").chars().take(LONGEST).collect();
    let words = wanted.to_lowercase();
    studies.retain(|study| {
        let name = study.name().to_lowercase();
        let named = words.split_whitespace().all(|word| name.contains(word));
        named || study.id().to_string().starts_with(&words)
    });
    let at = |page: usize| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !wanted.is_empty() {
            query.append_pair("q", &wanted);
        }
        query.append_pair("page", &page.to_string());
        visitor.link(&format!("/?{}", query.finish()))
    };
    let pages = studies.len().div_ceil(PER_PAGE);
    let shown = studies
        .iter()
        .skip((page - 1).saturating_mul(PER_PAGE))
        .take(PER_PAGE);
    let content = html! {
        h1 { "Studies" }
        p { "Each study finds the directions in which its participants' data vary most, without anybody's data leaving their device." }
        @if visitor.is_operator() {
            p { a .button href=(visitor.link("/studies/new")) { "Create a study" } }
        }
        @if all > SEARCHED || !wanted.is_empty() {
            form .search role="search" method="get" action=(visitor.link("/")) {
                label for="q" { "Name, or how the identifier begins" }
                input #q type="search" name="q" value=(wanted) maxlength=(LONGEST) autocomplete="off";
                button type="submit" { "Search" }
                @if !wanted.is_empty() { a href=(visitor.link("/")) { "All studies" } }
            }
            p #found .muted {
                @if wanted.is_empty() { (grouped(all as u64)) " studies, the newest first." }
                @else { (grouped(studies.len() as u64)) " of " (grouped(all as u64)) " studies." }
            }
        }
        @if all > 0 && studies.is_empty() {
            p #none { "No study has such a name." }
        } @else if studies.is_empty() {
            p #empty { "There is no study yet." }
        } @else {
            ul #studies .cards {
                @for study in shown {
                    li .card {
                        h2 {
                            a href=(visitor.link(&format!("/studies/{}", study.id()))) { (study.name()) }
                            " " (layout::badge(study.state()))
                        }
                        p .numbers {
                            strong { (grouped(study.reports_accepted())) }
                            (if study.reports_accepted() == 1 { " participant" } else { " participants" })
                            " · " (grouped(study.params().dimension() as u64)) " features · "
                            "ε\u{a0}=\u{a0}" (study.privacy().epsilon)
                        }
                        p .muted { (study.privacy().sentence) }
                    }
                }
            }
        }
        @if pages > 1 {
            nav aria-label="Pages" .pager {
                @if page > 1 { a rel="prev" href=(at(page - 1)) { "Newer" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a rel="next" href=(at(page + 1)) { "Older" } }
            }
        }
    };
    layout::page(&visitor, StatusCode::OK, "Studies", &content)
}
