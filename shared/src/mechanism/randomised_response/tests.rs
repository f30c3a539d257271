//! The claim enumerated: every question, every pair of rows, every answer.

use rand::{SeedableRng, rngs::ChaCha20Rng};

use super::{
    respond::{add_modulo, below, truth_limit},
    *,
};
use crate::{
    error::ErrorCode,
    mechanism::script::Script,
    preparation::{ColumnKind, MAX_CATEGORIES, PreparationColumn, PreparationParams},
    preprocess::Row,
};

const ALL: f64 = (1_u128 << 64) as f64;

fn question(kind: QuestionKind, may_be_missing: bool) -> Question {
    let values = match kind {
        QuestionKind::Categories(categories) => 0..usize::from(categories),
        QuestionKind::Number(_) | QuestionKind::YesNo => 0..1,
    };
    Question {
        kind,
        may_be_missing,
        values,
        first_count: 0,
    }
}

/// Probabilities of all answers to one comb, as the coin has them.
fn law(asked: &Question, row: &[f64], comb: u8, epsilon: f64) -> Vec<f64> {
    let answers = asked.answers();
    let truth_share = truth_limit(epsilon, answers) as f64 / ALL;
    let other_share = (1.0 - truth_share) / (f64::from(answers) - 1.0);
    let mut law = vec![0.0; usize::from(answers)];
    for stand_in in 0..answers {
        let truth = asked.truth(row, comb, stand_in);
        for shift in 0..answers {
            let share = if shift == 0 { truth_share } else { other_share };
            law[usize::from(add_modulo(truth, shift, answers))] += share / f64::from(answers);
        }
    }
    law
}

#[test]
fn no_two_rows_have_odds_beyond_epsilon() {
    let ladder = Ladder::of_range(-1.0, 3.0);
    let numbers = [
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        0.9,
        1.0,
        2.0,
        3.0,
        1e300,
        f64::NAN,
    ]
    .map(|x| vec![x]);
    let choices = |categories: usize| {
        let one = |at: usize| {
            (0..categories)
                .map(|j| f64::from(u8::from(j == at)))
                .collect()
        };
        let mut rows: Vec<Vec<f64>> = (0..=categories).map(one).collect();
        rows.extend([f64::NAN, 0.5, 1.0, f64::INFINITY].map(|x| vec![x; categories]));
        rows
    };
    for epsilon in [0.001, 0.5, 1.0, 2.0, 4.0, 16.0] {
        for missing in [false, true] {
            for (kind, rows) in [
                (QuestionKind::Number(ladder), numbers.to_vec()),
                (
                    QuestionKind::Number(Ladder::within(0.0, 1.0)),
                    numbers.to_vec(),
                ),
                (QuestionKind::YesNo, [choices(1), numbers.to_vec()].concat()),
                (QuestionKind::Categories(2), choices(2)),
                (QuestionKind::Categories(10), choices(10)),
                (
                    QuestionKind::Categories(MAX_CATEGORIES as u8),
                    choices(MAX_CATEGORIES),
                ),
            ] {
                let asked = question(kind, missing);
                for comb in 0..asked.combs() {
                    let laws: Vec<_> = rows.iter().map(|r| law(&asked, r, comb, epsilon)).collect();
                    for law in &laws {
                        assert!((law.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                    }
                    let mut widest: f64 = 0.0;
                    for (one, other) in laws.iter().flat_map(|a| laws.iter().map(move |b| (a, b))) {
                        let odds = one.iter().zip(other).map(|(a, b)| a / b);
                        widest = odds.fold(widest, f64::max);
                    }
                    let widest = widest.ln();
                    // Not beyond ε, but for the rounding of these sums; and no less than is claimed, but for that of the
                    // probability of the truth in double precision, which is next to 1 where ε is large.
                    let rounding = f64::max(1e-9, epsilon.exp() * f64::EPSILON);
                    assert!(
                        widest <= epsilon + 1e-12,
                        "{kind:?} {comb} {epsilon}: {widest}"
                    );
                    assert!(
                        widest >= epsilon - 2.0 * rounding,
                        "{kind:?} {comb} {epsilon}: {widest}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_coin_is_rounded_down() {
    for epsilon in [0.001, 0.5, 1.0, 2.0, 4.0, 16.0] {
        for answers in [2, 3, 4, 11, 255] {
            let share = truth_limit(epsilon, answers) as f64 / ALL;
            let exact = 1.0 / (1.0 + (f64::from(answers) - 1.0) * (-epsilon).exp());
            assert!(
                share <= exact && share >= exact * (1.0 - 1e-14),
                "{epsilon} {answers}"
            );
            // As whole numbers: what is not true is at least e^−ε as likely as what is, each.
            let truth = truth_limit(epsilon, answers);
            let others = (1_u128 << 64) - truth;
            assert!(
                others as f64 * epsilon.exp()
                    >= (f64::from(answers) - 1.0) * truth as f64 * (1.0 - 1e-15)
            );
        }
    }
}

#[test]
fn cells_are_answered_for_by_where_they_lie() {
    let asked = question(QuestionKind::Number(Ladder::of_range(0.0, 24.0)), false);
    for (x, comb, truth) in [
        (0.4, 0, 0),
        (0.5, 0, 1),
        (12.4, 0, 1),
        (12.5, 0, 2),
        (-9.0, 11, 0),
        (23.4, 11, 1),
        (99.0, 11, 2),
        (f64::INFINITY, 3, 2),
        (f64::NEG_INFINITY, 3, 0),
        // The stand-in.
        (f64::NAN, 3, 1),
    ] {
        assert_eq!(asked.truth(&[x], comb, 1), truth, "{x}");
    }
    let asked = question(QuestionKind::Number(Ladder::of_range(0.0, 24.0)), true);
    assert_eq!((asked.answers(), asked.truth(&[f64::NAN], 0, 1)), (4, 3));
    let asked = question(QuestionKind::YesNo, true);
    for (x, truth) in [(0.0, 0), (1.0, 1), (0.5, 2), (f64::NAN, 2)] {
        assert_eq!(asked.truth(&[x], 0, 0), truth);
    }
    let asked = question(QuestionKind::Categories(3), false);
    for (cells, truth) in [
        ([1.0, 0.0, 0.0], 0),
        ([0.0, 0.0, 1.0], 2),
        ([0.0; 3], 3),
        // Two at once, and a number that is neither: the stand-in.
        ([1.0, 1.0, 0.0], 2),
        ([0.0, 0.5, 0.0], 2),
        ([f64::NAN; 3], 2),
    ] {
        assert_eq!(asked.truth(&cells, 0, 2), truth, "{cells:?}");
    }
}

fn params() -> PreparationParams {
    let column = |name: &str, kind| PreparationColumn::new(name, kind);
    PreparationParams::freeze(
        vec![
            column("height", ColumnKind::number(100.0, 220.0)).may_be_missing(),
            column("smokes", ColumnKind::YesNo),
            column("town", ColumnKind::categories(["Rome", "Milan"])),
        ],
        1.0,
        None,
    )
    .unwrap()
}

/// Whatever the row is, the same words make the same draws: column, comb and shift do not depend on it, nor does how
/// much randomness is used.
#[test]
fn everything_is_drawn_before_the_row_is_looked_at() {
    let params = params();
    let rows = [
        vec![170.0, 0.0, 1.0, 0.0],
        vec![f64::NAN, 1.0, 0.0, 1.0],
        vec![-1e300, f64::NAN, 0.0, 0.0],
    ];
    for seed in 0..200_u8 {
        let mut seen = Vec::new();
        for row in &rows {
            let mut rng = ChaCha20Rng::from_seed([seed; 32]);
            let row = Row::new(row.clone());
            let bytes = params.mechanism().perturb_with(&row, &mut rng).unwrap();
            seen.push((
                [bytes[0], bytes[1], bytes[2]],
                rand::Rng::next_u64(&mut rng),
            ));
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seed}");
    }
    let error = params
        .mechanism()
        .perturb(&Row::new(vec![0.0; 3]))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongDimension);
}

/// 300,000 reports of one row: each count within six standard deviations of its expectation (false alarm 2e-9 each).
#[test]
fn columns_combs_and_answers_come_as_often_as_they_should() {
    let params = params();
    let mechanism = params.mechanism();
    let row = Row::new(vec![150.0, 1.0, 0.0, 0.0]);
    let mut rng = ChaCha20Rng::from_seed([7; 32]);
    let n = 300_000;
    let mut counts = vec![0_u32; mechanism.counts()];
    for _ in 0..n {
        let bytes = mechanism.perturb_with(&row, &mut rng).unwrap();
        counts[Answer::read(&bytes, mechanism.questions()).unwrap().count()] += 1;
    }
    for asked in mechanism.questions() {
        let [own, other] = mechanism.probabilities(asked.answers());
        for comb in 0..asked.combs() {
            let truth = asked.truth(row.values(), comb, 0);
            for answer in 0..asked.answers() {
                let share = if answer == truth { own } else { other };
                let share = share / 3.0 / f64::from(asked.combs());
                let (expected, n) = (share * f64::from(n), f64::from(n));
                let sd = (n * share * (1.0 - share)).sqrt();
                let count = f64::from(counts[asked.count(comb, answer)]);
                assert!(
                    (count - expected).abs() < 6.0 * sd,
                    "{asked:?} {comb} {answer}"
                );
            }
        }
    }
}

#[test]
fn whole_numbers_are_drawn_without_bias() {
    // Of 2⁶⁴ words 2⁶⁴ mod 3 = 1 is drawn again: the one whose product with 3 ends in 0.
    let mut words = [0, 1, u64::MAX].into_iter();
    let mut rng = Script(|| words.next().unwrap());
    assert_eq!([below(3, &mut rng), below(3, &mut rng)], [0, 2]);
    for answers in 2..=255 {
        for truth in [0, 1, answers - 1] {
            for shift in [0, 1, answers - 1] {
                let sum = (u16::from(truth) + u16::from(shift)) % u16::from(answers);
                assert_eq!(u16::from(add_modulo(truth, shift, answers)), sum);
            }
        }
    }
}
