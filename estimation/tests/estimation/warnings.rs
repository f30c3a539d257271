//! The number of participants in a warning is the planner's.

use eigenveil_estimation::{
    Warning,
    models::Model,
    planning::{PlanTarget, meet, spectrum_from_eigenvalues},
    principal_components,
    simulate::{RowSource, SimulatedParticipants},
};
use eigenveil_shared::{estimate::ComponentCount, mechanism::MechanismKind};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{noisy_study, params};

/// A study of 1,797 participants below the noise: with the number in the warning the components are visible, with four
/// fifths of it they are not.
#[test]
fn the_number_in_the_warning_is_enough_for_the_planner() {
    for (mechanism, epsilon, k) in [
        (MechanismKind::SymmetricGaussian, 1.0, 3),
        (MechanismKind::DoubleCap, 1.0, 3),
        (MechanismKind::DoubleCap, 0.5, 1),
        (MechanismKind::IsotropicGaussian, 1.0, 12),
    ] {
        let p = 64;
        let params = params(p, mechanism, epsilon);
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let model = RowSource::Model(Model::spiked(p, k, 5.0));
        let people = SimulatedParticipants::draw(&model, k, &params, &mut rng).unwrap();
        let moment = noisy_study(&params, &people, 1_797, &mut rng);
        let report = principal_components(&moment, ComponentCount::Fixed(k), "").unwrap();
        let warning = &report.floor_report.warnings[0];
        let &Warning::NothingStands { n, outlook, .. } = warning else {
            panic!("{warning}");
        };
        assert_eq!((n, outlook.k, outlook.unseen), (1_797, k, k));
        let share = if k == 12 { 0.041 } else { 0.1 };
        assert_eq!(outlook.share, share);

        // The population of the warning, given to the planner.
        let n = outlook.needed.unwrap();
        let rest = (1.0 - share * k as f64) / p as f64;
        let spectrum = spectrum_from_eigenvalues(p, k, &vec![share + rest; k], Some(1.0)).unwrap();
        let above = |n: u64| {
            let planned = meet(
                &spectrum,
                &params.noise_model(),
                PlanTarget::Participants(n),
            )
            .unwrap();
            planned.components_above.unwrap()
        };
        assert_eq!(above(n), k, "{warning}");
        assert!(above(n * 4 / 5) < k, "{warning}");

        // Below the last number not even the most favourable rows suffice. (With one component they would.)
        let Some(least) = outlook.at_least else {
            assert_eq!(k, 1, "{warning}");
            continue;
        };
        assert!(least < n);
        let kindest = spectrum_from_eigenvalues(p, k, &vec![1.0 / k as f64; k], Some(1.0)).unwrap();
        let target = PlanTarget::Participants(least - 1);
        let planned = meet(&kindest, &params.noise_model(), target).unwrap();
        assert!(planned.components_above.unwrap() < k, "{warning}");
    }
}
