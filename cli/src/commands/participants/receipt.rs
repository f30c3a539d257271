//! `eigenveil receipt`: shows what a device's ledger has recorded.

use std::{fmt::Display, path::PathBuf};

use clap::Args;
use eigenveil_client::{Ledger, RowLedger};
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    output,
};

/// Show the receipt of a ledger: which studies a device, or each row of a file, reported to, and what it spent
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil receipt device.ledger\n  eigenveil receipt device.ledger --json > receipt.json\n\nThe ledger is the file of a device (Ledger::open of the client SDK) or of eigenveil report (rows.npy.ledger). The\nreceipt names the studies, what each report was charged and can reveal, and the budget left under the limits. It contains\nno data of any row."
)]
pub(crate) struct ReceiptArgs {
    /// The ledger of a device, or of a file of rows
    ledger: PathBuf,
}

pub(crate) fn run(args: &ReceiptArgs, json: bool) -> Result<()> {
    let path = &args.ledger;
    if RowLedger::is_at(path) {
        return show(&RowLedger::open_unchanged(path)?.receipt()?, json);
    }
    let beside = output::with_suffix(path, ".ledger");
    match Ledger::open_existing(path) {
        // The file of the rows, where their ledger lies beside it.
        Err(error) if RowLedger::is_at(&beside) => Err(CliError::usage(format!(
            "{error}; the ledger of its rows is {0}: eigenveil receipt {0}",
            beside.display()
        ))),
        ledger => show(&ledger?.receipt()?, json),
    }
}

fn show(receipt: &(impl Serialize + Display), json: bool) -> Result<()> {
    output::json_or_text(json, receipt, receipt.to_string().trim_end())
}
