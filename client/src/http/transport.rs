//! Sends a request and receives its response, or explains the failure.

use std::{
    fmt,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use eigenveil_shared::{
    Hint,
    api::{StudyList, StudySummary},
};
use reqwest::{
    Method,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    proxy::ProxyAddress,
    retry::{Attempts, Gate, RetrySafety, retry},
    settings::{BearerToken, HttpSettings, root_cause},
};
use crate::{
    error::{Error, HttpFailure, Result},
    exchange::{self, Answer, JSON, ReportResult, Response, Server},
};

/// Maximum number of studies that a server may list, and of their pages (our server has 100 studies per page).
const MAX_STUDIES: usize = 100_000;
const MAX_PAGES: usize = 1_000;

/// The HTTP connection to one server, with its token and `Retry-After` gate.
pub(crate) struct Transport {
    http: reqwest::Client,
    server: Server,
    proxy: Option<ProxyAddress>,
    settings: HttpSettings,
    token: Option<HeaderValue>,
    gate: Gate,
}

/// One request, to be sent as often as needed with the same bytes.
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Option<(&'a str, &'a str)>,
    pub(crate) content: Option<(&'static str, Bytes)>,
    pub(crate) accept: &'static str,
    pub(crate) retry_safety: RetrySafety,
    /// Longest time for one attempt, if it differs from that of the settings.
    pub(crate) timeout: Option<Duration>,
}

impl<'a> ApiRequest<'a> {
    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self {
            method: Method::GET,
            path,
            query: None,
            content: None,
            accept: JSON,
            retry_safety: RetrySafety::Always,
            timeout: None,
        }
    }

    /// A request that must not be acted on twice.
    pub(crate) fn non_idempotent(method: Method, path: &'a [&'a str]) -> Self {
        Self {
            method,
            retry_safety: RetrySafety::IfUnprocessed,
            ..Self::get(path)
        }
    }

    pub(crate) fn json(mut self, content: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(content)
            .map_err(|error| Error::usage(format!("the request cannot be written: {error}")))?;
        self.content = Some((JSON, bytes.into()));
        Ok(self)
    }
}

/// A whole response.
struct RawResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RawResponse {
    /// The result of `read` on the response.
    fn read<T>(&self, read: impl FnOnce(&Response<'_>) -> T) -> T {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        read(&Response {
            status: self.status,
            headers: &headers,
            body: &self.body,
            now: now.ok().and_then(|now| now.as_millis().try_into().ok()),
        })
    }
}

impl Transport {
    /// All studies that this client may see, oldest first, page by page.
    pub(super) async fn studies(&self) -> Result<Vec<StudySummary>> {
        let (mut studies, mut after) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let request = ApiRequest {
                query: after.as_deref().map(|after| ("after", after)),
                ..ApiRequest::get(&["v1", "studies"])
            };
            let page: StudyList = self.json(&request).await?;
            let ended = page.studies.is_empty() || page.next == after;
            studies.extend(page.studies);
            if ended || page.next.is_none() {
                return Ok(studies);
            }
            if studies.len() >= MAX_STUDIES {
                break;
            }
            after = page.next;
        }
        Err(Error::http(
            HttpFailure::default(),
            format!(
                "{} lists more than {MAX_STUDIES} studies, or more than {MAX_PAGES} pages of them; give a study's whole identifier",
                self.server
            ),
        ))
    }

    pub(crate) fn new(
        server: &Server,
        settings: &HttpSettings,
        token: Option<&BearerToken>,
    ) -> Result<Self> {
        let base = server.url();
        let is_this_machine = server.is_this_machine();
        let proxy = settings.proxy.proxy_for(base, is_this_machine)?;
        if base.scheme() == "http"
            && !settings.insecure_http
            && !(is_this_machine && proxy.is_none())
        {
            let route = match &proxy {
                Some(proxy) => format!("to the proxy {proxy}, which"),
                None => "to another machine, where anybody on the network path".to_owned(),
            };
            return Err(Error::usage(format!(
                "{base} is plain HTTP {route} can read tokens and reports; use https://, or allow it"
            ))
            .with_hint(Hint::PlainHttp));
        }
        Ok(Self {
            http: settings.client(base.scheme() == "https", proxy.as_ref())?,
            proxy,
            server: server.clone(),
            settings: settings.clone(),
            token: token.map(BearerToken::header),
            gate: Gate::default(),
        })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a device's request, with retries by the retry policy, and reads the response.
    pub(crate) async fn call(&self, request: &exchange::Request, counters: &Counters) -> Answer {
        // The checks of plain HTTP and of the proxy were for this server only.
        if request.server != self.server {
            return request.answer_for_failure(Error::usage(format!(
                "a request for {} was given to the client of {}",
                request.server, self.server
            )));
        }
        let result = self
            .respond(request, counters, |response| {
                let answer = request.answer(response);
                // A partial answer is kept: the reports that it leaves pending are for the next request.
                let none_settled = answer.results.iter().all(|r| *r == ReportResult::Pending);
                match answer.error {
                    Some(error) if none_settled && error.is_retryable() => Err(error),
                    error => Ok(Answer { error, ..answer }),
                }
            })
            .await;
        result.unwrap_or_else(|error| request.answer_for_failure(error))
    }

    /// Sends a device's request until `read` accepts the response.
    pub(crate) async fn respond<T>(
        &self,
        request: &exchange::Request,
        counters: &Counters,
        read: impl Fn(&Response<'_>) -> Result<T>,
    ) -> Result<T> {
        let body = Bytes::copy_from_slice(&request.body);
        let method = match request.method {
            exchange::Method::Get => Method::GET,
            exchange::Method::Post => Method::POST,
        };
        let builder = || {
            counters.sent(body.len());
            let mut builder = self.http.request(method.clone(), &request.url);
            for (name, value) in &request.headers {
                builder = builder.header(*name, value);
            }
            builder.body(body.clone())
        };
        // A report that arrives twice is recognised as a duplicate by its identifier.
        self.with_retries(RetrySafety::Always, &counters.attempts, builder, read)
            .await
    }

    /// Sends until there is a JSON response of this type.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: &ApiRequest<'_>) -> Result<T> {
        self.send_and_read(request, |response| response.json(self.server.as_str()))
            .await
    }

    /// Sends until there is a successful response; returns its bytes.
    pub(crate) async fn bytes(&self, request: &ApiRequest<'_>) -> Result<Vec<u8>> {
        let read = |response: &Response<'_>| {
            response.require_success(self.server.as_str())?;
            Ok(response.body.to_vec())
        };
        self.send_and_read(request, read).await
    }

    async fn send_and_read<T>(
        &self,
        request: &ApiRequest<'_>,
        read: impl Fn(&Response<'_>) -> Result<T>,
    ) -> Result<T> {
        let (safety, attempts) = (request.retry_safety, Attempts::default());
        self.with_retries(safety, &attempts, || self.builder(request), read)
            .await
    }

    /// Sends until `read` accepts the response, with retries by the retry policy.
    async fn with_retries<T>(
        &self,
        safety: RetrySafety,
        attempts: &Attempts,
        builder: impl Fn() -> reqwest::RequestBuilder,
        read: impl Fn(&Response<'_>) -> Result<T>,
    ) -> Result<T> {
        retry(
            &self.settings.retry,
            &self.gate,
            safety,
            attempts,
            || async {
                let response = self.receive(builder()).await?;
                response
                    .read(&read)
                    .map_err(|error| self.with_proxy_remark(error))
            },
        )
        .await
    }

    /// Sends once and writes the response, of any size, as it arrives; returns the number of bytes.
    pub(crate) async fn download(
        &self,
        request: &ApiRequest<'_>,
        out: &mut (dyn Write + Send),
    ) -> Result<u64> {
        let mut response = self.send(self.builder(request)).await?;
        if !response.status().is_success() {
            let response = self.read_whole(response).await?;
            let refused = response.read(|response| response.require_success(self.server.as_str()));
            return refused
                .map(|()| 0)
                .map_err(|error| self.with_proxy_remark(error));
        }
        let announced = response.content_length();
        let mut written = 0;
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.no_response(&error))?
        {
            out.write_all(&chunk).map_err(|error| {
                Error::usage(format!(
                    "the response cannot be written after {written} bytes: {error}"
                ))
            })?;
            written += chunk.len() as u64;
        }
        match announced {
            Some(length) if length != written => Err(Error::http(
                HttpFailure::default(),
                format!("the response broke off after {written} of {length} bytes; ask again"),
            )),
            _ => Ok(written),
        }
    }

    async fn receive(&self, builder: reqwest::RequestBuilder) -> Result<RawResponse> {
        self.read_whole(self.send(builder).await?).await
    }

    async fn read_whole(&self, response: reqwest::Response) -> Result<RawResponse> {
        let status = response.status();
        let headers = response.headers().clone();
        let body = match self.read(response).await {
            Ok(body) => body,
            // The status matters more than the truncated body.
            Err(_) if !status.is_success() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(RawResponse {
            status: status.as_u16(),
            headers,
            body,
        })
    }

    async fn send(&self, builder: reqwest::RequestBuilder) -> Result<reqwest::Response> {
        let sent = builder.send().await;
        sent.map_err(|error| self.no_response(&error))
    }

    fn builder(&self, request: &ApiRequest<'_>) -> reqwest::RequestBuilder {
        let mut url = self.server.join(request.path);
        if let Some((key, value)) = request.query {
            url.query_pairs_mut().append_pair(key, value);
        }
        let mut builder = self
            .http
            .request(request.method.clone(), url)
            .header(ACCEPT, request.accept);
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token.clone());
        }
        if let Some(timeout) = request.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some((media_type, bytes)) = &request.content {
            builder = builder
                .header(CONTENT_TYPE, *media_type)
                .body(bytes.clone());
        }
        builder
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Vec<u8>> {
        let limit = self.settings.max_response_bytes;
        let too_large = || {
            Error::http(
                HttpFailure {
                    status: Some(response.status().as_u16()),
                    ..HttpFailure::default()
                },
                format!(
                    "the response of {} is larger than {limit} bytes; if that is right, raise the limit (max_response_bytes)",
                    self.server
                ),
            )
        };
        let announced = response.content_length().unwrap_or(0);
        if announced > limit as u64 {
            return Err(too_large());
        }
        let too_large = too_large();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > limit => return Err(too_large),
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body),
                Err(error) => return Err(self.no_response(&error)),
            }
        }
    }

    /// Names the proxy in an error without a code, which may be the proxy's.
    fn with_proxy_remark(&self, error: Error) -> Error {
        match &self.proxy {
            Some(proxy) if error.code_text().is_none() => {
                error.with_remark(format_args!("through the proxy {proxy}"))
            }
            _ => error,
        }
    }

    /// The server, with the proxy used for it.
    fn shown_server(&self) -> String {
        match &self.proxy {
            Some(proxy) => format!("{} (through the proxy {proxy})", self.server),
            None => self.server.to_string(),
        }
    }

    /// The error for a missing or incomplete response.
    fn no_response(&self, error: &reqwest::Error) -> Error {
        let (server, cause) = (&self.shown_server(), root_cause(error));
        let mut failure = HttpFailure {
            retryable: true,
            not_processed: error.is_connect(),
            timeout: error.is_timeout(),
            ..HttpFailure::default()
        };
        if error.is_connect() && cause.contains("certificate") {
            failure.retryable = false;
            return refused_certificate(failure, server, &cause);
        }
        let sentence = if error.is_connect() && cause.contains("InvalidContentType") {
            format!(
                "cannot connect to {server}: the program there does not use TLS; is its address http:// rather than https://?"
            )
        } else if error.is_connect() {
            format!("cannot connect to {server}: {cause}")
        } else if error.is_timeout() {
            format!(
                "no response from {server} within {} s",
                self.settings.request_timeout.as_secs_f64()
            )
        } else if error.is_body() || error.is_decode() {
            format!("the response of {server} broke off: {cause}")
        } else {
            format!(
                "no HTTP response from {server}: {cause}; does an Eigenveil server listen there?"
            )
        };
        Error::http(failure, sentence)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("server", &self.server)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// Counters of an upload, over all attempts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) attempts: Attempts,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The error for a certificate that the TLS library refused for this cause.
fn refused_certificate(failure: HttpFailure, server: &str, cause: &str) -> Error {
    let certificate = format!("the certificate of {server}");
    let sentence = if cause.contains("expired") {
        format!(
            "{certificate} has expired ({cause}); its operator has to renew it, unless the clock of this machine is wrong"
        )
    } else if cause.contains("not valid yet") {
        format!("{certificate} is not valid yet ({cause}); is the clock of this machine right?")
    } else if cause.contains("CaUsedAsEndEntity") {
        format!(
            "{certificate} is that of a certificate authority, not of a server ({cause}), so every client refuses it, whatever it trusts; the server's operator has to replace it"
        )
    } else if cause.contains("not valid for name") {
        format!(
            "{certificate} is for another host ({cause}); use the name that it is for, or ask the server's operator for a certificate for this one"
        )
    } else {
        let sentence = format!(
            "{certificate} is not trusted by this machine: {cause}; if the server has a private certificate authority, or is its own authority, get the root certificate from its operator and add it"
        );
        return Error::http(failure, sentence).with_hint(Hint::RootCertificate);
    };
    Error::http(failure, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_to_another_machine_needs_permission() {
        let settings = HttpSettings::default();
        let allowed = HttpSettings {
            insecure_http: true,
            ..HttpSettings::default()
        };
        for near in [
            "http://127.8.8.8:1",
            "http://[::ffff:127.0.0.1]",
            "http://Localhost.:8080",
            "http://0.0.0.0:8080",
            "http://0",
            "http://[::]:8080",
            "http://[::ffff:0.0.0.0]",
        ] {
            Transport::new(&near.parse().unwrap(), &settings, None).unwrap();
        }
        for far in [
            "http://study.example",
            "http://192.0.2.7:8080",
            "http://[2001:db8::1]",
            "http://a.localhost",
            "http://a.localhost.:8080",
            "http://localhost.example",
            "http://notlocalhost",
            "http://127.0.0.1.example",
        ] {
            let error = Transport::new(&far.parse().unwrap(), &settings, None).unwrap_err();
            assert_eq!(error.hint(), Some(&Hint::PlainHttp));
            for word in [far, "https://"] {
                assert!(error.detail().contains(word), "{error}");
            }
            Transport::new(&far.parse().unwrap(), &allowed, None).unwrap();
            let https = far.replace("http:", "https:").parse().unwrap();
            Transport::new(&https, &settings, None).unwrap();
        }
    }
}
