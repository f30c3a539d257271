use proptest::prelude::*;

use super::*;

fn fit(axis: &Axis, values: &[f64], target: usize) -> AxisScale {
    AxisScale::fit(axis, values.iter().copied(), (0.0, 500.0), target)
}

fn labels(scale: &AxisScale) -> Vec<&str> {
    scale.ticks.iter().map(|t| t.label.as_str()).collect()
}

fn check(scale: &AxisScale, values: &[f64], target: usize) {
    let (lo, hi) = scale.domain;
    assert!(lo.is_finite() && hi.is_finite() && lo < hi, "{scale:?}");
    let ticks: Vec<f64> = scale.ticks.iter().map(|t| t.value).collect();
    let few = 4 * target.max(2) + 4;
    assert!((2..=few).contains(&ticks.len()), "{scale:?}");
    assert!(ticks.windows(2).all(|w| w[0] < w[1]), "{scale:?}");
    let mut labels = labels(scale);
    let written = |l: &&str| !l.is_empty() && !l.contains("n/a") && !l.contains("NaN");
    assert!(labels.iter().all(written), "{scale:?}");
    labels.dedup();
    assert_eq!(labels.len(), ticks.len(), "two ticks look alike: {scale:?}");
    for v in values.iter().copied().chain(ticks) {
        let at = scale.at(v);
        assert!((-1e-3..=500.001).contains(&at), "{v} at {at}: {scale:?}");
    }
}

fn is_one_two_five(value: f64) -> bool {
    let share = value / 10f64.powi(floor_log10(value));
    let near = |m: f64| (share / m - 1.0).abs() < 1e-6;
    [1.0, 2.0, 5.0, 10.0].into_iter().any(near)
}

#[test]
fn linear_examples() {
    let axis = Axis::linear("");
    for (values, target, written) in [
        (&[0.03, 0.97][..], 5, "0 0.2 0.4 0.6 0.8 1.0"),
        (&[-3.0, 4.0], 4, "−4 −2 0 2 4"),
        (&[0.0, 100e3], 5, "0 20k 40k 60k 80k 100k"),
        (&[], 2, "0 0.5 1.0"),
        (&[5.0, 5.0], 2, "0 5 10"),
        (&[0.0], 2, "−1 0 1"),
    ] {
        assert_eq!(labels(&fit(&axis, values, target)).join(" "), written);
    }
}

#[test]
fn logarithmic_examples() {
    let axis = Axis::log("");
    for (values, target, written) in [
        (&[1e3, 1e6][..], 5, "1k 10k 100k 1M"),
        (&[0.5, 8.0], 5, "0.5 1 2 5 10"),
        (&[1e-12, 1.0], 4, "10⁻¹² 10⁻⁸ 10⁻⁴ 10⁰"),
        (&[100.0, 150.0], 4, "100 110 120 130 140 150"),
        (&[7.0], 4, "2 5 10 20 50"),
    ] {
        assert_eq!(labels(&fit(&axis, values, target)).join(" "), written);
    }
    let chosen = Axis::log("").ticks([8.0, 0.5, 1.0, 2.0, 4.0]);
    let scale = fit(&chosen, &[0.5, 8.0], 5);
    assert_eq!(labels(&scale), ["0.5", "1", "2", "4", "8"]);
    assert_eq!(scale.domain, (0.5, 8.0));
    assert!((scale.at(2.0) - 250.0).abs() < 1e-9);
}

#[test]
fn a_bad_domain_is_ignored_and_a_good_one_kept() {
    let scale = fit(&Axis::linear("").between(0.0, 0.9), &[-4.0, 7.0], 5);
    assert_eq!(scale.domain, (0.0, 0.9));
    assert_eq!(labels(&scale), ["0", "0.2", "0.4", "0.6", "0.8"]);
    assert!(!scale.shows(7.0) && scale.shows(0.9));
    for (a, b) in [(1.0, 0.0), (f64::NAN, 1.0), (2.0, 2.0)] {
        let scale = fit(&Axis::linear("").between(a, b), &[0.0, 1.0], 5);
        assert_eq!(scale.domain, (0.0, 1.0));
    }
    let scale = fit(&Axis::log("").between(0.0, 9.0), &[1.0, 10.0], 5);
    assert_eq!(scale.domain, (1.0, 10.0));
}

#[test]
fn extremes() {
    for values in [
        vec![-MAX_DRAWABLE, MAX_DRAWABLE],
        vec![MAX_DRAWABLE],
        vec![-MAX_DRAWABLE, 0.0],
        vec![0.0, 1e-299],
        vec![f64::MIN_POSITIVE / 4.0, 0.0],
        vec![1e15, 1e15 + 1.0],
        vec![f64::NAN, f64::INFINITY, 3.0],
        vec![f64::MAX, 1.0],
    ] {
        for axis in [Axis::linear(""), Axis::log("")] {
            for target in [0, 2, 5, 9] {
                let visible: Vec<f64> = values
                    .iter()
                    .copied()
                    .filter(|&v| axis.can_show(v))
                    .collect();
                check(&fit(&axis, &values, target), &visible, target);
            }
        }
    }
}

proptest! {
    #[test]
    fn linear_ticks_are_nice(a in -1.0..1.0f64, b in -1.0..1.0f64, e in -290..290i32, target in 2usize..12) {
        let values = [a * 10f64.powi(e), b * 10f64.powi(e)];
        let scale = fit(&Axis::linear(""), &values, target);
        check(&scale, &values, target);
        let steps: Vec<f64> = scale.ticks.windows(2).map(|w| w[1].value - w[0].value).collect();
        for step in &steps {
            prop_assert!((step / steps[0] - 1.0).abs() < 1e-6);
        }
        prop_assert!(is_one_two_five(steps[0]) , "{:?}", scale);
    }

    #[test]
    fn logarithmic_ticks_are_nice(a in -290.0..290.0f64, span in 0.0..300.0f64, target in 2usize..12) {
        let values = [10f64.powf(a), 10f64.powf((a + span).min(299.0))];
        let scale = fit(&Axis::log(""), &values, target);
        check(&scale, &values, target);
        if span > 0.4 {
            prop_assert!(scale.ticks.iter().all(|t| is_one_two_five(t.value)), "{:?}", scale);
        }
    }

    #[test]
    fn narrow_ranges(centre in -1e6..1e6f64, width in 1e-12..1e-2f64, target in 2usize..12) {
        let values = [centre, centre + width];
        check(&fit(&Axis::linear(""), &values, target), &values, target);
        let positive = values.map(|v| v.abs() + 1.0);
        check(&fit(&Axis::log(""), &positive, target), &positive, target);
    }
}
