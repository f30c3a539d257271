//! Requests to a server, for any HTTP client.

use eigenveil_shared::{names, report::ReportId};

use super::server::Server;

/// The media type of documents.
pub(crate) const JSON: &str = "application/json";

/// The method of a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`, without a body.
    Get,
    /// `POST`.
    Post,
}

names! {
    pub Method { Get = "GET", Post = "POST" };
}

/// A request, for any HTTP client that follows no redirects. It is idempotent.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The whole address.
    pub url: String,
    /// Names in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for `GET`.
    pub body: Vec<u8>,
    pub(crate) server: Server,
    pub(crate) study: String,
    /// The reports in the body, in order.
    pub(crate) reports: Vec<ReportId>,
    pub(crate) batched: bool,
}

impl Request {
    /// The server that the request is for.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The identifier of the study.
    pub fn study(&self) -> &str {
        &self.study
    }

    /// The reports in the request, in order.
    pub fn reports(&self) -> &[ReportId] {
        &self.reports
    }

    /// The request for a study's document.
    pub(crate) fn study_document(server: &Server, id: &str) -> Self {
        Self {
            method: Method::Get,
            url: server.join(&["v1", "studies", id]).into(),
            headers: vec![("accept", JSON.to_owned())],
            body: Vec::new(),
            server: server.clone(),
            study: id.to_owned(),
            reports: Vec::new(),
            batched: false,
        }
    }

    /// The request for the site of a token, which is in the body.
    pub(crate) fn token_lookup(server: &Server, study: &str, body: Vec<u8>) -> Self {
        Self {
            method: Method::Post,
            url: server
                .join(&["v1", "studies", study, "tokens", "lookup"])
                .into(),
            headers: vec![
                ("accept", JSON.to_owned()),
                ("content-type", JSON.to_owned()),
            ],
            body,
            ..Self::study_document(server, study)
        }
    }

    /// The request that uploads these encoded reports of a study.
    pub(crate) fn upload(
        server: &Server,
        study: &str,
        media_type: &'static str,
        body: Vec<u8>,
        reports: Vec<ReportId>,
        batched: bool,
    ) -> Self {
        Self {
            method: Method::Post,
            url: server.join(&["v1", "studies", study, "reports"]).into(),
            headers: vec![
                ("accept", JSON.to_owned()),
                ("content-type", media_type.to_owned()),
            ],
            body,
            server: server.clone(),
            study: study.to_owned(),
            reports,
            batched,
        }
    }
}

/// Omits the body, which holds tokens.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Request({:?} {}, {} reports)",
            self.method,
            self.url,
            self.reports.len()
        )
    }
}
