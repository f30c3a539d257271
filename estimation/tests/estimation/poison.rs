//! What made-up reports can do is what the document says of each component, and it says that they are there.

use eigenveil_estimation::{Cancel, Request, Source, accumulate::Accumulator, estimate};
use eigenveil_shared::{
    estimate::{ComponentCount, Estimate, Feasibility},
    mechanism::{
        MechanismKind,
        double_cap::{Seed, expand},
    },
    preprocess::Row,
    study::StudyParams,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

use crate::common::{
    Buckets, axis, params,
    poison::{BUCKETS, Directions, cap, dense, honest, with_share},
};

const P: usize = 20;
const HONEST: usize = 20_000;

/// The document of one component.
fn document(source: Source<'_>, params: &StudyParams) -> Estimate {
    let request = Request {
        name: "",
        k: ComponentCount::Fixed(1),
        sparse: None,
        memory_bytes: 1 << 30,
        moment: false,
        stream_from: usize::MAX,
    };
    estimate(source, params, &request, Cancel::NEVER).unwrap()
}

/// The share that the first component's line names.
fn named_share(params: &StudyParams, sums: Vec<(u32, Accumulator)>) -> f64 {
    let estimate = document(Source::Sums(sums), params);
    let component = &estimate.components[0];
    assert!(component.loadings[7].abs() > 0.9, "the liars' own");
    estimate.share_that_could_make(component).unwrap()
}

/// Participants without a common direction, and a share of liars who each send the report that reaches furthest along
/// one axis. One study each, whose component is known to some 5 %.
#[test]
fn the_share_beside_a_component_is_the_share_that_made_it() {
    let mut rng = ChaCha20Rng::seed_from_u64(41);
    let cap_params = params(P, MechanismKind::DoubleCap, 4.0);
    for liars in [HONEST / 100, HONEST / 25] {
        let mut study = Directions::new();
        for i in 0..HONEST {
            let row = axis(P, (i / BUCKETS) % P);
            study.buckets[i % BUCKETS].push(honest(cap(&cap_params), &row, &mut rng));
        }
        for i in 0..liars {
            study.buckets[i % BUCKETS].push(with_share(&axis(P, 7), 1.0, &mut rng));
        }
        let named = named_share(&cap_params, study.sums(P));
        let used = liars as f64 / (HONEST + liars) as f64;
        assert!((named / used - 1.0).abs() < 0.15, "{named} {used}");
    }
    let format_params = params(P, MechanismKind::IsotropicGaussian, 4.0);
    let poison = dense(&format_params, &axis(P, 7));
    let liars = HONEST / 50;
    let mut sums = Buckets::new(&format_params, BUCKETS);
    for i in 0..HONEST {
        let row = Row::new(axis(P, (i / BUCKETS) % P));
        let row = format_params.preprocessor().prepare(&row).unwrap();
        sums.add_report(i % BUCKETS, &row, &mut rng);
    }
    (HONEST..HONEST + liars).for_each(|i| sums.add(i % BUCKETS, &poison));
    let named = named_share(&format_params, (0..).zip(sums.finish()).collect());
    let used = liars as f64 / (HONEST + liars) as f64;
    assert!((named / used - 1.0).abs() < 0.15, "{named} {used}");
}

/// Random seeds, but 6 % in every bucket that lie close to an axis: the check reads them, and its warning is among the
/// document's.
#[test]
fn chosen_seeds_are_in_the_document() {
    let params = params(8, MechanismKind::DoubleCap, 4.0);
    let mut rng = ChaCha20Rng::seed_from_u64(42);
    let mut z = vec![0.0; 8];
    // One random seed in 10,000 is this close.
    let mut seed = |place| loop {
        let seed: Seed = rng.random();
        let squared_length = expand(&seed, &mut z);
        if place >= 12 || z[5] * z[5] > 0.9 * squared_length {
            break seed;
        }
    };
    let buckets = (0..BUCKETS).map(|_| (0..200).map(&mut seed).collect());
    let seeds: Vec<Vec<Seed>> = buckets.collect();
    let estimate = document(Source::Seeds(&seeds), &params);
    let check = estimate.feasibility.unwrap();
    assert_eq!(check.verdict, Feasibility::Infeasible, "{check:?}");
    let warned = estimate
        .warning_codes
        .iter()
        .any(|code| code == "chosen-seeds");
    assert!(warned, "{:?}", estimate.warnings);
}
