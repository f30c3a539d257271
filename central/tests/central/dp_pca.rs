//! `dp-pca`: Example 4.1, both ways to two components, and too few rows.

use eigenveil_central::{
    Baseline, Neighbours, NoiseRule, Privacy, Request, Rows,
    dp_pca::{DpPca, Rank},
    generator,
    oja::Oja,
};
use eigenveil_estimation::{metrics::projector_distance, models::uniform_frame};
use eigenveil_shared::{ErrorCode, preprocess::Norm};
use nalgebra::DMatrix;
use rand_distr::{Distribution, StandardNormal};

use crate::{
    common,
    tables::{clipped, exact, prepared, private},
};

/// Example 4.1 of the paper, `x = ±v + σ·noise`; and v. The paper's rows are not bounded; here they are divided by 1.5 and
/// clipped to the unit ball, which the signal, of length 2/3, is well inside.
fn example(n: usize, d: usize, sigma: f64, seed: u64) -> (Rows, DMatrix<f64>) {
    let mut rng = generator(Some(seed)).unwrap();
    let v = uniform_frame(&mut rng, d, 1).unwrap();
    let raw: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            v.iter()
                .map(|v| {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    sign * v + sigma * z
                })
                .collect()
        })
        .collect();
    (clipped(&raw, 1.5), v)
}

/// As σ → 0 the error of `dp-pca` vanishes and that of `private-oja` does not, at equal accounted budgets; means of ten.
#[test]
fn example_4_1_separates_it_from_private_oja() {
    let privacy = private(2.0, 1e-6, Neighbours::Replace, NoiseRule::Accounted);
    let error = |method: &dyn Baseline, sigma: f64| {
        let total: f64 = (0..10)
            .map(|seed| {
                let (rows, v) = example(20_000, 10, sigma, seed);
                let mut rng = generator(Some(seed)).unwrap();
                let fit = method
                    .fit(&rows, &Request::new(1, privacy), &mut rng)
                    .unwrap();
                assert!(fit.privacy.unwrap().holds());
                projector_distance(&fit.subspace, &v).unwrap()
            })
            .sum();
        total / 10.0
    };
    let sigmas = [1e-2, 1e-3, 1e-4, 1e-5];
    let adaptive: Vec<f64> = sigmas
        .iter()
        .map(|s| error(&DpPca::default(), *s))
        .collect();
    let clipped: Vec<f64> = sigmas.iter().map(|s| error(&Oja::PRIVATE, *s)).collect();
    println!("sigma {sigmas:?}: dp-pca {adaptive:?}, private-oja {clipped:?}");
    // At 1e-2 the box is wider than what a row can do at all; from 1e-3 on it follows sigma.
    assert!(adaptive[1] < adaptive[0], "{adaptive:?}");
    assert!(
        adaptive[1..].windows(2).all(|pair| pair[1] < 0.2 * pair[0]),
        "{adaptive:?}"
    );
    assert!(adaptive[3] < 1e-3, "{adaptive:?}");
    assert!(
        clipped[3] > 0.5 * clipped[0] && clipped[3] > 0.05,
        "{clipped:?}"
    );
}

/// Both ways to k = 2 give orthonormal directions.
#[test]
fn two_components_by_block_and_by_deflation() {
    let mut rng = generator(Some(4)).unwrap();
    let raw: Vec<Vec<f64>> = (0..60_000)
        .map(|_| {
            [0.5, 0.3, 0.01, 0.01]
                .iter()
                .map(|sd| {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    sd * z
                })
                .collect()
        })
        .collect();
    let rows = clipped(&raw, 1.0);
    let truth = exact(&rows, 2);
    for rank in [Rank::Block, Rank::Deflation] {
        let method = DpPca {
            rank,
            ..DpPca::default()
        };
        let privacy = private(8.0, 1e-6, Neighbours::ZeroOut, NoiseRule::Accounted);
        let fit = method
            .fit(&rows, &Request::new(2, privacy), &mut rng)
            .unwrap();
        let error = projector_distance(&fit.subspace, &truth).unwrap();
        println!("{rank:?}: {error}");
        assert!(error < 0.5, "{rank:?}: {error}");
    }
}

/// Too few rows name how many would do; with that many it runs.
#[test]
fn too_few_rows_name_the_number_needed() {
    let privacy = private(1.0, 1e-6, Neighbours::Replace, NoiseRule::Accounted);
    let (few, _) = example(500, 5, 0.1, 1);
    let mut rng = generator(Some(1)).unwrap();
    let error = DpPca::default()
        .fit(&few, &Request::new(1, privacy), &mut rng)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
    let detail = error.detail();
    let needed: usize = detail
        .split("n >= ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    let (enough, _) = example(needed, 5, 0.1, 1);
    let fit = DpPca::default().fit(&enough, &Request::new(1, privacy), &mut rng);
    assert_eq!(fit.unwrap().n, needed as u64);
    let small = DpPca {
        batch: Some(10),
        ..DpPca::default()
    };
    let error = small
        .fit(&few, &Request::new(1, privacy), &mut rng)
        .unwrap_err();
    assert!(error.detail().contains("a batch of 10 rows"), "{error}");
    assert!(
        small
            .fit(&few, &Request::new(6, Privacy::None), &mut rng)
            .is_err()
    );
}

/// a9a at ε = 1 returns an answer.
#[test]
fn a9a_returns_an_answer() {
    let Some(raw) = common::shared_rows("a9a.npy") else {
        return;
    };
    let rows = prepared(&raw, Norm::Normalize);
    let privacy = private(1.0, 1e-6, Neighbours::Replace, NoiseRule::Accounted);
    let mut rng = generator(Some(1)).unwrap();
    let fit = DpPca::default()
        .fit(&rows, &Request::new(1, privacy), &mut rng)
        .unwrap();
    let error = projector_distance(&fit.subspace, &exact(&rows, 1)).unwrap();
    println!("a9a, {:?}: error {error}", fit.facts);
    assert!(error < 1.0, "{error}");
}
