//! The commands, one file each.

pub(crate) mod account;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod central;
mod central_rows;
pub(crate) mod estimate;
mod model;
pub(crate) mod moment;
pub(crate) mod plan;
mod plan_chart;
pub(crate) mod prepare;
mod prepare_choices;
mod prepare_columns;
pub(crate) mod project;
pub(crate) mod receipt;
pub(crate) mod report;
mod report_check;
mod report_persons;
pub(crate) mod reproduce;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod store;
pub(crate) mod study;
mod study_name;
mod sweep;
pub(crate) mod token;
pub(crate) mod work;

use std::{path::Path, time::Duration};

use eigenveil_client::http::OperatorClient;
use eigenveil_shared::{api::EstimateJob, estimate::Estimate};

use crate::{
    error::{CliError, Result},
    output,
};

/// Waits for an estimate, at most so many seconds.
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

/// Says what a file has got.
fn print_written(json: bool, bytes: u64, out: &Path) -> Result<()> {
    let out = out.display().to_string();
    let written = serde_json::json!({ "bytes": bytes, "out": out });
    output::json_or_text(json, &written, &format!("{bytes} bytes written to {out}"))
}
