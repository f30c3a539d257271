//! One request, one response, and a clear sentence for everything that is neither.

use std::{
    error::Error as StdError, fmt, io::Write, net::IpAddr, sync::atomic::AtomicU64, time::Duration,
};

use bytes::Bytes;
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use eigenveil_shared::api::{PROBLEM_MEDIA_TYPE, StudyList, StudySummary};

use super::{
    BearerToken, HttpSettings, ProxyAddress, RetryPolicy, RetrySafety,
    retry::{Gate, retry, retry_after},
};
use crate::error::{Error, HttpFailure, Result};

const JSON: &str = "application/json";
/// Longest text of a server that is repeated in a message, in characters.
const MAX_SHOWN: usize = 1_000;

/// The HTTP connection to one server, with its token and `Retry-After` gate.
pub(crate) struct Transport {
    http: reqwest::Client,
    base: Url,
    server: String,
    proxy: Option<ProxyAddress>,
    settings: HttpSettings,
    token: Option<HeaderValue>,
    gate: Gate,
}

/// One request, to be sent as often as needed with the same bytes.
#[derive(Clone)]
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a [&'a str],
    pub(crate) query: Option<(&'a str, &'a str)>,
    pub(crate) content: Option<(&'static str, Bytes)>,
    pub(crate) accept: &'static str,
    pub(crate) retry_safety: RetrySafety,
    /// Longest time for one attempt, where it is not that of the settings.
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

/// A whole response with a status of success.
pub(crate) struct ApiResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Transport {
    /// All studies that this client may see, oldest first, page by page.
    pub(super) async fn studies(&self) -> Result<Vec<StudySummary>> {
        let (mut studies, mut after) = (Vec::new(), None::<String>);
        loop {
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
            after = page.next;
        }
    }

    pub(crate) fn new(
        server: &str,
        settings: &HttpSettings,
        token: Option<&BearerToken>,
    ) -> Result<Self> {
        let base = parse_server(server)?;
        let near = is_this_machine(&base);
        let proxy = settings.proxy.to(&base, near)?;
        if base.scheme() == "http" && !settings.insecure_http && !(near && proxy.is_none()) {
            let whom = match &proxy {
                Some(proxy) => format!("to the proxy {proxy}, which"),
                None => "to another machine, where anybody on the network path".to_owned(),
            };
            return Err(Error::usage(format!(
                "{base} is plain HTTP {whom} can read tokens and reports; use https://, or allow it (insecure_http, --insecure-http)"
            )));
        }
        Ok(Self {
            http: settings.client(base.scheme() == "https", proxy.as_ref())?,
            proxy,
            server: base.as_str().trim_end_matches('/').to_owned(),
            base,
            settings: settings.clone(),
            token: token.map(BearerToken::header),
            gate: Gate::default(),
        })
    }

    /// The server's address, without a slash at the end.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends until there is a response in JSON of this type.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: &ApiRequest<'_>) -> Result<T> {
        self.json_with(request, &self.settings.retry, &Counters::default())
            .await
    }

    pub(crate) async fn json_with<T: DeserializeOwned>(
        &self,
        request: &ApiRequest<'_>,
        policy: &RetryPolicy,
        counters: &Counters,
    ) -> Result<T> {
        self.retried(request, policy, counters, |response| self.parse(&response))
            .await
    }

    /// Sends until there is a response, and gives its bytes.
    pub(crate) async fn bytes(&self, request: &ApiRequest<'_>) -> Result<Vec<u8>> {
        self.retried(
            request,
            &self.settings.retry,
            &Counters::default(),
            |response| Ok(response.body),
        )
        .await
    }

    async fn retried<T>(
        &self,
        request: &ApiRequest<'_>,
        policy: &RetryPolicy,
        counters: &Counters,
        read: impl Fn(ApiResponse) -> Result<T>,
    ) -> Result<T> {
        let read = &read;
        retry(
            policy,
            &self.gate,
            request.retry_safety,
            &counters.retries,
            || async move {
                counters.sent(request);
                read(self.attempt(request).await?)
            },
        )
        .await
    }

    /// Sends once and writes the response out as it comes, however large it is; how many bytes it has.
    pub(crate) async fn download(
        &self,
        request: &ApiRequest<'_>,
        out: &mut (dyn Write + Send),
    ) -> Result<u64> {
        let mut response = self.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            let headers = response.headers().clone();
            let body = self.read(response).await.unwrap_or_default();
            return Err(self.refusal(status, &headers, &body));
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

    async fn attempt(&self, request: &ApiRequest<'_>) -> Result<ApiResponse> {
        let response = self.send(request).await?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = match self.read(response).await {
            Ok(body) => body,
            // The status matters more than the truncated body.
            Err(_) if !status.is_success() => Vec::new(),
            Err(error) => return Err(error),
        };
        if status.is_success() {
            Ok(ApiResponse {
                status,
                headers,
                body,
            })
        } else {
            Err(self.refusal(status, &headers, &body))
        }
    }

    async fn send(&self, request: &ApiRequest<'_>) -> Result<Response> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(request.path);
        }
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
            .send()
            .await
            .map_err(|error| self.no_response(&error))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>> {
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

    fn parse<T: DeserializeOwned>(&self, response: &ApiResponse) -> Result<T> {
        let failure = |retryable| HttpFailure {
            status: Some(response.status.as_u16()),
            retryable,
            ..HttpFailure::default()
        };
        let media_type = media_type(&response.headers);
        if media_type != JSON {
            return Err(Error::http(
                failure(false),
                format!(
                    "{} answered {} with {} instead of {JSON}; is it an Eigenveil server?",
                    self.server,
                    response.status,
                    shown_type(&media_type)
                ),
            ));
        }
        serde_json::from_slice(&response.body).map_err(|error| {
            Error::http(
                // Cut or mangled on the way, perhaps.
                failure(true),
                format!(
                    "{} answered {} with JSON of an unexpected form: {}",
                    self.server,
                    response.status,
                    printable(&error.to_string())
                ),
            )
        })
    }

    /// The error for a response that says no.
    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
        #[derive(Deserialize)]
        struct ProblemBody {
            code: String,
            detail: String,
        }
        let busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let mut failure = HttpFailure {
            status: Some(status.as_u16()),
            retryable: busy || status == StatusCode::REQUEST_TIMEOUT || status.is_server_error(),
            not_processed: busy,
            retry_after: retry_after(headers),
            ..HttpFailure::default()
        };
        let media_type = media_type(headers);
        let said = (media_type == PROBLEM_MEDIA_TYPE)
            .then(|| serde_json::from_slice::<ProblemBody>(body).ok())
            .flatten();
        if let Some(said) = said {
            failure.code = Some(printable(&said.code));
            return Error::http(failure, printable(&said.detail));
        }
        let server = &self.shown_server();
        if let Some(location) = headers.get(LOCATION)
            && status.is_redirection()
        {
            return Error::http(
                failure,
                format!(
                    "{server} answered {status} and redirects to {}; give that address if it is the right one",
                    printable(&String::from_utf8_lossy(location.as_bytes()))
                ),
            );
        }
        Error::http(
            failure,
            format!(
                "{server} answered {status} with {} instead of a problem document; something between here and the server, or another program, gave this response",
                shown_type(&media_type)
            ),
        )
    }

    /// The server, with the proxy on the way to it.
    fn shown_server(&self) -> String {
        match &self.proxy {
            Some(proxy) => format!("{} (through the proxy {proxy})", self.server),
            None => self.server.clone(),
        }
    }

    /// The error for no (whole) response.
    fn no_response(&self, error: &reqwest::Error) -> Error {
        let (server, cause) = (&self.shown_server(), root_cause(error));
        let mut failure = HttpFailure {
            retryable: true,
            not_processed: error.is_connect(),
            timeout: error.is_timeout(),
            ..HttpFailure::default()
        };
        let sentence = if error.is_connect() && cause.contains("certificate") {
            failure.retryable = false;
            refused_certificate(server, &cause)
        } else if error.is_connect() && cause.contains("InvalidContentType") {
            format!(
                "cannot connect to {server}: what answers there does not speak TLS; is its address http:// and not https://?"
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

/// What sending took, over all attempts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) retries: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    fn sent(&self, request: &ApiRequest<'_>) {
        let bytes = request.content.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.bytes
            .fetch_add(bytes as u64, std::sync::atomic::Ordering::Relaxed);
    }
}

/// An address such as `https://study.example` or `http://localhost:8080/prefix`.
fn parse_server(server: &str) -> Result<Url> {
    let refuse = |why: &str| Err(Error::usage(format!("the server address {why}")));
    let Ok(url) = Url::parse(server) else {
        return refuse(&format!(
            "{:?} is not an address; write it like https://study.example",
            printable(server)
        ));
    };
    if !url.username().is_empty() || url.password().is_some() {
        // Not repeated here: it holds a secret.
        return refuse("holds a user name or password; use a token");
    }
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return refuse(&format!("{url} must begin with http:// or https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse(&format!("{url} must not have a ? or a #"));
    }
    Ok(url)
}

/// What the TLS library says of certificates that no server can use, and what they are.
const UNUSABLE: [(&str, &str); 3] = [
    (
        "CaUsedAsEndEntity",
        "is that of a certificate authority, not of a server",
    ),
    (
        "not valid for any names",
        "names no host, as it has no subjectAltName",
    ),
    ("UnsupportedCertVersion", "is of X.509 version 1"),
];

/// The sentence for a certificate that the TLS library refused for this cause.
fn refused_certificate(server: &str, cause: &str) -> String {
    let certificate = format!("the certificate of {server}");
    if cause.contains("expired") {
        format!(
            "{certificate} has expired ({cause}); its operator has to renew it, unless the clock of this machine is wrong"
        )
    } else if cause.contains("not valid yet") {
        format!("{certificate} is not valid yet ({cause}); is the clock of this machine right?")
    } else if let Some((_, what)) = UNUSABLE.iter().find(|(known, _)| cause.contains(known)) {
        format!(
            "{certificate} {what} ({cause}), so every client refuses it and --ca-cert does not help; the server's operator has to replace it (eigenveil serve --check-config says how)"
        )
    } else if cause.contains("not valid for name") {
        format!(
            "{certificate} is for another host ({cause}); use the name that it is for, or ask the server's operator for a certificate for this one"
        )
    } else {
        format!(
            "{certificate} is not trusted by this machine: {cause}; if the server has a certificate authority of its own, or is its own authority, get the root certificate from its operator and add it (--ca-cert)"
        )
    }
}

/// Whether an address can only be this machine's.
fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    // A dot at the end only says that the name is whole.
    let host = host.trim_end_matches('.');
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            // A connection to 0.0.0.0 or [::] goes to this machine.
            address.is_loopback() || address.is_unspecified()
        }
        // RFC 6761: names under localhost are this machine.
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// The media type without its parameters, in lower case; empty where there is none.
fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(|value| printable(value.trim()).to_ascii_lowercase())
        .unwrap_or_default()
}

fn shown_type(media_type: &str) -> &str {
    match media_type {
        "" => "no content type",
        other => other,
    }
}

/// A server's text as it may be shown: no control characters (a terminal obeys them), not endless.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_SHOWN)
        .collect()
}

/// What is at the bottom of a chain of errors.
pub(super) fn root_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    printable(&cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let settings = HttpSettings::default();
        let transport = |server: &str| Transport::new(server, &settings, None);
        for (given, kept) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://LOCALHOST:8080/", "http://localhost:8080"),
            ("https://study.example/a/b/", "https://study.example/a/b"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(transport(given).unwrap().server(), kept);
        }
        for (bad, says) in [
            ("localhost:8080", "http://"),
            ("study.example", "not an address"),
            ("ftp://study.example", "http://"),
            ("http://study.example?x=1", "must not have"),
            ("", "not an address"),
            ("http://me:s3cret@study.example", "password"),
        ] {
            let error = transport(bad).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{error}");
        }
    }

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
            "http://a.localhost",
            "http://A.Localhost.:8080",
            "http://0.0.0.0:8080",
            "http://0",
            "http://[::]:8080",
            "http://[::ffff:0.0.0.0]",
        ] {
            Transport::new(near, &settings, None).unwrap();
        }
        for far in [
            "http://study.example",
            "http://192.0.2.7:8080",
            "http://[2001:db8::1]",
            "http://localhost.example",
            "http://notlocalhost",
            "http://127.0.0.1.example",
        ] {
            let error = Transport::new(far, &settings, None)
                .unwrap_err()
                .to_string();
            for word in [far, "https://", "--insecure-http"] {
                assert!(error.contains(word), "{error}");
            }
            Transport::new(far, &allowed, None).unwrap();
            Transport::new(&far.replace("http:", "https:"), &settings, None).unwrap();
        }
    }

    #[test]
    fn a_servers_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a [2J b");
        assert_eq!(printable(&"é".repeat(5_000)).chars().count(), MAX_SHOWN);
    }
}
