//! Simulation: both noise paths have one distribution, the oracle without noise, trends, reproducibility.

use eigenveil_estimation::{
    models::Model,
    simulate::{
        Experiment,
        NoisePath::{self, FromSum, PerReport},
        RowSource, SimulatedParticipants, noisy_sum, run,
    },
};
use eigenveil_shared::{ErrorCode, api::SparseSettings, mechanism::MechanismKind, preprocess::Row};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{digits, params, simulated};

/// Two-sample Kolmogorov–Smirnov statistic times √(mn/(m+n)).
fn kolmogorov_smirnov(a: &mut [f64], b: &mut [f64]) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (mut i, mut j, mut largest) = (0, 0, 0.0_f64);
    while i < a.len() && j < b.len() {
        if a[i] <= b[j] {
            i += 1;
        } else {
            j += 1;
        }
        largest = largest.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    largest * ((a.len() * b.len()) as f64 / (a.len() + b.len()) as f64).sqrt()
}

/// The noisy sum of the same participants by both paths, entry by entry and in a few combinations.
///
/// False-alarm rate: each statistic exceeds 2.69 with probability 1e-6 when the distributions are equal; there are
/// 41 of them, so a correct program fails for one choice of seeds in about 24,000.
#[test]
fn both_noise_paths_have_one_distribution() {
    const SAMPLES: usize = 4_000;
    let rows = [
        Row::new(vec![1.0, 0.0, 0.0, 0.0]),
        Row::new(vec![0.5, 0.5, -0.5, 0.5]),
        Row::new(vec![0.0, 0.0, 0.0, 0.0]),
    ];
    for (number, &mechanism) in MechanismKind::ALL.iter().enumerate() {
        let params = params(4, mechanism, 4.0);
        let draw = |noise_path: NoisePath, seed: u64| -> Vec<Vec<f64>> {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let participants =
                SimulatedParticipants::draw(&RowSource::Rows(&rows), 1, &params, &mut rng).unwrap();
            (0..SAMPLES)
                .map(|_| {
                    let (moment, _) = noisy_sum(
                        &params,
                        &participants,
                        40,
                        noise_path,
                        &mut rng,
                        &mut |_| Ok(()),
                    )
                    .unwrap();
                    let mut values = moment.mean().as_slice().to_vec();
                    let alternating = |v: &[f64]| {
                        v.iter().step_by(2).sum::<f64>() - v.iter().skip(1).step_by(2).sum::<f64>()
                    };
                    if mechanism != MechanismKind::DoubleCap {
                        // There the trace is zero up to rounding, so there is no distribution to compare.
                        values.push(moment.mean().trace());
                    }
                    values.extend([
                        values.iter().sum(),
                        alternating(&values),
                        values.iter().map(|v| v * v).sum(),
                    ]);
                    values
                })
                .collect()
        };
        let from_sum = draw(FromSum, 10 + number as u64);
        let device = draw(PerReport, 20 + number as u64);
        for at in 0..from_sum[0].len() {
            let column = |samples: &[Vec<f64>]| samples.iter().map(|v| v[at]).collect::<Vec<f64>>();
            let statistic = kolmogorov_smirnov(&mut column(&from_sum), &mut column(&device));
            assert!(statistic < 2.69, "{mechanism}, statistic {at}: {statistic}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_numbers_and_more_repeats_keep_them() {
    let params = params(6, MechanismKind::SymmetricGaussian, 2.0);
    let experiment = |seed, repeats| Experiment {
        noise_path: PerReport,
        repeats,
        seed,
        ..Experiment::new(&params, RowSource::Model(Model::spiked(6, 1, 5.0)), 500, 1)
    };
    let mut ticks = 0;
    let (two, _) = run(&experiment(7, 2), &mut |done| ticks += done).unwrap();
    assert_eq!(ticks, 1_000);
    let (three, _) = run(&experiment(7, 3), &mut |_| {}).unwrap();
    assert_eq!(two, three[..2]);
    assert_ne!(two[0], two[1]);
    assert_ne!(run(&experiment(8, 1), &mut |_| {}).unwrap().0[0], two[0]);
}

#[test]
fn unsupported_simulations_are_errors() {
    let params = params(4, MechanismKind::IsotropicGaussian, 1.0);
    let good = Experiment::new(&params, RowSource::Model(Model::spiked(4, 1, 1.0)), 10, 1);
    assert!(run(&good, &mut |_| {}).is_ok());
    let source = good.source;
    let spikes = [Model::spiked(4, 1, -1.0), Model::sparse(4, 2, 1, 1.0)].map(RowSource::Model);
    for (source, n, k, repeats) in [
        (source, 0, 1, 1),
        (source, 10, 0, 1),
        (source, 10, 5, 1),
        (source, 10, 1, 0),
        (RowSource::Rows(&[]), 10, 1, 1),
        (spikes[0], 10, 1, 1),
        (spikes[1], 10, 1, 1),
    ] {
        let bad = Experiment {
            repeats,
            ..Experiment::new(&params, source, n, k)
        };
        let error = run(&bad, &mut |_| {}).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    // k = p: the subspace is the whole space, and there is no bulk to predict from.
    let whole = RowSource::Model(Model::spiked(4, 4, 1.0));
    let (repeats, _) = simulated(&params, whole, (10, 4), (1, 1));
    println!("{repeats:?}");
    assert!(repeats[0].error < 1e-6 && repeats[0].predicted_error.is_none());
    // One participant, and fewer participants than buckets.
    for n in [1, 2, 31, 33] {
        simulated(&params, source, (n, 1), (1, 1));
    }
}

/// Rows compared with a subspace of the caller's: the error is against it, and its zero rows are not its support.
#[test]
fn rows_are_compared_with_the_given_reference() {
    let params = params(64, MechanismKind::DoubleCap, 8.0);
    let rows = digits();
    let mut reference = DMatrix::zeros(64, 1);
    reference[(27, 0)] = 0.6;
    reference[(36, 0)] = -0.8;
    let settings = SparseSettings::default();
    let experiment = Experiment {
        sparse: Some(&settings),
        repeats: 2,
        seed: 5,
        ..Experiment::new(
            &params,
            RowSource::RowsWithReference(&rows, &reference),
            20_000,
            1,
        )
    };
    let (compared, _) = run(&experiment, &mut |_| {}).unwrap();
    let without_reference = Experiment {
        source: RowSource::Rows(&rows),
        ..experiment.clone()
    };
    let (without_reference, _) = run(&without_reference, &mut |_| {}).unwrap();
    for (compared, without_reference) in compared.iter().zip(&without_reference) {
        // The same reports; the digits' first component is nothing like a difference of two pixels.
        assert!(without_reference.error < 0.5, "{without_reference:?}");
        assert!(compared.error > 1.2 && compared.error <= 2.0_f64.sqrt() + 1e-9);
        let support = compared.support.unwrap();
        assert_eq!(support.recall, 1.0);
        assert!(support.precision < 0.1, "{support:?}");
        assert!(without_reference.support.is_none());
    }
    let wrong = DMatrix::zeros(64, 2);
    let refused = Experiment {
        source: RowSource::RowsWithReference(&rows, &wrong),
        ..experiment
    };
    let error = run(&refused, &mut |_| {}).unwrap_err();
    assert!(error.detail().contains("64 × 1"), "{error}");
}
