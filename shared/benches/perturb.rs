//! Perturb, encode and decode one report, each beside its floor in the same run.
//!
//! Floors: for perturbing, drawing the same number of standard normals and nothing else; for encoding
//! and decoding, one copy of the same bytes. `cargo bench -p eigenveil-shared`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use eigenveil_shared::{
    codec::{self, StudyShape},
    mechanism::{
        Calibration, MechanismKind,
        discrete_gaussian::{DiscreteGaussian, DiscreteGaussianParameters},
    },
    packed::packed_len,
    preprocess::{Norm, Preprocessing, Row},
    privacy::Budget,
    report::{Report, ReportId},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

fn params(p: usize, mechanism: MechanismKind) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        dimension: p,
        features: None,
        norm: Norm::Normalize,
        mechanism,
        calibration: Calibration::Analytic,
        budget: Budget::approximate(4.0, 1e-6).expect("in range"),
    })
    .expect("in range")
}

fn perturb(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("perturb");
    for p in [40, 100, 400] {
        let samples = packed_len(p);
        println!(
            "p = {p}: {samples} normals drawn, {} bytes written a report",
            4 * samples
        );
        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(BenchmarkId::new("floor: normals alone", p), |b| {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            b.iter(|| {
                let mut sum = 0.0;
                for _ in 0..samples {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    sum += z;
                }
                black_box(sum)
            });
        });
        for &kind in MechanismKind::ALL {
            let params = params(p, kind);
            let raw = Row::new((0..p).map(|i| (i as f64).sin()).collect());
            group.bench_function(BenchmarkId::new(kind.as_str(), p), |b| {
                // The whole of a device's work, preprocessing and seeding from the system included.
                b.iter(|| {
                    let row = params
                        .preprocessor()
                        .prepare(black_box(&raw))
                        .expect("usable");
                    black_box(params.mechanism().release(&row).expect("randomness"))
                });
            });
        }
    }
    group.finish();
}

/// The sampler's own cost, generator included: one element is one discrete Gaussian of a report.
fn discrete_gaussian(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("discrete-gaussian");
    for p in [40, 400] {
        let samples = packed_len(p);
        let budget = Budget::approximate(4.0, 1e-6).expect("in range");
        let parameters = DiscreteGaussianParameters::derive(p, budget).expect("in range");
        println!(
            "p = {p}: {samples} samples of standard deviation {} a report",
            parameters.sigma_grid()
        );
        let mechanism = DiscreteGaussian::new(parameters);
        let preprocessing = Preprocessing {
            dimension: p,
            features: None,
            norm: Norm::Normalize,
        };
        let row = preprocessing
            .preprocessor()
            .and_then(|it| it.prepare(&Row::new((0..p).map(|i| (i as f64).sin()).collect())))
            .expect("usable");
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(BenchmarkId::new("floor: normals alone", p), |b| {
            b.iter(|| {
                let mut sum = 0.0;
                for _ in 0..samples {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    sum += z;
                }
                black_box(sum)
            });
        });
        group.bench_function(BenchmarkId::new("perturb", p), |b| {
            b.iter(|| black_box(mechanism.perturb(black_box(&row), &mut rng)));
        });
    }
    group.finish();
}

fn encode_decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    for p in [40, 100, 400] {
        let params = params(p, MechanismKind::IsotropicGaussian);
        let shape = StudyShape::of(&params);
        let row = params
            .preprocessor()
            .prepare(&Row::new(vec![1.0; p]))
            .expect("usable");
        let report = Report {
            id: ReportId::from_parts(1 << 40, [7; 16]),
            fingerprint: shape.fingerprint,
            payload: params.mechanism().release(&row).expect("randomness"),
        };
        let bytes = codec::encode_report(&report);
        println!("p = {p}: {} bytes moved a report", bytes.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("floor: one copy", p), |b| {
            b.iter(|| black_box(black_box(&bytes).clone()));
        });
        group.bench_function(BenchmarkId::new("encode", p), |b| {
            b.iter(|| black_box(codec::encode_report(black_box(&report))));
        });
        group.bench_function(BenchmarkId::new("decode and validate", p), |b| {
            b.iter(|| black_box(codec::decode_report(black_box(&bytes), &shape).expect("valid")));
        });
    }
    group.finish();
}

criterion_group!(benches, perturb, discrete_gaussian, encode_decode);
criterion_main!(benches);
