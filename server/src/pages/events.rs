//! Live numbers of a study: server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use bytes::Bytes;
use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::{Error, error, wording::plural};
use eigenveil_store::Study;
use futures_util::stream;
use serde_json::json;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    render_cache::PageKind,
    state::Pages,
    study::{VisibleStudy, hide_drafts},
    visitor::Visitor,
};
use crate::http::{ApiError, extract::StudyInPath};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Polls of the study for each poll of its estimates, which reads the database.
const ESTIMATE_POLL_EVERY: u32 = 2;
/// After this time the browser has to reconnect, which is a use of its session.
const MAX_STREAM_TIME: Duration = Duration::from_secs(600);

struct Watch {
    app: Pages,
    visitor: Visitor,
    study: Arc<Study>,
    ticks: tokio::time::Interval,
    until: Instant,
    polls: u32,
    /// The number of reports at the last poll, and the data sent.
    sent: Option<(u64, Bytes)>,
    _slot: OwnedSemaphorePermit,
}

pub(super) async fn stream(
    StudyInPath(study): StudyInPath,
    State(app): State<Pages>,
    visitor: Visitor,
) -> Result<Response, ApiError> {
    hide_drafts(&visitor, &study)?;
    let [anybody, analysts, operator] = &app.state.watchers;
    let slots = match (visitor.is_operator(), visitor.is_logged_in()) {
        (true, _) => operator,
        (false, true) => analysts,
        (false, false) => anybody,
    };
    let slot = Arc::clone(slots).try_acquire_owned().map_err(|_| {
        error!(
            TooManyRequests,
            "too many pages are being updated live; reload the page to see new numbers"
        )
    })?;
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = Watch {
        until: Instant::now() + MAX_STREAM_TIME,
        ticks,
        polls: 0,
        sent: None,
        _slot: slot,
        app,
        visitor,
        study,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((Ok::<_, Infallible>(event), watch))
    });
    // Buffering proxies would delay the events.
    let headers = [("x-accel-buffering", "no"), ("cache-control", "no-store")];
    // Only a write shows that the browser has gone, which gives its slot back: at every poll, not every 15 s.
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(POLL_INTERVAL));
    Ok((headers, events).into_response())
}

impl Watch {
    /// The next change; `None` if the server stops, the study or the session is gone, or the stream is too old.
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                biased;
                () = self.app.stopping() => return None,
                _ = self.ticks.tick() => {}
            }
            if Instant::now() > self.until
                || self.app.store().study(self.study.id()).is_err()
                || !self.visitor.is_current(&self.app)
            {
                return None;
            }
            let reports = self.study.reports_accepted();
            let due = self.polls.is_multiple_of(ESTIMATE_POLL_EVERY);
            self.polls = self.polls.wrapping_add(1);
            if !due
                && self
                    .sent
                    .as_ref()
                    .is_some_and(|(before, _)| *before == reports)
            {
                continue;
            }
            // A failing store is polled again.
            let Ok(data) = self.render().await else {
                continue;
            };
            let unchanged = self.sent.as_ref().is_some_and(|(_, sent)| *sent == data);
            self.sent = Some((reports, data.clone()));
            if unchanged {
                continue;
            }
            let text = String::from_utf8_lossy(&data);
            return Some(Event::default().event("study").data(text));
        }
    }

    /// The changing values on this visitor's page, as JSON.
    async fn render(&self) -> Result<Bytes, Error> {
        let (app, study) = (self.app.clone(), Arc::clone(&self.study));
        let kind = PageKind::Events(study.id(), study.state());
        let render = move |visitor: &Visitor| {
            let visible = VisibleStudy::new(&app, visitor, study)?;
            let reports = visible.study.reports_accepted();
            let data = json!({
                "reports": with_thousands(reports),
                "noun": plural(reports, "report"),
                "error": visible.expected_error(),
                "version": visible.version(),
            });
            Ok(data.to_string().into())
        };
        let pages = &self.app.state.pages;
        pages.page(self.visitor.clone(), kind, render).await
    }
}
