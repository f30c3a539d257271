//! Uploads against a server that misbehaves in every way we could think of.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    time::Duration,
};

use eigenveil_client::{
    Outbox, blocking,
    http::{
        HttpSettings, Study, StudyClient, UploadFailure, UploadMode, UploadSettings, UploadSummary,
        Uploader,
    },
};
use eigenveil_shared::{
    ErrorCode,
    api::{BatchResponse, RefusedReport, ReportOutcome},
    codec::ReportFormat,
    report::Report,
    study::{Fingerprint, to_hex},
};

use crate::{
    common::{self, Folder, STUDY, assert_says, borrowed, params, prepare, reporter},
    server::{Reply, Request, Server, Store, http, lock, study_server},
    waiting::until,
};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Longer than any test waits.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3_600);

/// Tokio's clock, which moves only by `advance` while this lives: on a runtime of one thread it would otherwise jump to the
/// next deadline whenever all wait for the network. A task on a thread of its own keeps it from that.
struct StoppedClock {
    _held: std::sync::mpsc::Sender<()>,
}

impl StoppedClock {
    fn new() -> Self {
        let (held, released) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || released.recv());
        tokio::time::pause();
        Self { _held: held }
    }
}

/// For servers that are silent at times. A busy machine may keep a request waiting too, which is then sent again.
fn impatient() -> HttpSettings {
    HttpSettings {
        request_timeout: ms(1_500),
        ..http()
    }
}

fn never_giving_up(mut settings: UploadSettings) -> UploadSettings {
    settings.retry.max_attempts = 1_000;
    settings
}

fn batches(reports: usize, connections: usize) -> UploadSettings {
    UploadSettings {
        connections,
        mode: UploadMode::Batch {
            reports: Some(reports),
        },
        retry: http().retry,
        deadline: None,
    }
}

fn singles(connections: usize) -> UploadSettings {
    UploadSettings {
        mode: UploadMode::Single,
        ..batches(1, connections)
    }
}

async fn connect(server: &Server) -> (StudyClient, Study) {
    connect_with(server, &http()).await
}

async fn connect_with(server: &Server, settings: &HttpSettings) -> (StudyClient, Study) {
    let client = StudyClient::with_settings(&server.address, settings).unwrap();
    let study = client.fetch_study(STUDY).await.unwrap();
    (client, study)
}

/// An outbox with `count` new reports, and what they are.
fn fill(path: &Path, study: &Study, count: u64) -> (Outbox, Vec<Report>) {
    let mut outbox = Outbox::open(path, study.study_ref()).unwrap();
    let prepared = prepare(&reporter(), &Vec::from_iter(0..count));
    outbox.enqueue_batch(borrowed(&prepared)).unwrap();
    let pending = outbox.pending(usize::MAX).unwrap().into_iter();
    let reports = pending.map(|pending| pending.report).collect();
    (outbox, reports)
}

/// A study fetched from this server, and an outbox with reports for it.
struct SetUp {
    client: StudyClient,
    study: Study,
    outbox: Outbox,
    reports: Vec<Report>,
    _folder: Folder,
}

impl SetUp {
    async fn new(server: &Server, count: u64) -> Self {
        let (client, study) = connect(server).await;
        let folder = Folder::new();
        let (outbox, reports) = fill(&folder.at("outbox"), &study, count);
        Self {
            client,
            study,
            outbox,
            reports,
            _folder: folder,
        }
    }

    async fn upload(&mut self, settings: UploadSettings) -> Result<UploadSummary, UploadFailure> {
        Uploader::new(&self.client, &self.study, settings)
            .drain(&mut self.outbox, |_| {})
            .await
    }
}

fn assert_stored(store: &Store, reports: &[Report]) {
    assert_eq!(store.stored.len(), reports.len());
    for report in reports {
        assert_eq!(store.stored.get(&report.id.0), Some(&report.payload));
    }
}

/// Every kind of fault in turn, on the first two arrivals of each request.
fn every_fault() -> impl FnMut(usize, &Request, &mut Store) -> Option<Reply> + Send + 'static {
    let mut arrivals = HashMap::<Vec<u8>, usize>::new();
    let mut faults = 0;
    move |_, request, store| {
        let arrivals = arrivals.entry(request.body.clone()).or_default();
        *arrivals += 1;
        if *arrivals > 2 {
            return None;
        }
        faults += 1;
        Some(fault(faults - 1, request, store))
    }
}

fn fault(number: usize, request: &Request, store: &mut Store) -> Reply {
    let format = ReportFormat::new(&params(1.0));
    // Some are stored, but the answer is lost.
    let stored = matches!(number % 9, 2 | 5..=7);
    let answer = store.take(&format, request, stored);
    match number % 9 {
        0 => {
            Reply::problem(503, ErrorCode::StoreUnavailable, "busy").with_header("retry-after", "0")
        }
        1 | 2 => Reply::Drop,
        3 => Reply::problem(429, ErrorCode::TooManyRequests, "slow down"),
        4 => Reply::Raw(b"\x00\x01\x02 this is not HTTP at all".to_vec()),
        5 => Reply::of(200, "application/json", br#"{"accepted": 1"#),
        6 => Reply::After(NEVER, Box::new(answer)),
        7 => Reply::Raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
                .to_vec(),
        ),
        _ => Reply::of(502, "text/html", b"<h1>Bad gateway</h1>"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_report_is_counted_once_whatever_the_network_does() {
    for (settings, count) in [(batches(10, 3), 200), (singles(4), 40)] {
        let settings = never_giving_up(settings);
        let (server, store) = study_server(&params(1.0), every_fault()).await;
        let (client, study) = connect_with(&server, &impatient()).await;
        let folder = Folder::new();
        let (mut outbox, reports) = fill(&folder.at("outbox"), &study, count);

        let mut progress: Vec<UploadSummary> = Vec::new();
        let summary = Uploader::new(&client, &study, settings)
            .drain(&mut outbox, |now| progress.push(now))
            .await
            .unwrap();

        {
            let store = lock(&store);
            // The store checked that the bytes of an identifier never changed.
            assert_stored(&store, &reports);
            assert!(store.repeated > 0);
        }
        assert_eq!(summary.accepted + summary.duplicates, count);
        let both = summary.duplicates > 0 && summary.accepted > 0;
        assert!(both, "{summary:?}");
        assert!(summary.retries >= 40 && summary.refused == 0, "{summary:?}");
        // What was given up on may be read a moment later.
        until("all that was sent has come", async || {
            let uploads = server.uploads();
            let sent: usize = uploads.iter().map(|upload| upload.body.len()).sum();
            summary.bytes == sent as u64
        })
        .await;
        let counts = outbox.counts().unwrap();
        assert_eq!((counts.acknowledged, counts.total()), (count, count));
        let last = progress.last().unwrap();
        assert_eq!((last.pending, last.accepted), (0, summary.accepted));
        assert!(progress.windows(2).all(|p| p[0].accepted <= p[1].accepted));
    }
}

#[tokio::test]
async fn connections_are_kept_and_used_side_by_side() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let mut set_up = SetUp::new(&server, 200).await;
    let summary = set_up.upload(singles(3)).await.unwrap();
    assert_eq!((summary.accepted, summary.pending), (200, 0));
    let uploads = server.uploads();
    let connections: BTreeSet<_> = uploads.iter().map(|r| r.connection).collect();
    assert!((2..=4).contains(&connections.len()), "{connections:?}");
    let authorized = |r: &Request| r.headers.contains_key("authorization");
    assert!(!uploads.iter().any(authorized));
}

/// The server takes error bars from the differences between commits: not all of a small upload may be in one.
#[tokio::test]
async fn a_small_upload_is_many_requests() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    for (count, requests) in [(5, 5), (300, 100)] {
        let mut set_up = SetUp::new(&server, count).await;
        let before = server.uploads().len();
        let summary = set_up.upload(UploadSettings::default()).await.unwrap();
        assert_eq!(summary.accepted + summary.duplicates, count);
        assert_eq!(server.uploads().len() - before, requests);
    }
}

#[tokio::test]
async fn retry_after_is_honoured_by_every_connection() {
    let (server, _) = study_server(&params(1.0), |number, _, _| {
        (number == 0).then(|| {
            Reply::problem(429, ErrorCode::TooManyRequests, "wait").with_header("retry-after", "1")
        })
    })
    .await;
    let mut set_up = SetUp::new(&server, 40).await;
    set_up.upload(batches(10, 2)).await.unwrap();
    let uploads = server.uploads();
    assert_eq!(uploads.len(), 5);
    let waited = |i: usize| uploads[i].at - uploads[0].at;
    // The second connection's request may have been under way; what follows waits.
    assert!(waited(2) > ms(990), "{:?}", waited(2));
}

#[tokio::test]
async fn attempts_are_bounded_and_a_later_run_sends_the_same_bytes() {
    let (server, store) = study_server(&params(1.0), |number, _, _| {
        (number < 6).then(|| Reply::problem(503, ErrorCode::ShuttingDown, "stopping"))
    })
    .await;
    let (client, study) = connect(&server).await;
    let folder = Folder::new();
    let path = folder.at("outbox");
    let (mut outbox, reports) = fill(&path, &study, 30);
    let uploader = Uploader::new(&client, &study, batches(30, 1));
    let failure = uploader.drain(&mut outbox, |_| {}).await.unwrap_err();
    assert!(failure.error.is_retryable());
    assert_eq!(failure.error.code(), Some(ErrorCode::ShuttingDown));
    assert_says(&failure, &["6 attempts"]);
    assert_eq!((failure.summary.pending, failure.summary.retries), (30, 5));
    assert_eq!(server.uploads().len(), 6);

    drop(outbox);
    let mut outbox = Outbox::open(&path, study.study_ref()).unwrap();
    let summary = uploader.drain(&mut outbox, |_| {}).await.unwrap();
    assert_eq!((summary.accepted, summary.pending), (30, 0));
    let uploads = server.uploads();
    assert_eq!(uploads.len(), 7);
    assert!(uploads.iter().all(|upload| upload.body == uploads[0].body));
    assert_stored(&lock(&store), &reports);
    // Nothing is left to send.
    let again = uploader.drain(&mut outbox, |_| {}).await.unwrap();
    assert_eq!((again.accepted, again.bytes), (0, 0));
    assert_eq!(server.uploads().len(), 7);
}

#[tokio::test]
async fn a_lost_local_acknowledgement_makes_a_duplicate_and_no_more() {
    let (server, store) = study_server(&params(1.0), |_, _, _| None).await;
    let (client, study) = connect(&server).await;
    let folder = Folder::new();
    let path = folder.at("outbox");
    let (outbox, reports) = fill(&path, &study, 12);
    drop(outbox);
    let before = std::fs::read(&path).unwrap();
    for (accepted, duplicates) in [(12, 0), (0, 12)] {
        std::fs::write(&path, &before).unwrap();
        let mut outbox = Outbox::open(&path, study.study_ref()).unwrap();
        let summary = Uploader::new(&client, &study, UploadSettings::default())
            .drain(&mut outbox, |_| {})
            .await
            .unwrap();
        assert_eq!(summary.accepted, accepted);
        assert_eq!(summary.duplicates, duplicates);
    }
    assert_stored(&lock(&store), &reports);
}

#[tokio::test]
async fn a_refused_report_is_recorded_and_never_sent_again() {
    let (server, store) = study_server(&params(1.0), |number, _, _| {
        (number == 3)
            .then(|| Reply::problem(422, ErrorCode::PayloadNotFinite, "entry 3 is not a number"))
    })
    .await;
    let mut set_up = SetUp::new(&server, 8).await;
    let summary = set_up.upload(singles(1)).await.unwrap();
    assert_eq!((summary.accepted, summary.refused), (7, 1));
    assert_eq!((summary.pending, summary.retries), (0, 0));
    assert_eq!(server.uploads().len(), 8);
    let refused = set_up.outbox.refused(10).unwrap();
    assert_eq!(refused[0].participant, 3);
    assert_eq!(refused[0].code, "payload-not-finite");
    assert_eq!(refused[0].detail, "entry 3 is not a number");
    assert_eq!(lock(&store).stored.len(), 7);
    set_up.upload(singles(1)).await.unwrap();
    assert_eq!(server.uploads().len(), 8);
}

fn receipt(accepted: u64, duplicates: u64, refused: Vec<RefusedReport>) -> BatchResponse {
    BatchResponse {
        accepted,
        duplicates,
        refused,
    }
}

#[tokio::test]
async fn refusals_within_a_batch_are_told_apart() {
    let refused = |index, code| RefusedReport {
        index,
        code,
        detail: format!("number {index}"),
    };
    let refused = vec![
        refused(2, ErrorCode::MalformedReport),
        refused(5, ErrorCode::TooManyRequests),
        refused(7, ErrorCode::PayloadNotFinite),
    ];
    let receipt = receipt(6, 1, refused);
    let (server, _) = study_server(&params(1.0), move |number, _, _| {
        (number == 0).then(|| Reply::json(200, &receipt))
    })
    .await;
    let mut set_up = SetUp::new(&server, 10).await;
    let summary = set_up.upload(batches(10, 1)).await.unwrap();
    assert_eq!((summary.accepted, summary.duplicates), (6, 1));
    assert_eq!(summary.refused, 2);
    let refused = set_up.outbox.refused(9).unwrap();
    assert!(refused.iter().map(|r| r.participant).eq([2, 7]));
    // What was busy is for the next run.
    assert_eq!(summary.pending, 1);
    assert_eq!(set_up.outbox.pending(9).unwrap()[0].participant, 5);
}

#[tokio::test]
async fn a_receipt_that_does_not_add_up_acknowledges_nothing() {
    let receipt = receipt(9, 0, Vec::new());
    let answer = move |_: usize, _: &Request, _: &mut Store| Some(Reply::json(200, &receipt));
    let (server, _) = study_server(&params(1.0), answer).await;
    let mut set_up = SetUp::new(&server, 10).await;
    let failure = set_up.upload(batches(10, 1)).await.unwrap_err();
    assert_says(&failure, &["does not add up"]);
    assert_eq!(failure.summary.pending, 10);
}

#[tokio::test]
async fn a_refusal_that_concerns_the_study_stops_the_upload() {
    type Stop = fn() -> Reply;
    let cases: [(Stop, Option<ErrorCode>, &str); 5] = [
        (
            || Reply::problem(409, ErrorCode::StudyNotOpen, "the study is closed"),
            Some(ErrorCode::StudyNotOpen),
            "the study is closed",
        ),
        (
            || Reply::problem(422, ErrorCode::WrongFingerprint, "other parameters"),
            Some(ErrorCode::WrongFingerprint),
            "other parameters",
        ),
        (|| Reply::of(413, "text/html", b"<html>"), None, "413"),
        (
            || Reply::of(200, "text/html", b"<html>Log in"),
            None,
            "is it an Eigenveil server?",
        ),
        (
            || {
                Reply::of(301, "text/plain", b"")
                    .with_header("location", "https://elsewhere.example/")
            },
            None,
            "https://elsewhere.example/",
        ),
    ];
    for (stop, code, says) in cases {
        for settings in [batches(5, 2), singles(2)] {
            // What was stored before is acknowledged all the same.
            let (server, _) =
                study_server(&params(1.0), move |number, _, _| (number > 0).then(stop)).await;
            let mut set_up = SetUp::new(&server, 40).await;
            let failure = set_up.upload(settings).await.unwrap_err();
            assert_eq!(failure.error.code(), code);
            assert_says(&failure, &[says]);
            let counts = set_up.outbox.counts().unwrap();
            assert_eq!(counts.refused, 0);
            assert!(counts.acknowledged > 0 && counts.acknowledged == failure.summary.accepted);
            assert_eq!(counts.pending, 40 - counts.acknowledged);
            assert_eq!(counts.pending, failure.summary.pending);
            assert!(server.uploads().len() <= 4, "{}", server.uploads().len());
        }
    }
}

/// The clock stands still, and moves when the server has the second batch: the first is there in time on any machine.
#[tokio::test]
async fn an_upload_keeps_its_deadline() {
    let _clock = StoppedClock::new();
    let (server, _) = study_server(&params(1.0), |number, _, _| {
        (number > 0).then(|| {
            // Past the deadline by more than the millisecond to which timers are rounded.
            tokio::spawn(async {
                tokio::time::advance(ms(400)).await;
                // What is under way has a while to end.
                tokio::time::resume();
            });
            Reply::After(NEVER, Box::new(Reply::Drop))
        })
    })
    .await;
    let mut set_up = SetUp::new(&server, 20).await;
    let settings = UploadSettings {
        deadline: Some(ms(300)),
        ..batches(10, 1)
    };
    let failure = set_up.upload(settings).await.unwrap_err();
    assert!(failure.error.is_timeout(), "{failure}");
    assert!(failure.summary.seconds >= 0.3, "{failure:?}");
    assert_eq!(set_up.outbox.counts().unwrap().acknowledged, 10);
    assert_eq!(failure.summary.pending, 10);
}

#[tokio::test]
async fn an_outbox_of_another_server_is_not_sent() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let (client, study) = connect(&server).await;
    let folder = Folder::new();
    let path = folder.at("outbox");
    let mut outbox = Outbox::open(path, &common::study_ref("http://elsewhere")).unwrap();
    let failure = Uploader::new(&client, &study, UploadSettings::default())
        .drain(&mut outbox, |_| {})
        .await
        .unwrap_err();
    assert!(failure.error.is_study_mismatch());
    assert!(server.uploads().is_empty());
}

#[tokio::test]
async fn single_calls_retry_and_check() {
    let (server, store) = study_server(&params(1.0), |number, _, _| {
        (number % 2 == 0).then_some(Reply::Drop)
    })
    .await;
    let (client, study) = connect(&server).await;
    let prepared = prepare(&reporter(), &[1, 2]).into_iter();
    let reports: Vec<Report> = prepared.map(|(_, own)| own.into_report()).collect();
    let receipt = client.upload_one(&study, &reports[0]).await.unwrap();
    assert_eq!(receipt.outcome, ReportOutcome::Accepted);
    let receipt = client.upload_batch(&study, &reports).await.unwrap();
    assert_eq!((receipt.accepted, receipt.duplicates), (1, 1));
    assert_stored(&lock(&store), &reports);

    let many = vec![reports[0].clone(); study.document().max_batch_reports + 1];
    for wrong in [&[][..], &many] {
        let error = client.upload_batch(&study, wrong).await.unwrap_err();
        assert_says(error, &["cannot be sent"]);
    }
    let mut other = reports[0].clone();
    other.fingerprint = Fingerprint([0; 32]);
    let error = client.upload_one(&study, &other).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    assert_eq!(server.uploads().len(), 4);
}

#[test]
fn blocking_client_does_the_same() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, store) = runtime.block_on(study_server(&params(1.0), every_fault()));
    let client = blocking::StudyClient::with_settings(&server.address, &impatient()).unwrap();
    let pinned = params(1.0).fingerprint();
    let study = client.fetch_study_pinned(STUDY, pinned).unwrap();
    let folder = Folder::new();
    let (mut outbox, reports) = fill(&folder.at("outbox"), &study, 50);
    let mut calls = 0;
    let summary = client
        .upload(&study, &mut outbox, never_giving_up(batches(6, 2)), |_| {
            calls += 1;
        })
        .unwrap();
    assert_eq!(summary.accepted + summary.duplicates, 50);
    assert!(summary.retries > 0 && calls > 0);
    assert_stored(&lock(&store), &reports);
    let receipt = client.upload_one(&study, &reports[0]).unwrap();
    assert_eq!(receipt.outcome, ReportOutcome::Duplicate);
    let receipt = client.upload_batch(&study, &reports[..3]).unwrap();
    assert_eq!(receipt.duplicates, 3);

    // Inside a runtime it says so instead of panicking.
    runtime.block_on(async {
        for error in [
            client.fetch_study(STUDY).unwrap_err(),
            blocking::StudyClient::new(&server.address).unwrap_err(),
        ] {
            assert_says(error, &["async runtime"]);
        }
    });
}

#[tokio::test]
async fn no_message_of_an_upload_shows_a_payload_number() {
    let (server, _) = study_server(&params(1.0), |_, _, _| {
        Some(Reply::problem(503, ErrorCode::StoreUnavailable, "busy"))
    })
    .await;
    let mut set_up = SetUp::new(&server, 3).await;
    let failure = set_up.upload(singles(1)).await.unwrap_err();
    let shown = format!(
        "{failure} {failure:?} {:?} {:?} {:?}",
        set_up.client,
        set_up.study,
        set_up.outbox.pending(3)
    );
    assert!(shown.contains("payload bytes"));
    let mut searched = 0;
    for report in &set_up.reports {
        assert!(!shown.contains(&to_hex(&report.payload)[..16]));
        for bytes in report.payload.chunks_exact(4) {
            let number = f32::from_le_bytes(bytes.try_into().unwrap()).to_string();
            // Numbers of a grid may be as short as "2.5", which is elsewhere by chance.
            if number.len() >= 6 {
                assert!(!shown.contains(&number), "{number}");
                searched += 1;
            }
        }
    }
    // Of 45: the noise is drawn anew each time, and most of its numbers are long.
    assert!(searched > 0);
}
