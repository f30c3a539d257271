//! Sending the pending reports of a ledger to servers that misbehave. (Whatever the network does: `upload.rs`, by the same loop.)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use eigenveil_client::{EntryState, Ledger, http::send_pending};
use eigenveil_shared::{
    ErrorCode,
    codec::{self, ReportFormat},
    report::Report,
};

use crate::{
    common::{assert_says, params, row, study_at},
    files::{Folder, entry_of},
    server::{Reply, Server, Store, closed_port, http, lock},
};

/// Studies of this name have this ε; every server has them all.
const STUDIES: [(&str, f64); 4] = [("aa", 1.0), ("bb", 0.5), ("cc", 2.0), ("dd", 0.25)];

type Stores = Arc<Mutex<BTreeMap<&'static str, Store>>>;

/// A server of the studies that stores what arrives, except where `fault` answers for it. `fault` is
/// told the study and the number of the upload to it, from 0.
async fn server(
    mut fault: impl FnMut(&str, usize) -> Option<Reply> + Send + 'static,
) -> (Server, Stores) {
    let stores = Stores::default();
    let inside = Arc::clone(&stores);
    let mut uploads = BTreeMap::<&str, usize>::new();
    let server = Server::start(move |request| {
        let (name, epsilon) = STUDIES
            .into_iter()
            .find(|(name, _)| request.line == format!("POST /v1/studies/{name}/reports HTTP/1.1"))
            .unwrap();
        let number = uploads.entry(name).or_default();
        *number += 1;
        let mut stores = lock(&inside);
        let store = stores.entry(name).or_default();
        let format = ReportFormat::new(&params(epsilon));
        fault(name, *number - 1).unwrap_or_else(|| store.take(&format, request, true))
    })
    .await;
    (server, stores)
}

/// Takes part in these studies of a server.
fn participate(ledger: &mut Ledger, server: &str, names: &[&str]) -> BTreeMap<String, Report> {
    let mut reports = BTreeMap::new();
    for (name, epsilon) in STUDIES.iter().filter(|(name, _)| names.contains(name)) {
        let study = study_at(server, name, params(*epsilon));
        let taken = ledger.participate(&study, &row(1.0)).unwrap();
        let body = ledger.request(taken.entry()).unwrap().body;
        let format = ReportFormat::new(study.params().rows().unwrap());
        let report = codec::decode_report(&body, &format).unwrap();
        let report = Report {
            id: report.id(),
            fingerprint: study.fingerprint(),
            payload: report.payload().as_bytes().to_vec(),
        };
        assert_eq!(report.id, taken.entry().report());
        reports.insert((*name).to_owned(), report);
    }
    reports
}

/// Exactly these reports are stored, and whatever arrived had their bytes.
fn assert_stored(stores: &Stores, reports: &BTreeMap<String, Report>) {
    let stores = lock(stores);
    assert_eq!(stores.len(), reports.len());
    for (name, report) in reports {
        let store = &stores[name.as_str()];
        let expected = BTreeMap::from([(report.id.0, report.payload.clone())]);
        assert_eq!(
            (&store.stored, &store.arrived),
            (&expected, &expected),
            "{name}"
        );
    }
}

fn state(ledger: &Ledger, study: &str) -> EntryState {
    entry_of(ledger, study).state().clone()
}

#[tokio::test]
async fn unreachable_server_does_not_block_others() {
    let (here, stores) = server(|_, _| None).await;
    let (_socket, gone) = closed_port();
    let folder = Folder::new();
    let path = folder.at("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let lost = participate(&mut ledger, &gone, &["aa"]);
    // Over plain HTTP nothing is sent there.
    let far = "http://study.example";
    let unsent = participate(&mut ledger, far, &["bb"]);
    let reports = participate(&mut ledger, &here.address, &["cc", "dd"]);
    let sent = send_pending(&mut ledger, &http()).await.unwrap();
    assert_eq!((sent.accepted, sent.pending), (2, 2));
    assert_stored(&stores, &reports);
    let failures = sent.failures.iter();
    let failures: BTreeMap<_, _> = failures
        .map(|failure| (failure.study.as_str(), failure))
        .collect();
    assert_eq!(failures.len(), 2);
    for (study, server, retryable, says) in [
        ("aa", gone.as_str(), true, "6 attempts"),
        ("bb", far, false, "plain HTTP"),
    ] {
        let failure = failures[study];
        assert_eq!(failure.server.as_str(), server);
        assert_eq!(failure.error.is_retryable(), retryable);
        assert_says(&failure.error, &[says]);
    }
    // What is pending stays, with its bytes.
    drop(ledger);
    let ledger = Ledger::open(&path).unwrap();
    let pending = ledger.pending().unwrap();
    let bodies = pending
        .iter()
        .map(|pending| ledger.request(pending).unwrap().body);
    let expected = [&lost["aa"], &unsent["bb"]].map(codec::encode_report);
    assert_eq!(bodies.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn refusals_of_the_report_are_kept_and_refusals_of_the_study_leave_it_pending() {
    let (server, _) = server(|study, number| match (study, number) {
        ("aa", 0) => Some(Reply::problem(
            422,
            ErrorCode::PayloadNotFinite,
            "entry 3 is no number",
        )),
        ("bb", 0) => Some(Reply::problem(409, ErrorCode::StudyNotOpen, "not yet open")),
        ("cc", 0) => Some(Reply::of(200, "text/html", b"<html>Log in")),
        _ => None,
    })
    .await;
    let folder = Folder::new();
    let mut ledger = Ledger::open(folder.at("ledger")).unwrap();
    let reports = participate(&mut ledger, &server.address, &["aa", "bb", "cc", "dd"]);
    let spent = ledger.spent().unwrap();
    let sent = send_pending(&mut ledger, &http()).await.unwrap();
    assert_eq!((sent.accepted, sent.refused), (1, 1));
    assert_eq!((sent.pending, sent.retries), (2, 0));
    assert_eq!(sent.failures.len(), 2);
    let mut failures = sent.failures.iter();
    assert!(failures.all(|failure| !failure.error.is_retryable()));
    let refused = EntryState::Refused {
        code: "payload-not-finite".to_owned(),
        detail: "entry 3 is no number".to_owned(),
    };
    assert_eq!(state(&ledger, "aa"), refused);
    assert_eq!(state(&ledger, "bb"), EntryState::Pending);
    assert_eq!(state(&ledger, "cc"), EntryState::Pending);
    assert_eq!(ledger.spent().unwrap(), spent);
    // The study opens, the proxy goes away; the refused one is not sent again unless it is asked for.
    let sent = send_pending(&mut ledger, &http()).await.unwrap();
    assert_eq!((sent.accepted, sent.pending), (2, 0));
    assert_eq!(ledger.requeue_refused().unwrap(), 1);
    let sent = send_pending(&mut ledger, &http()).await.unwrap();
    assert_eq!((sent.accepted, sent.pending), (1, 0));
    assert_eq!(server.uploads().len(), 7);
    let mut uploads = server.uploads();
    uploads.retain(|upload| upload.line.contains("/aa/"));
    let bodies: Vec<_> = uploads.into_iter().map(|upload| upload.body).collect();
    let sent = codec::encode_report(&reports["aa"]);
    assert_eq!(bodies, [sent.clone(), sent]);
    assert_eq!(ledger.spent().unwrap(), spent);
}
