//! From raw rows through the real mechanisms to judged components: prepare → perturb → add → estimate.

// Test helpers may unwrap: a failure names its line.

use eigenveil_estimation::{
    accumulate::ReportSum,
    components::principal_components,
    floor::{Spectrum, predict},
    linalg::{packed_to_dense, symmetric_eigenvalues},
    metrics::projector_distance,
    models::Model,
    moment::NoisyMoment,
    pca::pca,
};
use eigenveil_shared::{
    codec::ReportFormat,
    estimate::{ComponentCount, Verdict},
    mechanism::MechanismKind,
    packed::PackedSymmetric,
    preprocess::Row,
};
use rand::{SeedableRng, rngs::ChaCha8Rng};

use crate::common::params;

const P: usize = 12;
const K: usize = 2;
const BUCKETS: usize = 32;

struct Study {
    moment: NoisyMoment,
    /// (1/n) Σ xxᵀ of the prepared rows, which no server ever sees.
    exact: PackedSymmetric,
    subspace: nalgebra::DMatrix<f64>,
}

fn run(kind: MechanismKind, epsilon: f64, n: usize, seed: u64) -> Study {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let population = Model::spiked(P, K, 20.0).draw(&mut rng).unwrap();
    let params = params(P, kind, epsilon);
    let preprocessor = params.preprocessor();
    let format = ReportFormat::new(&params);
    let mut buckets: Vec<ReportSum> = (0..BUCKETS)
        .map(|_| ReportSum::new(params.mechanism(), P).unwrap())
        .collect();
    let mut exact = PackedSymmetric::zeros(P);
    for i in 0..n {
        let row = preprocessor
            .prepare(&Row::new(population.row(&mut rng)))
            .unwrap();
        exact.add_outer(row.as_slice(), 1.0 / n as f64);
        let payload = format.payload(params.mechanism().perturb_with(&row, &mut rng));
        buckets[i % BUCKETS].add(&payload.unwrap()).unwrap();
    }
    let buckets = buckets.into_iter().map(|sum| sum.finish().unwrap());
    let moment = NoisyMoment::decode(buckets.collect(), &params).unwrap();
    Study {
        moment,
        exact,
        subspace: population.subspace().clone(),
    }
}

#[test]
fn gaussian_mechanisms_reach_their_predicted_error() {
    for kind in [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::DiscreteGaussian,
    ] {
        let n = 30_000;
        let study = run(kind, 4.0, n, 42);
        assert_eq!(study.moment.n(), n as u64);
        // The noise of the mean has the standard deviation that the model states (66 entries: 25 % is
        // three of its standard errors).
        let s = study.moment.noise().off_diagonal_sd() / (n as f64).sqrt();
        let mut squares = 0.0;
        for i in 0..P {
            for j in i + 1..P {
                squares += (study.moment.mean().get(i, j) - study.exact.get(i, j)).powi(2);
            }
        }
        let measured = (squares / 66.0).sqrt();
        println!("{kind:?}: noise {measured} of {s}");
        assert!((measured / s - 1.0).abs() < 0.25);

        let findings =
            principal_components(&study.moment, ComponentCount::Fixed(K), "ε = 4").unwrap();
        let floor_report = &findings.floor_report;
        let mut components = floor_report.components.iter();
        assert!(components.all(|c| c.verdict == Verdict::Above));
        assert_eq!(floor_report.floor.components_above, K);
        // The sample's own subspace is the truth of the noise; the population's is a little further.
        let sample = pca(&packed_to_dense(&study.exact), K).unwrap();
        let error = projector_distance(&findings.vectors, &sample.vectors).unwrap();
        let spectrum = symmetric_eigenvalues(&packed_to_dense(&study.exact)).unwrap();
        let spectrum = Spectrum::from_eigenvalues(spectrum.as_slice(), K).unwrap();
        let planned = predict(&spectrum, study.moment.noise(), n as u64)
            .unwrap()
            .expected_error;
        let from_data = floor_report.expected_error;
        println!("error {error:.4}, planned {planned:.4}, from data {from_data:.4}");
        // One run: its error spreads by about 1/√(2·K·(P−K)) = 16 % around the expectation.
        assert!((error / planned - 1.0).abs() < 0.5);
        assert!((from_data / planned - 1.0).abs() < 0.15);
        assert!(projector_distance(&findings.vectors, &study.subspace).unwrap() < 2.0 * planned);
        for (component, value) in floor_report.components.iter().zip(sample.values.iter()) {
            let estimated = component.debiased_eigenvalue.unwrap() + floor_report.floor.center;
            println!("{estimated} for {value}");
            assert!((estimated / value - 1.0).abs() < 0.15);
        }
    }
}

/// Half the off-diagonal variance at the same guarantee, visible in the error.
#[test]
fn isotropic_noise_is_better() {
    let mean_error = |kind| {
        let errors = (0..6).map(|seed| {
            let study = run(kind, 4.0, 5000, seed);
            let findings =
                principal_components(&study.moment, ComponentCount::Fixed(K), "ε = 4").unwrap();
            projector_distance(&findings.vectors, &study.subspace).unwrap()
        });
        errors.sum::<f64>() / 6.0
    };
    let symmetric = mean_error(MechanismKind::SymmetricGaussian);
    let isotropic = mean_error(MechanismKind::IsotropicGaussian);
    println!("symmetric {symmetric:.3}, isotropic {isotropic:.3}");
    assert!(isotropic < 0.85 * symmetric);
}

/// Too few participants: no component is reported, and the warning says how many are needed.
#[test]
fn a_hopeless_study_claims_nothing() {
    let study = run(MechanismKind::IsotropicGaussian, 1.0, 300, 1);
    let findings = principal_components(&study.moment, ComponentCount::Auto, "ε = 1").unwrap();
    assert_eq!(findings.vectors.ncols(), 0);
    let [warning] = &findings.floor_report.warnings[..] else {
        panic!("{:?}", findings.floor_report.warnings)
    };
    assert!(warning.starts_with("At n = 300 and ε = 1 no component stands above the noise"));
    assert!(warning.contains("participants would be needed"));
    let asked = principal_components(&study.moment, ComponentCount::Fixed(K), "ε = 1").unwrap();
    assert!((asked.floor_report.expected_error - (2.0 * K as f64).sqrt()).abs() < 1e-12);
    let mut components = asked.floor_report.components.iter();
    assert!(components.all(|c| c.verdict != Verdict::Above));
}
