//! `dp-pca`: Example 4.1, two components by either method, and too few rows.

use eigenveil_central::{
    CentralCalibration::Accounted,
    Neighbours, Options, Request, Rows,
    parameter::{DEFLATION, Value},
};
use eigenveil_estimation::{metrics::projector_distance, models::uniform_frame};
use eigenveil_shared::ErrorCode;
use nalgebra::DMatrix;

use crate::tables::{accounted, built, clipped, default, exact, fitted, gaussian, private, seeded};

/// Example 4.1 of the paper, `x = ±v + σ·noise`; and v. The paper's rows are unbounded; here they are divided by 1.5
/// and clipped to the unit ball, well outside the signal of length 2/3.
fn example(n: usize, d: usize, sigma: f64, seed: u64) -> (Rows, DMatrix<f64>) {
    let mut rng = seeded(seed);
    let v = uniform_frame(&mut rng, d, 1).unwrap();
    let mut raw = gaussian(n, &vec![sigma; d], &mut rng);
    for (i, row) in raw.iter_mut().enumerate() {
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        row.iter_mut().zip(&v).for_each(|(x, v)| *x += sign * v);
    }
    (clipped(&raw, 1.5), v)
}

/// The error of `dp-pca` vanishes as σ → 0 and that of `private-oja` does not, at equal accounted budgets; means of ten
/// runs.
#[test]
fn example_4_1_separates_it_from_private_oja() {
    let error = |name, sigma: f64| {
        let errors = (0..10).map(|seed| {
            let (rows, v) = example(20_000, 10, sigma, seed);
            let request = Request::new(1, accounted(2.0));
            let fit = fitted(&default(name), &rows, &request, seed);
            assert!(fit.privacy.unwrap().holds());
            projector_distance(&fit.subspace, &v).unwrap()
        });
        errors.sum::<f64>() / 10.0
    };
    let sigmas = [1e-2, 1e-3, 1e-4, 1e-5];
    let adaptive = sigmas.map(|sigma| error("dp-pca", sigma));
    let clipped = sigmas.map(|sigma| error("private-oja", sigma));
    println!("sigma {sigmas:?}: dp-pca {adaptive:?}, private-oja {clipped:?}");
    // At 1e-2 the box is wider than the effect of any row; from 1e-3 on it scales with sigma.
    assert!(adaptive[1] < adaptive[0]);
    let mut pairs = adaptive[1..].windows(2);
    assert!(pairs.all(|pair| pair[1] < 0.2 * pair[0]) && adaptive[3] < 1e-3);
    assert!(clipped[3] > 0.5 * clipped[0] && clipped[3] > 0.05);
}

#[test]
fn block_and_deflation_find_two_components() {
    let mut rng = seeded(4);
    let rows = clipped(&gaussian(60_000, &[0.5, 0.3, 0.01, 0.01], &mut rng), 1.0);
    let truth = exact(&rows, 2);
    let deflation = Options::default().with(DEFLATION, Value::Set);
    for options in [Options::default(), deflation] {
        let privacy = private(8.0, 1e-6, Neighbours::ZeroOut, Accounted);
        let method = built("dp-pca", &options);
        let fit = method.fit(&rows, &Request::new(2, privacy), &mut rng);
        let error = projector_distance(&fit.unwrap().subspace, &truth).unwrap();
        assert!(error < 0.5, "{method:?}: {error}");
    }
}

/// With too few rows the error names the number needed; with that many it runs.
#[test]
fn error_for_too_few_rows_names_the_number_needed() {
    let (few, _) = example(500, 5, 0.1, 1);
    let mut rng = seeded(1);
    let request = Request::new(1, accounted(1.0));
    let default = default("dp-pca");
    let error = default.fit(&few, &request, &mut rng).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
    let (_, rest) = error.detail().split_once("n >= ").unwrap();
    let needed: usize = rest.split(' ').next().unwrap().parse().unwrap();
    let (enough, _) = example(needed, 5, 0.1, 1);
    let fit = default.fit(&enough, &request, &mut rng);
    assert_eq!(fit.unwrap().n, needed as u64);
}
