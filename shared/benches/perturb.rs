//! Perturb, encode and decode one report, each beside its floor in the same run.
//!
//! Floors: for perturbing, drawing the same number of standard normals and nothing else (for
//! `double-cap`: expanding one seed, to be multiplied by the attempts); for encoding and decoding, one copy
//! of the same bytes. `cargo bench -p eigenveil-shared`.

use std::hint::black_box;

use eigenveil_shared::{
    codec::{self, ReportFormat},
    mechanism::{MechanismKind, double_cap::expand},
    packed::packed_len,
    preprocess::Row,
    report::{Report, ReportId},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

mod stopwatch;
use stopwatch::measure;

const SAMPLES: usize = 101;

fn params(p: usize, mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    let budget = mechanism.budget(epsilon, None).expect("in range");
    StudyParams::freeze(StudyDesign::new(mechanism, p, budget)).expect("in range")
}

/// The whole of a device's work for a report, preprocessing and seeding from the system included.
fn report(name: &str, params: &StudyParams, samples: usize, units: Option<(usize, &str)>) {
    let p = params.dimension();
    let raw = Row::new((0..p).map(|i| (i as f64).sin()).collect());
    measure(name, samples, units, || {
        let row = params.preprocessor().prepare(black_box(&raw));
        let row = row.expect("usable");
        black_box(params.mechanism().perturb(&row).expect("randomness"));
    });
}

fn perturb() {
    for p in [40, 100, 400, 4_096] {
        let drawn = packed_len(p);
        let bytes = 4 * drawn;
        println!("p = {p}: {drawn} normals drawn, {bytes} bytes written a report");
        let units = Some((drawn, "numbers"));
        let samples = if p == 4_096 { 11 } else { SAMPLES };
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let floor = format!("perturb/floor: normals alone/{p}");
        measure(&floor, samples, units, || {
            let normal = |_| -> f64 { StandardNormal.sample(&mut rng) };
            black_box((0..drawn).map(normal).sum::<f64>());
        });
        for &kind in MechanismKind::ALL {
            // A second a report, and nothing to learn beyond p = 400.
            let slow = kind == MechanismKind::DiscreteGaussian && p == 4_096;
            if kind != MechanismKind::DoubleCap && !slow {
                let name = format!("perturb/{kind}/{p}");
                report(&name, &params(p, kind, 4.0), samples, units);
            }
        }
    }
}

fn double_cap() {
    for p in [40, 400, 4_096] {
        let mut z = vec![0.0; p];
        let floor = format!("double-cap/floor: expand one seed/{p}");
        measure(&floor, SAMPLES, None, || {
            black_box(expand(black_box(&[9; 16]), &mut z));
        });
        for epsilon in [1.0, 4.0, 8.0] {
            let params = params(p, MechanismKind::DoubleCap, epsilon);
            let name = format!("double-cap/report, epsilon {epsilon}/{p}");
            report(&name, &params, SAMPLES, None);
        }
    }
}

fn encode_decode() {
    for p in [40, 100, 400] {
        let params = params(p, MechanismKind::IsotropicGaussian, 4.0);
        let format = ReportFormat::new(&params);
        let row = params.preprocessor().prepare(&Row::new(vec![1.0; p]));
        let row = row.expect("usable");
        let report = Report {
            id: ReportId::from_parts(1 << 40, [7; 16]),
            fingerprint: format.fingerprint(),
            payload: params.mechanism().perturb(&row).expect("randomness"),
        };
        let bytes = codec::encode_report(&report);
        println!("p = {p}: {} bytes moved a report", bytes.len());
        let units = Some((bytes.len(), "bytes"));
        measure(
            &format!("codec/floor: one copy/{p}"),
            SAMPLES,
            units,
            || {
                black_box(black_box(&bytes).clone());
            },
        );
        measure(&format!("codec/encode/{p}"), SAMPLES, units, || {
            black_box(codec::encode_report(black_box(&report)));
        });
        let decode = format!("codec/decode and validate/{p}");
        measure(&decode, SAMPLES, units, || {
            black_box(codec::decode_report(black_box(&bytes), &format).expect("valid"));
        });
    }
}

fn main() {
    perturb();
    double_cap();
    encode_decode();
}
