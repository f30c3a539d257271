//! The promises of every registered algorithm: without a budget it equals its non-private counterpart, accounted noise
//! spends exactly the budget, published noise reports the true guarantee, and unsupported requests are rejected with a
//! remedy.

use std::ops::RangeInclusive;

use eigenveil_central::{
    ALGORITHMS, AlgorithmInfo,
    CentralCalibration::{self, Accounted, AsPublished},
    DeltaSupport, Fit, Neighbours, Options, Privacy, Request, Rows, find, generator,
    parameter::{
        BATCH, BLOCK_SIZE, DEFLATION, EIGENGAP, EPOCHS, GRADIENT_CLIP, GRADIENT_NOISE, ITERATIONS,
        LAMBDA, STEP_SIZE, SUPPORT, Value,
    },
};
use eigenveil_estimation::{Cancel, linalg::orthonormality_defect, metrics::projector_distance};
use eigenveil_shared::{ErrorCode, Result};

use crate::tables::{
    budget_of, exact, few_rows, fitted, private, real_tables, rows_enough_for, table_of_zeros,
};

fn fit(name: &str, options: &Options, rows: &Rows, k: usize, privacy: Privacy) -> Result<Fit> {
    let mut rng = generator(Some(3)).unwrap();
    let request = Request::new(k, privacy);
    find(name)?.build(options)?.fit(rows, &request, &mut rng)
}

fn defaults(_: &Rows) -> Options {
    Options::default()
}

/// A case without a budget: the algorithm's name, parameters, passes over the rows, k, and the largest distance from
/// the exact subspace.
type Plain = (
    &'static str,
    fn(&Rows) -> Options,
    usize,
    &'static [usize],
    f64,
);

/// The leading direction has a large eigengap in all tables, as the algorithms that do not iterate to convergence
/// require.
const PLAIN: &[Plain] = &[
    ("pca", defaults, 1, &[1, 3], 1e-8),
    ("noisy-power", defaults, 1, &[1, 3], 1e-8),
    ("private-power", defaults, 1, &[1, 3], 1e-8),
    ("analyze-gauss", defaults, 1, &[3], 1e-6),
    ("mod-sulq", defaults, 1, &[3], 1e-6),
    ("ppi", defaults, 1, &[3], 1e-6),
    ("wishart", defaults, 1, &[3], 1e-6),
    ("amin", defaults, 1, &[3], 1e-6),
    ("oja", defaults, 30, &[1], 0.05),
    ("minibatch-oja", defaults, 30, &[1], 0.05),
    ("dp-spca", defaults, 1, &[1], 0.1),
    ("dp-vrpca", |_| defaults_with_epochs(6), 1, &[1], 1e-7),
    ("dp-pca", quarters, 1, &[1], 0.1),
    (
        "dp-pca",
        |rows| quarters(rows).with(DEFLATION, Value::Set),
        1,
        &[1],
        0.1,
    ),
];

fn defaults_with_epochs(epochs: usize) -> Options {
    Options::default().with(EPOCHS, epochs)
}

fn quarters(rows: &Rows) -> Options {
    Options::default().with(BATCH, rows.n() / 4)
}

#[test]
fn without_a_budget_each_is_pca_on_three_data_sets() {
    for (table, rows) in real_tables() {
        let repeated = Rows::collect((0..30).flat_map(|_| rows.stream())).unwrap();
        let near = |(name, options, times, ranks, limit): &Plain, rows: &Rows| {
            let read = if *times == 1 { rows } else { &repeated };
            for &k in *ranks {
                let fitted = fit(name, &options(rows), read, k, Privacy::None).unwrap();
                let error = projector_distance(&fitted.subspace, &exact(rows, k)).unwrap();
                assert!(error < *limit, "{name} on {table}, k = {k}: {error}");
                assert!(fitted.privacy.is_none() && fitted.n == read.n() as u64);
                assert!(orthonormality_defect(&fitted.subspace) < 1e-12);
            }
        };
        for plain in PLAIN {
            near(plain, &rows);
        }
        // Features without a penalty.
        let all = |rows: &Rows| {
            let options = Options::default().with(LAMBDA, 0.0);
            options.with(SUPPORT, rows.dimension())
        };
        if rows.dimension() <= 100 {
            near(&("sparse-pca", all, 1, &[2], 1e-8), &rows);
        }
    }
}

/// In the unit ball nothing is clipped, and noise of 0 is no noise.
#[test]
fn without_a_budget_private_variants_equal_the_nonprivate_ones() {
    let defaults = Options::default;
    for (table, rows) in real_tables()
        .into_iter()
        .take(1)
        .chain([("few", few_rows(400))])
    {
        for (plain, private, options) in [
            ("oja", "private-oja", defaults()),
            ("oja", "minibatch-oja", defaults().with(BATCH, 1)),
            ("ggd", "dp-ggd", defaults()),
            ("ggd", "nggd", defaults().with(GRADIENT_NOISE, 0.0)),
            ("sggd", "dp-sggd", defaults()),
            ("sggd", "nsggd", defaults().with(GRADIENT_NOISE, 0.0)),
        ] {
            for k in [1, 3] {
                let [plain, private] =
                    [(plain, &defaults()), (private, &options)].map(|(name, options)| {
                        let fitted = fit(name, options, &rows, k, Privacy::None).unwrap();
                        assert!(fitted.privacy.is_none(), "{name}");
                        fitted.subspace
                    });
                let distance = projector_distance(&private, &plain).unwrap();
                assert!(distance < 1e-9, "{table}, k = {k}: {distance}");
            }
        }
    }
    let noisy = Options::default().with(GRADIENT_NOISE, 0.1);
    let rows = few_rows(400);
    let [plain, noisy] = [Options::default().with(GRADIENT_NOISE, 0.0), noisy]
        .map(|options| fit("nggd", &options, &rows, 2, Privacy::None).unwrap());
    assert!(projector_distance(&noisy.subspace, &plain.subspace).unwrap() > 1e-6);
}

/// The true ε of published noise over the claimed one, at ε = 1.
fn published_over_claimed(name: &str, neighbours: Neighbours) -> RangeInclusive<f64> {
    match (name, neighbours) {
        ("private-power", _) | ("amin", _) => 0.0..=1.0,
        ("analyze-gauss", Neighbours::ZeroOut) => 0.0..=1.0,
        ("analyze-gauss", _) => 1.0..=1.5,
        ("mod-sulq", _) => 0.0..=0.3,
        // It relies on shuffling.
        ("private-oja", _) => 2.0..=f64::INFINITY,
        ("minibatch-oja", _) => 0.0..=0.2,
        ("dp-pca", _) => 0.45..=0.55,
        _ => 0.0..=f64::INFINITY,
    }
}

#[test]
fn true_epsilon_is_reported() {
    // Sampled algorithms are accounted again in the tests next to their noise, because each takes seconds.
    let sampled = ["dp-vrpca", "dp-sggd", "dp-sgd-reap", "dp-smd-reap"];
    let others = ALGORITHMS
        .iter()
        .filter(|info| !sampled.contains(&info.name));
    for info in others {
        let rows = rows_enough_for(info);
        for (neighbours, calibration) in pairs(info) {
            for (epsilon, delta) in budget_of(info) {
                let name = info.name;
                let context = format!("{name} {neighbours} {calibration}, delta {delta}");
                let privacy = private(epsilon, delta, neighbours, calibration);
                let fitted = fit(name, &Options::default(), &rows, 2, privacy).unwrap();
                let promised = fitted.privacy.unwrap();
                println!("{context}: {:?}", promised.true_epsilon);
                let share = promised.true_epsilon.map(|holds| holds / epsilon);
                match (calibration, share) {
                    (Accounted, Some(share)) => {
                        assert!(promised.holds() && share > 0.999, "{context}: {share}");
                    }
                    (AsPublished, Some(share)) => {
                        let expected = published_over_claimed(name, neighbours);
                        assert!(expected.contains(&share), "{context}: {share}");
                        assert_eq!(promised.holds(), share <= 1.0, "{context}");
                    }
                    (AsPublished, None) => assert!(!promised.holds(), "{context}"),
                    (Accounted, None) => panic!("{context}: nothing holds"),
                }
                assert!(name != "wishart" || share.is_none());
                assert!(name != "ppi" || share.is_some());
                let word = match name {
                    "private-oja" => "shuffling",
                    "wishart" => "no epsilon holds",
                    "ppi" | "dp-spca" => "",
                    _ => continue,
                };
                if calibration == AsPublished {
                    assert!(promised.note.unwrap().contains(word), "{context}");
                }
            }
        }
    }
}

fn pairs(info: &'static AlgorithmInfo) -> impl Iterator<Item = (Neighbours, CentralCalibration)> {
    let neighbours = info.neighbours.iter();
    neighbours.flat_map(|&one| info.calibrations.iter().map(move |&rule| (one, rule)))
}

fn refused(name: &str, options: &Options, k: usize, privacy: Privacy, code: ErrorCode, says: &str) {
    let rows = table_of_zeros(6, 20);
    let error = fit(name, options, &rows, k, privacy).unwrap_err();
    assert_eq!(error.code(), code, "{name}: {error}");
    assert!(error.detail().contains(says), "{name}: {error}");
}

#[test]
fn unsupported_requests_are_rejected() {
    use ErrorCode::{InvalidBudget, InvalidRequest};
    for info in ALGORITHMS {
        let refused = |k, privacy, code, says: &str| {
            refused(info.name, &Options::default(), k, privacy, code, says);
        };
        refused(0, Privacy::None, InvalidRequest, "k is 0");
        refused(7, Privacy::None, InvalidRequest, "p = 6");
        let Some(&rule) = info.calibrations.first() else {
            let budget = private(1.0, 1e-6, Neighbours::Replace, Accounted);
            refused(2, budget, InvalidRequest, "has no private form");
            continue;
        };
        for neighbours in Neighbours::ALL {
            let says = format!("does not protect {neighbours} neighbours, only ");
            if !info.neighbours.contains(&neighbours) {
                let privacy = private(1.0, 1e-6, neighbours, rule);
                refused(2, privacy, InvalidRequest, &says);
            }
        }
        for other in CentralCalibration::ALL {
            if !info.calibrations.contains(&other) {
                let privacy = private(1.0, 0.0, Neighbours::Replace, other);
                refused(2, privacy, InvalidRequest, &format!("only {rule}"));
            }
        }
        if info.delta == DeltaSupport::Positive {
            let pure = private(1.0, 0.0, Neighbours::Replace, rule);
            refused(2, pure, InvalidBudget, "delta is 0");
        }
    }
    let error = find("analyse").err().unwrap();
    assert!(error.detail().contains("analyze-gauss"), "{error}");
}

/// Whatever iterates asks; the others have one decomposition.
#[test]
fn a_cancelled_run_ends() {
    let rows = few_rows(400);
    let request = Request {
        cancel: Cancel::when(&|| true),
        ..Request::nonprivate(1)
    };
    for info in ALGORITHMS {
        let baseline = info.build(&Options::default()).unwrap();
        let done = baseline.fit(&rows, &request, &mut generator(Some(3)).unwrap());
        let at_once = ["analyze-gauss", "mod-sulq", "wishart", "amin"].contains(&info.name);
        match done {
            Ok(_) => assert!(at_once, "{}", info.name),
            Err(error) => assert!(
                error.detail().contains("cancelled"),
                "{}: {error}",
                info.name
            ),
        }
    }
}

/// Also where a hundred points do not divide the steps.
#[test]
fn a_trace_ends_at_the_result() {
    let rows = few_rows(400);
    let truth = exact(&rows, 1);
    let request = Request {
        truth: Some(&truth),
        ..Request::nonprivate(1)
    };
    for info in ALGORITHMS.iter().filter(|info| info.has_trace) {
        let iterates = info
            .parameters
            .iter()
            .any(|own| own.name == ITERATIONS.name);
        let options = match iterates {
            true => Options::default().with(ITERATIONS, 205),
            false => Options::default(),
        };
        let fit = fitted(&info.build(&options).unwrap(), &rows, &request, 3);
        let error = projector_distance(&fit.subspace, &truth).unwrap();
        let last = fit.trace.last().unwrap();
        assert!(
            (last.error - error).abs() < 1e-9,
            "{}: {last:?} {error}",
            info.name
        );
    }
}

/// For 20 rows with 6 columns, k = 2. (Limits of single parameters are tested with their table.)
#[test]
fn parameters_that_do_not_fit_are_rejected() {
    let with = |set: &[(_, usize)]| {
        let defaults = Options::default();
        set.iter().fold(defaults, |set, &(parameter, value)| {
            set.with(parameter, value)
        })
    };
    let both = with(&[(ITERATIONS, 2), (BATCH, 5)]);
    let unclipped = Options::default().with(GRADIENT_CLIP, 1.5);
    let gap_and_step = Options::default().with(EIGENGAP, 0.2).with(STEP_SIZE, 4.0);
    for (name, options, says) in [
        ("private-power", with(&[(BLOCK_SIZE, 1)]), "between 2 and 6"),
        ("noisy-power", with(&[(BLOCK_SIZE, 7)]), "between 2 and 6"),
        ("streaming-power", with(&[(BATCH, 21)]), "n is 20"),
        ("streaming-power", with(&[(BATCH, 3)]), "a block size of 4"),
        ("streaming-power", with(&[(ITERATIONS, 30)]), "n = 20"),
        ("streaming-power", both.clone(), "both set"),
        ("minibatch-oja", with(&[(BATCH, 21)]), "20"),
        ("minibatch-oja", with(&[(ITERATIONS, 21)]), "n = 20"),
        ("minibatch-oja", both, "both set"),
        ("private-oja", unclipped, "above 0 and at most 1"),
        ("oja", gap_and_step.clone(), "leave one out"),
        ("private-oja", gap_and_step.clone(), "leave one out"),
        ("minibatch-oja", gap_and_step, "leave one out"),
        ("dp-spca", with(&[(BATCH, 21)]), "20"),
        ("dp-vrpca", with(&[(BATCH, 21)]), "20"),
        ("dp-pca", with(&[(BATCH, 10)]), "a batch of 10 rows"),
    ] {
        let privacy = match find(name).unwrap().calibrations {
            [] => Privacy::None,
            _ => private(1.0, 1e-6, Neighbours::Replace, Accounted),
        };
        refused(name, &options, 2, privacy, ErrorCode::InvalidRequest, says);
    }
    // A table of zero rows has no direction: an error, not an arbitrary subspace.
    let failed = ErrorCode::EstimateFailed;
    let defaults = Options::default();
    refused("noisy-power", &defaults, 2, Privacy::None, failed, "");
}
