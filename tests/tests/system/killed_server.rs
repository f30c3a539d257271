//! SIGKILL of the server, several times during one upload.

use std::sync::mpsc::channel;

use eigenveil_client::{
    Outbox, Participant,
    http::{Sent, Study, StudyClient, UploadMode, UploadSettings, Uploader},
};
use eigenveil_estimation::accumulate::ReportSum;
use eigenveil_shared::{codec::StudyShape, mechanism::MechanismKind, preprocess::Row};

use crate::{
    patience::PATIENCE,
    program::{ServerProcess, assert_stored, patient},
};

const P: usize = 16;
const REPORTS: u64 = 20_000;
const KILLS: u64 = 6;

/// The sum of what the outbox will send, in f64: of numbers report by report, of seeds expanded.
fn expected_sum(outbox: &Outbox, study: &Study) -> Vec<f64> {
    let mut sum = ReportSum::new(study.params().mechanism(), P).unwrap();
    let shape = StudyShape::new(study.params());
    let pending = outbox.pending(REPORTS as usize).unwrap();
    assert_eq!(pending.len() as u64, REPORTS);
    for entry in &pending {
        let payload = shape.payload(&entry.report.payload).unwrap();
        sum.add(&payload).unwrap();
    }
    sum.finish().unwrap().sum().as_slice().to_vec()
}

fn row(number: u64) -> Row {
    Row::new(
        (0..P)
            .map(|j| ((number * 31 + j as u64 * 7) % 97) as f64 - 48.0)
            .collect(),
    )
}

async fn survives(mechanism: MechanismKind, mode: UploadMode) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = ServerProcess::start(&data);
    let id = server.create_study(&[
        "--p",
        "16",
        "--epsilon",
        "4",
        "--mechanism",
        mechanism.as_str(),
    ]);

    let client = StudyClient::with_settings(&server.url, &patient()).unwrap();
    let checked = client.fetch_study(&id).await.unwrap();
    let mut outbox = Outbox::open(folder.path().join("outbox.db"), checked.binding()).unwrap();
    let participant = Participant::new(checked.params().clone());
    let prepared: Vec<_> = (0..REPORTS)
        .map(|number| (number, participant.report(&row(number)).unwrap()))
        .collect();
    outbox
        .enqueue_batch(prepared.iter().map(|(number, report)| (*number, report)))
        .unwrap();
    let expected = expected_sum(&outbox, &checked);

    let uploader = Uploader::new(
        &client,
        &checked,
        UploadSettings {
            connections: 8,
            mode,
            ..UploadSettings::default()
        },
    );
    // At every eighth of the reports, and not in the last quarter, the upload waits for a kill with seven requests under way.
    let (reached, reaches) = channel();
    let (killed, kills) = channel();
    let upload = tokio::spawn(async move {
        let mut next = 1;
        let note = move |now: Sent| {
            if next <= KILLS && now.accepted + now.duplicates >= next * REPORTS / (KILLS + 2) {
                next += 1;
                reached.send(()).unwrap();
                tokio::task::block_in_place(|| kills.recv().unwrap());
            }
        };
        let summary = uploader.drain(&mut outbox, note).await.unwrap();
        (summary, outbox)
    });
    let listen = server.listen().to_owned();
    for _ in 0..KILLS {
        tokio::task::block_in_place(|| {
            reaches.recv_timeout(PATIENCE).unwrap();
            server.kill();
            killed.send(()).unwrap();
            server = ServerProcess::start_on(&data, &listen);
        });
    }
    let (summary, outbox) = upload.await.unwrap();
    assert_eq!(
        summary.accepted + summary.duplicates,
        REPORTS,
        "{summary:?}"
    );
    assert_eq!((summary.refused, summary.pending), (0, 0));
    assert_eq!(outbox.counts().unwrap().acknowledged, REPORTS);

    // What the server says, and what is on its disk.
    let document = client.fetch_study(&id).await.unwrap();
    assert_eq!(document.document().reports_accepted, REPORTS);
    assert!(server.stop(), "SIGTERM must end the server well");
    assert_stored(&data, &id, REPORTS, &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_report_is_lost_or_doubled_one_by_one() {
    survives(MechanismKind::SymmetricGaussian, UploadMode::Single).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_report_is_lost_or_doubled_in_batches() {
    survives(
        MechanismKind::SymmetricGaussian,
        UploadMode::Batch { reports: Some(20) },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_seed_is_lost_or_doubled() {
    survives(
        MechanismKind::DoubleCap,
        UploadMode::Batch { reports: Some(20) },
    )
    .await;
}
