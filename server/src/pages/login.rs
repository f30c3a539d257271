//! Logging in with a token, and out.

use std::time::Instant;

use axum::{
    extract::{RawQuery, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use eigenveil_shared::Error;
use maud::html;

use super::{
    layout,
    visitor::{CheckedForm, Fields, Visitor},
};
use crate::{
    app::AppState,
    http::{ApiError, authenticate, check_token_limit},
    store::TokenHash,
};

/// The form. A browser without an identifier gets one, so that the form it sends back can be told from one that
/// another site made.
pub(super) async fn show(
    State(app): State<AppState>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    Ok(form(&app, visitor, StatusCode::OK, next(&fields), None)?)
}

/// Takes a token. The session gets a new identifier: one that somebody planted in the browser is worth nothing.
pub(super) async fn submit(
    State(app): State<AppState>,
    CheckedForm {
        visitor,
        fields,
        client_key,
    }: CheckedForm,
) -> Result<Response, ApiError> {
    let token = TokenHash::new(fields.get("token"));
    let next = next(&fields);
    if authenticate(&app, &token, client_key.as_ref())?.is_none() {
        let why = "This server does not know this token, or has revoked it. The operator's token is in operator.token in the data directory; an analyst gets one from the operator.";
        let status = StatusCode::FORBIDDEN;
        return Ok(form(&app, visitor, status, next, Some(why))?);
    }
    check_token_limit(&app, &token)?;
    if let Some(old) = visitor.session_id() {
        app.sessions().end(old);
    }
    let id = app.store().fresh_secret()?;
    app.sessions().begin(&id, token, Instant::now());
    let mut response = layout::see_other(&visitor, next);
    set_session_cookie(&mut response, &visitor.set_cookie(&id));
    Ok(response)
}

/// Ends the session.
pub(super) async fn logout(
    State(app): State<AppState>,
    CheckedForm { visitor, .. }: CheckedForm,
) -> Response {
    if let Some(id) = visitor.session_id() {
        app.sessions().end(id);
    }
    let mut response = layout::see_other(&visitor, "/");
    set_session_cookie(&mut response, &visitor.forget_cookie());
    response
}

fn form(
    app: &AppState,
    visitor: Visitor,
    status: StatusCode,
    next: &str,
    wrong: Option<&str>,
) -> Result<Response, Error> {
    let (visitor, new) = match visitor.session_id() {
        Some(_) => (visitor, None),
        None => {
            let id = app.store().fresh_secret()?;
            let header = visitor.set_cookie(&id);
            (visitor.with_session_id(id), Some(header))
        }
    };
    let content = html! {
        h1 { "Log in" }
        p { "Operators create studies and ask for estimates; analysts read estimates. Participants need no login." }
        form #login method="post" action=(visitor.link("/login")) {
            (layout::csrf_token(&visitor))
            input type="hidden" name="next" value=(next);
            div .field {
                label for="token" { "Token" }
                input #token type="password" name="token" autocomplete="current-password" required
                    aria-invalid=[wrong.map(|_| "true")] aria-describedby="token-help";
                p #token-help class=(if wrong.is_some() { "wrong" } else { "help" }) role=[wrong.map(|_| "alert")] {
                    (wrong.unwrap_or("64 characters. It is sent to this server only, and shown nowhere."))
                }
            }
            button type="submit" { "Log in" }
        }
    };
    let mut response = layout::page(&visitor, status, "Log in", &content);
    if let Some(header) = new {
        set_session_cookie(&mut response, &header);
    }
    Ok(response)
}

/// Where to go after the login: a path of this server, whatever the link said.
fn next(fields: &Fields) -> &str {
    let path = fields.get("next");
    let plain = path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/-_?=&.".contains(&b));
    match path.starts_with('/') && !path.starts_with("//") && plain {
        true => path,
        false => "/",
    }
}

fn set_session_cookie(response: &mut Response, cookie: &str) {
    // Letters, digits and punctuation of ours.
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_one_of_ours() {
        let of = |text: &str| next(&Fields::parse(format!("next={text}").as_bytes())).to_owned();
        assert_eq!(of("/studies/new"), "/studies/new");
        for elsewhere in [
            "",
            "//evil.example",
            "https://evil.example",
            "/%5Cevil.example",
            "/a%0Ab",
            "studies",
        ] {
            assert_eq!(of(elsewhere), "/", "{elsewhere}");
        }
    }
}
