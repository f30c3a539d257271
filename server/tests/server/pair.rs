//! Devices and the server as a pair, without sockets or time: a book over a store that fails, a network that drops,
//! repeats, delays and lies, and the router. Whatever happens: one report a device, and in the end each is counted.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use eigenveil_client::{
    Limits, ReportResult, Request, Response, Server, Study,
    book::{Book, Change, Revision, Step},
};
use eigenveil_shared::{enrolment::Admission, preprocess::Row};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde_json::json;

use crate::common::Harness;

const DEVICES: usize = 5;
const STEPS: usize = 60;
/// By the clock of the harness.
const NOW: u64 = 1_700_000_000_000;

/// What a device may do wrong; each has to be noticed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    SendsBeforeItIsStored,
    DrawsAgainOnRetry,
    TakesAny200ForAReceipt,
    IgnoresWhatAWriteExpects,
}

/// A device in up to two windows over one store.
struct Device {
    records: BTreeMap<String, Vec<u8>>,
    revision: Option<Revision>,
    windows: [Option<Book>; 2],
}

/// What becomes of a write.
#[derive(Clone, Copy)]
enum Fate {
    Stored,
    Lost,
    /// Stored, and whoever wrote it does not hear of it.
    Unheard,
}

impl Device {
    fn new() -> Self {
        Self {
            records: BTreeMap::new(),
            revision: None,
            windows: [None, None],
        }
    }

    fn book(&mut self, window: usize) -> &mut Book {
        let records = &self.records;
        self.windows[window].get_or_insert_with(|| match records.is_empty() {
            true => Book::new(Limits::default()),
            false => Book::load(records.clone()).unwrap(),
        })
    }

    /// Writes as a store must; a window whose write failed reads the store again.
    fn write(&mut self, window: usize, change: Change, fate: Fate, mistake: Mistake) {
        let write = change.write().unwrap();
        let expected =
            write.expects == self.revision || mistake == Mistake::IgnoresWhatAWriteExpects;
        if expected && !matches!(fate, Fate::Lost) {
            self.revision = Some(write.becomes);
            self.records.extend(write.put);
            self.records.retain(|key, _| !write.delete.contains(key));
        }
        if expected
            && matches!(fate, Fate::Stored)
            && let Some(book) = &mut self.windows[window]
            && book.stored(change).is_ok()
        {
            return;
        }
        self.windows[window] = None;
    }
}

/// The network and the router behind it.
struct Network<'a> {
    harness: &'a Harness,
    delayed: Vec<Request>,
}

impl Network<'_> {
    /// Delivers a request; what came back is read by it.
    async fn deliver(&self, request: &Request) -> Reply {
        let path = request.url.strip_prefix("http://localhost").unwrap();
        let media_type = &request
            .headers
            .iter()
            .find(|(name, _)| *name == "content-type")
            .unwrap()
            .1;
        let reply = self
            .harness
            .post(path, media_type, request.body.clone())
            .await;
        let headers = reply.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        Reply {
            status: reply.status,
            headers: headers.collect(),
            body: reply.body,
        }
    }

    /// What the device gets, if anything, when the network does what it likes.
    async fn send(&mut self, request: &Request, rng: &mut ChaCha20Rng) -> Option<Reply> {
        let html = |status, body: &str| Reply {
            status,
            headers: vec![("content-type".into(), "text/html".into())],
            body: body.as_bytes().to_vec(),
        };
        match rng.random_range(0..9) {
            0 => None,
            1 => {
                self.deliver(request).await;
                None
            }
            2 => {
                self.deliver(request).await;
                Some(self.deliver(request).await)
            }
            3 => {
                self.delayed.push(request.clone());
                None
            }
            4 => Some(html(StatusCode::OK, "<h1>Log in</h1>")),
            5 => Some(html(StatusCode::BAD_GATEWAY, "")),
            6 => {
                let mut reply = self.deliver(request).await;
                reply.body.truncate(reply.body.len() / 2);
                Some(reply)
            }
            7 => Some(Reply {
                headers: vec![
                    ("content-type".into(), "application/problem+json".into()),
                    ("Retry-After".into(), "Fri, 31 Dec 1999 23:59:59 GMT".into()),
                ],
                body: br#"{"code":"too-many-requests","detail":"slow down"}"#.to_vec(),
                status: StatusCode::TOO_MANY_REQUESTS,
            }),
            _ => Some(self.deliver(request).await),
        }
    }
}

struct Reply {
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn results(&self, request: &Request, mistake: Mistake) -> Vec<ReportResult> {
        if mistake == Mistake::TakesAny200ForAReceipt && self.status == StatusCode::OK {
            return vec![ReportResult::Accepted; request.reports().len()];
        }
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        let response = Response {
            status: self.status.as_u16(),
            headers: &headers,
            body: &self.body,
            now: None,
        };
        request.answer(&response).results
    }
}

/// Plays one seed; what was wrong, if anything.
async fn play(harness: &Harness, seed: u64, mistake: Mistake) -> Result<(), String> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let document = harness.study_with(json!({ "dimension": 3 })).await;
    let server: Server = "http://localhost".parse().unwrap();
    let study = Study::new(&server, &document.id, document.params.clone());
    let mut network = Network {
        harness,
        delayed: Vec::new(),
    };
    let mut devices: Vec<Device> = (0..DEVICES).map(|_| Device::new()).collect();
    for _ in 0..STEPS {
        let device = &mut devices[rng.random_range(0..DEVICES)];
        let window = rng.random_range(0..2);
        let fate = match rng.random_range(0..4) {
            0 => Fate::Lost,
            1 => Fate::Unheard,
            _ => Fate::Stored,
        };
        match rng.random_range(0..6) {
            0 => device.windows[window] = None,
            1 | 2 => {
                let row = Row::new(vec![rng.random(), 1.0, 2.0]);
                let step = device.book(window).take_part(&study, &row, NOW);
                if let Ok(Step::Join(change)) = step {
                    if mistake == Mistake::SendsBeforeItIsStored {
                        let mut unstored = device.records.clone();
                        unstored.extend(change.write().unwrap().put);
                        let book = Book::load(unstored.clone()).unwrap();
                        for entry in book.owed() {
                            let payload = unstored[&entry.payload_key()].clone();
                            network.deliver(&entry.request(payload).unwrap()).await;
                        }
                    }
                    device.write(window, change, fate, mistake);
                }
            }
            3 if !network.delayed.is_empty() => {
                let at = rng.random_range(0..network.delayed.len());
                let request = network.delayed.swap_remove(at);
                network.deliver(&request).await;
            }
            _ => {
                let owed: Vec<_> = device.book(window).owed().cloned().collect();
                for entry in owed {
                    // The window may be behind its store.
                    let Some(payload) = device.records.get(&entry.payload_key()) else {
                        device.windows[window] = None;
                        continue;
                    };
                    let mut request = entry.request(payload.clone()).unwrap();
                    if mistake == Mistake::DrawsAgainOnRetry {
                        let row = Row::new(vec![rng.random(), 1.0, 2.0]);
                        let again = study.report(&row, NOW).unwrap();
                        request = study.upload_one(again.report(), &Admission::Open).unwrap();
                    }
                    let Some(reply) = network.send(&request, &mut rng).await else {
                        continue;
                    };
                    for result in reply.results(&request, mistake) {
                        let change = device.book(window).settle(entry.report(), &result).unwrap();
                        if let Some(change) = change {
                            device.write(window, change, fate, mistake);
                        }
                    }
                }
            }
        }
    }
    // The network is well again: everybody takes part and sends what is owed.
    for request in std::mem::take(&mut network.delayed) {
        network.deliver(&request).await;
    }
    for device in &mut devices {
        device.windows = [None, None];
        let row = Row::new(vec![0.0, 1.0, 2.0]);
        if let Step::Join(change) = device.book(0).take_part(&study, &row, NOW).unwrap() {
            device.write(0, change, Fate::Stored, mistake);
        }
        let owed: Vec<_> = device.book(0).owed().cloned().collect();
        for entry in owed {
            let request = entry
                .request(device.records[&entry.payload_key()].clone())
                .unwrap();
            let reply = network.deliver(&request).await;
            for result in reply.results(&request, mistake) {
                let change = device.book(0).settle(entry.report(), &result).unwrap();
                device.write(0, change.unwrap(), Fate::Stored, mistake);
            }
        }
    }
    let kept: BTreeSet<[u8; 16]> = devices
        .iter_mut()
        .flat_map(|device| {
            device
                .book(0)
                .entries()
                .iter()
                .map(|entry| entry.report().0)
                .collect::<Vec<_>>()
        })
        .collect();
    let counted: BTreeSet<[u8; 16]> = network.harness.column(&format!("SELECT report_ids.id FROM report_ids JOIN studies USING (study_pk) WHERE studies.id = x'{}'", document.id)).into_iter().collect();
    let accepted = network.harness.accepted(&document).await;
    let owed = devices
        .iter_mut()
        .map(|device| device.book(0).owed().count())
        .sum::<usize>();
    match (owed, kept == counted && accepted == DEVICES as u64) {
        (0, true) => Ok(()),
        _ => Err(format!(
            "seed {seed}: {owed} owed, {accepted} counted of {DEVICES}; {} kept and not counted, {} counted and not kept",
            kept.difference(&counted).count(),
            counted.difference(&kept).count()
        )),
    }
}

#[tokio::test]
async fn one_report_a_device_is_counted_whatever_fails() {
    let harness = Harness::new();
    for seed in 0..300 {
        play(&harness, seed, Mistake::None).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_device_may_do_wrong_is_noticed() {
    let harness = Harness::new();
    for mistake in [
        Mistake::SendsBeforeItIsStored,
        Mistake::DrawsAgainOnRetry,
        Mistake::TakesAny200ForAReceipt,
        Mistake::IgnoresWhatAWriteExpects,
    ] {
        let mut noticed = None;
        for seed in 0..100 {
            if let Err(how) = play(&harness, seed, mistake).await {
                noticed = Some(how);
                break;
            }
        }
        println!("{mistake:?}: {}", noticed.expect("it is not noticed"));
    }
}
