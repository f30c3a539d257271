//! A server for one test: HTTP/1.1 written out by hand, so that it can misbehave at will.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use eigenveil_client::http::{HttpSettings, RetryPolicy};
use eigenveil_shared::{
    ErrorCode,
    api::{
        BatchResponse, Problem, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, ReportOutcome,
        ReportResponse, StudyDocument, StudyState,
    },
    codec::{self, ReportFormat},
    estimate::ComponentCount,
    privacy::PrivacyStatement,
    report::ValidatedReport,
    study::{StudyParams, to_hex},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket},
};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Longer than any test waits.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// Retries within milliseconds.
pub(crate) fn http() -> HttpSettings {
    HttpSettings {
        retry: RetryPolicy {
            max_attempts: 6,
            first_delay: ms(5),
            max_delay: ms(20),
            max_elapsed: Duration::from_secs(600),
        },
        ..HttpSettings::default()
    }
}

/// An address at which nobody listens, and nobody else can while the socket lives.
pub(crate) fn closed_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    (socket, address)
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
    /// Which connection it came on.
    pub(crate) connection: usize,
}

/// The server's reaction.
pub(crate) enum Reply {
    Answer(u16, &'static str, Vec<u8>, Vec<(&'static str, String)>),
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// Nothing: the connection ends.
    Drop,
    /// Wait, then this.
    After(Duration, Box<Reply>),
}

impl Reply {
    pub(crate) fn of(status: u16, kind: &'static str, body: &[u8]) -> Self {
        Self::Answer(status, kind, body.to_vec(), Vec::new())
    }

    pub(crate) fn json(status: u16, content: &impl serde::Serialize) -> Self {
        let bytes = serde_json::to_vec(content).unwrap();
        Self::of(status, "application/json", &bytes)
    }

    pub(crate) fn problem(status: u16, code: ErrorCode, detail: &str) -> Self {
        let error = eigenveil_shared::Error::new(code, detail);
        let problem = Problem {
            status,
            ..Problem::new(&error)
        };
        let bytes = serde_json::to_vec(&problem).unwrap();
        Self::of(status, "application/problem+json", &bytes)
    }

    pub(crate) fn with_header(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Answer(status, kind, body, mut headers) => {
                headers.push((name, value.to_owned()));
                Self::Answer(status, kind, body, headers)
            }
            other => other,
        }
    }
}

pub(crate) type Handler = Box<dyn FnMut(&Request) -> Reply + Send>;

/// A listening server; it ends with the runtime.
pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) async fn start(handler: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Mutex<Handler>> = Arc::new(Mutex::new(Box::new(handler)));
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(
                    stream,
                    connection,
                    Arc::clone(&handler),
                    Arc::clone(&log),
                ));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// The requests that carried reports.
    pub(crate) fn uploads(&self) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.line.contains("/reports "));
        requests
    }
}

pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    handler: Arc<Mutex<Handler>>,
    log: Arc<Mutex<Vec<Request>>>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await {
        lock(&log).push(request.clone());
        let mut reply = (lock(&handler))(&request);
        while let Reply::After(pause, then) = reply {
            tokio::time::sleep(pause).await;
            reply = *then;
        }
        match reply {
            Reply::Answer(status, kind, body, headers) => {
                let length = body.len();
                let mut head = format!(
                    "HTTP/1.1 {status} Text\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n"
                );
                for (name, value) in headers {
                    head += &format!("{name}: {value}\r\n");
                }
                let bytes = [(head + "\r\n").as_bytes(), &body].concat();
                if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.flush().await;
                return;
            }
            Reply::Drop | Reply::After(..) => return,
        }
    }
}

async fn read_request(
    stream: &mut BufReader<impl AsyncRead + AsyncWrite + Unpin>,
    connection: usize,
) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|n| *n > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request {
        line: line.trim_end().to_owned(),
        headers,
        body,
        at: Instant::now(),
        connection,
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// The document of an open study.
pub(crate) fn document(params: &StudyParams) -> StudyDocument {
    let format = ReportFormat::new(params);
    StudyDocument {
        id: crate::common::STUDY.to_owned(),
        name: "A study".to_owned(),
        state: StudyState::Open,
        fingerprint: format.fingerprint().to_string(),
        canonical_params: to_hex(&params.canonical_bytes()),
        params: params.clone().into(),
        reports_accepted: 0,
        default_k: ComponentCount::Auto,
        report_bytes: codec::report_len(format.payload_len()),
        max_batch_reports: codec::max_batch(format.payload_len()),
        created_at_ms: 0,
        privacy: PrivacyStatement::new(params),
        enrolment: eigenveil_shared::enrolment::Enrolment::Open,
        about: Default::default(),
    }
}

/// A server's orders for reports, and the reports it saw.
#[derive(Default)]
pub(crate) struct Store {
    /// Identifier → payload of what is stored.
    pub(crate) stored: BTreeMap<[u8; 16], Vec<u8>>,
    /// Identifier → payload of everything that ever arrived, stored or not.
    pub(crate) arrived: BTreeMap<[u8; 16], Vec<u8>>,
    /// How many of the arrivals had an identifier that had arrived before.
    pub(crate) repeated: usize,
}

impl Store {
    /// Notes a report, and stores it if asked to; whether it is stored now and was not before.
    fn see(&mut self, report: &ValidatedReport<'_>, store: bool) -> bool {
        let (id, payload) = (report.id(), report.payload().as_bytes().to_vec());
        if let Some(before) = self.arrived.insert(id.0, payload.clone()) {
            assert_eq!(before, payload, "report {id} changed between attempts");
            self.repeated += 1;
        }
        store && self.stored.insert(id.0, payload).is_none()
    }

    /// Reads the reports of a request; stores them if asked to; gives the honest answer.
    pub(crate) fn take(&mut self, format: &ReportFormat, request: &Request, store: bool) -> Reply {
        let kind = request.headers["content-type"].as_str();
        if kind == REPORT_MEDIA_TYPE {
            let report = codec::decode_report(&request.body, format).unwrap();
            let (status, outcome) = match self.see(&report, store) {
                true => (201, ReportOutcome::Accepted),
                false => (200, ReportOutcome::Duplicate),
            };
            return Reply::json(status, &ReportResponse { outcome });
        }
        assert_eq!(kind, REPORT_BATCH_MEDIA_TYPE);
        let mut receipt = BatchResponse {
            accepted: 0,
            duplicates: 0,
            refused: Vec::new(),
        };
        for report in codec::decode_batch(&request.body, format).unwrap() {
            match self.see(&report.unwrap(), store) {
                true => receipt.accepted += 1,
                false => receipt.duplicates += 1,
            }
        }
        Reply::json(200, &receipt)
    }
}

/// A server with one study that stores what arrives, except where `fault` answers for it. `fault` is
/// told the number of the upload, from 0.
pub(crate) async fn study_server(
    params: &StudyParams,
    mut fault: impl FnMut(usize, &Request, &mut Store) -> Option<Reply> + Send + 'static,
) -> (Server, Arc<Mutex<Store>>) {
    let document = document(params);
    let format = ReportFormat::new(params);
    let store = Arc::new(Mutex::new(Store::default()));
    let inside = Arc::clone(&store);
    let mut uploads = 0;
    let server = Server::start(move |request| {
        if request.line == format!("GET /v1/studies/{} HTTP/1.1", document.id) {
            return Reply::json(200, &document);
        }
        if request.line != format!("POST /v1/studies/{}/reports HTTP/1.1", document.id) {
            return Reply::problem(404, ErrorCode::NotFound, "no such route");
        }
        let mut store = lock(&inside);
        uploads += 1;
        fault(uploads - 1, request, &mut store)
            .unwrap_or_else(|| store.take(&format, request, true))
    })
    .await;
    (server, store)
}
