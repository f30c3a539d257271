//! The fit against independent programs, and what whoever runs a preparation is told.

use eigenveil_shared::{
    ErrorCode,
    about::{FeatureNotice, StudyNotice},
    api::PreparationRequest,
    mechanism::randomised_response::QuestionKind,
    preparation::{ColumnKind, NumberRange, PreparationColumn, PreparationParams},
    preprocess::Row,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde_json::Value;

use super::{
    fit::Mixture,
    rates::Rates,
    round::{Round, Rounds},
    *,
};
use crate::Cancel;

fn vectors(text: &str) -> Vec<Value> {
    let read: Value = serde_json::from_str(text).unwrap();
    read["cases"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    let all = value.as_array().unwrap().iter();
    all.map(|number| number.as_f64().unwrap()).collect()
}

fn counts(value: &Value) -> Vec<u64> {
    let combs = value.as_array().unwrap().iter();
    let answers = combs.flat_map(|comb| comb.as_array().unwrap());
    answers.map(|count| count.as_u64().unwrap()).collect()
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9, "{found} {expected}");
}

fn column(kind: ColumnKind) -> PreparationColumn {
    PreparationColumn::new("x", kind)
}

fn one(column: PreparationColumn, epsilon: f64) -> PreparationParams {
    PreparationParams::freeze(vec![column], epsilon, None).unwrap()
}

/// `shared/tests/vectors/preparation.json`: one round on 0 to 1.
#[test]
fn one_round_equals_an_independent_fit() {
    for case in vectors(include_str!(
        "../../../shared/tests/vectors/preparation.json"
    )) {
        let epsilon = case["epsilon"].as_f64().unwrap();
        let params = one(column(ColumnKind::number(0.0, 1.0)), epsilon);
        let counts = counts(&case["counts"]);
        let rounds = Rounds::new(Round::new(&params, &counts).unwrap(), None).unwrap();
        let mixture = Mixture::new(rounds, 0).unwrap();
        let fit = mixture.fit();
        for (found, expected) in fit.cells.iter().zip(numbers(&case["f"])) {
            close(*found, expected);
        }
        let moments = mixture.moments(&fit);
        close(moments.mean, case["mean"].as_f64().unwrap());
        close(moments.deviation, case["sd"].as_f64().unwrap());
    }
}

/// `shared/tests/vectors/preparation.py`: two rounds, a column that may be missing, and one that is mostly zero.
#[test]
fn two_rounds_equal_an_independent_fit() {
    let text = include_str!("../../../shared/tests/vectors/preparation_rounds.json");
    let mut guarded = 0;
    for case in vectors(text) {
        let epsilon = case["epsilon"].as_f64().unwrap();
        let [lo, hi] = numbers(&case["range"])[..].try_into().unwrap();
        let number = PreparationColumn {
            may_be_missing: case["missing"].as_bool().unwrap(),
            ..column(ColumnKind::number(lo, hi))
        };
        let params = one(number, epsilon);
        let first_counts = counts(&case["first"]);
        let first = Round::new(&params, &first_counts).unwrap();
        let check = |rounds: Rounds<'_>, expected: &Value| {
            let mixture = Mixture::new(rounds, 0).unwrap();
            let fit = mixture.fit();
            let moments = mixture.moments(&fit);
            let expected = numbers(expected);
            close(moments.mean, expected[0]);
            close(moments.deviation, expected[1]);
            close(fit.missing, expected[2]);
            moments.interval
        };
        check(Rounds::new(first, None).unwrap(), &case["one_round"]);
        let request = second_round(first).unwrap();
        let ColumnKind::Number(NumberRange {
            within: Some(within),
            ..
        }) = request.columns[0].kind
        else {
            panic!("{request:?}");
        };
        for (found, expected) in within.iter().zip(numbers(&case["within"])) {
            close(*found, expected);
        }
        let after = request.after.unwrap().parse().unwrap();
        let second = PreparationParams::freeze(request.columns, epsilon, Some(after)).unwrap();
        let second_counts = counts(&case["second"]);
        let second = Round::new(&second, &second_counts).unwrap();
        let interval = check(
            Rounds::new(first, Some(second)).unwrap(),
            &case["two_rounds"],
        );
        let outside = case["outside"].as_f64().unwrap();
        assert_eq!(
            interval == [lo, hi],
            outside > 0.05,
            "{interval:?} {outside}"
        );
        guarded += u32::from(outside > 0.05);
        // A third round is none.
        let error = second_round(second).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    assert_eq!(guarded, 1);
}

/// The formula's standard errors, checked by hand: missing 20 %, B = 4; a category of share 0.2 among B = m.
#[test]
fn rates_have_the_errors_of_the_formula() {
    let error_of = |answers: u64, share: f64, epsilon: f64| {
        let (odds, n) = (epsilon.exp(), 1_000_000.0);
        let lambda = (1.0 + share * (odds - 1.0)) / (odds + answers as f64 - 1.0);
        let mut counts = vec![((1.0 - lambda) * n / (answers - 1) as f64) as u64; answers as usize];
        counts[0] = (lambda * n) as u64;
        let rate = Rates::new(counts, epsilon).of(0);
        assert!((rate.share - share).abs() < 1e-4, "{rate:?}");
        // Of 1,000 answers.
        rate.error * 1_000_f64.sqrt()
    };
    for (epsilon, error) in [(0.5, 0.097), (1.0, 0.044), (2.0, 0.021), (4.0, 0.014)] {
        assert!(
            (error_of(4, 0.2, epsilon) - error).abs() < 1e-3,
            "{epsilon}"
        );
    }
    for (answers, errors) in [
        (3, [0.039, 0.020]),
        (10, [0.069, 0.028]),
        (20, [0.096, 0.037]),
    ] {
        for (epsilon, error) in [1.0, 2.0].into_iter().zip(errors) {
            assert!(
                (error_of(answers, 0.2, epsilon) - error).abs() < 1e-3,
                "{answers} {epsilon}"
            );
        }
    }
    let none = Rates::new(vec![0; 3], 1.0).of(1);
    assert_eq!((none.share, none.error), (1.0 / 3.0, 1.0));
}

/// Answers of `n` people with these rows.
fn answered(
    params: &PreparationParams,
    n: usize,
    row: impl Fn(&mut ChaCha20Rng) -> Vec<f64>,
) -> Vec<u64> {
    let mut rng = ChaCha20Rng::seed_from_u64(52);
    let mechanism = params.mechanism();
    let mut counts = vec![0; mechanism.counts()];
    for _ in 0..n {
        let row = Row::new(row(&mut rng));
        let [low, high, comb, answer] = mechanism.perturb_with(&row, &mut rng).unwrap();
        let question = &mechanism.questions()[usize::from(u16::from_le_bytes([low, high]))];
        counts[question.count(comb, answer)] += 1;
    }
    counts
}

fn estimated(params: &PreparationParams, counts: &[u64]) -> PreparationEstimate {
    let round = Round::new(params, counts).unwrap();
    estimate_preparation(round, None, &mut |_, _| (), Cancel::NEVER).unwrap()
}

/// All kinds of columns in one preparation: what is found lies within five standard errors of what was drawn.
#[test]
fn a_table_of_all_kinds_is_found_again() {
    let columns = vec![
        PreparationColumn::new("size", ColumnKind::number(0.0, 20.0)),
        PreparationColumn::new("lab", ColumnKind::number(-2.0, 2.0)).may_be_missing(),
        PreparationColumn::new("smokes", ColumnKind::YesNo).may_be_missing(),
        PreparationColumn::new("town", ColumnKind::categories(["Rome", "Milan"])),
    ];
    let params = PreparationParams::freeze(columns, 2.0, None).unwrap();
    let counts = answered(&params, 40_000, |rng| {
        let uniform = |rng: &mut ChaCha20Rng| rng.random::<f64>();
        let size = (0..3).map(|_| uniform(rng)).sum::<f64>() * 4.0 + 4.0;
        let lab = if uniform(rng) < 0.3 {
            f64::NAN
        } else {
            uniform(rng)
        };
        let smokes = match uniform(rng) {
            x if x < 0.2 => f64::NAN,
            x => f64::from(u8::from(x < 0.4)),
        };
        let town = uniform(rng);
        let in_town = |from: f64, to: f64| f64::from(u8::from((from..to).contains(&town)));
        vec![size, lab, smokes, in_town(0.0, 0.5), in_town(0.5, 0.8)]
    });
    let estimate = estimated(&params, &counts);
    assert_eq!(estimate.people, [40_000]);
    let [size, lab, smokes, town] = &estimate.columns[..] else {
        panic!("{estimate:?}");
    };
    let near = |found: Option<f64>, error: Option<f64>, expected: f64| {
        let (found, error) = (found.unwrap(), error.unwrap());
        assert!(
            error > 0.0 && (found - expected).abs() < 5.0 * error,
            "{found} ± {error}: {expected}"
        );
    };
    // A sum of three uniform numbers, times 4: mean 6 + 4, variance 16/4.
    near(size.mean, size.mean_error, 10.0);
    // Cells are as wide as 0.8, and the fit is not smoothed.
    let factor = size.deviation.unwrap() / 2.0;
    assert!((0.8..1.4).contains(&factor) && size.deviation_factor.unwrap() > 1.0);
    near(lab.mean, lab.mean_error, 0.5);
    let missing = lab.missing.unwrap();
    near(Some(missing.share), Some(missing.error), 0.3);
    near(smokes.mean, smokes.mean_error, 0.25);
    let missing = smokes.missing.unwrap();
    near(Some(missing.share), Some(missing.error), 0.2);
    for (category, share) in town.categories.iter().zip([0.5, 0.3]) {
        near(
            Some(category.share.share),
            Some(category.share.error),
            share,
        );
    }
    let names: Vec<&str> = estimate
        .features
        .iter()
        .map(|feature| &feature.name[..])
        .collect();
    assert_eq!(names, ["size", "lab", "smokes", "town=Rome", "town=Milan"]);
    // As cells of some columns are missing, all features say how many people have them.
    let observed: Vec<f64> = estimate
        .features
        .iter()
        .map(|f| f.observed.unwrap())
        .collect();
    assert!(
        (observed[1] - 0.7).abs() < 0.05 && observed[0] == 1.0 && observed[4] == 1.0,
        "{observed:?}"
    );
    // Both categories have one scale.
    assert_eq!(estimate.features[3].scale, estimate.features[4].scale);
    let notice = |description: Option<String>, party: &str| {
        let about = StudyNotice {
            responsible_party: Some(party.to_owned()),
            features: Some(vec![
                FeatureNotice {
                    description,
                    ..FeatureNotice::default()
                };
                5
            ]),
            ..StudyNotice::default()
        };
        let notices = estimate.notices("3fa2", &about);
        let checked = StudyNotice {
            features: Some(notices.clone()),
            ..about
        };
        checked.check().unwrap();
        notices[0].description.clone().unwrap()
    };
    // Not of all 40,000 people.
    let origin = format!(
        "{} people's answers to preparation 3fa2 (one round, epsilon 2)",
        size.answers
    );
    let says = notice(None, "Institute of Wine");
    assert!(
        says.contains(&origin) && says.ends_with("asked by Institute of Wine"),
        "{says}"
    );
    let says = notice(Some("Size".to_owned()), &"x".repeat(200));
    assert!(
        says.starts_with("Size. Center") && says.ends_with("epsilon 2)"),
        "{says}"
    );
    // A description that leaves no room is cut, wherever its characters end.
    for long in ["y".repeat(250), "é".repeat(150)] {
        let says = notice(Some(long), "z");
        assert!(
            says.contains("… Center and scale are estimated") && says.ends_with("epsilon 2)"),
            "{says}"
        );
    }
}

/// Which of these words a message of the only column has.
fn messages(
    kind: ColumnKind,
    epsilon: f64,
    n: usize,
    row: impl Fn(&mut ChaCha20Rng) -> f64,
) -> String {
    let params = one(column(kind), epsilon);
    let counts = answered(&params, n, |rng| vec![row(rng)]);
    estimated(&params, &counts).columns[0].messages.join("; ")
}

#[test]
fn wrong_units_wide_ranges_constants_and_few_answers_are_told() {
    let uniform = |rng: &mut ChaCha20Rng| 40.0 + 20.0 * rng.random::<f64>();
    let honest = ColumnKind::number(30.0, 70.0);
    assert_eq!(messages(honest.clone(), 2.0, 2_000, uniform), "");
    let unit = messages(ColumnKind::number(0.0, 10.0), 2.0, 2_000, uniform);
    assert!(
        unit.contains("lie at or above the upper end of 0 to 10: is the unit right?"),
        "{unit}"
    );
    let low = messages(ColumnKind::number(100.0, 200.0), 2.0, 2_000, uniform);
    assert!(low.contains("below the lower end of 100 to 200"), "{low}");
    // A lowest value of 0 is often a true end.
    let zeros = messages(ColumnKind::number(0.0, 30.0), 2.0, 2_000, |rng| {
        if rng.random::<f64>() < 0.5 {
            0.0
        } else {
            20.0 * rng.random::<f64>()
        }
    });
    assert_eq!(zeros, "");
    let wide = messages(ColumnKind::number(-400.0, 600.0), 2.0, 4_000, uniform);
    assert!(wide.contains("a second round"), "{wide}");
    // N = 300·0.133 = 40: 150 need 1·110/0.133.
    let few = messages(honest.clone(), 1.0, 300, uniform);
    assert!(
        few.contains("40 effective answers; 150 need about"),
        "{few}"
    );
    let n_more = ((150.0 - 300.0 * information(1.0, 3)) / information(1.0, 3)).ceil();
    assert!((820.0..835.0).contains(&n_more), "{n_more}");
    let none = messages(honest, 1.0, 0, uniform);
    assert!(none.contains("not worth using"), "{none}");
    let seldom = {
        let params = one(column(ColumnKind::number(0.0, 1.0)).may_be_missing(), 4.0);
        let counts = answered(&params, 4_000, |rng| {
            vec![if rng.random::<f64>() < 0.97 {
                f64::NAN
            } else {
                0.5
            }]
        });
        estimated(&params, &counts)
    };
    let messages = seldom.columns[0].messages.join("; ");
    assert!(messages.contains("leave the column out"), "{messages}");
    assert_eq!(seldom.features[0].observed, Some(0.1));
}

#[test]
fn categories_that_most_people_have_none_of_are_told() {
    let params = one(column(ColumnKind::categories(["Rome", "Milan"])), 4.0);
    for (in_rome, words) in [(0.3, "have none of the categories"), (0.7, "")] {
        let counts = answered(&params, 4_000, |rng| {
            vec![f64::from(u8::from(rng.random::<f64>() < in_rome)), 0.0]
        });
        let says = estimated(&params, &counts).columns[0].messages.join("; ");
        assert!(
            says.contains(words) && says.is_empty() == words.is_empty(),
            "{says}"
        );
    }
}

/// In a first round values that hardly vary cannot be told from a wide range, in a second one they can: then scale and
/// error are those of a cell, so that such a column does not become a component.
#[test]
fn after_two_rounds_values_that_hardly_vary_are_told() {
    let estimate = |width: f64| {
        let values = move |rng: &mut ChaCha20Rng| vec![52.3 + width * rng.random::<f64>()];
        let params = one(column(ColumnKind::number(30.0, 70.0)), 4.0);
        let counts = answered(&params, 20_000, values);
        let first = Round::new(&params, &counts).unwrap();
        let PreparationRequest { columns, after } = second_round(first).unwrap();
        let after = after.map(|text| text.parse().unwrap());
        let params = PreparationParams::freeze(columns, 4.0, after).unwrap();
        let counts = answered(&params, 20_000, values);
        let second = Round::new(&params, &counts).unwrap();
        let both = estimate_preparation(first, Some(second), &mut |_, _| (), Cancel::NEVER);
        both.unwrap().columns[0].clone()
    };
    for width in [0.0, 0.2] {
        let column = estimate(width);
        let [from, to] = column.interval.unwrap();
        close(column.deviation.unwrap(), (to - from) / 12.0);
        let error = column.mean_error.unwrap();
        assert!(
            (column.mean.unwrap() - 52.3 - width / 2.0).abs() < 2.0 * error,
            "{column:?}"
        );
        let says = column.messages.join("; ");
        assert!(says.contains("all values are equal"), "{says}");
    }
    let ordinary = estimate(10.0);
    assert_eq!(ordinary.messages, [""; 0]);
    let factor = ordinary.deviation.unwrap() / (10.0 / 12_f64.sqrt());
    assert!((0.9..1.1).contains(&factor), "{ordinary:?}");
}

/// Answers of `n` people to the only column, a number that is below t for a share `below(t)` of them: as many as are
/// expected, without noise.
fn expected_answers(params: &PreparationParams, n: f64, below: &dyn Fn(f64) -> f64) -> Vec<u64> {
    let mechanism = params.mechanism();
    let QuestionKind::Number(ladder) = mechanism.questions()[0].kind else {
        panic!("{params:?}");
    };
    let [high, low] = mechanism.probabilities(3);
    let combs = (0..ladder.combs()).map(|comb| ladder.comb(comb).map(below));
    let shares = combs.flat_map(|[first, second]| [first, second - first, 1.0 - second]);
    let of_comb = n / f64::from(ladder.combs());
    let counts = shares.map(|share| (of_comb * (low + (high - low) * share)).round() as u64);
    counts.collect()
}

/// Rare values beyond the interval of the second round make the deviation; which is told, with what they make of it.
/// A bell and zeros have none.
#[test]
fn rare_values_beyond_the_interval_are_told() {
    let estimate = |below: &dyn Fn(f64) -> f64| {
        let params = one(column(ColumnKind::number(0.0, 1.0)), 4.0);
        let counts = expected_answers(&params, 16_000.0, below);
        let first = Round::new(&params, &counts).unwrap();
        let PreparationRequest { columns, after } = second_round(first).unwrap();
        let after = after.map(|text| text.parse().unwrap());
        let params = PreparationParams::freeze(columns, 4.0, after).unwrap();
        let counts = expected_answers(&params, 24_000.0, below);
        let second = Round::new(&params, &counts).unwrap();
        let both = estimate_preparation(first, Some(second), &mut |_, _| (), Cancel::NEVER);
        both.unwrap().columns[0].clone()
    };
    // 3 % ones: deviation √(0.03·0.97) = 0.171.
    let ones = estimate(&|t| if t > 0.0 { 0.97 } else { 0.0 });
    assert!(ones.interval.unwrap()[1] < 0.05, "{ones:?}");
    let words = "over all of 0 to 1 the mean is 0.03 and the deviation 0.169";
    assert!(
        matches!(&ones.messages[..], [only] if only.contains(words)),
        "{ones:?}"
    );
    let bell = estimate(&|t| 0.5 + 0.5 * libm::erf((t - 0.5) / (0.1 * 2_f64.sqrt())));
    assert_eq!(bell.messages, [""; 0]);
    let zeros = estimate(&|t| if t > 0.0 { 1.0 } else { 0.0 });
    assert!(
        matches!(&zeros.messages[..], [only] if only.contains("nearly all values are equal")),
        "{zeros:?}"
    );
}

/// Constants of few answers, or of hardly anybody who has a value, are ones that a study may have, and more people are
/// asked for.
#[test]
fn constants_of_few_answers_stay_in_the_range() {
    for epsilon in [1.0, 4.0] {
        let number = column(ColumnKind::number(0.0, 24.0)).may_be_missing();
        let params = one(number, epsilon);
        let question = &params.mechanism().questions()[0];
        for (missing, values, words) in [
            (0, 0, "more people"),
            (0, 1, "more people"),
            (1, 0, "more people"),
            (200, 3, "more people"),
            (20_000, 0, "leave the column out"),
        ] {
            let mut counts = vec![0; params.mechanism().counts()];
            let answers = (0..missing).map(|at| (at, 3));
            for (at, answer) in answers.chain((0..values).map(|at| (at, 1))) {
                counts[question.count((at % 12) as u8, answer)] += 1;
            }
            let estimate = estimated(&params, &counts);
            let (found, feature) = (&estimate.columns[0], &estimate.features[0]);
            assert!(
                (0.0..=24.0).contains(&feature.center) && (0.6..=12.0).contains(&feature.scale),
                "{missing} {values} {feature:?}"
            );
            let says = found.messages.join("; ");
            assert!(says.contains(words), "{missing} {values} {says}");
            assert!(values > 0 || found.mean_error.is_none(), "{found:?}");
        }
    }
    // A share that is known to one half is not known.
    let yes_no = one(column(ColumnKind::YesNo), 1.0);
    for (answers, is_known) in [([1, 1], false), ([10, 10], true)] {
        let estimate = estimated(&yes_no, &answers);
        assert_eq!(estimate.columns[0].mean_error.is_some(), is_known);
    }
    let share = |error| Share { share: 0.3, error };
    assert_eq!(share(0.6).two_errors(), None);
    assert_eq!(share(0.4).two_errors(), Some(0.8));
    // Neither answer of a question that nobody was asked is likelier.
    let yes_no = one(column(ColumnKind::YesNo).may_be_missing(), 1.0);
    let estimate = estimated(&yes_no, &[0; 3]);
    close(estimate.columns[0].mean.unwrap(), 0.5);
    assert!(estimate.columns[0].mean_error.is_none());
    assert_eq!(
        (estimate.features[0].center, estimate.features[0].scale),
        (0.5, 0.5)
    );
}

/// The share that is shown is the one that was found; center and scale are those of one that a scale may have.
#[test]
fn a_rare_yes_is_shown_as_it_is() {
    let params = one(column(ColumnKind::YesNo), 4.0);
    for (share, center) in [(0.005, 0.02), (0.995, 0.98)] {
        let counts = answered(&params, 40_000, |rng| {
            vec![f64::from(u8::from(rng.random::<f64>() < share))]
        });
        let estimate = estimated(&params, &counts);
        let (found, feature) = (&estimate.columns[0], &estimate.features[0]);
        let distance = (found.mean.unwrap() - share).abs();
        assert!(distance < 5.0 * found.mean_error.unwrap(), "{found:?}");
        assert!(found.deviation.unwrap() < 0.1, "{found:?}");
        assert_eq!((feature.center, feature.scale), (center, 0.14));
    }
}

/// Fewer answers of as many people are effective where there are more to choose from, or cells are missing.
#[test]
fn effective_answers_depend_on_the_question() {
    let effective = |column: PreparationColumn| {
        let params = one(column, 1.0);
        let counts = vec![100; params.mechanism().counts()];
        let column = &estimated(&params, &counts).columns[0];
        (column.effective_answers, column.answers as f64)
    };
    for (kind, answers) in [
        (ColumnKind::number(0.0, 1.0), 3),
        (ColumnKind::YesNo, 2),
        (ColumnKind::categories(["a", "b", "c"]), 4),
    ] {
        let (found, n) = effective(column(kind));
        let odds = 1_f64.exp();
        let share = (odds - 1.0) / (odds + f64::from(answers) - 1.0);
        close(found / n, share * share);
    }
    // Of a yes-no column of which a third is missing B is 3, and two thirds count.
    let (found, n) = effective(column(ColumnKind::YesNo).may_be_missing());
    close(found / n, information(1.0, 3) * 2.0 / 3.0);
}

/// A share of all devices that lie about one column of four moves it by more than their share of honest draws would, at
/// most by the reach, and shows by its number.
#[test]
fn made_up_answers_reach_one_column() {
    let columns = (0..4).map(|at| PreparationColumn::new(format!("x{at}"), ColumnKind::YesNo));
    let params = PreparationParams::freeze(columns.collect(), 1.0, None).unwrap();
    let [high, low] = params.mechanism().probabilities(2);
    let (n, liars) = (4_000_000.0, 40_000.0);
    let first_column = |liars: f64| {
        // Three in ten honest ones would say yes, if they told the truth.
        let (each, yes) = ((n - liars) / 4.0, 0.3 * high + 0.7 * low);
        let honest = [each * (1.0 - yes), each * yes];
        let mut counts: Vec<u64> = honest.repeat(4).iter().map(|x| x.round() as u64).collect();
        counts[1] += liars as u64;
        estimated(&params, &counts).columns[0].clone()
    };
    let (honest, lied) = (first_column(0.0), first_column(liars));
    let (moved, reach) = (
        lied.mean.unwrap() - honest.mean.unwrap(),
        lied.reach_of_made_up,
    );
    close(reach, 4.0 * (1_f64.exp() + 1.0) / (1_f64.exp() - 1.0));
    let share = liars / n;
    assert!(
        moved < reach * share && moved > 0.5 * reach * share,
        "{moved}"
    );
    let says = |column: &PreparedColumn| column.messages.join("; ");
    assert!(
        says(&lied).contains("are about it, where devices"),
        "{lied:?}"
    );
    assert_eq!(says(&honest), "");
    // All for one pair of values: no more than often about the column, but not about the pair.
    let params = one(column(ColumnKind::number(0.0, 24.0)), 2.0);
    let mut counts = answered(&params, 12_000, |rng| vec![24.0 * rng.random::<f64>()]);
    assert_eq!(says(&estimated(&params, &counts).columns[0]), "");
    counts[0] += 300;
    let lied = &estimated(&params, &counts).columns[0];
    assert!(says(lied).contains("with the same two values"), "{lied:?}");
}

#[test]
fn rounds_that_do_not_belong_together_are_refused() {
    let first = one(column(ColumnKind::number(0.0, 1.0)), 1.0);
    let zeros = vec![0; first.mechanism().counts()];
    let nobody = Round::new(&first, &zeros).unwrap();
    let error = second_round(nobody).unwrap_err();
    assert!(error.detail().contains("nobody has answered"), "{error}");
    let ones = vec![1; zeros.len()];
    let round = Round::new(&first, &ones).unwrap();
    assert!(Round::new(&first, &ones[1..]).is_err());
    let mut request = second_round(round).unwrap();
    let freeze = |request: &PreparationRequest, epsilon: f64, after: Option<&str>| {
        let after = after.map(|text| text.parse().unwrap());
        PreparationParams::freeze(request.columns.clone(), epsilon, after).unwrap()
    };
    let after = request.after.clone().unwrap();
    let of_another = freeze(&request, 1.0, Some(&"ab".repeat(32)));
    let at_another = freeze(&request, 2.0, Some(&after));
    request.columns[0].name = "y".to_owned();
    let renamed = freeze(&request, 1.0, Some(&after));
    for (second, words) in [
        (&of_another, "belong together"),
        (&at_another, "another epsilon"),
        (&renamed, "other columns"),
        (&first, "follows none"),
    ] {
        let counts = vec![0; second.mechanism().counts()];
        let second = Round::new(second, &counts).unwrap();
        let error = estimate_preparation(round, Some(second), &mut |_, _| (), Cancel::NEVER);
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.detail().contains(words), "{error}");
    }
    let counts = vec![0; of_another.mechanism().counts()];
    let alone = Round::new(&of_another, &counts).unwrap();
    assert!(estimate_preparation(alone, None, &mut |_, _| (), Cancel::NEVER).is_err());
}

/// The design's table of J, its rule for n₁, and the two warnings.
#[test]
fn a_plan_divides_people() {
    for (epsilon, j) in [(0.5, 0.032), (1.0, 0.133), (2.0, 0.463), (4.0, 0.897)] {
        assert!((information(epsilon, 3) - j).abs() < 1e-3, "{epsilon}");
    }
    let plan = |columns, n, epsilon| {
        plan_preparation(&PreparationPlanRequest {
            columns,
            answers: 3,
            n,
            epsilon,
        })
        .unwrap()
    };
    let large = plan(10, 100_000, 4.0);
    // 1,000·10/0.897.
    assert!((11_140..11_160).contains(&large.prepare), "{large:?}");
    assert_eq!(large.prepare + large.study, 100_000);
    assert!((large.effective_answers - 1_000.0).abs() < 0.1 && large.is_recommended);
    assert_eq!((large.further_loss, large.sentences().len()), (0.7, 1));
    let middle = plan(10, 20_000, 1.0);
    assert_eq!(middle.prepare, 6_000);
    assert!(middle.sentences()[1].contains("80 effective answers a column are few"));
    // Of the columns below one may be missing, which makes four answers, and one has four categories and another one.
    let columns = vec![
        column(ColumnKind::number(0.0, 1.0)).may_be_missing(),
        PreparationColumn::new("y", ColumnKind::categories(["a", "b", "c", "d"])),
    ];
    let request = PreparationPlanRequest::of_columns(columns, 1_000, 1.0).unwrap();
    let asked = plan_preparation(&request).unwrap();
    assert_eq!((asked.columns, asked.answers), (2, 5));
    close(asked.effective_answers, 150.0 * information(1.0, 5));
    let small = plan(60, 2_000, 0.5);
    assert!(!small.is_recommended && small.sentences()[1].contains("not recommended"));
    assert_eq!(small.further_loss, 20.0);
    for (columns, n) in [(0, 10), (10, 0), (65_536, 10)] {
        let request = PreparationPlanRequest {
            columns,
            answers: 3,
            n,
            epsilon: 1.0,
        };
        let error = plan_preparation(&request).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    let tiny = PreparationPlanRequest {
        columns: 1,
        answers: 3,
        n: 1,
        epsilon: f64::NAN,
    };
    assert_eq!(
        plan_preparation(&tiny).unwrap_err().code(),
        ErrorCode::InvalidBudget
    );
}
