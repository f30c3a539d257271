//! A study of the planned size reaches the planned error, and what is not known of an error has one reason.

use eigenveil_estimation::{
    Cancel, Request, Source, estimate,
    models::Model,
    planning::{
        PlanTarget, UnknownError, known_error, known_spectrum, meet, spectrum_from_eigenvalues,
        spectrum_from_pilot,
    },
    simulate::RowSource,
};
use eigenveil_shared::{
    api::SparseSettings,
    estimate::ComponentCount,
    mechanism::MechanismKind,
    preprocess::{Norm, Row},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{Buckets, params, params_with, simulated};

/// Largest eigenvalue of `E[xxᵀ]/‖x‖²` for `N(0, I + spike·VVᵀ)`, V of rank k:
/// `E[w z²/Σ w_j z_j²] = ∫₀^∞ w/(1+2wt) Π (1+2w_j t)^(−1/2) dt`, here with t = u/(1−u).
fn leading_eigenvalue(p: usize, k: usize, spike: f64) -> f64 {
    const STEPS: u32 = 20_000;
    let top = 1.0 + spike;
    let (k, rest) = (k as f64, (p - k) as f64);
    let integrand = |u: f64| {
        let t = u / (1.0 - u);
        let logarithm = -0.5 * (k + 2.0) * (2.0 * top * t).ln_1p() - 0.5 * rest * (2.0 * t).ln_1p();
        top * logarithm.exp() / (1.0 - u).powi(2)
    };
    (0..STEPS)
        .map(|i| integrand((f64::from(i) + 0.5) / f64::from(STEPS)) / f64::from(STEPS))
        .sum()
}

/// Measured over planned error. The seed is fixed; the error of one run varies by 2 to 10 %, the mean of
/// 4 by half of that, and the formula is good to a few per cent: 15 % is three deviations of the worst.
fn kept(mechanism: MechanismKind, epsilon: f64, target: f64) -> f64 {
    let (p, k, spike) = (40, 5, 20.0);
    let params = params(p, mechanism, epsilon);
    let leading = leading_eigenvalue(p, k, spike);
    let mut all = vec![leading; k];
    all.resize(p, (1.0 - k as f64 * leading) / (p - k) as f64);
    let spectrum = spectrum_from_eigenvalues(p, k, &all, Some(1.0)).unwrap();
    let planned = meet(&spectrum, &params.noise_model(), PlanTarget::Error(target)).unwrap();
    let source = RowSource::Model(Model::spiked(p, k, spike));
    let (_, summary) = simulated(&params, source, (planned.n.unwrap(), k), (4, 7));
    summary.error_mean / target
}

#[test]
fn a_study_of_the_planned_size_reaches_the_target() {
    for (mechanism, epsilon, target) in [
        (MechanismKind::DoubleCap, 2.0, 0.4),
        (MechanismKind::DoubleCap, 4.0, 0.2),
        (MechanismKind::DoubleCap, 4.0, 1.0),
        (MechanismKind::IsotropicGaussian, 4.0, 0.4),
        (MechanismKind::SymmetricGaussian, 4.0, 1.0),
    ] {
        let ratio = kept(mechanism, epsilon, target);
        assert!((ratio - 1.0).abs() < 0.15, "{mechanism} {epsilon}: {ratio}");
    }
}

/// 2,000 rows along one axis, clipped: `double-cap` does not show how long they are. A component of noise passes the
/// threshold in one study of a hundred; the seed is fixed.
#[test]
fn what_is_not_known_of_an_error_has_one_reason() {
    let norm = Norm::Clip { radius: 1.0 };
    let params = params_with(4, MechanismKind::DoubleCap, 8.0, norm, None);
    let row = params.preprocessor();
    let row = row.prepare(&Row::new(vec![0.8, 0.0, 0.0, 0.0])).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut buckets = Buckets::new(&params, 1);
    for _ in 0..2_000 {
        buckets.add_report(0, &row, &mut rng);
    }
    let sums = buckets.finish();
    let shrunk = SparseSettings {
        refit: false,
        ..SparseSettings::default()
    };
    let estimated = |k: usize, sparse: Option<&SparseSettings>| {
        let request = Request {
            name: "",
            k: ComponentCount::Fixed(k),
            sparse,
            moment: false,
            memory_bytes: 1 << 30,
            stream_from: usize::MAX,
        };
        let source = Source::Sums(vec![(0, sums[0].clone())]);
        estimate(source, &params, &request, Cancel::NEVER).unwrap()
    };
    for (k, why, way_out) in [
        (1, UnknownError::UnknownLengths, "`mean_squared_length`"),
        (2, UnknownError::Hidden(2), "plan for k = 1"),
        (4, UnknownError::AllDirections, "k is 4"),
    ] {
        let estimate = estimated(k, None);
        assert!(known_error(&estimate).is_ok(), "{k}");
        assert_eq!(known_spectrum(&estimate).unwrap_err(), why);
        let refused = spectrum_from_pilot(&estimate, k, None).unwrap_err();
        assert!(refused.detail().contains(way_out), "{refused}");
    }
    // All components that were asked for stand, which the reason must not deny.
    spectrum_from_pilot(&estimated(1, None), 1, Some(0.64)).unwrap();
    let shrunk = estimated(1, Some(&shrunk));
    assert_eq!(known_error(&shrunk), Err(UnknownError::NotRefitted));
    assert_eq!(
        known_spectrum(&shrunk).unwrap_err(),
        UnknownError::NotRefitted
    );
}
