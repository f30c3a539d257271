//! Reports whose number or parameters are chosen from what came before: what `Composition` says of the ones
//! that came about does not hold, its filter does. Exact games against randomized response, no sampling.

use eigenveil_shared::privacy::accountant::{Composition, Gaussian, Guarantee, Pure};

const DELTA: f64 = 1e-6;

fn pure(epsilon: f64, reports: usize) -> Composition {
    std::iter::repeat_n(Pure::new(epsilon).unwrap(), reports).collect()
}

/// Part of the mass under the true row by which it exceeds e^`epsilon` times that under another.
fn excess(loss: f64, epsilon: f64) -> f64 {
    (-(epsilon - loss).exp_m1()).max(0.0)
}

/// The largest δ that somebody reaches who takes part in up to `most` studies of ε₀ and stops when it pays, at
/// the ε that is printed for the number of studies that came about: `printed(number)`.
///
/// Backwards over number of reports and of truthful ones: stop, or go on with the mean of the two outcomes.
fn stopped_when_it_pays(epsilon: f64, most: usize, printed: impl Fn(usize) -> f64) -> f64 {
    let truth = epsilon.exp() / (1.0 + epsilon.exp());
    let mut next: Vec<f64> = Vec::new();
    for reports in (0..=most).rev() {
        let limit = if reports == 0 { 0.0 } else { printed(reports) };
        let value = |truths: usize| {
            let loss = epsilon * (2.0 * truths as f64 - reports as f64);
            let stop = excess(loss, limit);
            match next.get(truths + 1) {
                Some(more) => stop.max(truth * more + (1.0 - truth) * next[truths]),
                None => stop,
            }
        };
        next = (0..=reports).map(value).collect();
    }
    next[0]
}

#[test]
fn a_number_of_studies_chosen_from_outcomes_has_several_times_the_delta() {
    let printed: Vec<f64> = (0..=100)
        .map(|reports| pure(1.0, reports).epsilon(DELTA).unwrap_or(0.0))
        .collect();
    let delta = stopped_when_it_pays(1.0, 100, |reports| printed[reports]);
    // Exactly, by the same game in Python with 2⁻⁵³ arithmetic: 5.09.
    assert!((5.0..5.2).contains(&(delta / DELTA)), "{delta:e}");
    // The number fixed in advance as the most there will be: stopping early gains nothing.
    let delta = stopped_when_it_pays(1.0, 100, |_| printed[100]);
    assert!(delta <= DELTA, "{delta:e}");
    // And so for the filter of those 100.
    let filter = pure(1.0, 100).filter_epsilon(DELTA).unwrap();
    assert!(filter > printed[100] && filter < 100.001, "{filter}");
    assert!(stopped_when_it_pays(1.0, 100, |_| filter) <= DELTA);
}

/// The largest δ at this ε that any choice of parameters reaches, from outcome to outcome, within Σε² ≤
/// `units`/4: each report has ε = ½, 1 or 2.
fn chosen_parameters(units: usize, epsilon: f64) -> f64 {
    // In halves: ε = ½·step costs step² units, and the loss moves by ± step.
    const STEPS: [usize; 3] = [1, 2, 4];
    let most = units as i64;
    let mut values: Vec<Vec<f64>> = Vec::new();
    for left in 0..=units {
        let value = |loss: i64| {
            STEPS
                .into_iter()
                .filter(|step| step * step <= left)
                .map(|step| {
                    let half = 0.5 * step as f64;
                    let truth = half.exp() / (1.0 + half.exp());
                    let after = &values[left - step * step];
                    // Beyond what is left to be lost or won nothing is looked up.
                    let at = |loss: i64| after[(loss.clamp(-most, most) + most) as usize];
                    truth * at(loss + step as i64) + (1.0 - truth) * at(loss - step as i64)
                })
                .fold(excess(0.5 * loss as f64, epsilon), f64::max)
        };
        let row = (-most..=most).map(value).collect();
        values.push(row);
    }
    values[units][units]
}

#[test]
fn the_filter_holds_for_parameters_chosen_from_outcomes() {
    for units in [16_usize, 64, 160] {
        // Reports of ε = ½ that fill the totals; fewer, larger ones stay within Σε too.
        let filter = pure(0.5, units).filter_epsilon(DELTA).unwrap();
        assert!(filter < 0.500_001 * units as f64);
        let delta = chosen_parameters(units, filter);
        assert!(delta <= DELTA, "{units}: {delta:e}");
    }
}

#[test]
fn the_filter_of_each_kind() {
    let filter = |composition: &Composition, delta| composition.filter_epsilon(delta);
    // Few pure reports: their sum, at any δ.
    let three = pure(1.0, 3);
    assert_eq!(filter(&three, DELTA), three.pure_epsilon());
    assert_eq!(filter(&three, 0.0), three.pure_epsilon());
    // Gaussian reports: Σμ² decides, chosen or not.
    let gaussian: Composition = [Gaussian::calibrated(1.0, DELTA).unwrap(); 5]
        .into_iter()
        .collect();
    assert_eq!(filter(&gaussian, DELTA), gaussian.epsilon(DELTA));
    assert_eq!(filter(&gaussian, 0.0), None);
    // (ε, δ) reports: nothing holds at a δ that their own pass.
    let approximate: Composition = [Guarantee::from(
        eigenveil_shared::privacy::accountant::Approximate::new(1.0, 1e-7).unwrap(),
    ); 4]
        .into_iter()
        .collect();
    assert!((filter(&approximate, DELTA).unwrap() - 4.0).abs() < 1e-12);
    assert_eq!(filter(&approximate, 4e-7), None);
    // Mixtures: one ρ for everything, never better than what is fixed in advance.
    let mut mixed = gaussian.clone();
    mixed.extend([Pure::new(1.0).unwrap(); 2]);
    let chosen = filter(&mixed, DELTA).unwrap();
    assert!(
        chosen >= mixed.epsilon(DELTA).unwrap() && chosen < 9.0,
        "{chosen}"
    );
}
