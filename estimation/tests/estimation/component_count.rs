//! How firm `k = auto` is: other studies of the same people choose k as often as an estimate says.

use eigenveil_estimation::{accumulate::Accumulator, moment::NoisyMoment, principal_components};
use eigenveil_shared::{estimate::ComponentCount, mechanism::NoiseModel, packed::PackedSymmetric};
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

const P: usize = 20;
const N: u64 = 10_000;
/// Standard deviation of an entry of one report off the diagonal: V = 1e-5.
const SD: f64 = 0.316_228;

/// The sum of N reports of people whose second moment has these eigenvalues.
fn study(spectrum: &[f64], rng: &mut ChaCha20Rng) -> NoisyMoment {
    let n = N as f64;
    let mut entries = Vec::new();
    for (i, eigenvalue) in spectrum.iter().enumerate() {
        for j in i..P {
            let z: f64 = StandardNormal.sample(rng);
            entries.push(match i == j {
                true => n * eigenvalue + n.sqrt() * SD * 2.0_f64.sqrt() * z,
                false => n.sqrt() * SD * z,
            });
        }
    }
    let sum = PackedSymmetric::from_entries(P, entries).unwrap();
    let bucket = Accumulator::from_parts(sum, N).unwrap();
    NoisyMoment::from_buckets(vec![bucket], NoiseModel::gaussian(SD)).unwrap()
}

/// Eigenvalues that fall as a power, so that no gap is clear: two studies choose the same k in 47 % of all pairs, and an
/// estimate says so within 15 points, on average over 60 of them. (By another program: 45 %.)
#[test]
fn other_studies_choose_k_as_often_as_an_estimate_says() {
    let powers: Vec<f64> = (1..=P).map(|j| (j as f64).powf(-1.2)).collect();
    let total: f64 = powers.iter().sum();
    let spectrum: Vec<f64> = powers.iter().map(|x| x / total).collect();
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let (mut chosen, mut said) = ([0.0; P + 1], 0.0);
    const STUDIES: usize = 60;
    for _ in 0..STUDIES {
        let moment = study(&spectrum, &mut rng);
        let estimate = principal_components(&moment, ComponentCount::Auto, "").unwrap();
        let shares = estimate.k_shares.unwrap();
        assert!(shares.one_fewer + shares.same + shares.one_more <= 1.0 + 1e-12);
        chosen[estimate.vectors.ncols()] += 1.0 / STUDIES as f64;
        said += shares.same / STUDIES as f64;
    }
    let same: f64 = chosen.iter().map(|share| share * share).sum();
    assert!((said - same).abs() < 0.15, "{said} of {same}: {chosen:?}");
    let moment = study(&spectrum, &mut rng);
    let fixed = principal_components(&moment, ComponentCount::Fixed(2), "").unwrap();
    assert_eq!(fixed.k_shares, None);
}
