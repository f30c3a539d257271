//! Paths as clients must request them: a proxy or an application may have put a prefix before the routes.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, OriginalUri},
    http::{Extensions, Uri, request::Parts},
};

use crate::app::AppState;

/// The prefix of all paths: that of `public_url`, or where an application has mounted the routes. Empty, or `/path`
/// without a slash at the end. No header decides it, because anybody can send one, and pages are cached for all.
pub(crate) fn prefix(app: &AppState, uri: &Uri, extensions: &Extensions) -> String {
    if let Some(url) = &app.config().public_url {
        return url.path().to_owned();
    }
    let whole = extensions
        .get::<OriginalUri>()
        .map_or(uri.path(), |original| original.0.path());
    let prefix = whole.strip_suffix(uri.path()).unwrap_or(match uri.path() {
        "/" => whole,
        _ => "",
    });
    prefix.trim_end_matches('/').to_owned()
}

pub(crate) struct PublicPath(pub(crate) String);

impl FromRequestParts<AppState> for PublicPath {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Infallible> {
        let prefix = prefix(app, &parts.uri, &parts.extensions);
        Ok(Self(prefix + parts.uri.path()))
    }
}
