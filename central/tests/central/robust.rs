//! Robust PCA: recovery, optima against a convex solver, and noise against budget.

use eigenveil_central::{
    Baseline,
    CentralCalibration::{self, Accounted, AsPublished},
    Neighbours, Options, Privacy, Request, Rows,
    parameter::{ITERATIONS, STEP_SIZE},
    robust::{Robust, Start, Variant},
};
use eigenveil_estimation::{
    linalg::{product, symmetric_eigenvalues},
    metrics::{largest_principal_angle, projector_distance},
    models::{Model, uniform_frame},
};
use eigenveil_shared::{
    preprocess::{FeatureRow, Norm, Row},
    privacy::{Budget, gaussian},
};
use nalgebra::{DMatrix, DVector};

use crate::tables::{
    accounted, built, default, drawn, exact, fitted, prepared, private, seeded, table_of_zeros,
};

fn haystack(
    n: usize,
    p: usize,
    k: usize,
    inliers: f64,
    noise: f64,
    seed: u64,
) -> (Rows, DMatrix<f64>) {
    let model = Model::haystack(p, k, inliers, noise);
    let (raw, truth) = drawn(model, n, &mut seeded(seed));
    let raw: Vec<Row> = raw.into_iter().map(Row::new).collect();
    (prepared(&raw, Norm::Normalize), truth)
}

/// `S_ρ` of the paper's Section 3.2 with its bound (3.3) on the outliers' part: positive means that ggd recovers the
/// subspace from any start within ρ.
fn stability(rows: &Rows, truth: &DMatrix<f64>, rho: f64) -> f64 {
    let (p, n) = (rows.dimension(), rows.n() as f64);
    let (mut inside, mut outside, mut outliers) = (DMatrix::zeros(p, p), DMatrix::zeros(p, p), 0.0);
    for row in rows.iter() {
        let x = DVector::from_column_slice(row.as_slice());
        let residual = &x - truth * (truth.transpose() * &x);
        let outer = &x * x.transpose();
        if residual.norm() < 1e-9 {
            inside += outer;
        } else {
            outside += outer;
            outliers += 1.0;
        }
    }
    let k = truth.ncols();
    let permeance = symmetric_eigenvalues(&inside).unwrap()[k - 1] / n;
    let largest = symmetric_eigenvalues(&outside).unwrap()[0];
    (1.0 - rho) * permeance - f64::sqrt(outliers * largest) / n
}

/// `(1/N)Σ‖(I − P)x‖`.
fn objective(rows: &Rows, p: &DMatrix<f64>) -> f64 {
    let residual = |row: &FeatureRow| {
        let x = DVector::from_column_slice(row.as_slice());
        (&x - p * &x).norm()
    };
    rows.iter().map(residual).sum::<f64>() / rows.n() as f64
}

fn from_random(variant: Variant, options: &Options) -> Robust {
    let mut method = Robust::new(variant, options).unwrap();
    method.start = Some(Start::Random);
    method
}

fn error_of(method: &Baseline, rows: &Rows, truth: &DMatrix<f64>) -> f64 {
    let fit = fitted(method, rows, &Request::nonprivate(truth.ncols()), 1);
    projector_distance(&fit.subspace, truth).unwrap()
}

/// With half the rows outliers the subspace is recovered exactly; PCA is misled by them.
#[test]
fn a_noiseless_haystack_is_recovered_exactly() {
    for (n, p, k, inliers) in [(400, 20, 2, 0.5), (600, 10, 1, 0.4), (800, 50, 3, 0.6)] {
        let (rows, truth) = haystack(n, p, k, inliers, 0.0, 7);
        let plain = exact(&rows, k);
        let rho = 1.0 - largest_principal_angle(&plain, &truth).unwrap().cos();
        assert!(stability(&rows, &truth, rho) > 0.0, "outside the condition");
        let of_pca = projector_distance(&plain, &truth).unwrap();
        assert!(of_pca > 0.02, "{of_pca}");
        // Twenty halvings: 2⁻²⁰ is 1e-6.
        let full = error_of(&default("ggd"), &rows, &truth);
        assert!(full < 1e-6, "ggd, p = {p}: {full}");
        let sampled = error_of(&default("sggd"), &rows, &truth);
        assert!(sampled < 1e-5, "sggd, p = {p}: {sampled}");
        for name in ["dp-gd-reap", "dp-md-reap"] {
            let method = built(name, &Options::default().with(ITERATIONS, 400));
            let share = error_of(&method, &rows, &truth) / of_pca;
            assert!(share < 0.3, "{name}, p = {p}: {share}");
        }
    }
}

fn numbers(value: &serde_json::Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The optima of `vectors/reaper.json` (cvxpy with Clarabel, by `central/tests/vectors/reaper.py`): the average iterate
/// approaches them from above in both geometries, and GLAD, whose feasible set is smaller, ends above them, or at them
/// if the relaxation is tight.
#[test]
fn optima_agree_with_a_convex_solver() {
    let text = include_str!("../vectors/reaper.json");
    let cases: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut tight = 0;
    for case in cases.as_array().unwrap() {
        let raw = case["rows"].as_array().unwrap().iter().map(numbers);
        let raw: Vec<Row> = raw.map(Row::new).collect();
        let rows = prepared(&raw, Norm::Normalize);
        let (p, k) = (rows.dimension(), case["k"].as_u64().unwrap() as usize);
        let best = case["objective"].as_f64().unwrap();
        let projector = DMatrix::from_fn(p, p, |i, j| case["projector"][i][j].as_f64().unwrap());
        assert!((objective(&rows, &projector) - best).abs() < 1e-6);
        let request = Request::nonprivate(k);
        for variant in [Variant::Gd, Variant::Md] {
            let options = Options::default().with(ITERATIONS, 20_000);
            let method = Robust::new(variant, &options.with(STEP_SIZE, 0.5)).unwrap();
            let (_, average) = method
                .fit_calibrated(&rows, &request, None, &mut seeded(1))
                .unwrap();
            let above = objective(&rows, &average.unwrap().matrix()) - best;
            assert!(above > -1e-6 && above < 2e-3, "{variant:?}: {above}");
        }
        let fit = fitted(&default("ggd"), &rows, &request, 1);
        let reached = objective(&rows, &(&fit.subspace * fit.subspace.transpose()));
        assert!(reached > best - 1e-6, "{reached} against {best}");
        let mut eigenvalues = numbers(&case["eigenvalues"]).into_iter();
        if eigenvalues.all(|g| !(1e-4..1.0 - 1e-4).contains(&g)) {
            tight += 1;
            assert!(reached < best + 1e-4, "{reached} against {best}");
        }
    }
    assert!(tight >= 1);
}

/// The paper's first experiment: N = T = 2,000, B = 20, ε = 0.8, δ = 1/√N. By an independent accountant multiplier 1.09
/// gives ε = 0.776 (zero-out); the published one is a hundred times smaller, and dp-GGD's steps have ε = 0.19
/// (zero-out) and 0.57 (replace).
#[test]
fn published_noise_has_the_independent_true_epsilon() {
    let (n, p, delta) = (2000, 20, 1.0 / f64::sqrt(2000.0));
    let guarantee_of = |variant, neighbours, calibration| {
        let privacy = private(0.8, delta, neighbours, calibration);
        let method = from_random(variant, &Options::default().with(ITERATIONS, 2000));
        method.calibrate(n, p, &privacy).unwrap().unwrap()
    };
    let [accounted, published] = CentralCalibration::ALL
        .map(|rule| guarantee_of(Variant::DpSggd, Neighbours::ZeroOut, rule));
    println!("{published:?} {accounted:?}");
    assert!((published.step_sd - 0.0109).abs() < 1e-4);
    let holds = published.guarantee.true_epsilon;
    assert!(holds.is_none_or(|epsilon| epsilon > 1000.0));
    assert!(accounted.guarantee.holds());
    assert!(accounted.step_sd > 1.0 && accounted.step_sd < 1.09);
    for (neighbours, expected) in [(Neighbours::ZeroOut, 0.19), (Neighbours::Replace, 0.57)] {
        let full = guarantee_of(Variant::DpGgd, neighbours, AsPublished);
        let epsilon = full.guarantee.true_epsilon.unwrap();
        assert!((epsilon - expected).abs() < 0.01, "{neighbours}: {epsilon}");
        assert_eq!(full.epsilon_of_steps, full.guarantee.true_epsilon);
    }
}

/// One step from a known frame on zero rows shows the noise alone, in 400 × 3 and 200 × 199/2 entries: relative
/// standard errors of 2.1 and 0.5 %, so deviations of 13 and 3 % are false alarms below 1e-8; halved noise would fail.
#[test]
fn noise_matches_the_budget() {
    let (epsilon, delta, n, step) = (0.7, 1e-5, 10, 1e-7);
    let budget = Budget::approximate(epsilon, delta).unwrap();
    for neighbours in Neighbours::OF_ROWS {
        let privacy = private(epsilon, delta, neighbours, Accounted);
        let sigma = gaussian::analytic_sigma(budget, neighbours.gradient_sensitivity()).unwrap();
        let expected = step * sigma / n as f64;
        let options = Options::default().with(ITERATIONS, 1).with(STEP_SIZE, step);
        let one_step = |variant, p, request: &Request<'_>| {
            let method = from_random(variant, &options);
            let noise = method.calibrate(n, p, &privacy).unwrap();
            let rows = table_of_zeros(p, n);
            let fit = method.fit_calibrated(&rows, request, noise.as_ref(), &mut seeded(4));
            fit.unwrap()
        };
        let (p, k) = (400, 3);
        let start = uniform_frame(&mut seeded(4), p, k).unwrap();
        let request = Request::new(k, privacy);
        let (fit, _) = one_step(Variant::DpGgd, p, &request);
        let across = &fit.subspace - product(&start, &(start.transpose() * &fit.subspace));
        let sd = (across.norm_squared() / ((p - k) * k) as f64).sqrt();
        println!("{neighbours}: {sd} for {expected}");
        assert!((sd / expected - 1.0).abs() < 0.13);

        let p = 200;
        let (_, average) = one_step(Variant::Gd, p, &request);
        let average = average.unwrap().matrix();
        let squares: f64 = (0..p)
            .flat_map(|j| (0..j).map(move |i| (i, j)))
            .map(|at| average[at].powi(2))
            .sum();
        let sd = (squares / (p * (p - 1) / 2) as f64).sqrt();
        let expected = expected * std::f64::consts::FRAC_1_SQRT_2;
        println!("{sd} for {expected}");
        assert!((sd / expected - 1.0).abs() < 0.03);
    }
}

#[test]
fn noise_of_another_run_is_rejected() {
    let (rows, _) = haystack(50, 4, 1, 0.6, 0.1, 3);
    let privacy = accounted(1.0);
    let [short, long] = [5, 500].map(|steps| {
        let options = Options::default().with(ITERATIONS, steps);
        Robust::new(Variant::DpGgd, &options).unwrap()
    });
    let noise = short.calibrate(50, 4, &privacy).unwrap();
    let mut rng = seeded(1);
    let mut run = |method: &Robust, privacy: Privacy, noise| {
        method.fit_calibrated(&rows, &Request::new(1, privacy), noise, &mut rng)
    };
    assert!(run(&short, privacy, noise.as_ref()).is_ok());
    assert!(run(&long, privacy, noise.as_ref()).is_err());
    assert!(run(&short, privacy, None).is_err());
    assert!(run(&short, Privacy::None, noise.as_ref()).is_err());
}
