//! Studies simulated on rows that the caller holds, the list of baselines, and the sparse solver.

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
    wait::{Control, patiently},
};

/// Number of buckets of a study, as on the server.
const BUCKETS: usize = 32;

/// Arguments of a fit that are not a study's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fit {
    n_components: ComponentCount,
    sparse: Option<SparseSettings>,
    #[serde(default)]
    moment: bool,
    random_state: u64,
}

/// Arguments of the sparse solver.
#[derive(Deserialize)]
struct Sparse {
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
    /// One report of each participant, added up in buckets. A bucket has a generator of its own, so that the result
    /// does not depend on the number of threads.
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
                    Some(own) => sums.push((bucket as u32, self.bucket(bucket, own, control)?)),
                }
            }
        };
        let mut sums = thread::scope(|scope| {
            let threads = Threads::available().count();
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let each = all
                .into_iter()
                .map(|own| own.join().unwrap_or_else(|_| Err(Failure::internal())));
            each.collect::<Result<Vec<_>>>()
        })?
        .concat();
        sums.sort_by_key(|(bucket, _)| *bucket);
        Ok(sums)
    }

    fn bucket(
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
            // What cannot be used becomes the zero row, as on a device.
            let (bounded, _) = match weight {
                None => preprocessor.prepare_with_warning(&numbers)?,
                Some(weight) => preprocessor.prepare_weighted(&numbers, weight)?,
            };
            let payload = mechanism.perturb_with(&bounded, &mut rng);
            sum.add(&format.payload(&payload[..])?)?;
        }
        Ok(sum.finish()?)
    }

    fn run(&self, fit: &Fit, control: &Control) -> Result<Estimate> {
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

/// A study on these rows, in this process: every report is perturbed, encoded, decoded and added up.
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
    patiently(py, None, move |control| {
        let params = design(&study)?.params()?;
        let fit: Fit = request(&arguments)?;
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
    let parameter = |own: &Parameter| json!({ "name": own.name.replace('-', "_"), "help": own.help, "default": own.default });
    let each = ALGORITHMS.iter().map(|info| {
        json!({
            "name": info.name,
            "source": info.source,
            "description": info.description,
            "guarantee": info.guarantee,
            "neighbours": info.neighbours.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            "calibrations": info.calibrations.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
            "parameters": info.parameters.iter().map(parameter).collect::<Vec<_>>(),
        })
    });
    serde_json::Value::Array(each.collect()).to_string()
}

/// The Fantope problem of a symmetric matrix (p × p). The components (k × p), and JSON of how it ended.
#[pyfunction]
pub(crate) fn fantope<'py>(
    py: Python<'py>,
    arguments: String,
    moment: PyReadonlyArray2<'py, f64>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, String)> {
    let moment = transposed(&moment);
    let (components, rest) = patiently(py, None, move |control| {
        let asked: Sparse = request(&arguments)?;
        let (rows, columns) = moment.shape();
        if rows != columns || moment != moment.transpose() {
            return Err(Failure::input(format!(
                "the matrix has {columns} rows and {rows} columns, or is not symmetric; give a symmetric one, as (A + A.T) / 2"
            )));
        }
        let settings = AdmmSettings {
            max_iterations: asked.max_iterations,
            tolerance: asked.tolerance,
            ..AdmmSettings::default()
        };
        let threads = Threads::new(asked.threads).ok_or_else(|| Failure::input("threads is 0"))?;
        let is_stopped = || control.is_stopped();
        let cancel = Cancel::when(&is_stopped);
        let solution = threads.run(|| solve(&moment, asked.k, asked.penalty, &settings, cancel))?;
        let rest = json!({
            "support": solution.support,
            "objective": solution.objective,
            "gap": solution.gap,
            "relative_gap": solution.relative_gap,
            "iterations": solution.iterations,
            "converged": solution.converged(),
        });
        Ok((solution.vectors.transpose(), rest.to_string()))
    })?;
    Ok((array(py, &components), rest))
}
