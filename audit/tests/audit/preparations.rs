//! Preparations, audited from the raw row to the answer: a correct device is consistent with its claim, and planted leaks
//! are convicted. "No report" is an outcome like any other, and either row may be the one that is more likely.

use std::collections::HashMap;

use eigenveil_audit::{CONFIDENCE, Sampling, Side, event_bound, observe};
use eigenveil_shared::{
    preparation::{ColumnKind, PreparationColumn, PreparationParams},
    preprocess::Row,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

/// Reports of each row.
const TRIALS: usize = 200_000;
/// Reports of each row that say which outcomes are the one's rather than the other's.
const TRAINING: usize = 100_000;
const EPSILON: f64 = 1.0;
const COLUMNS: usize = 3;

type Outcome = Option<[u8; 4]>;
type Device<'a> = dyn Fn(&[f64], &mut ChaCha20Rng) -> Outcome + Sync + 'a;

fn params(epsilon: f64, may_be_missing: bool) -> PreparationParams {
    let columns = (0..COLUMNS).map(|at| {
        let column = PreparationColumn::new(format!("x{at}"), ColumnKind::number(0.0, 24.0));
        match may_be_missing {
            true => column.may_be_missing(),
            false => column,
        }
    });
    PreparationParams::freeze(columns.collect(), epsilon, None).unwrap()
}

fn answer(params: &PreparationParams, row: &[f64], rng: &mut ChaCha20Rng) -> [u8; 4] {
    let row = Row::new(row.to_vec());
    params.mechanism().perturb_with(&row, rng).unwrap()
}

fn column(answer: [u8; 4]) -> usize {
    usize::from(u16::from_le_bytes([answer[0], answer[1]]))
}

/// An answer like those of a correct device among those that are kept: a leak is in what is kept.
fn answer_if(
    params: &PreparationParams,
    row: &[f64],
    rng: &mut ChaCha20Rng,
    is_kept: impl Fn([u8; 4]) -> bool,
) -> Outcome {
    loop {
        let answer = answer(params, row, rng);
        if is_kept(answer) {
            return Some(answer);
        }
    }
}

/// The largest lower bound on ε over the pairs of rows.
fn bound(device: &Device<'_>) -> f64 {
    let missing = [f64::NAN, 12.0, 12.0];
    let pairs = [
        ([0.0; COLUMNS], [24.0; COLUMNS]),
        (missing, [1.0, 12.0, 12.0]),
        ([12.0; COLUMNS], missing),
        ([20.0, 1.0, 1.0], [1.0, 20.0, 1.0]),
        ([3.0; COLUMNS], [9.0; COLUMNS]),
    ];
    let bounds = (0..).zip(pairs).map(|(test, (a, b))| {
        let mut rng = ChaCha20Rng::seed_from_u64(900 + test);
        let mut seen: HashMap<Outcome, [f64; 2]> = HashMap::new();
        for (side, row) in [a, b].iter().enumerate() {
            for _ in 0..TRAINING {
                seen.entry(device(row, &mut rng)).or_default()[side] += 1.0;
            }
        }
        // The odds of an outcome, as far as training tells.
        let statistic = |outcome: Outcome| {
            let [a, b] = seen.get(&outcome).copied().unwrap_or_default();
            ((a + 0.5) / (b + 0.5)).ln()
        };
        let response = |side: Side, rng: &mut ChaCha20Rng| {
            let row = match side {
                Side::A => &a,
                Side::B => &b,
            };
            Ok(statistic(device(row, rng)))
        };
        let samples = observe(&response, test, &Sampling::quiet(TRIALS, 52)).unwrap();
        event_bound(&samples, 0.0, CONFIDENCE)
            .unwrap()
            .epsilon_lower_bound
    });
    bounds.fold(0.0, f64::max)
}

#[test]
fn a_correct_device_is_consistent_with_its_claim() {
    for may_be_missing in [false, true] {
        let params = params(EPSILON, may_be_missing);
        let bound = bound(&|row, rng| Some(answer(&params, row, rng)));
        assert!(
            (0.8..=EPSILON).contains(&bound),
            "{may_be_missing}: {bound}"
        );
    }
}

/// The leaks that a program could have by mistake, each with what it does to ε.
#[test]
fn planted_leaks_are_convicted() {
    let honest = params(EPSILON, false);
    let twice = params(2.0 * EPSILON, false);
    let rungs = |comb: u8| [f64::from(comb) + 0.5, f64::from(comb) + 12.5];
    let leaks: [(&str, &Device<'_>); 5] = [
        ("the column of a missing cell is not drawn", &|row, rng| {
            answer_if(&honest, row, rng, |answer| !row[column(answer)].is_nan())
        }),
        ("no report for a missing cell", &|row, rng| {
            let answer = answer(&honest, row, rng);
            (!row[column(answer)].is_nan()).then_some(answer)
        }),
        ("columns are drawn by their size", &|row, rng| {
            let sizes = row.iter().map(|x| if x.is_nan() { 1.0 } else { x + 1.0 });
            let sizes: Vec<f64> = sizes.collect();
            let mut left = rng.random::<f64>() * sizes.iter().sum::<f64>();
            let drawn = sizes.iter().position(|size| {
                left -= size;
                left <= 0.0
            });
            let drawn = drawn.unwrap_or(COLUMNS - 1);
            answer_if(&honest, row, rng, |answer| column(answer) == drawn)
        }),
        ("a coin for twice the claim", &|row, rng| {
            Some(answer(&twice, row, rng))
        }),
        ("a comb near the cell is drawn", &|row, rng| {
            answer_if(&honest, row, rng, |answer| {
                let x = row[column(answer)];
                x.is_nan() || rungs(answer[2]).iter().any(|rung| (rung - x).abs() <= 3.0)
            })
        }),
    ];
    for (name, device) in leaks {
        let bound = bound(device);
        assert!(bound > 1.2 * EPSILON, "{name}: {bound}");
    }
}
