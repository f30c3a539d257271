//! Poisoned studies: honest reports' directions drawn from the mechanism's distribution, and chosen ones.

use eigenveil_estimation::{
    accumulate::{Accumulator, SeedSum},
    feasibility::{SampleSplit, SeedCounts, judge},
    search::bisect,
};
use eigenveil_shared::{
    codec::ReportFormat,
    estimate::FeasibilityCheck,
    mechanism::{
        Mechanism,
        double_cap::{DoubleCap, uniform_tail},
    },
    study::StudyParams,
};
use rand::{Rng, RngExt};
use rand_distr::{ChiSquared, Distribution, StandardNormal};

/// Buckets of a study.
pub const BUCKETS: usize = 32;

/// The constants of `double-cap`.
pub fn cap(params: &StudyParams) -> &DoubleCap {
    match params.mechanism() {
        Mechanism::DoubleCap(cap) => cap,
        _ => panic!("another mechanism"),
    }
}

/// A direction of length one whose squared cosine with the unit vector `along` is `share`.
pub fn with_share(along: &[f64], share: f64, rng: &mut impl Rng) -> Vec<f64> {
    let mut g: Vec<f64> = along.iter().map(|_| StandardNormal.sample(rng)).collect();
    let inside: f64 = g.iter().zip(along).map(|(g, v)| g * v).sum();
    g.iter_mut().zip(along).for_each(|(g, v)| *g -= inside * v);
    let across = g.iter().map(|g| g * g).sum::<f64>().sqrt();
    let sign = if rng.random() { 1.0 } else { -1.0 };
    for (g, v) in g.iter_mut().zip(along) {
        *g = sign * share.sqrt() * v + (1.0 - share).sqrt() * *g / across;
    }
    g
}

/// The direction that a device with this unit row releases: a uniform squared cosine, accepted if it is in the cap or
/// by a coin.
pub fn honest(cap: &DoubleCap, row: &[f64], rng: &mut impl Rng) -> Vec<f64> {
    let across = ChiSquared::new(row.len() as f64 - 1.0).unwrap();
    let constants = cap.parameters();
    loop {
        let along: f64 = StandardNormal.sample(rng);
        let rest: f64 = across.sample(rng);
        let share = along * along / (along * along + rest);
        if share > constants.threshold || rng.random::<f64>() < (-constants.epsilon).exp() {
            return with_share(row, share, rng);
        }
    }
}

/// The best of this many random seeds: the one closest to `along`.
pub fn best_of(along: &[f64], seeds: f64, rng: &mut impl Rng) -> Vec<f64> {
    let tail = -(f64::ln_1p(-rng.random::<f64>()) / seeds).exp_m1();
    with_share(along, share_at(along.len(), tail), rng)
}

/// The squared cosine that a random direction exceeds with this probability.
pub fn share_at(p: usize, tail: f64) -> f64 {
    bisect(0.0, 1.0, 60, |squared| uniform_tail(1, p, squared) > tail).0
}

/// A study of directions, bucket by bucket, stored because the check reads them twice.
pub struct Directions {
    pub buckets: Vec<Vec<Vec<f64>>>,
}

impl Directions {
    pub fn new() -> Self {
        Self {
            buckets: vec![Vec::new(); BUCKETS],
        }
    }

    /// Their sums, by number of the bucket.
    pub fn sums(&self, p: usize) -> Vec<(u32, Accumulator)> {
        let of_bucket = |bucket: &Vec<Vec<f64>>| {
            let mut sum = SeedSum::new(p).unwrap();
            bucket.iter().for_each(|g| sum.add_direction(g));
            sum.finish().unwrap()
        };
        (0..).zip(self.buckets.iter().map(of_bucket)).collect()
    }

    /// The feasibility check, as the server runs it on stored seeds.
    pub fn check(&self, params: &StudyParams) -> FeasibilityCheck {
        let sums = self.sums(params.report_dimension());
        let split = SampleSplit::new(&sums, params).unwrap().unwrap();
        let mut counts = SeedCounts::new(&split.directions, cap(params).parameters());
        for bucket in self.buckets.iter().skip(1).step_by(2) {
            bucket.iter().for_each(|g| counts.add_direction(g));
        }
        let seeds = counts.finish();
        judge(&split, params, seeds)
    }
}

/// The longest payload along the unit vector `v` that passes the norm test, for the mechanisms with numbers.
pub fn dense(params: &StudyParams, v: &[f64]) -> Vec<u8> {
    let p = v.len();
    let format = ReportFormat::new(params);
    let discrete = matches!(params.mechanism(), Mechanism::DiscreteGaussian(_));
    let payload = |length: f64| -> Vec<u8> {
        let entries = (0..p).flat_map(|i| (i..p).map(move |j| (i, j)));
        entries
            .flat_map(|(i, j)| match discrete {
                true => ((length * v[i] * v[j]) as i32).to_le_bytes(),
                false => ((length * v[i] * v[j]) as f32).to_le_bytes(),
            })
            .collect()
    };
    let passes = |length| format.payload(payload(length)).is_ok();
    payload(bisect(0.0, 2e9, 60, passes).0)
}
