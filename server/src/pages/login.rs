//! Login with a bearer token, and logout.

use std::time::Instant;

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use eigenveil_shared::Error;
use eigenveil_store::TokenHash;
use maud::html;

use super::{
    layout,
    visitor::{CheckedForm, Fields, Visitor},
};
use crate::{
    app::AppState,
    http::{ApiError, authenticate, check_token_limit},
};

/// The login form. A browser without a session identifier gets one, so that the form has a CSRF token.
pub(super) async fn show(
    State(app): State<AppState>,
    visitor: Visitor,
    fields: Fields,
) -> Result<Response, ApiError> {
    Ok(form(&app, visitor, StatusCode::OK, next(&fields), None)?)
}

/// Checks a token and begins a session under a new identifier, so that an identifier planted in the browser is useless
/// (session fixation).
pub(super) async fn submit(
    State(app): State<AppState>,
    CheckedForm {
        visitor,
        fields,
        client,
    }: CheckedForm,
) -> Result<Response, ApiError> {
    let token = TokenHash::new(fields.get("token"));
    let next = next(&fields);
    if authenticate(&app, &token, client).await?.is_none() {
        let message = "This token is unknown or was revoked. The operator token is in operator.token in the data directory; analysts get one from the operator.";
        let status = StatusCode::FORBIDDEN;
        return Ok(form(&app, visitor, status, next, Some(message))?);
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
        p { "Operators create studies and request estimates; analysts read estimates. Participants need no login." }
        form #login method="post" action=(visitor.link("/login")) {
            (layout::csrf_token(&visitor))
            input type="hidden" name="next" value=(next);
            div .field {
                label for="token" { "Token" }
                input #token type="password" name="token" autocomplete="current-password" required
                    aria-invalid=[wrong.map(|_| "true")] aria-describedby="token-help";
                p #token-help class=(if wrong.is_some() { "wrong" } else { "help" }) role=[wrong.map(|_| "alert")] {
                    (wrong.unwrap_or("64 characters. It is sent only to this server and never shown."))
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

/// Where to go after the login: only a path of this server, whatever the link says.
fn next(fields: &Fields) -> &str {
    let path = fields.get("next");
    let is_plain = path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/-_?=&.".contains(&b));
    match path.starts_with('/') && !path.starts_with("//") && is_plain {
        true => path,
        false => "/",
    }
}

fn set_session_cookie(response: &mut Response, cookie: &str) {
    // Consists of our own letters, digits and punctuation.
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_after_login_is_on_this_server() {
        let next_page =
            |text: &str| next(&Fields::parse(format!("next={text}").as_bytes())).to_owned();
        assert_eq!(next_page("/studies/new"), "/studies/new");
        for elsewhere in [
            "",
            "//evil.example",
            "https://evil.example",
            "/%5Cevil.example",
            "/a%0Ab",
            "studies",
        ] {
            assert_eq!(next_page(elsewhere), "/", "{elsewhere}");
        }
    }
}
