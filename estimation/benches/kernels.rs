//! The kernels of an estimate, each beside the least work that could do the same.
//!
//! `cargo bench -p eigenveil-estimation`. The floors: for the accumulator a copy of the bytes it must
//! move (payload read, f64 sums read and written); for a decomposition one dense product of the same
//! size (2p³ operations; a decomposition with vectors needs several times that); for the leading pairs
//! one pass over the matrix, whose bytes every matrix–vector product must read; for `double-cap` the
//! expansion of the seeds alone.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use eigenveil_estimation::{
    Cancel,
    accumulate::{Accumulator, SeedSum},
    fantope::{AdmmSettings, solve},
    linalg::{product, symmetric_eigen, symmetric_eigenvalues, top_k},
    models::Model,
};
use eigenveil_shared::{
    codec::StudyShape,
    mechanism::{
        Payload, PayloadForm,
        double_cap::{Seed, expand},
    },
    packed::packed_len,
    study::Fingerprint,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

/// k spikes of size 2 on 10k rows over a noise bulk that ends near 0.6, as in the measured prototype.
fn moment(p: usize, k: usize) -> DMatrix<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let model = Model::Sparse {
        p,
        k,
        s: (5 * k).min(p),
        spike: 2.0,
    };
    let Ok(population) = model.draw(&mut rng) else {
        unreachable!("the model is valid")
    };
    let mut matrix = population.covariance();
    let sd = 0.3 / (p as f64).sqrt();
    for i in 0..p {
        for j in 0..=i {
            let z: f64 = StandardNormal.sample(&mut rng);
            matrix[(i, j)] += sd * z;
            matrix[(j, i)] = matrix[(i, j)];
        }
    }
    matrix
}

fn accumulate(c: &mut Criterion) {
    let mut group = c.benchmark_group("accumulate");
    for p in [40, 100, 400] {
        let len = packed_len(p);
        let payload: Vec<u8> = (0..len)
            .flat_map(|i| (i as f32).sin().to_le_bytes())
            .collect();
        let bytes = payload.len() + 16 * len;
        println!("p = {p}: floor {bytes} bytes moved a report");
        group.throughput(Throughput::Bytes(bytes as u64));
        let Ok(mut sums) = Accumulator::new(p) else {
            unreachable!("p ≥ 1")
        };
        // The numbers are checked, the length of the whole is not: `server/benches/ingest` has both.
        let none = Fingerprint([0; 32]);
        let shape = StudyShape::of_no_study(none, PayloadForm::Floats, payload.len());
        group.bench_function(format!("report/{p}"), |b| {
            b.iter(|| match shape.payload(black_box(&payload)) {
                Ok(Payload::Floats(numbers)) => black_box(sums.add(&numbers)),
                other => unreachable!("{other:?}"),
            });
        });
        let source = vec![1_u8; bytes / 2];
        let mut target = vec![0_u8; bytes / 2];
        group.bench_function(format!("floor-copy/{p}"), |b| {
            b.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
        });
    }
    group.finish();
}

fn double_cap_decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("double_cap_decode");
    group.sample_size(20);
    for p in [40, 400, 2_000] {
        // Whole blocks, so that none is left to the end.
        let seeds: Vec<Seed> = (0..512_u128).map(|i| (i * i).to_le_bytes()).collect();
        group.throughput(Throughput::Elements(seeds.len() as u64));
        let Ok(mut sum) = SeedSum::new(p) else {
            unreachable!("p ≥ 1")
        };
        group.bench_function(format!("decode-and-add/{p}"), |b| {
            b.iter(|| black_box(&seeds).iter().for_each(|seed| sum.add(seed)));
        });
        let mut normals = vec![0.0; p];
        group.bench_function(format!("floor-expand/{p}"), |b| {
            b.iter(|| {
                for seed in black_box(&seeds) {
                    black_box(expand(seed, black_box(&mut normals)));
                }
            });
        });
    }
    group.finish();
}

fn decompose(c: &mut Criterion) {
    let mut group = c.benchmark_group("decompose");
    group.sample_size(10);
    for (p, k) in [(100, 3), (400, 10), (1000, 10)] {
        let matrix = moment(p, k);
        println!("p = {p}: floor {} bytes a pass over the matrix", 8 * p * p);
        group.bench_function(format!("floor-product/{p}"), |b| {
            b.iter(|| black_box(product(&matrix, &matrix)));
        });
        group.bench_function(format!("symmetric-eigen/{p}"), |b| {
            b.iter(|| black_box(symmetric_eigen(&matrix)));
        });
        group.bench_function(format!("symmetric-eigenvalues/{p}"), |b| {
            b.iter(|| black_box(symmetric_eigenvalues(&matrix)));
        });
        group.bench_function(format!("top-{k}/{p}"), |b| {
            b.iter(|| black_box(top_k(&matrix, k)));
        });
    }
    group.finish();
}

fn fantope(c: &mut Criterion) {
    let mut group = c.benchmark_group("fantope");
    group.sample_size(10);
    for (p, k, lambda) in [(100, 3, 0.08), (400, 10, 0.05)] {
        let matrix = moment(p, k);
        let run = || {
            let settings = AdmmSettings::default();
            let solution = solve(&matrix, k, lambda, &settings, Cancel::NEVER);
            let Ok(solution) = solution else {
                unreachable!("the problem is valid")
            };
            solution
        };
        let solution = run();
        println!(
            "p = {p}: {} iterations, {:?}, relative gap {:.1e}, {} rows; floor one full decomposition an iteration",
            solution.iterations,
            solution.stop,
            solution.relative_gap,
            solution.support.len()
        );
        group.bench_function(format!("solve/{p}"), |b| b.iter(|| black_box(run())));
    }
    group.finish();
}

criterion_group!(benches, accumulate, double_cap_decode, decompose, fantope);
criterion_main!(benches);
