//! The distribution of one `double-cap` report, drawn from the sum and report by report, against exact moments.

use std::collections::BTreeMap;

use eigenveil_shared::{
    mechanism::{
        Calibration, Mechanism, MechanismKind,
        double_cap::{DoubleCap, DoubleCapParameters, expand},
    },
    preprocess::{BoundedRow, Norm, Preprocessing, Row},
    privacy::Budget,
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use super::DirectionDistribution;

const DIMENSIONS: [usize; 5] = [2, 3, 10, 40, 400];
const EPSILONS: [f64; 5] = [0.1, 1.0, 2.0, 4.0, 8.0];
/// Lengths of rows: unit, short, zero.
const LENGTHS: [f64; 3] = [1.0, 0.6, 0.0];

/// Directions in the coordinates (u, q₁, q₂): u the row's, q₁ and q₂ orthogonal to it.
const SIGNAL: [f64; 3] = [1.0, 0.0, 0.0];
const FIRST_MIXED: [f64; 3] = [0.8, 0.6, 0.0];
const SECOND_MIXED: [f64; 3] = [0.6, -0.8, 0.0];
const FIRST_BULK: [f64; 3] = [0.0, 1.0, 0.0];
const SECOND_BULK: [f64; 3] = [0.0, 0.0, 1.0];

/// Pairs (v, w), orthonormal or equal, that fit into dimension p.
fn pairs(p: usize) -> Vec<([f64; 3], [f64; 3])> {
    let mut pairs = vec![
        (SIGNAL, SIGNAL),
        (FIRST_MIXED, FIRST_MIXED),
        (FIRST_BULK, FIRST_BULK),
        (FIRST_MIXED, SECOND_MIXED),
        (SIGNAL, FIRST_BULK),
    ];
    if p > 2 {
        pairs.extend([(FIRST_MIXED, SECOND_BULK), (FIRST_BULK, SECOND_BULK)]);
    }
    pairs
}

/// A polynomial in (√B, h₁, h₂): exponents to coefficient.
type Polynomial = BTreeMap<[usize; 3], f64>;

fn times(a: &Polynomial, b: &Polynomial) -> Polynomial {
    let mut product = Polynomial::new();
    for (x, s) in a {
        for (y, t) in b {
            *product
                .entry([x[0] + y[0], x[1] + y[1], x[2] + y[2]])
                .or_default() += s * t;
        }
    }
    product
}

fn linear(v: [f64; 3]) -> Polynomial {
    [([1, 0, 0], v[0]), ([0, 1, 0], v[1]), ([0, 0, 1], v[2])].into()
}

fn constant(value: f64) -> Polynomial {
    [([0, 0, 0], value)].into()
}

fn plus(a: &Polynomial, b: &Polynomial) -> Polynomial {
    let mut sum = a.clone();
    for (x, t) in b {
        *sum.entry(*x).or_default() += t;
    }
    sum
}

/// Expectations over a released g of a unit row (`lean = e^ε − 1`) or of no row (`lean = 0`), by
/// quadrature over the angle to the row: nothing of `DoubleCapMoments` is used.
///
/// g = √B·u + h with h = (h₁, h₂, …) of length √(1−B), uniform of direction in p − 1 dimensions.
struct ReleasedDirection {
    p: f64,
    /// `E B^i (1−B)^j`.
    shares: [[f64; 5]; 5],
}

impl ReleasedDirection {
    fn new(parameters: &DoubleCapParameters, lean: f64) -> Self {
        let p = parameters.dimension as f64;
        // B = sin²φ has density ∝ cos^(p−2)φ; the cap is φ > asin √τ. Simpson's rule on both sides of it.
        let limit = parameters.threshold.sqrt().asin();
        let mut nodes = Vec::new();
        for (low, high, factor) in [
            (0.0, limit, 1.0),
            (limit, std::f64::consts::FRAC_PI_2, 1.0 + lean),
        ] {
            const STEPS: usize = 4_000;
            let step = (high - low) / STEPS as f64;
            for i in 0..=STEPS {
                let angle = low + step * i as f64;
                let simpson = match i {
                    0 | STEPS => 1.0,
                    i if i % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                let density = angle.cos().max(0.0).powf(p - 2.0);
                nodes.push((angle, simpson * step * density * factor));
            }
        }
        let total: f64 = nodes.iter().map(|(_, weight)| weight).sum();
        let mut shares = [[0.0; 5]; 5];
        for (angle, weight) in nodes {
            let share = angle.sin().powi(2);
            for (i, row) in shares.iter_mut().enumerate() {
                for (j, expectation) in row.iter_mut().enumerate() {
                    *expectation +=
                        weight / total * share.powi(i as i32) * (1.0 - share).powi(j as i32);
                }
            }
        }
        Self { p, shares }
    }

    fn expectation(&self, polynomial: &Polynomial) -> f64 {
        // E Π dᵢ^(2mᵢ) of a uniform direction in p − 1 dimensions: Π(2mᵢ−1)!! / Π_{l<m}(p−1+2l).
        let odd_factorial = |m: usize| (0..m).map(|l| (2 * l + 1) as f64).product::<f64>();
        let even = polynomial
            .iter()
            .filter(|(x, _)| x.iter().all(|e| e % 2 == 0));
        even.map(|(x, coefficient)| {
            let [i, a, b] = x.map(|exponent| exponent / 2);
            let below: f64 = (0..a + b).map(|l| self.p - 1.0 + 2.0 * l as f64).product();
            coefficient * self.shares[i][a + b] * odd_factorial(a) * odd_factorial(b) / below
        })
        .sum()
    }
}

/// Mean, variance and variance of the squared deviation of `vᵀDw`, one report.
struct Exact {
    mean: f64,
    variance: f64,
    /// Variance of `(vᵀDw − mean)²`.
    square_variance: f64,
}

fn exact(
    parameters: &DoubleCapParameters,
    [unit, uniform]: &[ReleasedDirection; 2],
    length: f64,
    (v, w): ([f64; 3], [f64; 3]),
) -> Exact {
    let p = parameters.dimension as f64;
    let same = v.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
    // p = 2 has no second direction across the row.
    let product = times(&linear(v), &linear(w));
    let report = plus(&product, &constant(-same / p));
    let report = times(&constant(parameters.scale), &report);
    let squared_length = length * length;
    let expect = |f: &Polynomial| {
        squared_length * unit.expectation(f) + (1.0 - squared_length) * uniform.expectation(f)
    };
    let mean = expect(&report);
    let deviation = plus(&report, &constant(-mean));
    let square = times(&deviation, &deviation);
    let variance = expect(&square);
    Exact {
        mean,
        variance,
        square_variance: expect(&times(&square, &square)) - variance * variance,
    }
}

fn double_cap(p: usize, epsilon: f64) -> DoubleCap {
    let (kind, budget) = (MechanismKind::DoubleCap, Budget::pure(epsilon).unwrap());
    match Mechanism::derive(kind, Calibration::Analytic, p, budget).unwrap() {
        Mechanism::DoubleCap(cap) => cap,
        other => panic!("{other:?}"),
    }
}

fn parameters(p: usize, epsilon: f64) -> (DoubleCap, [ReleasedDirection; 2]) {
    let cap = double_cap(p, epsilon);
    let constants = cap.parameters();
    let released = [epsilon.exp_m1(), 0.0].map(|lean| ReleasedDirection::new(&constants, lean));
    (cap, released)
}

/// u, q₁ and q₂ as vectors, none of them along an axis; q₂ is zero for p = 2.
fn frame(p: usize) -> [Vec<f64>; 3] {
    let mut frame: [Vec<f64>; 3] = [vec![], vec![], vec![]];
    for k in 0..3.min(p) {
        let mut q: Vec<f64> = (0..p)
            .map(|i| ((1 + k) as f64 * (i as f64 + 0.7)).sin() + 0.2)
            .collect();
        for _ in 0..2 {
            for earlier in &frame[..k] {
                let dot: f64 = q.iter().zip(earlier).map(|(a, b)| a * b).sum();
                q.iter_mut().zip(earlier).for_each(|(a, b)| *a -= dot * b);
            }
        }
        let length = q.iter().map(|a| a * a).sum::<f64>().sqrt();
        q.iter_mut().for_each(|a| *a /= length);
        frame[k] = q;
    }
    if p == 2 {
        frame[2] = vec![0.0; 2];
    }
    frame
}

fn bounded(row: Vec<f64>) -> BoundedRow {
    let preprocessing = Preprocessing::new(row.len(), Norm::Clip { radius: 1.0 });
    let preprocessor = preprocessing.preprocessor().unwrap();
    preprocessor.prepare(&Row::new(row)).unwrap()
}

/// Draws directions of a row of length r along u and compares means and variances with the exact ones.
///
/// Every mean is within 6.5 of its exact standard deviations and every mean square deviation within 8
/// of its own. For the first that is 8e-11 by the normal distribution, with room for the skewness of these
/// numbers at 5,000 draws and more. Squares are heavy-tailed (at worst that of a χ²₁ variable), and the
/// likeliest way past 8 is one huge draw: n·P(one draw reaches 8 − z)·P(normal > z) is below 1e-10 at
/// every z. With fewer than 3,000 of both in all tests of this file: false alarms below 1e-6.
fn check_against_exact_moments(
    what: &str,
    cap: &DoubleCap,
    released: &[ReleasedDirection; 2],
    r: f64,
    draws: usize,
    mut draw: impl FnMut(&BoundedRow, &mut [f64]),
) {
    assert!(draws >= 5_000);
    let constants = cap.parameters();
    let p = constants.dimension;
    let frame = frame(p);
    let row = bounded(frame[0].iter().map(|u| r * u).collect());
    let pairs = pairs(p);
    let exact_moments: Vec<Exact> = pairs
        .iter()
        .map(|&pair| exact(&constants, released, r, pair))
        .collect();
    let mut sums = vec![(0.0, 0.0); pairs.len()];
    let mut g = vec![0.0; p];
    for _ in 0..draws {
        draw(&row, &mut g);
        let along = [0, 1, 2].map(|k| frame[k].iter().zip(&g).map(|(a, b)| a * b).sum::<f64>());
        let on = |v: [f64; 3]| v.iter().zip(along).map(|(a, b)| a * b).sum::<f64>();
        for ((&(v, w), exact_moments), (first, second)) in
            pairs.iter().zip(&exact_moments).zip(&mut sums)
        {
            let trace = if v == w { 1.0 / p as f64 } else { 0.0 };
            let deviation = constants.scale * (on(v) * on(w) - trace) - exact_moments.mean;
            *first += deviation;
            *second += deviation * deviation - exact_moments.variance;
        }
    }
    let root = (draws as f64).sqrt();
    for ((pair, exact_moments), (first, second)) in pairs.iter().zip(&exact_moments).zip(&sums) {
        let mean = first / (root * exact_moments.variance.sqrt());
        let square = second / (root * exact_moments.square_variance.sqrt());
        let context = format!("{what}, {constants:?}, r = {r}, {pair:?}: {mean} {square}");
        assert!(mean.abs() < 6.5, "the mean: {context}");
        assert!(square.abs() < 8.0, "the variance: {context}");
    }
}

#[test]
fn direct_sampling_has_the_exact_means_and_variances() {
    for (i, p) in DIMENSIONS.into_iter().enumerate() {
        for (j, epsilon) in EPSILONS.into_iter().enumerate() {
            let (cap, released) = parameters(p, epsilon);
            let exact_moments = DirectionDistribution::new(&cap.parameters()).unwrap();
            let mut rng = ChaCha20Rng::seed_from_u64((10 * i + j) as u64);
            for r in LENGTHS {
                check_against_exact_moments(
                    "exact_moments",
                    &cap,
                    &released,
                    r,
                    20_000,
                    |row, g| {
                        exact_moments.sample(row.as_slice(), &mut rng, g);
                    },
                );
            }
        }
    }
}

#[test]
fn device_reports_have_the_exact_means_and_variances() {
    for (i, p) in DIMENSIONS.into_iter().enumerate() {
        for (j, epsilon) in EPSILONS.into_iter().enumerate() {
            // Skipped: they take long.
            if p == 400 && epsilon > 2.0 {
                continue;
            }
            let (cap, released) = parameters(p, epsilon);
            // Numbers drawn for one report.
            let cost = cap.parameters().expected_attempts() * p as f64;
            let draws = (1e7 / cost).clamp(5_000.0, 10_000.0) as usize;
            let mut rng = ChaCha20Rng::seed_from_u64((100 + 10 * i + j) as u64);
            for r in LENGTHS {
                check_against_exact_moments("device", &cap, &released, r, draws, |row, g| {
                    let (seed, _) = cap.draw_counting_attempts(row, &mut rng);
                    let length = expand(&seed, g).sqrt();
                    g.iter_mut().for_each(|g| *g /= length);
                });
            }
        }
    }
}
