//! The power methods and the plain baselines: against plain PCA on real data, and the noise against the budget.

use eigenveil_central::{
    Baseline, Fit, Neighbours, NoiseRule, Options, Pca, Privacy, Request, SparsePca,
    StreamingBaseline, find, generator,
    parameter::{BATCH, COLUMNS, ITERATIONS, LAMBDA},
    power::{
        NoisyPower, PrivatePower, Shape, StreamingPower, coherence, largest_entry_product,
        product_sensitivity, product_sensitivity_l1,
    },
};
use eigenveil_estimation::{
    linalg::orthonormality_defect, metrics::projector_distance, models::Model,
};
use eigenveil_shared::{
    ErrorCode,
    privacy::{Budget, gaussian},
};

use crate::tables::{clipped, exact, private, real_tables, table_of_zeros};

/// Without privacy the power methods end where plain PCA does.
#[test]
fn without_noise_the_power_methods_are_pca() {
    for (name, rows) in real_tables() {
        for k in [1, 3] {
            let truth = exact(&rows, k);
            let algorithms: [&dyn Baseline; 3] =
                [&Pca, &NoisyPower::default(), &PrivatePower::default()];
            for algorithm in algorithms {
                let mut rng = generator(Some(1)).unwrap();
                let fit = algorithm.fit(&rows, &Request::plain(k), &mut rng).unwrap();
                let error = projector_distance(&fit.subspace, &truth).unwrap();
                let which = algorithm.card().name;
                assert!(error < 1e-8, "{which} on {name}, k = {k}: {error}");
                assert!(fit.privacy.is_none() && fit.n == rows.n() as u64);
            }
        }
    }
}

/// A stream whose blocks are each the whole table is the power method on it, to rounding.
#[test]
fn a_stream_of_whole_tables_is_the_power_method() {
    let (steps, k) = (6, 2);
    for (name, rows) in real_tables() {
        let shape = Shape {
            iterations: Some(steps),
            columns: Some(4),
        };
        let request = Request::plain(k);
        let power = NoisyPower { shape }
            .fit(&rows, &request, &mut generator(Some(2)).unwrap())
            .unwrap();
        let mut stream = (0..steps).flat_map(|_| rows.stream());
        let method = StreamingPower { shape, block: None };
        let n = (rows.n() * steps) as u64;
        let mut rng = generator(Some(2)).unwrap();
        let streamed = method
            .fit_stream(&mut stream, rows.dimension(), n, &request, &mut rng)
            .unwrap();
        let distance = projector_distance(&streamed.subspace, &power.subspace).unwrap();
        assert!(distance < 1e-9, "{name}: {distance}");
    }
}

/// λ = 0 and all rows: plain PCA. A planted support is found exactly.
#[test]
fn sparse_pca_is_pca_without_a_penalty_and_finds_a_planted_support() {
    for (name, rows) in real_tables() {
        if rows.dimension() > 100 {
            continue;
        }
        let method = SparsePca {
            lambda: Some(0.0),
            support: Some(rows.dimension()),
            ..SparsePca::default()
        };
        let mut rng = generator(Some(1)).unwrap();
        let fit = method.fit(&rows, &Request::plain(2), &mut rng).unwrap();
        let error = projector_distance(&fit.subspace, &exact(&rows, 2)).unwrap();
        assert!(error < 1e-8, "{name}: {error}");
    }
    let mut rng = generator(Some(4)).unwrap();
    let model = Model::Sparse {
        p: 60,
        k: 2,
        s: 8,
        spike: 4.0,
    };
    let population = model.draw(&mut rng).unwrap();
    let raw: Vec<Vec<f64>> = (0..4_000).map(|_| population.row(&mut rng)).collect();
    let rows = clipped(&raw, 30.0);
    let method = SparsePca {
        support: Some(8),
        ..SparsePca::default()
    };
    let fit = method.fit(&rows, &Request::plain(2), &mut rng).unwrap();
    let support: Vec<usize> = (0..60)
        .filter(|&i| fit.subspace.row(i).amax() > 0.0)
        .collect();
    assert_eq!(support, population.support());
    let dense = projector_distance(&exact(&rows, 2), population.subspace()).unwrap();
    let sparse = projector_distance(&fit.subspace, population.subspace()).unwrap();
    assert!(sparse < 0.6 * dense, "{sparse} against {dense}");
}

/// On a table of zero rows the (L+1)-th release is nothing but noise: its scale is the budget's, computed here from
/// the analytic Gaussian formula, not by the accountant of the crate. 6 × 300 × 4 entries: a sample standard
/// deviation has relative standard error 1.2 % (a Laplace one 2.0 %), so 8 % is a false alarm below 1e-4 at worst, and
/// halved noise is seen.
#[test]
fn the_noise_is_what_the_budget_needs() {
    let (d, columns, steps, epsilon, delta) = (300, 4, 3_usize, 0.8, 1e-5);
    let rows = table_of_zeros(d, 10);
    let method = PrivatePower {
        shape: Shape {
            iterations: Some(steps),
            columns: Some(columns),
        },
    };
    let releases = (steps + 1) as f64;
    let gaussian_budget = Budget::approximate(epsilon, delta).unwrap();
    let multiplier = gaussian::analytic_sigma(gaussian_budget, releases.sqrt()).unwrap();
    let printed = (4.0 * (columns * steps) as f64 * (1.0 / delta).ln()).sqrt() / epsilon;
    for neighbours in Neighbours::WITH_ENTRY {
        for calibration in NoiseRule::ALL {
            for delta in [delta, 0.0] {
                let privacy = private(epsilon, delta, neighbours, calibration);
                let request = Request::new(2, privacy);
                let (mut square, mut expected) = (0.0, 0.0);
                for seed in 0..6 {
                    let mut rng = generator(Some(seed)).unwrap();
                    let found = method.low_rank(&rows, &request, &mut rng).unwrap();
                    let x = &found.left;
                    assert!(orthonormality_defect(x) < 1e-12);
                    square += found.right.norm_squared() / (6 * d * columns) as f64;
                    let sd = match (calibration, delta > 0.0) {
                        (NoiseRule::Accounted, true) => {
                            multiplier * product_sensitivity(neighbours, x)
                        }
                        (NoiseRule::Accounted, false) => {
                            2.0_f64.sqrt() * releases / epsilon
                                * product_sensitivity_l1(neighbours, x)
                        }
                        (NoiseRule::AsPublished, true) if neighbours == Neighbours::Entry => {
                            printed * x.amax()
                        }
                        (NoiseRule::AsPublished, true) => printed,
                        (NoiseRule::AsPublished, false) => {
                            let products = (columns * steps) as f64;
                            2.0_f64.sqrt() * 10.0 * products * (d as f64).sqrt() / epsilon
                        }
                    };
                    expected += sd * sd / 6.0;
                }
                let ratio = (square / expected).sqrt();
                assert!(
                    (ratio - 1.0).abs() < 0.08,
                    "{neighbours} {calibration} {delta}: {ratio}"
                );
            }
        }
    }
}

/// What the result says of itself: accounted noise spends the budget and no more; the printed noise holds, for rows
/// with √m to spare.
#[test]
fn the_true_epsilon_and_both_noise_scales_are_told() {
    let rows = table_of_zeros(40, 50);
    let run = |columns, delta, neighbours, calibration| -> Fit {
        let shape = Shape {
            iterations: Some(5),
            columns: Some(columns),
        };
        let request = Request::new(2, private(1.0, delta, neighbours, calibration));
        let mut rng = generator(Some(9)).unwrap();
        PrivatePower { shape }
            .fit(&rows, &request, &mut rng)
            .unwrap()
    };
    let fact = |fit: &Fit, name| {
        let found = fit.facts.iter().find(|(fact, _)| *fact == name);
        found.unwrap().1
    };
    for neighbours in Neighbours::WITH_ENTRY {
        for delta in [1e-6, 0.0] {
            let fit = run(4, delta, neighbours, NoiseRule::Accounted);
            let promised = fit.privacy.unwrap();
            let epsilon = promised.true_epsilon.unwrap();
            assert!(promised.holds() && epsilon > 0.999_999, "{epsilon}");
            let published = run(4, delta, neighbours, NoiseRule::AsPublished);
            assert!(published.privacy.unwrap().holds());
        }
    }
    // The printed σ grows with √m and the accounted one does not.
    let over = |columns| {
        let fit = run(columns, 1e-6, Neighbours::ZeroOut, NoiseRule::Accounted);
        assert_eq!(fact(&fit, "noise_sd"), fact(&fit, "accounted_noise_sd"));
        fact(&fit, "published_noise_sd") / fact(&fit, "accounted_noise_sd")
    };
    assert!((over(8) / over(2) - 2.0).abs() < 1e-9);
    assert!(over(2) > 1.0);
    // For a symmetric pair of entries the printed noise fails at ε = 8, δ = 1e-3
    // (docs/central-power-oja.md, "private-power (PPM)").
    let privacy = private(8.0, 1e-3, Neighbours::Entry, NoiseRule::AsPublished);
    let mut rng = generator(Some(9)).unwrap();
    let fit = PrivatePower::default()
        .fit(&rows, &Request::new(2, privacy), &mut rng)
        .unwrap();
    assert!(!fit.privacy.unwrap().holds());
    let sigma = (4.0 * 1e3_f64.ln()).sqrt() / 8.0; // m = L = 1
    let delta = gaussian::true_delta(sigma * largest_entry_product(1) / 2.0, 1.0, 8.0);
    assert!((delta / 1e-3 - 1.7).abs() < 0.05, "{delta}");
}

/// More rows, less error: the noise does not grow with n.
#[test]
fn private_power_converges_as_n_grows() {
    let mut rng = generator(Some(21)).unwrap();
    let model = Model::Spiked {
        p: 20,
        k: 2,
        spike: 8.0,
    };
    let population = model.draw(&mut rng).unwrap();
    let raw: Vec<Vec<f64>> = (0..32_000).map(|_| population.row(&mut rng)).collect();
    let error = |n: usize| {
        let rows = clipped(&raw[..n], 20.0);
        let privacy = private(1.0, 1e-6, Neighbours::Replace, NoiseRule::Accounted);
        let request = Request::new(2, privacy);
        let total: f64 = (0..8)
            .map(|seed| {
                let mut rng = generator(Some(seed)).unwrap();
                let fit = PrivatePower::default()
                    .fit(&rows, &request, &mut rng)
                    .unwrap();
                projector_distance(&fit.subspace, population.subspace()).unwrap()
            })
            .sum();
        total / 8.0
    };
    let (few, many) = (error(2_000), error(32_000));
    println!("{few} with 2,000 rows, {many} with 32,000");
    assert!(many < 0.25 * few && many < 0.5, "{few} {many}");
}

/// The low-rank output of data of rank m is the data's own sum; the trace and the coherence are there.
#[test]
fn low_rank_output_trace_and_coherence() {
    let raw: Vec<Vec<f64>> = (0..200_u32)
        .map(|i| {
            let t = f64::from(i);
            let (a, b) = (t.sin(), 0.5 * (1.7 * t).cos());
            vec![a, a + b, a - b, 0.3 * b, 0.0]
        })
        .collect();
    let rows = clipped(&raw, 3.0);
    let sum = rows.sum_of_outer_products();
    let truth = exact(&rows, 2);
    let request = Request {
        truth: Some(&truth),
        ..Request::plain(2)
    };
    let method = PrivatePower {
        shape: Shape {
            iterations: None,
            columns: Some(2),
        },
    };
    let mut rng = generator(Some(3)).unwrap();
    let found = method.low_rank(&rows, &request, &mut rng).unwrap();
    let rebuilt = &found.left * found.right.transpose();
    assert!((rebuilt - &sum).norm() < 1e-9 * sum.norm());
    let last = found.fit.trace.last().unwrap();
    assert!(last.error < 1e-6, "{last:?}");
    let captured = sum.symmetric_eigenvalues();
    let best: f64 = captured.iter().filter(|value| **value > 1e-9).sum();
    assert!((last.objective.unwrap() - best / 200.0).abs() < 1e-9);
    let mu = coherence(&sum).unwrap();
    assert!((1.0..=5.0).contains(&mu), "{mu}");
}

/// Every wrong input says what was given, what the limit is, and the code is that of a request.
#[test]
fn wrong_input_is_refused() {
    let rows = table_of_zeros(6, 20);
    let refused = |name: &str, options: Options, k: usize, privacy: Privacy| {
        let mut rng = generator(Some(1)).unwrap();
        let algorithm = match find(name).unwrap().build(&options) {
            Ok(algorithm) => algorithm,
            Err(error) => return error,
        };
        algorithm
            .fit(&rows, &Request::new(k, privacy), &mut rng)
            .unwrap_err()
    };
    let none = Options::default;
    let budget = private(1.0, 1e-6, Neighbours::Replace, NoiseRule::Accounted);
    for (name, options, k, privacy, says) in [
        ("private-power", none(), 7, Privacy::None, "p = 6"),
        ("private-power", none(), 0, budget, "k is 0"),
        ("noisy-power", none(), 2, budget, "has no private form"),
        ("streaming-power", none(), 2, budget, "has no private form"),
        ("pca", none(), 2, budget, "has no private form"),
        ("private-power", none().with(ITERATIONS, 0), 2, budget, "0"),
        (
            "private-power",
            none().with(COLUMNS, 1),
            2,
            budget,
            "between 2 and 6",
        ),
        (
            "noisy-power",
            none().with(COLUMNS, 7),
            2,
            Privacy::None,
            "between 2 and 6",
        ),
        (
            "streaming-power",
            none().with(BATCH, 21),
            2,
            Privacy::None,
            "n = 20",
        ),
        (
            "streaming-power",
            none().with(BATCH, 3),
            2,
            Privacy::None,
            "4 columns",
        ),
        (
            "streaming-power",
            none().with(ITERATIONS, 30),
            2,
            Privacy::None,
            "n = 20",
        ),
        (
            "streaming-power",
            none().with(ITERATIONS, 2).with(BATCH, 5),
            2,
            Privacy::None,
            "both set",
        ),
        (
            "private-power",
            none().with(BATCH, 5),
            2,
            budget,
            "no parameter batch",
        ),
    ] {
        let error = refused(name, options, k, privacy);
        assert_eq!(error.code(), ErrorCode::InvalidRequest, "{name}: {error}");
        assert!(error.detail().contains(says), "{name}: {error}");
    }
    for bad in [f64::NAN, -1.0] {
        let options = none().with(LAMBDA, bad);
        let error = refused("sparse-pca", options, 2, Privacy::None);
        assert!(error.detail().contains("lambda"), "{error}");
    }
    // Zero rows alone have no direction: an error, not an arbitrary subspace.
    let error = refused("noisy-power", none(), 2, Privacy::None);
    assert_eq!(error.code(), ErrorCode::EstimateFailed);
    assert!(Budget::approximate(0.0, 1e-6).is_err());
    // A stream that is shorter than announced, and a row of another length in it.
    let announce = |n, dimension| {
        let mut rng = generator(Some(1)).unwrap();
        let method = StreamingPower {
            shape: Shape::default(),
            block: Some(10),
        };
        method
            .fit_stream(
                &mut rows.stream(),
                dimension,
                n,
                &Request::plain(1),
                &mut rng,
            )
            .unwrap_err()
    };
    assert_eq!(announce(20, 5).code(), ErrorCode::WrongDimension);
    let raw: Vec<Vec<f64>> = (0..25).map(|i| vec![f64::from(i) / 25.0, 0.5]).collect();
    let short = clipped(&raw, 2.0);
    let mut rng = generator(Some(1)).unwrap();
    let error = StreamingPower::default()
        .fit_stream(&mut short.stream(), 2, 40, &Request::plain(1), &mut rng)
        .unwrap_err();
    assert!(error.detail().contains("after 25 rows"), "{error}");
}
