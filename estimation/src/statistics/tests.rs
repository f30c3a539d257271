use eigenveil_shared::{
    mechanism::{Decoding, MechanismKind, NoiseModel},
    packed::PackedSymmetric,
    preprocess::{Feature, Norm, Weights},
    study::{StudyDesign, StudyParams},
};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

use super::*;
use crate::linalg::packed_to_dense;

const CLIP: Norm = Norm::Clip { radius: 1.0 };

fn study(kind: MechanismKind, p: usize, norm: Norm, centring: Option<f64>) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        norm,
        centring,
        ..StudyDesign::new(kind, p, kind.budget(4.0, None).unwrap())
    })
    .unwrap()
}

/// Correlated rows in the unit ball away from the origin; of length one for `normalize`.
fn rows(p: usize, norm: Norm) -> Vec<DVector<f64>> {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let rows = (0..40).map(|_| {
        let common: f64 = rng.random::<f64>() - 0.5;
        let row = DVector::from_fn(p, |j, _| {
            0.15 + common * (j + 1) as f64 / p as f64 + 0.5 * (rng.random::<f64>() - 0.5)
        });
        match norm {
            Norm::Normalize => row.normalize(),
            _ => &row / row.norm().max(1.0),
        }
    });
    rows.collect()
}

/// Rows in the form that a device perturbs.
fn lifted(rows: &[DVector<f64>], centring: Option<f64>) -> Vec<DVector<f64>> {
    let lift = |row: &DVector<f64>| match centring {
        Some(a) => row.push(a) / (1.0 + a * a).sqrt(),
        None => row.clone(),
    };
    rows.iter().map(lift).collect()
}

fn second_moment(rows: &[DVector<f64>]) -> DMatrix<f64> {
    let sum: DMatrix<f64> = rows.iter().map(|row| row * row.transpose()).sum();
    sum / rows.len() as f64
}

/// The expected mean report of these rows.
fn expected_report(rows: &[DVector<f64>], params: &StudyParams) -> DMatrix<f64> {
    let mut moment = second_moment(&lifted(rows, params.preprocessing().centring));
    if matches!(params.noise_model(), NoiseModel::DoubleCap { .. }) {
        let identity = moment.trace() / moment.nrows() as f64;
        (0..moment.nrows()).for_each(|i| moment[(i, i)] -= identity);
    }
    moment
}

fn packed(matrix: &DMatrix<f64>) -> PackedSymmetric {
    let p = matrix.nrows();
    let entries = (0..p).flat_map(|i| (i..p).map(move |j| matrix[(i, j)]));
    PackedSymmetric::from_entries(p, entries.collect()).unwrap()
}

fn covariance(rows: &[DVector<f64>]) -> DMatrix<f64> {
    let mean = rows.iter().sum::<DVector<f64>>() / rows.len() as f64;
    let centred: Vec<_> = rows.iter().map(|row| row - &mean).collect();
    second_moment(&centred)
}

const KINDS: [MechanismKind; 3] = [
    MechanismKind::DoubleCap,
    MechanismKind::SymmetricGaussian,
    MechanismKind::IsotropicGaussian,
];

/// One category of a variable excludes the others, which is no news.
#[test]
fn categories_of_one_variable_are_not_correlated() {
    let features = ["c=a", "c=b", "age", "d=b"].map(|name| Feature::new(name, 0.0, 1.0));
    let kind = MechanismKind::DoubleCap;
    let params = StudyParams::freeze(StudyDesign {
        features: Some(features.to_vec()),
        ..StudyDesign::new(kind, 4, kind.budget(4.0, None).unwrap())
    });
    let report = PackedSymmetric::zeros(4);
    let moment = MomentEstimate::new(&report, 1 << 40, &params.unwrap()).unwrap();
    let pairs: Vec<(usize, usize)> = moment.correlations().map(|(i, j, _)| (i, j)).collect();
    assert_eq!(pairs, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
}

/// Without noise every statistic is the plain one.
#[test]
fn without_noise_statistics_are_those_of_the_rows() {
    for kind in KINDS {
        for (norm, centring) in [
            (Norm::Normalize, None),
            (Norm::Normalize, Some(0.6)),
            (CLIP, Some(0.6)),
            (CLIP, None),
        ] {
            let (params, rows) = (study(kind, 4, norm, centring), rows(4, norm));
            let report = packed(&expected_report(&rows, &params));
            let moment = MomentEstimate::new(&report, 1 << 60, &params).unwrap();
            let truth = match centring {
                Some(_) => covariance(&rows),
                None => second_moment(&rows),
            };
            if kind == MechanismKind::DoubleCap && centring.is_none() && norm == CLIP {
                assert!((moment.raw()[(0, 1)] - truth[(0, 1)]).abs() < 1e-12);
                assert!(moment.raw()[(2, 2)].is_nan() && moment.standard_error(2, 2).is_nan());
                assert!(moment.standard_error(0, 1) > 0.0);
                assert!(moment.projected().is_none());
                assert_eq!(moment.correlation(0, 1), Err(Refusal::NoVariances));
                assert_eq!(moment.regression(0, &[1]), Err(Refusal::NoVariances));
                continue;
            }
            assert!((moment.raw() - &truth).amax() < 1e-12, "{kind} {norm:?}");
            assert!((moment.projected().unwrap() - &truth).amax() < 1e-9);
            let correlation = moment.correlation(1, 3).unwrap();
            let expected = truth[(1, 3)] / (truth[(1, 1)] * truth[(3, 3)]).sqrt();
            assert!((correlation.value - expected).abs() < 1e-7);
            assert!(correlation.low <= correlation.value && correlation.value <= correlation.high);
            assert!(correlation.high - correlation.low < 1e-5);
            // Least squares on the rows themselves.
            let mean = rows.iter().sum::<DVector<f64>>() / rows.len() as f64;
            let mean = if centring.is_some() { mean } else { mean * 0.0 };
            let x = DMatrix::from_fn(rows.len(), 3, |i, j| rows[i][j + 1] - mean[j + 1]);
            let y = DVector::from_fn(rows.len(), |i, _| rows[i][0] - mean[0]);
            let expected = x.svd(true, true).solve(&y, 1e-12).unwrap();
            let regression = moment.regression(0, &[1, 2, 3]).unwrap();
            for (coefficient, expected) in regression.coefficients.iter().zip(&expected) {
                assert!((coefficient.value - expected).abs() < 1e-6);
                assert!(coefficient.standard_error < 1e-5);
            }
        }
    }
}

/// n·variance of tr(G·D̄) from whole matrices, the plain formula.
fn variance_of(g: &DMatrix<f64>, m: &DMatrix<f64>, noise: &NoiseModel) -> f64 {
    let p = g.nrows() as f64;
    let rho = m.trace();
    let gm = g * m;
    let fourth = p / ((p + 2.0) * rho) * (gm.trace().powi(2) + 2.0 * (&gm * &gm).trace());
    match *noise {
        NoiseModel::DoubleCap {
            scale, a0, a1, a2, ..
        } => {
            let outside = rho * a0 + (1.0 - rho) / (p * (p + 2.0));
            let square = outside * (g.trace().powi(2) + 2.0 * g.norm_squared())
                + a1 * (2.0 * g.trace() * gm.trace() + 4.0 * (g * &gm).trace())
                + a2 * fourth;
            let mean = gm.trace() + (scale - rho) / p * g.trace();
            scale * scale * square - mean * mean
        }
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } => {
            let mut noise = 0.0;
            for i in 0..g.nrows() {
                noise += (g[(i, i)] * diagonal_sd).powi(2);
                for j in i + 1..g.nrows() {
                    noise += 4.0 * (g[(i, j)] * off_diagonal_sd).powi(2);
                }
            }
            noise + fourth - gm.trace().powi(2)
        }
        NoiseModel::Transformed { .. } => panic!("centring is in the gradient"),
    }
}

/// Every standard error agrees with the one from the statistic's gradient, which finite differences on whole matrices
/// give.
#[test]
fn standard_errors_follow_from_numerical_gradients() {
    type Statistic = fn(&MomentEstimate) -> f64;
    let n = 1 << 50;
    let statistics: [(Statistic, Statistic); 5] = [
        (|m| m.raw()[(0, 2)], |m| m.standard_error(0, 2)),
        (|m| m.raw()[(1, 1)], |m| m.standard_error(1, 1)),
        (
            |m| m.raw_correlation(0, 2).unwrap().value,
            |m| m.raw_correlation(0, 2).unwrap().standard_error,
        ),
        (
            |m| m.raw_regression(0, &[3, 1]).unwrap().coefficients[0].value,
            |m| m.raw_regression(0, &[3, 1]).unwrap().coefficients[0].standard_error,
        ),
        (
            |m| m.mean().map_or(0.0, |mean| mean[2]),
            |m| m.mean_standard_error(2).unwrap_or(0.0),
        ),
    ];
    for kind in KINDS {
        for (norm, centring) in [
            (Norm::Normalize, None),
            (Norm::Normalize, Some(0.6)),
            (CLIP, Some(0.9)),
            (CLIP, None),
        ] {
            let (params, rows) = (study(kind, 4, norm, centring), rows(4, norm));
            let without_variances =
                kind == MechanismKind::DoubleCap && centring.is_none() && norm == CLIP;
            let report = expected_report(&rows, &params);
            let m = second_moment(&lifted(&rows, centring));
            let at = |report: &DMatrix<f64>| MomentEstimate::new(&packed(report), n, &params);
            let moment = at(&report).unwrap();
            for (number, (statistic, error)) in statistics.iter().enumerate() {
                if without_variances && number != 0 {
                    continue;
                }
                let dimension = report.nrows();
                let mut gradient = DMatrix::zeros(dimension, dimension);
                for i in 0..dimension {
                    for j in i..dimension {
                        let shifted = |step: f64| {
                            let mut shifted = report.clone();
                            shifted[(i, j)] += step;
                            statistic(&at(&shifted).unwrap())
                        };
                        let slope = (shifted(1e-6) - shifted(-1e-6)) / 2e-6;
                        let share = if i == j { slope } else { 0.5 * slope };
                        gradient[(i, j)] = share;
                        gradient[(j, i)] = share;
                    }
                }
                let expected = variance_of(&gradient, &m, &params.noise_model());
                let variance = error(&moment).powi(2) * n as f64;
                if without_variances {
                    // The larger noise of two lengths that the rows may have.
                    assert!(variance >= 0.999 * expected && variance < 1.5 * expected);
                } else {
                    assert!(
                        (variance - expected).abs() <= 1e-5 * expected,
                        "{kind} {norm:?} {centring:?} {number}: {variance} {expected}"
                    );
                }
            }
        }
    }
}

/// The distribution of a report in the plane is integrated numerically; the only difference is the approximation of the
/// rows' fourth moments.
#[test]
fn the_variance_is_that_of_released_directions() {
    const STEPS: usize = 200_000;
    let params = study(MechanismKind::DoubleCap, 2, CLIP, None);
    let Decoding::Direction(constants) = params.mechanism().decoding() else {
        panic!("double-cap releases directions");
    };
    let law = law::ReportLaw {
        noise: params.noise_model(),
        n: 1.0,
        dimension: 2.0,
        tables: None,
    };
    let moments = constants.moments();
    let rows = [(0.9, 0.2), (0.5, 0.3), (-0.1, 0.6), (0.0, -1.0)]
        .map(|(x, y)| DVector::from_vec(vec![x, y]));
    let m = second_moment(&rows);
    let g = [
        DMatrix::from_row_slice(2, 2, &[1.0, 0.0, 0.0, 0.0]),
        DMatrix::from_row_slice(2, 2, &[0.0, 0.5, 0.5, 0.0]),
        DMatrix::from_row_slice(2, 2, &[0.3, -0.7, -0.7, 1.1]),
    ];
    let product = |s: usize, t: usize| {
        let (mut first, mut second, mut both) = (0.0, 0.0, 0.0);
        for row in &rows {
            let (squared, angle) = (row.norm_squared(), row[1].atan2(row[0]));
            for step in 0..STEPS {
                let theta = std::f64::consts::TAU * (step as f64 + 0.5) / STEPS as f64;
                let inside = (theta - angle).cos().powi(2) > constants.threshold;
                let density = if inside { constants.epsilon.exp() } else { 1.0 };
                let weight = squared * density / constants.normalizer() + 1.0 - squared;
                let direction = DVector::from_vec(vec![theta.cos(), theta.sin()]);
                let value = |g: &DMatrix<f64>| {
                    constants.scale
                        * ((direction.transpose() * g * &direction)[0] - g.trace() / 2.0)
                };
                let (one, other) = (value(&g[s]), value(&g[t]));
                first += weight * one;
                second += weight * other;
                both += weight * one * other;
            }
        }
        let draws = (STEPS * rows.len()) as f64;
        both / draws - first * second / (draws * draws)
    };
    let embedded = |matrix: &DMatrix<f64>| {
        nalgebra::Matrix3::from_fn(|i, j| if i < 2 && j < 2 { matrix[(i, j)] } else { 0.0 })
    };
    let axes = [nalgebra::Vector3::x(), nalgebra::Vector3::y()];
    let frame = law::Frame::new(axes.to_vec());
    for (s, t) in [(0, 0), (1, 1), (2, 2), (0, 1), (1, 2)] {
        let along = |row: &DVector<f64>, g: &DMatrix<f64>| (row.transpose() * g * row)[0];
        let exact: f64 = rows
            .iter()
            .map(|row| along(row, &g[s]) * along(row, &g[t]) / row.norm_squared())
            .sum::<f64>()
            / rows.len() as f64;
        let (gm, hm) = (&g[s] * &m, &g[t] * &m);
        let elliptical =
            2.0 / (4.0 * m.trace()) * (gm.trace() * hm.trace() + 2.0 * (&gm * &hm).trace());
        let correction = constants.scale.powi(2) * moments.a2 * (exact - elliptical);
        let covariance = law.covariance(
            &frame,
            &embedded(&m),
            m.trace(),
            &embedded(&g[s]),
            &embedded(&g[t]),
        );
        let expected = product(s, t);
        assert!(
            (covariance + correction - expected).abs() < 1e-4 * expected.abs().max(0.1),
            "{s} {t}: {covariance} {correction} {expected}"
        );
    }
}

#[test]
fn what_the_reports_cannot_hold_is_refused() {
    let params = study(MechanismKind::DoubleCap, 4, Norm::Normalize, None);
    let rows = rows(4, Norm::Normalize);
    let report = expected_report(&rows, &params);
    let few = MomentEstimate::new(&packed(&report), 4, &params).unwrap();
    let refusal = few.correlation(0, 1).unwrap_err();
    assert!(
        matches!(refusal, Refusal::SmallVariance { .. }),
        "{refusal:?}"
    );
    let names = ["a", "b", "c", "d"].map(str::to_owned);
    let text = refusal.in_words(&names);
    assert!(
        text.contains("the variance of ") && text.contains("2 standard errors"),
        "{text}"
    );
    assert!(matches!(
        few.regression(0, &[1, 2]),
        Err(Refusal::Dependent { .. })
    ));
    // A predictor twice, with any number of participants.
    let many = MomentEstimate::new(&packed(&report), 1 << 40, &params).unwrap();
    many.regression(0, &[1, 2]).unwrap();
    assert!(matches!(
        many.regression(0, &[1, 2, 1]),
        Err(Refusal::Dependent { .. })
    ));
    let wrong = packed_to_dense(&packed(&report)).resize(5, 5, 0.0);
    assert!(MomentEstimate::new(&packed(&wrong), 9, &params).is_err());
    assert!(MomentEstimate::new(&packed(&report), 0, &params).is_err());
    let kind = MechanismKind::DoubleCap;
    let weighted = StudyParams::freeze(StudyDesign {
        weights: Some(Weights { mean: Some(0.5) }),
        ..StudyDesign::new(kind, 4, kind.budget(4.0, None).unwrap())
    });
    let refused = MomentEstimate::new(&packed(&report), 1 << 40, &weighted.unwrap());
    assert!(refused.unwrap_err().to_string().contains("weights"));
    assert!(MomentEstimate::new(&packed(&(report * f64::NAN)), 9, &params).is_err());
}
