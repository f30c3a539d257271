//! All studies.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use eigenveil_estimation::floor::grouped;
use eigenveil_shared::api::StudyState;
use maud::{Markup, html};

use super::{
    layout,
    renderings::PageOf,
    visitor::{Fields, Visitor},
};
use crate::{app::AppState, http::ApiError, store::Study};

/// Studies of one page.
const PER_PAGE: usize = 50;

pub(super) async fn show(
    State(app): State<AppState>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let page: usize = fields.get("page").parse().unwrap_or(1).max(1);
    let operator = visitor.is_operator();
    let list = app.clone();
    let version = move || Part::of(&list, page, operator).version();
    let pages = app.clone();
    let render = move |visitor: &Visitor| {
        let content = content(visitor, page, &Part::of(&app, page, operator));
        Ok(layout::document(visitor, "Studies", &content))
    };
    let rendered = &pages.pages().rendered;
    let list = rendered.page(visitor, PageOf::Studies(page), version, render);
    Ok(layout::answer(StatusCode::OK, list.await?))
}

/// The studies of one page, and the number of pages.
struct Part {
    studies: Vec<Arc<Study>>,
    pages: usize,
}

impl Part {
    fn of(app: &AppState, page: usize, drafts: bool) -> Self {
        let mut studies = app.store().studies();
        studies.retain(|study| drafts || study.state() != StudyState::Draft);
        let pages = studies.len().div_ceil(PER_PAGE);
        let shown = studies.into_iter().rev();
        let shown = shown.skip((page - 1).saturating_mul(PER_PAGE));
        Self {
            studies: shown.take(PER_PAGE).collect(),
            pages,
        }
    }

    /// Another one when anything that the page shows has changed.
    fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.pages.hash(&mut hasher);
        for study in &self.studies {
            let state = study.state().as_str();
            (study.id(), state, study.reports_accepted()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn content(visitor: &Visitor, page: usize, part: &Part) -> Markup {
    let Part { studies, pages } = part;
    html! {
        h1 { "Studies" }
        p { "Each study finds the directions in which its participants' data vary most, without anybody's data leaving their device." }
        @if visitor.is_operator() {
            p { a .button href=(visitor.link("/studies/new")) { "Create a study" } }
        }
        @if studies.is_empty() {
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
        @if *pages > 1 {
            nav aria-label="Pages" .pager {
                @if page > 1 { a rel="prev" href=(visitor.link(&format!("/?page={}", page - 1))) { "Newer" } }
                span { "Page " (page) " of " (pages) }
                @if page < *pages { a rel="next" href=(visitor.link(&format!("/?page={}", page + 1))) { "Older" } }
            }
        }
    }
}
