//! Sums, noise and decoding of tables: against a second implementation, the definitions, and bounds under attack.
//!
//! False alarms: 120 z-scores are compared with 5.5 standard deviations, so a correct program fails for one choice of
//! seeds in 200,000.

use std::{num::NonZero, ops::Range};

use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use super::{
    NoisyTable, RowShares, TableMechanism, TableSum,
    release::{on_grid, split},
    row_grid::RowGrid,
};
use crate::{
    codec::SiteReportFormat,
    error::Error,
    mechanism::{
        Calibration, Mechanism, MechanismKind, NoiseModel, discrete_gaussian::MAX_SIGMA_GRID,
    },
    packed::{packed_index, packed_len},
    preprocess::{Norm, Preprocessor, Row},
    privacy::{Budget, gaussian},
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
};

const KINDS: [MechanismKind; 3] = [
    MechanismKind::SymmetricGaussian,
    MechanismKind::IsotropicGaussian,
    MechanismKind::DiscreteGaussian,
];
const LIMIT: f64 = 5.5;

fn budget() -> Budget {
    Budget::approximate(1.0, 1e-6).unwrap()
}

/// Rows of p numbers that must lie in the unit ball, without private centring.
fn design(p: usize, terms: SiteTerms) -> SiteStudyDesign {
    SiteStudyDesign {
        norm: Norm::Require { radius: 1.0 },
        centring: None,
        ..SiteStudyDesign::new(p, budget(), terms)
    }
}

fn study(design: SiteStudyDesign) -> SiteStudyParams {
    SiteStudyParams::freeze(design).unwrap()
}

fn sum_of(study: &SiteStudyParams, shares: &RowShares, rows: &[Vec<f64>]) -> TableSum {
    let row = |number: usize| Row::new(rows[number].clone());
    study.sum(shares, NonZero::<usize>::MIN, row).unwrap()
}

fn sum_of_rows(study: &SiteStudyParams, rows: &[Vec<f64>]) -> TableSum {
    sum_of(study, &RowShares::of_rows(rows.len()), rows)
}

fn numbers(payload: &[u8]) -> Vec<i64> {
    let (numbers, rest) = payload.as_chunks();
    assert!(rest.is_empty());
    numbers.iter().map(|b| i64::from_le_bytes(*b)).collect()
}

fn decode(study: &SiteStudyParams, numbers: &[i64]) -> NoisyTable {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let payload = SiteReportFormat::new(study).payload(bytes).unwrap();
    study.mechanism().decode(&payload)
}

/// Bits that the grid of `discrete-gaussian` drops of a sum.
fn dropped_bits(mechanism: &TableMechanism) -> u32 {
    62 + 2 * mechanism.grid().bits() - mechanism.constants()[0] as u32
}

/// A discrete report without its noise.
fn without_noise(mechanism: &TableMechanism, sum: &TableSum) -> Vec<i64> {
    let sums = sum.products.iter().chain([&sum.count]);
    sums.zip(mechanism.on_diagonal())
        .map(|(sum, diagonal)| on_grid(*sum, diagonal, dropped_bits(mechanism)))
        .collect()
}

fn unit_row(p: usize, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let row: Vec<f64> = (0..p).map(|_| StandardNormal.sample(rng)).collect();
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    // Just inside, so that `require` takes it.
    row.iter().map(|x| x / length * (1.0 - 1e-12)).collect()
}

fn axis(p: usize, at: usize) -> Vec<f64> {
    (0..p).map(|i| f64::from(u8::from(i == at))).collect()
}

#[test]
fn a_second_implementation_agrees() {
    let text = include_str!("../../../tests/vectors/table.json");
    let cases: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 3);
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let integer = |key: &str| case[key].as_i64().unwrap();
        let integers = |key: &str| -> Vec<i64> {
            let values = case[key].as_array().unwrap().iter();
            values.map(|value| value.as_i64().unwrap()).collect()
        };
        let cap = case["rows_per_person"].as_u64();
        let cap = cap.map(|cap| u16::try_from(cap).unwrap());
        let terms = SiteTerms {
            rows_per_person: cap,
            ..SiteTerms::new(case["max_rows"].as_u64().unwrap())
        };
        let p = case["dimension"].as_u64().unwrap() as usize;
        let plan = SiteStudyDesign {
            centring: case["centring"].as_f64(),
            ..design(p, terms)
        };
        let isotropic = study(SiteStudyDesign {
            mechanism: MechanismKind::IsotropicGaussian,
            ..plan.clone()
        });
        let study = study(plan);
        let rows: Vec<Vec<f64>> = case["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                let cells = row.as_array().unwrap().iter();
                cells
                    .map(|cell| cell.as_f64().map_or(f64::NAN, |n| n / 16_777_216.0))
                    .collect()
            })
            .collect();
        let shares = match cap {
            None => RowShares::of_rows(rows.len()),
            Some(cap) => RowShares::of_persons(integers("labels"), cap),
        };
        let sum = sum_of(&study, &shares, &rows);
        let mechanism = study.mechanism();
        assert_eq!(i64::from(mechanism.grid().bits()), integer("a"), "{name}");
        assert_eq!(mechanism.grid().scale() as i64, integer("s"), "{name}");
        assert_eq!(sum.products, integers("total"), "{name}");
        assert_eq!(sum.count, integer("count"), "{name}");
        assert_eq!(sum.unusable() as i64, integer("unusable"), "{name}");
        assert_eq!(shares.beyond_cap() as i64, integer("beyond_cap"), "{name}");
        let constants = [integer("grid_bits") as f64, integer("sigma_grid") as f64];
        assert_eq!(mechanism.constants(), constants, "{name}");
        let released = without_noise(mechanism, &sum);
        assert_eq!(released, integers("numbers"), "{name}");
        let table = decode(&study, &released);
        let moment = case["moment"].as_array().unwrap();
        for (entry, expected) in table.moment.as_slice().iter().zip(moment) {
            let expected = expected.as_f64().unwrap();
            assert!((entry - expected).abs() <= 1e-12 * expected.abs(), "{name}");
        }
        assert_eq!(Some(table.rows), case["decoded_rows"].as_f64(), "{name}");
        let step_bits = isotropic.mechanism().step_bits();
        assert_eq!(step_bits, integer("step_bits"), "{name}");
        let sums = sum.products.iter().chain([&sum.count]);
        let whole = sums.map(|sum| split(*sum, step_bits as u32).0);
        assert!(whole.eq(integers("whole")), "{name}");
    }
}

/// One sum, hence one payload for the same noise, on any number of threads and in blocks of any size.
#[test]
fn threads_and_blocks_leave_no_trace() {
    let mut rng = ChaCha20Rng::seed_from_u64(51);
    let terms = SiteTerms {
        rows_per_person: Some(3),
        ..SiteTerms::new(10_000)
    };
    let study = study(design(9, terms));
    let mut rows: Vec<Vec<f64>> = (0..3_000).map(|_| unit_row(9, &mut rng)).collect();
    for number in (0..3_000).step_by(17) {
        rows[number][number % 9] = f64::NAN;
    }
    let shares = RowShares::of_persons((0..3_000).map(|number| number * number % 1_009), 3);
    assert!(shares.beyond_cap() > 0 && shares.units() < 1_000);
    let sums = [(1, 512), (1, 1), (1, 1_024), (2, 1_024), (8, 8_192), (8, 7)].map(
        |(threads, block_rows)| {
            let preprocessor = Preprocessor::from_checked(study.preprocessing());
            let threads = NonZero::new(threads).unwrap();
            let rows = |numbers: Range<usize>| {
                let rows = numbers.map(|number| Row::new(rows[number].clone()));
                Ok::<_, Error>(rows.collect::<Vec<_>>())
            };
            let mechanism = *study.mechanism();
            TableSum::in_blocks(mechanism, preprocessor, &shares, threads, block_rows, rows)
                .unwrap()
        },
    );
    let expected = sum_of(&study, &shares, &rows);
    let payload = |sum: TableSum| sum.perturb_with(&mut ChaCha20Rng::seed_from_u64(1));
    let unusable = expected.unusable();
    assert_eq!(unusable, 90);
    let expected = (expected.products.clone(), expected.count, payload(expected));
    for sum in sums {
        assert_eq!(sum.unusable(), unusable);
        let products = sum.products.clone();
        assert!((products, sum.count, payload(sum)) == expected);
    }
}

/// The longest u that rounding can produce: |u| − ½ in length is at most s/√c. In quarters, `left` = 4s².
fn longest(left: i64, most: i64, numbers: usize, c: i64) -> i64 {
    if numbers == 0 {
        return 0;
    }
    let cost = |u: i64| c * (2 * u - 1).max(0).pow(2);
    let affordable = (0..=most).filter(|u| cost(*u) <= left);
    let length = affordable.map(|u| u * u + longest(left - cost(u), u, numbers - 1, c));
    length.max().unwrap_or(0)
}

/// ‖u‖² ≤ ⌊4ᵃ/c⌋, what the row counts: by all rows at a = 4, where rounding weighs most, and by rows that lie on the
/// edges of cells. With s = 2ᵃ it would be false.
#[test]
fn no_row_is_longer_than_it_counts() {
    let mut rng = ChaCha20Rng::seed_from_u64(52);
    for p in 1..=8 {
        for c in 1..=16 {
            let grid = RowGrid::with_bits(4, p, c);
            let (s, count) = (grid.scale() as i64, i64::from(c));
            let worst = longest(4 * s * s, s + 1, p, count);
            assert!(worst <= grid.share(c), "p = {p}, c = {c}: {worst}");
            let careless = longest(4 * 256, 17, p, count);
            assert!(p == 1 || careless > grid.share(c), "p = {p}, c = {c}");
            let mut reached = 0.0_f64;
            for _ in 0..3_000 {
                let mut row = unit_row(p, &mut rng);
                // To the nearest edge of a cell, and back into the ball if that made it longer.
                let cell = s as f64 / f64::from(c).sqrt();
                for x in &mut row {
                    *x = ((*x * cell).floor() + 0.5) / cell;
                }
                let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                row.iter_mut().for_each(|x| *x /= length.max(1.0));
                reached = reached.max(grid.round(&row, c).map(|u| u * u).sum());
            }
            assert!(reached <= worst as f64, "p = {p}, c = {c}: {reached}");
        }
    }
    // The grids of studies: s and 2ᵃ differ by what rounding adds, whatever a is.
    for (max_rows, bits) in [(1, 20), (1 << 22, 20), ((1 << 22) + 1, 19), (1 << 32, 15)] {
        let grid = RowGrid::new(400, max_rows, 1);
        assert_eq!(grid.bits(), bits);
        assert_eq!(grid.scale(), (1 << bits) - 11);
        assert!(i128::from(max_rows) * i128::from(grid.unit()) <= 1_i128 << 62);
    }
    assert!((RowGrid::new(400, 1_000, 1).decoding() - 1.000_021).abs() < 1e-7);
}

/// Every u that rounding makes of a row of the ball times s/√c, up to its sign: those whose cell comes near enough.
fn rounded_rows(p: u32, c: i64, s: i64) -> Vec<Vec<i64>> {
    let (most, side) = (s + 1, 2 * s + 3);
    let row = |number: i64| (0..p).map(move |i| number / side.pow(i) % side - most);
    let is_near = |u: &Vec<i64>| {
        let cost = u.iter().map(|u| (2 * u.abs() - 1).max(0).pow(2));
        let other_sign: Vec<i64> = u.iter().map(|u| -u).collect();
        c * cost.sum::<i64>() <= 4 * s * s && *u >= other_sign
    };
    let rows = (0..side.pow(p)).map(|number| row(number).collect::<Vec<i64>>());
    rows.filter(is_near).collect()
}

/// The addition of a row or a person to a table: the packed triangle, and the count.
type Part = (Vec<i64>, i64);

fn part_of(rows: &[&Vec<i64>], p: usize, count: i64) -> Part {
    let entries = (0..p).flat_map(|i| (i..p).map(move |j| (i, j)));
    let entry = |(i, j): (usize, usize)| -> i64 { rows.iter().map(|u| u[i] * u[j]).sum() };
    (entries.map(entry).collect(), count)
}

/// The squared distance of two tables that differ in these; an entry off the diagonal counts `off` times.
fn squared_between(a: &Part, b: &Part, p: usize, off: i64) -> i64 {
    let mut squared = (a.1 - b.1).pow(2);
    let mut moved = a.0.iter().zip(&b.0).map(|(a, b)| (a - b).pow(2));
    for i in 0..p {
        squared += moved.next().unwrap_or(0);
        squared += off * moved.by_ref().take(p - 1 - i).sum::<i64>();
    }
    squared
}

/// **All** tables at a = 4 that differ in one row: added or removed, and replaced, the furthest are as far apart as a
/// second implementation says (`docs/derivations/sites.md`, "Independent values"), and none beyond √2. With s = 2ᵃ some
/// are.
#[test]
fn no_rounded_row_moves_a_table_further_than_the_sensitivity() {
    let unit = 256_i64;
    let furthest = |p: u32, s: i64, off: i64| {
        let n = p as usize;
        let rows = rounded_rows(p, 1, s);
        let part = |u: &Vec<i64>| part_of(&[u], n, unit);
        let parts: Vec<Part> = rows.iter().map(part).collect();
        let (nothing, mut added, mut replaced) = (part_of(&[], n, 0), 0, 0);
        // Signs and order of the entries move both rows of a pair alike.
        for u in rows.iter().filter(|u| u[0] >= 0 && u.is_sorted()) {
            let u_part = part(u);
            added = added.max(squared_between(&u_part, &nothing, n, off));
            let others = parts.iter().map(|b| squared_between(&u_part, b, n, off));
            replaced = replaced.max(others.max().unwrap_or(0));
        }
        [added, replaced].map(|squared| (squared as f64 / 2.0).sqrt() / unit as f64)
    };
    for (p, off, expected) in [
        (2, 2, [0.918, 0.828]),
        (2, 1, [0.905, 0.768]),
        (3, 2, [0.931, 0.853]),
        (3, 1, [0.907, 0.798]),
    ] {
        let grid = RowGrid::with_bits(4, p as usize, 1);
        let distances = furthest(p, grid.scale() as i64, off);
        for (distance, expected) in distances.into_iter().zip(expected) {
            assert!((distance - expected).abs() < 1e-3, "{p} {off}: {distance}");
        }
        let careless = furthest(p, 16, off);
        assert!(careless.iter().all(|far| *far > 1.0), "{p} {off}");
    }
}

/// **All** tables at a = 4 and p = 2 that differ in one person of up to two rows, some of them unusable: none is further
/// apart than √2. The rows that rounding makes are those of the search.
#[test]
fn no_rounded_person_moves_a_table_further_than_the_sensitivity() {
    // That of persons of up to two rows, of whom some have one.
    let grid = RowGrid::with_bits(4, 2, 2);
    let s = grid.scale();
    let mut persons = vec![part_of(&[], 2, 0)];
    for c in [1, 2] {
        let rows = rounded_rows(2, i64::from(c), s as i64);
        for u in &rows {
            // The shortest row that becomes u.
            let cell = f64::from(c).sqrt() / s as f64;
            let edge = |u: &i64| (u.abs() as f64 - 0.499_999).max(0.0).copysign(*u as f64) * cell;
            let shortest: Vec<f64> = u.iter().map(edge).collect();
            let rounded = grid.round(&shortest, c).map(|u| u as i64);
            assert!(rounded.eq(u.iter().copied()), "{u:?}");
            persons.push(part_of(&[u], 2, grid.share(c)));
        }
        for (at, u) in rows.iter().enumerate().filter(|_| c == 2) {
            for other in &rows[at..] {
                persons.push(part_of(&[u, other], 2, 2 * grid.share(c)));
            }
        }
    }
    let mut furthest = [0, 0];
    // Signs and order of the entries move both persons of a pair alike.
    let first = persons.iter().filter(|a| a.0[0] >= a.0[2] && a.0[1] >= 0);
    for a in first {
        for b in &persons {
            for (furthest, off) in furthest.iter_mut().zip([2, 1]) {
                *furthest = squared_between(a, b, 2, off).max(*furthest);
            }
        }
    }
    for (squared, expected) in furthest.into_iter().zip([0.929, 0.914]) {
        let distance = (squared as f64 / 2.0).sqrt() / 256.0;
        assert!((distance - expected).abs() < 1e-3, "{distance}");
    }
}

/// The squared distance of two tables' sums, in units of 16ᵃ; an entry off the diagonal counts `off` times.
fn squared_distance(a: &TableSum, b: &TableSum, p: usize, off: i128) -> i128 {
    let mut squared = i128::from(a.count - b.count).pow(2);
    for i in 0..p {
        for j in i..p {
            let at = packed_index(p, i, j);
            let moved = i128::from(a.products[at] - b.products[at]).pow(2);
            squared += moved * if i == j { 1 } else { off };
        }
    }
    squared
}

/// A person's rows: up to three, some of them unusable, in one direction, along axes, or anywhere.
fn person(p: usize, rng: &mut ChaCha20Rng) -> Vec<Vec<f64>> {
    let count = rng.random_range(0..4);
    let shared = rng.random_range(0..p);
    let kind = rng.random_range(0..3);
    let mut row = |number: usize| match kind {
        0 => axis(p, shared),
        1 => axis(p, (shared + number) % p),
        _ => unit_row(p, rng),
    };
    let mut rows: Vec<Vec<f64>> = (0..count).map(&mut row).collect();
    for row in &mut rows {
        if rng.random_range(0..3) == 0 {
            row[0] = f64::NAN;
        }
    }
    rows
}

/// (Σuuᵀ, count) moves by at most √2·4ᵃ, for `svec` and `tri`, whether a person of up to three rows (one of one row is
/// a row) is added, removed or replaced, with private centring and without.
#[test]
fn no_neighbour_is_further_than_the_sensitivity() {
    let mut rng = ChaCha20Rng::seed_from_u64(53);
    let p = 3;
    for centring in [None, Some(1.0)] {
        let terms = SiteTerms {
            rows_per_person: Some(3),
            ..SiteTerms::new(1 << 23)
        };
        let study = study(SiteStudyDesign {
            centring,
            ..design(p, terms)
        });
        let larger = study.report_dimension();
        let unit = i128::from(study.mechanism().grid().unit());
        let others: Vec<Vec<f64>> = (0..5).map(|_| unit_row(p, &mut rng)).collect();
        let table = |person: &[Vec<f64>]| {
            let rows = [&others[..], person].concat();
            let labels = (0..rows.len()).map(|number| number.min(others.len()));
            sum_of(&study, &RowShares::of_persons(labels, 3), &rows)
        };
        let mut furthest = [0.0_f64; 2];
        for _ in 0..3_000 {
            let (a, b) = (person(p, &mut rng), person(p, &mut rng));
            let (a, b) = (table(&a), table(&b));
            for (furthest, off) in furthest.iter_mut().zip([2, 1]) {
                let squared = squared_distance(&a, &b, larger, off);
                assert!(squared <= 2 * unit * unit, "{centring:?} {off}: {squared}");
                *furthest = furthest.max((squared as f64).sqrt() / unit as f64);
            }
        }
        // One more row along an axis moves `tri` so far; with private centring none lies along one.
        let [svec, tri] = furthest;
        let reached = svec > 1.414 && (tri > 1.414 || centring.is_some());
        assert!(reached, "{centring:?}: {furthest:?}");
    }
}

/// Noise depends on the sum within a step alone: so many steps more move each number by as many, at any size.
#[test]
fn noise_meets_the_rest_of_a_sum_only() {
    for kind in KINDS {
        let study = study(SiteStudyDesign {
            mechanism: kind,
            ..design(2, SiteTerms::new(1 << 32))
        });
        let mechanism = study.mechanism();
        let release = |sums: [i64; 4], seed| {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let [a, b, c, count] = sums;
            numbers(&mechanism.release(&[a, b, c], count, &mut rng))
        };
        for seed in 0..200 {
            let mut rng = ChaCha20Rng::seed_from_u64(1_000 + seed);
            let small: [i64; 4] = std::array::from_fn(|_| rng.random_range(0..1 << 20));
            let near = release(small, seed);
            if kind == MechanismKind::DiscreteGaussian {
                // The diagonal's grid is a power of two: the largest sums there are.
                let bits = dropped_bits(mechanism) - 62;
                let steps = (1_i64 << (62 - bits)) - 1;
                let far = release(small.map(|sum| sum + (steps << bits)), seed);
                for at in [0, 2, 3] {
                    assert_eq!(far[at] - near[at], steps, "{kind}");
                }
                continue;
            }
            let bits = mechanism.step_bits();
            let steps = (1_i64 << (62 - bits)) - 1;
            let far = release(small.map(|sum| sum + (steps << bits)), seed);
            for (far, near) in far.iter().zip(&near) {
                assert_eq!(far - near, steps, "{kind}");
            }
        }
    }
    for sum in [0, 1, -1, 31, 32, 33, -32, -33, 1 << 62, -(1 << 62)] {
        let (whole, rest) = split(sum, 6);
        assert_eq!(whole * 64 + rest, sum);
        assert!((-32..=32).contains(&rest), "{sum}");
        assert_eq!(split(sum, 0), (sum, 0));
    }
    // √2·3·2⁴⁰ = 4.2426…·2⁴⁰ in units of 2⁴⁰, and halves upwards.
    assert_eq!(on_grid(3 << 40, false, 62 + 40), 4);
    assert_eq!(on_grid(-(3 << 40), false, 62 + 40), -4);
    assert_eq!(on_grid(3 << 39, true, 62 + 40), 2);
}

/// Mean, covariances and fourth moment of the noise of all numbers, with the stated standard deviations.
#[test]
fn the_noise_has_its_law() {
    const RELEASES: usize = 20_000;
    const LEN: usize = 7;
    for (seed, kind) in (60..).zip(KINDS) {
        let study = study(SiteStudyDesign {
            mechanism: kind,
            ..design(3, SiteTerms::new(1_000))
        });
        let mechanism = study.mechanism();
        let rows: Vec<Vec<f64>> = (0..5).map(|number| axis(3, number % 3)).collect();
        let sum = sum_of_rows(&study, &rows);
        let NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } = mechanism.noise_model()
        else {
            panic!("{kind}")
        };
        let ratio = match kind {
            MechanismKind::SymmetricGaussian => 1.0,
            _ => 0.5_f64.sqrt(),
        };
        assert!((off_diagonal_sd / diagonal_sd - ratio).abs() < 1e-12);
        let scale = mechanism.grid().decoding();
        assert!((diagonal_sd / scale - mechanism.count_sd()).abs() < 1e-12);
        // The expected numbers, and the noise in steps.
        let unit = mechanism.grid().unit() as f64;
        let steps = mechanism.steps();
        let law: Vec<(f64, f64)> = sum
            .products
            .iter()
            .chain([&sum.count])
            .zip(mechanism.on_diagonal())
            .map(|(sum, diagonal)| {
                let (sd, step) = match diagonal {
                    true => (diagonal_sd, steps[0]),
                    false => (off_diagonal_sd, steps[1]),
                };
                (*sum as f64 / unit / step, sd / scale / step)
            })
            .collect();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let (mut means, mut products, mut fourth) = ([0.0; LEN], [[0.0; LEN]; LEN], 0.0_f64);
        for _ in 0..RELEASES {
            let payload = mechanism.release(&sum.products, sum.count, &mut rng);
            let released = numbers(&payload);
            let z: Vec<f64> = released
                .iter()
                .zip(&law)
                .map(|(number, (mean, sd))| (*number as f64 - mean) / sd)
                .collect();
            for (a, x) in z.iter().enumerate() {
                means[a] += x;
                fourth += x.powi(4);
                for (b, y) in z[..=a].iter().enumerate() {
                    products[a][b] += x * y;
                }
            }
        }
        let n = RELEASES as f64;
        for (a, line) in products.iter().enumerate() {
            let mean = means[a] / n.sqrt();
            assert!(mean.abs() < LIMIT, "{kind}: mean of number {a}: {mean}");
            for (b, product) in line[..=a].iter().enumerate() {
                let z = match a == b {
                    true => (product - n) / (2.0 * n).sqrt(),
                    false => product / n.sqrt(),
                };
                assert!(z.abs() < LIMIT, "{kind}: numbers {a}, {b}: {z}");
            }
        }
        let count = n * LEN as f64;
        let z = (fourth - 3.0 * count) / (96.0 * count).sqrt();
        assert!(z.abs() < LIMIT, "{kind}: fourth moment: {z}");
    }
}

/// Without noise a report decodes to Σxxᵀ and the count, up to the rounding of rows and of the grid.
#[test]
fn a_report_without_noise_is_the_moment() {
    let mut rng = ChaCha20Rng::seed_from_u64(54);
    let (p, m) = (12, 4_000_u32);
    let study = study(design(p, SiteTerms::new(5_000)));
    let rows: Vec<Vec<f64>> = (0..m).map(|_| unit_row(p, &mut rng)).collect();
    let mechanism = study.mechanism();
    let sum = sum_of_rows(&study, &rows);
    let table = decode(&study, &without_noise(mechanism, &sum));
    assert_eq!(table.rows, f64::from(m));
    // A row's entry is off by less than 1/s, a number on the grid by half a step.
    let allowed = f64::from(m) / mechanism.grid().scale() as f64 + mechanism.steps()[0];
    let mut largest = 0.0_f64;
    for i in 0..p {
        for j in i..p {
            let exact: f64 = rows.iter().map(|x| x[i] * x[j]).sum();
            let off = (table.moment.get(i, j) - exact).abs();
            assert!(off < allowed, "{i} {j}: {off}");
            largest = largest.max(exact.abs());
        }
    }
    assert!(largest > 1_000.0 * allowed);
}

/// No call fails because of a value, and a row that cannot be used leaves no trace.
#[test]
fn extreme_tables_are_reported_like_others() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let usable = [[0.0, 0.0], [-0.0, 5e-324], [1e-300, 1e-310], [1.0, 1.0]];
    let large = [[1e6, 1e6 + 1.0], [1e90, -1e90], [-1e6, 1e-6]];
    let hopeless = [[nan, 1.0], [inf, 0.0], [1.0, -inf], [f64::MAX, 1.0]];
    let others = [&usable[..], &large[..]].concat();
    let all = [&others[..], &hopeless[..]].concat();
    for norm in [
        Norm::Normalize,
        Norm::Clip { radius: 1.0 },
        Norm::Require { radius: 2.0 },
    ] {
        for kind in KINDS {
            let study = study(SiteStudyDesign {
                norm,
                mechanism: kind,
                ..SiteStudyDesign::new(2, budget(), SiteTerms::new(100))
            });
            let sum = |rows: &[[f64; 2]]| {
                let rows: Vec<Vec<f64>> = rows.iter().map(|row| Vec::from(*row)).collect();
                sum_of_rows(&study, &rows)
            };
            let (alone, with) = (sum(&others), sum(&all));
            assert_eq!(alone.products, with.products);
            assert_eq!(alone.count, with.count);
            let outside = match norm {
                Norm::Require { .. } => large.len(),
                _ => 0,
            };
            assert_eq!(alone.unusable(), outside);
            assert_eq!(with.unusable(), outside + hopeless.len());
            // A table without a usable row sends noise.
            let nothing = sum(&hopeless);
            assert!(nothing.products.iter().all(|sum| *sum == 0) && nothing.count == 0);
            let sd = study.mechanism().count_sd();
            let released = nothing.perturb().unwrap();
            let table = decode(&study, &numbers(&released));
            assert!(table.rows.abs() < 9.0 * sd);
            assert!(table.moment.as_slice().iter().any(|entry| *entry != 0.0));
        }
    }
    // Noise is fresh each time, and an exact sum shows nothing of itself.
    let study = study(design(2, SiteTerms::new(9)));
    let release = || sum_of_rows(&study, &[axis(2, 0)]).perturb().unwrap();
    assert_ne!(release(), release());
    let sum = sum_of_rows(&study, &[vec![0.123, 0.456]]);
    assert_eq!(format!("{sum:?}"), "TableSum");
}

#[test]
fn the_guarantee_is_that_of_a_row_at_a_small_price() {
    for kind in KINDS {
        for (p, epsilon) in [(2, 1.0), (40, 0.25), (40, 4.0), (400, 1.0), (2_896, 8.0)] {
            let budget = Budget::approximate(epsilon, 1e-7).unwrap();
            let mechanism = TableMechanism::derive(kind, p, budget, 1_000_000, 1).unwrap();
            mechanism.check(budget).unwrap();
            assert!(mechanism.true_delta(epsilon) <= 1e-7);
            let holds = mechanism.true_epsilon(1e-7).unwrap();
            assert!(holds <= epsilon && holds > 0.998 * epsilon, "{kind} {p}");
            let row = gaussian::analytic_sigma(budget, gaussian::SENSITIVITY).unwrap();
            let price = mechanism.count_sd() / row;
            assert!((1.0..1.002).contains(&price), "{kind} {p}: {price}");
            // One number more than a row's report.
            let of_row = Mechanism::derive(kind, Calibration::Analytic, p, budget).unwrap();
            let (slack, of_row) = (mechanism.arithmetic_slack(), of_row.arithmetic_slack(p));
            let more = (packed_len(p) + 1) as f64 / packed_len(p) as f64;
            assert!(slack >= more * of_row * (1.0 - 1e-12), "{kind} {p}");
            assert!(mechanism.payload_bound() > 0);
        }
    }
    // The grid of a row is too coarse for a table, though its noise is enough.
    let of_row = Mechanism::derive(KINDS[2], Calibration::Analytic, 41, budget()).unwrap();
    let coarse = TableMechanism::new(of_row, 40, 1_000, 1).unwrap();
    let error = coarse.check(budget()).unwrap_err();
    assert!(error.detail().contains("need 15"), "{error}");
    // The sampler ends at 2²⁶ steps.
    let tiny = Budget::approximate(1e-3, 1e-7).unwrap();
    let derived = TableMechanism::derive(MechanismKind::DiscreteGaussian, 400, tiny, 1_000, 1);
    let error = derived.unwrap_err();
    assert!(
        error.detail().contains(&MAX_SIGMA_GRID.to_string()),
        "{error}"
    );
}
