//! Components that cannot be distinguished, and a first component that is the mean.

use eigenveil_estimation::{
    ComponentsReport, Warning,
    floor::probable_mean_warning,
    metrics::projector_distance,
    models::Model,
    principal_components,
    simulate::{RowSource, SimulatedParticipants},
};
use eigenveil_shared::{
    estimate::{ComponentCount, Verdict},
    mechanism::MechanismKind,
    preprocess::{Norm, Row},
    study::StudyParams,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::common::{noisy_study, params, params_with};

/// Components of n simulated reports of these people, and the truth.
fn estimated_components(
    params: &StudyParams,
    source: &RowSource<'_>,
    k: usize,
    n: u64,
    seed: u64,
) -> (ComponentsReport, DMatrix<f64>) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let people = SimulatedParticipants::draw(source, k, params, &mut rng).unwrap();
    let moment = noisy_study(params, &people, n, &mut rng);
    let findings = principal_components(&moment, ComponentCount::Fixed(k), "ε = 4").unwrap();
    (findings, people.truth().clone())
}

/// Rows about `mean` with these standard deviations, from a fixed seed.
fn rows(mean: f64, deviations: &[f64], n: usize) -> Vec<Row> {
    let mut rng = ChaCha20Rng::seed_from_u64(77);
    let row = |_| {
        let draw = |d: &f64| {
            let z: f64 = StandardNormal.sample(&mut rng);
            mean + d * z
        };
        Row::new(deviations.iter().map(draw).collect())
    };
    (0..n).map(row).collect()
}

/// Three equal components form one group, whose alignment is that of their span with the truth: over 20 studies the
/// mean expected alignment is within 0.02 of the actual one.
#[test]
fn equal_components_share_one_correct_verdict() {
    for mechanism in [MechanismKind::DoubleCap, MechanismKind::SymmetricGaussian] {
        let (p, k) = (20, 3);
        let params = params(p, mechanism, 4.0);
        let source = RowSource::Model(Model::spiked(p, k, 20.0));
        let (mut expected, mut there, mut studies) = (0.0, 0.0, 0);
        for seed in 0..20 {
            let (findings, truth) = estimated_components(&params, &source, k, 60_000, seed);
            let floor_report = &findings.floor_report;
            // Equal eigenvalues are separated by chance, two of them once in 20 studies.
            let [group] = &floor_report.groups[..] else {
                continue;
            };
            if (group.first, group.last) != (1, 3) {
                continue;
            }
            assert_eq!(group.verdict, Verdict::Above);
            let variances = floor_report.components.iter().map(|c| c.variance);
            assert!((group.variance - variances.sum::<f64>()).abs() < 1e-12);
            let warning = Warning::Inseparable(group.clone());
            assert!(floor_report.warnings.contains(&warning));
            let error = projector_distance(&findings.vectors, &truth).unwrap();
            there += 1.0 - error * error / (2.0 * k as f64);
            expected += group.alignment.unwrap();
            studies += 1;
        }
        let (expected, there) = (expected / f64::from(studies), there / f64::from(studies));
        assert!(studies >= 15, "{studies}");
        assert!((expected - there).abs() < 0.02, "{expected} {there}");
    }
}

/// Two equal eigenvalues have no directions: they are distinguished by mistake in one study of 20. More than 14 of 100
/// would occur once in 3,000 times. The last has few rows, whose choice moves eigenvalues more than the mechanism does:
/// by its noise alone a quarter of them would be distinguished.
#[test]
fn two_equal_components_are_rarely_distinguished() {
    for (mechanism, p, epsilon, spike, n, seeds) in [
        (MechanismKind::DoubleCap, 8, 4.0, 20.0, 16_000, 0),
        (MechanismKind::SymmetricGaussian, 8, 4.0, 20.0, 16_000, 0),
        (MechanismKind::IsotropicGaussian, 3, 16.0, 100.0, 2_000, 500),
    ] {
        let params = params(p, mechanism, epsilon);
        let source = RowSource::Model(Model::spiked(p, 2, spike));
        let apart = (seeds..seeds + 100).filter(|seed| {
            let (findings, _) = estimated_components(&params, &source, 2, n, *seed);
            let floor_report = &findings.floor_report;
            let mut components = floor_report.components.iter();
            assert!(p == 3 || components.all(|c| c.verdict == Verdict::Above));
            floor_report.groups.is_empty()
        });
        let apart = apart.count();
        assert!(apart <= 14, "{mechanism}: {apart}");
    }
}

#[test]
fn components_far_apart_are_single_findings() {
    let params = params(12, MechanismKind::DoubleCap, 8.0);
    let mut deviations = vec![0.3; 12];
    deviations[..3].copy_from_slice(&[4.0, 2.5, 1.5]);
    let rows = rows(0.0, &deviations, 4_000);
    let (findings, _) = estimated_components(&params, &RowSource::Rows(&rows), 3, 60_000, 3);
    assert_eq!(findings.floor_report.groups, []);
    let components = &findings.floor_report.components;
    assert!(components.iter().all(|c| c.verdict == Verdict::Above));
    // Variances are those of the rows: nothing is left of the noise, or of the trace that the reports do not have.
    let total: f64 = components.iter().map(|c| c.variance).sum();
    assert!((0.9..1.0).contains(&total), "{total}");
}

/// A component whose neighbour was not requested: its direction is not stable, so it is not "above".
#[test]
fn half_a_plane_is_not_above() {
    let params = params(12, MechanismKind::DoubleCap, 8.0);
    let source = RowSource::Model(Model::spiked(12, 3, 20.0));
    let lowered = (0..60).filter(|seed| {
        let (findings, _) = estimated_components(&params, &source, 2, 20_000, *seed);
        let second = &findings.floor_report.components[1];
        let open = second.direction_se.unwrap() > 0.5_f64.sqrt();
        let mut together = findings.floor_report.groups.iter();
        let open = open && together.all(|group| group.verdict != Verdict::Above);
        assert_eq!(second.verdict == Verdict::Above, !open, "{second:?}");
        let warnings = &findings.floor_report.warnings;
        let reason = warnings.iter().any(|warning| {
            matches!(
                warning,
                Warning::ChangesPlaces { visible: 3, .. } | Warning::NoDirection(_)
            )
        });
        assert_eq!(reason, open, "{warnings:?}");
        open
    });
    let lowered = lowered.count();
    assert!(lowered >= 2, "{lowered}");
}

/// Rows without negative entries around a mean far from zero: the warning names the mean and does not ask for more
/// participants.
#[test]
fn an_uncentred_mean_is_recognised() {
    let (p, k) = (12, 3);
    let params = params(p, MechanismKind::DoubleCap, 4.0);
    let rows = rows(3.0, &vec![1.0; p], 4_000);
    let (findings, _) = estimated_components(&params, &RowSource::Rows(&rows), k, 800, 1);
    let floor_report = &findings.floor_report;
    assert!(probable_mean_warning(params.preprocessing(), floor_report).is_some());
    // The number of further participants is separate from the warnings, so that it can be omitted.
    assert!(floor_report.outlook.is_some(), "{floor_report:?}");
    let mut warnings = floor_report.warnings.iter();
    assert!(warnings.all(|warning| warning.code() != "more-participants"));
    // In a study that centres no component is the mean.
    let kind = MechanismKind::DoubleCap;
    let centred = params_with(p, kind, 4.0, Norm::Normalize, Some(0.7));
    assert_eq!(
        probable_mean_warning(centred.preprocessing(), floor_report),
        None
    );
}

/// Almost none of 200 studies of centred rows (p = 12, one spike) has the warning: a direction has about nine clear
/// loadings, whose signs agree once in 256, so more than 5 occur once in 1,000 times.
#[test]
fn centred_rows_are_rarely_called_a_mean() {
    let p = 12;
    let params = params(p, MechanismKind::DoubleCap, 4.0);
    let source = RowSource::Model(Model::spiked(p, 1, 8.0));
    let called = (0..200).filter(|seed| {
        let (findings, _) = estimated_components(&params, &source, 1, 20_000, *seed);
        probable_mean_warning(params.preprocessing(), &findings.floor_report).is_some()
    });
    let called = called.count();
    assert!(called <= 5, "{called}");
}
