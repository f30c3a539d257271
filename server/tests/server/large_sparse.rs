//! Row-sparse estimates in two passes over the seeds on disk: small ones as the server makes them, and p = 20,000.

use std::{cell::RefCell, path::Path, sync::mpsc::sync_channel, time::Instant};

use eigenveil_estimation::{
    Cancel, Request, Source, estimate,
    linalg::Threads,
    metrics::projector_distance,
    models::{Model, Population},
    sparse_from_seeds::SeedSource,
};
use eigenveil_shared::{
    Result,
    api::SparseSettings,
    estimate::{ComponentCount, Estimate},
    mechanism::{Mechanism, double_cap::Seed},
    preprocess::Row,
    report::ReportId,
    study::StudyParams,
};
use eigenveil_store::{Store, StoreConfig};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use serde_json::{Value, json};

use crate::common::{Harness, batch_with, decoded, design, environment, new_id, params};

fn population(p: usize, k: usize, s: usize) -> Population {
    // With unit rows each component has 1/(k+1) of the variance: k·p versus p·1.
    let spike = p as f64;
    let mut rng = ChaCha8Rng::seed_from_u64(20_000);
    Model::sparse(p, k, s, spike).draw(&mut rng).unwrap()
}

/// Reports of `count` participants; the same for the same batch number.
fn reports(
    params: &StudyParams,
    population: &Population,
    batch: u64,
    count: usize,
) -> Vec<(ReportId, Seed)> {
    let mut rng = ChaCha8Rng::seed_from_u64(1_000 + batch);
    let Mechanism::DoubleCap(cap) = params.mechanism() else {
        panic!("double-cap")
    };
    let one = |_| {
        let row = Row::new(population.row(&mut rng));
        let row = params.preprocessor().prepare(&row).unwrap();
        (new_id(), cap.draw_counting_attempts(&row, &mut rng).0)
    };
    (0..count).map(one).collect()
}

/// A study estimated from its seeds, for which its sums would not fit; then with too little memory. (That seeds and
/// sums give the same components: `estimation/src/sparse/from_seeds/tests.rs`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_are_streamed_from_the_configured_dimension() {
    let p = 230;
    let mut server = Harness::new();
    let changes = json!({"dimension": p, "epsilon": 6.0});
    let study = server.seed_study(changes).await;
    let population = population(p, 2, 8);
    for batch in 0..60 {
        let reports = reports(params(&study), &population, batch, 100);
        let receipt = server.receipt(&study, batch_with(&study, &reports)).await;
        assert_eq!(receipt.accepted, 100);
    }
    let request = json!({"k": 2, "sparse": {"refit": true, "lambda": 0.02, "tolerance": 1e-5}});
    server.config.tuning.sparse_streaming_min_dimension = p;
    // A sum for each bucket would not fit.
    server.config.sum_cache_bytes = 20 << 20;
    let mut server = server.restart();
    let streamed = server
        .estimated(&study, request.clone())
        .await
        .estimate
        .unwrap();
    assert!(streamed.eigenvalues.len() < p && streamed.p == p && streamed.n == 6_000);
    let sparse = streamed.sparse.unwrap();
    assert!(sparse.converged);
    let mut selected = sparse.support.iter();
    assert!(selected.all(|row| population.support().contains(row)));
    // Plain PCA and cross-validation use the sums.
    let plain = server
        .estimated(&study, json!({"k": 2}))
        .await
        .estimate
        .unwrap();
    assert_eq!(plain.eigenvalues.len(), p);
    server.config.sum_cache_bytes = 1 << 20;
    let server = server.restart();
    let problem = server.estimated(&study, request).await.problem.unwrap();
    for word in ["230", "1048576", "sum_cache_bytes", "restart"] {
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
}

/// Peak resident memory of this process in MB.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let (_, peak) = status.split_once("VmHWM:").unwrap();
    let kilobytes = peak.split_whitespace().next().unwrap();
    kilobytes.parse::<u64>().unwrap() / 1_000
}

fn f1(found: &[usize], truth: &[usize]) -> f64 {
    let hits = found.iter().filter(|row| truth.contains(row)).count() as f64;
    2.0 * hits / (found.len() + truth.len()) as f64
}

/// Fills the study in this directory up to n reports on all processors; existing reports stay.
async fn collect(store: &Store, document: Value, population: &Population, n: u64) -> StudyParams {
    const BATCH: usize = 500;
    let study = match store.studies().first() {
        Some(study) => study.clone(),
        None => {
            let request = serde_json::from_value(document).unwrap();
            store.create_study(request).await.unwrap()
        }
    };
    let params = study.params().rows().unwrap().clone();
    let (first, last) = (study.reports_accepted() / BATCH as u64, n / BATCH as u64);
    let threads = Threads::available().count() as u64;
    let (full, batches) = sync_channel(4);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (full, params) = (full.clone(), &params);
            scope.spawn(move || {
                for batch in (first + thread..last).step_by(threads as usize) {
                    // Identifiers that no earlier run stored.
                    let mut some = reports(params, population, batch, BATCH);
                    for (i, (id, _)) in some.iter_mut().enumerate() {
                        let mut random = [0; 16];
                        let number = batch * BATCH as u64 + i as u64;
                        random[8..].copy_from_slice(&number.to_be_bytes());
                        *id = ReportId::from_parts(1_700_000_000_000, random);
                    }
                    full.send(some).unwrap();
                }
            });
        }
        drop(full);
        let runtime = tokio::runtime::Handle::current();
        for some in batches {
            let reports = decoded(&study, batch_with(&study.document(), &some));
            tokio::task::block_in_place(|| {
                runtime.block_on(store.submit(&study, reports)).unwrap();
            });
        }
    });
    params
}

fn loadings(estimate: &Estimate) -> DMatrix<f64> {
    let columns: Vec<f64> = estimate
        .components
        .iter()
        .flat_map(|component| component.loadings.clone())
        .collect();
    DMatrix::from_vec(estimate.p, estimate.components.len(), columns)
}

/// The seeds, and when each pass over them began and ended.
struct TimedPasses<'a> {
    seeds: &'a dyn SeedSource,
    origin: Instant,
    passes: RefCell<Vec<(f64, f64)>>,
}

impl SeedSource for TimedPasses<'_> {
    fn buckets(&self) -> u32 {
        self.seeds.buckets()
    }

    fn repeated(&self) -> u64 {
        self.seeds.repeated()
    }

    fn sample(&self, cancel: Cancel<'_>) -> Result<Vec<Seed>> {
        self.seeds.sample(cancel)
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        let began = self.origin.elapsed().as_secs_f64();
        self.seeds.pass(take)?;
        let ended = self.origin.elapsed().as_secs_f64();
        self.passes.borrow_mut().push((began, ended));
        Ok(())
    }
}

/// How long each part took, beside what cannot be spared: forming the moment once, and one Cholesky factorisation. That
/// checks for cancellation once a panel of 256 columns, the last one just before the second pass.
fn parts(passes: &[(f64, f64)], checks: &[f64], p: usize, whole: f64) -> String {
    let [(_, formed), (second, summed)] = *passes else {
        panic!("two passes, not {}", passes.len());
    };
    let solving = *checks.iter().find(|&&at| at > formed).unwrap();
    let before = checks.iter().filter(|&&at| at < second).count();
    let proving = checks[before - p.div_ceil(256)];
    let floor = formed + second - proving;
    format!(
        "forming {formed:.0} s, eigenvalues and first candidates {:.0} s, solving and other proofs {:.0} s, last Cholesky {:.0} s, sums of the rows {:.0} s, judging {:.0} s: {:.2} times forming and the last Cholesky",
        solving - formed,
        proving - solving,
        second - proving,
        summed - second,
        whole - summed,
        whole / floor,
    )
}

/// The whole of p = 20,000: 40 active rows, five components, ε = 4, 10⁵ real reports, which take minutes to make and
/// are stored under `target/tmp` for the next run.
///
/// ```console
/// bash -c 'ulimit -v 16000000; cargo test --workspace --release --test server large_sparse:: -- --ignored --nocapture'
/// ```
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes up to half an hour and 3 GB; see its documentation"]
async fn twenty_thousand_dimensions_from_seeds_on_disk() {
    let (p, n) = (20_000, 100_000);
    let population = population(p, 5, 40);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("large-sparse-{p}-{n}"));
    let store = Store::open(&StoreConfig::new(&directory), environment()).unwrap();
    let document =
        design(&json!({"dimension": p, "mechanism": "double-cap", "delta": null, "epsilon": 4.0}));
    let params = collect(&store, document, &population, n).await;

    let study = store.studies()[0].clone();
    let seeds = store.seeds(&study, Cancel::NEVER).unwrap();
    assert_eq!(seeds.count(), n);
    let settings = SparseSettings {
        tolerance: 1e-3,
        ..SparseSettings::default()
    };
    let k = ComponentCount::Fixed(5);
    let origin = Instant::now();
    let timed = TimedPasses {
        seeds: &seeds,
        origin,
        passes: RefCell::default(),
    };
    let checks = RefCell::new(Vec::new());
    let is_cancelled = || {
        checks.borrow_mut().push(origin.elapsed().as_secs_f64());
        false
    };
    let estimate = Threads::available()
        .run(|| {
            let request = Request {
                name: "large",
                k,
                sparse: Some(&settings),
                memory_bytes: u64::MAX,
                moment: false,
                stream_from: 1,
            };
            let cancel = Cancel::when(&is_cancelled);
            estimate(Source::Seeds(&timed), &params, &request, cancel)
        })
        .unwrap();
    let peak = peak_megabytes();
    let sparse = estimate.sparse.as_ref().unwrap();
    let unit: f64 = estimate.eigenvalues.iter().take(5).sum();
    let score = f1(&sparse.support, population.support());
    println!(
        "p = {p}, n = {n}: {:.0} s on {} threads, peak {peak} MB; gap {:.1e} of {unit:.3}, {} iterations; F1 {score:.3}; error {:.3}, expected {:.3}",
        estimate.seconds,
        Threads::available().count(),
        sparse.duality_gap / unit,
        sparse.iterations,
        projector_distance(&loadings(&estimate), population.subspace()).unwrap(),
        estimate.expected_error.unwrap(),
    );
    let (passes, checks) = (timed.passes.borrow(), checks.borrow());
    println!("{}", parts(&passes, &checks, p, estimate.seconds));
    assert!(sparse.converged && sparse.duality_gap <= 1e-3 * unit);
    assert!(score >= 0.9);
    assert!(estimate.seconds < 1_200.0 && peak < 6_000);
}
