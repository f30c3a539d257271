//! Components with a debiased eigenvalue, an expected alignment and a verdict: counted, judged, grouped, summarised.

use eigenveil_shared::{
    Error, Result,
    estimate::{
        Component, ComponentGroup, NoiseFloor, SelectionLoss, SpectrumEstimate, VarianceFloor,
        Verdict,
    },
};

use super::{
    EigenvalueVerdict, Eigenvalues, ExpectedError, Floor, Measured, Refitted, SpectralNoise,
    SpectrumRange, Spike, Support,
    closed_form::unit_of_loss,
    groups,
    noise_floor::{resolve, variance_of},
    observed_spectrum::NoisySpectrum,
    selection, warnings,
};
use crate::{
    dense::pca::share_of,
    metrics::max_error,
    report::warning::{Outlook, Warning},
};

/// The noise floor's findings on an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct FloorReport {
    /// The components, leading first.
    pub components: Vec<Component>,
    /// Groups of components that cannot be distinguished.
    pub groups: Vec<ComponentGroup>,
    /// Variance of each eigenvalue of the spectrum.
    pub variances: Vec<f64>,
    /// The floor of the whole moment (what a scree plot shows), whatever the estimator.
    pub floor: NoiseFloor,
    /// The population's spectrum; `None` for a sparse estimate with no more rows than components, or shrunk loadings.
    pub spectrum: Option<SpectrumEstimate>,
    /// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F; an invisible component counts as fully wrong. `None` for shrunk loadings and
    /// without components.
    pub expected_error: Option<f64>,
    /// Its range.
    pub expected_error_range: Option<(f64, f64)>,
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
    let counted = Counted::new(measured)?;
    let verdicts = counted.judge();
    let mut components = counted.components(&verdicts);
    let variances = counted.variances();
    let whole = counted.share_out(&mut components, &variances);
    let losses = counted.selection_losses(&verdicts)?;
    let selection = losses.as_ref().map(|losses| counted.selection(losses));
    let spectrum = counted.spectrum(selection)?;
    let error = match measured.has_known_error() && !components.is_empty() {
        true => Some(counted.error(spectrum.as_ref(), selection, &verdicts)?),
        false => None,
    };
    let lost = match losses {
        Some(losses) => count_selection(&mut components, &losses),
        None => vec![0.0; components.len()],
    };
    let (mut groups, lowered) = groups::group(
        &counted.judging,
        &verdicts,
        measured,
        &mut components,
        &lost,
        whole,
    );
    if let Some(error) = error {
        groups::obey_error(&mut components, &mut groups, error.central);
    }
    let (k, visible) = (components.len(), counted.floor.components_above);
    let (mut warnings, outlook) = warnings::of_floor(measured, &counted.floor, &verdicts);
    warnings.extend(groups::warnings(&groups, lowered, k, visible));
    Ok(FloorReport {
        components,
        groups,
        variances,
        floor: counted.document(),
        spectrum,
        expected_error: error.map(|error| error.central),
        expected_error_range: error.map(|error| (error.low, error.high)),
        total_variance: counted.total,
        warnings,
        outlook,
    })
}

/// An estimate with the floors that its components are counted by.
struct Counted<'a> {
    measured: &'a Measured<'a>,
    /// Under the whole moment.
    floor: Floor,
    /// Under the components: of a sparse estimate, on its rows.
    judging: Floor,
    /// Mean squared norm of the rows.
    total: Option<f64>,
    /// The variance missing from the trace of the reports (all of it for `double-cap`), spread evenly.
    missing: Option<f64>,
}

impl<'a> Counted<'a> {
    fn new(measured: &'a Measured<'a>) -> Result<Self> {
        let (p, k) = (measured.spectrum.dimension, measured.values.len());
        if measured.vectors.shape() != (p, k) || k > p {
            return Err(Error::invalid_request(format!(
                "{k} values in dimension {p} do not fit vectors of shape {:?}",
                measured.vectors.shape()
            )));
        }
        let floor = Floor::from_leading(&measured.spectrum, measured.noise, measured.n_eff)?;
        let trace = measured.spectrum.trace;
        let total = measured.noise.mean_squared_norm(trace);
        Ok(Self {
            measured,
            floor,
            judging: match measured.support {
                None => floor,
                Some(Support { rows, .. }) => on_support(&floor, measured, rows.len())?,
            },
            total,
            missing: total.map(|total| (total - trace) / p as f64),
        })
    }

    /// Whether no more rows than components were selected: then noise cannot tilt these within them.
    fn leaves_no_room(&self) -> bool {
        let k = self.measured.values.len();
        self.measured.support.is_some_and(|on| on.rows.len() <= k)
    }

    fn judge(&self) -> Vec<EigenvalueVerdict> {
        let values = self.measured.values.iter().enumerate();
        let verdict = |(j, &value): (usize, &f64)| {
            let excess = self.measured.excess_along(j);
            let mut judged = self.judging.judge_with_excess(value, excess);
            if self.leaves_no_room() && judged.verdict != Verdict::Above {
                // Noise may have selected all of the rows.
                judged.spike = None;
            }
            judged
        };
        values.map(verdict).collect()
    }

    /// The components as they stand alone, without shares; alignments are the floor's.
    fn components(&self, verdicts: &[EigenvalueVerdict]) -> Vec<Component> {
        let measured = self.measured;
        let level = self.judging.level(self.missing);
        let bars = measured.error_bars;
        let component = |(j, judged): (usize, &EigenvalueVerdict)| {
            let EigenvalueVerdict { verdict, spike } = *judged;
            let value = measured.values[j];
            let bar = bars.and_then(|bars| bars.eigenvalues.get(j).copied());
            let slopes = spike.and_then(|_| self.judging.slopes(value, measured.excess_along(j)));
            let scaled = bar.zip(slopes);
            let variance_se = scaled.map(|(bar, slopes)| bar * slopes.theta);
            let known = spike.filter(|_| measured.has_known_error());
            let directions = bars.and_then(|bars| bars.directions.as_ref());
            let direction_se = directions.map(|directions| directions.sine(j));
            Component {
                loadings: measured.vectors.column(j).iter().copied().collect(),
                variance: variance_of(level, spike),
                variance_se,
                eigenvalue: value,
                debiased_eigenvalue: spike.map(|spike| spike.theta),
                alignment: known.map(|spike| spike.squared_cosine),
                verdict,
                explained_variance_ratio: None,
                eigenvalue_se: bar,
                debiased_eigenvalue_se: variance_se,
                alignment_se: scaled
                    .filter(|_| known.is_some())
                    .map(|(bar, slopes)| bar * slopes.squared_cosine.abs()),
                direction_se,
            }
        };
        verdicts.iter().enumerate().map(component).collect()
    }

    /// The variance of each eigenvalue of the whole moment.
    fn variances(&self) -> Vec<f64> {
        let level = self.floor.level(self.missing);
        let values = self.measured.spectrum.leading.iter();
        values
            .map(|&value| variance_of(level, self.floor.judge(value).spike))
            .collect()
    }

    /// Gives each component its share of the whole, which is returned. Noise can make the variances exceed the total:
    /// then they are shares of their own sum, of all eigenvalues, so that a share does not depend on how many
    /// components are asked for.
    fn share_out(&self, components: &mut [Component], variances: &[f64]) -> Option<f64> {
        let parts: f64 = components.iter().map(|component| component.variance).sum();
        let parts = parts.max(variances.iter().sum());
        let whole = self.total.map(|total| total.max(parts));
        for component in components {
            component.explained_variance_ratio =
                whole.map(|whole| share_of(component.variance, whole));
        }
        whole
    }

    /// The loss that choosing features adds to each component, as mean squared sines.
    fn selection_losses(
        &self,
        verdicts: &[EigenvalueVerdict],
    ) -> Result<Option<Vec<SelectionLoss>>> {
        let Some((rows, refitted)) = self.refitted() else {
            return Ok(None);
        };
        let spikes: Vec<Option<Spike>> = verdicts.iter().map(|judged| judged.spike).collect();
        selection::losses(self.measured, rows, &refitted, &self.floor, &spikes).map(Some)
    }

    /// The selected rows, and their refitted components.
    fn refitted(&self) -> Option<(&'a [usize], Refitted<'a>)> {
        let on = self.measured.support?;
        Some((on.rows, on.refitted?))
    }

    /// These losses together, in units of the noise.
    fn selection(&self, losses: &[SelectionLoss]) -> SelectionLoss {
        let unit = unit_of_loss(self.measured.noise, self.measured.n_eff);
        let sum = |end: fn(&SelectionLoss) -> f64| match unit > 0.0 {
            true => losses.iter().map(end).sum::<f64>() / unit,
            false => 0.0,
        };
        SelectionLoss {
            central: sum(|loss| loss.central),
            low: sum(|loss| loss.low),
            high: sum(|loss| loss.high),
        }
    }

    /// The population's spectrum; `None` with no more rows than components, or shrunk loadings.
    fn spectrum(&self, selection: Option<SelectionLoss>) -> Result<Option<SpectrumEstimate>> {
        let (measured, floor) = (self.measured, &self.judging);
        if self.leaves_no_room() || !measured.has_known_error() {
            return Ok(None);
        }
        let (threshold, eigenvalues) = match self.refitted() {
            None => (floor.threshold, measured.spectrum),
            Some((rows, refitted)) => (
                floor.centre + floor.noise.threshold(rows.len()),
                Eigenvalues::all(refitted.eigenvalues),
            ),
        };
        let noisy = NoisySpectrum {
            floor,
            threshold,
            eigenvalues,
            missing: self.missing,
            noise: measured.noise,
            n_eff: measured.n_eff,
            excess: measured.excess,
        };
        Ok(Some(SpectrumEstimate {
            selection,
            ..noisy.estimate()?
        }))
    }

    /// The error to be expected, at most the largest there is.
    fn error(
        &self,
        spectrum: Option<&SpectrumEstimate>,
        selection: Option<SelectionLoss>,
        verdicts: &[EigenvalueVerdict],
    ) -> Result<ExpectedError> {
        let (noise, n_eff) = (self.measured.noise, self.measured.n_eff);
        let k = verdicts.len();
        let most = max_error(self.measured.spectrum.dimension, k);
        let error = match spectrum {
            Some(spectrum) if k > 0 && most > 0.0 => {
                SpectrumRange::of(spectrum, n_eff, k)?.error(noise, n_eff)?
            }
            Some(_) => ExpectedError::default(),
            None => {
                let squared_sine = |spike: Spike| 1.0 - spike.squared_cosine;
                let lost = verdicts
                    .iter()
                    .map(|judged| judged.spike.map_or(1.0, squared_sine));
                let within = (2.0 * lost.sum::<f64>()).sqrt();
                ExpectedError::around(within, selection, unit_of_loss(noise, n_eff))
            }
        };
        Ok(ExpectedError {
            central: error.central.min(most),
            low: error.low.min(most),
            high: error.high.min(most),
        })
    }

    /// The floor of the whole moment, also among eigenvalues of `E[xxᵀ]`.
    fn document(&self) -> NoiseFloor {
        let (floor, level) = (&self.floor, self.floor.level(self.missing));
        let at = |value: f64| {
            let spike = floor.noise.spike_from_eigenvalue(value - floor.centre);
            variance_of(level, spike)
        };
        NoiseFloor {
            variance: Some(VarianceFloor {
                level: level.max(0.0),
                edge: at(floor.just_above_edge()),
                threshold: at(floor.threshold),
            }),
            ..floor.document()
        }
    }
}

/// Lowers the floor's alignments by what choosing the features loses, widens the error bars of the directions by as much,
/// and returns that as mean squared sines.
fn count_selection(components: &mut [Component], losses: &[SelectionLoss]) -> Vec<f64> {
    let count = |(component, loss): (&mut Component, &SelectionLoss)| {
        let expected = component.alignment.unwrap_or(0.0);
        let left = (expected - loss.central).max(0.0);
        let lost = expected - left;
        if lost > 0.0 {
            let with_selection = |sine: f64| (sine * sine + lost).sqrt().min(1.0);
            component.direction_se = component.direction_se.map(with_selection);
            (component.alignment, component.alignment_se) = (Some(left), None);
        }
        lost
    };
    components.iter_mut().zip(losses).map(count).collect()
}

/// The floor for the components of an estimate, confined to `rows` selected rows.
fn on_support(whole: &Floor, measured: &Measured<'_>, rows: usize) -> Result<Floor> {
    let Eigenvalues {
        trace,
        dimension: p,
        ..
    } = measured.spectrum;
    let values = measured.values;
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
            SpectralNoise::new(measured.noise, rows, k, measured.n_eff, signal)
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
    use eigenveil_shared::mechanism::NoiseModel;
    use nalgebra::DMatrix;

    use super::{super::measured, *};
    use crate::linalg::submatrix;

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
                    refitted: Some(Refitted {
                        eigenvalues: &[value],
                        images: &(&vectors * value),
                        moment: &|rows| DMatrix::zeros(rows.len(), rows.len()),
                    }),
                }),
                ..measured(&vectors, &[value], &spectrum, &noise, 1.0)
            })
            .unwrap()
        };
        let chosen_by_noise = assess_row(8.0);
        assert_eq!(chosen_by_noise.components[0].verdict, Verdict::At);
        assert_eq!(chosen_by_noise.components[0].alignment, None);
        assert_eq!(chosen_by_noise.components[0].debiased_eigenvalue, None);
        assert_eq!(chosen_by_noise.expected_error, Some(2.0_f64.sqrt()));
        let real = assess_row(20.0);
        assert_eq!(real.components[0].verdict, Verdict::Above);
        assert!(real.expected_error.unwrap() < 0.1);
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
        let flat = 1.0 - r * r / (theta * theta);
        assert_eq!(second.debiased_eigenvalue, None);
        assert_eq!(second.alignment, None);
        // The bulk is measured, and a little narrower than the noise's here.
        let error = result.expected_error.unwrap();
        assert!((error / (2.0 * (1.0 - flat + 1.0)).sqrt() - 1.0).abs() < 0.01);
        let alignment = first.alignment.unwrap();
        assert!((alignment - flat.min(2.0 - 0.5 * error * error)).abs() < 1e-9);
        let few = Warning::FewStand { standing: 1, k: 2 };
        assert!(result.warnings.contains(&few), "{:?}", result.warnings);
    }

    #[test]
    fn components_left_out_count_against_the_subspace() {
        let spectrum: Vec<f64> = [0.50, 0.49].into_iter().chain(vec![0.0; 38]).collect();
        let both = assess_plain(&spectrum, 2, 0.5, 1e3);
        let one = assess_plain(&spectrum, 1, 0.5, 1e3);
        // Two nearly equal components: their span is sure, either alone is not.
        assert!(both.expected_error.unwrap() < 0.45, "{both:?}");
        // Either of two equal directions has a mean squared sine of ½: an error of 1.
        assert!((0.8..1.0).contains(&one.expected_error.unwrap()), "{one:?}");
        let [group] = &both.groups[..] else {
            panic!("{both:?}");
        };
        assert_eq!(both.warnings, [Warning::Inseparable(group.clone())]);
    }

    /// The floor's numbers of single components add up to more than the error of their space leaves: the last one may
    /// be another, or all are just above the floor.
    #[test]
    fn alignments_add_up_to_what_the_error_leaves_and_are_never_below_chance() {
        let rest = |spectrum: &[f64]| [spectrum, &vec![0.0; 40 - spectrum.len()][..]].concat();
        for (spectrum, k, sd) in [
            (rest(&[0.6, 0.50, 0.49]), 2, 0.5),
            (rest(&[0.6, 0.50, 0.49]), 3, 0.5),
            (rest(&[0.6, 0.31, 0.30, 0.29]), 4, 0.7),
        ] {
            let result = assess_plain(&spectrum, k, sd, 1e3);
            let error = result.expected_error.unwrap();
            let known = result.components.iter().filter_map(|c| c.alignment);
            let alignments: Vec<f64> = known.collect();
            let sum: f64 = alignments.iter().sum();
            assert!(sum <= k as f64 - 0.5 * error * error + 1e-9, "{result:?}");
            assert!(alignments.last() < alignments.first(), "{alignments:?}");
            assert!(
                alignments.iter().all(|a| *a >= 1.0 / 40.0),
                "{alignments:?}"
            );
            for group in &result.groups {
                let first = &result.components[group.first - 1];
                assert_eq!(group.alignment, first.alignment);
            }
        }
        // An error that leaves nothing.
        let spectrum = rest(&[0.6, 0.50]);
        let mut lost = assess_plain(&spectrum, 2, 0.5, 1e3).components;
        groups::obey_error(&mut lost, &mut [], 2.0);
        let alignments: Vec<Option<f64>> = lost.iter().map(|c| c.alignment).collect();
        assert_eq!(alignments, [Some(1.0 / 40.0); 2]);
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
                let p = spectrum.len();
                let most = (2.0 * k.min(p - k) as f64).sqrt();
                let error = result.expected_error;
                assert_eq!(error.is_some(), k > 0);
                assert!(error.is_none_or(|error| (0.0..=most).contains(&error)));
                let mut sum = 0.0;
                for component in &result.components {
                    let explained = component.explained_variance_ratio.unwrap();
                    assert!((0.0..=1.0).contains(&explained));
                    sum += explained;
                    assert!(sum <= 1.0 + 1e-12, "{result:?}");
                    let alignment = component.alignment;
                    assert!(alignment.is_none_or(|alignment| (0.0..=1.0).contains(&alignment)));
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
            let refitted = Some(Refitted {
                eigenvalues: &eigenvalues,
                images: &images,
                moment: &|rows| DMatrix::zeros(rows.len(), rows.len()),
            });
            let support = rows.map(|rows| Support { rows, refitted });
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

    /// λ far too large: one of the four rows that the second component fills is selected, and its image shows the
    /// others. The error and the first component's alignment are those of each component alone.
    #[test]
    fn a_feature_left_out_counts_for_its_component() {
        let (p, n) = (40, 1e6);
        let values = [2.0, 0.2];
        let truth = DMatrix::from_fn(p, 2, |i, j| match (i, j) {
            (0, 0) => 1.0,
            (1..5, 1) => 0.5,
            _ => 0.0,
        });
        let sizes = DMatrix::from_diagonal(&nalgebra::dvector![2.0, 0.8]);
        let moment = &truth * sizes * truth.transpose();
        let spectrum: Vec<f64> = [2.0, 0.8].into_iter().chain(vec![0.0; p - 2]).collect();
        let vectors = DMatrix::identity(p, 2);
        let noise = NoiseModel::gaussian(1.0);
        let images = &moment * &vectors;
        let assess_support = |refitted: Option<Refitted<'_>>| {
            let support = Some(Support {
                rows: &[0, 1],
                refitted,
            });
            assess(&Measured {
                support,
                ..measured(&vectors, &values, &spectrum, &noise, n)
            })
            .unwrap()
        };
        let result = assess_support(Some(Refitted {
            eigenvalues: &values,
            images: &images,
            moment: &|rows| submatrix(&moment, rows),
        }));
        let error = result.expected_error.unwrap();
        assert!((error - 1.5_f64.sqrt()).abs() < 1e-3, "{error}");
        let alignments: Vec<f64> = result
            .components
            .iter()
            .filter_map(|c| c.alignment)
            .collect();
        assert!(alignments[0] > 0.999, "{alignments:?}");
        // One of four equal loadings: its squared cosine with all of them.
        assert!((alignments[1] - 0.25).abs() < 1e-3, "{alignments:?}");
        let shrunk = assess_support(None);
        assert_eq!((shrunk.expected_error, shrunk.spectrum), (None, None));
        assert_eq!(shrunk.components[1].alignment, None);
        assert_eq!(shrunk.components[1].verdict, Verdict::Above);
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
