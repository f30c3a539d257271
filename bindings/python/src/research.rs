//! Simulated studies on the caller's rows, the list of baselines, and the sparse solver.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use eigenveil_central::{ALGORITHMS, parameter::Parameter};
use eigenveil_client::{Holders, Participants as _};
use eigenveil_estimation::{
    Cancel, Request, Source,
    accumulate::{Accumulator, ReportSum},
    estimate,
    fantope::{AdmmSettings, solve},
    linalg::Threads,
};
use eigenveil_shared::{
    api::SparseSettings,
    codec::ReportFormat,
    estimate::{ComponentCount, Estimate},
    study::StudyParams,
};
use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde::Deserialize;
use serde_json::json;

use crate::{
    design::design,
    error::{Failure, Result},
    estimate::{PyEstimate, array},
    rows::{Table, transposed},
    use_case::request,
    wait::{Control, run_interruptible},
};

/// Number of buckets of a study, as on the server.
const BUCKETS: usize = 32;

/// Arguments of a fit other than those of the study.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FitArguments {
    n_components: ComponentCount,
    sparse: Option<SparseSettings>,
    #[serde(default)]
    moment: bool,
    random_state: u64,
}

/// Arguments of the sparse solver.
#[derive(Deserialize)]
struct SparseArguments {
    k: usize,
    penalty: f64,
    max_iterations: usize,
    tolerance: f64,
    threads: usize,
}

struct Simulation {
    params: StudyParams,
    participants: Table,
    seed: u64,
}

impl Simulation {
    /// Sums of one report per participant, by bucket. Each bucket has its own generator, so that the result does not
    /// depend on the number of threads.
    fn sums(&self, control: &Control) -> Result<Vec<(u32, Accumulator)>> {
        let mut rng = ChaCha20Rng::seed_from_u64(self.seed);
        let mut buckets = vec![Vec::new(); BUCKETS];
        for participant in 0..self.participants.holders.count() {
            buckets[rng.random_range(0..BUCKETS)].push(participant);
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(u32, Accumulator)>> {
            let mut sums = Vec::new();
            loop {
                let bucket = next.fetch_add(1, Ordering::Relaxed);
                match buckets.get(bucket).map(Vec::as_slice) {
                    None => return Ok(sums),
                    Some([]) => {}
                    Some(participants) => {
                        sums.push((
                            bucket as u32,
                            self.sum_bucket(bucket, participants, control)?,
                        ));
                    }
                }
            }
        };
        let mut sums = thread::scope(|scope| {
            let threads = Threads::available().count();
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let results = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err(Failure::internal())));
            results.collect::<Result<Vec<_>>>()
        })?
        .concat();
        sums.sort_by_key(|(bucket, _)| *bucket);
        Ok(sums)
    }

    fn sum_bucket(
        &self,
        bucket: usize,
        participants: &[usize],
        control: &Control,
    ) -> Result<Accumulator> {
        let mut rng = ChaCha20Rng::seed_from_u64(self.seed);
        rng.set_stream(1 + bucket as u64);
        let (mechanism, format) = (self.params.mechanism(), ReportFormat::new(&self.params));
        let preprocessor = self.params.preprocessor();
        let mut sum = ReportSum::new(mechanism, self.params.report_dimension())?;
        for &participant in participants {
            if control.is_stopped() {
                return Err(Failure::input("interrupted"));
            }
            let (row, weight) = match &self.participants.holders {
                Holders::Rows(_) => (participant, None),
                Holders::Persons(persons) => {
                    let rows = &persons[participant];
                    (rows[rng.random_range(0..rows.len())], None)
                }
                Holders::Weighted(weights) => (participant, Some(weights[participant])),
            };
            let numbers = self.participants.row(row);
            // An unusable row becomes the zero row, as on a device.
            let (bounded, _) = match weight {
                None => preprocessor.prepare_with_warning(&numbers)?,
                Some(weight) => preprocessor.prepare_weighted(&numbers, weight)?,
            };
            let payload = mechanism.perturb_with(&bounded, &mut rng);
            sum.add(&format.payload(&payload[..])?)?;
        }
        Ok(sum.finish()?)
    }

    fn run(&self, fit: &FitArguments, control: &Control) -> Result<Estimate> {
        let request = Request {
            name: "",
            k: fit.n_components,
            sparse: fit.sparse.as_ref(),
            moment: fit.moment,
            memory_bytes: u64::MAX,
            stream_from: usize::MAX,
        };
        let sums = self.sums(control)?;
        let is_stopped = || control.is_stopped();
        Ok(Threads::available().run(|| {
            estimate(
                Source::Sums(sums),
                &self.params,
                &request,
                Cancel::when(&is_stopped),
            )
        })?)
    }
}

/// Simulates a study on these rows in this process: every report is perturbed, encoded, decoded and added up.
#[pyfunction]
pub(crate) fn simulated(
    py: Python<'_>,
    table: PyReadonlyArray2<'_, f64>,
    persons: Option<Vec<String>>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    study: String,
    arguments: String,
) -> PyResult<PyEstimate> {
    let participants = Table::read(&table, persons, weights);
    let participants = participants.map_err(|failure| failure.raise(py))?;
    run_interruptible(py, None, move |control| {
        let params = design(&study)?.params()?.into_rows()?;
        let fit: FitArguments = request(&arguments)?;
        if let ComponentCount::Fixed(k) = fit.n_components {
            eigenveil_estimation::linalg::require_rank(k, params.dimension())?;
        }
        let simulation = Simulation {
            params,
            participants,
            seed: fit.random_state,
        };
        Ok(PyEstimate::new(simulation.run(&fit, control)?))
    })
}

/// JSON of all baselines.
#[pyfunction]
pub(crate) fn algorithms() -> String {
    let described = |parameter: &Parameter| json!({ "name": parameter.name.replace('-', "_"), "help": parameter.help, "default": parameter.default });
    let baselines = ALGORITHMS.iter().map(|info| {
        json!({
            "name": info.name,
            "source": info.source,
            "description": info.description,
            "guarantee": info.guarantee,
            "neighbours": info.neighbours.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            "calibrations": info.calibrations.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            "parameters": info.parameters.iter().map(described).collect::<Vec<_>>(),
        })
    });
    serde_json::Value::Array(baselines.collect()).to_string()
}

/// Solves the Fantope problem of a symmetric p × p matrix; returns the components (k × p) and a JSON summary.
#[pyfunction]
pub(crate) fn fantope<'py>(
    py: Python<'py>,
    arguments: String,
    moment: PyReadonlyArray2<'py, f64>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, String)> {
    let moment = transposed(&moment);
    let (components, summary) = run_interruptible(py, None, move |control| {
        let arguments: SparseArguments = request(&arguments)?;
        let (rows, columns) = moment.shape();
        if rows != columns || moment != moment.transpose() {
            return Err(Failure::input(format!(
                "the matrix has {columns} rows and {rows} columns, or is not symmetric; give a symmetric one, such as (A + A.T) / 2"
            )));
        }
        let settings = AdmmSettings {
            max_iterations: arguments.max_iterations,
            tolerance: arguments.tolerance,
            ..AdmmSettings::default()
        };
        let threads =
            Threads::new(arguments.threads).ok_or_else(|| Failure::input("threads is 0"))?;
        let is_stopped = || control.is_stopped();
        let cancel = Cancel::when(&is_stopped);
        let solution =
            threads.run(|| solve(&moment, arguments.k, arguments.penalty, &settings, cancel))?;
        let summary = json!({
            "support": solution.support,
            "objective": solution.objective,
            "gap": solution.gap,
            "relative_gap": solution.relative_gap,
            "iterations": solution.iterations,
            "converged": solution.converged(),
        });
        Ok((solution.vectors.transpose(), summary.to_string()))
    })?;
    Ok((array(py, &components), summary))
}
