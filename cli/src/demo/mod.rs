//! `eigenveil demo`: the whole pipeline on this machine in seconds.

mod page;
mod rows;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use eigenveil_central::Rows;
use eigenveil_client::{
    Clock as _, Study, SystemClock,
    http::{BearerToken, OperatorClient, StudyClient},
};
use eigenveil_estimation::{
    format::with_thousands,
    metrics,
    pca::{Pca, moment_of_rows, pca},
};
use eigenveil_figures::{biplot, estimate_figures};
use eigenveil_server::{Environment, Server, ServerConfig};
use eigenveil_shared::{
    about::StudyNotice,
    api::{CreateStudyRequest, EstimateRequest},
    enrolment::Admission,
    estimate::{ComponentCount, Estimate},
    mechanism::MechanismName,
    preprocess::FeatureRow,
    study::Fingerprint,
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng, rngs::SysRng};
use serde::Serialize;
use tokio::task::JoinSet;

use self::rows::DemoRows;
use crate::{
    args::{MechanismArgs, SparseArgs},
    commands::{estimate::print_components, estimate_of, serve::stop_signal},
    error::{CliError, Result},
    output, results,
    tables::TableArgs,
};

/// Connections the simulated participants share: enough that each commit, whose cost is one disk sync,
/// has many reports to acknowledge.
const CONNECTIONS: usize = 128;

/// The demo's own directory, in which each demo replaces the one before.
const DEFAULT_OUT: &str = "eigenveil-demo";

/// Run the whole pipeline on this machine: server, participants, upload, estimate, comparison
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil demo\n  eigenveil demo --rows rows.csv --n 100000 --k 2 --epsilon 4 --out result/\n  eigenveil demo --sparse --lambda path --k 3\n\nWrites index.html, estimate.json, summary.csv, features.txt and the figures (those of eigenveil estimate, and biplot.svg). The built-in rows are 1,797 handwritten digits of 8 × 8 pixels (UCI Optdigits, CC BY 4.0), centered and scaled by constants from other people's digits."
)]
pub(crate) struct DemoArgs {
    /// Rows: .csv, .tsv, .parquet, .npy or .libsvm; the built-in digits when absent
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// Participants; each holds one row drawn with replacement
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    n: u64,
    /// Components
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=4096))]
    k: u16,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E", default_value_t = 4.0)]
    epsilon: f64,
    #[command(flatten)]
    mechanism: MechanismArgs,
    #[command(flatten)]
    sparse: SparseArgs,
    /// Directory for the results; one that has a result already is refused, but for the default
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
    /// Replace the result that is there, once the new one is computed
    #[arg(long)]
    overwrite: bool,
    /// Leave the server running until Ctrl-C
    #[arg(long)]
    keep_serving: bool,
    #[command(flatten)]
    table: TableArgs,
}

impl DemoArgs {
    fn replaces(&self) -> bool {
        self.overwrite || self.out == Path::new(DEFAULT_OUT)
    }
}

/// Names of the files that the demo may write.
fn names() -> Vec<&'static str> {
    let fixed_names = ["estimate.json", "index.html", "biplot.svg"];
    [&fixed_names[..], &results::NAMES].concat()
}

/// The demo's measurements; scripts rely on the keys.
#[derive(Debug, Serialize)]
struct DemoResult {
    n: u64,
    p: usize,
    k: usize,
    mechanism: MechanismName,
    epsilon: f64,
    delta: f64,
    error: f64,
    nonprivate_captured: f64,
    captured: f64,
    payload_bytes: usize,
    report_bytes: usize,
    reports_per_second: f64,
    components_above_floor: u64,
    out: String,
    rows_in_file: usize,
    expected_error: Option<f64>,
    upload_seconds: f64,
}

/// The result of a curator who sees every row.
struct Reference {
    pca: Pca,
    /// The rows' second moment, or their covariance where the study centres them.
    moment: DMatrix<f64>,
}

pub(crate) async fn run(args: &DemoArgs, json: bool) -> Result<()> {
    let rows = DemoRows::load(args.rows.as_deref(), &args.table)?;
    let params =
        args.mechanism
            .freeze(rows.table.dimension(), args.epsilon, rows.features.clone())?;
    let k = usize::from(args.k);
    // Also checks that every row can be prepared.
    let preprocessor = params.preprocessor();
    let prepared = (0..rows.table.len())
        .map(|index| preprocessor.prepare_features_nth(index, &rows.table.row(index)));
    let prepared = Rows::collect(prepared)?;
    let slices = prepared.iter().map(FeatureRow::as_slice);
    let moment = moment_of_rows(
        &slices,
        params.dimension(),
        params.preprocessing().centring.is_some(),
    )?;
    let reference = Reference {
        pca: pca(&moment, k)?,
        moment,
    };
    results::check(&args.out, &names(), args.replaces())?;

    // From here on a signal ends the run in order, so that the throw-away store is removed.
    let mut stop = std::pin::pin!(stop_signal()?);
    let data = tempfile::tempdir().map_err(|error| {
        CliError::failed(format!(
            "cannot make a directory for the throw-away store: {error}"
        ))
    })?;
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        ..ServerConfig::new(data.path().join("data"))
    };
    let server = Server::bind(config, Environment::system()).await?;
    let url = format!("http://{}", server.local_addr());
    let token_path = server.app().store().token_path();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async move {
        let _ = ended.await;
    }));
    let done = tokio::select! {
        done = run_study(args, json, &rows, &reference, &url, &token_path, params.fingerprint()) => done,
        () = &mut stop => Err(CliError::failed("stopped by a signal; there is no result")),
    };
    if let (Ok(study), true) = (&done, args.keep_serving) {
        output::print_error_line(&format!(
            "serving {url} (study {study}, operator token in {}) until Ctrl-C; the store is thrown away then",
            token_path.display()
        ));
        stop.await;
    }
    // The receiver may be gone if the server stopped by itself: then there is nothing to stop.
    let _ = end.send(());
    let served = serving
        .await
        .map_err(|error| CliError::failed(format!("the server failed: {error}")))?;
    done?;
    served.map_err(CliError::from)
}

/// Creates the study, sends the reports, and writes and shows the estimate; returns the study's identifier.
async fn run_study(
    args: &DemoArgs,
    json: bool,
    rows: &DemoRows,
    reference: &Reference,
    url: &str,
    token_path: &Path,
    fingerprint: Fingerprint,
) -> Result<String> {
    let analyst = OperatorClient::new(url, &BearerToken::from_file(token_path)?)?;
    let document = analyst.create_study(&study_request(args, rows)?).await?;
    let devices = StudyClient::new(url)?;
    let id = &document.id;
    let study = devices.fetch_study_pinned(id, fingerprint).await?;
    let upload_seconds = upload_all(&devices, &study, rows, args.n).await?;
    analyst.close(&document.id).await?;
    let request = EstimateRequest {
        k: Some(ComponentCount::Fixed(usize::from(args.k))),
        sparse: args.sparse.settings(),
        moment: false,
    };
    let job = analyst.request_estimate(&document.id, &request).await?;
    let an_hour = Duration::from_secs(3_600);
    let done = analyst.wait_for_estimate(id, job.number, an_hour).await?;
    let estimate = estimate_of(done)?;
    let result = compare(args, &estimate, reference, rows, upload_seconds)?;
    write_results(args, &result, &estimate, reference, rows)?;
    if json {
        output::json(&result)?;
    } else {
        print(&result, &estimate, rows)?;
    }
    Ok(document.id)
}

fn study_request(args: &DemoArgs, rows: &DemoRows) -> Result<CreateStudyRequest> {
    let (dimension, features) = (rows.table.dimension(), rows.features.clone());
    let mechanism = &args.mechanism;
    Ok(CreateStudyRequest {
        default_k: ComponentCount::Fixed(usize::from(args.k)),
        about: StudyNotice {
            purpose: Some("To show on one machine what a study does".to_owned()),
            responsible_party: Some("Whoever runs this demonstration".to_owned()),
            ..StudyNotice::default()
        },
        ..mechanism.study(&rows.name, dimension, args.epsilon, features)?
    })
}

/// Every participant perturbs its own row and uploads the report over a shared pool of connections. Returns the seconds
/// it took.
async fn upload_all(devices: &StudyClient, study: &Study, rows: &DemoRows, n: u64) -> Result<f64> {
    let bar = output::bar(n, "participants");
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (devices, study) = (devices.clone(), study.clone());
        let (table, next, bar) = (Arc::clone(&rows.table), Arc::clone(&next), bar.clone());
        connections.spawn(async move {
            // Which row a participant holds is not a secret; it is drawn so that runs differ.
            let mut draw = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(|error| {
                CliError::failed(format!("the operating system gave no randomness: {error}"))
            })?;
            while next.fetch_add(1, Ordering::Relaxed) < n {
                let row = table.row(draw.random_range(0..table.len()));
                let prepared = study.report(&row, SystemClock.unix_ms())?;
                // The store lives as long as this process: a ledger would outlive its server.
                let request = study.upload_one(prepared.report(), &Admission::Open)?;
                devices.call(&request).await.into_result()?;
                bar.inc(1);
            }
            Ok::<(), CliError>(())
        });
    }
    while let Some(ended) = connections.join_next().await {
        ended.map_err(|error| CliError::failed(format!("a participant failed: {error}")))??;
    }
    bar.finish_and_clear();
    Ok(started.elapsed().as_secs_f64())
}

fn compare(
    args: &DemoArgs,
    estimate: &Estimate,
    reference: &Reference,
    rows: &DemoRows,
    upload_seconds: f64,
) -> Result<DemoResult> {
    if estimate.n != args.n {
        return Err(eigenveil_shared::Error::estimate_failed(format!(
            "{} reports were acknowledged but {} are in the sum",
            args.n, estimate.n
        ))
        .into());
    }
    let ours = DMatrix::from_fn(estimate.p, estimate.k, |i, j| {
        estimate.components[j].loadings[i]
    });
    Ok(DemoResult {
        n: estimate.n,
        p: estimate.p,
        k: estimate.k,
        mechanism: estimate.privacy.mechanism,
        epsilon: estimate.privacy.epsilon,
        delta: estimate.privacy.delta,
        error: metrics::projector_distance(&ours, &reference.pca.vectors)?,
        nonprivate_captured: metrics::captured_variance(&reference.pca.vectors, &reference.moment)?,
        captured: metrics::captured_variance(&ours, &reference.moment)?,
        payload_bytes: estimate.privacy.payload_bytes,
        report_bytes: estimate.privacy.report_bytes,
        reports_per_second: args.n as f64 / upload_seconds,
        components_above_floor: estimate.floor.components_above as u64,
        out: args.out.display().to_string(),
        rows_in_file: rows.table.len(),
        expected_error: estimate.expected_error,
        upload_seconds,
    })
}

fn write_results(
    args: &DemoArgs,
    result: &DemoResult,
    estimate: &Estimate,
    reference: &Reference,
    rows: &DemoRows,
) -> Result<()> {
    let json = serde_json::to_vec(estimate).map_err(|error| CliError::failed(error.to_string()))?;
    let mut files = vec![("estimate.json", json)];
    let figures = estimate_figures(estimate, Some(reference.pca.spectrum.as_slice()));
    files.extend(results::files(estimate, &figures)?);
    let described = format!(
        "{}; {} participants hold rows drawn from these with replacement",
        rows.described,
        with_thousands(result.n)
    );
    // The demo's rows are on this machine anyway; a study's rows stay with their owners.
    let scatter = match estimate.k {
        0 | 1 => None,
        _ => {
            let scores =
                estimate.scores((0..rows.table.len()).map(|index| rows.table.row(index)))?;
            let picture = biplot(estimate, (0, 1), &scores, None);
            Some(picture.map_err(CliError::failed)?)
        }
    };
    let page = page::render(&page::Page {
        result,
        scatter: scatter.as_ref(),
        estimate,
        nonprivate: &reference.pca.vectors,
        nonprivate_eigenvalues: reference.pca.spectrum.as_slice(),
        rows_described: &described,
    });
    files.extend(scatter.map(|picture| ("biplot.svg", picture.to_svg().into_bytes())));
    files.push(("index.html", page.into_bytes()));
    results::write(&args.out, &names(), args.replaces(), &files)
}

fn print(result: &DemoResult, estimate: &Estimate, rows: &DemoRows) -> Result<()> {
    output::text(&format!(
        "{}\n{} participants drawn from them with replacement, {}, {}",
        rows.described,
        with_thousands(result.n),
        result.mechanism,
        output::budget_text(result.epsilon, result.delta)
    ))?;
    output::text(&format!(
        "{} bytes a report, {:.0} reports acknowledged a second, each durable\n",
        result.report_bytes, result.reports_per_second
    ))?;
    print_components(estimate)?;
    output::text(&format!(
        "\nerror against the non-private answer {}; variance captured {:.4}, non-private {:.4} ({:.1} %)",
        output::error_text(result.error, result.p, result.k),
        result.captured,
        result.nonprivate_captured,
        100.0 * result.captured / result.nonprivate_captured
    ))?;
    output::text(&format!("open {}/index.html", result.out))
}
