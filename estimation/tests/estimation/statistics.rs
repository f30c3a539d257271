//! Intervals of entries, correlations and regressions over repeated studies.

use eigenveil_estimation::{
    simulate::{RowSource, SimulatedParticipants},
    statistics::{MomentEstimate, Z_95},
};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Norm, Row},
};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

use crate::common::{noisy_study, params_with};

const P: usize = 6;
const STUDIES: usize = 200;
/// Number of 200 intervals, each of which holds the truth with probability 0.95, that at least do so, but for one case
/// in 10⁶: the false-alarm rate of one count. Forty are made.
const MIN_COVERED: usize = 172;

/// Rows of six related features away from the origin.
fn rows() -> Vec<Row> {
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let rows = (0..60).map(|_| {
        let [one, other] = [(); 2].map(|()| rng.random::<f64>() - 0.5);
        let part = |rng: &mut ChaCha20Rng| 0.6 * (rng.random::<f64>() - 0.5);
        let row = [
            0.1 + one,
            0.2 + 0.8 * one,
            other,
            0.5 * one - 0.5 * other,
            0.0,
            0.1,
        ];
        Row::new(row.map(|x| x + part(&mut rng)).to_vec())
    });
    rows.collect()
}

/// Studies of `n` participants: how many of their 95 % intervals hold the truth, for each of the statistics.
fn covered(kind: MechanismKind, norm: Norm, centring: Option<f64>, n: u64) -> Vec<(String, usize)> {
    let params = params_with(P, kind, 4.0, norm, centring);
    let rows = rows();
    let prepared: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let row = params.preprocessor().prepare_features(row).unwrap();
            row.as_slice()[..P].to_vec()
        })
        .collect();
    let mean_of = |value: &dyn Fn(&[f64]) -> f64| {
        prepared.iter().map(|row| value(row)).sum::<f64>() / prepared.len() as f64
    };
    let mean: Vec<f64> = (0..P)
        .map(|i| {
            let mean = mean_of(&|row| row[i]);
            centring.map_or(0.0, |_| mean)
        })
        .collect();
    let truth = DMatrix::from_fn(P, P, |i, j| {
        mean_of(&|row| (row[i] - mean[i]) * (row[j] - mean[j]))
    });
    let correlation = truth[(0, 1)] / (truth[(0, 0)] * truth[(1, 1)]).sqrt();
    let predictors = DMatrix::from_fn(2, 2, |i, j| truth[(2 + i, 2 + j)]);
    let with_y = DMatrix::from_fn(2, 1, |i, _| truth[(2 + i, 0)]);
    let beta = predictors.try_inverse().unwrap() * with_y;
    let has_variances =
        centring.is_some() || norm == Norm::Normalize || kind != MechanismKind::DoubleCap;
    let mut counts: Vec<(String, usize)> = Vec::new();
    for study in 0..STUDIES {
        let mut rng = ChaCha20Rng::seed_from_u64(study as u64);
        let people =
            SimulatedParticipants::draw(&RowSource::Rows(&rows), 2, &params, &mut rng).unwrap();
        let noisy = noisy_study(&params, &people, n, &mut rng);
        let moment = MomentEstimate::new(noisy.mean_report(), n, &params).unwrap();
        let mut checks = Vec::new();
        let around = |value: f64, error: f64, truth: f64| (value - truth).abs() <= Z_95 * error;
        for (i, j) in [(0, 1), (2, 4), (3, 3), (0, 0)] {
            if i != j || has_variances {
                let (value, error) = (moment.raw()[(i, j)], moment.standard_error(i, j));
                checks.push((format!("{i} {j}"), around(value, error, truth[(i, j)])));
            }
        }
        if let (Some(found), Some(error)) = (moment.mean(), moment.mean_standard_error(1)) {
            checks.push(("mean".into(), around(found[1], error, mean[1])));
        }
        if has_variances {
            let found = moment.raw_correlation(0, 1).unwrap();
            let holds = found.low <= correlation && correlation <= found.high;
            checks.push(("correlation".into(), holds));
            let regression = moment.raw_regression(0, &[2, 3]).unwrap();
            for (regression, truth) in regression.coefficients.iter().zip(&beta) {
                let holds = regression.low <= *truth && *truth <= regression.high;
                checks.push((format!("on {}", regression.feature), holds));
            }
        }
        counts.resize(checks.len(), (String::new(), 0));
        for (count, (name, holds)) in counts.iter_mut().zip(checks) {
            *count = (name, count.1 + usize::from(holds));
        }
    }
    counts
}

#[test]
fn intervals_hold_the_truth() {
    use MechanismKind::{DoubleCap, IsotropicGaussian, SymmetricGaussian};
    let clip = Norm::Clip { radius: 1.0 };
    let mut statistics = 0;
    for (kind, norm, centring, n) in [
        (DoubleCap, Norm::Normalize, None, 4_000),
        (DoubleCap, Norm::Normalize, Some(0.7), 10_000),
        (DoubleCap, clip, Some(0.7), 20_000),
        (DoubleCap, clip, None, 4_000),
        (IsotropicGaussian, clip, Some(0.7), 400_000),
        (SymmetricGaussian, clip, None, 100_000),
    ] {
        for (name, covered) in covered(kind, norm, centring, n) {
            statistics += 1;
            assert!(
                covered >= MIN_COVERED,
                "{kind} {norm:?} {centring:?}, {name}: {covered} of {STUDIES}"
            );
        }
    }
    assert_eq!(statistics, 40);
}
