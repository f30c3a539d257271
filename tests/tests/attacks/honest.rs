//! Honest devices: at regular times, each sends a report until it is acknowledged.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use eigenveil_shared::{
    api::{REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, StudyDocument},
    codec::{self, ReportFormat},
    report::{Report, ReportId},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::TlsConnector;

use crate::wire::Wire;

/// The address of honest devices: one network behind one address.
const HONEST_ADDRESS: [u8; 4] = [127, 0, 0, 1];
/// Devices that send to each study.
const DEVICES: u64 = 8;
/// A device without a response for this long retries on a new connection.
const RETRY_AFTER: Duration = Duration::from_secs(20);

pub(crate) struct Honest {
    study: StudyDocument,
    pause: Duration,
    /// Each report comes over a new connection.
    reconnects: bool,
    tls: Option<TlsConnector>,
    acknowledged: Mutex<Vec<ReportId>>,
    count: AtomicU64,
    stop: AtomicBool,
}

impl Honest {
    /// So many reports a second in all.
    pub(crate) fn new(
        study: StudyDocument,
        per_second: u32,
        reconnects: bool,
        tls: Option<TlsConnector>,
    ) -> Arc<Self> {
        Arc::new(Self {
            study,
            pause: Duration::from_secs(DEVICES) / per_second,
            reconnects,
            tls,
            acknowledged: Mutex::default(),
            count: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Sends until stopped; the last report of each device is acknowledged too.
    pub(crate) async fn run(self: Arc<Self>, server: SocketAddr) {
        let mut devices = JoinSet::new();
        for device in 0..DEVICES {
            let this = Arc::clone(&self);
            devices.spawn(async move { this.device(server, device).await });
        }
        while let Some(ended) = devices.join_next().await {
            ended.unwrap();
        }
    }

    async fn device(&self, server: SocketAddr, device: u64) {
        let (mut wire, mut number) = (None, 0);
        let mut times = interval(self.pause);
        // What was missed is not made up for.
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.stop.load(Ordering::Relaxed) {
            times.tick().await;
            if self.reconnects {
                wire = None;
            }
            number += 1;
            let id = report_id(device, number);
            let body = report(&self.study, id);
            while !self.try_once(server, &mut wire, &body).await {
                wire = None;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.acknowledged.lock().unwrap().push(id);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether this attempt was acknowledged. Refusals of a busy server are retried, as in our client.
    async fn try_once(&self, server: SocketAddr, wire: &mut Option<Wire>, body: &[u8]) -> bool {
        let head = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
        let path = format!("/v1/studies/{}/reports", self.study.id);
        let attempt = async {
            let wire = match wire {
                Some(wire) => wire,
                none => {
                    let tls = self.tls.as_ref();
                    none.insert(Wire::connect_over(tls, server, HONEST_ADDRESS).await?)
                }
            };
            wire.send("POST", &path, &head, body).await
        };
        let Ok(Ok(response)) = tokio::time::timeout(RETRY_AFTER, attempt).await else {
            return false;
        };
        match response.status {
            200 | 201 => true,
            408 | 429 | 503 | 507 => false,
            _ => panic!("{response:?}"),
        }
    }

    /// Checks that every acknowledged report is counted exactly once: the counts agree, and each is a duplicate when
    /// sent again.
    pub(crate) async fn verify(&self, server: SocketAddr) {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let mut wire = Wire::connect_over(self.tls.as_ref(), server, HONEST_ADDRESS)
            .await
            .unwrap();
        let path = format!("/v1/studies/{}", self.study.id);
        let shown = wire.get(&path).await.unwrap();
        let shown: StudyDocument = serde_json::from_slice(&shown.body).unwrap();
        assert_eq!(shown.reports_accepted, acknowledged.len() as u64);
        let reports = format!("{path}/reports");
        let format = ReportFormat::new(self.study.params.rows().unwrap());
        let payload = vec![0; format.payload_len()];
        let head = format!("content-type: {REPORT_BATCH_MEDIA_TYPE}\r\n");
        for ids in acknowledged.chunks(codec::max_batch(format.payload_len())) {
            let pairs = ids.iter().map(|id| (*id, payload.as_slice()));
            let body = codec::encode_batch(&format, pairs).unwrap();
            let response = wire.send("POST", &reports, &head, &body).await.unwrap();
            let response: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            assert_eq!(response["duplicates"], ids.len(), "{response}");
        }
    }
}

fn report_id(device: u64, number: u64) -> ReportId {
    let mut random = [0; 16];
    random[7] = u8::try_from(device).unwrap();
    random[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    random[4..7].copy_from_slice(&number.to_be_bytes()[5..]);
    ReportId::from_parts(1_700_000_000_000 + number, random)
}

/// An encoded report; its contents do not matter here, but seeds differ.
pub(crate) fn report(study: &StudyDocument, id: ReportId) -> Vec<u8> {
    let format = ReportFormat::new(study.params.rows().unwrap());
    let mut payload = vec![0; format.payload_len()];
    if payload.len() == id.0.len() {
        payload.copy_from_slice(&id.0);
    }
    codec::encode_report(&Report {
        id,
        fingerprint: format.fingerprint(),
        payload,
    })
}
