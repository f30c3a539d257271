//! The path of λ: it starts empty, rows of the truth come first, and the value nearest to `auto` is taken.

use std::cell::Cell;

use eigenveil_estimation::{
    Cancel,
    estimate::sparse_components,
    fantope::diagonal_lambda,
    linalg::{submatrix, top_k},
    models::Model,
    moment::NoisyMoment,
    simulate::{Participants, Path, RowSource, noisy_sum},
};
use eigenveil_shared::{
    ErrorCode,
    api::{Lambda, SparseSettings},
    estimate::Rank,
    mechanism::MechanismKind,
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::params;

const K: usize = 2;

fn study(p: usize, n: u64) -> (NoisyMoment, Vec<usize>) {
    let mechanism = MechanismKind::SymmetricGaussian;
    let params = params(p, mechanism, 4.0);
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let model = Model::sparse(p, K, 6, 40.0);
    let people = Participants::draw(&RowSource::Model(model), K, &params, &mut rng).unwrap();
    let (noisy, _) = noisy_sum(&params, &people, n, Path::Law, &mut rng, &mut |_| {}).unwrap();
    (noisy, people.support().unwrap().to_vec())
}

fn settings(refit: bool) -> SparseSettings {
    SparseSettings {
        lambda: Lambda::Path,
        refit,
        ..SparseSettings::default()
    }
}

#[test]
fn the_path_is_what_single_estimates_give() {
    let (moment, truth) = study(60, 60_000);
    for refit in [false, true] {
        let found = sparse_components(&moment, Rank::Fixed(K), &settings(refit), "", Cancel::NEVER)
            .unwrap();
        let outcome = found.sparse.unwrap();
        let path = outcome.path.unwrap();
        assert_eq!((path.chosen, path.points.len()), (outcome.lambda, 16));
        assert_eq!(outcome.cross_validation, None);
        assert_eq!(
            path.lambda_max,
            diagonal_lambda(&moment.dense(), K).unwrap()
        );
        assert_eq!(path.points[0].lambda, path.lambda_max);
        // K rows alone to begin with, and λ below auto at the end.
        assert_eq!(path.points[0].support, K);
        assert_eq!(path.points[0].entering.len(), K);
        assert!(path.points[15].lambda < path.automatic);
        // Nothing on the grid is nearer to auto.
        let distance = |lambda: f64| (lambda / path.automatic).ln().abs();
        assert!(
            path.points
                .iter()
                .all(|point| distance(point.lambda) >= distance(path.chosen))
        );
        let mut selected = std::collections::BTreeSet::new();
        for point in &path.points {
            selected.extend(point.entering.iter().copied());
            for row in &point.leaving {
                assert!(selected.remove(row));
            }
            assert_eq!(selected.len(), point.support);
            let norms = point.row_norms.as_ref().unwrap();
            assert_eq!(norms.len(), 60);
            let squares: f64 = norms.iter().map(|x| x * x).sum();
            assert!((squares - K as f64).abs() < 1e-9);
            for (row, norm) in norms.iter().enumerate() {
                assert!(selected.contains(&row) || *norm == 0.0);
            }
            assert!(point.captured_variance <= path.most_variance * (1.0 + 1e-9));
            assert!(point.relative_gap < 2e-3 || !point.converged);
            if refit {
                // Which rows are in at the margin depends on the solver's way; what PCA on them captures does not.
                let rows: Vec<usize> = selected.iter().copied().collect();
                let leading = top_k(&submatrix(&moment.dense(), &rows), K).unwrap();
                let captured = leading.values.sum();
                assert!((captured - point.captured_variance).abs() < 1e-9 * path.most_variance);
                continue;
            }
            // A solve of its own, from nothing, captures the same.
            let alone = SparseSettings {
                lambda: Lambda::Fixed(point.lambda),
                tolerance: 1e-5,
                ..settings(refit)
            };
            let alone =
                sparse_components(&moment, Rank::Fixed(K), &alone, "", Cancel::NEVER).unwrap();
            let captured: f64 = alone
                .assessment
                .components
                .iter()
                .map(|c| c.eigenvalue)
                .sum();
            assert!(
                (captured - point.captured_variance).abs() < 0.02 * path.most_variance,
                "λ {}: {captured} {}",
                point.lambda,
                point.captured_variance
            );
        }
        // The rows that enter while the support is no larger than the truth are mostly the truth's.
        let early: Vec<usize> = path
            .points
            .iter()
            .take_while(|point| point.support <= truth.len())
            .flat_map(|point| point.entering.clone())
            .collect();
        let right = early.iter().filter(|row| truth.contains(row)).count();
        println!(
            "refit {refit}: {right} of {} early rows are right",
            early.len()
        );
        assert!(
            early.len() >= 3 && right + 1 >= early.len(),
            "{early:?} {truth:?}"
        );
    }
}

#[test]
fn large_paths_leave_the_row_norms_out_and_cancelling_stops_them() {
    let (moment, _) = study(110, 400_000);
    let found =
        sparse_components(&moment, Rank::Fixed(K), &settings(false), "", Cancel::NEVER).unwrap();
    let path = found.sparse.unwrap().path.unwrap();
    assert!(path.points.iter().all(|point| point.row_norms.is_none()));
    let calls = Cell::new(0);
    let called_off = || {
        calls.set(calls.get() + 1);
        calls.get() == 20
    };
    let error = sparse_components(
        &moment,
        Rank::Fixed(K),
        &settings(false),
        "",
        Cancel::when(&called_off),
    )
    .unwrap_err();
    assert_eq!((error.code(), calls.get()), (ErrorCode::EstimateFailed, 20));
    assert!(error.detail().contains("cancelled"), "{error}");
}
