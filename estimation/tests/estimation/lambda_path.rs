//! The path of λ: it starts empty, rows of the truth come first, and the value nearest to `auto` is taken; and λ by
//! cross-validation against the best λ on its path. Fixed seeds.

use std::cell::Cell;

use eigenveil_estimation::{
    Cancel, ComponentsReport,
    fantope::diagonal_lambda,
    linalg::{Threads, submatrix, top_k},
    metrics::projector_distance,
    models::Model,
    moment::NoisyMoment,
    simulate::{RowSource, SimulatedParticipants},
    sparse_components,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{Lambda, SparseSettings},
    estimate::ComponentCount,
    mechanism::MechanismKind,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{noisy_study, params};

const K: usize = 2;

/// Reports of n people of a sparse population, its subspace, and the rows that are not zero.
fn study(
    mechanism: MechanismKind,
    p: usize,
    n: u64,
    seed: u64,
) -> (NoisyMoment, DMatrix<f64>, Vec<usize>) {
    let params = params(p, mechanism, 4.0);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let model = Model::sparse(p, K, 6, 40.0);
    let people =
        SimulatedParticipants::draw(&RowSource::Model(model), K, &params, &mut rng).unwrap();
    let noisy = noisy_study(&params, &people, n, &mut rng);
    (
        noisy,
        people.truth().clone(),
        people.support().unwrap().to_vec(),
    )
}

fn settings(lambda: Lambda, refit: bool) -> SparseSettings {
    SparseSettings {
        lambda,
        refit,
        ..SparseSettings::default()
    }
}

fn sparse(
    moment: &NoisyMoment,
    settings: &SparseSettings,
    cancel: Cancel<'_>,
) -> Result<ComponentsReport> {
    sparse_components(moment, ComponentCount::Fixed(K), settings, "", cancel)
}

#[test]
fn the_path_equals_single_estimates() {
    let (moment, _, truth) = study(MechanismKind::SymmetricGaussian, 60, 60_000, 4);
    for refit in [false, true] {
        let report = sparse(&moment, &settings(Lambda::Path, refit), Cancel::NEVER).unwrap();
        let outcome = report.sparse.unwrap();
        let path = outcome.path.unwrap();
        assert_eq!(
            (path.lambda_chosen, path.points.len()),
            (outcome.lambda, 16)
        );
        assert_eq!(outcome.cross_validation, None);
        let largest = diagonal_lambda(&moment.dense(), K).unwrap();
        assert_eq!(path.lambda_max, largest);
        assert_eq!(path.points[0].lambda, path.lambda_max);
        // K single rows at the start, and λ below auto at the end.
        assert_eq!(path.points[0].support_size, K);
        assert_eq!(path.points[0].entering.len(), K);
        assert!(path.points[15].lambda < path.lambda_auto);
        // No other value on the grid is nearer to auto.
        let distance = |lambda: f64| (lambda / path.lambda_auto).ln().abs();
        let mut on_path = path.points.iter().map(|point| distance(point.lambda));
        assert!(on_path.all(|other| other >= distance(path.lambda_chosen)));
        let mut selected = std::collections::BTreeSet::new();
        for point in &path.points {
            selected.extend(point.entering.iter().copied());
            for row in &point.leaving {
                assert!(selected.remove(row));
            }
            assert_eq!(selected.len(), point.support_size);
            let norms = point.row_norms.as_ref().unwrap();
            assert_eq!(norms.len(), 60);
            let squares: f64 = norms.iter().map(|x| x * x).sum();
            assert!((squares - K as f64).abs() < 1e-9);
            for (row, norm) in norms.iter().enumerate() {
                assert!(selected.contains(&row) || *norm == 0.0);
            }
            assert!(point.captured_variance <= path.max_captured_variance * (1.0 + 1e-9));
            assert!(point.relative_gap < 2e-3 || !point.converged);
            if refit {
                // The marginal rows depend on the solver's path; the variance captured by PCA on them does not.
                let rows: Vec<usize> = selected.iter().copied().collect();
                let leading = top_k(&submatrix(&moment.dense(), &rows), K).unwrap();
                let captured = leading.values.sum();
                assert!(
                    (captured - point.captured_variance).abs() < 1e-9 * path.max_captured_variance
                );
                continue;
            }
            // A separate cold solve captures the same.
            let alone = SparseSettings {
                tolerance: 1e-5,
                ..settings(Lambda::Fixed(point.lambda), refit)
            };
            let alone = sparse(&moment, &alone, Cancel::NEVER).unwrap();
            let components = alone.floor_report.components.iter();
            let apart = components.map(|c| c.eigenvalue).sum::<f64>() - point.captured_variance;
            assert!(
                apart.abs() < 0.02 * path.max_captured_variance,
                "{point:?} {apart}"
            );
        }
        // The rows that enter while the support is no larger than the truth are mostly the truth's.
        let early: Vec<usize> = path
            .points
            .iter()
            .take_while(|point| point.support_size <= truth.len())
            .flat_map(|point| point.entering.clone())
            .collect();
        let right = early.iter().filter(|row| truth.contains(row)).count();
        println!("refit {refit}: {early:?} of {truth:?}");
        assert!(early.len() >= 3 && right + 1 >= early.len());
    }
}

#[test]
fn large_paths_leave_the_row_norms_out_and_cancelling_stops_them() {
    let (moment, ..) = study(MechanismKind::SymmetricGaussian, 110, 400_000, 4);
    let settings = settings(Lambda::Path, false);
    let report = sparse(&moment, &settings, Cancel::NEVER).unwrap();
    let path = report.sparse.unwrap().path.unwrap();
    assert!(path.points.iter().all(|point| point.row_norms.is_none()));
    let error = cancelled_at(&moment, &settings, 20);
    assert_eq!(error.code(), ErrorCode::EstimateFailed);
    assert!(error.detail().contains("cancelled"), "{error}");
}

/// The error of an estimate that is cancelled at its check of this number, and stops there.
fn cancelled_at(moment: &NoisyMoment, settings: &SparseSettings, at: u32) -> Error {
    let calls = Cell::new(0);
    let asked = || {
        calls.set(calls.get() + 1);
        calls.get() == at
    };
    let error = sparse(moment, settings, Cancel::when(&asked)).unwrap_err();
    assert_eq!(calls.get(), at);
    error
}

/// Three studies with and three without refit: the error of `cv` is on average at most 1.2 times that of the best value
/// on its path, which is unknown in practice.
#[test]
fn the_chosen_lambda_is_nearly_the_best_on_the_path() {
    for (mechanism, n, refit) in [
        (MechanismKind::SymmetricGaussian, 60_000, false),
        (MechanismKind::DoubleCap, 20_000, true),
    ] {
        let (mut chosen, mut best) = (0.0, 0.0);
        for seed in 0..3 {
            let (moment, truth, _) = study(mechanism, 60, n, seed);
            let error = |lambda| {
                let settings = SparseSettings {
                    tolerance: 1e-5,
                    ..settings(lambda, refit)
                };
                let report = sparse(&moment, &settings, Cancel::NEVER).unwrap();
                let error = projector_distance(&report.vectors, &truth).unwrap();
                (error, report.sparse.unwrap())
            };
            let (with_cv, outcome) = error(Lambda::CrossValidated);
            let cv = outcome.cross_validation.unwrap();
            assert_eq!((cv.lambda_1se, cv.folds), (outcome.lambda, 5));
            assert!(cv.lambda_1se >= cv.lambda_best);
            let path = cv.grid.iter();
            let errors = path.map(|point| error(Lambda::Fixed(point.lambda)).0);
            chosen += with_cv;
            best += errors.fold(f64::INFINITY, f64::min);
        }
        assert!(chosen <= 1.2 * best, "{mechanism} {refit}: {chosen} {best}");
    }
}

#[test]
fn few_buckets_and_cancellation_are_errors() {
    let (moment, ..) = study(MechanismKind::SymmetricGaussian, 60, 1_000, 1);
    let few = NoisyMoment::from_buckets(moment.buckets()[..4].to_vec(), *moment.noise()).unwrap();
    let cv = SparseSettings {
        tolerance: 1e-5,
        ..settings(Lambda::CrossValidated, false)
    };
    let error = sparse(&few, &cv, Cancel::NEVER).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
    assert!(error.detail().contains("there are 4"), "{error}");
    let error = cancelled_at(&moment, &cv, 30);
    assert_eq!(error.code(), ErrorCode::EstimateFailed);
}

#[test]
fn cross_validation_has_the_same_bits_on_any_number_of_threads() {
    let (moment, ..) = study(MechanismKind::SymmetricGaussian, 30, 5_000, 1);
    let on = |threads| {
        let run = || {
            let settings = settings(Lambda::CrossValidated, true);
            sparse(&moment, &settings, Cancel::NEVER).unwrap()
        };
        let outcome = Threads::new(threads).unwrap().run(run).sparse.unwrap();
        outcome.cross_validation.unwrap()
    };
    assert_eq!(on(1), on(3));
}
