//! Private centring: the oracle without noise, independent numbers, the price, the spurious component,
//! both paths, real data.

use eigenveil_estimation::{
    ComponentsReport, Warning,
    accumulate::Accumulator,
    centring::planned_noise,
    linalg::packed_to_dense,
    metrics::projector_distance,
    moment::NoisyMoment,
    pca::pca,
    principal_components,
    simulate::{NoisePath, RowSource, SimulatedParticipants, noisy_sum},
};
use eigenveil_shared::{
    ErrorCode,
    estimate::{ComponentCount, Verdict},
    mechanism::{MechanismKind, NoiseModel},
    packed::PackedSymmetric,
    preprocess::{DEFAULT_CENTRING, Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};
use nalgebra::{DMatrix, DVector};
use rand::{Rng, SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::common::{axis, noisy_study, params_with, shared_rows, simulated};

/// Rows around a mean that is not zero, of different lengths.
fn rows(p: usize, n: usize) -> Vec<Row> {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    (0..n)
        .map(|_| {
            let along: f64 = StandardNormal.sample(&mut rng);
            let row = (0..p).map(|j| {
                let z: f64 = StandardNormal.sample(&mut rng);
                let lean = if j == 1 { 0.5 * along } else { 0.0 };
                0.4 + 0.1 * j as f64 / p as f64 + lean + 0.2 * z
            });
            Row::new(row.collect())
        })
        .collect()
}

/// Mean and covariance (denominator n) of the prepared features, the plain way.
fn plain(params: &StudyParams, rows: &[Row]) -> (DVector<f64>, DMatrix<f64>) {
    let preprocessor = params.preprocessor();
    let prepare = |row| preprocessor.prepare_features(row).unwrap();
    let prepared = rows.iter().map(prepare);
    let prepared: Vec<_> = prepared
        .map(|x| DVector::from_column_slice(x.as_slice()))
        .collect();
    let n = prepared.len() as f64;
    let mean = prepared.iter().sum::<DVector<f64>>() / n;
    let around = prepared.iter().map(|x| x - &mean);
    let covariance = around.map(|x| &x * x.transpose()).sum::<DMatrix<f64>>();
    (mean, covariance / n)
}

/// Reports without noise in 4 buckets: yyᵀ, and for `double-cap` its expected decoded report, which lacks a multiple
/// of I.
fn without_noise(params: &StudyParams, rows: &[Row]) -> NoisyMoment {
    let dimension = params.report_dimension();
    let noise = params.noise_model();
    let mut buckets = vec![Accumulator::new(dimension).unwrap(); 4];
    for (i, row) in rows.iter().enumerate() {
        let y = params.preprocessor().prepare(row).unwrap();
        let mut report = PackedSymmetric::zeros(dimension);
        report.add_outer(y.as_slice(), 1.0);
        if let NoiseModel::DoubleCap { .. } = noise {
            let level = report.trace() / dimension as f64;
            for j in 0..dimension {
                report.add_outer(&axis(dimension, j), -level);
            }
        }
        // Buckets of different sizes.
        let bucket = [0, 0, 1, 2][i % 4];
        buckets[bucket]
            .merge(&Accumulator::from_parts(report, 1).unwrap())
            .unwrap();
    }
    NoisyMoment::from_buckets(buckets, noise).unwrap()
}

#[test]
fn without_noise_it_is_the_plain_mean_and_covariance() {
    let rows = rows(6, 103);
    for mechanism in [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::DoubleCap,
    ] {
        for norm in [
            Norm::Normalize,
            Norm::Clip { radius: 1.1 },
            Norm::Require { radius: 9.0 },
        ] {
            for a in [0.05, 0.5, DEFAULT_CENTRING, 1.0] {
                let params = params_with(6, mechanism, 4.0, norm, Some(a));
                let (mean, covariance) = plain(&params, &rows);
                let moment = without_noise(&params, &rows).centred(a, norm).unwrap();
                let estimated = moment.estimated_mean().unwrap();
                let found = DVector::from_column_slice(estimated.values());
                let context = format!("{mechanism} {norm:?} {a}");
                assert!((found - &mean).amax() < 1e-12, "{context}");
                assert_eq!(moment.dimension(), 6);
                assert!((moment.dense() - &covariance).amax() < 1e-12, "{context}");
                // The buckets still add up to the whole, and each shows its own rows around the common mean.
                let mut total = Accumulator::new(6).unwrap();
                for bucket in moment.buckets() {
                    total.merge(bucket).unwrap();
                }
                assert_eq!(total.count(), 103);
                let bucket_rows: Vec<DVector<f64>> = rows
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| i % 4 == 2)
                    .map(|(_, row)| {
                        let x = params.preprocessor().prepare_features(row).unwrap();
                        DVector::from_column_slice(x.as_slice()) - &mean
                    })
                    .collect();
                let sum = bucket_rows
                    .iter()
                    .map(|x| x * x.transpose())
                    .sum::<DMatrix<f64>>();
                let difference = packed_to_dense(moment.buckets()[1].sum()) - sum;
                // A bucket's rows have another mean length than all rows: only a multiple of I is off.
                let level = match (mechanism, norm) {
                    (MechanismKind::DoubleCap, Norm::Clip { .. } | Norm::Require { .. }) => {
                        difference.trace() / 6.0
                    }
                    _ => 0.0,
                };
                let rest = difference - DMatrix::identity(6, 6) * level;
                assert!(rest.amax() < 1e-11, "{context}: {}", rest.amax());
            }
        }
    }
}

#[test]
fn uncentrable_noise_is_an_error() {
    let rows = rows(3, 10);
    let kind = MechanismKind::IsotropicGaussian;
    let gaussian = params_with(3, kind, 1.0, Norm::Normalize, Some(0.5));
    let moment = || without_noise(&gaussian, &rows);
    for a in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = moment().centred(a, Norm::Normalize).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPreprocessing);
    }
    let once = moment().centred(0.5, Norm::Normalize).unwrap();
    let error = once.centred(0.5, Norm::Normalize).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidMechanism);
    let one = Accumulator::from_parts(PackedSymmetric::from_entries(1, vec![1.0]).unwrap(), 1);
    let one = NoisyMoment::from_buckets(vec![one.unwrap()], gaussian.noise_model()).unwrap();
    let error = one.centred(0.5, Norm::Normalize).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidDimension);
    // Creation and the device reject a constant that would break the sensitivity.
    for a in [0.0, -0.5, 0.009, 1.000_001, f64::NAN] {
        let design = StudyDesign {
            centring: Some(a),
            ..StudyDesign::new(MechanismKind::DoubleCap, 3, Budget::pure(1.0).unwrap())
        };
        let error = StudyParams::freeze(design).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPreprocessing, "{a}");
    }
    let good = params_with(3, MechanismKind::DoubleCap, 1.0, Norm::Normalize, Some(0.5));
    let json = serde_json::to_string(&good).unwrap();
    let wrong = json.replace("\"centring\":0.5", "\"centring\":1.5");
    assert_ne!(json, wrong);
    assert!(serde_json::from_str::<StudyParams>(&wrong).is_err());
}

/// A symmetric matrix of independent noise, variance 1 off the diagonal and 2 on it.
fn goe<R: Rng + ?Sized>(p: usize, rng: &mut R) -> DMatrix<f64> {
    let square = DMatrix::<f64>::from_fn(p, p, |_, _| StandardNormal.sample(rng));
    (&square + square.transpose()) / 2.0_f64.sqrt()
}

/// A report moment of rows with this mean, plus noise of standard deviation `s` in its mean.
fn noisy_moment<R: Rng + ?Sized>(
    covariance: &DMatrix<f64>,
    mean: &DVector<f64>,
    a: f64,
    s: f64,
    rng: &mut R,
) -> NoisyMoment {
    let p = mean.len();
    let f = 1.0 + a * a;
    let noise = goe(p + 1, rng);
    let mut sum = PackedSymmetric::zeros(p + 1);
    let mut entries = sum.as_mut_slice().iter_mut();
    for i in 0..=p {
        for j in i..=p {
            let exact = match (i == p, j == p) {
                (true, _) => a * a,
                (_, true) => a * mean[i],
                _ => covariance[(i, j)] + mean[i] * mean[j],
            };
            *entries.next().unwrap() = exact / f + s * noise[(i, j)];
        }
    }
    let model = NoiseModel::Gaussian {
        off_diagonal_sd: s,
        diagonal_sd: s * 2.0_f64.sqrt(),
    };
    NoisyMoment::from_buckets(vec![Accumulator::from_parts(sum, 1).unwrap()], model)
        .unwrap()
        .centred(a, Norm::Normalize)
        .unwrap()
}

/// `docs/derivations/centring.md`, "Price": the factor of centring on the variance of Gaussian noise between a
/// direction v with `m_v² = squared_mean_along` and one across the mean.
fn price(a: f64, squared_mean_along: f64) -> f64 {
    (1.0 + a * a).powi(2) * (1.0 + squared_mean_along / (a * a))
}

/// `docs/derivations/centring.md`, "Price": the variance in direction v, relative to an uncentred report, is
/// `(1+a²)²(1+m_v²/a²)`. 4,000 draws of 38 independent entries: the ratio has a relative standard error of √(2/152,000)
/// = 0.4 %, so a deviation of 3 % practically never happens by chance; the rest of the tolerance is the second order in
/// the noise.
#[test]
fn the_price_of_centring() {
    let (p, s) = (40, 1e-3);
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    for a in [0.35, 0.5, DEFAULT_CENTRING, 1.0] {
        // The mean has length 0.9 and m_v = 0.5 along v = e₀; the rest of it lies in e₁.
        let mut mean = DVector::zeros(p);
        mean[0] = 0.5;
        mean[1] = (0.81_f64 - 0.25).sqrt();
        let zero = DMatrix::zeros(p, p);
        let mut squares = 0.0;
        let draws = 4_000;
        for _ in 0..draws {
            let moment = noisy_moment(&zero, &mean, a, s, &mut rng).dense();
            squares += (2..p).map(|j| moment[(0, j)].powi(2)).sum::<f64>();
        }
        let measured = squares / (draws * (p - 2)) as f64 / (s * s);
        let formula = price(a, 0.25);
        println!("a = {a:.3}: variance × {measured:.3}, formula {formula:.3}");
        assert!((measured / formula - 1.0).abs() < 0.03);
    }
    // The best constant is the documented one.
    for m in [0.1, 0.25, 1.0_f64] {
        let best = ((-m + (m * m + 8.0 * m).sqrt()) / 4.0).sqrt();
        for a in [0.9 * best, 1.1 * best] {
            assert!(price(a, m) > price(best, m));
        }
    }
    assert!((price(DEFAULT_CENTRING, 1.0) - 6.75).abs() < 1e-12);
}

/// `docs/derivations/centring.md`, "The spurious component": where ‖m‖ > a, the top of pure noise is (x + 1/x)/2 times
/// the bulk's edge: 1.178, 1.939, 1.029, and 1 for a = 1. The floor's edge must be there, and an eigenvalue at it is
/// not counted as a component.
#[test]
fn the_spurious_component_is_at_the_floors_edge_and_not_counted() {
    let p = 300;
    // Small, so that the second order in the noise does not show.
    let s = 1e-6;
    let r = s * (p as f64).sqrt();
    let mut mean = DVector::zeros(p);
    mean[7] = 0.9;
    let zero = DMatrix::zeros(p, p);
    for (a, independent) in [
        (0.5, 1.172),
        (0.25, 1.914),
        (DEFAULT_CENTRING, 1.023),
        (1.0, 0.99),
    ] {
        let mut rng = ChaCha20Rng::seed_from_u64(17);
        let f = 1.0 + a * a;
        let (mut top, mut edge, mut counted) = (0.0, 0.0, 0);
        let draws = 40;
        for _ in 0..draws {
            let moment = noisy_moment(&zero, &mean, a, s, &mut rng);
            let findings =
                principal_components(&moment, ComponentCount::Fixed(1), "ε = 1").unwrap();
            let floor = &findings.floor_report.floor;
            top += (findings.spectrum[0] - floor.center) / (2.0 * f * r) / f64::from(draws);
            edge += (floor.edge - floor.center) / (2.0 * f * r) / f64::from(draws);
            counted += floor.components_above;
        }
        let x = 0.9 / a;
        let formula = if x > 1.0 { 0.5 * (x + 1.0 / x) } else { 1.0 };
        println!("a = {a}: {top} ({independent}), edge {edge} ({formula}), counted {counted}");
        assert!((edge - formula).abs() < 0.02);
        // Forty draws: the mean of the top has a standard error below 0.01; finite p lowers it by up to 0.02.
        assert!((top - independent).abs() < 0.03);
        assert!(counted <= 2);
    }
}

/// `k = auto` under pure noise: one or two in a hundred cases at most where the mean is as long as a or longer. 400
/// draws: a correct floor (2 %) gives more than 20 with probability 1e-4. The bulk's margin alone gave 5 to 16 %.
#[test]
fn noise_around_a_mean_is_not_counted() {
    let (p, s) = (30, 1e-6);
    let zero = DMatrix::zeros(p, p);
    let mut mean = DVector::zeros(p);
    mean[3] = 0.9;
    for a in [0.25, 0.5, DEFAULT_CENTRING, 0.9, 1.0] {
        let mut rng = ChaCha20Rng::seed_from_u64(29);
        let counted: usize = (0..400)
            .map(|_| {
                let moment = noisy_moment(&zero, &mean, a, s, &mut rng);
                let findings =
                    principal_components(&moment, ComponentCount::Auto, "ε = 1").unwrap();
                findings.floor_report.floor.components_above.min(1)
            })
            .sum();
        assert!(counted <= 20, "{a}: {counted}");
    }
}

/// A weak direction along the mean, just above the edge, has a warning; a strong component elsewhere is counted as
/// before, without one.
#[test]
fn a_component_along_the_mean_just_above_the_noise_has_a_warning() {
    let (p, s, a) = (60, 1e-3, 0.5);
    let mut mean = DVector::zeros(p);
    mean[0] = 0.9;
    let mut rng = ChaCha20Rng::seed_from_u64(23);
    let mut strong = DMatrix::zeros(p, p);
    strong[(5, 5)] = 0.5;
    let mut doubted = 0;
    for _ in 0..50 {
        let moment = noisy_moment(&strong, &mean, a, s, &mut rng);
        let findings = principal_components(&moment, ComponentCount::Fixed(2), "ε = 1").unwrap();
        let floor_report = &findings.floor_report;
        assert_eq!(floor_report.components[0].verdict, Verdict::Above);
        assert!(findings.vectors[(5, 0)] > 0.99);
        let clear = principal_components(&moment, ComponentCount::Fixed(1), "ε = 1").unwrap();
        assert_eq!(clear.floor_report.warnings, []);
        let warnings = &floor_report.warnings;
        let warned = warnings.contains(&Warning::TowardsMean(vec![2]));
        doubted += usize::from(warned);
        let below = floor_report.components[1].verdict == Verdict::Below;
        assert!(below || warned, "{warnings:?}");
    }
    // About half of the spurious eigenvalues lie above their expected place, the edge.
    assert!((10..=45).contains(&doubted), "{doubted}");
}

/// The estimate's expected error and the planner's prediction against the measured error.
///
/// The tolerance of 25 % is that of twenty repeats (each spreads by about 10 to 15 %) and of the floor's formula.
#[test]
fn prediction_and_expectation_hold_with_centring() {
    let rows = rows(24, 400);
    for (mechanism, epsilon, n) in [
        (MechanismKind::IsotropicGaussian, 4.0, 600_000),
        (MechanismKind::DoubleCap, 2.0, 100_000),
        (MechanismKind::DoubleCap, 6.0, 20_000),
    ] {
        for norm in [Norm::Normalize, Norm::Clip { radius: 2.5 }] {
            for a in [0.4, DEFAULT_CENTRING] {
                let params = params_with(24, mechanism, epsilon, norm, Some(a));
                let (_, from_sum) = simulated(&params, RowSource::Rows(&rows), (n, 1), (20, 6));
                let predicted = from_sum.predicted_error.unwrap();
                println!("{mechanism} ε {epsilon} {norm:?} a {a:.2}: {from_sum:?}");
                assert!((from_sum.error_mean / predicted - 1.0).abs() < 0.25);
                let expected = from_sum.expected_error.unwrap();
                assert!((from_sum.error_mean / expected - 1.0).abs() < 0.25);
                assert!(from_sum.nonprivate_error < 0.3 * from_sum.error_mean);
            }
        }
    }
}

/// Rows around 10⁸: what is said of no noise is their covariance, not the rounding of their squares.
#[test]
fn an_offset_does_not_hide_the_spread_without_noise() {
    let rows = rows(6, 2_000);
    let around = |offset: f64| {
        let far = rows
            .iter()
            .map(|row| Row::new(row.values().iter().map(|x| offset + x).collect()));
        let norm = Norm::Clip {
            radius: 10.0 + 4.0 * offset,
        };
        // Its noise draws as many random numbers whatever the rows are.
        let params = params_with(6, MechanismKind::IsotropicGaussian, 4.0, norm, Some(0.5));
        let far: Vec<Row> = far.collect();
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let people =
            SimulatedParticipants::draw(&RowSource::Rows(&far), 2, &params, &mut rng).unwrap();
        let path = NoisePath::FromSum;
        let (_, clean) =
            noisy_sum(&params, &people, 5_000, path, &mut rng, &mut |_| Ok(())).unwrap();
        let (_, summary) = simulated(&params, RowSource::Rows(&far), (5_000, 2), (1, 7));
        let (mean, _) = plain(&params, &far);
        let found = clean.estimated_mean().unwrap().values();
        let off = found.iter().zip(mean.iter()).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 2e-3);
        summary.nonprivate_error
    };
    let (near, far) = (around(0.0), around(1e8));
    assert!((far - near).abs() < 1e-4, "{far} {near}");
}

/// Real rows whose first uncentred component is their mean: with centring the centred components come out.
#[test]
fn real_data_gives_centred_components_instead_of_the_mean() {
    for (name, k) in [("breast_cancer", 1), ("digits", 3)] {
        let Some(mut rows) = shared_rows(&format!("{name}.npy")) else {
            continue;
        };
        let p = rows[0].values().len();
        if name == "breast_cancer" {
            // Features of very different units: each by a round public range.
            let range = |j: usize| {
                let largest = rows.iter().map(|row| row.values()[j]).fold(0.0, f64::max);
                10.0_f64.powf(largest.log10().ceil())
            };
            let ranges: Vec<f64> = (0..p).map(range).collect();
            for row in &mut rows {
                let scaled = row.values().iter().zip(&ranges).map(|(v, range)| v / range);
                *row = Row::new(scaled.collect());
            }
        }
        let [uncentred, centred] = [None, Some(DEFAULT_CENTRING)].map(|centring| {
            params_with(p, MechanismKind::DoubleCap, 4.0, Norm::Normalize, centring)
        });
        let (mean, covariance) = plain(&centred, &rows);
        let truth = pca(&covariance, k).unwrap();
        let direction = mean.normalize();
        let mut rng = ChaCha20Rng::seed_from_u64(31);
        let [plainly, around] = [&uncentred, &centred].map(|params| {
            let people =
                SimulatedParticipants::draw(&RowSource::Rows(&rows), k, params, &mut rng).unwrap();
            noisy_study(params, &people, 200_000, &mut rng)
        });
        let first = |moment: &NoisyMoment| {
            principal_components(moment, ComponentCount::Fixed(k), "ε = 4").unwrap()
        };
        let (without, with) = (first(&plainly), first(&around));
        let cosine = |found: &ComponentsReport| found.vectors.column(0).dot(&direction).powi(2);
        let error = projector_distance(&with.vectors, &truth.vectors).unwrap();
        let error_without = projector_distance(&without.vectors, &truth.vectors).unwrap();
        assert!(cosine(&without) > 0.9, "{name}: {}", cosine(&without));
        assert!(cosine(&with) < 0.3, "{name}: {}", cosine(&with));
        assert!(error < 0.6 * error_without, "{error} {error_without}");
    }
}

/// The planner's noise is the noise that the estimate computes.
#[test]
fn planned_noise_equals_the_estimates_noise() {
    let rows = rows(6, 4_000);
    for mechanism in [MechanismKind::DoubleCap, MechanismKind::IsotropicGaussian] {
        for norm in [Norm::Normalize, Norm::Clip { radius: 3.0 }] {
            let params = params_with(6, mechanism, 4.0, norm, Some(0.5));
            let (mean, covariance) = plain(&params, &rows);
            let moment = without_noise(&params, &rows).centred(0.5, norm).unwrap();
            let found = *moment.noise();
            let planned = planned_noise(&params, covariance.trace(), mean.norm()).unwrap();
            let numbers = |noise: NoiseModel| match noise {
                NoiseModel::Transformed {
                    dimension,
                    constant,
                    linear,
                    bilinear,
                    shift,
                    ..
                } => [dimension as f64, constant, linear, bilinear, shift],
                other => panic!("{other:?}"),
            };
            for (ours, theirs) in numbers(planned).into_iter().zip(numbers(found)) {
                let apart = (ours - theirs).abs();
                assert!(apart <= 1e-9 * theirs.abs(), "{planned:?} {found:?}");
            }
        }
    }
    // Impossible rows, and a study without centring.
    let centred = params_with(6, MechanismKind::DoubleCap, 4.0, Norm::Normalize, Some(0.7));
    for (total, length) in [(0.5, 0.9), (-0.1, 0.1), (0.5, f64::NAN)] {
        let error = planned_noise(&centred, total, length).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    let plain = params_with(6, MechanismKind::DoubleCap, 4.0, Norm::Normalize, None);
    let unchanged = planned_noise(&plain, 1.0, 0.0).unwrap();
    assert_eq!(unchanged, plain.noise_model());
}
