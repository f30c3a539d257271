//! Helpers of several tests: a study's parameters, and a matrix from an npy file.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "every test uses part of it; a test fails by panicking"
)]

pub mod poison;

use std::path::Path;

use eigenveil_estimation::{
    accumulate::{Accumulator, ReportSum},
    moment::NoisyMoment,
    simulate::{
        Experiment, NoisePath::FromSum, Repeat, RowSource, SimulatedParticipants, Summary,
        noisy_sum, run,
    },
};
use eigenveil_shared::{
    codec::ReportFormat,
    mechanism::MechanismKind,
    preprocess::{BoundedRow, Norm, Row},
    study::{StudyDesign, StudyParams},
};
use eigenveil_tables::npy;
use rand::Rng;

/// The mechanism's own δ, analytic calibration, unit rows, no centring.
pub fn params(p: usize, mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    params_with(p, mechanism, epsilon, Norm::Normalize, None)
}

/// Parameters with another preprocessing.
pub fn params_with(
    p: usize,
    mechanism: MechanismKind,
    epsilon: f64,
    norm: Norm,
    centring: Option<f64>,
) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        norm,
        centring,
        ..StudyDesign::new(mechanism, p, mechanism.budget(epsilon, None).unwrap())
    })
    .unwrap()
}

/// The sums of a study's payloads, bucket by bucket.
pub struct Buckets<'a> {
    params: &'a StudyParams,
    format: ReportFormat,
    sums: Vec<ReportSum>,
}

impl<'a> Buckets<'a> {
    pub fn new(params: &'a StudyParams, count: usize) -> Self {
        let empty = || ReportSum::new(params.mechanism(), params.report_dimension()).unwrap();
        Self {
            params,
            format: ReportFormat::new(params),
            sums: (0..count).map(|_| empty()).collect(),
        }
    }

    pub fn add(&mut self, bucket: usize, payload: impl AsRef<[u8]>) {
        let payload = self.format.payload(payload).unwrap();
        self.sums[bucket].add(&payload).unwrap();
    }

    /// Adds what a device sends for this row.
    pub fn add_report(&mut self, bucket: usize, row: &BoundedRow, rng: &mut impl Rng) {
        let payload = self.params.mechanism().perturb_with(row, rng);
        self.add(bucket, payload);
    }

    pub fn finish(self) -> Vec<Accumulator> {
        let sums = self.sums.into_iter();
        sums.map(|sum| sum.finish().unwrap()).collect()
    }
}

/// The unit vector of this coordinate.
pub fn axis(p: usize, i: usize) -> Vec<f64> {
    (0..p).map(|j| f64::from(u8::from(i == j))).collect()
}

/// Studies of n reports, by the distribution of their sum.
pub fn simulated(
    params: &StudyParams,
    source: RowSource<'_>,
    (n, k): (u64, usize),
    (repeats, seed): (usize, u64),
) -> (Vec<Repeat>, Summary) {
    let experiment = Experiment {
        repeats,
        seed,
        ..Experiment::new(params, source, n, k)
    };
    run(&experiment, &mut |_| {}).unwrap()
}

/// The noisy moment of n reports, by the distribution of their sum.
pub fn noisy_study(
    params: &StudyParams,
    people: &SimulatedParticipants<'_>,
    n: u64,
    rng: &mut impl Rng,
) -> NoisyMoment {
    let (noisy, _) = noisy_sum(params, people, n, FromSum, rng, &mut |_| Ok(())).unwrap();
    noisy
}

/// The rows of a data set next to the checkout (f64, f32 or u8, C order); `None`, with a message, without one.
pub fn shared_rows(name: &str) -> Option<Vec<Row>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if !directory.exists() {
        eprintln!("SKIPPED: {} is absent", directory.display());
        return None;
    }
    Some(npy_rows(&directory.join(name)))
}

/// The rows of the digits that the repository ships.
pub fn digits() -> Vec<Row> {
    npy_rows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/digits.npy"))
}

/// The rows of an `.npy` file.
pub fn npy_rows(path: &Path) -> Vec<Row> {
    let array = npy::read(&std::fs::read(path).unwrap()).unwrap();
    let rows = array.values.chunks(array.columns);
    rows.map(|row| Row::new(row.to_vec())).collect()
}
