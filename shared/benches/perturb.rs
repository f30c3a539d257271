//! Perturb, encode and decode one report, each beside its floor in the same run.
//!
//! Floors: for perturbing, drawing the same number of standard normals and nothing else (for
//! `double-cap`: expanding one seed, to be multiplied by the tries); for encoding and decoding, one copy
//! of the same bytes. `cargo bench -p eigenveil-shared`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use eigenveil_shared::{
    codec::{self, StudyShape},
    mechanism::{MechanismKind, double_cap::expand},
    packed::packed_len,
    preprocess::Row,
    report::{Report, ReportId},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

fn params(p: usize, mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    StudyParams::freeze(StudyDesign::new(
        mechanism,
        p,
        mechanism.budget(epsilon, None).expect("in range"),
    ))
    .expect("in range")
}

fn perturb(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("perturb");
    for p in [40, 100, 400, 4_096] {
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
            if kind == MechanismKind::DoubleCap {
                continue;
            }
            // A second a report, and nothing to learn beyond p = 400.
            if kind == MechanismKind::DiscreteGaussian && p == 4_096 {
                continue;
            }
            let params = params(p, kind, 4.0);
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

/// A device's whole work for one report of double-cap.
fn double_cap(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("double-cap");
    for p in [40, 400, 4_096] {
        group.bench_function(BenchmarkId::new("floor: expand one seed", p), |b| {
            let mut z = vec![0.0; p];
            b.iter(|| black_box(expand(black_box(&[9; 16]), &mut z)));
        });
        let raw = Row::new((0..p).map(|i| (i as f64).sin()).collect());
        for epsilon in [1.0, 4.0, 8.0] {
            let params = params(p, MechanismKind::DoubleCap, epsilon);
            let name = format!("report, epsilon {epsilon}");
            group.bench_function(BenchmarkId::new(name, p), |b| {
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

fn encode_decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    for p in [40, 100, 400] {
        let params = params(p, MechanismKind::IsotropicGaussian, 4.0);
        let shape = StudyShape::new(&params);
        let row = params
            .preprocessor()
            .prepare(&Row::new(vec![1.0; p]))
            .expect("usable");
        let report = Report {
            id: ReportId::from_parts(1 << 40, [7; 16]),
            fingerprint: shape.fingerprint(),
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

criterion_group!(benches, perturb, double_cap, encode_decode);
criterion_main!(benches);
