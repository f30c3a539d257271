//! A device's whole `double-cap` report, beside its lower bound in the same run: the expansion of one seed, to be
//! multiplied by the attempts. `cargo bench -p eigenveil-shared --bench perturb`.

use std::hint::black_box;

use eigenveil_shared::{
    mechanism::{MechanismKind, double_cap::expand},
    preprocess::Row,
    study::{StudyDesign, StudyParams},
};

mod stopwatch;
use stopwatch::measure;

const SAMPLES: usize = 101;

fn main() {
    for p in [40, 400, 4_096] {
        let mut z = vec![0.0; p];
        let floor = format!("double-cap/floor: expand one seed/{p}");
        measure(&floor, SAMPLES, None, || {
            black_box(expand(black_box(&[9; 16]), &mut z));
        });
        let raw = Row::new((0..p).map(|i| (i as f64).sin()).collect());
        for epsilon in [1.0, 4.0, 8.0] {
            let mechanism = MechanismKind::DoubleCap;
            let budget = mechanism.budget(epsilon, None).expect("in range");
            let params = StudyParams::freeze(StudyDesign::new(mechanism, p, budget));
            let params = params.expect("in range");
            // Preprocessing and seeding from the system included.
            let name = format!("double-cap/report, epsilon {epsilon}/{p}");
            measure(&name, SAMPLES, None, || {
                let row = params.preprocessor().prepare(black_box(&raw));
                let row = row.expect("usable");
                black_box(params.mechanism().perturb(&row).expect("randomness"));
            });
        }
    }
}
