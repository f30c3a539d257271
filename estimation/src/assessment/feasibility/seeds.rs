//! How many seeds lie close to directions chosen without looking at them.

use std::sync::Mutex;

use eigenveil_shared::{
    estimate::SeedCheck,
    mechanism::double_cap::{DoubleCapParameters, Seed, expand, uniform_tail},
};
use nalgebra::DMatrix;

use super::split::SHARE;
use crate::{linalg::parallel_for_each, search::bisect};

/// Sets looked at around each direction and space: caps that a random seed hits with probability 4⁻¹ to 4⁻²⁰.
const LEVELS: usize = 20;
/// Seeds that a thread expands at a time.
const BLOCK: usize = 256;
/// A threshold nearer to 1 is left out: rounding could carry a squared cosine over it.
const MAX_THRESHOLD: f64 = 1.0 - 1e-9;

/// One of the spaces looked at: direction `first`, or the span of the leading `dimension` ones.
struct Region {
    first: usize,
    dimension: usize,
    /// Squared lengths that a random direction's part in the space exceeds with probability `chances`; ascending.
    thresholds: Vec<f64>,
    chances: Vec<f64>,
}

/// Counts the directions of reports in caps around given directions and around the spaces they span.
pub struct SeedCounts<'a> {
    directions: &'a DMatrix<f64>,
    parameters: DoubleCapParameters,
    regions: Vec<Region>,
    /// For each space, how many reports exceed exactly 1, 2, … of its thresholds.
    counts: Vec<[u64; LEVELS]>,
    reports: u64,
}

impl<'a> SeedCounts<'a> {
    /// Nothing counted yet. `directions` (`p × d`, orthonormal, d < p) must not depend on the reports to be counted.
    pub fn new(directions: &'a DMatrix<f64>, parameters: DoubleCapParameters) -> Self {
        let (p, d) = directions.shape();
        let singles = (0..d).map(|first| (first, 1));
        let spaces = (2..=d.min(p.saturating_sub(1))).map(|dimension| (0, dimension));
        let regions: Vec<Region> = singles
            .chain(spaces)
            .map(|(first, dimension)| {
                let thresholds: Vec<f64> = (1..=LEVELS as i32)
                    .map(|level| threshold(dimension, p, 0.25_f64.powi(level)))
                    .take_while(|&t| t < MAX_THRESHOLD)
                    .collect();
                Region {
                    first,
                    dimension,
                    chances: thresholds
                        .iter()
                        .map(|&t| uniform_tail(dimension, p, t))
                        .collect(),
                    thresholds,
                }
            })
            .collect();
        Self {
            directions,
            parameters,
            counts: vec![[0; LEVELS]; regions.len()],
            regions,
            reports: 0,
        }
    }

    /// Counts seeds, distributed over the threads.
    pub fn add_seeds(&mut self, seeds: &[Seed]) {
        let (regions, directions) = (&self.regions, self.directions);
        let total = Mutex::new(&mut self.counts);
        parallel_for_each(seeds.chunks(BLOCK), |some| {
            let mut counts = vec![[0; LEVELS]; regions.len()];
            let mut normals = vec![0.0; directions.nrows()];
            for seed in some {
                let squared_length = expand(seed, &mut normals);
                count(regions, directions, &normals, squared_length, &mut counts);
            }
            let mut total = total
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            for (total, counts) in total.iter_mut().flatten().zip(counts.iter().flatten()) {
                *total += counts;
            }
        });
        self.reports += seeds.len() as u64;
    }

    /// Counts a direction (of any length) that needs no expansion from a seed, as in a simulation.
    pub fn add_direction(&mut self, direction: &[f64]) {
        let squared_length = direction.iter().map(|x| x * x).sum();
        count(
            &self.regions,
            self.directions,
            direction,
            squared_length,
            &mut self.counts,
        );
        self.reports += 1;
    }

    /// The cap whose number of reports is the least likely; `None` without reports.
    ///
    /// A cap that a random seed hits with probability u contains a report with probability π ≤ (u + (e^ε − 1)·min(q,
    /// u))/Z, whatever its row: the mechanism makes at most q of all directions e^ε times as likely as the others. It
    /// contains k or more of n independent reports with probability `exp(−n·KL(k/n‖π))` at most (Chernoff, Hoeffding).
    pub fn finish(&self) -> Option<SeedCheck> {
        let n = self.reports as f64;
        let sets: usize = self.regions.iter().map(|place| place.chances.len()).sum();
        let ln_alarms = (sets as f64 / SHARE).ln();
        let DoubleCapParameters {
            epsilon,
            cap_probability,
            ..
        } = self.parameters;
        let mut worst: Option<(f64, SeedCheck)> = None;
        for (place, counts) in self.regions.iter().zip(&self.counts) {
            let mut count = 0;
            let caps = place.chances.iter().zip(counts).rev();
            for (&chance, &only) in caps {
                count += only;
                let share = (chance + epsilon.exp_m1() * chance.min(cap_probability))
                    / self.parameters.normalizer();
                let evidence = n * divergence(count as f64 / n, share);
                if self.reports == 0 || worst.as_ref().is_some_and(|(most, _)| *most >= evidence) {
                    continue;
                }
                let check = SeedCheck {
                    direction: place.first + place.dimension,
                    is_subspace: place.dimension > 1,
                    null_probability: chance,
                    found: count,
                    expected: n * share,
                    limit: limit(self.reports, share, ln_alarms),
                    sampled: Some(self.reports),
                };
                worst = Some((evidence, check));
            }
        }
        worst.map(|(_, check)| check)
    }
}

fn count(
    regions: &[Region],
    directions: &DMatrix<f64>,
    direction: &[f64],
    squared_length: f64,
    counts: &mut [[u64; LEVELS]],
) {
    let p = direction.len();
    let d = directions.ncols();
    let mut squares = [0.0; super::split::MAX_DIRECTIONS];
    let mut inside = 0.0;
    let mut spaces = [0.0; super::split::MAX_DIRECTIONS];
    let columns = directions.as_slice().chunks_exact(p.max(1));
    for ((column, square), space) in columns.zip(&mut squares).zip(&mut spaces) {
        let product: f64 = column.iter().zip(direction).map(|(v, g)| v * g).sum();
        *square = product * product / squared_length;
        inside += *square;
        *space = inside;
    }
    let parts = squares[..d].iter().chain(&spaces[1.min(d)..d]);
    for ((place, part), counts) in regions.iter().zip(parts).zip(counts) {
        let exceeded = place.thresholds.iter().take_while(|t| part > *t).count();
        if let Some(last) = exceeded.checked_sub(1) {
            counts[last] += 1;
        }
    }
}

/// The squared length that a random direction's part in a space of this dimension exceeds with this probability.
fn threshold(dimension: usize, p: usize, probability: f64) -> f64 {
    bisect(0.0, 1.0, 60, |x| {
        uniform_tail(dimension, p, x) > probability
    })
    .1
}

/// KL divergence between coins of these probabilities; 0 where the first is not above the second.
fn divergence(found: f64, share: f64) -> f64 {
    if found <= share {
        return 0.0;
    }
    let misses = match 1.0 - found {
        left if left > 0.0 => left * (left / (1.0 - share)).ln(),
        _ => 0.0,
    };
    found * (found / share).ln() + misses
}

/// The smallest number of n reports whose probability is at most e^{−ln_alarms}; more than n if there is none.
fn limit(n: u64, share: f64, ln_alarms: f64) -> u64 {
    let (mut low, mut high) = (0, n + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if n as f64 * divergence(middle as f64 / n as f64, share) >= ln_alarms {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}
