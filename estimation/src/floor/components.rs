//! Components with a debiased eigenvalue, an expected alignment and a verdict.

use eigenveil_shared::{
    Error, Result,
    estimate::{
        Component, ComponentGroup, NoiseFloor, SpectrumEstimate, VarianceFloor, Verdict,
        smaller_alignment,
    },
    mechanism::NoiseModel,
};

use super::{
    EigenvalueVerdict, Eigenvalues, ExpectedError, Floor, Measured, SpectralNoise, SpectrumRange,
    Spike, Support, centring, estimated::NoisySpectrum, from_data::resolve, groups, selection,
    warnings,
};
use crate::{
    metrics::max_error,
    pca::share_of,
    warning::{Outlook, Warning},
};

/// The noise floor's findings on an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct FloorReport {
    /// The components, leading first.
    pub components: Vec<Component>,
    /// Those of them that cannot be distinguished.
    pub groups: Vec<ComponentGroup>,
    /// Variance of each eigenvalue of the spectrum.
    pub variances: Vec<f64>,
    /// The floor of the whole moment (what a scree plot shows), whatever the estimator.
    pub floor: NoiseFloor,
    /// The population's spectrum; `None` for a sparse estimate with no more rows than components.
    pub spectrum: Option<SpectrumEstimate>,
    /// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F; an invisible component counts as fully wrong.
    pub expected_error: f64,
    /// Its range.
    pub expected_error_range: (f64, f64),
    /// Mean squared norm of the prepared rows: `tr S̃`, or with `double-cap` what the study fixes.
    pub total_variance: Option<f64>,
    /// Most important first; empty if there are none.
    pub warnings: Vec<Warning>,
    /// Where only some components are visible: the number of participants needed for the others.
    pub outlook: Option<Outlook>,
}

/// Judges every component against the noise floor.
///
/// A plain component is judged against the spectrum of the whole moment. A sparse one is judged
/// against the noise on the rows selected, made larger by what selecting the best |J| of p rows can
/// gain from noise alone, `2 s √(L/n) + 2χL/p` with `L = ln C(p,|J|)` and s the noise of one report
/// between two directions of the bulk: a bound, so "above" is on the safe side.
///
/// Rows are taken to lie in the unit ball, as every prepared row does.
pub fn assess(measured: &Measured<'_>) -> Result<FloorReport> {
    let Measured {
        vectors,
        values,
        spectrum,
        noise,
        n_eff,
        support,
        error_bars,
        ..
    } = *measured;
    let (p, k) = (spectrum.dimension, values.len());
    if vectors.shape() != (p, k) || k > p {
        return Err(Error::invalid_request(format!(
            "{k} values in dimension {p} do not fit vectors of shape {:?}",
            vectors.shape()
        )));
    }
    let floor = Floor::from_leading(&spectrum, noise, n_eff)?;
    let trace = spectrum.trace;
    let total_variance = noise.mean_squared_norm(trace);
    let judge_floor = match support {
        None => floor,
        Some(Support { rows, .. }) => {
            on_support(&floor, trace, values, rows.len(), noise, p, n_eff)?
        }
    };
    let verdicts: Vec<EigenvalueVerdict> = values
        .iter()
        .enumerate()
        .map(|(j, &value)| {
            let mut judged = judge_floor.judge_along(value, centring::excess(measured, j));
            let no_room = support.is_some_and(|support| support.rows.len() <= k);
            if no_room && judged.verdict != Verdict::Above {
                // Noise cannot tilt it within its rows, and may have selected all of them.
                judged.spike = None;
            }
            judged
        })
        .collect();
    // With the variance missing from the trace of the reports (all of it for `double-cap`), spread evenly. If it is
    // unknown the bulk counts as zero, its minimum.
    let level_of = |floor: &Floor| match total_variance {
        Some(total) => floor.centre + (total - trace) / p as f64,
        None => 0.0,
    };
    let mut components: Vec<Component> = (0..k)
        .map(|j| {
            let EigenvalueVerdict { verdict, spike } = verdicts[j];
            let bar = error_bars.and_then(|bars| bars.eigenvalues.get(j).copied());
            let slopes =
                spike.and_then(|_| judge_floor.slopes(values[j], centring::excess(measured, j)));
            let variance = variance_of(level_of(&judge_floor), spike);
            let variance_se = bar.zip(slopes).map(|(bar, slopes)| bar * slopes.theta);
            let expected_alignment = spike.map_or(0.0, |spike| spike.squared_cosine);
            let direction_se = error_bars
                .and_then(|bars| bars.directions.as_ref())
                .map(|directions| directions.sine(j));
            Component {
                loadings: vectors.column(j).iter().copied().collect(),
                variance,
                variance_se,
                eigenvalue: values[j],
                debiased_eigenvalue: spike.map(|spike| spike.theta),
                expected_alignment,
                alignment: smaller_alignment(expected_alignment, direction_se),
                verdict,
                explained_variance_ratio: None,
                eigenvalue_se: bar,
                debiased_eigenvalue_se: variance_se,
                expected_alignment_se: bar
                    .zip(slopes)
                    .map(|(bar, slopes)| (bar * slopes.squared_cosine.abs()).min(1.0)),
                direction_se,
            }
        })
        .collect();
    let level = level_of(&floor);
    let variance = |&value: &f64| variance_of(level, floor.judge(value).spike);
    let variances: Vec<f64> = spectrum.leading.iter().map(variance).collect();
    // Noise can make the variances exceed the total: then they are shares of their own sum, of all eigenvalues, so that
    // a share does not depend on how many components are asked for.
    let parts: f64 = components.iter().map(|own| own.variance).sum();
    let parts = parts.max(variances.iter().sum());
    let whole = total_variance.map(|total| total.max(parts));
    for component in &mut components {
        component.explained_variance_ratio = whole.map(|whole| share_of(component.variance, whole));
    }
    let missing = total_variance.map(|total| (total - trace) / p as f64);
    let selection = support.map(|on| {
        let spikes: Vec<Option<Spike>> = verdicts.iter().map(|judged| judged.spike).collect();
        let stands = |&&value: &&f64| judge_floor.judge(value).spike.is_some();
        let refitted = on.eigenvalues.iter().take(k).filter(stands).count();
        selection::loss(measured, &on, &floor, &spikes, refitted)
    });
    let selection = selection.transpose()?;
    let spectrum_estimate = match support {
        Some(Support { rows, .. }) if rows.len() <= k => None,
        _ => {
            let noisy = NoisySpectrum {
                floor: &judge_floor,
                threshold: match support {
                    None => judge_floor.threshold,
                    Some(on) => judge_floor.centre + judge_floor.noise.threshold(on.rows.len()),
                },
                eigenvalues: support.map_or(spectrum, |on| Eigenvalues::all(on.eigenvalues)),
                missing,
                noise,
                n_eff,
                excess: measured.excess,
            };
            Some(SpectrumEstimate {
                selection,
                ..noisy.estimate()?
            })
        }
    };
    let most = max_error(p, k);
    let error = match &spectrum_estimate {
        Some(spectrum) if k > 0 && most > 0.0 => {
            SpectrumRange::of(spectrum, n_eff, k)?.error(noise, n_eff)?
        }
        Some(_) => ExpectedError::default(),
        None => {
            let lost = verdicts
                .iter()
                .map(|judged| judged.spike.map_or(1.0, |spike| 1.0 - spike.squared_cosine));
            let unit = selection::unit_of_loss(noise, n_eff);
            let within = (2.0 * lost.sum::<f64>()).sqrt();
            ExpectedError::around(within, selection, unit)
        }
    };
    let expected_error = match measured.k_is_open {
        true => error.high,
        false => error.central,
    }
    .min(most);
    let lost = match support {
        Some(_) => count_selection(&mut components, expected_error),
        None => vec![0.0; k],
    };
    let runs = groups::runs(&judge_floor, &verdicts, values, error_bars);
    let groups = groups::documents(&runs, &components, error_bars, &lost, whole);
    let lowered = groups::demote_undetermined(&mut components, &groups);
    for group in &groups {
        for component in &mut components[group.first - 1..group.last] {
            component.verdict = group.verdict;
            component.alignment = group.alignment;
        }
    }
    let (mut warnings, outlook) = warnings::of_floor(measured, &floor, &verdicts);
    let visible = floor.components_above;
    warnings.extend(groups::warnings(&groups, &lowered, k, visible));
    Ok(FloorReport {
        components,
        groups,
        variances,
        floor: NoiseFloor {
            variance: Some(variance_floor(&floor, level)),
            ..floor.document()
        },
        spectrum: spectrum_estimate,
        expected_error,
        expected_error_range: (error.low.min(most), error.high.min(most)),
        total_variance,
        warnings,
        outlook,
    })
}

/// Lowers what is said of each direction by what choosing the features loses, and returns that as mean squared sines:
/// the alignments of k components add up to `tr V̂V̂ᵀVVᵀ = k − E²/2` at most, E the expected error of their space.
fn count_selection(components: &mut [Component], error: f64) -> Vec<f64> {
    let claimed: f64 = components.iter().map(|own| own.expected_alignment).sum();
    let most = (components.len() as f64 - 0.5 * error * error).max(0.0);
    let lost = (1.0 - most / claimed).max(0.0);
    let count = |own: &mut Component| {
        let lost = lost * own.expected_alignment;
        if lost > 0.0 {
            own.expected_alignment -= lost;
            let with_selection = |sine: f64| (sine * sine + lost).sqrt().min(1.0);
            own.direction_se = own.direction_se.map(with_selection);
            let alignment = smaller_alignment(own.expected_alignment, own.direction_se);
            own.alignment = alignment;
        }
        lost
    };
    components.iter_mut().map(count).collect()
}

/// The noiseless eigenvalue: θ above the bulk's `level`, or for an invisible direction the level itself, the best
/// guess there is. Never negative, because it is a mean square.
fn variance_of(level: f64, spike: Option<Spike>) -> f64 {
    (level + spike.map_or(0.0, |spike| spike.theta)).max(0.0)
}

/// The floor among eigenvalues of `E[xxᵀ]`, whose bulk is at `level`.
fn variance_floor(floor: &Floor, level: f64) -> VarianceFloor {
    let at = |value: f64| {
        let spike = floor.noise.spike_from_eigenvalue(value - floor.centre);
        variance_of(level, spike)
    };
    // At the edge itself nothing shows: the limit from above.
    let above_edge = floor.edge + 1e-6 * (floor.threshold - floor.edge);
    VarianceFloor {
        level: level.max(0.0),
        edge: at(above_edge),
        threshold: at(floor.threshold),
    }
}

/// The floor for components confined to `rows` selected rows.
fn on_support(
    whole: &Floor,
    trace: f64,
    values: &[f64],
    rows: usize,
    noise: &NoiseModel,
    p: usize,
    n_eff: f64,
) -> Result<Floor> {
    let k = values.len();
    let (centre, spectral_noise) = if rows <= k || k >= p {
        // As many components as rows: no direction is left for noise to tilt them within the support.
        let still = SpectralNoise {
            shift: 0.0,
            bulk_radius: 0.0,
            signal_variance: 0.0,
            signal_variance_slope: 0.0,
            ..whole.noise
        };
        (whole.centre, still)
    } else {
        resolve(values, trace, p, |signal| {
            SpectralNoise::new(noise, rows, k, n_eff, signal)
        })?
    };
    let edge = centre + spectral_noise.edge();
    let choices = ln_choose(p, rows);
    let selection = 2.0 * whole.noise.bulk_deviation() * choices.sqrt()
        + 2.0 * whole.noise.shift * choices / p as f64;
    let threshold = centre + spectral_noise.threshold(rows.max(1)) + selection;
    let components_above = values.iter().filter(|&&value| value > threshold).count();
    Ok(Floor {
        centre,
        noise: spectral_noise,
        edge,
        threshold,
        components_above,
    })
}

/// `ln C(p, m)`.
fn ln_choose(p: usize, m: usize) -> f64 {
    let m = m.min(p - m.min(p));
    (0..m).map(|i| ((p - i) as f64 / (i + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::{super::measured, *};

    fn assess_plain(spectrum: &[f64], k: usize, sd: f64, n_eff: f64) -> FloorReport {
        let vectors = DMatrix::identity(spectrum.len(), k);
        let noise = NoiseModel::gaussian(sd);
        assess(&measured(&vectors, &spectrum[..k], spectrum, &noise, n_eff)).unwrap()
    }

    /// λ ≥ λ_max picks the row with the largest diagonal entry: with one report that is noise, and the noise within one
    /// row cannot tilt anything, which must not look like certainty.
    #[test]
    fn a_feature_that_noise_may_have_selected_has_no_alignment() {
        let spectrum = [9.0, 4.0, 0.0, -5.0, -7.0];
        let assess_row = |value: f64| {
            let (vectors, noise) = (DMatrix::identity(5, 1), NoiseModel::gaussian(4.0));
            assess(&Measured {
                support: Some(Support {
                    rows: &[0],
                    eigenvalues: &[value],
                    images: &(&vectors * value),
                    shrunk: None,
                }),
                ..measured(&vectors, &[value], &spectrum, &noise, 1.0)
            })
            .unwrap()
        };
        let chosen_by_noise = assess_row(8.0);
        assert_eq!(chosen_by_noise.components[0].verdict, Verdict::At);
        assert_eq!(chosen_by_noise.components[0].expected_alignment, 0.0);
        assert_eq!(chosen_by_noise.components[0].debiased_eigenvalue, None);
        assert_eq!(chosen_by_noise.expected_error, 2.0_f64.sqrt());
        let real = assess_row(20.0);
        assert_eq!(real.components[0].verdict, Verdict::Above);
        assert!(real.expected_error < 0.1);
    }

    #[test]
    fn a_visible_component_is_debiased_and_an_invisible_one_is_not() {
        let mut spectrum = vec![0.6];
        spectrum.extend((0..39).map(|i| 0.19 - 0.38 * f64::from(i) / 38.0));
        let result = assess_plain(&spectrum, 2, 2.0, 16e3);
        // r = 2√(39/16000) = 0.0987…; the component shows at θ + r²/θ.
        let [first, second] = &result.components[..] else {
            unreachable!()
        };
        assert_eq!(first.verdict, Verdict::Above);
        let theta = first.debiased_eigenvalue.unwrap();
        let r = result.floor.radius;
        assert!((theta + r * r / theta - (0.6 - result.floor.center)).abs() < 1e-12);
        assert!((first.expected_alignment - (1.0 - r * r / (theta * theta))).abs() < 1e-12);
        assert_eq!(second.debiased_eigenvalue, None);
        assert_eq!(second.expected_alignment, 0.0);
        // The bulk is measured, and a little narrower than the noise's here.
        let lost = 1.0 - first.expected_alignment + 1.0;
        assert!((result.expected_error / (2.0 * lost).sqrt() - 1.0).abs() < 0.01);
        let few = Warning::FewStand { standing: 1, k: 2 };
        assert!(result.warnings.contains(&few), "{:?}", result.warnings);
    }

    #[test]
    fn components_left_out_count_against_the_subspace() {
        let spectrum: Vec<f64> = [0.50, 0.49].into_iter().chain(vec![0.0; 38]).collect();
        let both = assess_plain(&spectrum, 2, 0.5, 1e3);
        let one = assess_plain(&spectrum, 1, 0.5, 1e3);
        // Two nearly equal components: their span is sure, either alone is not.
        assert!(both.expected_error < 0.45, "{}", both.expected_error);
        // Either of two equal directions has a mean squared sine of ½: an error of 1.
        assert!(
            (0.8..1.0).contains(&one.expected_error),
            "{}",
            one.expected_error
        );
        let [group] = &both.groups[..] else {
            panic!("{both:?}");
        };
        assert_eq!(both.warnings, [Warning::Inseparable(group.clone())]);
    }

    #[test]
    fn degenerate_requests_have_finite_answers() {
        for (spectrum, k) in [
            (vec![0.0; 5], 0),
            (vec![0.0; 5], 5),
            (vec![1.0], 1),
            (vec![1.0], 0),
            (vec![1.0, 1.0], 2),
            (vec![2.0, 2.0, -1.0], 2),
            (vec![3.0, -3.0], 1),
        ] {
            for (sd, n) in [(0.0, 1.0), (1.0, 1.0), (4.0, 1797.0)] {
                let result = assess_plain(&spectrum, k, sd, n);
                assert!(result.expected_error.is_finite());
                let p = spectrum.len();
                assert!(result.expected_error <= (2.0 * k.min(p - k) as f64).sqrt());
                let mut sum = 0.0;
                for component in &result.components {
                    let explained = component.explained_variance_ratio.unwrap();
                    assert!((0.0..=1.0).contains(&explained));
                    sum += explained;
                    assert!(sum <= 1.0 + 1e-12, "{result:?}");
                    assert!((0.0..=1.0).contains(&component.expected_alignment));
                    assert!(component.debiased_eigenvalue.is_none_or(f64::is_finite));
                }
            }
        }
    }

    #[test]
    fn a_sparse_component_is_judged_on_its_rows() {
        // p = 400: the whole moment's noise hides 0.5, four rows' noise does not.
        let (p, n, sd) = (400, 1e4, 2.0);
        let mut spectrum = vec![0.9];
        spectrum.extend((0..p - 1).map(|i| 0.8 - 1.6 * i as f64 / (p - 2) as f64));
        let vectors = DMatrix::from_fn(p, 1, |i, _| if i < 4 { 0.5 } else { 0.0 });
        let noise = NoiseModel::gaussian(sd);
        let verdict = |value: f64, rows: Option<&[usize]>| {
            let eigenvalues = [value, 0.0, 0.0, 0.0];
            let images = &vectors * value;
            let support = rows.map(|rows| Support {
                rows,
                eigenvalues: &eigenvalues,
                images: &images,
                shrunk: None,
            });
            let floor_report = assess(&Measured {
                support,
                ..measured(&vectors, &[value], &spectrum, &noise, n)
            });
            floor_report.unwrap().components[0].verdict
        };
        assert_eq!(verdict(0.5, Some(&[0, 1, 2, 3])), Verdict::Above);
        assert_eq!(verdict(0.5, None), Verdict::Below);
        // An eigenvalue that selection alone can produce is not counted as a component.
        assert_ne!(verdict(0.1, Some(&[0, 1, 2, 3])), Verdict::Above);
        assert!((ln_choose(400, 4) - 1_050_739_900.0_f64.ln()).abs() < 1e-9);
        assert_eq!(ln_choose(5, 5), 0.0);
    }

    /// λ far too large: one of the four rows that a component fills is selected, and its image shows the others.
    #[test]
    fn alignments_count_the_features_left_out() {
        let (p, n) = (40, 1e6);
        let spectrum: Vec<f64> = [0.8].into_iter().chain(vec![0.0; p - 1]).collect();
        let vectors = DMatrix::identity(p, 1);
        let images = DMatrix::from_fn(p, 1, |i, _| if i < 4 { 0.2 } else { 0.0 });
        let noise = NoiseModel::gaussian(1.0);
        let result = assess(&Measured {
            support: Some(Support {
                rows: &[0],
                eigenvalues: &[0.2],
                images: &images,
                shrunk: None,
            }),
            ..measured(&vectors, &[0.2], &spectrum, &noise, n)
        })
        .unwrap();
        let error = result.expected_error;
        assert!(error > 1.2, "{error}");
        let alignment = result.components[0].alignment;
        // One of four equal loadings: its squared cosine with all of them.
        assert!((alignment - 0.25).abs() < 0.01, "{alignment}");
        assert!(
            alignment <= 1.0 - error * error / 2.0 + 1e-12,
            "{alignment}"
        );
        assert_eq!(alignment, result.components[0].expected_alignment);
    }

    #[test]
    fn explained_does_not_depend_on_how_many_are_asked_for() {
        // Noise makes the visible variances exceed the trace, 0.5.
        let spectrum = [0.6, 0.3, -0.2, -0.2];
        let share = |k| assess_plain(&spectrum, k, 1.0, 1e4).components[0].explained_variance_ratio;
        assert_eq!(share(1), share(3));
        assert!(share(1).is_some_and(|share| share < 0.7), "{:?}", share(1));
    }

    #[test]
    fn shapes_must_fit() {
        let (vectors, noise) = (DMatrix::identity(3, 2), NoiseModel::gaussian(1.0));
        let error = assess(&measured(&vectors, &[1.0], &[1.0, 0.0, 0.0], &noise, 1.0)).unwrap_err();
        assert_eq!(error.code(), eigenveil_shared::ErrorCode::InvalidRequest);
    }
}
