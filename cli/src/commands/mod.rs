//! The commands, one file each, grouped by user.

mod analysts;
mod operators;
mod participants;
mod research;
mod studies;

pub(crate) use self::{
    analysts::{estimate, moment, project},
    operators::{backup, serve, store, work},
    participants::{receipt, report},
    research::{account, audit, central, plan, prepare, reproduce, simulate},
    studies::{study, study_name, token},
};

use std::{path::Path, time::Duration};

use eigenveil_client::http::OperatorClient;
use eigenveil_shared::{api::EstimateJob, estimate::Estimate};

use crate::{
    error::{CliError, Result},
    output,
};

/// Waits for an estimate, at most `seconds`.
async fn wait(client: &OperatorClient, study: &str, job: u64, seconds: u64) -> Result<EstimateJob> {
    let spinner = output::bar(0, "estimating");
    spinner.enable_steady_tick(Duration::from_millis(200));
    let timeout = Duration::from_secs(seconds);
    let done = client.wait_for_estimate(study, job, timeout).await;
    spinner.finish_and_clear();
    Ok(done?)
}

pub(crate) fn estimate_of(job: EstimateJob) -> Result<Estimate> {
    let missing = "the server says the estimate is done but did not send it";
    job.estimate.ok_or_else(|| CliError::failed(missing))
}

/// Prints how many bytes were written to a file.
fn print_written(json: bool, bytes: u64, out: &Path) -> Result<()> {
    let out = out.display().to_string();
    let written = serde_json::json!({ "bytes": bytes, "out": out });
    output::json_or_text(json, &written, &format!("{bytes} bytes written to {out}"))
}
