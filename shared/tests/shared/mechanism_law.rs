//! The law of the noise that is added to every entry, with fixed seeds.
//!
//! False-alarm rate: each z-score below is compared with 5.5, and there are fewer than 2,000 of them
//! in the file, so a correct program fails for one choice of seeds in about 10,000.

use eigenveil_shared::{
    mechanism::{Calibration, Mechanism, MechanismKind, NoiseModel},
    packed::packed_index,
    preprocess::{BoundedRow, Norm, Preprocessing, Row},
    privacy::Budget,
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

const LIMIT: f64 = 5.5;
const P: usize = 5;
const SAMPLES: usize = 40_000;

const LEN: usize = P * (P + 1) / 2;

fn mechanism(kind: MechanismKind, calibration: Calibration) -> Mechanism {
    let budget = Budget::approximate(2.0, 1e-6).unwrap();
    Mechanism::derive(kind, calibration, P, budget).unwrap()
}

fn row() -> BoundedRow {
    let preprocessing = Preprocessing::new(P, Norm::Normalize);
    let row = Row::new(vec![0.9, -0.3, 0.2, 0.0, 0.1]);
    preprocessing.preprocessor().unwrap().prepare(&row).unwrap()
}

/// On the diagonal and off it, as stated.
fn standard_deviations(mechanism: &Mechanism) -> [f64; 2] {
    match mechanism.noise_model() {
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } => [diagonal_sd, off_diagonal_sd],
        other => panic!("{other:?}"),
    }
}

/// The noise of one report of the row, entry by entry, in units of its stated standard deviation.
fn noise(mechanism: &Mechanism, row: &BoundedRow, rng: &mut ChaCha20Rng) -> Vec<f64> {
    let payload = mechanism.perturb_with(row, rng);
    let [diagonal_sd, off_diagonal_sd] = standard_deviations(mechanism);
    let (x, mut noise) = (row.as_slice(), vec![0.0; LEN]);
    for i in 0..P {
        for j in i..P {
            let at = packed_index(P, i, j);
            let bytes: [u8; 4] = payload[4 * at..4 * at + 4].try_into().unwrap();
            let entry = match mechanism {
                Mechanism::DiscreteGaussian(discrete) => {
                    let parameters = discrete.parameters();
                    let steps = f64::from(i32::from_le_bytes(bytes));
                    match i == j {
                        true => steps * parameters.diagonal_step(),
                        false => steps * parameters.off_diagonal_step(),
                    }
                }
                _ => f64::from(f32::from_le_bytes(bytes)),
            };
            let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
            noise[at] = (entry - x[i] * x[j]) / sd;
        }
    }
    noise
}

#[test]
fn entries_are_unbiased_and_uncorrelated_with_the_stated_moments() {
    use Calibration::{Analytic, AsPublished};
    use MechanismKind::{DiscreteGaussian, IsotropicGaussian, SymmetricGaussian};
    let x = row();
    for (seed, kind, calibration) in [
        (100, SymmetricGaussian, Analytic),
        (101, IsotropicGaussian, Analytic),
        (102, DiscreteGaussian, Analytic),
        (103, SymmetricGaussian, AsPublished),
        (104, IsotropicGaussian, AsPublished),
    ] {
        let mechanism = mechanism(kind, calibration);
        let [diagonal, off_diagonal] = standard_deviations(&mechanism);
        let isotropic = kind != MechanismKind::SymmetricGaussian;
        let ratio = if isotropic { 0.5_f64.sqrt() } else { 1.0 };
        assert!((off_diagonal / diagonal / ratio - 1.0).abs() < 1e-15);
        let gaussian = mechanism.gaussian_noise();
        assert!(gaussian.is_none_or(|noise| noise.sigma() == diagonal));
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut sum = [0.0; LEN];
        let mut products = [0.0; LEN * LEN];
        let (mut third, mut fourth) = (0.0_f64, 0.0_f64);
        for _ in 0..SAMPLES {
            let noise = noise(&mechanism, &x, &mut rng);
            for a in 0..LEN {
                sum[a] += noise[a];
                third += noise[a].powi(3);
                fourth += noise[a].powi(4);
                for b in 0..=a {
                    products[a * LEN + b] += noise[a] * noise[b];
                }
            }
        }
        let n = SAMPLES as f64;
        for a in 0..LEN {
            let z = sum[a] / n.sqrt();
            assert!(z.abs() < LIMIT, "{kind}: mean of entry {a}: {z}");
            for b in 0..=a {
                let (expected, spread) = match a == b {
                    true => (n, (2.0 * n).sqrt()),
                    false => (0.0, n.sqrt()),
                };
                let z = (products[a * LEN + b] - expected) / spread;
                assert!(z.abs() < LIMIT, "{kind}: entries {a}, {b}: {z}");
            }
        }
        let count = n * LEN as f64;
        let z = third / (15.0 * count).sqrt();
        assert!(z.abs() < LIMIT, "{kind}: third moment: {z}");
        let z = (fourth - 3.0 * count) / (96.0 * count).sqrt();
        assert!(z.abs() < LIMIT, "{kind}: fourth moment: {z}");
    }
}

#[test]
fn releases_differ_every_time() {
    let mechanism = mechanism(MechanismKind::IsotropicGaussian, Calibration::Analytic);
    let releases = (0..100).map(|_| mechanism.perturb(&row()).unwrap());
    let releases: std::collections::HashSet<Vec<u8>> = releases.collect();
    assert_eq!(releases.len(), 100);
}
