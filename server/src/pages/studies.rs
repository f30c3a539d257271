//! The list of studies.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::{api::StudyState, wording::plural};
use eigenveil_store::Study;
use maud::{Markup, html};

use super::{
    layout,
    render_cache::PageKind,
    state::Pages,
    visitor::{Fields, Visitor},
};
use crate::http::ApiError;

const PAGE_SIZE: usize = 50;
/// The search field is shown above this number of studies.
const SEARCH_MIN_STUDIES: usize = 10;
/// Maximum length of the search text: no name is longer.
const MAX_SEARCH_CHARS: usize = 200;

pub(super) async fn show(
    State(app): State<Pages>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    let page: usize = fields.get("page").parse().unwrap_or(1).max(1);
    let search: String = fields.get("q").chars().take(MAX_SEARCH_CHARS).collect();
    let operator = visitor.is_operator();
    let kind = PageKind::Studies(page, search.clone());
    let pages = app.clone();
    let render = move |visitor: &Visitor| {
        let shown_page = StudyPage::new(&app, page, &search, operator);
        let content = content(visitor, page, &search, &shown_page);
        Ok(layout::document(visitor, "Studies", &content))
    };
    let list = pages.state.pages.page(visitor, kind, render);
    Ok(layout::html_response(StatusCode::OK, list.await?))
}

struct StudyPage {
    studies: Vec<Arc<Study>>,
    found: usize,
    all: usize,
}

impl StudyPage {
    fn new(app: &Pages, page: usize, search: &str, drafts: bool) -> Self {
        let mut studies = app.store().studies();
        studies.retain(|study| drafts || study.state() != StudyState::Draft);
        let all = studies.len();
        let words = search.to_lowercase();
        studies.retain(|study| {
            let name = study.name().to_lowercase();
            let named = words.split_whitespace().all(|word| name.contains(word));
            named || study.id().to_string().starts_with(&words)
        });
        let matching = studies.len();
        let newest = studies.into_iter().rev();
        let newest = newest.skip((page - 1).saturating_mul(PAGE_SIZE));
        Self {
            studies: newest.take(PAGE_SIZE).collect(),
            found: matching,
            all,
        }
    }
}

fn content(visitor: &Visitor, page: usize, search: &str, shown_page: &StudyPage) -> Markup {
    let &StudyPage {
        ref studies,
        found,
        all,
    } = shown_page;
    let pages = found.div_ceil(PAGE_SIZE);
    let at = |page: usize| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !search.is_empty() {
            query.append_pair("q", search);
        }
        query.append_pair("page", &page.to_string());
        visitor.link(&format!("/?{}", query.finish()))
    };
    html! {
        h1 { "Studies" }
        p { "Each study finds the directions in which its participants' data vary most, without anybody's data leaving their device." }
        @if visitor.is_operator() {
            p { a .button href=(visitor.link("/studies/new")) { "Create a study" } }
        }
        @if all > SEARCH_MIN_STUDIES || !search.is_empty() {
            form .search role="search" method="get" action=(visitor.link("/")) {
                label for="q" { "Name, or how the identifier begins" }
                input #q type="search" name="q" value=(search) maxlength=(MAX_SEARCH_CHARS) autocomplete="off";
                button type="submit" { "Search" }
                @if !search.is_empty() { a href=(visitor.link("/")) { "All studies" } }
            }
            p #found .muted {
                @if search.is_empty() { (with_thousands(all as u64)) " studies, the newest first." }
                @else { (with_thousands(found as u64)) " of " (with_thousands(all as u64)) " studies." }
            }
        }
        @if all > 0 && found == 0 {
            p #none { "No study has such a name." }
        } @else if studies.is_empty() {
            p #empty { "There is no study yet." }
        } @else {
            ul #studies .cards {
                @for study in studies {
                    li .card {
                        h2 {
                            a href=(visitor.link(&format!("/studies/{}", study.id()))) { (study.name()) }
                            " " (layout::badge(study.state()))
                        }
                        p .numbers {
                            strong { (with_thousands(study.reports_accepted())) }
                            " " (plural(study.reports_accepted(), if study.has_sites() { "site report" } else { "participant" }))
                            " · " (with_thousands(study.params().dimension() as u64)) " features · "
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
    }
}
