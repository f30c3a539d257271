//! Does the time that a device takes reveal anything about its row? Worst pairs of rows, for every mechanism.
//!
//! The two rows of a pair are perturbed in turns, so that the machine's moods hit both; a time is a mean over a batch.
//! Printed for each pair: the median times, their ratio, the ratio of the first row against itself (the
//! null: what noise alone does), and how often the best threshold on one time, found in the first half, names the row
//! right in the second half (50 % is guessing; the same for the null).
//!
//! `cargo bench -p eigenveil-shared --bench timing [-- ROUNDS [P…]]`

use std::{hint::black_box, time::Instant};

use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Feature, Row},
    study::{StudyDesign, StudyParams},
};

const DIMENSIONS: [usize; 4] = [40, 400, 1_000, 4_000];

/// A pair of raw rows with the public constants that make it hard.
struct Pair {
    name: &'static str,
    /// A feature with the constants of all, but without a name.
    feature: Option<Feature>,
    rows: [Vec<f64>; 2],
}

fn pairs(p: usize) -> Vec<Pair> {
    let axis_beside = |others: f64| {
        let mut row = vec![others; p];
        row[0] = 1.0;
        row
    };
    let axis = axis_beside(0.0);
    let flat = |value: f64| vec![value; p];
    // Half of the cells, in places that a branch predictor does not learn.
    let irregular = |some: f64| -> Vec<f64> {
        let cell = |j: usize| {
            let z = (j as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let bit = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 63;
            if bit == 0 { some } else { 1.0 }
        };
        (0..p).map(cell).collect()
    };
    let pair = |name, feature, first, second| Pair {
        name,
        feature,
        rows: [first, second],
    };
    let axis_row = || axis.clone();
    let public = |center| Some(Feature::new("", center, 1.0));
    vec![
        pair("axis / flat", None, axis_row(), flat(1.0)),
        pair("axis / zero row", None, axis_row(), flat(0.0)),
        pair(
            "axis / axis with 1e-155 beside it",
            None,
            axis_row(),
            axis_beside(1e-155),
        ),
        pair(
            "axis / axis with 1e-310 beside it",
            None,
            axis_row(),
            axis_beside(1e-310),
        ),
        pair(
            "center 3: at it / off it",
            public(3.0),
            flat(3.0),
            flat(4.0),
        ),
        pair("unusable (NaN) / usable", None, flat(f64::NAN), flat(1.0)),
        pair(
            "zeros here and there / ones",
            None,
            irregular(0.0),
            flat(1.0),
        ),
        pair(
            "the same with public constants",
            public(0.0),
            irregular(0.0),
            flat(1.0),
        ),
        pair(
            "cells missing here and there / none",
            public(0.0).map(|feature| feature.observed(0.5)),
            irregular(f64::NAN),
            flat(1.0),
        ),
    ]
}

fn main() {
    let numbers = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let rounds = numbers.first().copied().unwrap_or(200);
    let dimensions = match &numbers[..] {
        [_, dimensions @ ..] if !dimensions.is_empty() => dimensions,
        _ => &DIMENSIONS[..],
    };
    println!(
        "| mechanism | p | rows | median, μs | ratio | ratio of the null | guessed right | null |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for &p in dimensions {
        for (kind, epsilon) in [
            (MechanismKind::DoubleCap, 0.5),
            (MechanismKind::DoubleCap, 4.0),
            (MechanismKind::SymmetricGaussian, 4.0),
            (MechanismKind::IsotropicGaussian, 4.0),
            (MechanismKind::DiscreteGaussian, 4.0),
        ] {
            // A second a report, and nothing to learn beyond p = 400.
            if kind == MechanismKind::DiscreteGaussian && p > 400 {
                continue;
            }
            for pair in pairs(p) {
                measure(kind, epsilon, p, &pair, rounds);
            }
        }
    }
}

fn measure(kind: MechanismKind, epsilon: f64, p: usize, pair: &Pair, rounds: usize) {
    let features = pair.feature.as_ref().map(|feature| {
        let named = |j| Feature {
            name: format!("x{j}"),
            ..feature.clone()
        };
        (0..p).map(named).collect()
    });
    let budget = kind.budget(epsilon, None).expect("in range");
    let params = StudyParams::freeze(StudyDesign {
        features,
        ..StudyDesign::new(kind, p, budget)
    });
    let params = params.expect("in range");
    let rows = pair.rows.clone().map(Row::new);
    let once = |row: &Row| {
        let bounded = params.preprocessor().prepare(black_box(row));
        let bounded = bounded.expect("p values");
        black_box(params.mechanism().perturb(&bounded).expect("randomness"));
    };
    // A batch lasts some 50 μs at least.
    let origin = Instant::now();
    once(&rows[0]);
    let batch = (5e-5 / origin.elapsed().as_secs_f64()).ceil();
    let batch = batch.clamp(1.0, 50.0) as usize;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..3 * rounds {
        // In turns, beginning with another one each round: first row, second row, first row again.
        let which = (round + round / 3) % 3;
        let origin = Instant::now();
        for _ in 0..batch {
            once(&rows[which % 2]);
        }
        times[which].push(origin.elapsed().as_secs_f64() * 1e6 / batch as f64);
    }
    let medians = times.each_ref().map(|times| median(times));
    println!(
        "| {kind}, ε = {epsilon} | {p} | {} | {:.1}, {:.1} | {:.3} | {:.3} | {:.0} % | {:.0} % ± {:.0} |",
        pair.name,
        medians[0],
        medians[1],
        medians[1] / medians[0],
        medians[2] / medians[0],
        guessed(&times[0], &times[1]),
        guessed(&times[0], &times[2]),
        50.0 / (rounds as f64).sqrt(),
    );
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Percent of times in the second half whose row the best threshold of the first half names.
fn guessed(a: &[f64], b: &[f64]) -> f64 {
    let (a_first, a_second) = a.split_at(a.len() / 2);
    let (b_first, b_second) = b.split_at(b.len() / 2);
    let right = |a: &[f64], b: &[f64], threshold: f64| {
        let below = |times: &[f64]| {
            times.iter().filter(|time| **time <= threshold).count() as f64 / times.len() as f64
        };
        (below(a) + 1.0 - below(b)) / 2.0
    };
    let best = |score: &dyn Fn(f64) -> f64| {
        let all = a_first.iter().chain(b_first).copied();
        let best = all.max_by(|x, y| score(*x).total_cmp(&score(*y)));
        best.unwrap_or(0.0)
    };
    let up = best(&|threshold| right(a_first, b_first, threshold));
    let down = best(&|threshold| 1.0 - right(a_first, b_first, threshold));
    let flip = 1.0 - right(a_first, b_first, down) > right(a_first, b_first, up);
    100.0
        * match flip {
            true => 1.0 - right(a_second, b_second, down),
            false => right(a_second, b_second, up),
        }
}
