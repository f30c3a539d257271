//! The table of `docs/experiments/poison.csv`: what poison moves, and what an analyst is told. Fixed seeds.
//! `cargo test --release -p eigenveil-estimation --test estimation poison_table:: -- --ignored --nocapture`.

use std::fmt::Write;

use eigenveil_estimation::{
    Cancel,
    accumulate::{Accumulator, ReportSum},
    estimate::principal_components,
    models::Model,
    moment::NoisyMoment,
    row_check::row_check,
    simulate::{Participants, RowSource},
};
use eigenveil_shared::{
    codec::StudyShape,
    estimate::{BucketVerdict, Rank, RowCheck, RowVerdict},
    mechanism::MechanismKind,
    study::StudyParams,
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::common::{
    experiment_csv, params,
    poison::{BUCKETS, Directions, cap, chosen, dense, honest, share_at, with_share},
};

const REPORTS: usize = 50_000;
const SHARES: [f64; 4] = [0.005, 0.01, 0.02, 0.05];
const EPSILON: f64 = 4.0;

/// What liars send.
#[derive(Clone, Copy)]
enum Attack {
    /// One seed again and again.
    Identical,
    /// The best of so many seeds, another one each time.
    Chosen(f64),
    /// Seeds that fill half of the room the check leaves, closest first.
    Within,
    /// The longest payload the norm test lets through.
    Dense,
}

impl Attack {
    fn name(self) -> String {
        match self {
            Attack::Identical => "identical seeds".to_owned(),
            Attack::Chosen(tries) => format!("best of 2^{}", tries.log2()),
            Attack::Within => "within the limits".to_owned(),
            Attack::Dense => "longest payload".to_owned(),
        }
    }
}

/// What the analyst sees of a study.
struct Seen {
    truth: f64,
    poison: f64,
    verdict: &'static str,
    buckets: &'static str,
}

fn seen(
    sums: &[(u32, Accumulator)],
    params: &StudyParams,
    truth: &DMatrix<f64>,
    v: &[f64],
) -> Seen {
    let sums = sums.iter().map(|(_, sum)| sum.clone()).collect();
    let moment = NoisyMoment::decode(sums, params).unwrap();
    let found = principal_components(&moment, Rank::Fixed(2), "").unwrap();
    let first = found.vectors.column(0);
    let agreement = found.bucket_agreement.unwrap();
    Seen {
        truth: (truth.transpose() * first).norm_squared(),
        poison: first.iter().zip(v).map(|(a, b)| a * b).sum::<f64>().powi(2),
        verdict: found.assessment.components[0].verdict.as_str(),
        buckets: match agreement.verdict {
            BucketVerdict::Agree => "agree",
            BucketVerdict::Disagree => "disagree",
        },
    }
}

/// Bucket of the `i`-th liar.
fn place(i: usize, batch: bool) -> usize {
    if batch { 8 } else { i % BUCKETS }
}

fn line(
    table: &mut String,
    params: &StudyParams,
    study: &str,
    before: &Seen,
    now: &Seen,
    check: &RowCheck,
) {
    let (found, limit) = check.seeds.as_ref().map_or_else(Default::default, |s| {
        (s.found.to_string(), s.limit.to_string())
    });
    writeln!(
        table,
        "{},{},{study},{:.2},{:.2},{},{},{:.2},{:.2},{},{},{},{:.3},{:.3},{found},{limit}",
        params.mechanism().kind(),
        params.dimension(),
        before.truth,
        before.poison,
        before.verdict,
        before.buckets,
        now.truth,
        now.poison,
        now.verdict,
        now.buckets,
        match check.verdict {
            RowVerdict::Possible => "possible",
            RowVerdict::Impossible => "impossible",
        },
        check.length.found,
        check.length.limit,
    )
    .unwrap();
    println!("{}", table.lines().last().unwrap());
}

/// A direction across the two true ones.
fn across(truth: &DMatrix<f64>, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let start = nalgebra::DVector::from_fn(truth.nrows(), |_, _| StandardNormal.sample(rng));
    let rest = &start - truth * (truth.transpose() * &start);
    rest.normalize().iter().copied().collect()
}

fn double_cap(table: &mut String, p: usize, rng: &mut ChaCha20Rng) {
    let params = params(p, MechanismKind::DoubleCap, EPSILON);
    let model = RowSource::Model(Model::Spiked {
        p,
        k: 2,
        spike: 20.0 * (p as f64 / 40.0),
    });
    let people = Participants::draw(&model, 2, &params, rng).unwrap();
    let v = across(people.truth(), rng);
    let mut clean = Directions::new();
    let mut i = 0;
    people
        .visit(REPORTS as u64, rng, |row, _, rng| {
            clean.buckets[i % BUCKETS].push(honest(cap(&params), row.as_slice(), rng));
            i += 1;
            Ok(())
        })
        .unwrap();
    let none = seen(&clean.sums(p), &params, people.truth(), &v);
    line(
        table,
        &params,
        "none,0,-",
        &none,
        &none,
        &clean.check(&params),
    );
    let attacks = [
        Attack::Identical,
        Attack::Chosen(1024.0),
        Attack::Chosen(1_048_576.0),
        Attack::Chosen(1_073_741_824.0),
        Attack::Within,
    ];
    for (attack, batch) in attacks.iter().flat_map(|a| [(*a, false), (*a, true)]) {
        for share in SHARES {
            let liars = (share * REPORTS as f64) as usize;
            let room = 2.0 * share / cap(&params).parameters().expected_tries();
            // Liars take the places of the last reports of each bucket, and are taken back afterwards.
            let lengths: Vec<usize> = clean.buckets.iter().map(Vec::len).collect();
            for i in 0..liars {
                let g = match attack {
                    Attack::Identical => v.clone(),
                    Attack::Chosen(tries) => chosen(&v, tries, rng),
                    _ => with_share(&v, share_at(p, room * rng.random::<f64>()), rng),
                };
                clean.buckets[place(i, batch)].push(g);
            }
            let before = seen(&clean.sums(p), &params, people.truth(), &v);
            if let Attack::Identical = attack {
                // Counted once: one is left of them all.
                let keep =
                    |(bucket, length): (&mut Vec<Vec<f64>>, &usize)| bucket.truncate(*length);
                clean.buckets.iter_mut().zip(&lengths).for_each(keep);
                clean.buckets[place(0, batch)].push(v.clone());
            }
            let now = seen(&clean.sums(p), &params, people.truth(), &v);
            let placed = if batch { "one batch" } else { "spread" };
            let study = format!("{},{share},{placed}", attack.name());
            line(table, &params, &study, &before, &now, &clean.check(&params));
            for (bucket, length) in clean.buckets.iter_mut().zip(&lengths) {
                bucket.truncate(*length);
            }
        }
    }
}

fn gaussian(table: &mut String, p: usize, rng: &mut ChaCha20Rng) {
    let params = params(p, MechanismKind::SymmetricGaussian, EPSILON);
    let model = RowSource::Model(Model::Spiked {
        p,
        k: 2,
        spike: 20.0,
    });
    let people = Participants::draw(&model, 2, &params, rng).unwrap();
    let v = across(people.truth(), rng);
    let shape = StudyShape::new(&params);
    let sum = || ReportSum::new(params.mechanism(), p).unwrap();
    let mut clean: Vec<ReportSum> = (0..BUCKETS).map(|_| sum()).collect();
    let mut i = 0;
    people
        .visit(REPORTS as u64, rng, |row, _, rng| {
            i += 1;
            clean[i % BUCKETS].add(&shape.payload(params.mechanism().perturb_with(row, rng))?)
        })
        .unwrap();
    let clean: Vec<Accumulator> = clean.into_iter().map(|sum| sum.finish().unwrap()).collect();
    let poison = shape.payload(dense(&params, &v)).unwrap();
    for batch in [false, true] {
        for share in [0.0].into_iter().chain(SHARES) {
            let mut lies: Vec<ReportSum> = (0..BUCKETS).map(|_| sum()).collect();
            for i in 0..(share * REPORTS as f64) as usize {
                lies[place(i, batch)].add(&poison).unwrap();
            }
            let sums: Vec<(u32, Accumulator)> = (0..)
                .zip(&clean)
                .zip(lies)
                .map(|((number, clean), lies)| {
                    let mut sum = clean.clone();
                    sum.merge(&lies.finish().unwrap()).unwrap();
                    (number, sum)
                })
                .collect();
            let now = seen(&sums, &params, people.truth(), &v);
            let check = row_check(&sums, &params, None, Cancel::NEVER)
                .unwrap()
                .unwrap();
            let placed = if batch { "one batch" } else { "spread" };
            let study = format!("{},{share},{placed}", Attack::Dense.name());
            line(table, &params, &study, &now, &now, &check);
        }
    }
}

#[test]
#[ignore = "minutes; writes docs/experiments/poison.csv"]
fn the_table_of_poison() {
    let mut table = "mechanism,p,attack,share,placed,truth_before,poison_before,verdict_before,buckets_before,truth,poison,verdict,buckets,rows,length,length_limit,seeds_close,seeds_limit\n".to_owned();
    let mut rng = ChaCha20Rng::seed_from_u64(18);
    double_cap(&mut table, 40, &mut rng);
    gaussian(&mut table, 40, &mut rng);
    double_cap(&mut table, 400, &mut rng);
    std::fs::write(experiment_csv("poison"), table).unwrap();
}
