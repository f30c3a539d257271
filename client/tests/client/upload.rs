//! Uploads against a server that misbehaves in every way we could think of.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    path::Path,
};

use eigenveil_client::{
    Ledger, ReportResult, RowLedger, Study, blocking,
    http::{
        HttpSettings, RetryPolicy, SendSummary, StudyClient, UploadMode, UploadSettings, send_rows,
    },
};
use eigenveil_shared::{
    ErrorCode,
    api::{BatchResponse, RefusedReport},
    codec::ReportFormat,
    enrolment::Admission,
    report::Report,
    study::{Fingerprint, to_hex},
};

use crate::{
    common::{STUDY, assert_says, params, report, study_at},
    files::{Folder, prepared},
    server::{NEVER, Reply, Request, Server, Store, http, lock, ms, study_server},
};

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
        retry: RetryPolicy {
            max_attempts: 1_000,
            ..http().retry
        },
        ..http()
    }
}

fn batches(reports: usize, connections: usize) -> UploadSettings {
    UploadSettings {
        connections,
        mode: UploadMode::Batch {
            reports: Some(reports),
        },
        deadline: None,
    }
}

fn singles(connections: usize) -> UploadSettings {
    UploadSettings {
        mode: UploadMode::Single,
        ..batches(1, connections)
    }
}

async fn fetch(server: &Server) -> Study {
    let client = StudyClient::with_settings(&server.address, &http()).unwrap();
    client.fetch_study(STUDY).await.unwrap()
}

/// A ledger with reports of `count` rows, and what they are.
fn fill(path: &Path, study: &Study, count: u64) -> (RowLedger, Vec<Report>) {
    let ledger = prepared(path, study, count);
    let pending = ledger.pending(study, 0, usize::MAX).unwrap().into_iter();
    let reports = pending.map(|pending| pending.report).collect();
    (ledger, reports)
}

async fn send(ledger: &mut RowLedger, study: &Study, sending: UploadSettings) -> SendSummary {
    let go_on = |_: &SendSummary| ControlFlow::Continue(());
    send_rows(ledger, study, &http(), &sending, go_on)
        .await
        .unwrap()
}

/// A study fetched from this server, and a ledger with reports for it.
struct SetUp {
    study: Study,
    ledger: RowLedger,
    reports: Vec<Report>,
    _folder: Folder,
}

impl SetUp {
    async fn new(server: &Server, count: u64) -> Self {
        let study = fetch(server).await;
        let folder = Folder::new();
        let (ledger, reports) = fill(&folder.at("rows"), &study, count);
        Self {
            study,
            ledger,
            reports,
            _folder: folder,
        }
    }

    async fn send(&mut self, sending: UploadSettings) -> SendSummary {
        send(&mut self.ledger, &self.study, sending).await
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
    for (settings, count, per_request) in [(batches(10, 3), 200, 10), (singles(4), 40, 1)] {
        let (server, store) = study_server(&params(1.0), every_fault()).await;
        let mut set_up = SetUp::new(&server, count).await;
        let mut progress = Vec::new();
        let (ledger, study) = (&mut set_up.ledger, &set_up.study);
        let summary = send_rows(ledger, study, &impatient(), &settings, |now| {
            progress.push((now.accepted, now.pending));
            ControlFlow::Continue(())
        })
        .await
        .unwrap();

        {
            let store = lock(&store);
            // The store checked that the bytes of an identifier never changed.
            assert_stored(&store, &set_up.reports);
            assert!(store.repeated > 0);
        }
        assert_eq!(summary.accepted + summary.duplicates, count);
        assert!(
            summary.duplicates > 0 && summary.accepted > 0,
            "{summary:?}"
        );
        assert!(summary.retries >= 40 && summary.refused == 0, "{summary:?}");
        assert!(summary.failures.is_empty(), "{summary:?}");
        // What was given up on may be read later, or never, where it was not written yet.
        let read: Vec<u64> = server
            .uploads()
            .iter()
            .map(|upload| upload.body.len() as u64)
            .collect();
        let missing = count / per_request + summary.retries - read.len() as u64;
        let (least, longest) = (read.iter().sum::<u64>(), read.iter().max().unwrap());
        let sent = least..=least + missing * longest;
        assert!(sent.contains(&summary.bytes), "{summary:?}");
        let counts = set_up.ledger.counts(&set_up.study).unwrap();
        assert_eq!((counts.acknowledged, counts.total()), (count, count));
        assert_eq!(progress.last(), Some(&(summary.accepted, 0)));
        assert!(progress.is_sorted_by_key(|now| now.0));
    }
}

#[tokio::test]
async fn connections_are_kept_and_used_side_by_side() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let mut set_up = SetUp::new(&server, 200).await;
    let summary = set_up.send(singles(3)).await;
    assert_eq!((summary.accepted, summary.pending), (200, 0));
    let uploads = server.uploads();
    let connections: BTreeSet<_> = uploads.iter().map(|r| r.connection).collect();
    assert!((2..=4).contains(&connections.len()), "{connections:?}");
    let authorized = |r: &Request| r.headers.contains_key("authorization");
    assert!(!uploads.iter().any(authorized));
}

/// The server computes error bars from differences between commits, so a small upload must not fit in one.
#[tokio::test]
async fn a_small_upload_is_many_requests() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    for (count, requests) in [(5, 5), (300, 100)] {
        let mut set_up = SetUp::new(&server, count).await;
        let before = server.uploads().len();
        let summary = set_up.send(UploadSettings::default()).await;
        assert_eq!(summary.accepted, count);
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
    set_up.send(batches(10, 2)).await;
    let uploads = server.uploads();
    assert_eq!(uploads.len(), 5);
    let waited = |i: usize| uploads[i].at - uploads[0].at;
    // The second connection's request may have been under way; what follows waits.
    assert!(waited(2) > ms(990), "{:?}", waited(2));
}

/// A full server asks for a minute; whoever watches the upload knows why nothing happens, and may end it.
#[tokio::test]
async fn progress_says_what_an_upload_waits_for() {
    let (server, _) = study_server(&params(1.0), |_, _, _| {
        let full = Reply::problem(507, ErrorCode::StoreFull, "there is no room");
        Some(full.with_header("retry-after", "60"))
    })
    .await;
    let mut set_up = SetUp::new(&server, 40).await;
    let (ledger, study) = (&mut set_up.ledger, &set_up.study);
    let mut waiting_reason = None;
    let watch = |now: &SendSummary| {
        waiting_reason.clone_from(&now.waiting);
        match waiting_reason {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    };
    let sent = send_rows(ledger, study, &http(), &batches(10, 2), watch).await;
    assert_eq!(sent.unwrap().pending, 40);
    assert_says(waiting_reason.unwrap(), &["there is no room", "store-full"]);
}

#[tokio::test]
async fn attempts_are_bounded_and_a_later_run_sends_the_same_bytes() {
    let (server, store) = study_server(&params(1.0), |number, _, _| {
        (number < 6).then(|| Reply::problem(503, ErrorCode::ShuttingDown, "stopping"))
    })
    .await;
    let study = fetch(&server).await;
    let folder = Folder::new();
    let path = folder.at("rows");
    let (mut ledger, reports) = fill(&path, &study, 30);
    let summary = send(&mut ledger, &study, batches(30, 1)).await;
    assert_eq!((summary.pending, summary.retries), (30, 5));
    let failure = &summary.failures[0];
    assert_eq!(
        (&failure.server, failure.study.as_str()),
        (study.server(), STUDY)
    );
    assert!(failure.error.is_retryable());
    assert_eq!(failure.error.code(), Some(ErrorCode::ShuttingDown));
    assert_says(&failure.error, &["6 attempts"]);
    assert_eq!(server.uploads().len(), 6);

    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    let summary = send(&mut ledger, &study, batches(30, 1)).await;
    assert_eq!((summary.accepted, summary.pending), (30, 0));
    let uploads = server.uploads();
    assert_eq!(uploads.len(), 7);
    assert!(uploads.iter().all(|upload| upload.body == uploads[0].body));
    assert_stored(&lock(&store), &reports);
    // Nothing is left to send.
    let again = send(&mut ledger, &study, batches(30, 1)).await;
    assert_eq!((again.accepted, again.bytes), (0, 0));
    assert_eq!(server.uploads().len(), 7);
}

#[tokio::test]
async fn refusals_within_a_batch_are_told_apart() {
    let refused = |index, code| RefusedReport {
        index,
        code,
        detail: format!("number {index}"),
    };
    let receipt = BatchResponse {
        accepted: 6,
        duplicates: 1,
        refused: vec![
            refused(2, ErrorCode::MalformedReport),
            refused(5, ErrorCode::TooManyRequests),
            refused(7, ErrorCode::PayloadNotFinite),
        ],
    };
    let (server, _) = study_server(&params(1.0), move |number, _, _| {
        (number == 0).then(|| Reply::json(200, &receipt))
    })
    .await;
    let mut set_up = SetUp::new(&server, 20).await;
    let summary = set_up.send(batches(10, 1)).await;
    assert_eq!(
        (summary.accepted, summary.duplicates, summary.refused),
        (16, 1, 2)
    );
    let refused = set_up.ledger.refused(&set_up.study, 9).unwrap();
    assert!(refused.iter().map(|refused| refused.row).eq([2, 7]));
    // The busy report stays pending and is reported as a failure.
    assert_eq!((summary.pending, summary.failures.len()), (1, 1));
    assert!(summary.failures[0].error.is_retryable());
    let pending = set_up.ledger.pending(&set_up.study, 0, 9).unwrap();
    assert!(pending.iter().map(|pending| pending.row).eq([5]));
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
            let summary = set_up.send(settings).await;
            for failure in &summary.failures {
                assert_eq!(failure.error.code(), code);
                assert_says(&failure.error, &[says]);
            }
            assert!(!summary.failures.is_empty());
            let counts = set_up.ledger.counts(&set_up.study).unwrap();
            assert_eq!(counts.refused, 0);
            assert!(counts.acknowledged > 0 && counts.acknowledged == summary.accepted);
            assert_eq!(counts.pending, 40 - counts.acknowledged);
            assert_eq!(counts.pending, summary.pending);
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
                // Requests in flight get a grace period.
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
    let summary = set_up.send(settings).await;
    assert!(summary.failures[0].error.is_timeout(), "{summary:?}");
    assert!(summary.seconds >= 0.3, "{summary:?}");
    let counts = set_up.ledger.counts(&set_up.study).unwrap();
    assert_eq!((counts.acknowledged, counts.pending), (10, 10));
    assert_eq!((summary.accepted, summary.pending), (10, 10));
}

/// Only the owner of the rows may confirm that a study has moved; until then its reports go to the old address.
#[tokio::test]
async fn reports_for_another_address_are_not_sent() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let study = fetch(&server).await;
    let folder = Folder::new();
    let elsewhere = study_at("http://elsewhere", STUDY, params(1.0));
    let (mut ledger, reports) = fill(&folder.at("rows"), &elsewhere, 3);
    let go_on = |_: &SendSummary| ControlFlow::Continue(());
    let sending = UploadSettings::default();
    let sent = send_rows(&mut ledger, &study, &http(), &sending, go_on).await;
    assert!(server.uploads().is_empty(), "{sent:?}");
    let code = match sent {
        Ok(sent) => sent.failures[0].error.code(),
        Err(error) => error.code(),
    };
    assert_eq!(code, Some(ErrorCode::AlreadyParticipated));
    ledger.accept_move(&study).unwrap();
    let sent = send(&mut ledger, &study, sending).await;
    assert_eq!(sent.accepted, reports.len() as u64);
}

#[tokio::test]
async fn progress_may_end_it_and_what_arrived_is_recorded() {
    // The first answer comes within the grace period on any machine.
    let _clock = StoppedClock::new();
    let (server, store) = study_server(&params(1.0), |_, _, _| None).await;
    let mut set_up = SetUp::new(&server, 40).await;
    let (ledger, study) = (&mut set_up.ledger, &set_up.study);
    let stop = |_: &SendSummary| ControlFlow::Break(());
    let sent = send_rows(ledger, study, &http(), &singles(1), stop).await;
    let sent = sent.unwrap();
    assert_eq!((sent.accepted, sent.pending), (1, 39));
    assert!(sent.failures.is_empty(), "{sent:?}");
    assert_eq!(ledger.counts(study).unwrap().pending, 39);
    set_up.send(singles(4)).await;
    assert_stored(&lock(&store), &set_up.reports);
    assert_eq!(server.uploads().len(), 40);
}

#[tokio::test]
async fn single_calls_retry_and_check() {
    let (server, store) = study_server(&params(1.0), |number, _, _| {
        (number % 2 == 0).then_some(Reply::Drop)
    })
    .await;
    let client = StudyClient::with_settings(&server.address, &http()).unwrap();
    let study = client.fetch_study(STUDY).await.unwrap();
    let reports = [(); 2].map(|()| report(&study));
    let one = study.upload_one(&reports[0], &Admission::Open).unwrap();
    let results = client.call(&one).await.into_result().unwrap();
    assert_eq!(results, [ReportResult::Accepted]);
    let both = reports.each_ref().map(|report| (report, &Admission::Open));
    let request = study.upload_batch(&both).unwrap();
    let results = client.call(&request).await.into_result().unwrap();
    assert_eq!(results, [ReportResult::Duplicate, ReportResult::Accepted]);
    assert_stored(&lock(&store), &reports);

    let many = vec![both[0]; study.max_batch() + 1];
    for wrong in [&[][..], &many] {
        let error = study.upload_batch(wrong).unwrap_err();
        assert_says(error, &["cannot be sent"]);
    }
    let mut other = reports[0].clone();
    other.fingerprint = Fingerprint([0; 32]);
    for error in [
        study.upload_one(&other, &Admission::Open).unwrap_err(),
        study
            .upload_batch(&[(&other, &Admission::Open)])
            .unwrap_err(),
    ] {
        assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    }
    assert_eq!(server.uploads().len(), 4);
}

#[test]
fn blocking_client_does_the_same() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, store) = runtime.block_on(study_server(&params(1.0), every_fault()));
    let client = blocking::StudyClient::with_settings(&server.address, &impatient()).unwrap();
    let study = client
        .fetch_study_pinned(STUDY, params(1.0).fingerprint())
        .unwrap();
    let folder = Folder::new();
    let (mut ledger, reports) = fill(&folder.at("rows"), &study, 50);
    let mut calls = 0;
    let sending = batches(6, 2);
    let summary = blocking::send_rows(&mut ledger, &study, &impatient(), &sending, |_| {
        calls += 1;
        ControlFlow::Continue(())
    });
    let summary = summary.unwrap();
    assert_eq!(summary.accepted + summary.duplicates, 50);
    assert!(summary.retries > 0 && calls > 0);
    assert_stored(&lock(&store), &reports);
    let one = study.upload_one(&reports[0], &Admission::Open).unwrap();
    let results = client.call(&one).unwrap().into_result().unwrap();
    assert_eq!(results, [ReportResult::Duplicate]);

    // Inside a runtime it says so instead of panicking.
    let mut device = Ledger::open(folder.at("device")).unwrap();
    runtime.block_on(async {
        for error in [
            blocking::send_pending(&mut device, &http()).unwrap_err(),
            client.fetch_study(STUDY).unwrap_err(),
            client.call(&one).unwrap_err(),
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
    let summary = set_up.send(singles(1)).await;
    let one = (&set_up.reports[0], &Admission::Open);
    let messages = format!(
        "{} {summary:?} {:?} {:?} {:?} {:?}",
        summary.failures[0].error,
        set_up.study,
        set_up.ledger,
        set_up.study.upload_batch(&[one]),
        set_up.ledger.pending(&set_up.study, 0, 3)
    );
    assert!(messages.contains("payload bytes"));
    let mut searched = 0;
    for report in &set_up.reports {
        assert!(!messages.contains(&to_hex(&report.payload)[..16]));
        for bytes in report.payload.chunks_exact(4) {
            let number = f32::from_le_bytes(bytes.try_into().unwrap()).to_string();
            // Numbers of a grid may be as short as "2.5", which is elsewhere by chance.
            if number.len() >= 6 {
                assert!(!messages.contains(&number), "{number}");
                searched += 1;
            }
        }
    }
    // Of 45: the noise is drawn anew each time, and most of its numbers are long.
    assert!(searched > 0);
}
