//! The Fantope solver against a public convex solver, against PCA, and on matrices that break solvers.

use std::cell::Cell;

use eigenveil_estimation::{
    Cancel,
    fantope::{
        AdmmSettings, Solution, Stop, max_useful_lambda, refit, solve, solve_by_full_projections,
    },
    linalg::{orthonormality_defect, symmetric_eigen, symmetric_eigenvalues, top_k},
    metrics::projector_distance,
    models::{Model, Population},
};
use eigenveil_shared::ErrorCode;
use nalgebra::{DMatrix, dmatrix};
use proptest::prelude::*;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

fn within(tolerance: f64, max_iterations: usize) -> AdmmSettings {
    AdmmSettings {
        tolerance,
        max_iterations,
        ..AdmmSettings::default()
    }
}

fn tight() -> AdmmSettings {
    within(1e-9, 20_000)
}

fn solved(moment: &DMatrix<f64>, k: usize, lambda: f64, settings: &AdmmSettings) -> Solution {
    solve(moment, k, lambda, settings, Cancel::NEVER).unwrap()
}

fn assert_sound(moment: &DMatrix<f64>, k: usize, solution: &Solution) {
    let p = moment.nrows();
    let eigen = symmetric_eigen(&solution.x).unwrap();
    let weight = -1e-8..=1.0 + 1e-8;
    assert!(eigen.values.iter().all(|v| weight.contains(v)), "{eigen:?}");
    assert!((solution.x.trace() - k as f64).abs() < 1e-8);
    assert_eq!(solution.vectors.shape(), (p, k));
    assert!(orthonormality_defect(&solution.vectors) < 1e-10);
    assert!(solution.support.len() >= k && solution.support.windows(2).all(|w| w[0] < w[1]));
    for row in 0..p {
        if !solution.support.contains(&row) {
            assert!(solution.vectors.row(row).iter().all(|&v| v == 0.0));
        }
    }
    let numbers = [
        solution.objective,
        solution.gap,
        solution.relative_gap,
        solution.primal_residual,
        solution.dual_residual,
        solution.rho,
    ];
    assert!(numbers.iter().all(|x| x.is_finite()), "{numbers:?}");
    assert!(solution.relative_gap >= -1e-12, "{numbers:?}");
    // The objective is the one of the original problem at X, diagonal penalty included.
    let penalty: f64 = solution.x.iter().map(|x| x.abs()).sum();
    let direct = moment.dot(&solution.x) - solution.lambda * penalty;
    let size = moment.amax() * (k * p) as f64 + solution.lambda * penalty;
    let apart = (solution.objective - direct).abs();
    assert!(apart <= 1e-12 * size, "{direct} {numbers:?}");
}

fn matrix_of(rows: &serde_json::Value) -> DMatrix<f64> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(rows.clone()).unwrap();
    DMatrix::from_fn(rows.len(), rows.len(), |i, j| rows[i][j])
}

/// Ten problems solved by cvxpy with Clarabel; `estimation/tests/fantope_reference/make.py` records them.
#[test]
fn agrees_with_a_public_convex_solver() {
    let record: serde_json::Value =
        serde_json::from_str(include_str!("../fantope_reference/problems.json")).unwrap();
    let problems = record["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 10);
    for problem in problems {
        let name = problem["name"].as_str().unwrap();
        let moment = matrix_of(&problem["moment"]);
        let k = problem["k"].as_u64().unwrap() as usize;
        let lambda = problem["lambda"].as_f64().unwrap();
        let objective = problem["objective"].as_f64().unwrap();
        let solution = solved(&moment, k, lambda, &tight());
        assert_sound(&moment, k, &solution);
        assert!(solution.converged(), "{name}: {:?}", solution.stop);
        let off = (solution.objective - objective).abs() / objective.abs();
        assert!(off < 1e-6, "{name}: off by {off}");
        // Where the reference is far more accurate than our tolerance, its X must be ours too.
        let theirs = matrix_of(&problem["x"]);
        if name != "repeated eigenvalues" {
            assert!((&solution.x - &theirs).norm() < 1e-3, "{name}: X differs");
        }
    }
}

/// Rows ruled out beforehand change nothing: the screened and the plain solver agree within their gaps, and
/// the dual point of the screened one certifies its X against all rows.
#[test]
fn screening_is_exact() {
    for (k, lambda, seed) in [
        (2, 0.15, 1),
        (3, 0.17, 2),
        (1, 0.2, 3),
        (6, 0.25, 4),
        (3, 0.3, 5),
    ] {
        let (moment, _) = noisy_sparse(90, 3, 12, 0.05, seed);
        let settings = within(1e-7, 20_000);
        let ours = solved(&moment, k, lambda, &settings);
        let plain =
            solve_by_full_projections(&moment, k, lambda, &settings, Cancel::NEVER).unwrap();
        assert_sound(&moment, k, &ours);
        assert!(ours.converged() && plain.converged());
        let joined: Vec<usize> = (0..90)
            .filter(|&i| (0..90).any(|j| i != j && moment[(i, j)].abs() > lambda))
            .collect();
        assert!(joined.len() < 80, "nothing is screened");
        let apart = (ours.objective - plain.objective).abs();
        assert!(apart <= ours.gap + plain.gap + 1e-10, "{apart}");
        // Weak duality, written out: ⟨S̃,X⟩ − λ‖X‖₁,₁ ≤ Σ_{i≤k} λᵢ(S̃ − Z) for |Zᵢⱼ| ≤ λ, here with Zᵢᵢ = λ.
        let mut residual = &moment - &ours.dual;
        for i in 0..90 {
            assert_eq!(ours.dual[(i, i)], 0.0);
            residual[(i, i)] -= lambda;
        }
        assert!(ours.dual.amax() <= lambda * (1.0 + 1e-12));
        let bound = symmetric_eigenvalues(&residual).unwrap();
        let own_gap = bound.iter().take(k).sum::<f64>() - ours.objective;
        println!("bound {own_gap}, gap {}", ours.gap);
        assert!(own_gap > -1e-9 && own_gap <= ours.gap.max(1e-6) + 1e-9);
    }
}

/// A gap that is negligible compared with the noise is accepted once convergence proves slow, and only then.
#[test]
fn it_stops_within_the_noise() {
    let (moment, _) = noisy_sparse(60, 2, 8, 1.0, 8);
    let asked = |noise_gap| AdmmSettings {
        noise_gap,
        ..within(1e-6, 20_000)
    };
    let lambda = 1.0;
    let optimum = solved(&moment, 2, lambda, &asked(None));
    let early = solved(&moment, 2, lambda, &asked(Some(0.02)));
    assert!(optimum.converged());
    assert_eq!(early.stop, Stop::WithinNoise);
    assert_sound(&moment, 2, &early);
    let iterations = early.iterations;
    assert!(
        (200..optimum.iterations).contains(&iterations),
        "{iterations}"
    );
    assert!(early.gap <= 0.02 && optimum.objective - early.objective <= early.gap + 1e-9);
    let (clear, _) = noisy_sparse(60, 2, 8, 0.02, 8);
    let settings = AdmmSettings {
        noise_gap: Some(1.0),
        ..AdmmSettings::default()
    };
    assert!(solved(&clear, 2, 0.05, &settings).converged());
    let negative = asked(Some(-1.0));
    assert!(solve(&moment, 2, lambda, &negative, Cancel::NEVER).is_err());
}

/// The gap is a certificate: it bounds the distance to the optimum at *every* iteration.
#[test]
fn the_gap_is_valid_from_the_first_iteration() {
    let (moment, _) = noisy_sparse(40, 3, 9, 0.15, 4);
    let optimum = solved(&moment, 3, 0.1, &tight());
    assert!(optimum.converged());
    for cap in [1, 2, 3, 5, 8, 13, 40] {
        let early = solved(&moment, 3, 0.1, &within(1e-12, cap));
        assert_eq!((early.stop, early.iterations), (Stop::IterationCap, cap));
        assert_sound(&moment, 3, &early);
        let missing = optimum.objective - early.objective;
        println!("missing {missing}, gap {}", early.gap);
        assert!(missing <= early.gap + optimum.gap + 1e-12);
        assert!(missing > -optimum.gap - 1e-12);
    }
    // And it is not vacuous: after one iteration it is within a few per cent.
    let gap = solved(&moment, 3, 0.1, &within(1e-9, 1)).relative_gap;
    assert!(gap > 1e-9 && gap < 0.2, "{gap}");
}

#[test]
fn zero_lambda_is_pca() {
    for (p, k, seed) in [(2, 1, 1), (7, 3, 2), (40, 5, 3)] {
        let (moment, _) = noisy_sparse(p, k, p.min(6).max(k), 0.3, seed);
        let solution = solved(&moment, k, 0.0, &AdmmSettings::default());
        assert_sound(&moment, k, &solution);
        assert!(solution.converged());
        let plain = top_k(&moment, k).unwrap();
        assert!(projector_distance(&solution.vectors, &plain.vectors).unwrap() < 1e-7);
        assert!((solution.objective - plain.values.sum()).abs() < 1e-9 * moment.amax());
        // Not only the subspace: the components themselves, in order and with their signs.
        assert!((&solution.vectors - &plain.vectors).amax() < 1e-6);
    }
}

#[test]
fn sparse_signal_is_found_exactly() {
    let (moment, population) = noisy_sparse(100, 3, 15, 0.02, 5);
    let lambda = 0.6 * 0.02 * (2.0 * 4950.0_f64.ln()).sqrt();
    let solution = solved(&moment, 3, lambda, &AdmmSettings::default());
    assert!(solution.converged());
    assert_eq!(solution.support, population.support());
    let error = |v: &DMatrix<f64>| projector_distance(v, population.subspace()).unwrap();
    let plain = error(&top_k(&moment, 3).unwrap().vectors);
    let relaxed = error(&solution.vectors);
    let refitted = error(&refit(&moment, &solution.support, 3).unwrap());
    println!("{plain} {relaxed} {refitted}");
    assert!(relaxed < plain && refitted < 0.5 * plain);
    // The support does not depend on how far past the default tolerance one goes; with little penalty
    // some rows of noise are selected, but not those that only an unfinished iterate carries.
    for share in [1.0, 0.4] {
        let default = solved(&moment, 3, share * lambda, &AdmmSettings::default());
        let exact = solved(&moment, 3, share * lambda, &tight());
        assert!(exact.converged());
        assert_eq!(exact.support, default.support);
    }
}

/// The solution scales with the problem and is invariant to a multiple of the identity.
#[test]
fn scale_and_offset_do_not_matter() {
    let (moment, _) = noisy_sparse(30, 2, 6, 0.1, 6);
    let base = solved(&moment, 2, 0.08, &AdmmSettings::default());
    // Powers of two round nothing, so that the iteration is the same to the last digit; with others the
    // accelerated steps differ in number.
    let two = |power: i32| 2.0_f64.powi(power);
    let exact = [-500, -20, 20, 500].map(two);
    for scale in [1e-6, 1e150].into_iter().chain(exact) {
        let larger = &moment * scale;
        let scaled = solved(&larger, 2, 0.08 * scale, &AdmmSettings::default());
        assert_sound(&larger, 2, &scaled);
        assert_eq!(scaled.support, base.support);
        assert!(!exact.contains(&scale) || scaled.iterations == base.iterations);
        // Both optimal to their gaps.
        let apart = (scaled.objective / scale - base.objective).abs();
        assert!(apart <= base.gap.max(scaled.gap / scale) + 1e-12 * base.objective.abs());
        assert!((&scaled.x - &base.x).norm() < 1e-3);
    }
    for offset in [-3.0, 100.0] {
        let shifted = &moment + DMatrix::identity(30, 30) * offset;
        let solution = solved(&shifted, 2, 0.08, &AdmmSettings::default());
        assert!((&solution.x - &base.x).norm() < 1e-3);
        let apart = (solution.objective - base.objective - 2.0 * offset).abs();
        assert!(apart <= base.gap.max(solution.gap) + 1e-9, "{apart}");
    }
}

#[test]
fn nasty_matrices_are_solved() {
    let repeated = DMatrix::from_diagonal(&nalgebra::dvector![2.0, 2.0, 2.0, 1.0, 1.0]);
    let rank_one = DMatrix::from_element(5, 5, 1.0);
    let indefinite = dmatrix![0.0, 1.0, 0.0; 1.0, 0.0, 1.0; 0.0, 1.0, 0.0];
    // Two identical blocks: the optimum is not unique for odd k.
    let two_blocks = DMatrix::from_fn(6, 6, |i, j| f64::from(u8::from(i / 3 == j / 3)));
    let negative = -DMatrix::<f64>::from_element(4, 4, 1.0);
    let one = dmatrix![-2.0];
    let matrices = [
        DMatrix::zeros(4, 4),
        DMatrix::identity(4, 4),
        DMatrix::identity(3, 3) * 0.1,
        repeated,
        rank_one,
        indefinite,
        two_blocks,
        negative,
        one,
        dmatrix![1.0, 0.3; 0.3, 1.0],
        dmatrix![1.0, 1e-12; 1e-12, 1.0],
    ];
    for moment in &matrices {
        let p = moment.nrows();
        for scale in [1.0, 1e-6, 1e6, 1e-300] {
            let moment = moment * scale;
            let largest = max_useful_lambda(&moment);
            for k in 1..=p {
                let [few, many] = [0.01, 0.5].map(|share| share * largest);
                for lambda in [0.0, few, many, largest, 3.0 * largest + scale] {
                    let solution = solved(&moment, k, lambda, &AdmmSettings::default());
                    assert_sound(&moment, k, &solution);
                    assert!(solution.converged(), "k = {k}, λ = {lambda}, {moment}");
                    if k == p {
                        assert_eq!(solution.x, DMatrix::identity(p, p));
                    }
                    if lambda >= largest && k < p {
                        let off: f64 = solution.x.iter().sum::<f64>() - solution.x.trace();
                        assert_eq!(off, 0.0, "a diagonal solution is optimal");
                    }
                }
            }
        }
    }
}

#[test]
fn the_caller_can_cancel() {
    let (moment, _) = noisy_sparse(30, 2, 6, 0.3, 9);
    let seen = Cell::new(0);
    let is_cancelled = || seen.replace(seen.get() + 1) == 3;
    let error = solve(&moment, 2, 0.2, &tight(), Cancel::when(&is_cancelled)).unwrap_err();
    assert_eq!(error.detail(), "the estimate was cancelled");
    assert_eq!(seen.get(), 4);
}

#[test]
fn settings_out_of_range_are_rejected() {
    let moment = DMatrix::identity(3, 3);
    let default = AdmmSettings::default();
    let started = |rho| AdmmSettings {
        rho: Some(rho),
        ..tight()
    };
    let bad_settings = [
        started(0.0),
        started(f64::NAN),
        within(default.tolerance, 0),
        within(default.tolerance, 10_000_000),
        within(1.5, default.max_iterations),
        within(0.0, default.max_iterations),
        within(f64::NAN, default.max_iterations),
    ];
    for settings in bad_settings {
        let error = solve(&moment, 1, 0.1, &settings, Cancel::NEVER).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    for (k, lambda) in [
        (0, 0.1),
        (4, 0.1),
        (1, -0.1),
        (1, f64::NAN),
        (1, f64::INFINITY),
    ] {
        let error = solve(&moment, k, lambda, &default, Cancel::NEVER).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    let broken = dmatrix![1.0, f64::NAN; f64::NAN, 1.0];
    let error = solve(&broken, 1, 0.1, &default, Cancel::NEVER).unwrap_err();
    assert_eq!(error.code(), ErrorCode::EstimateFailed);
    // Any initial ρ leads to the same solution.
    let (moment, _) = noisy_sparse(20, 2, 5, 0.1, 10);
    let base = solved(&moment, 2, 0.08, &tight());
    for rho in [1e-3, 1.0, 1e3, 1e12] {
        let other = solved(&moment, 2, 0.08, &started(rho));
        let apart = (other.objective - base.objective).abs();
        assert!(apart <= other.gap + base.gap + 1e-12, "ρ = {rho}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Any small symmetric matrix: sound, certified, and no better point among PCA and the axes.
    #[test]
    fn any_small_problem(entries in prop::collection::vec(-2.0_f64..2.0, 36), p in 2_usize..7,
                         k in 1_usize..6, share in 0.0_f64..1.2) {
        let k = k.min(p);
        let moment = DMatrix::from_fn(p, p, |i, j| entries[i.min(j) * 6 + i.max(j)]);
        let lambda = share * max_useful_lambda(&moment);
        let solution = solved(&moment, k, lambda, &AdmmSettings::default());
        assert_sound(&moment, k, &solution);
        let objective =
            |x: &DMatrix<f64>| moment.dot(x) - lambda * x.iter().map(|v| v.abs()).sum::<f64>();
        let plain = top_k(&moment, k).unwrap().vectors;
        prop_assert!(objective(&(&plain * plain.transpose())) <= solution.objective + solution.gap + 1e-12);
        let spread = DMatrix::identity(p, p) * (k as f64 / p as f64);
        prop_assert!(objective(&spread) <= solution.objective + solution.gap + 1e-12);
        let unpenalised: f64 = symmetric_eigenvalues(&moment).unwrap().iter().take(k).sum();
        prop_assert!(solution.objective <= unpenalised - lambda * k as f64 + 1e-9);
    }
}

/// A sparse population's covariance with Gaussian noise of standard deviation `sd` on every entry.
fn noisy_sparse(p: usize, k: usize, s: usize, sd: f64, seed: u64) -> (DMatrix<f64>, Population) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let population = Model::sparse(p, k, s, 2.0).draw(&mut rng).unwrap();
    let mut moment = population.covariance();
    for i in 0..p {
        for j in 0..=i {
            let z: f64 = StandardNormal.sample(&mut rng);
            moment[(i, j)] += sd * z;
            moment[(j, i)] = moment[(i, j)];
        }
    }
    (moment, population)
}
