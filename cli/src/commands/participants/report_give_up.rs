//! `eigenveil report --give-up`: reports that no server has acknowledged are never sent.

use std::path::Path;

use eigenveil_client::{Ledger, RowLedger};
use eigenveil_shared::ErrorCode;

use crate::{
    commands::study_name::not_one_study,
    error::{CliError, Result},
    output,
};

/// Gives up the reports of the study that is called so, in the ledger of a device or of a file of rows.
pub(super) fn give_up(called: &str, ledger: &Path, json: bool) -> Result<()> {
    let given_up = match RowLedger::is_at(ledger) {
        true => RowLedger::open_existing(ledger)?.give_up(called),
        false => Ledger::open_existing(ledger)?.give_up(called),
    };
    let given_up = given_up.map_err(|error| match error.code() {
        Some(ErrorCode::StudyNotFound) => CliError::usage(format!(
            "{}; eigenveil receipt {} lists them",
            error.detail(),
            output::shell_quoted(&ledger.display().to_string())
        )),
        _ => not_one_study(error),
    })?;
    output::json_or_text(json, &given_up, &given_up.to_string())
}
