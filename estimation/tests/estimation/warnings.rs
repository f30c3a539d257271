//! The number of participants in a warning is the planner's.

use eigenveil_estimation::{
    components::principal_components,
    models::Model,
    plan::{MeanSquaredLength::UnitRows, PlanTarget, plan, spectrum_from_eigenvalues},
    simulate::{Participants, RowSource},
};
use eigenveil_shared::{estimate::ComponentCount, mechanism::MechanismKind};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{noisy_study, params};

/// The number that ends right before `before`: "2.1 million" or "340,000".
fn number_before(text: &str, before: &str) -> u64 {
    let end = text
        .find(before)
        .unwrap_or_else(|| panic!("{before:?} is not in {text:?}"));
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    let unit = match words[words.len() - 1] {
        "million" => 1e6,
        "billion" => 1e9,
        last => return last.replace(',', "").parse().unwrap(),
    };
    (words[words.len() - 2].parse::<f64>().unwrap() * unit).round() as u64
}

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
        let people = Participants::draw(&model, k, &params, &mut rng).unwrap();
        let moment = noisy_study(&params, &people, 1_797, &mut rng);
        let setting = format!("ε = {epsilon}");
        let found = principal_components(&moment, ComponentCount::Fixed(k), &setting).unwrap();
        let warning = &found.floor_report.warnings[0];
        let opening = format!("At n = 1,797 and ε = {epsilon} no component stands above the noise");
        assert!(warning.starts_with(&opening), "{warning}");

        let which = match k {
            1 => "one if it held 10.0",
            3 => "the first three if each held 10.0",
            _ => "the first 12 if each held 4.1",
        };
        let needed = format!(" participants would be needed for {which} % of the variance");

        // The population of the warning, given to the planner.
        let n = number_before(warning, &needed);
        let start = warning.find(" held ").unwrap() + " held ".len();
        let share: f64 = warning[start..].split(' ').next().unwrap().parse().unwrap();
        let share = share / 100.0;
        let rest = (1.0 - share * k as f64) / p as f64;
        let spectrum = spectrum_from_eigenvalues(p, k, &vec![share + rest; k], UnitRows).unwrap();
        let above = |n: u64| {
            let planned = plan(
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
        if k == 1 {
            assert!(!warning.contains("cannot be enough"), "{warning}");
            continue;
        }
        let least = number_before(warning, " cannot be enough");
        assert!(least < n);
        let kindest = spectrum_from_eigenvalues(p, k, &vec![1.0 / k as f64; k], UnitRows).unwrap();
        let target = PlanTarget::Participants(least - 1);
        let planned = plan(&kindest, &params.noise_model(), target).unwrap();
        assert!(planned.components_above.unwrap() < k, "{warning}");
    }
}
