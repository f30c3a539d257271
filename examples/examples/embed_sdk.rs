//! A device: one row, perturbed here, durable before the first send, counted once.
//!
//! `cargo run -p eigenveil-examples --example embed_sdk -- http://127.0.0.1:8080 STUDY_ID [OUTBOX]`

use eigenveil_client::{Outbox, blocking::StudyClient, http::UploadSettings};
use eigenveil_shared::preprocess::Row;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, study, rest @ ..] = arguments.as_slice() else {
        return Err("give the server's address and the study's identifier".into());
    };
    let client = StudyClient::new(server)?;
    // The parameters are checked against their fingerprint, the noise against the budget.
    let study = client.fetch_study(study)?;
    let mut outbox = Outbox::open(
        rest.first().map_or("device.outbox", String::as_str),
        study.binding(),
    )?;
    if !outbox.is_known(0)? {
        let row = Row::new(
            (0..study.params().dimension())
                .map(|i| (i as f64).cos())
                .collect(),
        );
        // One report per participant and study: once it is in the outbox it never changes.
        outbox.enqueue(0, &study.participant().report(&row)?)?;
    }
    let summary = client.upload(&study, &mut outbox, UploadSettings::default(), |_| {})?;
    println!(
        "{} accepted, {} duplicates, {} pending",
        summary.accepted, summary.duplicates, summary.pending
    );
    Ok(())
}
