//! Missing cells: what dividing by the observed shares restores, without noise and with it. Weights.

use eigenveil_estimation::{
    metrics::projector_distance,
    models::Model,
    moment::NoisyMoment,
    simulate::{RowSource, SimulatedParticipants},
};
use eigenveil_shared::{
    ErrorCode,
    mechanism::MechanismKind,
    preprocess::{DEFAULT_CENTRING, Feature, Norm, Row, Weights},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::common::{Buckets, simulated};

const P: usize = 40;
const K: usize = 3;
const CLIP: Norm = Norm::Clip { radius: 7.0 };
const REQUIRE: Norm = Norm::Require { radius: 30.0 };

/// Whole rows of a spiked population, shifted off the origin.
fn whole(n: usize, shift: f64) -> Vec<Row> {
    let mut rng = ChaCha20Rng::seed_from_u64(31);
    let population = Model::spiked(P, K, 9.0).draw(&mut rng).unwrap();
    let shifted = |values: Vec<f64>| Row::new(values.into_iter().map(|x| x + shift).collect());
    (0..n).map(|_| shifted(population.row(&mut rng))).collect()
}

/// From 0.7 for the first feature to 1 for the last.
fn shares() -> Vec<f64> {
    (0..P)
        .map(|i| 0.7 + 0.3 * i as f64 / (P - 1) as f64)
        .collect()
}

/// Four sections of ten features each, missing as a whole.
fn section(i: usize) -> usize {
    i / 10
}

fn mask(rows: &[Row], observed: impl Fn(&mut ChaCha20Rng) -> Vec<bool>) -> Vec<Row> {
    let mut rng = ChaCha20Rng::seed_from_u64(32);
    let one = |row: &Row| {
        let cells = row.values().iter().zip(observed(&mut rng));
        Row::new(
            cells
                .map(|(x, there)| if there { *x } else { f64::NAN })
                .collect(),
        )
    };
    rows.iter().map(one).collect()
}

fn one_by_one(rows: &[Row]) -> Vec<Row> {
    let shares = shares();
    mask(rows, |rng| {
        shares
            .iter()
            .map(|share| rng.random::<f64>() < *share)
            .collect()
    })
}

fn design(norm: Norm, centring: Option<f64>, features: Option<Vec<Feature>>) -> StudyDesign {
    StudyDesign {
        norm,
        centring,
        features,
        ..StudyDesign::new(MechanismKind::DoubleCap, P, Budget::pure(4.0).unwrap())
    }
}

fn features(share: impl Fn(usize) -> f64) -> Vec<Feature> {
    (0..P)
        .map(|i| Feature::new(format!("x{i}"), 0.0, 1.0).observed(share(i)))
        .collect()
}

/// The first components without noise.
fn components(rows: &[Row], design: StudyDesign) -> DMatrix<f64> {
    // Without private centring double-cap shows no trace of rows that are clipped: any mechanism serves here.
    let kind = MechanismKind::IsotropicGaussian;
    let params = StudyParams::freeze(StudyDesign {
        mechanism: kind,
        budget: kind.budget(4.0, None).unwrap(),
        ..design
    })
    .unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let drawn = SimulatedParticipants::draw(&RowSource::Rows(rows), K, &params, &mut rng).unwrap();
    drawn.truth().clone()
}

/// Undivided, a cell that is missing counts as a small value: the directions are 0.2 to 0.4 off. The limits are twice
/// what was measured with 20,000 rows.
#[test]
fn dividing_restores_the_directions_of_whole_rows() {
    let rows = whole(20_000, 0.0);
    let masked = one_by_one(&rows);
    for norm in [Norm::Normalize, CLIP, REQUIRE] {
        for centring in [None, Some(DEFAULT_CENTRING)] {
            let truth = components(&rows, design(norm, centring, None));
            let divided = features(|i| shares()[i]);
            let divided = components(&masked, design(norm, centring, Some(divided)));
            let undivided = components(&masked, design(norm, centring, Some(features(|_| 1.0))));
            let divided = projector_distance(&divided, &truth).unwrap();
            let undivided = projector_distance(&undivided, &truth).unwrap();
            assert!(
                divided < 0.06 && undivided > 0.15,
                "{norm:?} {centring:?}: {divided} {undivided}"
            );
        }
    }
}

/// Cells of a section are missing together: divided one by one, products within a section would be too large.
#[test]
fn sections_are_divided_once() {
    // A factor of everything, and one of each section.
    let mut rng = ChaCha20Rng::seed_from_u64(36);
    let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
    let rows: Vec<Row> = (0..20_000)
        .map(|_| {
            let (common, own) = (normal(), [2.0, 1.5, 1.2, 0.5].map(|size| size * normal()));
            Row::new(
                (0..P)
                    .map(|i| common + own[section(i)] + normal())
                    .collect(),
            )
        })
        .collect();
    let share = [1.0, 0.6, 0.8, 0.7];
    let masked = mask(&rows, |rng| {
        let there: Vec<bool> = share
            .iter()
            .map(|share| rng.random::<f64>() < *share)
            .collect();
        (0..P).map(|i| there[section(i)]).collect()
    });
    let in_sections = features(|i| share[section(i)]).into_iter().enumerate();
    let in_sections = in_sections.map(|(i, feature)| Feature {
        section: Some(format!("part {}", section(i))),
        ..feature
    });
    let truth = components(&rows, design(CLIP, None, None));
    let error = |features| {
        let report = components(&masked, design(CLIP, None, Some(features)));
        projector_distance(&report, &truth).unwrap()
    };
    let (by_section, by_cell) = (
        error(in_sections.collect()),
        error(features(|i| share[section(i)])),
    );
    assert!(
        by_section < 0.1 && by_cell > 1.5 * by_section,
        "{by_section} {by_cell}"
    );
}

/// The mean square error is what the estimate expects of itself, within a sixth; each setting has 20 studies of 100,000
/// participants, whose root mean square errors vary by 5 %.
#[test]
fn the_expected_error_knows_the_noise_that_dividing_adds() {
    let rows = whole(20_000, 0.1);
    let masked = one_by_one(&rows);
    for (norm, centring) in [(Norm::Normalize, None), (CLIP, Some(DEFAULT_CENTRING))] {
        let measure = |rows: &[Row], features: Option<Vec<Feature>>| {
            let params = StudyParams::freeze(design(norm, centring, features)).unwrap();
            let (repeats, summary) =
                simulated(&params, RowSource::Rows(rows), (100_000, K), (20, 33));
            let squares = repeats
                .iter()
                .map(|repeat| repeat.error.powi(2))
                .sum::<f64>();
            ((squares / 20.0).sqrt(), summary.expected_error.unwrap())
        };
        let (complete, _) = measure(&rows, None);
        let (error, said) = measure(&masked, Some(features(|i| shares()[i])));
        assert!(
            (said / error).ln().abs() < 0.16,
            "{norm:?} {centring:?}: {error} {said}"
        );
        assert!(
            error > complete && error < 1.6 * complete,
            "{complete} {error}"
        );
    }
}

#[test]
fn shares_that_cannot_be_divided_by_are_refused() {
    let freeze = |design: StudyDesign| StudyParams::freeze(design).unwrap_err();
    let refusal = |change: fn(&mut Vec<Feature>)| {
        let mut features = features(|_| 0.9);
        change(&mut features);
        freeze(design(Norm::Normalize, None, Some(features)))
    };
    let sectioned = |own: &mut Vec<Feature>| {
        own[0].section = Some("a".to_owned());
        own[1].section = Some("a".to_owned());
        own[1].observed = Some(0.5);
    };
    for (error, word) in [
        (refusal(|own| own[3].observed = Some(0.05)), "0.05"),
        (refusal(|own| own[3].observed = Some(1.1)), "1.1"),
        (refusal(|own| own[3].observed = Some(f64::NAN)), "NaN"),
        (refusal(|own| own[3].observed = None), "\"x3\""),
        (refusal(sectioned), "one share"),
        (
            freeze(design(CLIP, None, Some(features(|_| 0.9)))),
            "private centring",
        ),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidPreprocessing, "{error}");
        assert!(error.detail().contains(word), "{error}");
    }
}

/// The moment of reports of rows that count by weights, with w̄ measured by private centring, public and unknown. The
/// first rows count 1 and vary along one axis, the last count 0.3 and vary along the other.
#[test]
fn weights_estimate_the_weighted_population() {
    let p = 8;
    let mut rng = ChaCha20Rng::seed_from_u64(34);
    let mut normal = move || -> f64 { StandardNormal.sample(&mut rng) };
    let rows: Vec<(Row, f64)> = (0..4_000)
        .map(|i| {
            let (axis, weight) = if i % 2 == 0 { (0, 1.0) } else { (1, 0.3) };
            let mut row: Vec<f64> = (0..p).map(|_| 0.3 + 0.3 * normal()).collect();
            row[axis] += 2.0 * normal();
            (Row::new(row), weight)
        })
        .collect();
    let w = rows.iter().map(|(_, weight)| weight).sum::<f64>() / rows.len() as f64;
    for (kind, centring, mean) in [
        (MechanismKind::DoubleCap, Some(DEFAULT_CENTRING), None),
        (MechanismKind::DoubleCap, None, Some(w)),
        (
            MechanismKind::IsotropicGaussian,
            Some(DEFAULT_CENTRING),
            None,
        ),
        (MechanismKind::DoubleCap, None, None),
    ] {
        let params = StudyParams::freeze(StudyDesign {
            centring,
            weights: Some(Weights { mean }),
            ..StudyDesign::new(kind, p, kind.budget(8.0, None).unwrap())
        })
        .unwrap();
        // What the rows without noise would give, the plain way.
        let mut moment = DMatrix::<f64>::zeros(p, p);
        let mut average = DVector::<f64>::zeros(p);
        let mut rng = ChaCha20Rng::seed_from_u64(35);
        let mut sum = Buckets::new(&params, 1);
        // The measured w̄ needs more reports than the moment.
        let copies = if centring.is_some() { 20 } else { 5 };
        for (row, weight) in &rows {
            let x = params.preprocessor().prepare_features(row).unwrap();
            let x = DVector::from_column_slice(x.as_slice());
            moment += *weight * &x * x.transpose();
            average += *weight * x;
            let (bounded, _) = params
                .preprocessor()
                .prepare_weighted(row, *weight)
                .unwrap();
            (0..copies).for_each(|_| sum.add_report(0, &bounded, &mut rng));
        }
        let weights = w * rows.len() as f64;
        moment /= weights;
        average /= weights;
        if centring.is_some() {
            moment -= &average * average.transpose();
        }
        let estimated = NoisyMoment::decode(sum.finish(), &params).unwrap();
        let known = mean.is_some() || centring.is_some();
        let scale = if known { 1.0 } else { w };
        // Reports of double-cap have no trace without centring.
        let missing = match (kind, centring) {
            (MechanismKind::DoubleCap, None) => scale / p as f64,
            _ => 0.0,
        };
        let noise = params.noise_model().divided_by_mean_weight(w);
        let deviation = scale * noise.off_diagonal_sd() / (estimated.n() as f64).sqrt();
        let off = estimated.dense() + DMatrix::identity(p, p) * missing - scale * moment;
        // 36 entries, those of the diagonal with √2 to √3 of the deviation.
        assert!(
            off.amax() < 7.0 * deviation,
            "{kind} {centring:?} {mean:?}: {off}"
        );
    }
}
