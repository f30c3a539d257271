//! The noise floor of a measured spectrum.

use eigenveil_shared::{
    Error, Result,
    estimate::{NoiseFloor, Verdict},
    mechanism::NoiseModel,
};

use super::{SpectralNoise, Spike};

/// Noise floor of a measured spectrum, and how many components stand above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Centre b of the bulk: `(tr S̃ − Σθ̂ⱼ)/p`.
    pub centre: f64,
    /// The noise outside the counted components.
    pub noise: SpectralNoise,
    /// Upper edge of the bulk, `b + χ + 2 r_b`.
    pub edge: f64,
    /// The threshold for an eigenvalue to count, `edge + 2 r_b p^(−2/3)`.
    pub threshold: f64,
    /// How many eigenvalues exceed the threshold.
    pub components_above: usize,
}

/// The known part of the spectrum of S̃: all of it, or its leading part and the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eigenvalues<'a> {
    /// The leading ones, descending: all p, or more than stand above the noise.
    pub leading: &'a [f64],
    /// Sum of all p.
    pub trace: f64,
    /// Sum of the squares of all p; `None` if it is not known.
    pub squares: Option<f64>,
    /// p.
    pub dimension: usize,
}

impl<'a> Eigenvalues<'a> {
    /// The whole spectrum, descending.
    pub fn all(values: &'a [f64]) -> Self {
        Self {
            leading: values,
            trace: values.iter().sum(),
            squares: Some(values.iter().map(|value| value * value).sum()),
            dimension: values.len(),
        }
    }
}

/// The noise floor's verdict on one eigenvalue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EigenvalueVerdict {
    /// Above the threshold, between edge and threshold, or inside the noise.
    pub verdict: Verdict,
    /// The component behind it; `None` inside the noise.
    pub spike: Option<Spike>,
}

impl EigenvalueVerdict {
    pub(super) fn is_above(&self) -> bool {
        self.verdict == Verdict::Above
    }
}

/// Derivatives with respect to the measured eigenvalue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slopes {
    /// dθ̂/dλ̂.
    pub(super) theta: f64,
    /// d cos²/dλ̂.
    pub(super) squared_cosine: f64,
}

impl Floor {
    /// The floor under `eigenvalues` (all p of them, descending) of the mean of `n` reports.
    ///
    /// The centre and radius determine which eigenvalues count, and depend on that choice; the iteration starts with
    /// none and only ever adds, so it ends after at most p rounds. At least one eigenvalue always stays with the noise:
    /// without any there is no centre. Within a round centre, noise and the components' sizes are computed together
    /// (`resolve`).
    pub fn from_eigenvalues(eigenvalues: &[f64], noise: &NoiseModel, n_eff: f64) -> Result<Self> {
        Self::from_leading(&Eigenvalues::all(eigenvalues), noise, n_eff)
    }

    /// Estimates like [`from_eigenvalues`](Self::from_eigenvalues) where only the leading part of the spectrum is
    /// known.
    ///
    /// # Errors
    /// Those of [`from_eigenvalues`](Self::from_eigenvalues); `invalid-request` when all of the leading ones, and
    /// so perhaps others, stand above the noise.
    pub fn from_leading(
        spectrum: &Eigenvalues<'_>,
        noise: &NoiseModel,
        n_eff: f64,
    ) -> Result<Self> {
        Self::try_from_leading(spectrum, noise, n_eff)?.ok_or_else(|| {
            Error::invalid_request(format!(
                    "all {} leading eigenvalues stand above the noise; the floor in dimension {} needs one that does not",
                    spectrum.leading.len(),
                    spectrum.dimension
                ))
        })
    }

    /// Estimates like [`from_leading`](Self::from_leading); `None` when all of the leading ones stand above the noise.
    pub fn try_from_leading(
        spectrum: &Eigenvalues<'_>,
        noise: &NoiseModel,
        n_eff: f64,
    ) -> Result<Option<Self>> {
        let Eigenvalues {
            leading: eigenvalues,
            trace,
            dimension: p,
            ..
        } = *spectrum;
        if eigenvalues.is_empty() || p < eigenvalues.len() {
            return Err(Error::invalid_request("there are no eigenvalues"));
        }
        if eigenvalues.iter().any(|value| !value.is_finite()) || !trace.is_finite() {
            return Err(Error::estimate_failed(
                "an eigenvalue is not a finite number",
            ));
        }
        if eigenvalues.windows(2).any(|pair| pair[0] < pair[1]) {
            return Err(Error::invalid_request("the eigenvalues are not descending"));
        }
        // Eigenvalues that differ only by rounding are equal: noiseless multiples of the identity
        // must not grow components.
        let largest = eigenvalues.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let rounding = 4.0 * p as f64 * f64::EPSILON * largest;
        let mut count = 0;
        loop {
            let counted = &eigenvalues[..count];
            let (centre, spectral_noise) = resolve(counted, trace, p, |signal| {
                SpectralNoise::new(noise, p, count, n_eff, signal)
            })?;
            let edge = centre + spectral_noise.edge();
            let threshold = centre + spectral_noise.threshold(p).max(rounding);
            let above = eigenvalues
                .iter()
                .take_while(|&&value| value > threshold)
                .count()
                .min(p - 1);
            if above == eigenvalues.len() && above < p - 1 {
                return Ok(None);
            }
            if above <= count {
                return Ok(Some(Self {
                    centre,
                    noise: spectral_noise,
                    edge,
                    threshold,
                    components_above: count,
                }));
            }
            count = above;
        }
    }

    /// The verdict on one eigenvalue of the noisy moment.
    pub fn judge(&self, eigenvalue: f64) -> EigenvalueVerdict {
        self.judge_with_excess(eigenvalue, 0.0)
    }

    /// Judges an eigenvalue like [`judge`](Self::judge), with the excess noise `m_v²/a²` of its eigenvector v under
    /// private centring.
    pub(super) fn judge_with_excess(&self, eigenvalue: f64, excess: f64) -> EigenvalueVerdict {
        let verdict = if eigenvalue > self.threshold {
            Verdict::Above
        } else if eigenvalue > self.edge {
            Verdict::At
        } else {
            Verdict::Below
        };
        let spike = match verdict {
            Verdict::Below => None,
            Verdict::Above | Verdict::At => {
                let noise = self.noise.with_excess(excess);
                noise.spike_from_eigenvalue(eigenvalue - self.centre)
            }
        };
        EigenvalueVerdict { verdict, spike }
    }

    /// Derivatives of θ̂ and of the expected squared cosine with respect to the eigenvalue, with the floor held fixed;
    /// `None` inside the noise.
    pub(super) fn slopes(&self, eigenvalue: f64, excess: f64) -> Option<Slopes> {
        let noise = self.noise.with_excess(excess);
        let displacement = eigenvalue - self.centre;
        let spike = noise.spike_from_eigenvalue(displacement)?;
        let step = 1e-6 * displacement.abs();
        let above = noise.spike_from_eigenvalue(displacement + step)?;
        let slopes = Slopes {
            theta: (above.theta - spike.theta) / step,
            squared_cosine: (above.squared_cosine - spike.squared_cosine) / step,
        };
        (slopes.theta.is_finite() && slopes.squared_cosine.is_finite()).then_some(slopes)
    }

    /// Mean square of the directions in the bulk, if the eigenvalues are shifted down by `deficit` from those of
    /// `E[xxᵀ]`; 0, its minimum, if that is not known.
    pub(super) fn level(&self, deficit: Option<f64>) -> f64 {
        deficit.map_or(0.0, |deficit| self.centre + deficit)
    }

    /// A point just above the edge: at the edge itself no spike exists.
    pub(super) fn just_above_edge(&self) -> f64 {
        self.edge + 1e-6 * (self.threshold - self.edge)
    }

    /// The floor as a document.
    pub fn document(&self) -> NoiseFloor {
        NoiseFloor {
            center: self.centre,
            radius: self.noise.bulk_radius,
            edge: self.edge,
            threshold: self.threshold,
            components_above: self.components_above,
            variance: None,
        }
    }
}

/// The noiseless eigenvalue: θ above the bulk's `level`, or for an invisible direction the level itself, the best
/// guess there is. Never negative, because it is a mean square.
pub(super) fn variance_of(level: f64, spike: Option<Spike>) -> f64 {
    (level + spike.map_or(0.0, |spike| spike.theta)).max(0.0)
}

/// Maximum number of rounds of [`resolve`].
const MAX_ROUNDS: usize = 200;

/// The centre of the bulk and the noise around components that show at `values`.
///
/// The trace of the noise is zero (exactly for `double-cap`, nearly for Gaussians: its share of one
/// eigenvalue is √2·r/p), so the bulk's centre is `b = (tr S̃ − Σθ̂ⱼ)/p`; the mean of the other eigenvalues
/// would be low by `Σ(Rⱼ²/Hⱼ)/(p−k)`, because the noise pushes the others down by as much as it lifts a component.
/// θ̂ⱼ depends on b and, for `double-cap`, the noise on Σθ̂: solving `θ̂ⱼ = λ̂ⱼ − b − lossⱼ` for Σθ̂ gives the
/// iteration `Σθ̂ ← (Σ(λ̂ⱼ − lossⱼ) − k·tr S̃/p)/(1 − k/p)`; it increases from 0 to the fixed point (a smaller centre
/// and less noise in the bulk mean less loss), usually in fewer than ten rounds.
pub(super) fn resolve(
    values: &[f64],
    trace: f64,
    p: usize,
    noise_at: impl Fn(f64) -> Result<SpectralNoise>,
) -> Result<(f64, SpectralNoise)> {
    let mean = trace / p as f64;
    let mut signal = 0.0;
    let mut noise = noise_at(signal)?;
    let mut centre = mean;
    for _ in 0..MAX_ROUNDS {
        let (mut sum, mut visible) = (0.0, 0.0);
        for value in values {
            if let Some(spike) = noise.spike_from_eigenvalue(value - centre) {
                // value − loss − mean, with loss = displacement − θ.
                sum += spike.theta + (centre - mean);
                visible += 1.0;
            }
        }
        let next = sum / (1.0 - visible / p as f64);
        let settled = (next - signal).abs() <= 1e-14 * next.abs();
        if settled || !next.is_finite() {
            break;
        }
        signal = next;
        noise = noise_at(signal)?;
        centre = mean - signal / p as f64;
    }
    Ok((centre, noise))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Spectrum, closed_form::double_cap, predict},
        *,
    };

    /// Judging the eigenvalues predicted for a known spectrum gives the spectrum back: sizes, centre, radius.
    #[test]
    fn judging_a_prediction_recovers_the_spectrum() {
        let p = 40;
        let thetas = [0.35, 0.2, 0.1];
        let bulk = (1.0 - thetas.iter().sum::<f64>()) / p as f64;
        let leading: Vec<f64> = thetas.iter().map(|theta| theta + bulk).collect();
        let spectrum = Spectrum::new(p, leading, bulk).unwrap();
        for (noise, trace) in [
            (NoiseModel::gaussian(2.0), 1.0),
            (double_cap(p, 1.0), 0.0),
            (double_cap(p, 4.0), 0.0),
            (double_cap(p, 8.0), 0.0),
        ] {
            let n = 1e6;
            let prediction = predict(&spectrum, &noise, n).unwrap();
            let centre = (trace - thetas.iter().sum::<f64>()) / p as f64;
            let mut eigenvalues: Vec<f64> = prediction
                .components
                .iter()
                .map(|component| component.spike.unwrap().displacement + centre)
                .collect();
            // The trace of the noise is zero: the rest of the trace belongs to the bulk.
            let rest = (trace - eigenvalues.iter().sum::<f64>()) / (p - thetas.len()) as f64;
            eigenvalues.extend(std::iter::repeat_n(rest, p - thetas.len()));
            let floor = Floor::from_eigenvalues(&eigenvalues, &noise, n).unwrap();
            assert_eq!(floor.components_above, 3);
            assert!((floor.centre - centre).abs() < 1e-12, "{noise:?}");
            for (j, &theta) in thetas.iter().enumerate() {
                let judged = floor.judge(eigenvalues[j]).spike.unwrap();
                let predicted = prediction.components[j].spike.unwrap();
                assert!((judged.theta - theta).abs() < 1e-11, "{noise:?} {j}");
                assert!((judged.squared_cosine - predicted.squared_cosine).abs() < 1e-10);
            }
        }
    }

    #[test]
    fn an_unknown_length_does_not_lower_the_floor() {
        for p in [2, 5, 40] {
            for epsilon in [0.5, 1.0, 4.0, 8.0] {
                let known = double_cap(p, epsilon);
                for signal in [0.0, 0.3, 0.7, 1.0] {
                    let noise_with_norm = |norm| {
                        let noise = known.with_mean_squared_norm(norm);
                        SpectralNoise::new(&noise, p, 1, 1_000.0, signal).unwrap()
                    };
                    let unknown = noise_with_norm(None);
                    for norm in [1.0, 0.5 * (1.0 + signal), signal] {
                        let spectral_noise = noise_with_norm(Some(norm));
                        assert!(unknown.bulk_radius >= spectral_noise.bulk_radius * (1.0 - 1e-12));
                        let strength = |spectral_noise: &SpectralNoise| {
                            spectral_noise.signal_variance + spectral_noise.signal_variance_slope
                        };
                        assert!(strength(&unknown) >= strength(&spectral_noise) * (1.0 - 1e-12));
                    }
                    if p == 40 {
                        let radius = noise_with_norm(Some(1.0)).bulk_radius;
                        assert!(unknown.bulk_radius < 1.01 * radius);
                    }
                }
            }
        }
    }

    #[test]
    fn a_clear_spectrum_is_counted() {
        let mut eigenvalues = vec![9.0, 5.0];
        eigenvalues.extend((0..38).map(|i| 1.0 - f64::from(i) * 2.0 / 37.0));
        // r = 0.5·√(40/40) = 0.5: the bulk ends near 1.
        let floor =
            Floor::from_eigenvalues(&eigenvalues, &NoiseModel::gaussian(0.5), 40.0).unwrap();
        assert_eq!(floor.components_above, 2);
        // The two components are lifted by about r²/9 + r²/5, and the other 38 are pushed down by as much.
        let lift = floor.noise.signal_variance * (1.0 / 9.0 + 1.0 / 5.0) / 38.0;
        assert!((floor.centre / lift - 1.0).abs() < 0.02);
        assert!((floor.noise.bulk_radius - 0.5 * (38.0_f64 / 40.0).sqrt()).abs() < 1e-15);
        let strong = floor.judge(9.0);
        assert_eq!(strong.verdict, Verdict::Above);
        let spike = strong.spike.unwrap();
        assert!(spike.theta > 8.9 && spike.theta < 9.0);
        let weak = floor.judge(0.5);
        assert_eq!((weak.verdict, weak.spike), (Verdict::Below, None));
        let between = 0.5 * (floor.edge + floor.threshold);
        assert_eq!(floor.judge(between).verdict, Verdict::At);
        assert!(floor.judge(between).spike.is_some());
    }

    #[test]
    fn counting_is_self_consistent() {
        // The eigenvalue 12 counts only once 40 is excluded from the centre.
        let mut eigenvalues = vec![40.0, 12.0];
        eigenvalues.extend(std::iter::repeat_n(0.0, 3));
        let first_centre = 52.0 / 5.0;
        let spectral_noise =
            SpectralNoise::new(&NoiseModel::gaussian(1.0), 5, 0, 5.0, 0.0).unwrap();
        assert!(12.0 < first_centre + spectral_noise.threshold(5));
        let floor = Floor::from_eigenvalues(&eigenvalues, &NoiseModel::gaussian(1.0), 5.0).unwrap();
        assert_eq!(floor.components_above, 2);
    }

    #[test]
    fn degenerate_spectra_give_finite_floors() {
        for sd in [0.0, 1e-9, 1.0, 1e9] {
            for eigenvalues in [
                vec![0.0],
                vec![5.0],
                vec![0.0; 4],
                vec![1.0; 6],
                vec![-1.0; 3],
                vec![1.0 + 1e-15, 1.0, 1.0 - 1e-15],
                vec![1e300, 0.0, -1e300],
                vec![2e-6, 1e-6],
            ] {
                let p = eigenvalues.len();
                let floor =
                    Floor::from_eigenvalues(&eigenvalues, &NoiseModel::gaussian(sd), 1.0).unwrap();
                assert!(floor.centre.is_finite() && floor.threshold.is_finite());
                assert!(floor.components_above < p);
                if eigenvalues
                    .iter()
                    .all(|x| (x - eigenvalues[0]).abs() <= 1e-12 * x.abs())
                {
                    assert_eq!(floor.components_above, 0, "{eigenvalues:?} at {sd}");
                }
                for &value in &eigenvalues {
                    if let Some(spike) = floor.judge(value).spike {
                        assert!(spike.theta.is_finite());
                        assert!((0.0..=1.0).contains(&spike.squared_cosine));
                    }
                }
            }
        }
    }

    #[test]
    fn bad_spectra_are_rejected() {
        let noise = NoiseModel::gaussian(1.0);
        assert!(Floor::from_eigenvalues(&[], &noise, 1.0).is_err());
        assert!(Floor::from_eigenvalues(&[1.0, f64::NAN], &noise, 1.0).is_err());
        assert!(Floor::from_eigenvalues(&[1.0, 2.0], &noise, 1.0).is_err());
        assert!(Floor::from_eigenvalues(&[1.0], &noise, 0.0).is_err());
    }
}
