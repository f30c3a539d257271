//! A device: one row, perturbed here, charged to the device's ledger and durable before the first send,
//! counted once.
//!
//! `cargo run -p eigenveil-examples --example embed_sdk -- http://127.0.0.1:8080 STUDY_ID FINGERPRINT [LEDGER]`

use eigenveil_client::{
    Ledger, Participation,
    blocking::{self, StudyClient},
    http::HttpSettings,
};
use eigenveil_shared::preprocess::Row;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, study, fingerprint, rest @ ..] = arguments.as_slice() else {
        return Err("give the server's address, the study's identifier and its fingerprint".into());
    };
    // Pinned: otherwise a server could give each device different constants and recognise its report. The parameters
    // are checked against the fingerprint, the noise against the budget.
    let study = StudyClient::new(server)?.fetch_study_pinned(study, fingerprint.parse()?)?;
    // One file for the life of the device and all its studies; it refuses what exceeds its limits.
    let mut ledger = Ledger::open(rest.first().map_or("device.ledger", String::as_str))?;
    let row = Row::new(
        (0..study.params().dimension())
            .map(|i| (i as f64).cos())
            .collect(),
    );
    // Charge and report are on the disk, together, when this returns; calling it again returns the same report.
    let outcome = ledger.participate(&study, &row)?;
    if let Participation::New {
        local_warning: Some(local_warning),
        ..
    } = &outcome
    {
        eprintln!("the row could not be used and the zero row was sent for it: {local_warning}");
    }
    let sent = blocking::send_pending(&mut ledger, &HttpSettings::default())?;
    println!(
        "{} accepted, {} duplicates, {} still pending\n\n{}",
        sent.accepted,
        sent.duplicates,
        sent.pending,
        ledger.receipt()?
    );
    Ok(())
}
