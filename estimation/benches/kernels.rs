//! The kernels of an estimate, each compared with a lower bound on its work.
//!
//! `cargo bench -p eigenveil-estimation`. The lower bounds: for the accumulator a copy of the bytes it must move
//! (payload read, f64 sums read and written); for a decomposition one dense product of the same size (2p³ operations; a
//! decomposition with vectors needs several times that); for the leading pairs one pass over the matrix, whose bytes
//! every matrix–vector product must read; for `double-cap` the expansion of the seeds alone.

use std::hint::black_box;

use eigenveil_estimation::{
    accumulate::{Accumulator, SeedSum},
    linalg::{product, symmetric_eigen, symmetric_eigenvalues, top_k},
    models::Model,
};
use eigenveil_shared::{
    codec::ReportFormat,
    mechanism::{
        Payload, PayloadKind,
        double_cap::{Seed, expand},
    },
    packed::packed_len,
    study::Fingerprint,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

#[path = "../../shared/benches/stopwatch/mod.rs"]
mod stopwatch;
use stopwatch::measure;

/// k spikes of size 2 on 10k rows over a noise bulk that ends near 0.6, as in the measured prototype.
fn moment(p: usize, k: usize) -> DMatrix<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let model = Model::sparse(p, k, (5 * k).min(p), 2.0);
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

fn accumulate() {
    for p in [40, 100, 400] {
        let len = packed_len(p);
        let payload: Vec<u8> = (0..len)
            .flat_map(|i| (i as f32).sin().to_le_bytes())
            .collect();
        let bytes = payload.len() + 16 * len;
        println!("p = {p}: floor {bytes} bytes moved a report");
        let units = Some((bytes, "bytes"));
        let Ok(mut sums) = Accumulator::new(p) else {
            unreachable!("p ≥ 1")
        };
        // The numbers are checked, the length of the whole is not: `server/benches/ingest` has both.
        let none = Fingerprint([0; 32]);
        let format = ReportFormat::without_params(none, PayloadKind::Floats, payload.len());
        measure(
            &format!("accumulate/report/{p}"),
            101,
            units,
            || match format.payload(black_box(&payload)) {
                Ok(Payload::Floats(numbers)) => drop(black_box(sums.add(&numbers))),
                other => unreachable!("{other:?}"),
            },
        );
        let source = vec![1_u8; bytes / 2];
        let mut target = vec![0_u8; bytes / 2];
        measure(&format!("accumulate/floor-copy/{p}"), 101, units, || {
            black_box(&mut target).copy_from_slice(black_box(&source));
        });
    }
}

fn double_cap_decode() {
    for p in [40, 400, 2_000] {
        // Whole blocks, so that no partial block remains at the end.
        let seeds: Vec<Seed> = (0..512_u128).map(|i| (i * i).to_le_bytes()).collect();
        let units = Some((seeds.len(), "seeds"));
        let Ok(mut sum) = SeedSum::new(p) else {
            unreachable!("p ≥ 1")
        };
        measure(
            &format!("double_cap_decode/decode-and-add/{p}"),
            21,
            units,
            || {
                black_box(&seeds).iter().for_each(|seed| sum.add(seed));
            },
        );
        let mut normals = vec![0.0; p];
        measure(
            &format!("double_cap_decode/floor-expand/{p}"),
            21,
            units,
            || {
                for seed in black_box(&seeds) {
                    black_box(expand(seed, black_box(&mut normals)));
                }
            },
        );
    }
}

fn decompose() {
    for (p, k) in [(100, 3), (400, 10), (1000, 10)] {
        let matrix = moment(p, k);
        println!("p = {p}: floor {} bytes a pass over the matrix", 8 * p * p);
        let measure = |name: &str, run: &dyn Fn()| {
            measure(&format!("decompose/{name}/{p}"), 11, None, run);
        };
        measure("floor-product", &|| {
            drop(black_box(product(&matrix, &matrix)));
        });
        measure("symmetric-eigen", &|| {
            drop(black_box(symmetric_eigen(&matrix)));
        });
        measure("symmetric-eigenvalues", &|| {
            drop(black_box(symmetric_eigenvalues(&matrix)));
        });
        measure(&format!("top-{k}"), &|| {
            drop(black_box(top_k(&matrix, k)));
        });
    }
}

fn main() {
    accumulate();
    double_cap_decode();
    decompose();
}
