//! The visitor of a page, and the forms they send.

use std::{convert::Infallible, time::Instant};

use axum::{
    extract::{FromRef, FromRequest, FromRequestParts, Request},
    http::{Extensions, HeaderMap, Uri, header, request::Parts},
};
use eigenveil_shared::{Error, ErrorCode, error};
use eigenveil_store::{ClientKey, Identity, Study};
use subtle::ConstantTimeEq;

use crate::{
    app::AppState,
    config::is_shell_safe_host,
    http::{ApiError, body, client_key, public_path},
    sessions::{self, SessionCookie},
};

/// Largest form in bytes: 4,096 features with names fit.
const MAX_FORM_BYTES: usize = 1 << 20;

#[derive(Clone, Default)]
pub(crate) struct Visitor {
    /// The prefix of all links: empty, or `/path` without a slash at the end.
    base: String,
    session_id: Option<String>,
    identity: Option<Identity>,
    /// Whether the connection is encrypted, as far as the server can tell.
    secure: bool,
    address: Option<String>,
}

impl Visitor {
    pub(crate) fn from_request(
        app: &AppState,
        uri: &Uri,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Self {
        let base = public_path::prefix(app, uri, extensions);
        let public_url = app.config().public_url.as_ref();
        let secure = app.config().tls_files().is_some()
            || match public_url {
                Some(url) => url.is_https(),
                // A client that lies about this harms only its own cookie.
                None => headers
                    .get("x-forwarded-proto")
                    .is_some_and(|proto| proto == "https"),
            };
        let address = match public_url {
            Some(url) => Some(url.to_string()),
            None => host(headers).map(|host| {
                let scheme = if secure { "https" } else { "http" };
                format!("{scheme}://{host}{base}")
            }),
        };
        let session_id = SessionCookie::at(&base, secure).id(headers);
        let identity = session_id
            .as_deref()
            .and_then(|id| app.sessions().token(id, Instant::now()))
            .and_then(|token| app.store().identify_hash(&token));
        Self {
            base,
            session_id,
            identity,
            secure,
            address,
        }
    }

    #[cfg(test)]
    pub(crate) fn operator() -> Self {
        Self {
            identity: Some(Identity::Operator),
            ..Self::default()
        }
    }

    /// Whether the session, if it had one, still allows what it did when the request came.
    pub(crate) fn is_current(&self, app: &AppState) -> bool {
        let now = || {
            let token = app.sessions().peek(self.session_id()?, Instant::now())?;
            app.store().identify_hash(&token)
        };
        self.identity.is_none() || self.identity == now()
    }

    /// A path of this server as the browser must request it.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The address of this server for commands to copy: `public_url`, or how the visitor reached it. `None` if neither
    /// the settings nor the request say it.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.identity.is_some()
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.identity == Some(Identity::Operator)
    }

    pub(crate) fn may_read(&self, study: &Study) -> bool {
        match self.identity {
            Some(Identity::Operator | Identity::Analyst(None)) => true,
            Some(Identity::Analyst(Some(id))) => id == study.id(),
            None => false,
        }
    }

    pub(crate) fn require_reader(&self, study: &Study) -> Result<(), Error> {
        self.require(
            self.may_read(study),
            "this analyst token is for the estimates of another study",
            "estimates are for the operator and for analysts: log in with a token",
        )
    }

    pub(crate) fn require_operator(&self) -> Result<(), Error> {
        self.require(
            self.is_operator(),
            "an analyst token can only read estimates; this needs the operator token",
            "only the operator may do this: log in with the operator token",
        )
    }

    fn require(&self, allowed: bool, forbidden: &str, unknown: &str) -> Result<(), Error> {
        match (allowed, self.is_logged_in()) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::new(ErrorCode::Forbidden, forbidden)),
            (false, false) => Err(Error::new(ErrorCode::Unauthorized, unknown)),
        }
    }

    pub(crate) fn csrf_token(&self) -> String {
        self.session_id
            .as_deref()
            .map(sessions::csrf_token)
            .unwrap_or_default()
    }

    pub(crate) fn with_session_id(mut self, id: String) -> Self {
        self.session_id = Some(id);
        self
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub(crate) fn set_cookie(&self, id: &str) -> String {
        self.cookie().set(&self.base, Some(id))
    }

    pub(crate) fn forget_cookie(&self) -> String {
        self.cookie().set(&self.base, None)
    }

    fn cookie(&self) -> SessionCookie {
        SessionCookie::at(&self.base, self.secure)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor
where
    AppState: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(Self::from_request(
            &AppState::from_ref(state),
            &parts.uri,
            &parts.headers,
            &parts.extensions,
        ))
    }
}

/// The requested host. It is shown for copying into a shell, so only a name or address with a port is accepted.
fn host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    is_shell_safe_host(host).then_some(host)
}

/// The fields of a form, or of the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Fields {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(
            parts.uri.query().unwrap_or_default().as_bytes(),
        ))
    }
}

impl Fields {
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The trimmed text of a field; empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(field, _)| field == name)
            .map_or("", |(_, value)| value.trim())
    }

    /// The finite number in a field.
    pub(crate) fn number(&self, name: &'static str) -> Result<f64, Error> {
        let text = self.get(name);
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| wrong(name, text, "a number such as 1.5"))
    }

    pub(crate) fn query(&self, names: &[&str]) -> String {
        let named = self
            .0
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(named).finish()
    }

    /// These fields with another value of one of them.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let others = self.0.iter().filter(|(field, _)| field != name).cloned();
        let changed = (name.to_owned(), value.to_owned());
        Self(others.chain([changed]).collect())
    }

    /// Whether the form has this field, as a checked checkbox does.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }
}

/// The error for what stands in a field.
pub(crate) fn wrong(field: &'static str, text: &str, what: &str) -> Error {
    Error::invalid_request(format!("{field} is {text:?}; it must be {what}")).with_field(field)
}

/// A form sent from one of our own pages by the browser with the cookie (checked against CSRF). The sender may be
/// anybody.
pub(crate) struct CheckedForm {
    pub(crate) visitor: Visitor,
    pub(crate) fields: Fields,
    pub(crate) client: Option<ClientKey>,
}

impl<S: Send + Sync> FromRequest<S> for CheckedForm
where
    AppState: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let app = &AppState::from_ref(state);
        let (parts, content) = request.into_parts();
        // Browsers send the origin of a request; without it only the CSRF token counts.
        let site = parts.headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(csrf_error().into());
        }
        let (text, _reservation) = body::read(app, &parts, content, MAX_FORM_BYTES).await?;
        let fields = Fields::parse(&text);
        // Only now: whoever holds a form back must not outlast the session.
        let visitor = Visitor::from_request(app, &parts.uri, &parts.headers, &parts.extensions);
        let client = client_key(app, &parts.headers, &parts.extensions);
        let expected = visitor.csrf_token();
        let given = fields.get("csrf_token").as_bytes();
        if expected.is_empty() || !bool::from(given.ct_eq(expected.as_bytes())) {
            return Err(csrf_error().into());
        }
        Ok(Self {
            visitor,
            fields,
            client,
        })
    }
}

fn csrf_error() -> Error {
    error!(
        Forbidden,
        "the form has no valid CSRF token (it does not come from a current page of this server); nothing was done: log in, open the page again and send it from there"
    )
}

pub(crate) struct OperatorForm {
    pub(crate) visitor: Visitor,
    pub(crate) fields: Fields,
}

impl<S: Send + Sync> FromRequest<S> for OperatorForm
where
    AppState: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let CheckedForm {
            visitor, fields, ..
        } = CheckedForm::from_request(request, state).await?;
        visitor.require_operator()?;
        Ok(Self { visitor, fields })
    }
}
