//! `eigenveil receipt`: what a device's ledger says.

use std::path::PathBuf;

use clap::Args;
use eigenveil_client::Ledger;

use crate::{error::Result, output};

/// What a device has told whom: the receipt of its ledger
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil receipt device.ledger\n  eigenveil receipt device.ledger --json > receipt.json\n\nThe ledger is the file a device keeps (Ledger::open of the client SDK). The receipt names the studies, what each\nreport was charged and could tell, and what is left under the device's limits. It holds nothing of any row."
)]
pub(crate) struct ReceiptArgs {
    /// The device's ledger
    ledger: PathBuf,
}

pub(crate) fn run(args: &ReceiptArgs, json: bool) -> Result<()> {
    let receipt = Ledger::open_existing(&args.ledger)?.receipt()?;
    if json {
        output::json(&receipt)
    } else {
        output::text(receipt.to_string().trim_end())
    }
}
