//! Seeds read twice against the whole moment, where both methods are possible.

use eigenveil_shared::{
    ErrorCode, Result,
    api::{Lambda, SparseSettings},
    estimate::{ComponentCount, Verdict},
    mechanism::{
        Mechanism, MechanismKind,
        double_cap::{DoubleCap, Seed},
    },
    preprocess::Row,
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

use super::{
    can_stream,
    certificate::{LeadingSumBound, Proof},
    dual::DualMatrix,
    matrix::LargeMatrix,
    solve::{Problem, SolveResult},
    source::SeedSource,
    sparse_components,
};
use crate::{
    cancel::Cancel,
    input::{accumulate::SeedSum, moment::NoisyMoment},
    linalg::{StartVectors, Threads, symmetric_eigenvalues},
    metrics::projector_distance,
    models::Model,
    report::warning::Warning,
    sparse::fantope::{self, Accuracy, AdmmSettings},
};

/// A row-sparse projector of rank k, times 1, in noise of standard deviation `sd`, and its rows.
fn spiked(p: usize, k: usize, s: usize, sd: f64, seed: u64) -> (DMatrix<f64>, Vec<usize>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let population = Model::sparse(p, k, s, 1.0).draw(&mut rng).unwrap();
    let v = population.subspace();
    let mut matrix = v * v.transpose();
    for j in 0..p {
        for i in j..p {
            let z: f64 = StandardNormal.sample(&mut rng);
            matrix[(i, j)] += sd * z;
            matrix[(j, i)] = matrix[(i, j)];
        }
    }
    // The moment as both methods see it.
    let single = matrix.map(|x| f64::from(x as f32));
    (single, population.support().to_vec())
}

fn problem<'a>(moment: &'a LargeMatrix, k: usize, lambda: f64, sd: f64) -> Problem<'a> {
    let p = moment.dimension() as f64;
    Problem {
        moment,
        k,
        lambda,
        largest_noise_entry: sd * (4.0 * p.ln()).sqrt(),
        settings: AdmmSettings {
            tolerance: 1e-5,
            ..AdmmSettings::default()
        },
    }
}

fn unit(matrix: &DMatrix<f64>, k: usize) -> f64 {
    let centre = matrix.trace() / matrix.nrows() as f64;
    let values = symmetric_eigenvalues(matrix).unwrap();
    values.iter().take(k).map(|value| value - centre).sum()
}

#[track_caller]
fn agrees(matrix: &DMatrix<f64>, problem: &Problem<'_>, solved: &SolveResult) {
    let Problem { k, lambda, .. } = *problem;
    let small = fantope::solve(matrix, k, lambda, &problem.settings, Cancel::NEVER).unwrap();
    assert!(small.converged() && solved.converged);
    assert!(solved.relative_gap <= problem.settings.tolerance);
    assert_eq!(small.support, solved.support);
    let apart = projector_distance(&small.vectors, &solved.vectors).unwrap();
    // Both X are within √(2 gap/δ) of the optimum, δ ≈ 0.2 the eigengap of M or more.
    let near = (2.0 * (small.gap + solved.gap) / 0.2).sqrt();
    assert!(apart <= near, "{apart} {near}");
}

/// Several sizes, ranks, noises, widths and numbers of threads.
#[test]
fn the_whole_problem_is_solved_on_few_rows() {
    for (p, k, s, sd, width, threads) in [
        (60, 2, 8, 0.02, 16, 1),
        (300, 1, 10, 0.02, 64, 2),
        (400, 3, 20, 0.02, 256, 1),
        (400, 5, 30, 0.025, 100, 3),
    ] {
        let (matrix, rows) = spiked(p, k, s, sd, 7 + p as u64);
        let moment = LargeMatrix::from_dense(&matrix, 1_000, width);
        let problem = problem(&moment, k, 2.0 * sd, sd);
        let solved = Threads::new(threads)
            .unwrap()
            .run(|| problem.solve(unit(&matrix, k), Cancel::NEVER).unwrap());
        agrees(&matrix, &problem, &solved);
        assert!(solved.support.iter().all(|row| rows.contains(row)));
        assert!(p == 60 || solved.candidates < p, "{}", solved.candidates);
    }
}

/// Started with half of the true rows the proof does not close, and the others join.
#[test]
fn missing_candidates_join() {
    let (p, k, sd) = (300, 2, 0.02);
    let (matrix, rows) = spiked(p, k, 16, sd, 5);
    let moment = LargeMatrix::from_dense(&matrix, 1_000, 64);
    let problem = problem(&moment, k, 2.0 * sd, sd);
    let unit = unit(&matrix, k);
    let mut candidates: Vec<usize> = rows.iter().copied().step_by(2).collect();
    let mut random = StartVectors::default();
    let solved = problem.solve_from(&mut candidates, unit, &mut random, Cancel::NEVER);
    let solved = solved.unwrap();
    agrees(&matrix, &problem, &solved);
    assert!(rows.iter().all(|row| candidates.contains(row)));
    assert!(solved.candidates > 8 && solved.candidates < p);
}

/// A bound that misses a direction cannot be proved; one that does not can, and bounds the exact sum.
#[test]
fn a_direction_left_out_is_not_certified() {
    let (p, k, sd) = (150, 2, 0.02);
    let (matrix, _) = spiked(p, k, 12, sd, 3);
    let moment = LargeMatrix::from_dense(&matrix, 1_000, 40);
    let whole = DualMatrix::soft(&moment, 0.0, 0.0);
    let exact: f64 = symmetric_eigenvalues(&matrix).unwrap().iter().take(k).sum();
    let mut random = StartVectors::default();
    let none = DMatrix::zeros(p, 0);
    let accuracy = Accuracy {
        slack: 1e-7,
        sharpen: 1.0,
    };
    let claim = LeadingSumBound::find(&whole, &none, k, accuracy, &mut random).unwrap();
    let Proof::Proved(bound) = claim.prove(&whole, 1.0, Cancel::NEVER).unwrap() else {
        unreachable!("a true claim")
    };
    assert!(bound >= exact && bound < exact + 1e-6, "{bound} {exact}");
    assert!(claim.at_least() <= exact + 1e-12);
    // The same bound for a matrix with one more direction.
    let mut hidden = matrix.clone();
    hidden[(p - 1, p - 1)] += 3.0;
    let more = LargeMatrix::from_dense(&hidden, 1_000, 40);
    let more = DualMatrix::soft(&more, 0.0, 0.0);
    let proof = claim.prove(&more, 1.0, Cancel::NEVER);
    assert!(matches!(proof, Ok(Proof::Failed)));
    assert!(claim.prove(&whole, 1.0, Cancel::when(&|| true)).is_err());
}

/// More noise than λ removes: there is no proof within the tolerance, and the reported gap is valid.
#[test]
fn unproved_problems_report_a_valid_gap() {
    let (p, k, sd) = (400, 1, 0.3);
    let (matrix, _) = spiked(p, k, 5, sd, 8);
    let moment = LargeMatrix::from_dense(&matrix, 1_000, 64);
    let mut problem = problem(&moment, k, 0.01, sd);
    problem.settings.max_iterations = 3;
    let unit = unit(&matrix, k);
    let solved = problem.solve(unit, Cancel::NEVER).unwrap();
    assert!(!solved.converged && solved.gap > 0.0);
    let small = fantope::solve(&matrix, k, 0.01, &AdmmSettings::default(), Cancel::NEVER).unwrap();
    // The optimum is at most what the gap says above the objective at X, which is at most the optimum.
    assert!(solved.gap.is_finite() && small.gap <= solved.gap);
    assert!(problem.solve(unit, Cancel::when(&|| true)).is_err());
}

fn study(p: usize, centring: Option<f64>) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        centring,
        ..StudyDesign::new(MechanismKind::DoubleCap, p, Budget::pure(6.0).unwrap())
    })
    .unwrap()
}

fn cap(params: &StudyParams) -> &DoubleCap {
    match params.mechanism() {
        Mechanism::DoubleCap(cap) => cap,
        _ => unreachable!("double-cap"),
    }
}

/// n real reports of rows of a sparse population in `buckets` buckets.
fn seeds(params: &StudyParams, n: usize, buckets: usize) -> (Vec<Vec<Seed>>, Vec<usize>) {
    let p = params.dimension();
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let (k, s, spike) = (2, 8, 5.0 * p as f64);
    let population = Model::sparse(p, k, s, spike).draw(&mut rng).unwrap();
    let mut out = vec![Vec::new(); buckets];
    for i in 0..n {
        let row = Row::new(population.row(&mut rng));
        let row = params.preprocessor().prepare(&row).unwrap();
        out[i % buckets].push(cap(params).draw_counting_attempts(&row, &mut rng).0);
    }
    (out, population.support().to_vec())
}

/// From the same seeds the two methods give the same document, apart from single precision and the length of the
/// spectrum.
#[test]
fn seeds_give_the_same_components_as_bucket_sums() {
    let p = 220;
    let params = study(p, None);
    let (seeds, rows) = seeds(&params, 6_000, 8);
    let buckets: Vec<_> = seeds
        .iter()
        .map(|seeds| {
            let mut sum = SeedSum::new(p).unwrap();
            seeds.iter().for_each(|seed| sum.add(seed));
            sum.finish().unwrap()
        })
        .collect();
    let moment = NoisyMoment::decode(buckets, &params).unwrap();
    // Single precision is far below the noise of an entry: u·√n would be 5e-6 of it.
    let constants = cap(&params).parameters();
    let single = LargeMatrix::gather(&seeds, &constants, 64, Cancel::NEVER).unwrap();
    let sd = params.noise_model().off_diagonal_sd() / (moment.n() as f64).sqrt();
    let off = (single.submatrix(&(0..p).collect::<Vec<_>>()) - moment.dense()).amax();
    assert!(off < 1e-4 * sd, "{off} {sd}");
    // With the automatic λ some thirty rows of noise are selected; a marginal one by one method only.
    for (rank, refit, lambda) in [
        (ComponentCount::Fixed(2), true, Lambda::Fixed(4.0 * sd)),
        (ComponentCount::Auto, true, Lambda::Fixed(4.0 * sd)),
        (ComponentCount::Fixed(2), false, Lambda::Fixed(4.0 * sd)),
        (ComponentCount::Fixed(2), false, Lambda::Auto),
    ] {
        let settings = SparseSettings {
            lambda,
            refit,
            tolerance: 1e-5,
            ..SparseSettings::default()
        };
        let small =
            crate::sparse_components(&moment, rank, &settings, "ε = 6", Cancel::NEVER).unwrap();
        let (large, n) =
            sparse_components(&seeds, &params, rank, &settings, "ε = 6", Cancel::NEVER).unwrap();
        assert_eq!(n, moment.n());
        let (a, b) = (small.sparse.unwrap(), large.sparse.unwrap());
        assert_eq!(a.lambda, b.lambda);
        if lambda != Lambda::Auto {
            assert_eq!(a.support, b.support);
        }
        // There the solver of the whole matrix stops within the noise before it reaches 1e-5.
        assert!(b.converged && (a.converged || lambda == Lambda::Auto));
        let all_proved = a.converged;
        assert!(rows.iter().filter(|row| b.support.contains(row)).count() >= 6);
        assert!(large.spectrum.len() < p);
        for (a, b) in small.spectrum.iter().zip(&large.spectrum) {
            assert!(b <= &(a + 1e-6) && *b > 0.9 * a, "{a} {b}");
        }
        let (a, b) = (&small.floor_report, &large.floor_report);
        if all_proved {
            let codes = |of: &[Warning]| of.iter().map(Warning::code).collect::<Vec<_>>();
            assert_eq!(codes(&a.warnings), codes(&b.warnings));
        }
        assert_eq!(a.components.len(), b.components.len());
        for (a, b) in a.components.iter().zip(&b.components) {
            assert_eq!((a.verdict, b.verdict), (Verdict::Above, Verdict::Above));
            let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => assert!((a / b - 1.0).abs() < 2e-2, "{a} {b}"),
                (a, b) => assert_eq!(a, b),
            };
            close(Some(a.eigenvalue), Some(b.eigenvalue));
            close(a.debiased_eigenvalue, b.debiased_eigenvalue);
            close(a.eigenvalue_se, b.eigenvalue_se);
            close(a.direction_se, b.direction_se);
        }
        let apart = projector_distance(&small.vectors, &large.vectors).unwrap();
        assert!(apart < 2e-2, "{apart}");
    }
}

#[test]
fn unsupported_studies_are_rejected_and_cancelling_works() {
    let params = study(40, None);
    let (seeds, _) = seeds(&params, 600, 4);
    let run = |params: &StudyParams, settings: &SparseSettings, cancel: Cancel<'_>| {
        let rank = ComponentCount::Fixed(1);
        sparse_components(&seeds, params, rank, settings, "", cancel)
    };
    let plain = SparseSettings::default();
    for lambda in [Lambda::CrossValidated, Lambda::Path] {
        let settings = SparseSettings {
            lambda,
            ..plain.clone()
        };
        let error = run(&params, &settings, Cancel::NEVER).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert_eq!(error.field(), Some("lambda"));
        assert!(!can_stream(&params, ComponentCount::Fixed(1), &settings));
    }
    assert!(can_stream(&params, ComponentCount::Fixed(1), &plain));
    let error = run(&study(39, Some(0.7)), &plain, Cancel::NEVER).unwrap_err();
    assert_eq!(error.field(), Some("centring"));
    let error = run(&params, &plain, Cancel::when(&|| true)).unwrap_err();
    assert!(error.detail().contains("cancelled"), "{error}");
    let empty: Vec<Vec<Seed>> = vec![vec![], vec![]];
    let rank = ComponentCount::Fixed(1);
    let error = sparse_components(&empty, &params, rank, &plain, "", Cancel::NEVER).unwrap_err();
    assert!(error.detail().contains("n = 0"), "{error}");
    // A source that changes between the passes is detected.
    struct Shrinking<'a>(&'a [Vec<Seed>], std::cell::Cell<usize>);
    impl SeedSource for Shrinking<'_> {
        fn buckets(&self) -> u32 {
            self.0.len() as u32
        }

        fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
            let left = self.1.replace(self.1.get() - 1);
            self.0[..left].to_vec().pass(take)
        }
    }
    let shrinking = Shrinking(&seeds, std::cell::Cell::new(4));
    let error =
        sparse_components(&shrinking, &params, rank, &plain, "", Cancel::NEVER).unwrap_err();
    assert!(error.detail().contains("600 reports"), "{error}");
}
