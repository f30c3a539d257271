//! The accountant against independent values, at its limits, and its monotonicity.

use eigenveil_central::{
    Neighbours,
    accountant::{RunAccountant, full_batch, noise_multiplier},
};
use eigenveil_shared::privacy::{Budget, gaussian};
use proptest::prelude::*;

/// `shared/tests/vectors/reference.json`, `subsampled_gaussian` (add or remove one row: as zero-out): rate, multiplier,
/// steps, δ, ε by Rényi divergences, ε by privacy losses.
const REFERENCE: [(f64, f64, u64, f64, f64, f64); 6] = [
    (1.0, 5.0, 100, 1e-6, 11.688626799, 10.997151218),
    (0.01, 1.0, 1000, 1e-5, 2.101366525, 1.828243646),
    (0.01, 4.0, 10000, 1e-5, 1.035490066, 0.946999307),
    (0.001, 0.8, 20000, 1e-6, 1.897195876, 1.286151643),
    (0.0005, 0.7, 2000, 1e-5, 1.437092330, 0.355420628),
    (0.1, 2.0, 200, 1e-6, 4.117567643, 3.805876177),
];

fn run(neighbours: Neighbours, rate: f64, multiplier: f64, times: u64) -> RunAccountant {
    let mut run = RunAccountant::new(neighbours);
    run.subsampled(rate, multiplier, times).unwrap();
    run
}

/// The accounted value is an upper bound, and a tight one.
#[track_caller]
fn just_above(ours: f64, exact: f64, share: f64, rounding: f64) {
    println!("{ours:e} for {exact:e}");
    assert!(ours >= exact * (1.0 - 1e-9) && ours <= exact * (1.0 + share) + rounding);
}

#[test]
fn reference_values() {
    for (rate, multiplier, steps, delta, renyi, losses) in REFERENCE {
        let run = run(Neighbours::ZeroOut, rate, multiplier, steps);
        let quick = run.renyi_epsilon(delta).unwrap();
        let tight = run.epsilon(delta).unwrap();
        assert!((quick / renyi - 1.0).abs() < 0.01, "{quick} {renyi}");
        assert!((tight / losses - 1.0).abs() < 0.02, "{tight} {losses}");
        // The reference rounds to its own grid: an independent accountant gives 1.2859 for the fourth row.
        assert!(tight >= losses * (1.0 - 3e-4), "{tight} {losses}");
        assert!(run.delta(tight).unwrap() <= delta * (1.0 + 1e-3));
    }
}

#[test]
fn sampling_rate_one_is_the_analytic_gaussian() {
    for (neighbours, sensitivity) in [(Neighbours::ZeroOut, 1.0), (Neighbours::Replace, 2.0)] {
        for (multiplier, times) in [(0.7, 1), (5.0, 100), (40.0, 10)] {
            for delta in [1e-3, 1e-10] {
                let ours = run(neighbours, 1.0, multiplier, times).epsilon(delta);
                let distance = sensitivity * (times as f64).sqrt();
                let exact = gaussian::true_epsilon(multiplier, distance, delta).unwrap();
                just_above(ours.unwrap(), exact, 1e-4, 1e-7);
            }
        }
    }
    let budget = Budget::approximate(1.0, 1e-6).unwrap();
    let z = full_batch::noise_multiplier(budget, 100).unwrap();
    assert!(full_batch::true_epsilon(z, 100, 1e-6).unwrap() <= 1.0);
    assert!(full_batch::true_epsilon(z * 0.999, 100, 1e-6).unwrap() > 1.0);
}

/// One subsampled step has a closed form: `δ(ε) = q·δ_Gauss(ln(1 + (e^ε − 1)/q))` for the row against the zero row.
#[test]
fn one_step_agrees_with_its_closed_form() {
    for (rate, multiplier, epsilon) in [(0.1_f64, 1.0, 0.05_f64), (0.01, 0.5, 0.3), (0.5, 2.0, 1.0)]
    {
        let inner = (epsilon.exp_m1() / rate).ln_1p();
        let exact = rate * gaussian::true_delta(multiplier, 1.0, inner);
        let ours = run(Neighbours::ZeroOut, rate, multiplier, 1).delta(epsilon);
        just_above(ours.unwrap(), exact, 1e-3, 1e-20);
    }
}

#[test]
fn full_and_sampled_releases_together() {
    // With q = 1 the sampled releases are full-batch too, and the composition is exact.
    let mut mixed = RunAccountant::new(Neighbours::ZeroOut);
    mixed
        .full_batch(4.0, 3)
        .unwrap()
        .subsampled(1.0, 5.0, 7)
        .unwrap();
    let exact = gaussian::true_epsilon(1.0, (3.0_f64 / 16.0 + 7.0 / 25.0).sqrt(), 1e-6).unwrap();
    just_above(mixed.epsilon(1e-6).unwrap(), exact, 1e-4, 0.0);
    // More than either kind alone, less than their sum.
    let mut both = RunAccountant::new(Neighbours::Replace);
    both.full_batch(6.0, 2)
        .unwrap()
        .subsampled(0.01, 1.5, 500)
        .unwrap();
    let mut full = RunAccountant::new(Neighbours::Replace);
    full.full_batch(6.0, 2).unwrap();
    let sampled = run(Neighbours::Replace, 0.01, 1.5, 500);
    let [both, full_alone, sampled_alone] =
        [&both, &full, &sampled].map(|run| run.epsilon(1e-6).unwrap());
    assert!(both > full_alone.max(sampled_alone) && both < full_alone + sampled_alone);
}

#[test]
fn the_noise_of_a_run_is_enough_and_tight() {
    let budget = Budget::approximate(1.0, 1e-6).unwrap();
    let accounted = |z| run(Neighbours::Replace, 0.02, z, 300);
    let z = noise_multiplier(budget, |z| Ok(accounted(z))).unwrap();
    let at = |z| accounted(z).epsilon(1e-6).unwrap();
    assert!(at(z) <= 1.0 + 2e-5 && at(z * 0.999) > 1.0, "{z}");
}

#[test]
fn invalid_input_is_rejected() {
    let mut run = RunAccountant::new(Neighbours::ZeroOut);
    assert!(run.subsampled(0.0, 1.0, 1).is_err());
    assert!(run.subsampled(1.5, 1.0, 1).is_err());
    assert!(run.subsampled(f64::NAN, 1.0, 1).is_err());
    assert!(run.subsampled(0.5, 0.0, 1).is_err());
    assert!(run.full_batch(-1.0, 1).is_err());
    run.subsampled(0.5, 1.0, 1).unwrap();
    assert!(run.epsilon(0.0).is_err() && run.epsilon(1.0).is_err());
    assert!(run.delta(-1.0).is_err());
    let none = RunAccountant::new(Neighbours::Replace);
    assert_eq!(none.epsilon(1e-6).unwrap(), 0.0);
    assert!(noise_multiplier(Budget::pure(1.0).unwrap(), |_| Ok(run.clone())).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    #[test]
    fn monotone_in_noise_steps_and_rate(
        ln_rate in -6.0_f64..0.0,
        multiplier in 0.6_f64..5.0,
        times in 1_u64..2000,
        replace in any::<bool>(),
    ) {
        let neighbours = if replace { Neighbours::Replace } else { Neighbours::ZeroOut };
        let rate = ln_rate.exp();
        let epsilon = |rate: f64, multiplier, times| {
            run(neighbours, rate.min(1.0), multiplier, times).epsilon(1e-6).unwrap()
        };
        let here = epsilon(rate, multiplier, times);
        prop_assert!(epsilon(rate, multiplier * 1.05, times) <= here * (1.0 + 1e-5) + 1e-9);
        prop_assert!(epsilon(rate, multiplier, times + times / 10 + 1) >= here * (1.0 - 1e-5) - 1e-9);
        prop_assert!(epsilon(rate * 0.9, multiplier, times) <= here * (1.0 + 1e-5) + 1e-9);
        // The numerical bound is never worse than the Rényi bound; replace is never better than zero-out.
        let same = run(neighbours, rate, multiplier, times);
        prop_assert!(here <= same.renyi_epsilon(1e-6).unwrap() * (1.0 + 1e-3) + 1e-6);
        let zero_out = run(Neighbours::ZeroOut, rate, multiplier, times).epsilon(1e-6).unwrap();
        prop_assert!(zero_out <= here * (1.0 + 1e-5) + 1e-9);
    }
}
